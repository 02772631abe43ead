"""A law with the right location, scale and offset leaves nothing of scores, and a wrong law leaves much.

The draws are few, and no chain has made them: they are random points, with the scores of the posterior there.
So no test depends on how well a chain has mixed.
"""

from __future__ import annotations

import numpy as np
import pytest

import stanadapt
from hierarchies import two_level_program
from stanadapt.numerics.windows import NOTHING_REFUSED, first_window, has_news
from stanadapt.run.warmup import variable_groups
from stanadapt.target import log_density_gradient
from stanadapt.transport.composition import transport_draws
from stanadapt.transport.error_scale import ErrorScale, error_scale_rows
from stanadapt.transport.grouping.groups import Group, ScoredDraws, groups_of
from stanadapt.transport.grouping.places import EXACT
from stanadapt.transport.grouping.scores import data_terms, places, residual_shares, residual_shares_alone
from stanadapt.transport.learning import learn_transport
from stanadapt.transport.map_table import no_transport

J, SIZES = 6, [2, 3, 4, 5, 6, 7]
PARENTS = np.repeat(np.arange(J), SIZES)
N = len(PARENTS)
NOWHERE, NONE = np.array([-1]), np.zeros(0)
TAU, OMEGA, MU0 = N, N + 1 + J, N + 2 + J
UPPER = np.arange(N + 1, N + 1 + J)


def seen(
    centred: bool, upper_centred: bool, n: int, seed: int, spread: float = 0.5
) -> tuple[ScoredDraws, np.ndarray, np.ndarray]:
    """Points around a place of the posterior, their scores, the variables of coordinates, and the data y."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=J)[PARENTS] + rng.normal(size=N)
    data = {"J": J, "N": N, "parent": PARENTS + 1, "y": y}
    posterior = stanadapt.Posterior(two_level_program(centred, upper_centred), data)
    target = posterior.model.target()
    points, scores = spread * rng.normal(size=(2, n, posterior.dim))
    for x, score in zip(points, scores, strict=True):
        assert log_density_gradient(target, x, score) > -np.inf
    return ScoredDraws(points, scores), variable_groups(posterior.unconstrained_names), y


def law(members: np.ndarray, scale: int, beta: float, locations: np.ndarray, slope: float = 1.0) -> Group:
    return Group(members, np.array([scale]), beta, -1, 0.0, locations, slope, 0.0, NONE, NONE)


@pytest.mark.parametrize("n", [20, 60])
def test_the_right_law_leaves_nothing_and_wrong_ones_leave_much(n: int) -> None:
    draws, _, _ = seen(True, True, n, 1)
    right = law(np.arange(N), TAU, 1.0, UPPER[PARENTS])
    assert (residual_shares(draws, right, []) < EXACT).all()
    assert (residual_shares(draws, right, [], offset=False) < EXACT).all()
    assert residual_shares_alone(draws, right.members, []).min() > EXACT / 2
    wrong = [
        right._replace(scales=np.array([OMEGA])),
        right._replace(beta=0.5),
        right._replace(beta=-1.0),
        right._replace(second=OMEGA, beta_2=1.0),
        right.at(NOWHERE),
        right.at(np.array([MU0])),
        right.at(np.roll(UPPER[PARENTS], 9)),
    ]
    for other in wrong:
        assert np.median(residual_shares(draws, other, [])) > EXACT / 2
    assert np.median(residual_shares(draws, right._replace(slope=0.9), [], offset=False)) > EXACT


def test_each_member_finds_its_location_in_twenty_draws() -> None:
    """The correlations of so few draws would give most members a wrong location."""
    draws, _, _ = seen(True, True, 20, 2)
    shares = residual_shares(
        draws, law(np.arange(N), TAU, 1.0, NOWHERE), [], candidates=draws.points[:, UPPER]
    )
    np.testing.assert_array_equal(shares.argmin(axis=1), PARENTS)
    correlations = np.abs(np.corrcoef(draws.points.T)[:N, UPPER])
    assert (correlations.argmax(axis=1) != PARENTS).mean() > 0.5


@pytest.mark.parametrize("spread", [0.5, 20.0])  # with the second some draws are left out, or moved
def test_what_is_known_of_draws_changes_no_answer(spread: float) -> None:
    plain, _, _ = seen(True, True, 60, 8, spread)
    keeping = plain._replace(known={})
    lower, upper = law(np.arange(N), TAU, 1.0, UPPER[PARENTS]), law(UPPER, OMEGA, 1.0, np.array([MU0]))
    asked = [
        (upper, []),
        (upper, [lower]),
        (upper, [lower._replace(slope=0.5)]),
        (upper, [lower._replace(offset=0.5)]),
        (upper._replace(slope=0.9), [lower]),
        (lower, []),
        (lower._replace(beta=-1.0), []),
        (lower._replace(second=OMEGA, beta_2=1.0), []),
        (lower.at(NOWHERE), []),
    ]
    for _ in range(2):
        for one, others in asked:
            for offset in (True, False):
                expected = residual_shares(plain, one, others, offset=offset)
                np.testing.assert_array_equal(residual_shares(keeping, one, others, offset=offset), expected)
            for function in (places, data_terms):
                np.testing.assert_array_equal(function(keeping, one, others), function(plain, one, others))


def test_an_upper_level_needs_the_terms_of_the_lower_one() -> None:
    """The scores of mu depend on theta."""
    draws, _, _ = seen(True, True, 60, 3)
    lower, upper = law(np.arange(N), TAU, 1.0, UPPER[PARENTS]), law(UPPER, OMEGA, 1.0, np.array([MU0]))
    assert (residual_shares(draws, upper, [lower]) < EXACT).all()
    assert np.median(residual_shares(draws, upper, [])) > EXACT / 2


@pytest.mark.parametrize("centred", [True, False])
def test_the_numbers_of_a_place_come_from_scores(centred: bool) -> None:
    draws, _, _ = seen(centred, True, 60, 4)
    sign = 1.0 if centred else -1.0
    found, offsets = places(draws, law(np.arange(N), TAU, sign, UPPER[PARENTS], 0.0), [])
    np.testing.assert_allclose(found, sign, atol=1e-6)
    np.testing.assert_allclose(offsets, 0.0, atol=1e-6)


@pytest.mark.parametrize("centred", [True, False])
def test_thresholds_and_data_come_from_scores(centred: bool) -> None:
    """Each member has one observation with error 1: its threshold is log 1, and y what was observed."""
    draws, variables, y = seen(centred, True, 60, 5)
    group = law(np.arange(N), TAU, 1.0 if centred else -1.0, UPPER[PARENTS])
    precision, weighted = data_terms(draws, group, [])
    np.testing.assert_allclose(precision, 1.0, atol=1e-6)
    np.testing.assert_allclose(weighted, y, atol=1e-5)
    table = learn_transport(no_transport(), draws.points, draws.scores, variables, 30)
    (lower,) = (one for one in groups_of(table) if one.members.tolist() == list(range(N)))
    np.testing.assert_allclose(lower.thresholds, 0.0, atol=1e-5)
    np.testing.assert_allclose(lower.data, y, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_where_there_are_no_data_no_threshold_is_near(seed: int) -> None:
    """A pure funnel: 60 of its draws would often have F smaller with a threshold just beyond them."""
    rng = np.random.default_rng(seed)
    u, w = rng.normal(size=(60, 1)), rng.normal(size=(60, 8))
    points = np.hstack((u, np.exp(u) * w))
    scores = np.hstack((-u + np.square(w).sum(axis=1, keepdims=True) - 8.0, -np.exp(-u) * w))
    variables = np.array([0, *[1] * 8])
    (group,) = groups_of(learn_transport(no_transport(), points, scores, variables, 30))
    assert (group.thresholds > u.mean() + 9.0).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("upper_centred", [True, False])
def test_both_levels_are_learnt_from_scores_in_every_parametrisation(
    centred: bool, upper_centred: bool, seed: int
) -> None:
    """Learning finds the scales, locations and C of the program, although no posterior has such draws."""
    draws, groups, _ = seen(centred, upper_centred, 80, seed)
    pairs = groups_of(learn_transport(no_transport(), draws.points, draws.scores, groups, 30))
    (lower,) = (group for group in pairs if group.members.tolist() == list(range(N)))
    sign = 1.0 if centred else -1.0
    assert (lower.scales.tolist(), lower.beta, lower.slope) == ([TAU], sign, sign)
    assert (lower.offset, lower.second) == (0.0, -1)
    if upper_centred:
        np.testing.assert_array_equal(lower.locations, UPPER[PARENTS])
    else:
        assert (lower.locations.tolist(), lower.part_scale, lower.part_beta) == ([MU0], OMEGA, 1.0)
        np.testing.assert_array_equal(lower.parts, UPPER[PARENTS])
    if centred and not upper_centred:
        return  # the scores depend on f only through theta: f has no law of its own
    (upper,) = (group for group in pairs if group.members.tolist() == UPPER.tolist())
    sign = 1.0 if upper_centred else -1.0
    assert (upper.scales.tolist(), upper.beta, upper.slope) == ([OMEGA], sign, sign)
    assert (upper.locations.tolist(), upper.offset, upper.second) == ([MU0], 0.0, -1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centred", [True, False])
def test_a_law_is_found_where_the_error_and_slopes_are_unknown(centred: bool, seed: int) -> None:
    """As in y ~ N(alpha + beta z, sigma): the scores of alpha depend on beta and sigma.

    In the program that is not centred, beta stands beside m in the likelihood, and m is the location.
    """
    rng = np.random.default_rng(seed)
    z, y = rng.random(N), rng.normal(size=N)
    prior, alpha = ("m, tau", "alpha") if centred else ("0, 1", "(m + tau * alpha)")
    posterior = stanadapt.Posterior(
        f"""
        data {{ int J; int N; array[N] int parent; vector[N] z; vector[N] y; }}
        parameters {{ vector[J] alpha; real b; real m; real<lower=0> tau; real<lower=0> sigma; }}
        model {{
          m ~ normal(0, 3); b ~ normal(0, 3); tau ~ normal(0, 1); sigma ~ normal(0, 1);
          alpha ~ normal({prior}); y ~ normal({alpha}[parent] + b * z, sigma);
        }}
        """,
        {"J": J, "N": N, "parent": PARENTS + 1, "z": z, "y": y},
    )
    points, scores = 0.5 * rng.normal(size=(2, 100, posterior.dim))
    for x, score in zip(points, scores, strict=True):
        log_density_gradient(posterior.model.target(), x, score)
    groups = variable_groups(posterior.unconstrained_names)
    table = learn_transport(no_transport(), points, scores, groups, 40)
    for _ in range(2):  # the second time nothing changes
        (group,) = (group for group in groups_of(table) if group.members.tolist() == list(range(J)))
        sign = 1.0 if centred else -1.0
        assert (group.scales.tolist(), group.locations.tolist(), group.beta) == ([J + 2], [J + 1], sign)
        assert (group.slope, group.offset, group.error) == (sign, 0.0, J + 3)
        table = learn_transport(table, points, scores, groups, 40)
    precision = np.bincount(PARENTS) * np.exp(-2.0 * group.middle)
    np.testing.assert_allclose(group.thresholds, -0.5 * sign * np.log(precision), atol=1e-5)


def with_unknown_error(
    centred: bool, seed: int, spread: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and scores of y ~ N(alpha, sigma), alpha ~ N(m, tau), and the variables' numbers."""
    rng = np.random.default_rng(seed)
    prior, alpha = ("m, tau", "alpha") if centred else ("0, 1", "(m + tau * alpha)")
    posterior = stanadapt.Posterior(
        f"""
        data {{ int J; int N; array[N] int parent; vector[N] y; }}
        parameters {{ vector[J] alpha; real m; real<lower=0> tau; real<lower=0> sigma; }}
        model {{
          m ~ normal(0, 3); tau ~ normal(0, 1); sigma ~ normal(0, 1);
          alpha ~ normal({prior}); y ~ normal({alpha}[parent], sigma);
        }}
        """,
        {"J": J, "N": N, "parent": PARENTS + 1, "y": rng.normal(size=N)},
    )
    points, scores = spread * rng.normal(size=(2, 100, posterior.dim))
    for x, score in zip(points, scores, strict=True):
        log_density_gradient(posterior.model.target(), x, score)
    return points, scores, variable_groups(posterior.unconstrained_names)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centred", [True, False])
def test_members_do_not_depend_on_an_unknown_error_any_more(centred: bool, seed: int) -> None:
    """In z they are normal around 0 with one variance, whatever the location, the scale and the error are."""
    points, scores, groups = with_unknown_error(centred, seed)
    table = learn_transport(no_transport(), points, scores, groups, 40)
    z, score_z = transport_draws(table, points, scores)
    ratios = -score_z[:, :J] / z[:, :J]
    np.testing.assert_allclose(ratios, np.broadcast_to(ratios[:1], ratios.shape), rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_scale_of_errors_does_not_hide_that_a_group_is_needed(seed: int) -> None:
    """Near the middle of the draws the one can do what the other does, and warm-up would end too early."""
    points, scores, groups = with_unknown_error(True, seed, spread=0.15)  # F shows nothing, scores do
    hiding = error_scale_rows([ErrorScale(J + 2, 1.0, np.arange(J))], points)
    assert has_news(first_window(points, scores), hiding, groups, NOTHING_REFUSED)


def test_coordinates_without_a_law_are_left_alone() -> None:
    """Nothing is left of their scores without a law, so that any law would seem to explain them."""
    posterior = stanadapt.Posterior(
        "parameters { vector[8] x; real<lower=0> s; real m; }"
        "model { x ~ normal(1, 2); s ~ normal(0, 1); m ~ normal(0, 1); }"
    )
    points, scores = np.random.default_rng(5).normal(size=(2, 100, 10))
    for x, score in zip(points, scores, strict=True):
        log_density_gradient(posterior.model.target(), x, score)
    groups = variable_groups(posterior.unconstrained_names)
    assert not groups_of(learn_transport(no_transport(), points, scores, groups, 40))


def test_too_few_draws_tell_nothing() -> None:
    draws, _, _ = seen(True, True, 8, 6)
    right = law(np.arange(N), TAU, 1.0, UPPER[PARENTS])
    assert not residual_shares(draws, right, []).any()
    assert not residual_shares(draws, right.at(NOWHERE), [], candidates=draws.points[:, UPPER]).any()
    assert np.isnan(places(draws, right, [])).all()
