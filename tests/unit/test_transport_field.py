"""The law of a latent field: its inverse, log determinant and pull-back, and tables that are damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanadapt.transport import composition, learning
from stanadapt.transport.bend import Bend, bend_rows
from stanadapt.transport.exponential import replace_by_exponentials
from stanadapt.transport.field import OWN_FEATURES, Field, feature_values, n_features, places
from stanadapt.transport.field_table import (
    are_valid,
    bends_of_heads,
    describe,
    field_of,
    field_rows,
    fields_of,
    join_fields,
    latents_and_heads,
    moved_by,
    split,
)
from stanadapt.transport.map_table import (
    APART,
    COLUMNS,
    FRAMED,
    INNOVATIONS,
    KIND,
    MORE,
    N_ENTRIES,
    N_FEATURES,
    N_HEADS,
    N_LATENTS,
    OWN,
    RUN,
    RUN_END,
    SIZE_S,
    WIDTH,
)
from stanadapt.transport.tail import Tails, tail_rows

D = 13
DENSE = 3  # the seed of fields with a frame and bumps
OUTSIDE = 12  # a coordinate that is neither head nor latent, whatever the field
GRADIENTS = 17
STEP = 1e-6


SERIES, SERIES_WITH_LEVEL = 4, 5  # seeds of fields with a run, see triangular.py
CONSTANT, CONSTRAINED = 6, 7  # of one with a run and a constant G, and of one with a constraint on a sum
IN_INNOVATIONS = 2  # of one whose latents are innovations, in part
TWO = 0  # of one beside which there is another one


def field(m: int, seed: int, sizes: tuple[int, int, int] = (2, 3, 1)) -> Field:
    """A field with `m` heads and random numbers; latents in an order of their own. DENSE: with a frame."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(OUTSIDE)
    heads, own = np.sort(places[:m]), places[m : m + (10 if seed >= SERIES else 8)]
    n = len(own)
    entries = [[k for k in range(j + 1, n) if rng.random() < 0.4] for j in range(n)]
    if seed >= SERIES:
        far = [n - 1] if seed in (SERIES_WITH_LEVEL, CONSTANT) else []
        entries[:-2] = [sorted({j + 2, *far}) for j in range(n - 2)]
    starts = np.cumsum([0, *map(len, entries)])
    later = np.array([k for column in entries for k in column], np.int64)
    if m == 0 or seed == CONSTANT:
        sizes = (0 if m == 0 else 2, 0 if m == 0 else 3, 0)
    bumps = 4 if m and seed == DENSE else 0
    bases = tuple(0.2 * rng.normal(size=(size, n_features(m) + bumps)) for size in sizes)
    widths = len(own), len(own), len(later)
    coefficients = tuple(
        0.5 * rng.normal(size=(size + 1, width)) for size, width in zip(sizes, widths, strict=True)
    )
    scale, rate = rng.uniform(0.5, 2.0, (2, m))
    mid, middle = rng.normal(size=m), rng.normal(size=len(own))
    law = Field(heads, mid, scale, rate, bases, middle, own, starts, later, coefficients)
    if seed == CONSTRAINED:
        runs = np.split(np.sort(own), 1 + np.flatnonzero(np.diff(np.sort(own)) > 1))
        block = max(runs, key=len)
        law = law._replace(level=np.array([block[0], len(block), 0.3]))
    if seed != DENSE:
        return law
    frame = np.eye(len(own)) + 0.3 * rng.normal(size=(len(own),) * 2)
    frame[0] *= np.sign(np.linalg.det(frame))
    frame /= np.linalg.det(frame) ** (1.0 / len(own))
    axes = np.eye(m) + 0.3 * rng.normal(size=(m, m)) if bumps else law.axes
    return law._replace(frame=frame, axes=axes, centres=rng.normal(size=(bumps, m)) if bumps else law.centres)


def of_heads(law: Field, seed: int) -> np.ndarray:
    """Rows that follow those of a field: the law of its heads given the first one, and its bend."""
    rng, others = np.random.default_rng(seed + 100), law.heads[1:]
    entries = np.arange(1, len(others)), np.arange(len(others) - 1)  # each one has a regression on the next
    starts = np.append(entries[1], [len(others) - 1] * 2)
    bases = tuple(0.2 * rng.normal(size=(1, n_features(1))) for _ in range(3))
    coefficients = tuple(
        0.5 * rng.normal(size=(2, width)) for width in (len(others), len(others), len(entries[0]))
    )
    one = np.ones(1)
    second = Field(
        law.heads[:1],
        0.3 * one,
        one,
        one,
        bases,
        np.zeros(len(others)),
        others,
        starts,
        entries[0],
        coefficients,
    )
    bent = bend_rows([Bend(int(law.heads[0]), 0.2, 1.5, 0.7, -1.0, 2.0)])
    bent[:, APART] = 1.0
    return np.concatenate((field_rows(second, 0), bent))


def beside(law: Field) -> Field:
    """A field of the coordinates that another one has left, with a head in common and one of its own."""
    rng, own = np.random.default_rng(31), np.setdiff1d(np.arange(OUTSIDE), np.append(law.heads, law.own))
    n, heads = len(own), np.array([law.heads[0], OUTSIDE])
    bases = tuple(0.1 * rng.normal(size=(2, n_features(2))) for _ in range(3))
    coefficients = tuple(0.5 * rng.normal(size=(3, width)) for width in (n, n, n - 1))
    starts, later = np.minimum(np.arange(n + 1), n - 1), np.arange(1, n)
    mid, scale, rate = rng.normal(size=2), np.ones(2), np.ones(2)
    return Field(heads, mid, scale, rate, bases, rng.normal(size=n), own, starts, later, coefficients)


def of_innovations(law: Field, seed: int) -> np.ndarray:
    """Rows that come before those of a field: some of its latents are innovations of a series."""
    rng, own = np.random.default_rng(seed + 200), law.own[[5, 0, 3, 2]]
    n, m = len(own), len(law.heads)
    none, zeros = np.zeros((0, n_features(m))), np.zeros((1, n))
    basis, entries = 0.2 * rng.normal(size=(2, n_features(m))), 0.5 * rng.normal(size=(3, n - 1))
    scales = 0.5 * rng.normal(size=(3, n))
    series = law._replace(
        bases=(basis[::-1], none, basis),
        middle=np.zeros(n),
        own=own,
        starts=np.minimum(np.arange(n + 1), n - 1),
        later=np.arange(1, n),
        coefficients=(scales, zeros, entries),
    )
    return field_rows(series, 0, INNOVATIONS)


def map_rows(m: int, seed: int, whole: bool = True, others: bool = False) -> np.ndarray:
    """Rows of a field with `m` heads; if it is `whole`, and there are several heads, with a law of these.

    With `others` a tail and a bend come before the law of the heads, if there is one.
    """
    law = field(m, seed)
    rows = field_rows(law, GRADIENTS)
    if seed == IN_INNOVATIONS and m > 0:
        rows = np.concatenate((of_innovations(law, seed), rows))
    if seed == TWO and m > 0:
        rows = join_fields([rows, field_rows(beside(law), GRADIENTS)], [np.arange(D)] * 2)
    if whole and m > 1:
        rows = np.concatenate((rows, of_heads(law, seed)))
    if others and m > 1:
        tails = tail_rows(Tails(np.append(law.heads[1:2], OUTSIDE), np.full(2, 0.3), np.full(2, 0.7)))
        bends = [Bend(int(head), 0.2, 1.2, 0.8, 1.0, 2.5) for head in law.heads[2:]]
        rows = np.concatenate((rows, tails, bend_rows(bends)))
    return rows


def point(table: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    x = np.empty(D)
    return x, composition.into_x(table, z, x)


CASES = [(m, seed) for m in (0, 1, 3) for seed in (1, 2, 3)] + [(1, SERIES), (2, SERIES_WITH_LEVEL)]
CASES += [(1, CONSTANT), (2, CONSTRAINED), (1, TWO), (2, TWO)]


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize(("m", "seed"), CASES)
def test_a_field_is_undone(m: int, seed: int, others: bool) -> None:
    table, z = map_rows(m, seed, others=others), np.random.default_rng(seed).normal(size=D)
    found = np.empty(D)
    composition.into_z(table, point(table, z)[0], found)
    np.testing.assert_allclose(found, z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize(("m", "seed"), CASES)
def test_log_determinant_is_that_of_the_derivatives(m: int, seed: int, others: bool) -> None:
    table, z = map_rows(m, seed, others=others), np.random.default_rng(seed).normal(size=D)
    step = 1e-5  # some tables have derivatives of very different sizes
    ahead = [point(table, z + step * e)[0] for e in np.eye(D)]
    behind = [point(table, z - step * e)[0] for e in np.eye(D)]
    sign, log_det = np.linalg.slogdet((np.array(ahead) - np.array(behind)) / (2.0 * step))
    assert sign == 1.0
    assert point(table, z)[1] == pytest.approx(log_det, abs=1e-6)


@pytest.mark.parametrize("laws", ["field and heads", "field and tails", "field, heads and tails"])
@pytest.mark.parametrize(("m", "seed"), CASES)
def test_score_is_the_gradient_of_the_density_in_z(m: int, seed: int, laws: str) -> None:
    """Tails of a head and of a coordinate outside come before the field, and are pulled back after it."""
    rng, law = np.random.default_rng(seed), field(m, seed)
    whole = "heads" in laws
    table, z = map_rows(m, seed, whole, whole and "tails" in laws), rng.normal(size=D)
    if not whole:
        others = np.array([*law.heads[:1], OUTSIDE])
        tails = tail_rows(Tails(others, np.full(len(others), 0.3), np.full(len(others), 0.7)))
        table = np.concatenate((table, tails))
    assert composition.is_map(table, D)
    root = 0.3 * rng.normal(size=(D, D))
    precision = root @ root.T

    def density(z: np.ndarray) -> float:
        x, log_det = point(table, z)
        return float(-0.5 * x @ precision @ x + log_det)

    x = point(table, z)[0]
    score_x = -precision @ x
    score = score_x.copy()
    composition.pull_back(table, z, x, score)
    wanted = [(density(z + STEP * e) - density(z - STEP * e)) / (2.0 * STEP) for e in np.eye(D)]
    np.testing.assert_allclose(score, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    kept, again = np.empty(composition.n_kept(table, z.size)), score_x.copy()
    composition.into_x_keeping(table, z, x, kept)
    composition.pull_back_kept(table, z, x, again, kept)
    np.testing.assert_allclose(again, score, rtol=1e-10, atol=1e-12)
    back = composition.score_in_x(table, z, x, score)
    np.testing.assert_allclose(back, score_x, rtol=1e-8, atol=1e-8 * np.abs(score_x).max())


@pytest.mark.parametrize("m", [1, 2, 3])
def test_slopes_of_features_are_their_derivatives(m: int) -> None:
    """Near the middle, at a knot's turn and far out."""
    mid, scale, rate = np.full(m, 0.3), np.linspace(0.5, 2.0, m), np.linspace(2.0, 1.0, m)

    def features(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = np.empty(n_features(m)), np.full((n_features(m), m), np.nan)
        feature_values(theta, mid, scale, rate, values, slopes)
        return values, slopes

    for r in np.random.default_rng(m).normal(size=(5, m)) * np.array([[0.3], [1.0], [3.0], [10.0], [30.0]]):
        theta = mid + scale * r
        wanted = [
            (features(theta + STEP * e)[0] - features(theta - STEP * e)[0]) / (2.0 * STEP) for e in np.eye(m)
        ]
        np.testing.assert_allclose(features(theta)[1], np.transpose(wanted), atol=1e-5)


def _exponentials(x: np.ndarray) -> np.ndarray:
    found = x.copy()
    replace_by_exponentials(found)
    return found


def test_exponentials_are_right_to_the_last_places() -> None:
    x = np.random.default_rng(1).normal(size=2_000) * np.repeat([1e-8, 1.0, 30.0, 200.0], 500)
    np.testing.assert_allclose(_exponentials(x), np.exp(x), rtol=1e-15)
    np.testing.assert_array_equal(_exponentials(np.array([0.0, -0.0])), 1.0)
    far = _exponentials(np.array([-1e6, -np.inf, np.inf, 1e6]))
    np.testing.assert_allclose(far, np.exp([-700.0, -700.0, 700.0, 700.0]), rtol=1e-14)


def test_features_neither_overflow_nor_bend_far_out() -> None:
    """The turns are straight and the shares constant from some distance on, on either side."""
    one = np.ones(1)
    found = {}
    for theta in (-2e3, -1e3, 1e3, 2e3):
        values, slopes = np.empty(n_features(1)), np.empty((n_features(1), 1))
        feature_values(np.array([theta]), 0.0 * one, one, 2.0 * one, values, slopes)
        assert np.isfinite(values).all()
        found[theta] = slopes[1:OWN_FEATURES, 0]
    for near, far in ((-1e3, -2e3), (1e3, 2e3)):
        np.testing.assert_array_equal(found[near], found[far])
    np.testing.assert_array_equal(found[1e3][::2] - found[-1e3][::2], 1.0)
    np.testing.assert_array_equal(found[1e3][1::2], 0.0)


@pytest.mark.parametrize(("m", "seed"), CASES)
def test_rows_hold_the_field(m: int, seed: int) -> None:
    law = field(m, seed)
    rows = field_rows(law, GRADIENTS)
    assert are_valid(rows, D)
    assert composition.is_map(rows, D)
    for wanted, found in zip(law, field_of(rows), strict=True):
        for one, other in zip(*((a if isinstance(a, tuple) else (a,)) for a in (wanted, found)), strict=True):
            np.testing.assert_array_equal(one, other)
    others = np.zeros((2, COLUMNS))
    for wanted, found in zip((rows, others), split(np.concatenate((rows, others))), strict=True):
        np.testing.assert_array_equal(wanted, found)
    assert not len(split(others)[0])
    told = describe(rows, D)
    assert set(np.flatnonzero(told["field_role"] == 2)) == set(law.heads)
    assert set(np.flatnonzero(told["field_role"] == 1)) == set(law.own)
    assert told["field_entries"].sum() == (8 * 7 if seed == DENSE else len(law.later))
    assert told["field_gradients"] == GRADIENTS


def set_number(rows: np.ndarray, number: int, value: float) -> None:
    rows.reshape(-1)[COLUMNS + number] = value


DAMAGED: dict[str, Any] = {
    "a number is missing": lambda rows, law: set_number(rows, 0, np.nan),
    "a head outside": lambda rows, law: set_number(rows, 0, D),
    "a head that is no whole number": lambda rows, law: set_number(rows, 0, 0.5),
    "two heads alike": lambda rows, law: set_number(rows, 1, law.heads[0]),
    "a head that is a latent": lambda rows, law: set_number(rows, 0, law.own[3]),
    "a scale of zero": lambda rows, law: set_number(rows, 6, 0.0),
    "a rate below zero": lambda rows, law: set_number(rows, 9, -1.0),
    "a row too few in the header": lambda rows, law: rows.__setitem__((0, 1), len(rows) - 1),
    "more latents than numbers": lambda rows, law: rows.__setitem__((0, N_LATENTS), 10_000),
    "no latents": lambda rows, law: rows.__setitem__((0, N_LATENTS), 0),
    "heads below zero": lambda rows, law: rows.__setitem__((0, N_HEADS), -1),
    "one entry more": lambda rows, law: rows.__setitem__((0, N_ENTRIES), rows[0, N_ENTRIES] + 1),
    "part of a basis": lambda rows, law: rows.__setitem__((0, SIZE_S), 1.5),
    "a run where there is none": lambda rows, law: rows.__setitem__((0, [RUN, RUN_END]), [0, 6]),
    "another kind": lambda rows, law: rows.__setitem__((0, KIND), 7.0),
}


def test_a_frame_comes_with_its_inverse_and_the_determinant_one() -> None:
    """Otherwise draws would be from another law."""
    law = field(2, DENSE)
    assert are_valid(field_rows(law, GRADIENTS), D)
    assert not are_valid(field_rows(law._replace(frame=1.01 * law.frame), GRADIENTS), D)
    rows = field_rows(law, GRADIENTS)
    first = int(places(rows)[15]) - COLUMNS  # of the inverse
    set_number(rows, first, rows.reshape(-1)[COLUMNS + first] + 0.1)
    assert not are_valid(rows, D)
    bare = field(1, 1)
    rows = field_rows(bare, GRADIENTS)
    for header, value in ((FRAMED, 0.5), (FRAMED, 1.0), (N_FEATURES, rows[0, N_FEATURES] - 1)):
        damaged = rows.copy()
        damaged[0, header] = value
        assert not are_valid(damaged, D)


def test_a_constrained_sum_is_that_of_latents() -> None:
    law = field(2, CONSTRAINED)
    first, size, _ = law.level
    np.testing.assert_array_equal(field_of(field_rows(law, GRADIENTS)).level, law.level)
    wrong = [
        [first, size + 1, 0.3],
        [first, size, 0.0],
        [first, size, -1.0],
        [first + 0.5, size, 0.3],
        [0, 0, 1],
    ]
    for level in wrong:
        assert not are_valid(field_rows(law._replace(level=np.array(level)), GRADIENTS), D)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_tables_are_refused(name: str) -> None:
    law = field(3, 1)
    rows = field_rows(law, GRADIENTS)
    DAMAGED[name](rows, law)
    assert not composition.is_map(rows, D)


def test_entries_point_to_later_latents_and_columns_follow_each_other() -> None:
    law = field(1, 1)
    first = int(np.flatnonzero(np.diff(law.starts))[-1])
    for damage in (
        law._replace(later=np.where(np.arange(len(law.later)) == law.starts[first], first, law.later)),
        law._replace(later=np.full_like(law.later, len(law.own))),
        law._replace(starts=law.starts[::-1].copy()),
        law._replace(starts=np.append(law.starts[:-1], len(law.later) - 1)),
        law._replace(own=np.append(law.own[:-1], law.own[0])),
    ):
        assert not are_valid(field_rows(damage, GRADIENTS), D)


def test_other_laws_keep_away_from_latents() -> None:
    law = field(1, 1)
    rows = field_rows(law, GRADIENTS)
    tail = tail_rows(Tails(law.own[:1], np.zeros(1), np.ones(1)))
    assert not composition.is_map(np.concatenate((rows, tail)), D)
    assert not composition.is_map(np.concatenate((rows, rows)), D)


def test_rows_hold_the_law_of_the_heads() -> None:
    law, rows = field(3, 1), map_rows(3, 1)
    assert composition.is_map(rows, D)
    (first,), (second,) = fields_of(rows)
    np.testing.assert_array_equal(first.heads, law.heads)
    np.testing.assert_array_equal(second.own, law.heads[1:])
    np.testing.assert_array_equal(bends_of_heads(rows)[:, OWN], law.heads[:1])
    assert set(moved_by(rows)) == {*law.own, law.heads[0]}
    for wanted, found in zip((rows, rows[:0]), split(rows), strict=True):
        np.testing.assert_array_equal(wanted, found)
    told = learning.describe(rows, D)
    assert told["bend"][law.heads[0]] == -1.5
    np.testing.assert_array_equal(np.flatnonzero(told["field_root"] >= 0), law.heads[1:])
    np.testing.assert_array_equal(told["field_root"][law.heads[1:]], law.heads[0])
    assert set(np.flatnonzero(told["field_role"] == 2)) == set(law.heads)


def test_a_law_of_the_heads_keeps_away_from_latents() -> None:
    law, rows = field(3, 1), map_rows(3, 1)
    n = len(field_rows(law, GRADIENTS))
    latent, root, other = float(law.own[0]), float(law.heads[0]), float(law.heads[1])
    assert fields_of(rows)[1][0].heads[0] == root
    last = len(rows) - 1
    for place, value in (
        ((n + 1, 0), latent),  # the head of the second field
        ((last, OWN), latent),
        ((last, OWN), other),
        ((last, OWN), float(D)),
        ((last, WIDTH), 0.0),
    ):
        damaged = rows.copy()
        damaged[place] = value
        assert not composition.is_map(damaged, D)
    for head, allowed in ((law.heads[:1], False), (law.heads[1:2], True)):  # the root has a bend already
        tail = tail_rows(Tails(head, np.zeros(1), np.ones(1)))
        assert composition.is_map(np.concatenate((rows, tail)), D) == allowed


def test_two_fields_have_latents_of_their_own() -> None:
    """Their heads may be the same, but no latent of one is a latent or a head of the other."""
    law = field(2, TWO)
    other = beside(law)
    rows = map_rows(2, TWO, whole=False)
    assert composition.is_map(rows, D)
    (first, second), _ = fields_of(rows)
    np.testing.assert_array_equal(first.own, law.own)
    np.testing.assert_array_equal(second.own, other.own)
    z = np.random.default_rng(1).normal(size=D)
    x = point(rows, z)[0]
    for one in (law, other):
        np.testing.assert_array_equal(x[one.own], point(field_rows(one, 0), z)[0][one.own])
    assert (x[other.own] != z[other.own]).all()
    latents, heads = latents_and_heads(rows)
    assert set(latents) == {*law.own, *other.own}
    assert set(heads) == {*law.heads, OUTSIDE}
    told = describe(rows, D)
    assert set(np.flatnonzero(told["field_role"] == 1)) == set(latents)
    assert told["field_entries"].sum() == len(law.later) + len(other.later)
    assert told["field_gradients"] == 2 * GRADIENTS
    own = other.own.copy()
    own[0] = law.own[0]
    for wrong in (other._replace(own=own), other._replace(heads=np.array([law.heads[0], law.own[0]]))):
        joined = join_fields([field_rows(law, 0), field_rows(wrong, 0)], [np.arange(D)] * 2)
        assert not composition.is_map(joined, D)
    last = len(field_rows(law, 0))
    for row, more in ((last, 1.0), (0, 0.5), (0, np.nan)):
        damaged = rows.copy()
        damaged[row, MORE] = more
        assert not composition.is_map(damaged, D)


def test_fields_of_parts_have_the_coordinates_of_the_whole() -> None:
    """Also those of the heads, of bends and of a constraint on a sum."""
    law, place = field(2, CONSTRAINED), np.sort(np.random.default_rng(3).permutation(3 * D)[:D])
    rows = join_fields([np.concatenate((field_rows(law, 5), of_heads(law, CONSTRAINED)))], [place])
    (found,), (second,) = fields_of(rows)
    np.testing.assert_array_equal(found.own, place[law.own])
    np.testing.assert_array_equal(found.heads, place[law.heads])
    np.testing.assert_array_equal(found.level[1:], law.level[1:])
    assert found.level[0] == place[int(law.level[0])]
    np.testing.assert_array_equal(second.own, place[law.heads[1:]])
    np.testing.assert_array_equal(second.heads, place[law.heads[:1]])
    np.testing.assert_array_equal(bends_of_heads(rows)[:, OWN], place[law.heads[:1]])


@pytest.mark.parametrize("seed", [TWO, IN_INNOVATIONS])
def test_a_table_that_passes_never_reads_outside_of_itself(seed: int) -> None:
    """Random damage: what is not refused gives a map that can be undone, or numbers that are not finite."""
    rng, refused, tries = np.random.default_rng(5), 0, 400
    whole = map_rows(3, seed)
    structure = np.append(MORE, COLUMNS + np.arange(4 * 3))  # and heads, mid, scale and rate
    for _ in range(tries):
        rows = whole.copy()
        flat = rows.reshape(-1)
        for _ in range(int(rng.integers(1, 4))):
            place = rng.choice([rng.integers(10), rng.choice(structure), rng.integers(flat.size)])
            flat[place] = rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0, 7.0, 12.0, 1e6, np.inf, np.nan])
        cut = rows[: int(rng.integers(1, len(rows) + 1))] if rng.random() < 0.2 else rows
        if not composition.is_map(cut, D):
            refused += 1
            continue
        z, found = rng.normal(size=D), np.empty(D)
        x, log_det = point(cut, z)
        composition.into_z(cut, x, found)
        composition.pull_back(cut, z, x, found)
        if np.isfinite(x).all() and np.abs(x).max() < 1e6 and -700.0 < log_det < np.inf:
            composition.into_z(cut, x, found)
            # In x, because a damaged scale may be so small that rounding in x is large in z.
            np.testing.assert_allclose(point(cut, found)[0], x, rtol=1e-6, atol=1e-6)
    assert 0.3 * tries < refused < tries
