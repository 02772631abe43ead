"""Log densities in JAX, and models of NumPyro."""
