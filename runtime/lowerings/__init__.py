"""Lowerings: one module for each pass whose decisions torch can carry out, found by scanning this folder.

A module offers a function (or class) of its own name: `tensor_fusion.py` offers `tensor_fusion(payload, model)`. It
validates the payload, raises PlanError with the JSON path, and returns the model to train, changed or wrapped.
"""
