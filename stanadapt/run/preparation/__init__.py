"""Preparation of a run, before its chains begin: starts, the method, memory, and compiled kernels."""
