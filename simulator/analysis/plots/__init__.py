"""Plots: one module a picture; each function draws on the `ax` it is given, returns it, and shows nothing."""
