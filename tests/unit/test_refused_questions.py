"""What scores have answered with no is not asked again in the warm-up, unless something has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanadapt.transport import ridge_learning
from stanadapt.transport.fields.field_learning import learn_walk
from stanadapt.transport.grouping import choice, exact_laws
from stanadapt.transport.grouping.exact_laws import question_of_more
from stanadapt.transport.learning import is_straight, learn_transport
from stanadapt.transport.map_table import KIND, OWN, RIDGE, is_of_group, no_transport
from stanadapt.transport.ridge_learning import NONE_EXACT

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


def logistic(n: int, *, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Draws of three coefficients, whose scores are of no order, and these scores."""
    design = np.random.default_rng(7).normal(size=(20, 3))
    points = width * np.random.default_rng(1).normal(size=(n, 3))
    return points, (0.5 - 1.0 / (1.0 + np.exp(-points @ design.T))) @ design - points


def ask_for_ridges(n: int, *, width: float = 1.0, refused: set[int] | None = None) -> set[int]:
    """The questions that are refused once a map has been learned from `logistic`."""
    refused = set() if refused is None else refused
    table = learn_transport(no_transport(), *logistic(n, width=width), np.arange(3), n // 2, refused=refused)
    assert not (table[:, KIND] == RIDGE).any()
    return refused


@pytest.fixture
def exact_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each search for exact ridges."""
    searches: list[int] = []
    find = ridge_learning._find_ridges

    def note(search: Any, *, exact: bool) -> Any:
        searches.extend([1] * exact)
        return find(search, exact=exact)

    monkeypatch.setattr(ridge_learning, "_find_ridges", note)
    return searches


def test_exact_ridges_are_asked_for_until_scores_have_said_no(exact_searches: list[int]) -> None:
    """From 15 draws on; nine terms need more of them to say no."""
    refused = ask_for_ridges(14)
    assert not exact_searches
    assert NONE_EXACT not in ask_for_ridges(15, refused=refused)
    assert NONE_EXACT in ask_for_ridges(30, refused=refused)
    assert len(exact_searches) == 2
    ask_for_ridges(100, refused=refused)
    assert is_straight(no_transport(), *logistic(100), np.arange(3), refused)
    assert len(exact_searches) == 2


def test_draws_close_to_each_other_give_no_final_answer() -> None:
    """Every smooth score is nearly of second order there."""
    assert NONE_EXACT not in ask_for_ridges(100, width=1e-2)


def test_a_coordinate_that_stands_still_has_given_no_answer() -> None:
    points, scores = logistic(60)
    points[:, 2] = 0.5
    refused: set[int] = set()
    learn_transport(no_transport(), points, scores, np.arange(3), 30, refused=refused)
    assert NONE_EXACT not in refused


def test_an_exact_ridge_is_no_answer_for_others(exact_searches: list[int]) -> None:
    rng, refused, table = np.random.default_rng(1), set[int](), no_transport()
    for _ in range(2):
        a, e = 10.0 * rng.normal(size=60), rng.normal(size=60)
        points = np.stack((a, 0.03 * a * a + e), axis=1)
        scores = np.stack((-a / 100.0 + 0.06 * a * e, -e), axis=1)
        table = learn_transport(table, points, scores, np.arange(2), 30, refused=refused)
        assert (table[:, KIND] == RIDGE).any()
    assert len(exact_searches) == 2
    assert NONE_EXACT not in refused


def test_beside_a_field_exact_ridges_are_asked_for_each_time(exact_searches: list[int]) -> None:
    """Another field has other coordinates, whose scores are other ones."""
    field, refused = learn_walk(), set[int]()
    latents = int(field[:, OWN].max())
    points, scores = (np.random.default_rng(k).normal(size=(60, latents + 1)) for k in (1, 2))
    (more, their_scores), variables = logistic(60), np.append(np.zeros(latents + 1, np.int64), [1, 2, 3])
    seen = np.hstack((points, more)), np.hstack((scores, their_scores)), variables, 30
    for k in (1, 2):
        learn_transport(field, *seen, refused=refused)
        assert len(exact_searches) == k
    assert NONE_EXACT not in refused


def test_one_search_serves_both_kinds_of_ridges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ridge with Student's noise: its first search has told where the second one looks."""
    rng = np.random.default_rng(5)
    a, e = 10.0 * rng.normal(size=100), rng.standard_t(5.0, size=100)
    pull = -6.0 * e / (5.0 + e * e)
    points, scores = (
        np.stack((a, 0.03 * a * a + e), axis=1),
        np.stack((-a / 100.0 - 0.06 * a * pull, pull), 1),
    )
    looks: list[int] = []
    find = ridge_learning.find_suspects
    monkeypatch.setattr(ridge_learning, "find_suspects", lambda *given: looks.append(1) or find(*given))
    once = learn_transport(no_transport(), points, scores, np.arange(2), 50)
    assert (once[:, KIND] == RIDGE).any()
    assert len(looks) == 2  # and one at the draws in which the ridge is undone
    monkeypatch.setattr(ridge_learning.RidgeSearch, "is_of", lambda *_: False)
    looks.clear()
    np.testing.assert_array_equal(learn_transport(no_transport(), points, scores, np.arange(2), 50), once)
    assert len(looks) == 3
