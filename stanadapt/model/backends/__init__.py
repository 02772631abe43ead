"""Where log densities come from: stanli, BridgeStan, or Python callables."""
