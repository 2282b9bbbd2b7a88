"""What to change: passes over a graph, and the search over them."""
