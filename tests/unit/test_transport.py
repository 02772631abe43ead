"""The coordinates of transport/: the map, its density and score, and a frozen chain in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import stanadapt
from cases import resolve
from stanadapt.run.warmup import warm_up
from stanadapt.samplers.base import advance
from stanadapt.target import log_density, log_density_gradient
from stanadapt.transport.bend import Bend, bend_rows
from stanadapt.transport.composition import (
    change_coordinates,
    into_x,
    into_z,
    rows_into_x,
    score_in_x,
    transport_draws,
)
from stanadapt.transport.direction import Direction, direction_rows
from stanadapt.transport.grouping.groups import Group, group_rows, groups_of, same_law
from stanadapt.transport.map_table import LOCATION, SCALE, is_of_group, no_transport
from stanadapt.transport.ridge import ridge_rows
from stanadapt.transport.ridge_terms import Ridge
from stanadapt.transport.tail import Tails, tail_rows

D = 9
PROGRAM = """
parameters { vector[9] x; }
model { x ~ cauchy(1, 2); x[1] ~ normal(x[2] * x[3], 4); x[4:9] ~ normal(x[2], exp(0.3 * x[1])); }
"""
POSTERIOR = stanadapt.Posterior(PROGRAM)
TAILS = tail_rows(Tails(np.array([0, 2]), np.array([1.0, -3.0]), np.array([0.7, 2.5])))
BENDS = bend_rows([Bend(0, 0.3, 2.0, 0.5, -1.0, 3.0), Bend(1, -0.2, 0.5, 1.5, 1.0, 1.0)])


def group(
    seed: int, members: list[int], scales: list[int], beta: float, second: int, *locations: int
) -> Group:
    rng = np.random.default_rng(seed)
    beta_2 = 0.5 * beta if second >= 0 else 0.0
    law = np.array(members), np.array(scales), beta, second, beta_2, np.array(locations)
    offset = 0.7 if beta > 0.0 and locations[0] % 2 else 0.0
    return Group(*law, 1.3 if max(locations) >= 0 else 0.0, offset, *rng.normal(size=(2, len(members))))


def scaled(
    seed: int, members: list[int], scale: int, beta: float, location: int, parts: list[int], part_scale: int
) -> Group:
    """A group whose locations are not centred themselves."""
    plain = group(seed, members, [scale], beta, -1, location)
    law = plain._replace(slope=-1.2 if beta < 0.0 else 0.8)
    return law._replace(parts=np.array(parts), part_scale=part_scale, part_beta=0.5)


def ridge(seed: int, child: int, *terms: tuple[int, int], reach: float = np.inf) -> Ridge:
    """A ridge with these terms, (a, b), or (a, -1) for a linear one."""
    rng, (firsts, seconds) = np.random.default_rng(seed), np.array(terms).T
    numbers = rng.normal(size=len(terms)), rng.normal(size=(len(terms), 2)), np.full((len(terms), 2), reach)
    if reach < np.inf:
        numbers[2][:] *= rng.uniform(0.5, 2.0, size=numbers[2].shape)
    return Ridge(child, firsts, seconds, *numbers)


def table(*groups: Group) -> np.ndarray:
    return group_rows(list(groups), np.random.default_rng(0).normal(size=(20, D)))


# One law, a law of two scales, both signs of beta, own scales, own locations, a scale and locations that are
# moved, and tails beneath.
MAPS = {
    "no": no_transport(),
    "tails": TAILS,
    "bends": BENDS,
    "directions": direction_rows([Direction(np.array([3, 5, 8]), 3.0), Direction(np.array([1, 2]), 4.0)]),
    "a direction beneath tails and a group": np.concatenate(
        (
            direction_rows([Direction(np.array([7, 8]), 2.0)]),
            TAILS,
            table(group(28, [3, 4, 5, 6], [0], 1.0, -1, 1)),
        )
    ),
    "centred": table(group(1, [3, 4, 5, 6], [0], 1.0, -1, 1)),
    "centred, with a bent scale and location": np.concatenate(
        (BENDS, table(group(1, [3, 4, 5, 6], [0], 1.0, -1, 1)))
    ),
    "centred, no location": table(group(2, [3, 4, 8], [0], 0.5, -1, -1)),
    "not centred": table(group(3, [3, 4, 5, 6, 7], [0], -1.0, -1, 1)),
    "two scales": table(group(4, [5, 6, 7, 8], [0], 1.0, 2, 1)),
    "own scales": table(group(5, [6, 7, 8], [3, 4, 5], 1.0, 0, -1)),
    "own scales, not centred": table(group(6, [6, 7, 8], [3, 4, 5], -0.5, -1, 1)),
    "own locations": table(group(9, [4, 5, 6, 7, 8], [0], 1.0, -1, 1, 2, 1, -1, 3)),
    "own locations, not centred": table(group(10, [4, 5, 6, 7], [0], -0.5, 8, 1, 2, 3, 1)),
    "own scales and locations": table(group(11, [6, 7, 8], [3, 4, 5], 1.0, 0, 1, 2, 1)),
    "scaled locations": table(scaled(16, [4, 5, 6, 7], 0, 1.0, 8, [1, 2, 2, 1], 3)),
    "scaled locations, not centred": table(scaled(17, [4, 5, 6], 0, -1.0, -1, [1, 2, 2], 3)),
    "scaled locations that are moved": table(
        group(18, [1, 2], [3], -1.0, -1, 8), scaled(19, [4, 5, 6, 7], 0, 1.0, 8, [1, 2, 2, 1], 3)
    ),
    "two levels": table(
        group(14, [1, 2], [0], 1.0, -1, 8), group(15, [4, 5, 6, 7], [3], 1.0, -1, 1, 1, 2, 2)
    ),
    "ridges": ridge_rows([ridge(20, 4, (2, 2), (2, 3), (2, -1)), ridge(21, 5, (2, 4), (0, -1))]),
    "ridges with a reach": ridge_rows(
        [ridge(22, 4, (2, 2), (2, 3), reach=0.3), ridge(23, 5, (4, 4), reach=1.0)]
    ),
    "ridges before and after a group": np.concatenate(
        (
            TAILS,
            ridge_rows([ridge(24, 1, (0, 2), (2, -1), reach=1.0)]),
            table(group(25, [3, 4, 5], [0], 1.0, -1, 1)),
            ridge_rows([ridge(26, 6, (3, 4)), ridge(27, 7, (6, 6), (6, -1))]),
        )
    ),
    "chain": np.concatenate(
        (TAILS, table(group(7, [3, 4], [0], 1.0, -1, 1), group(8, [6, 7, 8], [3], -1.0, 0, 4)))
    ),
}


@pytest.fixture(scope="module")
def target() -> Any:
    return POSTERIOR.model.target()


def difference(function: Any, z: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """The gradient of `function` by central differences."""
    steps = h * np.eye(len(z))
    return np.array([(function(z + step) - function(z - step)) / (2 * h) for step in steps])


def x_of(rows: np.ndarray, z: np.ndarray) -> np.ndarray:
    x = np.empty(D)
    into_x(rows, z, x)
    return x


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MAPS)
def test_density_and_score_against_their_definition(target: Any, name: str, seed: int) -> None:
    rows, z = MAPS[name], np.random.default_rng(seed).normal(size=D)
    moved = target._replace(transport=rows)
    jacobian = np.array([difference(lambda point, i=i: x_of(rows, point)[i], z) for i in range(D)])
    score, score_x, x = np.empty(D), np.empty(D), x_of(rows, z)
    logp = log_density_gradient(moved, z, score)
    logp_x = log_density_gradient(target, x, score_x)
    assert logp == pytest.approx(logp_x + np.linalg.slogdet(jacobian)[1], rel=1e-6, abs=1e-6)
    assert log_density(moved, z) == pytest.approx(logp, rel=1e-12)
    numeric = difference(lambda point: log_density_gradient(moved, point, np.empty(D)), z)
    np.testing.assert_allclose(score, numeric, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(score_in_x(rows, z, x, score), score_x, rtol=1e-8, atol=1e-10)
    back = np.empty(D)
    into_z(rows, x, back)
    np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_rows_are_mapped_like_points(target: Any, name: str) -> None:
    rows, z = MAPS[name], np.random.default_rng(1).normal(size=(4, D))
    x, scores, scores_z, logp = np.empty((4, D)), np.empty((4, D)), np.empty((4, D)), np.empty(4)
    for i in range(4):
        into_x(rows, z[i], x[i])
        log_density_gradient(target, x[i], scores[i])
        logp[i] = log_density_gradient(target._replace(transport=rows), z[i], scores_z[i])
    found, found_scores = transport_draws(rows, x, scores)
    np.testing.assert_allclose(found, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found_scores, scores_z, rtol=1e-8, atol=1e-9)
    points = z.copy()
    rows_into_x(rows, points, logp)
    np.testing.assert_array_equal(points, x)
    np.testing.assert_allclose(logp, [log_density(target, point) for point in x], rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in MAPS if is_of_group(MAPS[name]).any()])
def test_a_table_holds_its_pairs(name: str) -> None:
    """A table that is read and written again is the same, in its numbers too."""
    rows = MAPS[name][is_of_group(MAPS[name])]
    again = group_rows(groups_of(rows), np.random.default_rng(0).normal(size=(20, D)))
    np.testing.assert_allclose(again, rows, rtol=1e-12, atol=1e-14)
    assert same_law(again, rows)
    for column in (SCALE, LOCATION):
        other = rows.copy()
        other[0, column] = 2
        assert not same_law(other, rows)


def test_change_of_coordinates_keeps_the_place(target: Any) -> None:
    one, other = MAPS["chain"], MAPS["own scales"]
    z, score = np.random.default_rng(2).normal(size=D), np.empty(D)
    logp = log_density_gradient(target._replace(transport=one), z, score)
    moved, logp_moved, score_moved = change_coordinates(one, other, z, logp, score)
    wanted = np.empty(D)
    np.testing.assert_allclose(x_of(other, moved), x_of(one, z), rtol=1e-12)
    assert logp_moved == pytest.approx(log_density_gradient(target._replace(transport=other), moved, wanted))
    np.testing.assert_allclose(score_moved, wanted, rtol=1e-8)


@pytest.mark.parametrize("name", ["tails", "centred", "not centred", "chain"])
def test_a_place_that_overflows_has_no_density(target: Any, name: str) -> None:
    moved = target._replace(transport=MAPS[name])
    for far in (1e4, -1e4, np.inf, -np.inf, np.nan):
        z = np.zeros(D)
        z[0] = far
        value = log_density_gradient(moved, z, np.empty(D))
        assert value == -np.inf or np.isfinite(value)
        if not np.isfinite(far):
            assert value == -np.inf


def test_many_small_scales_do_not_overflow() -> None:
    """The log determinant stays finite although the product of the weights is too small for a number."""
    n = 400
    nowhere, zeros = np.array([-1]), np.zeros(n)
    law = Group(np.arange(1, n + 1), np.array([0]), 1.0, -1, 0.0, nowhere, 0.0, 0.0, zeros, zeros)
    rows = group_rows([law], np.zeros((20, n + 1)))
    z, x = np.ones(n + 1), np.empty(n + 1)
    z[0] = -12.0
    w = 1.0 / (1.0 + np.exp(24.0))
    assert into_x(rows, z, x) == pytest.approx(0.5 * n * np.log(2.0 * w), rel=1e-12)


def test_frozen_chain_leaves_a_heavy_tailed_law_as_it_is() -> None:
    """Exact draws stay exact under the kernel with learned coordinates, in the tails too."""
    posterior = stanadapt.Posterior("parameters { vector[2] x; } model { x ~ cauchy(1, 2); }")
    law, rng = stats.cauchy(1, 2), np.random.default_rng(3)
    sampler, settings = resolve("fisher_hmc", {})
    target = posterior.model.target()
    driver = warm_up(sampler, settings, target, np.ones(2), rng, 600)
    state = driver.finish()
    assert len(state.transport) == 2
    n, end, moved = 4_000, [], 0
    trace = driver.room(10)
    for x in law.rvs(size=(n, 2), random_state=rng):
        z, _ = transport_draws(state.transport, x[None], np.zeros((1, 2)))
        score = np.empty(2)
        logp = log_density_gradient(driver.target, z[0], score)
        here = state._replace(x=z[0], logp=logp, score=score)
        advance(sampler, driver.target, settings, here, rng, False, trace)
        end.append(trace.x[-1].copy())
        moved += bool(trace.accepted.any())
    assert moved > 0.99 * n
    uniform = law.cdf(np.array(end))
    for column in uniform.T:
        assert stats.kstest(column, "uniform").pvalue > 0.001
        assert stats.binomtest(int((column > 0.99).sum()), n, 0.01).pvalue > 0.001
        assert stats.binomtest(int((column < 0.01).sum()), n, 0.01).pvalue > 0.001
