"""How groups, their heads, locations and numbers are learnt from draws and scores."""
