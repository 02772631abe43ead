"""The law of series that a program writes in their innovations.

A program that is not centred has standard normal innovations x, and a series that is made of them, such as
h_t = phi h_t-1 + sigma x_t. The data of a day then depend on all days before, so that the precision of x is
dense. In

    u_t = x_t + rho_t(theta) u_t-1

with rho_t = phi, which is the series in units of its steps, the precision is sparse, and field.py has a law.
So this law goes last: x_t = u_t - rho_t(theta) u_t-1. Its derivatives are triangular with ones, and draws
are exact whatever rho is.

Its rows come before those of the field, and are those of a field with s = a = 0: the latents are the
innovations, the last one of a series first, and each has one entry, G = -rho_t, for the one before. Between
two series, one after the other, it is 0. fields/innovation_search.py finds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from . import field


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any) -> None:
    """Turn series u among the coordinates `x` (d,) into innovations, in place."""
    at, flat = field.places(table), table.reshape(table.size)
    own, g = flat[at[8] : at[9]], field.entries_at(table, at, x)
    for j in range(g.size):
        x[int(own[j])] += g[j] * x[int(own[j + 1])]


@kernel(ordered=True, late=True)
def into_u(table: Any, x: Any) -> None:
    """Turn innovations among the coordinates `x` (d,) into series u, in place."""
    at, flat = field.places(table), table.reshape(table.size)
    own, g = flat[at[8] : at[9]], field.entries_at(table, at, x)
    for j in range(g.size - 1, -1, -1):
        x[int(own[j])] -= g[j] * x[int(own[j + 1])]


@kernel(ordered=True, late=True)
def pull_back(table: Any, x: Any, score: Any) -> None:
    """Turn the score in the innovations, at `x` (d,), into the one in u, in place."""
    at, flat = field.places(table), table.reshape(table.size)
    own, g = flat[at[8] : at[9]], field.entries_at(table, at, x)
    n = g.size + 1
    pull_g = np.empty(g.size)
    series = x[int(own[n - 1])]
    for j in range(n - 2, -1, -1):
        i, before = int(own[j]), int(own[j + 1])
        pull_g[j] = series * score[i]
        series = x[i] - g[j] * series
        score[before] += g[j] * score[i]
    field.add_to_heads(table, at, x, pull_g[:0], pull_g[:0], pull_g, 1.0, score)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, x: Any, score: Any) -> None:
    """Turn the score in u into the one in the innovations, at `x` (d,), in place."""
    at, flat = field.places(table), table.reshape(table.size)
    own, g = flat[at[8] : at[9]], field.entries_at(table, at, x)
    n = g.size + 1
    pull_g, series = np.empty(g.size), np.empty(n)
    series[n - 1] = x[int(own[n - 1])]
    for j in range(n - 2, -1, -1):
        series[j] = x[int(own[j])] - g[j] * series[j + 1]
    for j in range(n - 1):
        i = int(own[j])
        pull_g[j] = series[j + 1] * score[i]
        score[int(own[j + 1])] -= g[j] * score[i]
    field.add_to_heads(table, at, x, pull_g[:0], pull_g[:0], pull_g, -1.0, score)
