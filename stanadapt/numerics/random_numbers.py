"""Random numbers for kernels whose sums keep their order.

numba compiles its generators of random numbers once for kernels that may reorder sums, and once more for
others. The numbers are the same, so that all can have those of the first kind.
"""

from __future__ import annotations

from ..jit import kernel
from ..kinds import Generator, Real


@kernel(counted=False)
def draw_normal(rng: Generator) -> Real:
    """A standard normal number."""
    return rng.standard_normal()


@kernel(counted=False)
def draw_uniform(rng: Generator) -> Real:
    """A number between 0 and 1."""
    return rng.random()
