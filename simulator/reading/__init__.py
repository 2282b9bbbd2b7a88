"""Reading: what importers of several formats share, from files to event tables."""
