"""A run: what was asked, where chains start, the chains, and how they take turns."""
