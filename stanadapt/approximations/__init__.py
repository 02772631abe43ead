"""The maximum of a density, and approximations of a posterior by normal laws.

The public functions are `optimize` in optimum.py, `laplace` in laplace_draws.py, and `pathfinder` in
pathfinder_draws.py.
"""
