"""Chrome JSON, the format of most timelines: read in any state of repair, and written."""
