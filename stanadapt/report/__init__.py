"""Pages of results: the only room with templates and HTML."""
