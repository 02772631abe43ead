"""Tests of whether draws have a law that a kernel keeps.

A kernel that keeps the law of the draws X has E f(X') = E f(X) for every bounded f, where X' is where it
leads from X. The tests take means of the differences f(X') - f(X). The two of a pair depend on each other,
and neighbouring draws do too: so the error of a mean is that of means over batches of neighbours, and the
test is Student's on these.

The functions f are bounded, so that heavy tails do no harm, and nearly linear or quadratic in the middle. Let
u be the distance of a coordinate from its median, in units that are standard deviations for a normal law.
Then tanh(u/3) tells where draws are, and u²/(9 + u²) how wide they spread. Two more see all coordinates
together, and with them faults that are small in each: the first of the log density, and the second of the
distance from the middle, in the metric of the draws' covariance.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import stdtr

from ..run.rerun import Yardstick

_WIDE = 3.0  # up to which the functions are nearly linear or quadratic
_CLIP = 4.0  # beyond which a draw counts no further for the covariance
_LARGEST_DENSE = 200  # dimension up to which there is one
_ROWS = 10  # draws for each dimension that it takes
_RIDGE = 1e-8  # that keeps its root real
_QUARTILES = 1.349  # their distance for a standard normal law
_BATCHES = 64  # at most
_FARTHEST = 1e100  # square, in place of infinity

LOCATION, SPREAD = "location", "spread"
LOG_DENSITY, DISTANCE = "log density", "distance from the middle"


class DrawFrame(NamedTuple):
    """What draws are measured by."""

    middle: np.ndarray  # (d,)
    yardstick: Yardstick
    level: float  # median of the log density
    height: float  # its spread

    @classmethod
    def of(cls, draws: np.ndarray, logp: np.ndarray) -> DrawFrame:
        """Of draws (..., d), and log densities of some of them."""
        flat = draws.reshape(-1, draws.shape[-1])
        middle, scale = _middle_and_scale(flat)
        root: np.ndarray = np.empty((0, 0))
        if flat.shape[1] <= min(_LARGEST_DENSE, len(flat) // _ROWS):
            cov = np.atleast_2d(np.cov(np.clip((flat - middle) / scale, -_CLIP, _CLIP).T))
            root = np.linalg.cholesky(cov + _RIDGE * np.eye(len(cov)))
        level, height = _middle_and_scale(logp.reshape(-1, 1))
        return cls(middle, Yardstick(scale, root), float(level[0]), float(height[0]))

    def functions(self, x: np.ndarray, logp: np.ndarray) -> np.ndarray:
        """All f (..., 2 d + 2) at points (..., d) with log densities (...), in the order of `names`."""
        lines, squares = self._units(x, logp)
        return np.concatenate((np.tanh(lines / _WIDE), squares / (_WIDE**2 + squares)), axis=-1)

    def slopes(self, x: np.ndarray, logp: np.ndarray) -> np.ndarray:
        """By how much the means (2 d + 2,) rise if the draws (..., d) shift by a unit, or spread e-fold."""
        lines, squares = self._units(x, logp)
        shift = (1.0 - np.tanh(lines / _WIDE) ** 2) / _WIDE
        spread = 2.0 * _WIDE**2 * squares / (_WIDE**2 + squares) ** 2
        both = np.concatenate((shift, spread), axis=-1)
        return np.asarray(both.reshape(-1, both.shape[-1]).mean(axis=0))

    def _units(self, x: np.ndarray, logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the functions are of, each (..., d + 1): distances from the middle, and their squares."""
        d = x.shape[-1]
        u = (x - self.middle) / self.yardstick.scale
        w = u
        if len(self.yardstick.root):
            w = solve_triangular(self.yardstick.root, u.reshape(-1, d).T, lower=True).T.reshape(u.shape)
        with np.errstate(over="ignore"):  # far out in a heavy tail
            radius = (w * w).sum(axis=-1, keepdims=True) / d
            squares = np.minimum(np.concatenate((u * u, radius), axis=-1), _FARTHEST)
        return np.concatenate((u, ((logp - self.level) / self.height)[..., None]), axis=-1), squares


def names(coordinates: list[str]) -> list[tuple[str, str]]:
    """What each function looks at: a quantity, and its location or its spread."""
    return [
        *((name, LOCATION) for name in coordinates),
        (LOG_DENSITY, LOCATION),
        *((name, SPREAD) for name in coordinates),
        (DISTANCE, SPREAD),
    ]


def _middle_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians and scales (k,) of x (n, k), by quartiles where these differ."""
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / _QUARTILES
    scale = np.where(scale > 0.0, scale, x.std(axis=0))
    return middle, np.where(scale > 0.0, scale, 1.0)


class Means(NamedTuple):
    """Means of k series of differences, and whether they are zero."""

    mean: np.ndarray  # (k,)
    z: np.ndarray  # (k,) in standard errors
    p: np.ndarray  # (k,) two-sided


def batch_test(differences: np.ndarray, most: float) -> Means:
    """Student's t test of means over batches of neighbours, for differences (C, n, k) of C chains.

    There are `most` batches, and no more than 64: the more draws a batch has, the nearer is its mean to
    normal, and the less does it depend on the next one.
    """
    chains, n, k = differences.shape
    batches = int(np.clip(min(most, _BATCHES) / chains, 1, n))
    ends = np.linspace(0, n, batches + 1).astype(int)
    parts = [differences[:, a:b].mean(axis=1) for a, b in itertools.pairwise(ends)]
    means = np.stack(parts, axis=1).reshape(-1, k)
    mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))
    z = np.divide(mean, error, out=np.zeros(k), where=error > 0.0)
    return Means(mean, z, 2.0 * stdtr(len(means) - 1, -np.abs(z)))


def adjust(p: np.ndarray, checks: int) -> np.ndarray:
    """P-values (2 d + 2,) of one of several checks, corrected for all of them by Bonferroni's rule.

    Each check has an equal share of the error rate. Half of it is for the two functions of all coordinates
    together, which are two however many coordinates there are.
    """
    half = len(p) // 2
    together = np.zeros(len(p), np.bool_)
    together[[half - 1, -1]] = True
    count = np.where(together, together.sum(), (~together).sum())
    return np.asarray(np.minimum(1.0, p * count * 2 * checks))
