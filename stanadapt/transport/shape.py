"""The shape of a coordinate, by its draws and scores: its median, its width, and how heavy its tails are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel

LEAST = 45  # fewest draws to learn from
POWER = 0.65  # in a coordinate with a heavy tail, the mean of -s u grows by this power of |u| at most


@kernel(ordered=True)
def shape_of(x: Any, s: Any) -> Any:
    """The median, the spread by quartiles, and the power of |u| by which the mean of -s u grows.

    u is x minus the median; the growth is measured from the middle draws to the outer ones.
    """
    ordered = np.sort(x)
    center = quantile(ordered, 0.5)
    spread = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.35
    size = np.abs(x - center)
    ordered = np.sort(size)
    low, mid, high = quantile(ordered, 0.3), quantile(ordered, 0.6), quantile(ordered, 0.85)
    inner, outer, of_inner, of_outer, few, many = 0.0, 0.0, 0.0, 0.0, 0, 0
    for i in range(x.size):
        pull = -s[i] * (x[i] - center)
        if low <= size[i] <= mid:
            inner, of_inner, few = inner + pull, of_inner + size[i], few + 1
        if size[i] >= high:
            outer, of_outer, many = outer + pull, of_outer + size[i], many + 1
    rise = np.log((outer / many) / (inner / few))
    return center, spread, rise / np.log((of_outer / many) / (of_inner / few))


@kernel(ordered=True)
def quantile(ordered: Any, p: float) -> Any:
    """The quantile of ordered values (n,), with linear interpolation."""
    place = p * (ordered.size - 1)
    below = int(place)
    after = min(below + 1, ordered.size - 1)
    return ordered[below] + (place - below) * (ordered[after] - ordered[below])
