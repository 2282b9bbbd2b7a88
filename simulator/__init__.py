"""What would happen: traces in, dataflow graph, replay, analyses, clusters, training at any scale."""
