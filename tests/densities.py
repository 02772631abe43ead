"""Densities that are written in Python, in the coordinates of a map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stanadapt.transport import composition
from stanadapt.transport.fields.probes import Evaluate


def in_maps(density: Evaluate) -> Callable[[np.ndarray], Evaluate]:
    """What `learn_field` asks for: the density in the coordinates of the map that it is given."""

    def density_in(rows: np.ndarray) -> Evaluate:
        if not len(rows):
            return density

        def evaluate(z: np.ndarray, score: np.ndarray) -> float:
            x = np.empty_like(z)
            log_det = composition.into_x(rows, z, x)
            logp = density(x, score)
            composition.pull_back(rows, z, x, score)
            return logp + float(log_det)

        return evaluate

    return density_in


class Smooth:
    """A density that is not normal, and its score."""

    def __init__(self, d: int) -> None:
        root = np.random.default_rng(1).normal(size=(d, d))
        self.precision = root @ root.T / d

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        score[:] = np.cos(x) - self.precision @ x
        return float(np.sin(x).sum() - 0.5 * x @ self.precision @ x)


def check_map(rows: np.ndarray, z: np.ndarray) -> None:
    """The inverse of a map at `z` (d,), its log determinant, and the scores of both directions, by
    differences.
    """
    d, step = z.size, 1e-6
    density = in_maps(Smooth(d))(rows)
    x, back, score = np.empty(d), np.empty(d), np.empty(d)
    log_det = composition.into_x(rows, z, x)
    composition.into_z(rows, x, back)
    np.testing.assert_allclose(back, z, atol=1e-12)
    density(z, score)
    jacobian, slope = np.empty((d, d)), np.empty(d)
    ahead, behind, ignored = np.empty(d), np.empty(d), np.empty(d)
    for i, axis in enumerate(np.eye(d)):
        composition.into_x(rows, z + step * axis, ahead)
        composition.into_x(rows, z - step * axis, behind)
        jacobian[:, i] = (ahead - behind) / (2.0 * step)
        slope[i] = (density(z + step * axis, ignored) - density(z - step * axis, ignored)) / (2.0 * step)
    assert log_det == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-6)
    np.testing.assert_allclose(score, slope, atol=1e-6 * np.abs(slope).max())
    of_x = np.empty(d)
    Smooth(d)(x, of_x)
    close = {"rtol": 1e-9, "atol": 1e-12 * np.abs(score).max()}
    np.testing.assert_allclose(composition.score_in_x(rows, z, x, score), of_x, **close)
    kept, again = np.empty(composition.n_kept(rows, d)), of_x.copy()
    composition.into_x_keeping(rows, z, back, kept)
    composition.pull_back_kept(rows, z, back, again, kept)
    np.testing.assert_allclose(again, score, **close)
