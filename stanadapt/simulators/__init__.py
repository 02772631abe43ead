"""Targets that consist of a simulator and a prior."""
