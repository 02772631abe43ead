"""Modes of the latents given the heads, and where the heads are, by the approximation of Laplace.

For heads theta let x(theta) be the mode of the latents and Q(theta) their precision there. Then
log p(theta | data) is about log p(theta, x(theta)) - log |Q(theta)| / 2, up to a constant (Tierney and
Kadane, 1986; Rue, Martino and Chopin, 2009, Approximate Bayesian inference for latent Gaussian models by
using integrated nested Laplace approximations). The mode of this function and its curvature tell where the
heads are and how far they reach, before a chain has been there. Nothing here needs to be exact: draws are
exact for any map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse

from .precision import Factor, Precision

# Of a search for a mode, which takes two to five steps on series and maps, and the squared length of its last
# one in scales.
_NEWTON_STEPS, _CLOSE = 16, 1e-2
_NEWTON_STEPS_NEAR = 5  # after an approach
# A whole step after which the squared length of the next one is at most this share of its own. Along such a
# step the precision changes by two in a thousand at most.
_QUADRATIC = 1e-6
_MOST_DAMPED, _FEW_DAMPED = 8, 2  # steps with a precision that is not positive definite
_LOOK_AGAIN = 8  # a search that takes more steps goes on only if the precision has all its entries
_SHARES = 14  # of a step that are tried, each half as long as the one before
# Of an approach: its steps, the length of the longest one, the shares of a step that are tried, and the
# squared length of its last step, in that of Newton's method. Steps to the mode of a sparse precision are
# few, so that it may be nearer: the log density of the heads is off by 0.001 then, and not by 0.05.
_APPROACHES, _LONGEST_APPROACH, _SHARES_NEAR = 25, 10.0, 6
_NEARLY_DENSE, _NEARLY_SPARSE = 0.3, 3e-3
_DAMPING, _LARGEST_DAMPING = 1e-3, 1e4  # shares of the diagonal that are added to an indefinite precision
_ROUNDS = 20  # steps of the search for the heads
_LAST_ROUND = 0.5  # no step begins after this share of the gradients
_WORSE = 0.5  # a step went too far if the log density of the heads has fallen by this from the largest one
_UNEXPLAINED = 0.1  # share, in root mean square, of a product with the precision that its entries may miss
_FIRST_REACH = 0.5  # of the heads, in the program's own coordinates
_LONGEST = 2.0  # first step of the heads along each axis of their quadratic, in reaches
_FAR = 12.0  # in reaches; along an axis on which the mode is farther, the next design is twice as wide
_ARRIVED = 0.4
_LOOKS = 5  # around a mode, that tell whether latents are normal there
_CURVATURES = 0.1, 25.0  # of the log density of the heads, in reaches


class LatentMode(NamedTuple):
    """The mode of the latents given the heads."""

    x: np.ndarray  # (d,) in units
    logp: float  # the log density of the heads there, by Laplace
    factor: Factor
    damped: int = 0  # steps to it at which the precision was not positive definite


class MissingEntriesError(Exception):
    """The precision has entries where its pattern has none; at `x` (d,) they can be seen."""

    def __init__(self, x: np.ndarray) -> None:
        super().__init__("the precision has more entries here")
        self.x = x


class HeadPosterior(NamedTuple):
    """Where the heads are."""

    theta: np.ndarray  # (m,) in units
    root: np.ndarray  # (m, m) C, where C C^T is their covariance
    mode: LatentMode

    def covariance(self) -> np.ndarray:
        """Of the heads (m, m), in units."""
        return np.asarray(self.root @ self.root.T)


def find_mode(precision: Precision, x: np.ndarray, factor: Factor | None = None) -> LatentMode | None:
    """The mode of the latents by Newton's method from `x` (d,), whose heads stay; None if none is found.

    If the `factor` of a precision nearby is known, the mode is approached with that one: a precision takes
    more gradients than a step of the approach does. Where the log density is quadratic, one step of Newton's
    method is all that is needed.
    """
    steps = _NEWTON_STEPS
    if factor is not None and (precision.dense or not precision.quadratic):
        x = _approach(precision, x, factor)
        steps = _NEWTON_STEPS_NEAR if precision.dense else _NEWTON_STEPS
    latents, x = precision.latents, x.copy()
    logp, score = precision.density(x)
    if not np.isfinite(logp):
        return None
    added, n_damped = 0.0, 0
    for step in range(steps):
        matrix = precision.at(x, score)
        if matrix is None:
            return None
        factor, added = _positive_factor(precision, matrix, added)
        if factor is None:
            return None
        damped = added > 0.0
        n_damped += damped
        if n_damped > _MOST_DAMPED:
            return None
        if step == _LOOK_AGAIN and not damped and not _has_all_entries(precision, x, factor):
            return None
        move = factor.solve(score[latents])
        promise = float(move @ score[latents])
        if promise < _CLOSE and not damped:  # after one more step the distance is about the square of this
            x[latents] += move
            logp, _ = precision.density(x)
            if not np.isfinite(logp):
                return None
            return LatentMode(x, logp - 0.5 * factor.log_det(), factor, n_damped)
        risen = _rise(precision, x, logp, move, promise, _shares(1.0, 0.5, _SHARES))
        if risen is None:
            return None
        share, x, logp, score = risen
        if share == 1.0 and not damped:
            left = score[latents] @ factor.solve(score[latents])
            precision.quadratic = left < _QUADRATIC * promise and left < _CLOSE
            if precision.quadratic:  # it is the same as before the step
                return LatentMode(x, logp - 0.5 * factor.log_det(), factor, n_damped)
    return None


def _shares(first: float, factor: float, n: int) -> Iterator[float]:
    """The shares of a move, of which each is `factor` times the one before."""
    for _ in range(n):
        yield first
        first *= factor


def _rise(
    precision: Precision,
    x: np.ndarray,
    logp: float,
    move: np.ndarray,
    promise: float,
    shares: Iterable[float],
) -> tuple[float, np.ndarray, float, np.ndarray] | None:
    """The first share of a move of the latents that makes the log density rise by a tenth of its promise.

    Returns it with the point (d,), its log density and its score; None if there is none.
    """
    for share in shares:
        y = x.copy()
        y[precision.latents] += share * move
        logp_y, score_y = precision.density(y)
        if np.isfinite(logp_y) and logp_y > logp + 0.1 * share * promise - 1e-8:
            return share, y, logp_y, score_y
    return None


def _approach(precision: Precision, x: np.ndarray, factor: Factor) -> np.ndarray:
    """A point (d,) near the mode of the latents, by L-BFGS from `x` (d,), without a precision there.

    The search begins with `factor` in place of the precision, and ends when it does not get on.
    """
    latents, x = precision.latents, x.copy()
    nearly = _CLOSE * (_NEARLY_DENSE if precision.dense else _NEARLY_SPARSE)
    logp, score = precision.density(x)
    steps: list[tuple[np.ndarray, np.ndarray, float]] = []  # with changes of the score, and their products
    for _ in range(_APPROACHES if np.isfinite(logp) else 0):
        move, shares = score[latents], []
        for step, change, product in reversed(steps):
            shares.append((step @ move) / product)
            move = move - shares[-1] * change
        move = factor.solve(move)
        for (step, change, product), share in zip(steps, reversed(shares), strict=True):
            move = move + (share - (change @ move) / product) * step
        promise = float(move @ score[latents])
        if promise < nearly:
            break
        tried = _shares(min(1.0, _LONGEST_APPROACH / np.sqrt(promise)), 0.3, _SHARES_NEAR)
        risen = _rise(precision, x, logp, move, promise, tried)
        if risen is None:
            break
        share, y, logp_y, score_y = risen
        change = (score - score_y)[latents]
        if move @ change > 0.0:
            step = share * move
            steps.append((step, change, step @ change))
        x, logp, score = y, logp_y, score_y
    return x


def how_far_from_normal(precision: Precision, mode: LatentMode) -> float:
    """By how much scores are not those of a normal law around a mode, in its coordinates, at the median."""
    rng, off, n = np.random.default_rng(4), [], len(precision.latents)  # no random numbers of the chain
    for _ in range(_LOOKS):
        direction, wanted = _some_direction(precision, mode.factor, rng)
        logp, score = precision.density(mode.x + direction)
        left = score[precision.latents] + wanted
        size = float(np.sqrt(left @ mode.factor.solve(left) / n))
        off.append(size if np.isfinite(logp) else np.inf)
    return float(np.median(off))


def _has_all_entries(precision: Precision, x: np.ndarray, factor: Factor) -> bool:
    """Whether a factor is that of the precision at `x` (d,), by one product with a random vector.

    A precision whose pattern was seen elsewhere may have more entries there.
    """
    if precision.dense:
        return True
    direction, wanted = _some_direction(precision, factor, np.random.default_rng(4))
    product = precision.density.curvature(x, direction)
    if product is None:
        return False
    left = product[precision.latents] - wanted
    return bool(left @ factor.solve(left) < _UNEXPLAINED**2 * len(left))


def _some_direction(
    precision: Precision, factor: Factor, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """How far a draw might be from the mode (d,), and the product of the precision with that (n,)."""
    signs = rng.choice([-1.0, 1.0], len(factor.pivots))
    product = factor.lower @ (np.sqrt(factor.pivots) * signs)
    direction = np.zeros(precision.density.unit.size)
    direction[precision.latents] = factor.solve(product)
    return direction, product


def _positive_factor(
    precision: Precision, matrix: sparse.csc_matrix, before: float
) -> tuple[Factor | None, float]:
    """The factor of a precision, and the share of its diagonal that makes it positive definite.

    A step before this one added the share `before`. What is tried first is a ninth of that, since precisions
    of points that follow each other are alike, and each trial takes a factorisation.
    """
    added = before / 9.0 if before > 9.0 * _DAMPING else 0.0
    diagonal = np.abs(matrix.diagonal())
    diagonal += 1e-8 * diagonal.max()
    while added < _LARGEST_DAMPING:
        factor = precision.factor(
            matrix if added == 0.0 else (matrix + sparse.diags(added * diagonal)).tocsc()
        )
        if factor is not None:
            return factor, added
        added = 3.0 * added + _DAMPING
    return None, added


def mode_at(
    precision: Precision, theta: np.ndarray, near: np.ndarray, factor: Factor | None = None
) -> LatentMode | None:
    """The mode at the heads `theta` (m,), from the latents of `near` (d,) and the `factor` of a near mode."""
    x = near.copy()
    x[precision.heads] = theta
    return find_mode(precision, x, factor)


def find_place(
    precision: Precision, x: np.ndarray, *, patient: bool = True, root: np.ndarray | None = None
) -> HeadPosterior | None:
    """Where the heads are, from `x` (d,); None if it is not found.

    The first design has the reach of `root` (m, m), in units, such as that of another posterior that is like
    this one. If the search is not `patient`, it ends where a mode shows that other coordinates are heads:
    given the heads the log density of the latents is mostly concave.

    Each step fits a quadratic to the log density of the heads at a small design, and goes to its mode. After
    a step that went too far, the next design is half as wide, around the best heads that were seen.

    Raises
    ------
    MissingEntriesError
        If the precision has entries on the way that its pattern has not.
    """
    m, heads, density = len(precision.heads), precision.heads, precision.density
    if m == 0:
        mode = find_mode(precision, x)
        return None if mode is None else HeadPosterior(np.zeros(0), np.zeros((0, 0)), mode)
    root = np.diag(_FIRST_REACH / density.unit[heads]) if root is None else root
    middle = best = mode_at(precision, x[heads], x)
    if middle is not None and middle.damped > _FEW_DAMPED and not patient:
        return None
    for _ in range(_ROUNDS):
        if best is None or density.spent > _LAST_ROUND:
            return None
        if middle is None or middle.logp < best.logp - _WORSE:
            middle, root = best, 0.5 * root
        if not _has_all_entries(precision, middle.x, middle.factor):
            rng = np.random.default_rng(4)  # no random numbers of the chain
            raise MissingEntriesError(middle.x + _some_direction(precision, middle.factor, rng)[0])
        theta = middle.x[heads]
        points, modes = [np.zeros(m)], [middle]
        for u in _small_design(m):
            mode = mode_at(precision, theta + root @ u, middle.x, middle.factor)
            if not patient and (mode is None or mode.damped > _FEW_DAMPED):
                return None
            if mode is not None:
                points.append(u)
                modes.append(mode)
        highest = max(modes, key=lambda mode: mode.logp)
        best = max(best, highest, key=lambda mode: mode.logp)
        if len(points) <= 2 * m:
            root = 0.5 * root
            continue
        slope, curvature = _quadratic(np.array(points), np.array([mode.logp for mode in modes]))
        sizes, vectors = np.linalg.eigh(-curvature)
        tilt = vectors.T @ slope
        # A quadratic that curves upwards, and rises over the whole design, has its mode nowhere.
        beyond = (sizes < 0.0) & (np.abs(tilt) > -sizes)
        held = np.where(beyond, 1.0, np.clip(np.abs(sizes), *_CURVATURES))
        along = np.where(beyond, np.copysign(np.inf, tilt), tilt / np.maximum(held, np.abs(sizes)))
        length = float(np.linalg.norm(along))
        arrived = length < _ARRIVED and bool(np.all((sizes > 0.4) & (sizes < 2.5)))
        middle = _climb(precision, theta, root @ vectors, along, highest)
        root = root @ (vectors * np.where(np.abs(along) > _FAR, 2.0, 1.0) / np.sqrt(held))
        if arrived:
            return None if middle is None else HeadPosterior(middle.x[heads], root, middle)
    return None


def _climb(
    precision: Precision, theta: np.ndarray, axes: np.ndarray, along: np.ndarray, near: LatentMode
) -> LatentMode | None:
    """The highest mode on the way from heads `theta` (m,) to those that are `along` (m,) on `axes` (m, m).

    The first step is short. It is made twice as long for as long as the log density of the heads rises: one
    more mode takes few gradients beside another design. A step along one axis does not shorten the others.
    """
    best, longest = None, _LONGEST
    while True:
        step = np.clip(along, -longest, longest)
        mode = mode_at(precision, theta + axes @ step, near.x, near.factor)
        if mode is None or (best is not None and mode.logp <= best.logp):
            return best
        best = near = mode
        if np.array_equal(step, along) or precision.density.spent > _LAST_ROUND:
            return best
        longest *= 2.0


def _small_design(m: int) -> list[np.ndarray]:
    """A point to either side of the middle on each axis, and two for each pair of axes."""
    axes = np.eye(m)
    points = []
    for a in range(m):
        points += [-axes[a], axes[a]]
        for b in range(a):
            points += [axes[a] + axes[b], axes[a] - axes[b]]
    return points


def _quadratic(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope (m,) and curvature (m, m) at 0 of a quadratic that is fitted to values (n,) at points (n, m)."""
    m = points.shape[1]
    pairs = [(a, b) for a in range(m) for b in range(a, m)]
    terms = [np.ones(len(points)), *points.T, *(points[:, a] * points[:, b] for a, b in pairs)]
    found = np.linalg.lstsq(np.column_stack(terms), values, rcond=None)[0]
    curvature = np.zeros((m, m))
    for (a, b), value in zip(pairs, found[1 + m :], strict=True):
        curvature[a, b] += value
        curvature[b, a] += value
    return found[1 : 1 + m], curvature
