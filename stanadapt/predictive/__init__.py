"""Quantities of a model over draws: those of a fit, or of its prior."""
