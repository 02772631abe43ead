"""What scores tell of weights (weights.py) and of their scales, where all weights are 0.

The score of each is e^(a_k + log f / 2) (b_k - G_k g), and their negative Hessian is
I + A D A. So one score at a point where a head has moved tells how all scales have changed, to all digits,
and the product of the Hessian with one vector tells log f, and whether the law holds. A coordinate for which
it holds, and which changes scales, is a head. Any other one whose derivative is mixed with those of the
weights is a coefficient: it belongs to the law if it is one of few, and is among the g otherwise.

How scales depend on a head is seen at some points along it. Scores with several heads moved at once tell
which of the forms of weight_scales.py is right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .effects_fit import blocks_at
from .probes import ScaledDensity
from .weight_scales import (
    CLOSE,
    SAME,
    Along,
    Scales,
    largest_error,
    line_through,
    shares_of_variance,
    sums_of_curves,
    with_limits,
)

# Weights are tied if so many entries of D, as correlations, are not 0. Of weights with smaller scales than
# this share of the largest, differences tell none.
_TIED, _CORRELATED, _SEEN = 0.3, 1e-4, 1e-3
# Along a head, in steps: the first ones tell whether a function is a line. A step is a unit of a head within
# these limits: units of early draws are small, and log scales have a scale of their own. Heads of one weight
# move farther, since a small scale is far from its upper limit.
_STEPS_OF_HEADS = 0.4, 0.6
_ENDS = np.array([-3.0, 1.0, 4.0])
_GRID = np.array([-8.0, -5.5, -4.0, -3.0, -2.25, -1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0, 4.0, 5.5, 8.0])
_BEYOND = np.array([-20.0, -15.0, -11.0, 11.0, 15.0, 20.0])
_ENOUGH, _FEWEST = 2, 4  # more points than this tell a line; those of a curve
_APART = 1e-3  # of points whose difference is a slope, in steps
WRONG = 1e-4  # share of a product with the Hessian that a law may leave
_JOINT, _REACH = 8, 2.0  # points at which all heads have moved, and how far these move, in steps
_UNMOVED = (
    1e-9  # a smaller change of a log scale is none; but a parameter alone may be a limit that is far off
)
_MIXED = 1e-6  # a smaller change of a score, beside it, is none


class Head(NamedTuple):
    """A coordinate that scales depend on."""

    place: int
    moves: np.ndarray  # (K,) whether it may change the scale of each weight
    moves_error: bool  # whether it changes log f


def groups_of(heads: list[Head]) -> list[list[Head]]:
    """The heads in groups that may move at once: no two of a group change the same scale, or log f.

    A horseshoe with 80 weights has 80 scales of one weight each, and points along one of them tell all.
    """
    groups: list[tuple[list[Head], np.ndarray]] = []
    for head in heads:
        moved = np.append(head.moves, head.moves_error)
        for group, taken in groups:
            if not (taken & moved).any():
                group.append(head)
                taken |= moved
                break
        else:
            groups.append(([head], moved.copy()))
    return [group for group, _ in groups]


class WeightSpace:
    """What scores say where all weights are 0."""

    def __init__(
        self, density: ScaledDensity, x: np.ndarray, weights: np.ndarray, variables: np.ndarray
    ) -> None:
        self.density, self.weights = density, weights
        self.is_alone = np.bincount(variables)[variables] == 1
        self.x = x.copy()
        self.x[weights] = 0.0
        self.unit, self.step = density.unit, np.clip(density.unit, *_STEPS_OF_HEADS)
        self.score = self.scores(self.x[None])[0]
        block = blocks_at(density, weights[None], self.x)[0]
        self.data = block - np.eye(len(weights))
        signs = np.random.default_rng(5).choice([-1.0, 1.0], len(weights))  # no random numbers of the chain
        self.probe = signs / np.sqrt(np.abs(np.diag(block)))

    def is_possible(self) -> bool:
        """Whether the Hessian is that of a standard normal prior and of data."""
        if not (np.isfinite(self.data).all() and np.isfinite(self.score).all() and np.all(self.score != 0.0)):
            return False
        return is_of_data(self.data)

    def scores(self, points: np.ndarray) -> np.ndarray:
        """The scores (n, K) of weights at points (n, d), NaN where there are none."""
        logp, scores = self.density.at_all(points / self.unit)
        found = (scores / self.unit)[:, self.weights]
        found[~np.isfinite(logp)] = np.nan
        return np.asarray(found)

    def products(self, points: np.ndarray) -> np.ndarray:
        """The products (n, K) of the negative Hessian of weights at points (n, d) with `probe`."""
        direction = np.zeros(self.x.size)
        direction[self.weights] = self.probe
        directions = np.tile(direction / self.unit, (len(points), 1))
        products = self.density.curvatures(points / self.unit, directions)
        return np.asarray((products / self.unit)[:, self.weights])

    def changes(self, points: np.ndarray, *, with_error: bool) -> tuple[np.ndarray, np.ndarray]:
        """How much log scales (n, K) and log f (n,) differ at points (n, d) from those at `x`; NaN where the
        law does not hold. Without `with_error` log f is taken to be the same.
        """
        change = self._log_ratios(self.scores(points))
        return self._apart(points, change) if with_error else (change, np.zeros(len(points)))

    def _log_ratios(self, scores: np.ndarray) -> np.ndarray:
        """The changes of log s + log f (n, K) from those at `x`, by scores (n, K); NaN where signs differ."""
        ratios = scores / self.score
        return np.asarray(np.log(np.where(ratios > 0.0, ratios, np.nan)))

    def _apart(self, points: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The changes of log s (n, K) and of log f (n,) at points (n, d), from those of their sums (n, K)."""
        products = self.products(points) - self.probe
        scales = np.exp(change)  # s f, so that the data's part is this, less a factor f
        parts = scales * (scales * self.probe @ self.data)
        f = np.square(parts).sum(axis=1) / (parts * products).sum(axis=1)
        size = np.abs(self.probe)  # a weight with much larger data than the others hides none of them then
        left = np.linalg.norm((products - parts / f[:, None]) * size, axis=1)
        holds = (f > 0.0) & (left < WRONG * np.linalg.norm(products * size, axis=1))
        log_f = np.log(np.where(holds, f, np.nan))
        return change - log_f[:, None], log_f

    def roles(self) -> tuple[list[Head], np.ndarray]:
        """The heads, and the coordinates whose derivatives are mixed with those of weights."""
        others = np.setdiff1d(np.arange(self.x.size), self.weights)
        points = np.tile(self.x, (len(others), 1))
        points[np.arange(len(others)), others] += self.unit[others]
        scores = self.scores(points)
        change, log_f = self._apart(points, self._log_ratios(scores))
        moved = np.abs(scores / self.score - 1.0)  # of each weight, whose scale may be next to nothing
        heads, mixed = [], []
        for k, c, log_value, most in zip(others, change, log_f, moved.max(axis=1), strict=True):
            if not most > _MIXED:
                continue
            is_changed = max(np.abs(c).max(), abs(log_value)) > SAME
            if np.isfinite(log_value) and np.isfinite(c).all() and is_changed:
                moves = (np.abs(c) > _UNMOVED) | self.is_alone[k]
                heads.append(Head(int(k), moves, bool(abs(log_value) > SAME)))
            else:
                mixed.append(k)
        return heads, np.array(mixed, np.int64)

    def scales(self, heads: list[Head]) -> Scales | None:
        """How log scales and log f depend on all heads; None where they are no sums of functions of one."""
        along: dict[int, Along] = {}
        for group in groups_of(heads):
            of_group = self._along(group)
            if of_group is None:
                return None
            along |= of_group
        places = [head.place for head in heads]
        joint = np.tile(self.x, (_JOINT, 1))
        rng = np.random.default_rng(7)
        moves = rng.uniform(-_REACH, _REACH, (_JOINT, len(heads)))
        joint[:, places] += moves * self.step[places]
        truth = self.changes(joint, with_error=any(head.moves_error for head in heads))
        found = [
            form([along[place] for place in places], self.x)
            for form in (sums_of_curves, with_limits, shares_of_variance)
        ]
        off = [largest_error(one, joint, truth, np.diag(self.data)) for one in found]
        return found[int(np.argmin(off))] if min(off) < CLOSE else None

    def _along(self, heads: list[Head]) -> dict[int, Along] | None:
        """Log scales and log f along each of some heads, none of which moves what another one does."""
        far = _BEYOND if all(head.moves.sum() == 1 for head in heads) else _BEYOND[:0]
        found, bent = {}, []
        for head, (away, values) in zip(heads, self._points(heads, np.append(_ENDS, far)), strict=True):
            known = np.isfinite(values).all(axis=1)
            line = line_through(away[known], values[known]) if known.sum() > _ENOUGH else None
            if line is None:
                bent.append(head)
            else:
                found[head.place] = Along(head.place, np.zeros(1), np.zeros((1, len(line))), line[None])
        if not bent:
            return found
        grid = np.sort(np.append(_GRID, far))
        here, below, above = (self._points(bent, grid + side * _APART) for side in (0, -1, 1))
        for head, (away, values), (_, low), (_, high) in zip(bent, here, below, above, strict=True):
            slopes = (high - low) / (2.0 * _APART * self.step[head.place])
            known = np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1)
            if np.count_nonzero(known) < _FEWEST:
                return None
            found[head.place] = Along(head.place, away[known], values[known], slopes[known])
        return found

    def _points(self, heads: list[Head], moves: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """How far (n,) each of the heads has moved, and log scales and log f (n, K + 1) that it moves there,
        NaN where not known.
        """
        points, places = np.tile(self.x, (len(moves), 1)), [head.place for head in heads]
        points[:, places] += moves[:, None] * self.step[places]
        change, log_f = self.changes(points, with_error=any(head.moves_error for head in heads))
        found = []
        for head in heads:
            errors = log_f if head.moves_error else np.zeros(len(moves))
            own = np.column_stack((np.where(head.moves, change, 0.0), errors))
            found.append((moves * self.step[head.place], own))
        return found


def is_of_data(matrix: np.ndarray) -> bool:
    """Whether a matrix (K, K) may be A D A: it has no negative eigenvalue, and many entries are not 0, in
    contrast to that of effects of groups.
    """
    values, size = np.linalg.eigvalsh(matrix), np.sqrt(np.maximum(np.diag(matrix), 0.0))
    if not values[0] > -WRONG * values[-1] or not values[-1] > 0.0:
        return False
    seen = size > _SEEN * size.max()
    tied = np.abs(matrix) > _CORRELATED * np.outer(size, size)
    return bool(np.mean(tied[np.ix_(seen, seen)]) > _TIED)
