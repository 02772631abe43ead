"""Weights of programs that are centred: what the Hessian tells of their scales, where all weights are 0.

If x_k ~ N(0, s_k^2) are coefficients of a regression, their negative Hessian is diag(q) + f D with q = s^-2,
and where they are 0 their score is f (b - G g). So scores at a point where a head has moved tell log f, and
the product of the Hessian with one vector tells by how much each q has changed. The data hide q itself, but
it is a product of powers of the heads' scales, or a sum of two such products where scales have an upper
limit. Along a head whose part of q is A r^h, three points tell A and r.

With these scales the program is turned to the other form, x = s w, where the law of weights is looked for
from nothing (weights_search.py). So what is wrong here is refused there.
"""

from __future__ import annotations

import numpy as np

from ..weights import NO_LIMIT
from ..weights_table import Weights
from .probes import ScaledDensity
from .weight_scales import SAME, Scales
from .weight_space import WRONG, Head, WeightSpace, groups_of, is_of_data

_NOISE = 1e-6  # a smaller change of q, beside the diagonal of the Hessian, is none
_TOLD = 1e-4  # q is known where it is more than this share of that diagonal
_STEPS = np.array([1.0, -1.0, 2.0])  # along a head, which tell A and r
_LEAST_RISE = 0.05  # |log r| of a head that tells A
_WRONG_RISE = 1e-3  # share of A (r^2 - 1) by which it may be off
_MOST_PLACES, _FARTHER = 4, 5.0  # how often heads are moved to where q is larger, and by how many steps
_ALIKE = 1e-4  # amplitudes that differ by less, relatively and beside noise, are of the same product


def turning_law(
    density: ScaledDensity, x: np.ndarray, weights: np.ndarray, variables: np.ndarray
) -> Weights | None:
    """The law that turns coefficients `weights` (K,) of a centred program to w = x / s, around `x` (d,); None
    where their scales are not seen, or where no variable has scales of some of them alone.
    """
    others = np.delete(variables, weights)
    if np.bincount(others).max(initial=0) < 2:
        return None
    for _ in range(_MOST_PLACES):
        space = _CentredSpace(density, x, weights, variables)
        if not space.is_possible():
            return None
        heads, _ = space.roles()
        if all(head.moves.all() for head in heads):
            return None
        moves = space.find_precisions(heads)
        if space.is_known():
            scales = space.scales(heads)
            return None if scales is None else space.law(scales)
        if not moves:
            break
        x = x.copy()
        x[[*moves]] += [*moves.values()]
    return None


class _CentredSpace(WeightSpace):
    """What products with the Hessian say where all coefficients are 0."""

    def __init__(
        self, density: ScaledDensity, x: np.ndarray, weights: np.ndarray, variables: np.ndarray
    ) -> None:
        super().__init__(density, x, weights, variables)
        self._block = self.data + np.eye(len(weights))
        self._product = self.products(self.x[None])[0]
        self._precisions = np.zeros(len(weights))  # q at `x`

    def is_possible(self) -> bool:
        """Whether the Hessian may be that of a normal prior and of data."""
        if not (np.isfinite(self._block).all() and np.isfinite(self.score).all() and self.score.any()):
            return False
        return is_of_data(self._block)

    def roles(self) -> tuple[list[Head], np.ndarray]:
        """The heads, and the coordinates whose derivatives are mixed with those of coefficients."""
        others = np.setdiff1d(np.arange(self.x.size), self.weights)
        points = np.tile(self.x, (len(others), 1))
        points[np.arange(len(others)), others] += self.unit[others]
        f = self._error_ratios(points)
        moved, heads = np.full((len(others), len(self.weights)), np.nan), []
        known = np.isfinite(f)
        if known.any():
            moved[known] = self._changes_of_precisions(points[known], f[known])
        for k, moves, ratio in zip(others, np.abs(moved) > _NOISE * np.diag(self._block), f, strict=True):
            moves_error = bool(abs(np.log(ratio)) > SAME)
            if np.isfinite(ratio) and (moves.any() or moves_error):
                heads.append(Head(int(k), moves | self.is_alone[k], moves_error))
        return heads, others[~known]

    def _error_ratios(self, points: np.ndarray) -> np.ndarray:
        """f (n,) at points (n, d) beside that at `x`; NaN where scores have changed in another way."""
        scores, size = self.scores(points), np.abs(self.probe)
        f = scores @ (self.score * size**2) / np.sum(np.square(self.score * size))
        left = np.linalg.norm((scores - f[:, None] * self.score) * size, axis=1)
        holds = (f > 0.0) & (left < WRONG * np.linalg.norm(scores * size, axis=1))
        return np.where(holds, f, np.nan)

    def _changes_of_precisions(self, points: np.ndarray, f: np.ndarray) -> np.ndarray:
        """q(theta) - f q (n, K) at points (n, d), from products with the Hessian."""
        return np.asarray((self.products(points) - f[:, None] * self._product) / self.probe)

    def find_precisions(self, heads: list[Head]) -> dict[int, float]:
        """Find q at `x` from what heads change. If some are too small to be seen beside the data, the result
        is how far to move their heads, so that these are larger.
        """
        amplitudes: list[list[float]] = [[] for _ in self.weights]
        larger: dict[int, float] = {}
        for group in groups_of([head for head in heads if not head.moves_error]):
            points, places = np.tile(self.x, (len(_STEPS), 1)), [head.place for head in group]
            points[:, places] += _STEPS[:, None] * self.step[places]
            risen, fallen, twice = self._changes_of_precisions(points, np.ones(len(_STEPS)))
            rate = -risen / fallen
            amplitude = risen / (rate - 1.0)
            is_power = np.abs(amplitude * (np.square(rate) - 1.0) - twice) < _WRONG_RISE * np.abs(twice)
            is_power &= (np.abs(np.log(rate)) > _LEAST_RISE) & (amplitude > 0.0)
            for head in group:
                for k in np.flatnonzero(head.moves & is_power & self._is_seen(amplitude)):
                    amplitudes[k].append(float(amplitude[k]))
                ahead = float(np.sign((risen - fallen)[head.moves].sum()))
                larger[head.place] = ahead * _FARTHER * self.step[head.place]
        noise = _NOISE * np.diag(self._block)
        self._precisions = np.array([_sum_of_products(*one) for one in zip(amplitudes, noise, strict=True)])
        size = np.sqrt(self._precisions)
        data = self._block - np.diag(self._precisions)
        self.data = data / np.outer(size, size)
        np.fill_diagonal(self.data, np.maximum(np.diag(self.data), 0.0))
        unseen = np.isnan(self._precisions)
        needed = {head.place for head in heads if unseen[head.moves].all()}
        return {place: move for place, move in larger.items() if place in needed}

    def is_known(self) -> bool:
        """Whether all q are known."""
        return bool(np.isfinite(self._precisions).all())

    def _is_seen(self, q: np.ndarray) -> np.ndarray:
        """Whether q (..., K) is not lost beside the data."""
        return np.asarray(q > _TOLD * np.diag(self._block))

    def changes(self, points: np.ndarray, *, with_error: bool) -> tuple[np.ndarray, np.ndarray]:
        """How much log scales (n, K) and log f (n,) differ at points (n, d) from those at `x`; NaN where they
        are not known. Without `with_error` log f is taken to be the same.
        """
        f = self._error_ratios(points) if with_error else np.ones(len(points))
        q = self._changes_of_precisions(points, f) + f[:, None] * self._precisions
        q = np.where(self._is_seen(q), q, np.nan)
        return -0.5 * np.log(q / self._precisions), np.log(f)

    def law(self, scales: Scales) -> Weights:
        """The law that only turns the program to the other form."""
        k = len(self.weights)
        offsets = np.where(
            scales.offsets < NO_LIMIT, scales.offsets - 0.5 * np.log(self._precisions), NO_LIMIT
        )
        return Weights(
            own=self.weights,
            is_weight=np.ones(k, bool),
            prior=np.array([np.ones(k), np.zeros(k)]),
            offsets=offsets,
            norms=scales.norms,
            precision=np.zeros((k, k)),
            pulls=np.zeros(k),
            coefficients=self.weights[:0],
            slopes=np.zeros((k, 0)),
            curves=scales.curves,
            is_centred=True,
        )


def _sum_of_products(amplitudes: list[float], noise: float) -> float:
    """q from the products that heads change: one, or two, or these and their sum; NaN for others."""
    found: list[float] = []
    for amplitude in sorted(amplitudes):
        if not found or amplitude - found[-1] > _ALIKE * amplitude + noise:
            found.append(amplitude)
    if len(found) == 3 and abs(found[0] + found[1] - found[2]) < _ALIKE * found[2] + noise:
        return found[2]
    return sum(found) if len(found) in (1, 2) else np.nan
