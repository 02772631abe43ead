"""Triangular equations of fields: runs, their order, and solutions against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from stanadapt.transport.triangular import (
    is_run,
    longest_run,
    order_entries,
    run_order,
    solve,
    solve_transposed,
)

N = 25


def pattern(second: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns without a form before and after a run; `starts` and `later` of field.py."""
    columns = [[1, 2, 5], [3, 7], [9]]
    seconds = {"none": lambda j: [], "last": lambda j: [N - 1], "far": lambda j: [j + 4]}[second]
    columns += [[j + 2, *seconds(j)] for j in range(3, N - 5)]
    columns += [sorted({j + 1, N - 1}) for j in range(N - 5, N - 1)] + [[]]
    return np.cumsum([0, *map(len, columns)]), np.concatenate(columns).astype(np.int64)


@pytest.mark.parametrize("second", ["none", "last", "far"])
def test_solutions_are_those_of_the_dense_matrix(second: str) -> None:
    starts, later = pattern(second)
    begin, end = longest_run(starts, later)
    assert (begin, end) == (3, 19)  # of 17 columns, an even number
    rng, e = np.random.default_rng(1), len(later)
    g = rng.normal(size=e)
    dense = np.eye(N)
    dense[np.repeat(np.arange(N), np.diff(starts)), later] = g
    stored = g[run_order(begin, end, starts, e)]
    ints = starts.astype(float), later.astype(float)
    b, c = rng.normal(size=(2, N))
    y, pull, pull_g = b.copy(), c.copy(), np.empty(e)
    solve(begin, end, *ints, stored, y)
    np.testing.assert_allclose(y, np.linalg.solve(dense, b), rtol=1e-9, atol=1e-9)
    solve_transposed(begin, end, *ints, stored, y, pull, pull_g)
    np.testing.assert_allclose(pull, np.linalg.solve(dense.T, c), rtol=1e-9, atol=1e-9)
    order_entries(begin, end, ints[0], pull_g, True)
    columns = np.repeat(np.arange(N), np.diff(starts))
    np.testing.assert_allclose(pull_g, -y[later] * pull[columns], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("second", ["none", "last", "far"])
def test_the_order_of_entries_is_undone(second: str) -> None:
    starts, later = pattern(second)
    begin, end = longest_run(starts, later)
    numbers = np.arange(float(len(later)))
    stored = numbers[run_order(begin, end, starts, len(later))]
    again = stored.copy()
    order_entries(begin, end, starts.astype(float), again, True)
    np.testing.assert_array_equal(again, numbers)
    order_entries(begin, end, starts.astype(float), again, False)
    np.testing.assert_array_equal(again, stored)


@pytest.mark.parametrize("second", ["last", "far"])
def test_what_is_no_run_is_told(second: str) -> None:
    starts, later = pattern(second)
    assert is_run(3, 19, starts, later)
    assert is_run(0, 0, starts, later)
    assert is_run(5, 9, starts, later)
    for begin, end in ((3, 18), (2, 18), (4, 22), (9, 9), (-2, 8), (19, N + 3)):
        assert not is_run(begin, end, starts, later)
    assert longest_run(starts[:4], later[: starts[3]]) == (0, 0)
