"""Builder: from what each rank recorded to the dependencies that explain it."""
