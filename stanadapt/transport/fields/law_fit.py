"""The numbers of a field's law, from modes of the latents at a design of the heads."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse

from ..field import OWN_FEATURES, Field, feature_values, n_features
from .laplace import HeadPosterior, LatentMode, mode_at
from .precision import Precision

AXIS = 1.25, 2.5  # the design on either side of each axis, in standard deviations of the heads,
PAIR = 1.25, 2.5  # and between each pair of axes
TAIL = 2.5, 4.0, 6.0, 9.0, 13.0, 18.0  # each head alone, in its own standard deviations,
DEEP, _ENOUGH, _LEAST_GAIN = 10.0, 1.2, 1.15  # until the log density has fallen by this, or nearly
_STAR = 1.25  # in a tail the other heads vary by this, in the standard deviations that they have there,
_OFF = 0.7  # and their middle is looked for again if it was off by so many,
_MOST_OFF = 3.0  # and moves by at most so many
_NARROWER, _WIDER = 0.3, 2.0  # limits of the change of these standard deviations from star to star
_TEMPER = 3.0  # a point counts by the density of the heads there, to the power 1 / _TEMPER,
_LEAST_WEIGHT = 1e-3  # but at least so much, because far out the law must have the right limits
_RATES = 1.0, 2.0  # of the limits: e^theta for logits and log variances, e^(2 theta) for log scales
_LEAST_TURN = 0.6  # rates are larger than this over the scale of a head, so that few heads look linear
_LEAST_UNIT = 8.0  # logarithm of the smallest unit of errors, beside the one in the middle
_RIDGE, _CUTOFF = 1e-7, 1e-6
_DRAWS = 8
_CHUNK = 2_000  # columns that are fitted at once
# Errors that a shorter basis may make, over the design: root mean square over latents, and length over all.
_TOLERANCE, _LENGTH = 0.01, 0.3


def find_design(precision: Precision, place: HeadPosterior) -> tuple[np.ndarray, list[LatentMode]]:
    """Heads (p, m), in units, and the modes of the latents there; points without a mode are left out."""
    design = _Design(precision, place)
    m, axes = len(place.theta), np.eye(len(place.theta))
    lines = [sign * axis for axis in axes for sign in (-1.0, 1.0)]
    for a in range(m):
        for b in range(a):
            lines += [axes[a] + axes[b], axes[a] - axes[b], axes[b] - axes[a], -axes[a] - axes[b]]
    for line in lines:
        near = place.mode
        for reach in AXIS if np.count_nonzero(line) == 1 else PAIR:
            near = design.add(place.theta + place.root @ (reach * line), near) or near
    for a in range(m):
        for sign in (-1.0, 1.0):
            _follow_tail(design, a, sign)
    return np.array(design.thetas).reshape(len(design.modes), m), design.modes


class _Design:
    """The points of a design, and the modes of the latents there."""

    def __init__(self, precision: Precision, place: HeadPosterior) -> None:
        """With the place of the heads alone."""
        self.precision, self.place = precision, place
        self.thetas, self.modes = [place.theta], [place.mode]

    def add(self, theta: np.ndarray, near: LatentMode) -> LatentMode | None:
        """The mode at `theta` (m,), which the design has from now on; None if there is none."""
        mode = mode_at(self.precision, theta, near.x)
        if mode is not None:
            self.thetas.append(theta)
            self.modes.append(mode)
        return mode


def _follow_tail(design: _Design, a: int, sign: float) -> None:
    """Add the tail of head `a` to a design: the ridge along which its marginal density falls.

    In a long tail, such as that of the logarithm of a scale that may be 0, the other heads do not go on
    along the straight line that is right in the middle. So at each reach a star of points tells where they
    are and how far they vary there.
    """
    place, m = design.place, len(design.place.theta)
    cov = place.root @ place.root.T
    spread = np.sqrt(cov[a, a])
    slope = cov[:, a] / cov[a, a]  # of the other heads along the ridge
    widths = np.sqrt(np.maximum(np.diag(cov) - cov[:, a] * slope, 1e-12 * np.diag(cov)))
    theta, near, last = place.theta, place.mode, 0.0
    others = [b for b in range(m) if b != a]
    for wanted in TAIL:
        fallen = place.mode.logp - near.logp
        # A normal tail falls with the square of the reach.
        reach = min(wanted, last * np.sqrt(_ENOUGH * DEEP / fallen)) if fallen > 0.0 else wanted
        if reach < _LEAST_GAIN * last:
            return
        ahead = place.theta[a] + sign * reach * spread - theta[a]
        guess = theta + ahead * slope
        for _ in range(2):
            mode = design.add(guess, near)
            if mode is None:
                return
            moved, best = guess.copy(), mode
            off = 0.0
            for b in others:
                step = np.zeros(m)
                step[b] = _STAR * widths[b]
                sides = design.add(guess - step, mode), design.add(guess + step, mode)
                if sides[0] is None or sides[1] is None:
                    return
                best = max((best, sides[0], sides[1]), key=lambda one: one.logp)
                tilt = 0.5 * (sides[1].logp - sides[0].logp) / _STAR
                curvature = (2.0 * mode.logp - sides[0].logp - sides[1].logp) / _STAR**2
                narrowing = 1.0 / np.sqrt(np.clip(curvature, _WIDER**-2, _NARROWER**-2))
                change = float(np.clip(tilt * narrowing**2, -_MOST_OFF, _MOST_OFF))
                moved[b] += change * widths[b]
                widths[b] *= narrowing
                off = max(off, abs(change))
            near, guess = best, moved
            if off < _OFF:
                break
        slope = (guess - theta) / ahead
        theta, last = guess, reach


def fit_law(precision: Precision, place: HeadPosterior, thetas: np.ndarray, modes: list[LatentMode]) -> Field:
    """The law, fitted to the modes and factors at heads (p, m)."""
    m, unit = len(precision.heads), precision.density.unit
    lowers = [mode.factor.lower for mode in modes]
    below = sparse.tril(sum((abs(lower) > 0.0).astype(float) for lower in lowers), -1).tocsc()
    below.sort_indices()
    columns = np.repeat(np.arange(below.shape[0]), np.diff(below.indptr))
    own, scales = precision.latents, unit[precision.latents]
    log_scales = np.array([-0.5 * np.log(mode.factor.pivots) for mode in modes])
    entries = np.zeros((len(modes), below.nnz))
    if below.nnz:  # SciPy takes no empty indices
        entries[:] = [np.asarray(lower[below.indices, columns]).ravel() for lower in lowers]
    means = np.array([mode.x[own] for mode in modes])
    heights = np.array([mode.logp for mode in modes]) - place.mode.logp
    weights = np.clip(np.exp(heights / _TEMPER), _LEAST_WEIGHT, 1.0)
    heads = unit[precision.heads]
    mid, scale = place.theta * heads, np.sqrt(np.square(place.root).sum(axis=1)) * heads
    middle = means[0]
    offsets = means - middle
    intercepts = offsets.copy()
    for offset, intercept, row in zip(offsets, intercepts, entries, strict=True):
        np.add.at(intercept, columns, row * offset[below.indices])
    # Errors count in units of z: of the scale of a latent given later ones, at each point of the design.
    logs = np.maximum(log_scales, log_scales[0] - _LEAST_UNIT)
    reach = np.array([_deviations(precision, mode) for mode in modes])
    wanted = (
        (log_scales, np.ones_like(logs)),
        (intercepts, np.exp(-logs)),
        (entries, reach[:, below.indices] * np.exp(-logs[:, columns])),
    )
    best = None
    for power in _RATES:
        rate = np.maximum(power, _LEAST_TURN / scale)
        values = np.array([_features(theta * heads, mid, scale, rate) for theta in thetas])
        values = values.reshape(len(modes), n_features(m))
        fits = [
            _fit(values, y, chosen, weights[:, None] * np.square(importance))
            for (y, importance), chosen in zip(wanted, _chosen_features(m), strict=True)
        ]
        lost = sum(loss for _, _, loss in fits)
        if best is None or lost < best[0]:
            best = lost, rate, fits
    assert best is not None
    _, rate, fits = best
    s, a, g = (coefficients for _, coefficients, _ in fits)
    s[0] += np.log(scales)
    bases = fits[0][0], fits[1][0], fits[2][0]
    coefficients = s, a * scales, g * (scales[columns] / scales[below.indices])
    starts, later = below.indptr.astype(np.int64), below.indices.astype(np.int64)
    return Field(precision.heads, mid, scale, rate, bases, middle * scales, own, starts, later, coefficients)


def _deviations(precision: Precision, mode: LatentMode) -> np.ndarray:
    """The standard deviations of the latents (n,) at a mode, about: from a few draws of a fixed seed."""
    rng, factor = np.random.default_rng(2), mode.factor
    signs = rng.standard_normal((len(factor.pivots), _DRAWS))
    whole = factor.lower @ (np.sqrt(factor.pivots)[:, None] * signs)
    return np.asarray(np.sqrt(np.square(factor.solver.solve(whole)).mean(axis=1)))  # type: ignore[attr-defined]


def _features(theta: np.ndarray, mid: np.ndarray, scale: np.ndarray, rate: np.ndarray) -> np.ndarray:
    values = np.empty(n_features(theta.size))
    feature_values(theta, mid, scale, rate, values, np.empty((values.size, theta.size)))
    return values


def _chosen_features(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which features s, a and G are combinations of (field.py has their order).

    s is linear far out, G is bounded, and a may be both, since a location moves latents without bounds.
    """
    linear = OWN_FEATURES * np.arange(m)
    turning = (linear[:, None] + np.arange(1, OWN_FEATURES, 2)).ravel()
    products, k = [], OWN_FEATURES * m
    for a in range(m):
        for b in range(a, m):
            products += [k] if a == b else [k, k + 2, k + 3]
            k += 2 if a == b else 4
    return (
        np.concatenate((linear, turning, products)).astype(np.int64),
        np.concatenate((linear, turning + 1, products)).astype(np.int64),
        np.concatenate((turning + 1, products)).astype(np.int64),
    )


def _fit(
    values: np.ndarray, wanted: np.ndarray, chosen: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The basis (r, F) and its coefficients (r + 1, n) that explain `wanted` (p, n); and what is lost.

    The fit of each column is by least squares with weights (p, n), in combinations of the features that are
    orthonormal over the design. The basis has as many of its principal combinations as it takes to keep all
    but a small error; the loss is the sum of the squared errors of a design point.
    """
    p, f, n = len(values), values.shape[1], wanted.shape[1]
    if not len(chosen) or not n:
        constant = np.average(wanted, axis=0, weights=np.maximum(weights, 1e-300)) if n else np.zeros(0)
        return np.zeros((0, f)), constant[None].copy(), 0.0
    centre = values[0, chosen]  # at the middle of the design
    spread = np.sqrt(np.square(values[:, chosen] - centre).mean(axis=0)) + 1e-12
    left, sizes, right = np.linalg.svd((values[:, chosen] - centre) / spread, full_matrices=False)
    kept = sizes > _CUTOFF * sizes[0]
    terms = np.column_stack((np.ones(p), left[:, kept] * np.sqrt(p)))
    q = terms.shape[1]
    found, penalty = np.empty((n, q)), np.zeros((q, q))
    penalty[1:] = np.eye(q)[1:] * np.sqrt(_RIDGE * p)
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        root = np.sqrt(weights[:, part]).T  # a latent's weights are relative to the middle of the design
        root = root / np.maximum(root[:, :1], 1e-300)
        rows = np.concatenate((root[:, :, None] * terms, np.broadcast_to(penalty, (len(root), q, q))), axis=1)
        orthonormal, triangle = np.linalg.qr(rows)
        right_side = np.einsum("npi,np->ni", orthonormal[:, :p], root * wanted[:, part].T)
        found[part] = np.linalg.solve(triangle, right_side[:, :, None])[:, :, 0]
    importance = np.sqrt(weights.mean(axis=0))
    whole_left, whole_sizes, whole_right = np.linalg.svd(
        (found[:, 1:] * importance[:, None]).T, full_matrices=False
    )
    lost = np.sqrt(np.append(np.cumsum(np.square(whole_sizes)[::-1])[::-1], 0.0) / n)
    r = int(np.argmax(lost < max(_TOLERANCE, _LENGTH / np.sqrt(n))))
    basis = np.zeros((r, f))
    mixed = whole_left[:, :r].T * (np.sqrt(p) / sizes[kept])
    basis[:, chosen] = mixed @ right[kept] / spread
    coefficients = whole_sizes[:r, None] * whole_right[:r] / importance
    constant = found[:, 0] - (basis[:, chosen] @ centre) @ coefficients
    error = constant + (values @ basis.T) @ coefficients - wanted
    return (
        basis,
        np.concatenate((constant[None], coefficients)),
        float((weights * np.square(error)).sum() / p),
    )
