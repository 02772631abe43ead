"""Models of PyMC: their graphs, compiled by numba."""
