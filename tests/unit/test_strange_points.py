"""Points that known modes do not explain come first, whatever the tails of these modes are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanadapt import Target
from stanadapt.jit import kernel
from stanadapt.numerics.mixtures import mixture
from stanadapt.numerics.mode_search import Peak, Surface
from stanadapt.numerics.replicas import STRANGE, empty_notes, note_strange, replicas_at
from stanadapt.numerics.strange_points import (
    SHARE,
    Cloud,
    cloud_around,
    narrowest_visible_mode,
    strangest_first,
)
from stanadapt.numerics.tempering import POSTERIOR

D, NARROW = 6, 0.5
KNOWN = np.array([np.full(D, -4.0), np.full(D, 4.0)])
HIDDEN = np.array([6.0, -6.0, 6.0, -6.0, 6.0, -6.0])


def normal(x: np.ndarray, middle: np.ndarray, scale: float) -> float:
    return float(-0.5 * np.sum(((x - middle) / scale) ** 2) - D * np.log(scale))


def heavy(x: np.ndarray, middle: np.ndarray, scale: float) -> float:
    return float(-0.5 * (4 + D) * np.log1p(np.sum(((x - middle) / scale) ** 2) / 4) - D * np.log(scale))


def parts(law: Any, x: np.ndarray) -> list[float]:
    return [*(law(x, middle, 1.0) for middle in KNOWN), law(x, HIDDEN, NARROW)]


def cloud(peaks: Any, surface: Surface, n: int) -> Cloud:
    points = cloud_around(peaks, n, np.random.default_rng(1))
    return Cloud(points, surface.heights(points))


@pytest.mark.parametrize("law", [normal, heavy])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_the_strangest_points_lie_at_the_mode_that_is_not_known(law: Any, is_diagonal: bool) -> None:
    model = Target.from_python(lambda x: float(np.logaddexp.reduce(parts(law, x))), D)
    surface = Surface(model.target(), D)
    curvature = 1.0 if law is normal else (4 + D) / 4
    negative = np.full(D, curvature) if is_diagonal else curvature * np.eye(D)
    peaks = [Peak(middle, law(middle, middle, 1.0), negative) for middle in KNOWN]
    found = strangest_first(peaks, cloud(peaks, surface, 3_000))
    assert surface.evaluations == 3_000
    at_hidden = np.array([np.argmax(parts(law, x)) == 2 for x in found])
    assert 0 < at_hidden.mean() < 0.05  # few points of all
    assert at_hidden[:5].mean() > 0.5


def test_points_outside_of_the_support_are_left_out() -> None:
    model = Target.from_python(lambda x: normal(x, KNOWN[1], 1.0) if x[0] > 0.0 else -np.inf, D)
    peaks = [Peak(KNOWN[1], 0.0, np.eye(D))]
    found = strangest_first(peaks, cloud(peaks, Surface(model.target(), D), 400))
    assert 0 < len(found) < 400
    assert (found[:, 0] > 0.0).all()


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_points_would_have_shown_half_of_the_modes_that_are_as_narrow_as_is_said(is_diagonal: bool) -> None:
    """Counted at other places, with the mixture's own density, and not with what the function works out."""
    scales = np.array([0.5, 1.0, 2.0, 1.0, 1.0, 3.0])
    negative = scales**-2 if is_diagonal else np.diag(scales**-2)
    masses = zip(KNOWN, (0.7, 0.3), strict=True)
    peaks = [Peak(middle, float(np.log(mass)), negative) for middle, mass in masses]

    def log_density(x: np.ndarray) -> float:
        return float(np.logaddexp.reduce([peak.logp - 0.5 * peak.distances(x[None])[0] for peak in peaks]))

    model = Target.from_python(log_density, D)
    clouds = [cloud(peaks, Surface(model.target(), D), 1_500)]
    scale = narrowest_visible_mode(peaks, clouds, np.random.default_rng(2))
    points, heights = clouds[0]
    places = cloud_around(peaks, 300, np.random.default_rng(3))
    seen = []
    for factor in (0.6, 1.0, 1.6):
        s = factor * scale
        top = np.log(SHARE / (1.0 - SHARE)) - D * np.log(s)
        own = [top - 0.5 * np.square((points - place) / (s * scales)).sum(axis=1) for place in places]
        seen.append(np.mean([(height > heights + 10.0).any() for height in own]))
    assert 0.05 < scale < 1.0
    assert 0.35 < seen[1] < 0.65
    assert seen[0] < seen[1] - 0.1
    assert seen[2] > seen[1] + 0.1


def test_without_points_no_mode_would_have_been_seen() -> None:
    peaks = [Peak(KNOWN[1], 0.0, np.eye(D))]
    nowhere = Cloud(np.zeros((3, D)), np.full(3, -np.inf))
    assert narrowest_visible_mode(peaks, [nowhere], np.random.default_rng(1)) == np.inf


def test_the_strangest_replicas_of_warm_rungs_are_kept() -> None:
    """Of twenty scans, on the rung between the broad reference and the posterior: the eight highest ones."""
    k, cold, scans = 4, 2, 20
    known = mixture(np.zeros(2), KNOWN, np.tile(np.eye(D), (2, 1, 1)), 30.0)
    notes, rng = empty_notes(k, D, 3), np.random.default_rng(1)
    points = np.tile(KNOWN[0], (scans, 1))
    heights = rng.permutation(scans).astype(float)
    for point, height in zip(points, heights, strict=True):
        replicas = replicas_at(np.tile(point, (k, 1)))
        replicas.points[:, 0] += 1.0  # half a nat below the top of the normal law
        replicas.heights[:, POSTERIOR] = height
        keep_strangest(notes, known, cold, replicas, np.empty(D), np.empty(D))
    top = known.log_tops.max() - 0.5
    np.testing.assert_allclose(np.sort(notes.excess[1]), np.arange(scans - STRANGE, scans) - top)
    assert (notes.excess[[0, 2, 3]] == -np.inf).all()
    np.testing.assert_array_equal(notes.strange[1], np.tile(KNOWN[0] + np.eye(D)[0], (STRANGE, 1)))


@kernel(ordered=True)
def keep_strangest(notes: Any, known: Any, cold: Any, replicas: Any, away: Any, white: Any) -> None:
    """`note_strange` for plain Python."""
    note_strange(notes, known, cold, replicas, away, white)
