"""From arrays to ArviZ, and files."""
