"""Analyses of a schedule: steps, breakdown, overlap, critical path, slack, what-ifs, comparison, memory, plots."""
