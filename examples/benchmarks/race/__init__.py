"""The pieces of peers.py, the race of this package's methods against other samplers."""
