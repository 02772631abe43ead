"""The law of series that a program writes in their innovations.

A program that is not centred has standard normal innovations x, and a series that is made of them, such as
h_t = phi h_t-1 + sigma x_t. The data of a day then depend on all days before, so that the precision of x is
dense. In

    u_t = e^(s_t(theta)) x_t + rho_t(theta) u_t-1

with rho_t = phi, which is the series in units of its steps, the precision is sparse, and field.py has a law.
Its first term may be wider than the steps, and s_1 says how much. Beside effects of groups, which depend on
the series itself, s has the log scale of the steps too. So this law goes last:
x_t = e^(-s_t(theta)) (u_t - rho_t(theta) u_t-1). It is triangular; draws are exact whatever s and rho are.

This is the inverse of a field: u is its x, and x its z, with G = -rho_t for the term before. So its rows are
those of a field with another kind, and there may be several, for series with heads of their own. They come
before those of the field of u. fields/innovation_search.py finds them.
"""

from __future__ import annotations

from typing import Any

from ..jit import kernel
from ..kinds import Real
from . import field


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any) -> Real:
    """Turn series u among the coordinates `x` (d,) into innovations, in place. Returns log |dx/du|."""
    log_det = field.log_scale_at(table, x)
    field.into_z(table, x, x)
    return -log_det


@kernel(ordered=True, late=True)
def into_u(table: Any, x: Any) -> None:
    """Turn innovations among the coordinates `x` (d,) into series u, in place."""
    field.into_x(table, x, x, x[:0])


@kernel(ordered=True, late=True)
def pull_back(table: Any, x: Any, score: Any) -> None:
    """Turn the score in the innovations, at `x` (d,), into the one in u, in place."""
    u = x.copy()
    field.into_x(table, x, u, x[:0])
    field.score_in_x(table, x, u, score)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, x: Any, score: Any) -> None:
    """Turn the score in u into the one in the innovations, at `x` (d,), in place."""
    field.pull_back(table, x, x, score, x[:0])
