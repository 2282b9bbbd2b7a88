"""Training: data-parallel steps described op by op, as one graph of all ranks."""
