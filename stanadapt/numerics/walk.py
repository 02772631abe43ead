"""The Gaussian random walk with a full covariance."""

from __future__ import annotations

from typing import Any

from ..jit import kernel
from .linear import add_times


@kernel
def propose_walk(x: Any, root_t: Any, s: Any, rng: Any, y: Any, z: Any) -> None:
    """Write y = x + s R z to `y` (d,), with z standard normal, which is left in `z` (d,).

    `root_t` (d, d) is R transposed, see linear.py.
    """
    for i in range(x.size):
        z[i] = rng.standard_normal()
        y[i] = x[i]
    add_times(y, root_t, s * z)
