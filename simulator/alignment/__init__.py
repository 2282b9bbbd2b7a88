"""Alignment: which communications of several ranks are one, and how far the clocks apart are that timed them."""
