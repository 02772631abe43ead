"""What divergence a map leaves decides which laws are looked for."""

from __future__ import annotations

import numpy as np
import pytest

from stanadapt.numerics.windows import NOTHING_REFUSED, first_window, has_news
from stanadapt.transport import group, learning
from stanadapt.transport.grouping import choice
from stanadapt.transport.learning import learn_transport
from stanadapt.transport.map_table import BETA, no_transport

M = 12  # members of a group
GROUPS = np.array([0, 1, 2, *[3] * M])


def weak_law(n: int, strength: float, ridge: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores of a funnel or of a ridge, neither of which explains scores wholly."""
    normal = rng.normal(size=(n, 3 + M))
    bent = 0.25 * normal[:, 3:]
    points, scores, w = normal.copy(), -normal, np.sinh(bent) / 0.25
    pull = (normal[:, 3:] + 0.25 * np.tanh(bent)) / np.cosh(bent)
    points[:, 3:], scores[:, 3:] = w, -pull
    if ridge:
        points[:, 3] += strength * (np.square(normal[:, 1]) - 1.0)
        scores[:, 1] += 2.0 * strength * normal[:, 1] * pull[:, 0]
        return points, scores
    scale = np.exp(strength * points[:, :1])
    points[:, 3:] *= scale
    scores[:, 3:] /= scale
    scores[:, 0] += strength * (w * pull - 1.0).sum(axis=1)
    return points, scores


def test_draws_near_a_normal_law_have_no_room_for_groups_and_ridges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where so little of F is left they are not looked for; and if they were, hardly any would be found."""
    rng, found, missed = np.random.default_rng(9), {True: [], False: []}, 0
    for trial in range(80):
        n, strength = int(rng.integers(60, 300)), float(rng.uniform(0.05, 0.5))
        points, scores = weak_law(n, strength, trial % 2 > 0, rng)
        room = learning._remaining_divergence(no_transport(), points, scores) > learning.MARGIN
        usual = learn_transport(no_transport(), points, scores, GROUPS, n // 2)
        with monkeypatch.context() as patch:
            patch.setattr(learning, "MARGIN", -1.0)
            patch.setattr(learning, "RIDGE_MARGIN", -1.0)
            whole = learn_transport(no_transport(), points, scores, GROUPS, n // 2)
        missed += not np.array_equal(usual, whole)
        with monkeypatch.context() as patch:
            searches = []
            patch.setattr(choice, "detect", lambda *_, seen=searches: seen.append(1))
            learn_transport(no_transport(), points, scores, GROUPS, n // 2)
        assert room or not searches
        found[room].append(len(whole) > 0)
    assert sum(found[True]) >= 10
    assert len(found[False]) >= 10
    assert missed <= 2  # 4 of 2,400: ridges that are worth their margin by chance


def test_groups_of_a_good_map_are_not_learned_again_for_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a worse one are."""
    points, scores = weak_law(400, 1.0, False, np.random.default_rng(10))
    table = learn_transport(no_transport(), points, scores, GROUPS, 200)
    assert 0.0 < learning._remaining_divergence(table, points, scores) < learning.NORMAL
    worse = table.copy()
    worse[:, BETA] *= 0.5
    learned = []
    monkeypatch.setattr(group, "learn", lambda rows, _: learned.append(1) or rows)
    for one, times in ((table, 0), (worse, 1)):
        has_news(first_window(points, scores), one, GROUPS, NOTHING_REFUSED)
        assert len(learned) == times
