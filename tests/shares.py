"""Shares of draws under known quantiles, in standard errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from stanadapt.diagnostics.convergence import effective_size

PROBABILITIES = np.array([0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999])
COARSE, FINE = 40, 80  # points of a grid on each axis
COARSE_OF_THREE, FINE_OF_THREE = 80, 160  # and on each of three axes


def quantiles(grid: np.ndarray, density: np.ndarray) -> np.ndarray:
    """At `PROBABILITIES`, of a density on an even grid."""
    below = np.cumsum(density) - 0.5 * density
    return np.interp(PROBABILITIES, below / density.sum(), grid)


def quantiles_of_two(
    log_density: Callable[[float, float], float], *limits: tuple[float, float], fine: int = FINE
) -> tuple[np.ndarray, np.ndarray]:
    """Of both variables of a density: on a coarse grid between limits, then on a `fine` one where it is."""
    grids = [np.linspace(*each, COARSE) for each in limits]
    for points in (fine, 0):
        log_p = np.array([[log_density(u, v) for v in grids[1]] for u in grids[0]])
        density = np.exp(log_p - log_p.max())
        marginals = density.sum(axis=1), density.sum(axis=0)
        if points:
            grids = [finer(grid, p, points) for grid, p in zip(grids, marginals, strict=True)]
    return quantiles(grids[0], marginals[0]), quantiles(grids[1], marginals[1])


def quantiles_of_three(
    log_density: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], *limits: tuple[float, float]
) -> list[np.ndarray]:
    """Of each of three variables of a density that takes arrays: on grids, then on finer ones where it is."""
    grids = [np.linspace(*each, COARSE_OF_THREE) for each in limits]
    for points in (FINE_OF_THREE, 0):
        log_p = log_density(*np.meshgrid(*grids, indexing="ij", sparse=True))
        density = np.exp(log_p - log_p.max())
        marginals = [density.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
        if points:
            grids = [finer(grid, p, points) for grid, p in zip(grids, marginals, strict=True)]
    return [quantiles(grid, p) for grid, p in zip(grids, marginals, strict=True)]


def log_normal(y: np.ndarray, covariance: np.ndarray) -> float:
    """The log density of a normal vector (n,) with mean 0, up to a constant."""
    root = np.linalg.cholesky(covariance)
    z = solve_triangular(root, y, lower=True, check_finite=False)
    return float(-np.log(np.diag(root)).sum() - 0.5 * z @ z)


def finer(grid: np.ndarray, density: np.ndarray, points: int) -> np.ndarray:
    """The part of a grid that holds nearly all of a density, with more points."""
    seen = np.flatnonzero(density > 1e-6 * density.max())
    return np.linspace(grid[max(seen[0] - 1, 0)], grid[min(seen[-1] + 1, len(grid) - 1)], points)


def errors(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """How far the shares of draws (chain, draw) under known quantiles are off, in standard errors."""
    found = []
    for p, limit in zip(PROBABILITIES, limits, strict=True):
        under = (draws <= limit).astype(float)
        n = effective_size(under[None])[0] if 0.0 < under.mean() < 1.0 else draws.size / 20
        found.append((under.mean() - p) / np.sqrt(p * (1.0 - p) / min(n, draws.size)))
    return np.array(found)


def largest_error(draws: np.ndarray, limits: np.ndarray, findings: object) -> float:
    """The largest of `errors`, by size: of all draws (chain, draw), and of each chain without findings."""
    chains = [] if findings else [errors(chain[None], limits) for chain in draws]
    return float(np.abs([errors(draws, limits), *chains]).max())
