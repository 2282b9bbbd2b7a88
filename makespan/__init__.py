"""Makespan: replay, what-if, prediction and optimisation of machine-learning systems' performance."""
