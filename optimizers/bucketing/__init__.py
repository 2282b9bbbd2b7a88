"""Bucketing: what tensor fusion decides with: the gradients of a capture, other buckets for it, and the search."""
