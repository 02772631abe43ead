"""What jit.py compiles kernels with: numba's compiler in our form, files of machine code, direct calls."""
