"""Mathematics that samplers share, as compiled kernels."""
