"""Pictures of results. No other room uses matplotlib."""
