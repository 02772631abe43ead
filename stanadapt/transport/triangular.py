"""Solving the triangular equations of a field (field.py), and their transposed form.

The law of a field is y_j + sum over k > j of G_kj y_k = b_j. Each y has to wait for others, and a sum arrives
several times later than the processor could begin with the next one. What need not wait is done before or
after, in loops over vectors.

In a series most latents have a regression on the same places: the latent two places later, since the order
of elimination begins at both ends of a series in turn, and perhaps the last one of all, its level, or the
one four places later, since a trend has a level and a slope at each time. Such columns are a *run*. In a run
two chains of sums go side by side, and no place of an entry is looked up. The entries of a run are stored by
rows of G^T: first those of the near latents, then those of the last one or the far ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Real

STEP = 2  # from a column of a run to the row of its first entry
_LEAST_RUN = 4  # columns


def longest_run(starts: np.ndarray, later: np.ndarray) -> tuple[int, int]:
    """The first column of the longest run, and the one after its last one; (0, 0) for none.

    The number of columns is even. `starts` (n + 1,) and `later` (e,) are those of field.py.
    """
    forms = _forms(starts, later)
    edges = np.concatenate(([0], 1 + np.flatnonzero(np.diff(forms)), [len(forms)]))
    lengths = np.where(forms[edges[:-1]] > 0, np.diff(edges) // 2 * 2, 0)
    best = int(lengths.argmax())
    begin, length = int(edges[best]), int(lengths[best])
    return (begin, begin + length) if length >= _LEAST_RUN else (0, 0)


def is_run(begin: int, end: int, starts: np.ndarray, later: np.ndarray) -> bool:
    """Whether the columns from `begin` to `end` are a run, or none."""
    if begin == end == 0:
        return True
    if not (0 <= begin < end < len(starts)) or (end - begin) % 2:
        return False
    forms = _forms(starts, later)[begin:end]
    return bool(forms[0] > 0 and np.all(forms == forms[0]))


def _forms(starts: np.ndarray, later: np.ndarray) -> np.ndarray:
    """The run of each column: 1 of near latents alone, 2 with the last one, 3 with far ones; 0 for none."""
    counts, n = np.diff(starts), len(starts) - 1
    forms = np.zeros(n, np.int64)
    one, two = np.flatnonzero(counts == 1), np.flatnonzero(counts == 2)
    forms[one] = later[starts[one]] == one + STEP
    near, second = later[starts[two]] == two + STEP, later[starts[two] + 1]
    forms[two] = near * np.where(second == n - 1, 2, 3 * (second == two + 2 * STEP))
    return forms


def run_order(begin: int, end: int, starts: np.ndarray, e: int) -> np.ndarray:
    """The order (e,) in which entries are stored, which otherwise go column by column."""
    order = np.arange(e)
    if begin < end:
        of_run = slice(int(starts[begin]), int(starts[end]))
        order[of_run] = order[of_run].reshape(end - begin, -1).T.ravel()
    return order


@kernel
def total(v: Any) -> Real:
    """The sum of the numbers v (n,)."""
    found = 0.0
    for j in range(v.size):
        found += v[j]
    return found


@kernel
def dot(u: Any, v: Any) -> Real:
    """The inner product of u and v (n,)."""
    found = 0.0
    for j in range(v.size):
        found += u[j] * v[j]
    return found


@kernel(ordered=True)
def order_entries(begin: Any, end: Any, starts: Any, g: Any, column_by_column: Any) -> None:
    """Bring the entries of a run into the order of columns, or into the one in which they are stored."""
    if begin == end or starts[begin + 1] - starts[begin] < 2.0:
        return
    first, length = int(starts[begin]), end - begin
    before = g[first : first + 2 * length].copy()
    for i in range(length):
        if column_by_column:
            g[first + 2 * i], g[first + 2 * i + 1] = before[i], before[length + i]
        else:
            g[first + i], g[first + length + i] = before[2 * i], before[2 * i + 1]


@kernel(ordered=True, counted=False)
def _second_order(begin: Any, starts: Any, later: Any) -> Any:
    """Whether the second entries of a run are those of far latents, and not all in the last row."""
    first = int(starts[begin])
    two = starts[begin + 1] - starts[begin] > 1.0
    return two and later[first + 1] != later[first + 3]


@kernel(ordered=True)
def solve(begin: Any, end: Any, starts: Any, later: Any, g: Any, y: Any) -> None:
    """Solve y_j + sum over k > j of G_kj y_k = b_j; `y` (n,) holds b, and the solution after that.

    The columns from `begin` to `end` are a run. `starts` and `later` are numbers of a table.
    """
    _solve_columns(end, starts.size - 1, starts, later, g, y)
    if begin < end:
        first, length, last = int(starts[begin]), end - begin, y[y.size - 1]
        near, far, own = g[first : first + length], g[first + length :], y[begin:]
        one, other = own[length + 1], own[length]
        if _second_order(begin, starts, later):
            far_one, far_other = own[length + 3], own[length + 2]
            for i in range(length - 1, 0, -STEP):
                here = own[i] - far[i] * far_one - near[i] * one
                there = own[i - 1] - far[i - 1] * far_other - near[i - 1] * other
                own[i], own[i - 1] = here, there
                far_one, far_other, one, other = one, other, here, there
        else:
            if starts[begin + 1] - starts[begin] > 1.0:
                for i in range(length):
                    own[i] -= far[i] * last
            for i in range(length - 1, 0, -STEP):
                one = own[i] - near[i] * one
                other = own[i - 1] - near[i - 1] * other
                own[i], own[i - 1] = one, other
    _solve_columns(0, begin, starts, later, g, y)


@kernel(ordered=True, counted=False)
def _solve_columns(begin: Any, end: Any, starts: Any, later: Any, g: Any, y: Any) -> None:
    """The nearest neighbour comes last: its y has just been computed, and the others need not wait for it."""
    entry = int(starts[end]) - 1
    for j in range(end - 1, begin - 1, -1):
        first, here = int(starts[j]), y[j]
        while entry >= first:
            here -= g[entry] * y[int(later[entry])]
            entry -= 1
        y[j] = here


@kernel(ordered=True)
def solve_transposed(
    begin: Any, end: Any, starts: Any, later: Any, g: Any, y: Any, pull: Any, pull_g: Any
) -> None:
    """Solve p_k + sum over j < k of G_kj p_j = b_k; `pull` (n,) holds b, and the solution after that.

    Write the derivatives in G, -y_k p_j, to `pull_g` (e,), with the solution y of the other equations. With
    `pull_g` (0,) they are left out.
    """
    # Many columns may have an entry in the last row. A sum would wait for itself, so there are eight.
    last, of_last = pull.size - 1, np.zeros(8)
    _pass_on(0, begin, starts, later, g, y, pull, pull_g, of_last)
    if begin < end:
        first, length = int(starts[begin]), end - begin
        near, far, own = g[first : first + length], g[first + length :], pull[begin:]
        one, other = own[0], own[1]
        second_order = _second_order(begin, starts, later)
        if second_order:
            of_one, of_other = 0.0, 0.0  # what goes on to the far latents
            for i in range(0, length, STEP):
                own[i], own[i + 1] = one, other
                here = own[i + STEP] - of_one - near[i] * one
                there = own[i + 1 + STEP] - of_other - near[i + 1] * other
                of_one, of_other, one, other = far[i] * one, far[i + 1] * other, here, there
            own[length + STEP] -= of_one
            own[length + 1 + STEP] -= of_other
        else:
            for i in range(0, length, STEP):
                own[i], own[i + 1] = one, other
                one = own[i + STEP] - near[i] * one
                other = own[i + 1 + STEP] - near[i + 1] * other
        own[length], own[length + 1] = one, other
        if pull_g.size == 0:
            if not second_order and starts[begin + 1] - starts[begin] > 1.0:
                of_last[0] -= dot(far[:length], own[:length])
            length = 0
        of_near, y_near = pull_g[first : first + length], y[begin + STEP : end + STEP]
        for i in range(length):
            of_near[i] = -y_near[i] * own[i]
        of_far = pull_g[first + length :]
        if second_order:
            y_far = y[begin + 2 * STEP :]
            for i in range(length):
                of_far[i] = -y_far[i] * own[i]
        elif length > 0 and starts[begin + 1] - starts[begin] > 1.0:
            of_last[0] -= dot(far[:length], own[:length])
            negative = -y[last]
            for i in range(length):
                of_far[i] = negative * own[i]
    _pass_on(end, last, starts, later, g, y, pull, pull_g, of_last)
    pull[last] += total(of_last)


@kernel(ordered=True, counted=False)
def _pass_on(
    begin: Any,
    end: Any,
    starts: Any,
    later: Any,
    g: Any,
    y: Any,
    pull: Any,
    pull_g: Any,
    of_last: Any,
) -> None:
    entry, last = int(starts[begin]), pull.size - 1
    for j in range(begin, end):
        here, behind = pull[j], int(starts[j + 1])
        if pull_g.size == 0:
            while entry < behind:
                there = int(later[entry])
                if there == last:
                    of_last[j & 7] -= g[entry] * here
                else:
                    pull[there] -= g[entry] * here
                entry += 1
        while entry < behind:
            there = int(later[entry])
            pull_g[entry] = -y[there] * here
            if there == last:
                of_last[j & 7] -= g[entry] * here
            else:
                pull[there] -= g[entry] * here
            entry += 1
