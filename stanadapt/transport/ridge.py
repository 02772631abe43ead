"""The law of a ridge: a coordinate whose location is of second order in others.

Suppose that x_j has the normal law N(c(x), sigma²) given all other coordinates, where c is of second order in
a few of them, its parents. Where c bends much within the width of the parents, the posterior is a narrow
ridge along a parabola (Rosenbrock's function, the banana of Haario, Saksman and Tamminen, 1999) or a saddle
(a location that is the product of two parameters). A metric has one slope, that of c at one point. The law

    x_j = z_j + c(x),   c(x) = sum over terms of q (x_a - m_a), q (x_a - m_a)² or q (x_a - m_a) (x_b - m_b)

makes z_j normal and independent of all other coordinates. It is triangular and moves z_j by a shift alone, so
log |dx/dz| is 0, and draws are exact whatever c is.

A term of second order holds as far as draws have been, and a little farther: to the reach r of each parent.
With u = (x_a - m_a) / r_a, v = (x_b - m_b) / r_b and Huber's function H, which is t² up to |t| = 2 and goes
on as a straight line with the slope there,

    u v = (H(u + v) - H(u - v)) / 4    where |u|, |v| <= 1,

and the right-hand side is the law. It grows no faster than a straight line, so that a parabola that was
fitted to a few draws cannot fold a tail. If the scores of x_j are explained wholly (ridge_learning.py), the
law is that of the program everywhere, and its reach is infinite.

A ridge has one row of the map for each term; the rows of a coordinate follow each other.

Where ridges stand among the other laws. A ridge that explains scores wholly moves a coordinate that no group
can depend on, since its score has no terms but those of the ridge. But its parents may be members of groups.
So it is the last law of a map: it sees all other coordinates as they are in the program. Any other ridge is
learned in draws in which groups are undone, since a scale parameter u has the square of each member in its
score, like the child of a ridge. Such a ridge comes before groups, and its parents are coordinates that no
group moves.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from . import ridge_learning
from .map_table import OWN, PARENT_A, PARENT_B, REACH, REACH_B, RIDGE, are_coordinates
from .ridge_terms import add_slopes, ridge_rows, ridges_of, term
from .training import Training

KINDS = (RIDGE,)


@kernel(ordered=True, counted=False)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> Any:
    """Add the term of row `k` to x. Returns log |dx/dz| and the next row."""
    value, _, _ = term(table[k], x)
    x[int(table[k, OWN])] += value
    return log_det, k + 1


@kernel(ordered=True, counted=False)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Any:
    """Take the term of row `k` from z. Returns the next row."""
    value, _, _ = term(table[k], x)
    z[int(table[k, OWN])] -= value
    return k + 1


@kernel(ordered=True, counted=False)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in x into the one in z, for the row before `end`. Returns that row."""
    add_slopes(table[end - 1], x, score, score[int(table[end - 1, OWN])])
    return end - 1


@kernel(ordered=True, counted=False)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in z into the one in x, for row `k`. Returns the next row."""
    add_slopes(table[k], x, score, -score[int(table[k, OWN])])
    return k + 1


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows have parents and reaches, and move no coordinate that a term before depends on."""
    own, first, second = rows[:, OWN], rows[:, PARENT_A], rows[:, PARENT_B]
    if not (are_coordinates(first, d) and are_coordinates(second, d, -1)):
        return False
    if not (np.all(rows[:, REACH] > 0.0) and np.all(rows[:, REACH_B] > 0.0)):
        return False
    starts = np.flatnonzero(np.diff(own, prepend=-1.0))
    if len(set(own)) < len(starts):  # the rows of a coordinate follow each other
        return False
    return not any(np.isin((first[k], second[k]), own[k:]).any() for k in range(len(rows)))


def learn(
    rows: np.ndarray, training: Training, begun: ridge_learning.RidgeSearch | None = None
) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use.

    `begun` is a search for ridges that may be at the same draws.
    """
    with contextlib.suppress(np.linalg.LinAlgError):
        return ridge_rows(ridge_learning.learn_ridges(ridges_of(rows), training, begun))
    return rows


class ExactRidges(NamedTuple):
    """Ridges that explain scores wholly."""

    rows: np.ndarray
    search: ridge_learning.RidgeSearch | None  # for others, in draws in which these are undone

    def may_be_more(self) -> bool:
        """Whether there may be ridges that do not explain scores wholly, where no other law is in use."""
        with contextlib.suppress(np.linalg.LinAlgError):
            return self.search is not None and ridge_learning.may_be_ridges(self.search)
        return False


def learn_exact(rows: np.ndarray, training: Training) -> ExactRidges:
    """The ridges that explain scores wholly, in draws in which no law is undone."""
    found = ridge_learning.Found(ridges_of(rows), None)
    with contextlib.suppress(np.linalg.LinAlgError):
        found = ridge_learning.learn_exact_ridges(found.ridges, training)
    return ExactRidges(ridge_rows(found.ridges), found.search)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What ridges do to each coordinate, as arrays (d,) for results.

    `ridge_terms` is the number of terms of second order in a coordinate's location, 0 for one that is not
    moved. `ridge_parent` and `ridge_partner` are the indices a and b of the term that moves it most, the same
    for a square; -1 where there is none.
    """
    terms, parent, partner = np.zeros(d, np.int64), np.full(d, -1), np.full(d, -1)
    for one in ridges_of(rows):
        terms[one.child] = np.count_nonzero(one.seconds >= 0)
        parent[one.child], partner[one.child] = one.firsts[0], one.seconds[0]
    return {"ridge_terms": terms, "ridge_parent": parent, "ridge_partner": partner}
