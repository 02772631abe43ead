"""Weights as rows of a map: written, read, checked and told. weights.py has the law."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .map_table import (
    COLUMNS,
    KIND,
    N_COEFFICIENTS,
    N_CURVES,
    N_GRADIENTS,
    N_LATENTS,
    N_POINTS,
    ROWS,
    WEIGHTS,
    are_coordinates,
    pack_rows,
)
from .shape import hermite
from .weights import ALL, CENTRED, ERROR, LIMITS, places


class Curve(NamedTuple):
    """A function of one head: cubic between its points, and a line beyond them."""

    head: int  # its coordinate
    target: int  # the number of a weight, or what the constants of weights.py say
    at: np.ndarray  # (n,) increasing
    values: np.ndarray  # (n,)
    slopes: np.ndarray  # (n,)
    middle: float  # where the head is

    def value(self, x: np.ndarray) -> np.ndarray:
        """The function at `x`, of any shape."""
        found = np.full(np.shape(x), self.values[0])
        if len(self.at) > 1:
            found = hermite(self.at, self.values, self.slopes, np.clip(x, self.at[0], self.at[-1]))
        below, above = np.minimum(x - self.at[0], 0.0), np.maximum(x - self.at[-1], 0.0)
        return np.asarray(found + self.slopes[0] * below + self.slopes[-1] * above)


class Weights(NamedTuple):
    """The numbers of the law, see weights.py."""

    own: np.ndarray  # (K,)
    is_weight: np.ndarray  # (K,)
    prior: np.ndarray  # (2, K) E and h
    offsets: np.ndarray  # (2, K) o of u and of u'
    norms: np.ndarray  # (K,) pi
    precision: np.ndarray  # (K, K) D
    pulls: np.ndarray  # (K,) b
    coefficients: np.ndarray  # (p,) g
    slopes: np.ndarray  # (K, p) G
    curves: Sequence[Curve]
    is_centred: bool = False  # whether the program is, for all weights

    @property
    def heads(self) -> np.ndarray:
        """The coordinates that the curves depend on."""
        return np.unique([curve.head for curve in self.curves])

    def log_scales(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """log s (K,), 0 for coefficients without a scale, and log f, at the heads `theta` (m,)."""
        log_scales, log_f = self.log_scales_at_all(theta[None])
        return log_scales[0], float(log_f[0])

    def log_scales_at_all(self, thetas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`log_scales` at heads (n, m): (n, K) and (n,)."""
        n, heads = len(thetas), self.heads
        first, shared = np.zeros((len(self.own), n)), {key: np.zeros(n) for key in (ALL, LIMITS, ERROR)}
        for curve in self.curves:
            of_what = shared if curve.target < 0 else first
            of_what[curve.target] += curve.value(thetas[:, np.searchsorted(heads, curve.head)])
        if self.norms.any():
            first = first - 0.5 * np.log(self.norms @ np.exp(2.0 * first))
        first, limits = (
            first + shared[ALL] + self.offsets[0, :, None],
            self.offsets[1, :, None] + shared[LIMITS],
        )
        log_scales = -0.5 * np.logaddexp(-2.0 * first, -2.0 * limits)
        return np.where(self.is_weight[:, None], log_scales, 0.0).T, shared[ERROR]

    def log_deviations(self, theta: np.ndarray) -> np.ndarray:
        """The log standard deviations (K,) of the coordinates w given the heads `theta` (m,)."""
        log_scales, log_f = self.log_scales(theta)
        a = np.exp(log_scales + 0.5 * log_f)
        matrix = np.diag(self.prior[0]) + a[:, None] * self.precision * a
        widths = log_scales if self.is_centred else 0.0
        return np.asarray(0.5 * np.log(np.diag(np.linalg.inv(matrix))) + widths)


def weights_rows(law: Weights, gradients: int) -> np.ndarray:
    """The rows of a map that hold the law; `gradients` is the number that learning it took."""
    begins = np.cumsum([0, *(len(curve.at) for curve in law.curves)])
    is_weight = np.asarray(law.is_weight) * (CENTRED if law.is_centred else 1.0)
    numbers: list[Any] = [law.own, is_weight, law.prior, law.offsets, law.norms]
    numbers += [law.precision, law.pulls, law.coefficients, law.slopes]
    numbers += [[curve.head for curve in law.curves], [curve.target for curve in law.curves], begins[:-1]]
    numbers += [np.concatenate([curve[part] for curve in law.curves]) for part in (2, 3, 4)]
    numbers += [[curve.middle for curve in law.curves]]
    header = {
        KIND: WEIGHTS,
        N_LATENTS: len(law.own),
        N_CURVES: len(law.curves),
        N_POINTS: begins[-1],
        N_COEFFICIENTS: len(law.coefficients),
        N_GRADIENTS: gradients,
    }
    rows = pack_rows(header, numbers)
    rows[0, ROWS] = len(rows)
    return rows


def weights_of(rows: np.ndarray) -> Weights:
    """The law that these rows of a map hold, the header first."""
    flat, at = rows.reshape(-1), [int(place) for place in places(rows[0])]
    own, is_weight, offsets, of_data, coefficients, slopes, heads, targets, begins, points, middles = (
        flat[first:end] for first, end in itertools.pairwise(at)
    )
    k = len(own)
    places_, values, its_slopes = points.reshape(3, -1)
    ends = [*begins[1:].astype(int), len(places_)]
    curves = [
        Curve(int(head), int(target), places_[a:b], values[a:b], its_slopes[a:b], float(middle))
        for head, target, a, b, middle in zip(heads, targets, begins.astype(int), ends, middles, strict=True)
    ]
    return Weights(
        own=own.astype(np.int64),
        is_weight=is_weight[:k] > 0.0,
        prior=is_weight[k:].reshape(2, k),
        offsets=offsets[: 2 * k].reshape(2, k),
        norms=offsets[2 * k :],
        precision=of_data[: k * k].reshape(k, k),
        pulls=of_data[k * k :],
        coefficients=coefficients.astype(np.int64),
        slopes=slopes.reshape(k, -1),
        curves=curves,
        is_centred=bool(np.any(is_weight[:k] == CENTRED)),
    )


def _are_forms(is_weight: np.ndarray) -> bool:
    """Whether numbers (K,) tell weights of one form of a program, and other coefficients."""
    return bool(set(is_weight) <= {0.0, 1.0} or set(is_weight) <= {0.0, CENTRED})


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, hold a law of `d` coordinates."""
    counts = rows[0, [N_LATENTS, N_CURVES, N_POINTS, N_COEFFICIENTS]]
    if not (np.isfinite(rows).all() and rows[0, ROWS] == len(rows) and are_coordinates(counts, rows.size)):
        return False
    end = int(places(rows[0])[-1])
    if not (rows.size - COLUMNS < end <= rows.size and counts[:3].min() >= 1.0):
        return False
    flat, at = rows.reshape(-1), places(rows[0])
    begins, k = flat[at[8] : at[9]], int(counts[0])
    if not are_coordinates(begins, int(counts[2])) or begins[0] != 0.0 or np.any(np.diff(begins) < 1.0):
        return False
    targets = flat[at[7] : at[8]]
    if not (are_coordinates(targets, k, int(ERROR)) and _are_forms(flat[at[1] : at[1] + k])):
        return False
    law = weights_of(rows)
    if law.norms.min() < 0.0 or law.prior[0].min() < 0.0 or np.any(law.norms[~law.is_weight] > 0.0):
        return False
    if not all(np.all(np.diff(curve.at) > 0.0) for curve in law.curves):
        return False
    if not all(law.is_weight[curve.target] for curve in law.curves if curve.target >= 0):
        return False
    whole = np.concatenate((law.own, law.coefficients))
    if not are_coordinates(np.concatenate((whole, law.heads)), d) or len(set(whole)) < len(whole):
        return False
    if np.isin(law.heads, law.own).any():
        return False
    return bool(np.linalg.eigvalsh(law.precision).min() >= -1e-6 * max(float(law.precision.max()), 1.0))
