"""Targets made of a simulator and a prior: their likelihood can be simulated but not computed."""
