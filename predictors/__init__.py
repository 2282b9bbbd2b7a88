"""How long an op takes: cost models, measured, analytic and learned."""
