"""Pictures of results: the only room with matplotlib."""
