"""Pathfinder: normal laws along the way of a climb, and the one among them that is nearest to the density.

Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder: Parallel quasi-Newton variational inference, Journal
of Machine Learning Research 23(306), algorithms 1 (one path), 3 (the inverse Hessian from the history) and
4 (draws of a law). Algorithm 2, several paths, is in pathfinder_draws.py.

    paper            here                 shape      meaning
    theta^(l)        way.points[l]        (d,)       iterate l of L-BFGS
    s_l, z_l         steps, turns         (m, d)     differences of iterates, and of gradients of -log p
    J                memory                          pairs that are kept
    alpha_l          diagonal             (d,)       of the inverse Hessian
    beta_l, gamma_l  wide, small          (d, 2m), (2m, 2m)   Sigma = diag(alpha) + beta gamma beta'
    Sigma_l          law.cov              (d, d)     inverse Hessian at iterate l
    mu_l             law.mean             (d,)       theta + Sigma grad log p
    K                elbo_draws                      draws that estimate an ELBO
    lambda_l         elbos[l]                        ELBO

Departures from the paper:

1. L-BFGS is scipy's L-BFGS-B, whose iterates are those of Byrd, Lu, Nocedal and Zhu (1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from .density import ClimbedDensity
from .normal_law import standard_log_density
from .quasi_newton import Way

_CURVED = 1e-12  # a pair is used if turn' turn / (step' turn) is smaller than the inverse of this


class LocalLaw(NamedTuple):
    """The normal law N(mean, diag(diagonal) + wide small wide')."""

    mean: np.ndarray  # (d,)
    diagonal: np.ndarray  # (d,) positive
    basis: np.ndarray  # (d, r) orthonormal columns
    root: np.ndarray  # (r, r) lower triangular, see `draw`

    @classmethod
    def at(
        cls, point: np.ndarray, score: np.ndarray, diagonal: np.ndarray, wide: np.ndarray, small: np.ndarray
    ) -> LocalLaw | None:
        """The law for an iterate with its score; None if its covariance is not positive definite.

        With S = diag(diagonal)^(1/2) and S^-1 wide = basis R, the covariance is
        S (I + basis (R small R') basis') S.
        """
        scale = np.sqrt(diagonal)
        with np.errstate(all="ignore"):
            basis, right = np.linalg.qr(wide / scale[:, None])
            inner = np.eye(len(right)) + right @ small @ right.T
            mean = point + diagonal * score + wide @ (small @ (wide.T @ score))
        if not (np.isfinite(inner).all() and np.isfinite(mean).all()):
            return None
        try:
            root = np.linalg.cholesky(0.5 * (inner + inner.T))
        except np.linalg.LinAlgError:
            return None
        return cls(mean, diagonal, basis, root)

    @property
    def cov(self) -> np.ndarray:
        """The covariance (d, d)."""
        scale = np.sqrt(self.diagonal)
        half = scale[:, None] * (self.basis @ self.root)
        own = scale[:, None] * self.basis
        return np.asarray(np.diag(self.diagonal) + half @ half.T - own @ own.T)

    @property
    def variances(self) -> np.ndarray:
        """The diagonal (d,) of the covariance, without the rest of it."""
        more = np.square(self.basis @ self.root).sum(axis=1) - np.square(self.basis).sum(axis=1)
        return np.asarray(self.diagonal * (1.0 + more))

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws (n, d), and the log density of the law at them (n,)."""
        normal = rng.standard_normal((n, self.mean.size))
        inside = normal @ self.basis
        steps = normal + (inside @ self.root.T - inside) @ self.basis.T
        return self.mean + np.sqrt(self.diagonal) * steps, standard_log_density(normal) - self._log_volume

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """The log density of the law (n,) at points (n, d)."""
        away = (points - self.mean) / np.sqrt(self.diagonal)
        inside = away @ self.basis
        whitened = solve_triangular(self.root, inside.T, lower=True)
        squares = (
            np.square(away).sum(axis=1) - np.square(inside).sum(axis=1) + np.square(whitened).sum(axis=0)
        )
        return np.asarray(-0.5 * (squares + self.mean.size * np.log(2.0 * np.pi)) - self._log_volume)

    @property
    def _log_volume(self) -> float:
        """Half the log of the determinant of the covariance."""
        return float(0.5 * np.log(self.diagonal).sum() + np.log(np.diag(self.root)).sum())


class Path(NamedTuple):
    """A path, and the law on it that has the largest ELBO."""

    law: LocalLaw | None  # None where no law has a finite ELBO
    iteration: int  # the iterate that the law belongs to
    elbo: float
    elbos: np.ndarray  # (L,) of all iterates but the start; -inf where there is no law


def find_law(
    density: ClimbedDensity, way: Way, memory: int, elbo_draws: int, rng: np.random.Generator
) -> Path:
    """The law with the largest ELBO on the way of a climb, by `elbo_draws` draws for each iterate."""
    best, where, elbos = None, 0, np.full(max(len(way.points) - 1, 0), -np.inf)
    for iteration, law in laws_along(way, memory):
        if law is None:
            continue
        points, logq = law.draw(elbo_draws, rng)
        elbo = float((density.values(points) - logq).mean()) if np.isfinite(points).all() else -np.inf
        elbos[iteration - 1] = elbo
        if elbo > -np.inf and (best is None or elbo > elbos[where - 1]):
            best, where = law, iteration
    return Path(best, where, float(elbos[where - 1]) if best is not None else -np.inf, elbos)


def laws_along(way: Way, memory: int) -> Iterator[tuple[int, LocalLaw | None]]:
    """The law at each iterate but the start, from the latest `memory` pairs before it (algorithm 3)."""
    diagonal = np.ones(way.points.shape[1])
    steps: list[np.ndarray] = []
    turns: list[np.ndarray] = []
    for i in range(1, len(way.points)):
        step = way.points[i] - way.points[i - 1]
        turn = way.scores[i - 1] - way.scores[i]
        inner = float(step @ turn)
        if inner > 0.0 and float(turn @ turn) * _CURVED <= inner:
            diagonal = next_diagonal(diagonal, step, turn)
            steps, turns = [*steps, step][-memory:], [*turns, turn][-memory:]
        if not steps:
            yield i, None
            continue
        wide, small = inverse_hessian(diagonal, np.array(steps), np.array(turns))
        yield i, LocalLaw.at(way.points[i], way.scores[i], diagonal, wide, small)


def next_diagonal(diagonal: np.ndarray, step: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """The diagonal (d,) after another pair, by the update of Gilbert and Lemaréchal (1989)."""
    a, b = float(turn @ (diagonal * turn)), float(turn @ step)
    c = float(step @ (step / diagonal))
    return np.asarray(1.0 / (a / (b * diagonal) + turn**2 / b - a * step**2 / (b * c * diagonal**2)))


def inverse_hessian(
    diagonal: np.ndarray, steps: np.ndarray, turns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The factors beta (d, 2m) and gamma (2m, 2m) of the L-BFGS inverse Hessian, for pairs (m, d).

    The compact form of Byrd, Nocedal and Schnabel (1994), Representations of quasi-Newton matrices, with the
    older pairs first.
    """
    m = len(steps)
    inner = steps @ turns.T
    upper = np.triu(inner)
    right = solve_triangular(upper, np.eye(m), lower=False)
    scaled = turns * diagonal
    middle = right.T @ (np.diag(np.diag(inner)) + turns @ scaled.T) @ right
    small = np.block([[np.zeros((m, m)), -right], [-right.T, middle]])
    return np.concatenate((scaled, steps)).T, small
