"""A Stan program with its data, opened: what it declares, and what evaluates it."""
