"""What really happens: capture of torch jobs, and execution of plans by torch."""
