"""Regressions of scores give what least squares give, also where terms depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from stanadapt.transport.grouping.regressions import LEAST_SHARE, ScoreRegressions

M, DRAWS = 4, 60


def regressions(*, twice: bool) -> tuple[ScoreRegressions, list[np.ndarray], np.ndarray, np.ndarray]:
    """Regressions with three terms, of which the last may be there twice; and what they are made of."""
    rng = np.random.default_rng(1)
    x, scores, own = rng.normal(size=(3, M, DRAWS))
    weight = np.exp(0.3 * rng.normal(size=(1, DRAWS)))
    terms = [own, rng.normal(size=(1, DRAWS)), *([own] if twice else [])]
    columns = [np.ones_like(x), x, x * x, *(np.broadcast_to(term, x.shape) for term in terms)]
    found = ScoreRegressions(x, scores, weight, terms, curved=True)
    return found, [column * weight for column in columns], scores * weight, weight


@pytest.mark.parametrize("twice", [False, True])
def test_shares_and_coefficients_are_those_of_least_squares(twice: bool) -> None:
    found, columns, target, weight = regressions(twice=twice)
    for j in range(M):
        basis = np.column_stack([column[j] for column in columns])
        rest = target[j] - basis @ np.linalg.lstsq(basis, target[j], rcond=None)[0]
        total = total_of(target[j], weight[0])
        np.testing.assert_allclose(found.share()[j], np.log(rest @ rest / total), rtol=1e-9)
        np.testing.assert_allclose(basis @ found.coefficients[j], target[j] - rest, atol=1e-9)
    if twice:
        np.testing.assert_array_equal(found.coefficients[:, -1], 0.0)


@pytest.mark.parametrize("twice", [False, True])
def test_a_column_beside_the_terms_is_one_term_more(twice: bool) -> None:
    found, columns, target, _ = regressions(twice=twice)
    more, factor = np.random.default_rng(2).normal(size=(DRAWS, 3)), np.exp(columns[1][:1])
    shares = found.share_with(more, factor)
    weight = columns[0]
    for j in range(M):
        for k in range(3):
            column = (weight[j] * factor[0] * more[:, k])[:, None]
            basis = np.column_stack([*(each[j] for each in columns), column])
            rest = target[j] - basis @ np.linalg.lstsq(basis, target[j], rcond=None)[0]
            left = np.exp(shares[j, k] - found.share()[j])
            before = np.exp(found.share()[j])
            np.testing.assert_allclose(rest @ rest, left * before * total_of(target[j], weight[j]), rtol=1e-8)


def total_of(target: np.ndarray, weight: np.ndarray) -> float:
    mean = (target @ weight) / (weight @ weight)
    return float(np.square(target - mean * weight).sum())


def test_what_is_explained_wholly_leaves_rounding_error_alone() -> None:
    """The normal equations would leave a hundred million times more."""
    rng = np.random.default_rng(3)
    x, u = rng.normal(size=(M, DRAWS)), rng.normal(size=(1, DRAWS))
    factor = np.exp(-8.0 * u)
    found = ScoreRegressions(
        x, 2.0 * factor * x - factor + 0.5, np.ones((1, DRAWS)), [factor * x, factor], curved=True
    )
    np.testing.assert_allclose(found.share(), np.log(LEAST_SHARE))
    np.testing.assert_allclose(found.coefficients[:, 3:], [[2.0, -1.0]] * M, rtol=1e-6)
