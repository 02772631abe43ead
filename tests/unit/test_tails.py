"""What draws may lack without looking wrong: tail indices from scores, modes, improper posteriors."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import xarray

import stanadapt
from stanadapt.diagnostics import missed
from stanadapt.model.posterior import Posterior
from stanadapt.result.modes import find_unvisited
from stanadapt.result.tails import smallest_index, tail_indices
from stanadapt.run.interrupts import delayed_interrupts

N = 40
BEYOND = np.linspace(0.0, 20.0, N)


def student_score(x, degrees):
    return -(degrees + 1) * x / (degrees + x**2)


@pytest.mark.parametrize(("degrees", "low", "high"), [(1, 0.9, 1.0), (2, 0.35, 0.5), (3, 0.2, 1 / 3)])
def test_index_of_student_tails(degrees, low, high):
    scores = student_score(3.0 + BEYOND, degrees)
    assert low <= smallest_index(BEYOND, scores) <= high


@pytest.mark.parametrize("score", [lambda x: -x, lambda x: -np.ones_like(x), lambda x: 0.1 / x])
def test_light_tails_and_rising_densities_have_no_index(score):
    assert np.isnan(smallest_index(BEYOND, score(3.0 + BEYOND)))


def test_noise_of_other_parameters_is_no_heavy_tail():
    """The scores' means say Cauchy, but they scatter ten times as much."""
    noise = np.random.default_rng(1).standard_normal(N)
    assert np.isnan(smallest_index(BEYOND, student_score(3.0 + BEYOND, 1) + 3.0 * noise))


def test_scores_that_cannot_be_evaluated():
    scores = student_score(3.0 + BEYOND, 1)
    scores[:25] = np.nan
    assert np.isnan(smallest_index(BEYOND, scores))
    assert np.isnan(smallest_index(np.zeros(N), student_score(3.0 + BEYOND, 1)))


CAUCHY = """parameters { real light; real x; real<lower=0> s; }
model { light ~ std_normal(); x ~ cauchy(0, 1); s ~ cauchy(0, 1); }"""


def cauchy_draws(n=2000):
    rng = np.random.default_rng(2)
    light, x, s = rng.standard_normal((4, n)), rng.standard_cauchy((4, n)), rng.standard_cauchy((4, n))
    return np.stack([light, x, np.abs(s)], axis=2)


def test_index_of_a_cauchy_but_not_of_a_half_cauchy_scale():
    """The logarithm of the scale, in which chains move, has light tails."""
    indices = tail_indices(cauchy_draws(), Posterior(CAUCHY), 20_000)
    assert indices[1] >= 0.9
    assert np.isnan(indices[[0, 2]]).all()


def test_draws_that_have_not_been_in_the_tail_show_it_as_well():
    """Truncated draws, as chains that never went out give them, have a Pareto k under zero."""
    draws = cauchy_draws()
    draws[..., 1] = 15.0 * np.tanh(draws[..., 1] / 15.0)
    assert tail_indices(draws, Posterior(CAUCHY), 20_000)[1] >= 0.9


def test_few_evaluations_leave_no_room_for_more():
    assert np.isnan(tail_indices(cauchy_draws(), Posterior(CAUCHY), 1000)).all()
    assert np.isnan(tail_indices(cauchy_draws(20), Posterior(CAUCHY), 10**6)).all()


@pytest.mark.parametrize("gradient", [None, lambda x: student_score(x, 1)])
def test_index_of_a_python_target(gradient):
    target = stanadapt.Target.from_python(lambda x: -float(np.log1p(x @ x)), 1, gradient)
    assert tail_indices(cauchy_draws()[..., 1:2], Posterior(target), 20_000)[0] >= 0.9


def test_an_error_of_a_python_target_loses_no_draws():
    def broken(x):
        raise ZeroDivisionError("in the density")

    target = stanadapt.Target.from_python(broken, 1, broken)
    assert np.isnan(tail_indices(cauchy_draws()[..., 1:2], Posterior(target), 20_000)).all()


def dataset(**draws):
    return xarray.Dataset(
        {
            name: (("chain", "draw", *[f"{name}_{i}" for i in range(a.ndim - 2)]), a)
            for name, a in draws.items()
        }
    )


def adaptation(names, **variables):
    return xarray.Dataset(variables, coords={"unconstrained": names})


def slow(x):
    """Draws that come in runs of fifty."""
    return np.repeat(x[:, : x.shape[1] // 50], 50, axis=1)


def test_heavy_tails_are_said_where_draws_move_slowly():
    rng = np.random.default_rng(3)
    x = rng.standard_cauchy((4, 2000))
    facts = adaptation(["v.1", "v.2", "w"], tail_index=("unconstrained", np.array([np.nan, 1.0, 0.3])))
    v = np.stack([rng.standard_normal(x.shape), slow(x)], axis=2)
    finding = missed.heavy_tails(dataset(v=v, w=slow(x)), facts)
    assert finding.text.startswith("1 quantities have heavy tails")
    assert "v.2 (1)" in finding.text
    assert finding.numbers == {"count": 1, "largest": 1.0, "limit": missed.INDEX_LIMIT}
    assert missed.heavy_tails(dataset(w=slow(x)), facts) is None
    assert missed.heavy_tails(dataset(v=v), adaptation(["v.1", "v.2"])) is None


def test_draws_that_are_right_in_heavy_tails_are_fine():
    x = np.random.default_rng(3).standard_cauchy((4, 2000))
    assert missed.heavy_tails(dataset(x=x), adaptation(["x"], tail_index=("unconstrained", [1.0]))) is None


TWO = """data { real share; } parameters { vector[2] x; }
model { target += log_mix(share, normal_lpdf(x | -20, 1), normal_lpdf(x | 20, 1)); }"""
TOPS = np.array([[-20.0, -20.1], [20.3, 20.2], [19.9, 20.0]])


def two_modes(share, centres):
    """The posterior, and exact draws of its modes at these centres, one a chain."""
    posterior = Posterior(TWO, {"share": share})
    rng = np.random.default_rng(4)
    draws = np.array(centres)[:, None, None] + rng.standard_normal((len(centres), 500, 2))
    lp = np.array([[posterior.log_density(x) for x in chain] for chain in draws])
    return draws, lp, posterior


def test_a_mode_that_no_chain_has_visited():
    draws, lp, posterior = two_modes(0.3, [-20.0, -20.0, -20.0])
    (mode,) = find_unvisited(TOPS, draws, lp, posterior, 0, 1).modes
    np.testing.assert_allclose(mode.x, [20, 20], atol=1e-3)
    assert mode.climbs == 2
    assert mode.log_mass == pytest.approx(np.log(0.7 / 0.3), abs=0.1)
    assert mode.logp == pytest.approx(posterior.log_density([20, 20]))


@pytest.mark.parametrize(
    ("share", "centres"), [(0.3, [-20.0, 20.0]), (0.999, [-20.0, -20.0])], ids=["visited", "no mass"]
)
def test_no_mode_is_missed(share, centres):
    assert find_unvisited(TOPS, *two_modes(share, centres), 0, 1).modes == []


def test_no_climbs_no_modes():
    assert find_unvisited(np.empty((0, 2)), *two_modes(0.3, [-20.0, -20.0]), 0, 1).modes == []


@pytest.mark.parametrize("evaluations", range(0, 1_000, 37))
def test_a_short_run_has_a_short_search(evaluations):
    """The search may take a share of a run's evaluations, which a ray can use up: no climb is left then."""
    draws, lp, posterior = two_modes(0.3, [-20.0, -20.0])
    found = find_unvisited(np.empty((0, 2)), draws, lp, posterior, evaluations, 1)
    assert found.evaluations <= evaluations + 200


def test_the_end_of_a_ridge_is_no_mode():
    """Far down a funnel's neck the log density is higher than anywhere among the draws."""
    funnel = Posterior(
        "parameters { real v; real x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
    )
    rng = np.random.default_rng(5)
    v = 3.0 * rng.standard_normal((4, 500))
    draws = np.stack([v, rng.standard_normal(v.shape) * np.exp(v / 2)], axis=2)
    lp = np.array([[funnel.log_density(x) for x in chain] for chain in draws])
    assert find_unvisited(np.array([[-40.0, 0.0], [-30.0, 0.0]]), draws, lp, funnel, 0, 1).modes == []


def test_modes_are_worded_with_their_shares():
    facts = adaptation(
        ["x"],
        mode_climbs=("missed", [3, 1]),
        mode_lp=("missed", [-2.5, -4.0]),
        mode_log_mass=("missed", np.log([2.0, 1.0])),
    )
    finding = missed.modes(facts)
    assert finding.text.startswith("A search has found 2 modes that no chain has visited")
    assert "where 3 climbs have ended, at log density -2.5, with about 0.5 of the mass" in finding.text
    assert finding.numbers == pytest.approx({"count": 2, "climbs": 4, "mass": 0.75})
    assert missed.modes(adaptation(["x"])) is None


@pytest.mark.parametrize(
    ("climbs", "rise", "said"),
    [
        (1, -3.25, "where 1 climb has ended, at log density -2.5, 3.25 lower than the highest"),
        (2, 1.5, "where 2 climbs have ended, at log density -2.5, 1.5 higher than the highest"),
        (2, 0.01, "at log density -2.5, as high as what they have visited, with about 0.5 of the mass"),
        (0, -7.0, "mass that surrounds the draws, many times as wide as these, at log density -2.5, 7 lower"),
    ],
)
def test_modes_are_worded_with_their_heights(climbs, rise, said):
    facts = adaptation(
        ["x"],
        mode_climbs=("missed", [climbs]),
        mode_lp=("missed", [-2.5]),
        mode_rise=("missed", [rise]),
        mode_log_mass=("missed", [0.0]),
    )
    finding = missed.modes(facts)
    assert finding.text.startswith("A search has found a mode that no chain has visited")
    assert said in finding.text


def searched(program, seed, scale=1.0, d=1, centre=0.0, evaluations=40_000):
    """What a search finds after exact draws N(centre, scale²) of one mode, or of all of the posterior."""
    posterior = Posterior(program)
    draws = centre + scale * np.random.default_rng(seed).standard_normal((4, 500, d))
    lp = np.array([[posterior.log_density(x) for x in chain] for chain in draws])
    return find_unvisited(np.empty((0, d)), draws, lp, posterior, evaluations, seed)


def mixture(weight, second, first="normal_lpdf(x | 0, 1)", d=1):
    return f"parameters {{ vector[{d}] x; }} model {{ target += log_mix({weight}, {second}, {first}); }}"


def at(point):
    return f"normal_lpdf(x | {point.tolist()}', 0.3)"


POINT = np.array([5.0, -9.0, 3.0, 14.0, -2.0, 7.0, 0.0, -11.0])
FOUND = {
    "narrow": (mixture(0.3, "normal_lpdf(x | 8, 0.3)", "normal_lpdf(x | -8, 1)"), 1, -8.0, 0.3, 8.0),
    "narrow in 5 dimensions": (mixture(0.1, "normal_lpdf(x | 10, 0.2)", d=5), 5, 0.0, 0.1, 10.0),
    "spike": (mixture(0.5, "normal_lpdf(x | 3, 0.01)"), 1, 0.0, 0.5, 3.0),
    "50 dimensions": (mixture(0.25, "normal_lpdf(x | 10, 1)", d=50), 50, 0.0, 0.25, 10.0),
    "signs": (mixture(0.5, at(-POINT), at(POINT), 8), 8, POINT, 0.5, -POINT),
    "labels": (mixture(0.5, at(POINT[::-1]), at(POINT), 8), 8, POINT, 0.5, POINT[::-1]),
}


@pytest.mark.parametrize(("program", "d", "centre", "share", "mode"), FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_search_finds_modes(program, d, centre, share, mode, seed):
    """Of 50 other seeds each, none failed; the log mass was off by 0.03 at most."""
    scale = 1.0 if np.isscalar(centre) else 0.3
    found = searched(program, seed, scale, d, centre)
    assert found.evaluations <= 40_000 / 20
    (only,) = found.modes
    np.testing.assert_allclose(only.x, mode, atol=0.01)
    assert only.climbs > 0
    assert only.log_mass == pytest.approx(np.log(share / (1.0 - share)), abs=0.2)


def test_a_search_finds_a_wide_law_around_a_spike():
    """Of 50 other seeds, none failed."""
    spike = mixture(0.5, "normal_lpdf(x | 0, 0.001)")
    (around,) = searched(spike, 1, scale=0.001).modes
    assert around.climbs == 0
    assert 0.5 < np.exp(around.log_mass) < 1.2
    assert 0.01 < abs(around.x[0]) < 3.0


NOTHING = {
    "normal": ("parameters { vector[3] x; } model { x ~ std_normal(); }", 3),
    "t": ("parameters { vector[3] x; } model { x ~ student_t(5, 0, 1); }", 3),
    "a mode without mass": (mixture(0.001, "normal_lpdf(x | 9, 1)"), 1),
    "a spike without mass": (mixture(0.001, "normal_lpdf(x | 3, 0.01)"), 1),
    "an infinite spike": (
        "parameters { real x; } model { x ~ normal(0, 1); target += -0.1 * log(abs(x - 3)); }",
        1,
    ),
    "a wall": (
        """parameters { real x; }
        model { x ~ std_normal(); target += 10 * fmax(x - 7, 0); if (x > 8) reject(x); }""",
        1,
    ),
}


@pytest.mark.parametrize(("program", "d"), NOTHING.values(), ids=NOTHING)
def test_a_search_finds_nothing_where_nothing_is(program, d):
    """Of 50 other seeds each, none failed."""
    found = searched(program, 1, d=d)
    assert found.modes == []
    assert 0 < found.evaluations <= 40_000 / 20


def test_a_search_depends_on_the_seed_alone():
    program, *_ = FOUND["narrow in 5 dimensions"]
    one, two = (searched(program, 3, d=5) for _ in range(2))
    assert one.evaluations == two.evaluations
    np.testing.assert_array_equal(one.modes[0].x, two.modes[0].x)


def test_a_signal_ends_a_search():
    """Ctrl-C that came during the draws: the result does not wait for a search."""
    with delayed_interrupts() as caught:
        signal.raise_signal(signal.SIGINT)
        found = searched(FOUND["narrow"][0], 1, centre=-8.0)
        assert caught.signal == signal.SIGINT
    assert found.evaluations < 10


def test_a_short_run_has_no_search():
    assert searched(FOUND["narrow"][0], 1, centre=-8.0, evaluations=0).evaluations < 10


@pytest.mark.parametrize(
    ("largest", "lowest", "disagree", "lp", "said"),
    [
        (1e120, -1.0, False, None, "as large as 1e+120"),
        (1e20, -1.0, True, None, "as large as 1e+20, and chains do not agree"),
        (1e20, -1.0, False, None, ""),
        (2.0, 1e-20, True, None, "draws of x come as near to 0 as 1e-20"),
        (2.0, 0.0, False, None, "draws of x come as near to 0 as 0"),
        (2.0, 1e-10, True, None, ""),
        (2.0, -1e-20, True, None, ""),
        (0.0, 0.0, True, None, ""),
        (2.0, -1.0, True, np.zeros((2, 10)), "the same in all draws"),
        (2.0, -1.0, False, np.zeros((2, 10)), ""),
        (2.0, -1.0, False, np.arange(20.0).reshape(2, 10) * 1e7, "has risen by 1e+07"),
        (2.0, -1.0, False, np.arange(20.0).reshape(2, 10), ""),
    ],
)
def test_improper(largest, lowest, disagree, lp, said):
    given = dataset(x=np.zeros((2, 10))), adaptation(["x"]), np.array([largest]), np.array([lowest])
    finding = missed.improper(*given, np.array([disagree]), np.array([False]), lp)
    if not said:
        assert finding is None
        return
    assert said in finding.text
    assert finding.numbers["largest"] == largest
    assert ("risen" in said) == (finding.numbers["rise"] > missed.RISE)


@pytest.mark.parametrize("disagree", [False, True])
def test_parts_of_a_simplex_may_be_small_where_chains_agree(disagree):
    given = dataset(x=np.full((2, 10, 2), 0.5)), adaptation(["x.1"]), np.ones(2), np.full(2, 1e-20)
    finding = missed.improper(*given, np.full(2, disagree), np.full(2, False), None)
    assert (finding is not None) == disagree


def test_quantities_that_are_no_parameters_may_be_large():
    given = dataset(big=np.zeros((2, 10))), adaptation(["x"]), np.array([1e200]), np.array([-1.0])
    assert missed.improper(*given, np.array([True]), np.array([False]), None) is None


def test_chains_that_stand_still_are_improper_only_far_out():
    """Where the log density rises for ever, chains end where a step changes nothing any more."""
    lp = np.zeros((2, 10))
    for size, said in ((2.0, False), (1e29, True)):
        given = dataset(x=np.zeros((2, 10))), adaptation(["x"]), np.array([size]), np.array([-1.0])
        assert (missed.improper(*given, np.array([True]), np.array([True]), lp) is not None) == said


def chains_that_stick(seed: int) -> tuple[xarray.Dataset, xarray.Dataset]:
    """Chains that propose independent normal draws, and leave places with v[0] > 1.7 once in thirty times."""
    rng, shape = np.random.default_rng(seed), (4, 4000)
    x, accepted = np.empty((*shape, 2)), rng.uniform(size=shape) < 0.6
    at = rng.standard_normal((4, 2))
    rates = np.empty(shape)
    for i in range(shape[1]):
        rates[:, i] = np.where(at[:, 0] > 1.7, 0.03, 0.6)
        accepted[:, i] = rng.uniform(size=4) < rates[:, i]
        at = np.where(accepted[:, i, None], rng.standard_normal((4, 2)), at)
        x[:, i] = at
    return dataset(v=x), dataset(acceptance_rate=rates, accepted=accepted)


def test_tails_in_which_proposals_are_hardly_accepted_are_said() -> None:
    posterior, stats = chains_that_stick(1)
    finding = missed.sticky_tails(posterior, stats)
    assert finding is not None
    assert "in the upper tail of v[0] (0.03)" in finding.text
    assert "v[1]" not in finding.text
    assert finding.variables == ("v[0]",)
    assert finding.numbers["count"] == 1


def test_a_rate_that_is_the_same_everywhere_is_no_finding() -> None:
    posterior, stats = chains_that_stick(1)
    elsewhere = stats.assign(acceptance_rate=stats["acceptance_rate"].roll(draw=700))
    assert missed.sticky_tails(posterior, elsewhere) is None
    assert missed.sticky_tails(posterior.isel(draw=slice(100)), stats.isel(draw=slice(100))) is None
    assert missed.sticky_tails(posterior, stats.drop_vars("accepted")) is None
    assert missed.sticky_tails(posterior, None) is None


@pytest.mark.parametrize(("share", "said"), [(0.4, False), (0.02, True), (0.0, True)])
def test_replicas_from_a_reference_leave_a_tail_as_proposals_do(share: float, said: bool) -> None:
    """Parallel tempering comes to a narrow mode, and leaves it, by replicas where trajectories fail."""
    posterior, stats = chains_that_stick(1)
    restarted = np.random.default_rng(2).uniform(size=stats["accepted"].shape) < share
    stats = stats.assign(restarted=(stats["accepted"].dims, restarted))
    assert (missed.sticky_tails(posterior, stats) is not None) == said
