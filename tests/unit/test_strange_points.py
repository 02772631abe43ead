"""Points that known modes do not explain come first, whatever the tails of these modes are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanadapt import Target
from stanadapt.numerics.mode_search import Peak, Surface
from stanadapt.numerics.strange_points import strange_points

D, NARROW = 6, 0.5
KNOWN = np.array([np.full(D, -4.0), np.full(D, 4.0)])
HIDDEN = np.array([6.0, -6.0, 6.0, -6.0, 6.0, -6.0])


def normal(x: np.ndarray, middle: np.ndarray, scale: float) -> float:
    return float(-0.5 * np.sum(((x - middle) / scale) ** 2) - D * np.log(scale))


def heavy(x: np.ndarray, middle: np.ndarray, scale: float) -> float:
    return float(-0.5 * (4 + D) * np.log1p(np.sum(((x - middle) / scale) ** 2) / 4) - D * np.log(scale))


def parts(law: Any, x: np.ndarray) -> list[float]:
    return [*(law(x, middle, 1.0) for middle in KNOWN), law(x, HIDDEN, NARROW)]


@pytest.mark.parametrize("law", [normal, heavy])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_the_strangest_points_lie_at_the_mode_that_is_not_known(law: Any, is_diagonal: bool) -> None:
    model = Target.from_python(lambda x: float(np.logaddexp.reduce(parts(law, x))), D)
    surface = Surface(model.target(), D)
    curvature = 1.0 if law is normal else (4 + D) / 4
    negative = np.full(D, curvature) if is_diagonal else curvature * np.eye(D)
    peaks = [Peak(middle, law(middle, middle, 1.0), negative) for middle in KNOWN]
    found = strange_points(peaks, surface, 3_000, np.random.default_rng(1))
    assert surface.evaluations == 3_000
    at_hidden = np.array([np.argmax(parts(law, x)) == 2 for x in found])
    assert 0 < at_hidden.mean() < 0.05  # few points of all
    assert at_hidden[:5].mean() > 0.5


def test_points_outside_of_the_support_are_left_out() -> None:
    model = Target.from_python(lambda x: normal(x, KNOWN[1], 1.0) if x[0] > 0.0 else -np.inf, D)
    peaks = [Peak(KNOWN[1], 0.0, np.eye(D))]
    found = strange_points(peaks, Surface(model.target(), D), 400, np.random.default_rng(1))
    assert 0 < len(found) < 400
    assert (found[:, 0] > 0.0).all()
