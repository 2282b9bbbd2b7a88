"""Expansion: collectives of a graph become the messages that an algorithm sends over the links of a cluster."""
