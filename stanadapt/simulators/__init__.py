"""Targets made of a simulator and a prior."""
