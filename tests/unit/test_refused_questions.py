"""What scores have answered with no is not asked again in the warm-up, unless something has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanadapt.transport.grouping import choice, exact_laws
from stanadapt.transport.grouping.exact_laws import question_of_more
from stanadapt.transport.learning import learn_transport
from stanadapt.transport.map_table import OWN, is_of_group, no_transport

N, M = 160, 12
VARIABLES = np.array([0, 1] + [2] * M)


def no_exact_law(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores of (u, v, x_1 ... x_M), where x ~ N(0, e^(2u)) has a likelihood that is not normal."""
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(2, n))
    x = np.exp(u)[:, None] * rng.normal(size=(n, M))
    score = -x * np.exp(-2.0 * u)[:, None] - np.tanh(x + np.arange(M))
    pulls = (np.square(x) * np.exp(-2.0 * u)[:, None]).sum(axis=1) - M - u
    return np.column_stack((u, v, x)), np.column_stack((pulls, -v, score))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The scales that have been asked for, one question after another."""
    questions: list[np.ndarray] = []
    ask = exact_laws._shared_scale

    def note(
        draws: Any, groups: Any, variables: Any, members: Any, parents: np.ndarray, *, plain: bool = False
    ) -> Any:
        questions.append(parents)
        return ask(draws, groups, variables, members, parents, plain=plain)

    monkeypatch.setattr(exact_laws, "_shared_scale", note)
    return questions


def test_a_question_is_asked_once(asked: list[np.ndarray]) -> None:
    points, scores = no_exact_law()
    refused: set[int] = set()
    first = learn_transport(no_transport(), points, scores, VARIABLES, N // 2, refused=refused)
    assert asked
    assert refused
    asked.clear()
    known = set(refused)
    again = learn_transport(no_transport(), points, scores, VARIABLES, N // 2, refused=refused)
    assert not asked
    assert refused == known
    np.testing.assert_array_equal(again, first)


def test_it_is_asked_again_where_another_scale_moves(asked: list[np.ndarray]) -> None:
    """The other one stands still then, so that as many scales move as before."""
    points, scores = no_exact_law()
    refused: set[int] = set()
    for moving in (0, 1):
        asked.clear()
        some = points.copy()
        some[:, 1 - moving] *= 0.01
        learn_transport(no_transport(), some, scores, VARIABLES, N // 2, refused=refused)
        assert any(moving in scales for scales in asked)


def test_few_draws_give_no_final_answer() -> None:
    points, scores = no_exact_law(exact_laws.REMEMBERED - 1)
    refused: set[int] = set()
    learn_transport(no_transport(), points, scores, VARIABLES, 30, refused=refused)
    assert not refused


def exact_law(n: int = N, *, with_v: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The same with data y ~ N(x, 1), so that a law explains all; `with_v` of the scale e^(u + v)."""
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(2, n))
    size = np.exp(u + v * with_v)[:, None]
    x = size * rng.normal(size=(n, M))
    pulls = np.square(x / size).sum(axis=1) - M
    score = -x / np.square(size) - (x - np.arange(M))
    return np.column_stack((u, v, x)), np.column_stack((pulls - u, pulls * with_v - v, score))


def test_groups_that_explain_all_are_kept_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are only asked if they still do: the draws of a window may show what those before did not."""
    judged: list[int] = []
    judge = choice._judge
    monkeypatch.setattr(choice, "_judge", lambda *given: judged.append(1) or judge(*given))
    refused: set[int] = set()
    first = learn_transport(no_transport(), *exact_law(), VARIABLES, N // 2, refused=refused)
    assert is_of_group(first).sum() == M
    assert judged == [1]
    assert question_of_more(first) in refused
    again = learn_transport(first, *exact_law(N + 10), VARIABLES, N // 2, refused=refused)
    assert judged == [1]
    np.testing.assert_array_equal(again, first)
    learn_transport(first, *exact_law(with_v=True), VARIABLES, N // 2, refused=refused)
    assert judged == [1, 1]
    assert question_of_more(first) not in refused


def test_groups_are_not_all_that_is_needed_while_a_variable_has_none() -> None:
    """A group may show later that its scale has not moved yet."""
    points, scores = exact_law()
    others = np.random.default_rng(2).normal(size=(N, M))
    points, scores = np.hstack((points, others)), np.hstack((scores, -np.tanh(others)))
    refused: set[int] = set()
    variables = np.append(VARIABLES, np.full(M, 3))
    found = learn_transport(no_transport(), points, scores, variables, N // 2, refused=refused)
    groups = found[is_of_group(found)]
    np.testing.assert_array_equal(np.sort(groups[:, OWN]), np.flatnonzero(variables == 2))
    assert question_of_more(groups) not in refused
