"""Maximum mean discrepancy (MMD) of samples, by the Gaussian kernel exp(-|x - y|² / (2 scale²)).

Gretton, Borgwardt, Rasch, Schölkopf and Smola (2012), A Kernel Two-Sample Test, JMLR 13. The scale is usually
taken from the median distance of points. Samples are arrays (n, d); of matrices (n, m) only some rows are in
memory at a time.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

ROWS = 250  # of a matrix of distances that are there at a time: 20 MB against 10,000 points


def squared_mmd(x: np.ndarray, y: np.ndarray, scale: float) -> float:
    """Squared discrepancy of `x` (n, d) and `y` (m, d), by the unbiased estimate (their equation 3).

    Of samples from one law it is 0 on average, and negative about as often as positive.
    """
    n, m = len(x), len(y)
    among = [(k * k * mean_kernel(each, each, scale) - k) / (k * (k - 1)) for k, each in ((n, x), (m, y))]
    return sum(among) - 2.0 * mean_kernel(x, y, scale)


def mean_kernel(x: np.ndarray, y: np.ndarray, scale: float) -> float:
    """Mean of the Gaussian kernel over all pairs of `x` (n, d) and `y` (m, d)."""
    total = 0.0
    for i in range(0, len(x), ROWS):
        values = cdist(x[i : i + ROWS], y, "sqeuclidean")
        values *= -0.5 / scale**2
        total += np.exp(values, out=values).sum()
    return float(total / (len(x) * len(y)))


def median_distance(points: np.ndarray, seed: int = 0) -> float:
    """Median of the distances between all pairs of `points` (n, d), of which only few are kept at a time.

    Random pairs tell between which bounds it lies; distances below are counted, those between are sorted.
    """
    n = len(points)
    first, second = np.random.default_rng(seed).integers(0, n, (2, 100_000))
    some = np.linalg.norm(points[first] - points[second], axis=1)[first != second]
    bounds = [tuple(np.quantile(some, (0.5 - width, 0.5 + width))) for width in (0.01, 0.1)]
    middle = (n * (n - 1) // 2 - 1) // 2, n * (n - 1) // 4  # one rank, or the two in the middle
    for low, high in [*bounds, (0.0, np.inf)]:
        below, between = pairs_between(points, low, high)
        if below <= middle[0] and middle[1] < below + len(between):
            break
    between.sort()
    return float(between[[rank - below for rank in middle]].mean())


def pairs_between(points: np.ndarray, low: float, high: float) -> tuple[int, np.ndarray]:
    """How many pairs are closer than `low`, and the distances from there to `high`."""
    below, kept = 0, []
    for i in range(0, len(points), ROWS):
        rows = cdist(points[i : i + ROWS], points[i:])
        distances = rows[np.triu_indices(len(rows), 1, rows.shape[1])]
        below += int((distances < low).sum())
        kept.append(distances[(distances >= low) & (distances <= high)])
    return below, np.concatenate(kept)
