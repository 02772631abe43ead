"""What a run needs before its chains begin: starts, the method, memory, and compiled kernels."""
