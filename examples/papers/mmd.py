"""Maximum mean discrepancies (MMD) of draws from a benchmark: Gretton et al. (2012), the biased estimate.

`mmd_path` has a polynomial kernel, and so compares all mixed moments up to order 3. `gaussian_mmd` has the
Gaussian kernel of Wang et al. (2024), Appendix C.4, its length scale half the median distance between the
benchmark's points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

ROWS = 250  # of a matrix of distances that are there at a time: 20 MB against 10,000 points


def moments(draws: np.ndarray) -> np.ndarray:
    """Features (n, (d + 1)³) of `draws` (n, d) whose products are the polynomial kernel (1 + x . y)³."""
    extended = np.column_stack([np.ones(len(draws)), draws])
    features: np.ndarray = np.einsum("ni,nj,nk->nijk", extended, extended, extended)
    return features.reshape(len(draws), -1)


def mmd_path(draws: np.ndarray, benchmark: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Squared maximum mean discrepancy of the first `at` draws from the benchmark, for all of `at`.

    With features it is a difference of means.
    """
    means = np.cumsum(moments(draws), axis=0)[at - 1] / at[:, None]
    squares: np.ndarray = ((means - moments(benchmark).mean(axis=0)) ** 2).sum(axis=1)
    return squares


class Benchmark(NamedTuple):
    """Points that draws are compared with, and what all comparisons share."""

    points: np.ndarray  # (m, d)
    scale: float  # of the kernel exp(-|x - y|² / (2 scale²))
    own: float  # mean of the kernel over all pairs of the points


def benchmark_of(points: np.ndarray) -> Benchmark:
    scale = 0.5 * median_distance(points)
    return Benchmark(points, scale, mean_kernel(points, points, scale))


def mean_kernel(x: np.ndarray, y: np.ndarray, scale: float) -> float:
    """Mean of the Gaussian kernel over all pairs of `x` (n, d) and `y` (m, d)."""
    total = 0.0
    for i in range(0, len(x), ROWS):
        values = cdist(x[i : i + ROWS], y, "sqeuclidean")
        values *= -0.5 / scale**2
        total += np.exp(values, out=values).sum()
    return float(total / (len(x) * len(y)))


def gaussian_mmd(draws: np.ndarray, benchmark: Benchmark) -> float:
    """Distance of `draws` (n, d): the root of the biased estimate of the squared discrepancy."""
    points, scale, own = benchmark
    square = mean_kernel(draws, draws, scale) + own - 2.0 * mean_kernel(draws, points, scale)
    return float(np.sqrt(max(square, 0.0)))  # rounding can leave it below zero


def exact_mmd(n: int, benchmark: Benchmark) -> float:
    """What `gaussian_mmd` is, as a root mean square, for n independent draws from the target."""
    points, _, own = benchmark
    m = len(points)
    among = (m * own - 1.0) / (m - 1.0)  # mean over two different points
    return float(np.sqrt((1.0 / n + 1.0 / m) * (1.0 - among)))


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


def published_mmd(draws: np.ndarray, benchmark: Benchmark, block: int = 1_000) -> float:
    """What the columns MMD of Wang et al. (2024), Table 1, hold.

    As in `batched_mmd` of the authors' published code (experiments/utils/utils.py), no root is taken, and of
    the kernel within the benchmark and within the draws only the blocks on the diagonal are summed, once for
    every block of the other sample. With m points and n draws of the target that is about
    (n/m + m/n - 2) E k(x, x'): 0.5 E k for 5,000 draws against 10,000 points, whatever the sampler.
    """
    points, scale, _ = benchmark
    n, m = len(draws), len(points)
    of_points, blocks_of_points = diagonal_blocks(points, scale, block)
    of_draws, blocks_of_draws = diagonal_blocks(draws, scale, block)
    between = mean_kernel(draws, points, scale)
    return blocks_of_draws * of_points / m**2 + blocks_of_points * of_draws / n**2 - 2.0 * between


def diagonal_blocks(x: np.ndarray, scale: float, block: int) -> tuple[float, int]:
    """Sum of the kernel over pairs in the same block of `x` (n, d), and the number of blocks."""
    parts = [x[i : i + block] for i in range(0, len(x), block)]
    return sum(len(part) ** 2 * mean_kernel(part, part, scale) for part in parts), len(parts)
