"""The numbers of a field's law, from modes of the latents at a design of the heads."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse

from ..field import OWN_FEATURES, Field, feature_values, n_features
from .laplace import Mode, Place, mode_at
from .precision import Precision

AXIS = (-1.25, 1.25, -2.5, 2.5, -5.0, 5.0)  # the design on each axis, in standard deviations of the heads
PAIR = 1.25  # and in the plane of each pair of axes
_TEMPER = 3.0  # a point counts by the density of the heads there, to the power 1 / _TEMPER,
_LEAST_WEIGHT = 1e-3  # but at least so much, because far out the law must have the right limits
_RIDGE = 1e-6
_TOLERANCE = 0.01  # root mean square error, over latents and the design, that a shorter basis may make


def find_design(precision: Precision, place: Place) -> tuple[np.ndarray, list[Mode]]:
    """Heads (p, m), in units, and the modes of the latents there; points without a mode are left out."""
    m, axes = len(place.theta), np.eye(len(place.theta))
    thetas, modes = [place.theta], [place.mode]

    def add(u: np.ndarray, near: Mode) -> Mode:
        mode = mode_at(precision, place.theta + place.root @ u, near.x)
        if mode is not None:
            thetas.append(place.theta + place.root @ u)
            modes.append(mode)
        return mode or near

    for a in range(m):
        for sign in (-1.0, 1.0):
            near = place.mode
            for reach in sorted(abs(value) for value in AXIS if value > 0.0):
                near = add(sign * reach * axes[a], near)
        for b in range(a):
            for u in (axes[a] + axes[b], axes[a] - axes[b], axes[b] - axes[a], -axes[a] - axes[b]):
                add(PAIR * u, place.mode)
    return np.array(thetas).reshape(len(modes), m), modes


def fit_law(precision: Precision, place: Place, thetas: np.ndarray, modes: list[Mode]) -> Field:
    """The law, fitted to the modes and factors at heads (p, m)."""
    m, unit = len(precision.heads), precision.density.unit
    lowers = [mode.factor.lower for mode in modes]
    below = sparse.tril(sum((abs(lower) > 0.0).astype(float) for lower in lowers), -1).tocsc()
    below.sort_indices()
    columns = np.repeat(np.arange(below.shape[0]), np.diff(below.indptr))
    own = precision.latents
    scales = unit[own]
    log_scales = np.array([-0.5 * np.log(mode.factor.pivots) for mode in modes])
    entries = np.array([np.asarray(lower[below.indices, columns]).ravel() for lower in lowers])
    entries = entries.reshape(len(modes), below.nnz)
    means = np.array([mode.x[own] for mode in modes])
    mid = place.theta * unit[precision.heads]
    scale = np.sqrt(np.square(place.root).sum(axis=1)) * unit[precision.heads]
    values = np.array([_features(theta * unit[precision.heads], mid, scale) for theta in thetas])
    values = values.reshape(len(modes), n_features(m))
    heights = np.array([mode.logp for mode in modes]) - place.mode.logp
    weights = np.clip(np.exp(heights / _TEMPER), _LEAST_WEIGHT, 1.0)
    for_s, for_c, for_g = _chosen_features(m)
    middle = np.exp(log_scales[0])
    bases, coefficients = zip(
        _fit(values, log_scales, for_s, weights, np.ones(len(own))),
        _fit(values, means, for_c, weights, 1.0 / middle),
        _fit(values, entries, for_g, weights, middle[below.indices] / middle[columns]),
        strict=True,
    )
    s, c, g = coefficients
    s[0] += np.log(scales)
    return Field(
        precision.heads,
        mid,
        scale,
        bases,  # type: ignore[arg-type]
        own,
        below.indptr.astype(np.int64),
        below.indices.astype(np.int64),
        (s, c * scales, g * (scales[columns] / scales[below.indices])),
    )


def _features(theta: np.ndarray, mid: np.ndarray, scale: np.ndarray) -> np.ndarray:
    values = np.empty(n_features(theta.size))
    feature_values(theta, mid, scale, values, np.empty((values.size, theta.size)))
    return values


def _chosen_features(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which features s, c and G are combinations of (field.py has their order).

    s is linear far out; G is bounded; and c may be both, since a location moves latents without bounds.
    """
    own = [OWN_FEATURES * np.arange(m) + i for i in range(OWN_FEATURES)]
    linear, near, bent, far, squared = own
    n_pairs = m * (m + 1) // 2
    products = OWN_FEATURES * m + 2 * np.arange(n_pairs)
    return (
        np.concatenate((linear, near, bent, products)),
        np.concatenate((linear, near, far, squared, products)),
        np.concatenate((near, far, squared, products)),
    )


def _fit(
    values: np.ndarray, wanted: np.ndarray, chosen: np.ndarray, weights: np.ndarray, importance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The basis (r, F) and its coefficients (r + 1, n) that explain `wanted` (p, n).

    The fit is by weighted least squares. The basis has as many of its principal combinations as it takes to
    keep all but a small error, in units of `importance` (n,).
    """
    f, n = values.shape[1], wanted.shape[1]
    if not len(chosen) or not n:
        return np.zeros((0, f)), np.array(wanted[:1]).reshape(1, n)
    root = np.sqrt(weights)[:, None]
    terms = np.column_stack((np.ones(len(values)), values[:, chosen]))
    penalty = np.sqrt(_RIDGE * len(values)) * np.eye(terms.shape[1])[1:]
    both = np.concatenate((root * terms, penalty)), np.concatenate((root * wanted, np.zeros((len(penalty), n))))
    found = np.linalg.lstsq(*both, rcond=None)[0]
    inner = np.sqrt(weights / weights.sum())[:, None] * values[:, chosen]
    inner_root = np.linalg.qr(inner, mode="r")  # the size of a combination over the design
    left, sizes, right = np.linalg.svd(inner_root @ (found[1:] * importance), full_matrices=False)
    lost = np.sqrt(np.append(np.cumsum(np.square(sizes)[::-1])[::-1], 0.0) / n)
    r = int(np.argmax(lost < _TOLERANCE))
    basis = np.zeros((r, f))
    basis[:, chosen] = np.linalg.lstsq(inner_root, left[:, :r], rcond=None)[0].T
    return basis, np.concatenate((found[:1], (sizes[:r, None] * right[:r]) / importance))
