"""Maximum mean discrepancies (MMD) of draws from a benchmark: Gretton et al. (2012), the biased estimate.

`mmd_path` has a polynomial kernel, and so compares all mixed moments up to order 3. `gaussian_mmd` has the
Gaussian kernel of Wang et al. (2024), Appendix C.4, its length scale half the median distance between the
benchmark's points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stanadapt.diagnostics.discrepancy import mean_kernel, median_distance


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
