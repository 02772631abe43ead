"""How groups, their scale parameters, locations and numbers are learned from draws and scores."""
