"""Goals of a run as text and values, the schedule of looks, and what a look says."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy.signal import lfilter
from test_diagnostics import arviz_columns, made_up

import stanadapt
from cases import thorough
from stanadapt import Until
from stanadapt.diagnostics import until as looks
from stanadapt.diagnostics.convergence import FEWEST, convergence, effective_sizes, mcse_mean, r_hat
from stanadapt.diagnostics.status import Figure, Status, attributes
from stanadapt.diagnostics.until import GoalWatch
from stanadapt.errors import ArgumentError
from stanadapt.run.stopping import FACTOR, FIRST, MINIMUM, PROBE, Schedule, check_until

PROGRAM = """
parameters { real mu; vector[3] theta; }
model { mu ~ normal(0, 1); theta ~ normal(mu, 1); }
generated quantities { real y = mu; matrix[2, 2] R; R = [[1, mu], [mu, 1]]; }
"""


@pytest.fixture(scope="module")
def posterior():
    return stanadapt.Posterior(PROGRAM)


def autoregressive(rng, shape, coefficient):
    """Stationary draws (chains, n, columns) with standard normal margins."""
    noise = rng.standard_normal(shape)
    noise[:, 1:] *= np.sqrt(1.0 - coefficient**2)
    return lfilter([1.0], [1.0, -coefficient], noise, axis=1)


def filled(posterior, parameters):
    """Draws of all columns: `parameters` (chains, n, 4), and what is computed from them."""
    values = np.ones((*parameters.shape[:2], posterior.n_values))
    values[..., :4] = parameters
    values[..., posterior.variables["y"].columns] = parameters[..., 0]
    for i, j in ((0, 1), (1, 0)):
        values[..., posterior.variables["R"].columns[i, j]] = parameters[..., 0]
    return values


# What a user writes.


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("ess 400", Until(ess=400)),
        ("ess 400, rhat 1.01, 10 min", Until(ess=400, rhat=1.01, seconds=600)),
        ("  90 s ,ess   1e3", Until(ess=1000, seconds=90)),
        ("1.5 h", Until(seconds=5400)),
        ("10min, rhat 1.05", Until(rhat=1.05, seconds=600)),
        ("0.25 s", Until(seconds=0.25)),
        ("1e6 gradients", Until(gradients=1_000_000)),
        ("mcse mu 0.05, mcse tau 0.1", Until(mcse={"mu": 0.05, "tau": 0.1})),
        ("ess 12.5, of mu tau, 7 gradients", Until(ess=12.5, of=["mu", "tau"], gradients=7)),
    ],
)
def test_text_is_read_and_written(text, until):
    assert Until.parse(text) == until
    assert Until.parse(str(until)) == until
    assert Until.parse(dataclasses.asdict(until)) == until
    assert Until.parse(until) is until
    assert pickle.loads(pickle.dumps(until)) == until
    assert hash(until) == hash(Until.parse(text))


def test_the_text_is_the_short_one():
    until = Until(
        ess=400, rhat=1.01, seconds=600, gradients=1_000_000, mcse={"mu": 0.05}, of=["mu", "tau", "mu"]
    )
    goals_alone = "ess 400, rhat 1.01, mcse mu 0.05, of mu tau"
    assert str(until) == f"{goals_alone}, 10 min, 1000000 gradients"
    assert until.goals == goals_alone
    assert until.limits == {"seconds": "10 min", "gradients": "1000000 gradients"}
    assert [str(Until(seconds=seconds)) for seconds in (59, 90, 5400, 7200)] == [
        "59 s",
        "90 s",
        "90 min",
        "2 h",
    ]


def test_nothing_asked_is_none():
    assert Until.parse(None) is None
    assert not Until(seconds=1).has_goals
    assert Until.parse({"of": "mu", "ess": 10}).of == ("mu",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "'' is none of these"),
        ("ess", "'ess' is none of these"),
        ("ess four", "'ess four' is none of these"),
        ("ess 400,, 10 min", "'' is none of these"),
        ("ess 400 10 min", "'ess 400 10 min' is none of these"),
        ("10", "'10' is none of these"),
        ("10 days", "'10 days' is none of these"),
        ("ten min", "'ten min' is none of these"),
        ("of", "'of' is none of these"),
        ("mcse mu", "'mcse mu' is none of these"),
        ("mcse mu small", "'mcse mu small' is none of these"),
        ("ess 400, ess 500", "'ess 500' comes a second time"),
        ("1 s, 1 min", "'1 min' comes a second time"),
        ("mcse mu 1, mcse mu 2", "'mcse mu 2' comes a second time"),
        ("ess 0", "until.ess=0.0 is not allowed: until.ess must be a finite number above 0"),
        ("ess nan", "until.ess=nan is not allowed"),
        ("ess inf", "until.ess=inf is not allowed"),
        ("rhat 1", "until.rhat=1.0 is not allowed: until.rhat must be a finite number above 1"),
        ("-1 s", "until.seconds=-1.0 is not allowed"),
        ("1.5 gradients", "until.gradients=1.5 is not allowed: until.gradients must be an integer"),
        ("inf gradients", "until.gradients=inf is not allowed"),
        ("mcse mu 0", "until.mcse['mu']=0.0 is not allowed"),
        ("of mu, 10 s", "until.of=('mu',) is not allowed: until.of must be left out"),
        (400, "until=400 is not allowed: until must be a stanadapt.Until, a mapping, or a text"),
        ({"es": 400}, "one of ess, rhat, seconds, gradients, mcse, of (nearest: ess)"),
        ({}, "until has neither a goal nor a limit"),
        ({"ess": True}, "until.ess=True is not allowed"),
        ({"mcse": 0.1}, "until.mcse=0.1 is not allowed: until.mcse must be a mapping of variables"),
        ({"mcse": {1: 0.1}}, "until.mcse={1: 0.1} is not allowed"),
        ({"ess": 1, "of": [1]}, "until.of=[1] is not allowed: until.of must be a variable or a list"),
        ({"ess": 1, "of": {"mu"}}, "until.of={'mu'} is not allowed"),
    ],
)
def test_bad_goals_are_refused(given, says):
    with pytest.raises(ArgumentError) as caught:
        Until.parse(given)
    assert "until" in str(caught.value)
    assert says in str(caught.value)


# What a model and a run allow.


@pytest.mark.parametrize("text", ["ess 400", "ess 400, of y R", "mcse y 0.1", "rhat 1.1", "1 s"])
def test_goals_within_reach_are_accepted(posterior, text):
    check_until(Until.parse(text), posterior, chains=4, rows=100)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ess 400, of thet", "until.of='thet' is not allowed"),
        ("ess 400, of thet", "one of mu, theta, y, R (nearest: theta)"),
        ("mcse nu 0.1", "a variable of until.mcse='nu' is not allowed"),
        ("ess 401", "at most 400, as there are 4 chains of 100 kept draws at most"),
    ],
)
def test_goals_out_of_reach_are_refused(posterior, text, says):
    with pytest.raises(ArgumentError) as caught:
        check_until(Until.parse(text), posterior, chains=4, rows=100)
    assert says in str(caught.value)


def test_goals_without_draws_or_quantities_are_refused(posterior):
    assert MINIMUM == FEWEST
    with pytest.raises(ArgumentError, match="need 4 draws of each chain, and there are 3 at most"):
        check_until(Until(rhat=1.1), posterior, chains=4, rows=3)
    check_until(Until(seconds=1), posterior, chains=4, rows=3)
    empty = stanadapt.Posterior("generated quantities { real y = normal_rng(0, 1); }")
    with pytest.raises(ArgumentError, match="the model has no parameters, so name variables"):
        check_until(Until(ess=10), empty, chains=4, rows=100)
    check_until(Until(ess=10, of=["y"]), empty, chains=4, rows=100)


# When to look.


def pauses(schedule, cost=0.0, before=0):
    """All pauses of a run of which a row of all chains takes `cost` gradients."""
    rows, found = 0, []
    while (then := schedule.next(rows, before + int(cost * rows), before)) > rows:
        rows = then
        found.append(rows)
        assert len(found) < 1000
    return found


def test_looks_are_at_powers_of_a_factor():
    found = pauses(Schedule(Until(ess=800), 4, 100_000))
    assert found[0] == 200  # where 4 chains of independent draws would have it
    assert found[-1] == 100_000
    ratios = np.array(found[1:-1]) / np.array(found[:-2])
    assert np.all(ratios >= FACTOR)
    assert np.all(ratios <= FACTOR + 1 / 200)
    assert len(found) < 2 + math.log(100_000 / 200) / math.log(FACTOR)


@pytest.mark.parametrize("text", ["ess 400", "rhat 1.01", "ess 1e4, 10 s", "mcse mu 0.1, 1000 gradients"])
@pytest.mark.parametrize("chains", [1, 4, 1000])
def test_looks_do_not_depend_on_the_end_nor_on_where_a_run_is_taken_up(text, chains):
    until = dataclasses.replace(Until.parse(text), gradients=None)
    long, short = pauses(Schedule(until, chains, 50_000)), pauses(Schedule(until, chains, 777))
    assert short == [rows for rows in long if rows < 777] + [777]
    assert min(long) >= FIRST
    assert long == sorted(set(long))
    schedule = Schedule(until, chains, 50_000)
    for rows in range(0, 3000, 7):
        assert schedule.next(rows) == min(look for look in long if look > rows)


@pytest.mark.parametrize("rows", [0, 50, 100, 1000, 1234])
def test_looks_that_cannot_be_good_yet_are_left_out(rows):
    schedule = Schedule(Until(ess=400), 4, 50_000)
    grid = pauses(schedule)
    last = schedule.next(rows)
    for needed in (1.0 * rows, 1.1 * rows, 1.5 * rows, 3.0 * rows, 10.0 * rows, math.inf):
        not_before = Status(rows, (), False, False, needed, "", "").not_before
        assert rows <= not_before <= 2 * rows
        found = schedule.next(rows, not_before=not_before)
        assert found in grid
        assert found >= last
        assert found <= max(schedule.next(rows), not_before)
        last = found
    assert last > (2 * rows / FACTOR - 2 if rows >= 100 else 0)


def test_without_goals_nothing_is_looked_at():
    assert pauses(Schedule(Until(seconds=1), 4, 1000)) == [1000]


@pytest.mark.parametrize("cost", [0.3, 1.0, 40.0, 1e4])
@pytest.mark.parametrize("before", [0, 5000])
@pytest.mark.parametrize("text", ["100000 gradients", "100000 gradients, ess 400"])
def test_a_limit_of_gradients_falls_within_a_row(cost, before, text):
    schedule = Schedule(Until.parse(text), 4, 1_000_000)
    found = pauses(schedule, cost, before)
    rows = found[-1]
    spent = before + int(cost * rows)
    assert schedule.limit(rows, spent, before) == "gradients"
    assert 100_000 - spent < cost
    assert spent <= max(100_000, before + PROBE * cost)
    assert len(found) < 25 + (math.log(rows) / math.log(FACTOR) if schedule.until.has_goals else 0)


def test_a_limit_of_gradients_moves_no_look():
    texts = ("ess 400", "ess 400, 90000 gradients")
    without, limited = (Schedule(Until.parse(text), 4, 5000) for text in texts)
    for not_before in (0.0, 450.0):
        looks_of = []
        for schedule in (without, limited):
            rows, found = 0, []
            while (then := schedule.next(rows, 30 * rows, 0, not_before)) > rows:
                rows = then
                if schedule.is_look(rows, not_before):
                    found.append(rows)
            looks_of.append(found)
        assert looks_of[0][-1] == 5000
        assert looks_of[1] == [rows for rows in looks_of[0] if 30 * rows <= 90_000]
    assert not limited.is_look(PROBE)
    assert limited.is_look(100)
    assert not limited.is_look(100, 450.0)
    assert not Schedule(Until(seconds=1), 4, 5000).is_look(5000)


@pytest.mark.parametrize("seed", range(20))
def test_a_limit_of_gradients_where_rows_cost_more_and_more(seed):
    """And where the first ones are cheap ones. In 1,000 seeds the most were 100,500 gradients."""
    schedule, rows, gradients, count = Schedule(Until(gradients=100_000), 2, 10_000), 0, 300, 0
    rng = np.random.default_rng(seed)
    costs = np.cumsum(rng.geometric(0.02, 10_000) * np.linspace(1.0, 3.0, 10_000)).astype(int)
    while (then := schedule.next(rows, gradients, 300)) > rows:
        rows, gradients, count = then, 300 + int(costs[then - 1]), count + 1
    assert schedule.limit(rows, gradients, 300) == "gradients"
    assert 0.99 < gradients / 100_000 < 1.01
    assert count < 20


def test_limits_by_name():
    schedule = Schedule(Until(ess=10, gradients=100), 4, 500)
    assert schedule.limit(0, 50, 50) == ""
    assert schedule.limit(0, 100, 100) == "gradients"  # in warm-up
    assert schedule.next(0, 100, 100) == 0
    assert schedule.limit(500, 60, 50) == "draws"
    assert Schedule(Until(seconds=10), 4, 500).limit(499) == ""
    assert Schedule(Until(gradients=100), 4, 500).next(10, 0, 0) == 500  # draws that take none


# What a look says.


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.9, -0.5])
def test_figures_are_arviz_s(posterior, coefficient):
    rng = np.random.default_rng(2)
    draws = autoregressive(rng, (4, 900, 4), coefficient)
    status = GoalWatch(Until(ess=10, rhat=2.0, mcse={"mu": 1.0}), posterior).look(
        filled(posterior, draws), whole=True
    )
    columns = np.array([arviz_columns(draws[..., i]) for i in range(4)])
    ess, rhat, mcse = status.figures
    assert ess.value == pytest.approx(columns[:, 1:3].min(), rel=1e-9)
    assert rhat.value == pytest.approx(columns[:, 0].max(), rel=1e-9)
    assert mcse.value == pytest.approx(columns[0, 3], rel=1e-9)
    names = ["mu", "theta[0]", "theta[1]", "theta[2]"]
    assert ess.quantity == names[int(columns[:, 1:3].min(axis=1).argmin())]
    assert rhat.quantity == names[int(columns[:, 0].argmax())]
    assert (mcse.goal, mcse.quantity) == ("mcse mu", "mu")
    assert status.is_reached
    assert status.done
    assert status.rows_needed == 900


def test_the_size_is_that_of_known_autocorrelation(posterior):
    """The bulk's size is about (1 - c) / (1 + c) of the draws."""
    rng = np.random.default_rng(3)
    draws = autoregressive(rng, (4, 20_000, 4), 0.9)
    known = 80_000 * 0.1 / 1.9
    for goal, reached in ((0.7 * known, True), (1.3 * known, False)):
        watch = GoalWatch(Until(ess=goal), posterior)
        status = watch.look(filled(posterior, draws))
        assert status.is_reached == reached
        assert status.figures[0].value == pytest.approx(known, rel=0.2)


@pytest.mark.parametrize("goal", ["ess 400", "rhat 1.01", "mcse mu 0.05"])
def test_the_rows_needed_are_about_right(posterior, goal):
    until = Until.parse(goal)
    rng = np.random.default_rng(4)
    draws = filled(posterior, autoregressive(rng, (4, 12_000, 4), 0.95))
    schedule, watch, rows = Schedule(until, 4, 12_000), GoalWatch(until, posterior), 0
    estimates = {}
    while (rows := schedule.next(rows)) < 12_000:
        status = watch.look(draws[:, :rows])
        if status.done:
            break
        estimates[rows] = status.rows_needed
    assert status.is_reached
    late = [estimate for at, estimate in estimates.items() if at > rows / 3]
    assert len(late) >= 3
    assert 0.4 < np.median(late) / rows < 2.5


def test_variables_are_those_that_are_asked_about(posterior):
    rng = np.random.default_rng(5)
    draws = filled(posterior, rng.standard_normal((4, 200, 4)))
    draws[..., 2] = autoregressive(rng, (4, 200), 0.99)  # theta[1]
    assert not GoalWatch(Until(ess=400), posterior).look(draws).is_reached
    assert GoalWatch(Until(ess=400, of=["mu", "y"]), posterior).look(draws).is_reached
    figure = (
        GoalWatch(Until(ess=400, of=["mu"], mcse={"theta": 0.06}), posterior)
        .look(draws, whole=True)
        .figures[1]
    )
    assert figure.quantity == "theta[1]"
    assert not figure.is_met
    assert GoalWatch(Until(mcse={"y": 0.06}), posterior).look(draws).is_reached


def test_chains_that_disagree_are_seen(posterior):
    rng = np.random.default_rng(6)
    draws = filled(posterior, rng.standard_normal((4, 400, 4)) + 0.5 * np.arange(4)[:, None, None])
    status = GoalWatch(Until(rhat=1.01), posterior).look(draws)
    assert not status.done
    assert status.figures[0].value > 1.1


@pytest.mark.parametrize(
    ("coefficient", "goal"), [(0.99, 100), (-0.5, 400), thorough(0.97, 400), thorough(0.0, 400)]
)
def test_thinning_never_promises_much_more_than_there_is(posterior, coefficient, goal):
    """Of 25 runs with 4 quantities none stops with much less than it was to reach.

    The sizes of a whole run are noisy themselves; a run stops at the first of several looks that is good.
    """
    until, found, strides = Until(ess=goal, rhat=1.05), [], []
    for seed in range(25):
        rng = np.random.default_rng((7, seed))
        length = 300 + int(goal / 4 * 2.5 * (1 + coefficient) / (1 - coefficient))
        draws = filled(posterior, autoregressive(rng, (4, length, 4), coefficient))
        schedule, watch, rows, not_before = Schedule(until, 4, length), GoalWatch(until, posterior), 0, 0.0
        while (rows := schedule.next(rows, not_before=not_before)) < length:
            status = watch.look(draws[:, :rows])
            not_before = status.not_before
            if status.done:
                found.append(smaller_size(draws[:, :rows, :4]) / goal)
                strides.append(looks._stride(4, rows, looks._DRAWS[-1] * goal))
                break
    assert len(found) >= 22
    assert min(found) > 0.95
    assert np.mean(np.array(found) < 0.99) < 0.1
    if coefficient > 0.9:
        assert max(strides) > 1  # so that something was thinned


def smaller_size(draws):
    """The smallest effective size of all draws (chains, n, k), which is arviz's."""
    found = convergence(np.ascontiguousarray(draws.transpose(2, 0, 1)))
    return float(min(found.ess_bulk.min(), found.ess_tail.min()))


@pytest.mark.parametrize("goal", [thorough("ess 400, rhat 1.01"), "mcse mu 0.03, rhat 1.01"])
def test_thinned_figures_are_on_the_safe_side(posterior, goal):
    """Of slow chains that are much longer than the goal needs."""
    until, errors, sizes = Until.parse(goal), [], []
    for seed in range(6):
        rng = np.random.default_rng((8, seed))
        draws = filled(posterior, autoregressive(rng, (4, 40_000, 4), 0.98))
        figures = {
            each.goal: each.value for each in GoalWatch(until, posterior).look(draws, whole=True).figures
        }
        scalars = np.ascontiguousarray(draws[..., :4].transpose(2, 0, 1))
        errors.append(figures["rhat"] - r_hat(convergence(scalars).moments, 40_000).max())
        if until.ess:
            sizes.append(figures["ess"] / smaller_size(draws[..., :4]))
        else:
            sizes.append(mcse_mean(scalars)[0] / figures["mcse mu"])
    print(sizes, errors)
    assert min(sizes) > 0.8
    assert max(sizes) < 1.1
    assert np.mean(errors) > -2e-4
    assert np.abs(errors).max() < 1e-3


def test_a_small_standard_error_is_reached_though_chains_are_thinned(posterior):
    draws = filled(posterior, np.random.default_rng(9).standard_normal((4, 20_000, 4)))
    assert GoalWatch(Until(mcse={"mu": 0.004}), posterior).look(draws).is_reached
    assert not GoalWatch(Until(mcse={"mu": 0.003}), posterior).look(draws).done


# Columns that cannot be judged.


def test_constant_quantities_are_left_out(posterior):
    draws = filled(posterior, np.random.default_rng(10).standard_normal((4, 300, 4)))
    watch = GoalWatch(Until(ess=400, of=["R"]), posterior)
    status = watch.look(draws)
    assert status.is_reached
    assert status.figures[0].quantity in ("R[0, 1]", "R[1, 0]")
    assert watch.computed <= 4
    draws[-1, -1, posterior.variables["R"].columns[0, 0]] = 0.0
    status = GoalWatch(Until(ess=400, of=["R"]), posterior).look(draws)
    assert status.holds == (status.figures[0].value >= 400)


def test_when_nothing_moves_nothing_is_reached(posterior):
    draws = np.ones((4, 500, posterior.n_values))
    watch = GoalWatch(Until(ess=100), posterior)
    status = watch.look(draws[:, :100])
    assert not status.done
    assert not status.is_reached
    assert status.words() == "all draws the same"
    assert math.isinf(status.rows_needed)
    reason = attributes(Until(ess=100), watch.look(draws), "draws")["until_reason"]
    assert reason == "the last draw came first, at draw 500 of each chain, with all draws the same"
    moving = np.random.default_rng(11).standard_normal((4, 500, posterior.n_values))
    assert watch.look(np.concatenate((draws, moving), axis=1)).figures


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 70, 298])
def test_draws_that_are_no_numbers_are_named_and_not_waited_for(posterior, bad, row):
    until = Until(ess=400, rhat=1.1)
    draws = filled(posterior, np.random.default_rng(12).standard_normal((4, 300, 4)))
    draws[2, row, 1] = bad
    watch = GoalWatch(until, posterior)
    watch.look(draws[:, :60])
    for status in (watch.look(draws), GoalWatch(until, posterior).look(draws)):
        assert status.done
        assert not status.is_reached
        assert status.unusable == "theta[0]"
        assert "NaN or infinite draws in theta[0]" in status.words()
        found = attributes(until, status)
        assert found["until_reached"] == 0
        assert found["until_reason"].startswith("NaN or infinite draws in theta[0], all else has ess ")


def test_where_all_is_nan_the_run_ends(posterior):
    draws = np.full((4, 100, posterior.n_values), np.nan)
    status = GoalWatch(Until(ess=100), posterior).look(draws)
    assert status.done
    assert not status.is_reached
    assert status.words() == "NaN or infinite draws in mu, theta[0], theta[1] and 1 more"


def test_nan_elsewhere_is_none_of_the_goal_s_business(posterior):
    draws = filled(posterior, np.random.default_rng(13).standard_normal((4, 300, 4)))
    draws[..., posterior.variables["y"].columns] = np.nan
    assert GoalWatch(Until(ess=300), posterior).look(draws).is_reached
    draws[..., 0] = 1e308  # finite, though no sum of them is
    draws[0, 0, 0] = -1e308
    assert GoalWatch(Until(ess=300), posterior).look(draws).unusable == ""


def test_too_few_draws_are_said_to_be(posterior):
    status = GoalWatch(Until(ess=300), posterior).look(np.ones((4, 3, posterior.n_values)), whole=True)
    assert not status.done
    assert attributes(Until(ess=300, seconds=60), status, "seconds")["until_reason"] == (
        "1 min came first, at draw 3 of each chain, with only 3 draws of each chain"
    )


# What looks cost.


def wide(columns):
    return stanadapt.Posterior(f"parameters {{ vector[{columns}] x; }} model {{ x ~ std_normal(); }}")


def test_a_no_costs_a_few_quantities():
    posterior, until = wide(300), Until(ess=400)
    rng = np.random.default_rng(14)
    draws = rng.standard_normal((4, 1000, 300))
    draws[..., [50, 299]] = autoregressive(rng, (4, 1000, 2), 0.97)
    watch = GoalWatch(until, posterior)
    assert not watch.look(draws[:, :100]).done
    costs = []
    for rows in (150, 200, 300, 400, 600, 800):
        before = watch.computed
        status = watch.look(draws[:, :rows])
        costs.append(watch.computed - before)
        assert not status.done
        assert not GoalWatch(until, posterior).look(draws[:, :rows]).done
    assert status.figures[0].quantity in ("x[50]", "x[299]")
    assert max(costs[2:]) <= 2 * 2  # the worst ones, by few draws and by more
    assert sum(costs) < 300
    whole = watch.look(draws, whole=True)
    assert watch.computed >= 300
    assert whole.figures[0].quantity in ("x[50]", "x[299]")


def test_a_yes_takes_every_quantity_and_most_of_them_once():
    posterior = wide(300)
    draws = np.random.default_rng(15).standard_normal((4, 1000, 300))
    watch = GoalWatch(Until(ess=400), posterior)
    assert watch.look(draws).is_reached
    assert 300 <= watch.computed < 320


@pytest.mark.parametrize("rows", [3, 250, 251])
def test_sizes_alone_are_those_of_all_statistics(rows):
    draws = np.random.default_rng(18).standard_normal((5, 4, rows)).cumsum(axis=2)
    draws[1, 2, 1], draws[2] = np.nan, np.round(draws[2])
    alone, found = effective_sizes(draws), convergence(draws)
    np.testing.assert_array_equal(alone.ess_bulk, found.ess_bulk)
    np.testing.assert_array_equal(alone.ess_tail, found.ess_tail)


def test_long_chains_are_thinned(posterior, monkeypatch):
    seen = []
    seeing = lambda draws: seen.append(draws.shape) or effective_sizes(draws)  # noqa: E731
    monkeypatch.setattr(looks, "effective_sizes", seeing)
    draws = filled(posterior, autoregressive(np.random.default_rng(16), (4, 50_000, 4), 0.5))
    GoalWatch(Until(ess=400), posterior).look(draws)
    assert {shape[1:] for shape in seen} == {(4, 250), (4, 1000)}  # chains, rows
    seen.clear()
    GoalWatch(Until(ess=20_000), posterior).look(draws)
    assert {shape[1:] for shape in seen} == {(4, 10_000), (4, 25_000)}


def test_answers_do_not_depend_on_earlier_looks(posterior):
    until = Until(ess=300, rhat=1.02, mcse={"y": 0.08})
    draws = filled(posterior, autoregressive(np.random.default_rng(17), (4, 3000, 4), 0.8))
    watch = GoalWatch(until, posterior)
    answers = []
    for rows in range(100, 3000, 100):
        kept, new = watch.look(draws[:, :rows]), GoalWatch(until, posterior).look(draws[:, :rows])
        assert (kept.done, kept.is_reached) == (new.done, new.is_reached)
        answers.append(kept.done)
    assert True in answers
    assert False in answers
    whole = watch.look(draws, whole=True)
    assert whole == GoalWatch(until, posterior).look(draws, whole=True)
    assert whole == watch.look(draws, whole=True)


# What is said of it.


def status(*figures, rows=650, holds=True, unusable="", obstacle=""):
    return Status(rows, figures, holds, holds, rows, unusable, obstacle)


ESS, RHAT = Figure("ess", 412.3, 400.0, "tau"), Figure("rhat", 1.0042, 1.01, "mu")
LOW = Figure("ess", 120.2, 400.0, "tau")


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (ESS, "ess 412/400"),
        (Figure("ess", 399.7, 400.0, "x"), "ess 399.7/400"),
        (Figure("ess", 12345.6, 12345.0, "x"), "ess 12346/12345"),
        (RHAT, "rhat 1.004/1.01"),
        (Figure("rhat", 1.01004, 1.01, "x"), "rhat 1.01004/1.01"),
        (Figure("rhat", math.inf, 1.01, "x"), "rhat inf/1.01"),
        (Figure("mcse mu", 0.050001, 0.05, "mu"), "mcse mu 0.050001/0.05"),
        (Figure("mcse mu", 0.0123456, 0.05, "mu"), "mcse mu 0.01235/0.05"),
    ],
)
def test_figures_are_shown_on_their_side_of_the_limit(figure, shown):
    assert str(figure) == shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "ess 120/400, rhat 1.004/1.01"),
        (12.3, "ess 120/400, rhat 1.004/1.01, 12 s left"),
        (600.0, "ess 120/400, rhat 1.004/1.01, 10 min left"),
        (9000.0, "ess 120/400, rhat 1.004/1.01, 2.5 h left"),
        (math.inf, "ess 120/400, rhat 1.004/1.01"),
    ],
)
def test_words_for_the_progress_bar(seconds, words):
    assert status(LOW, RHAT, holds=False).words(seconds) == words


@pytest.mark.parametrize(
    ("text", "seen", "limit", "reached", "reason"),
    [
        (
            "ess 400, rhat 1.01",
            status(ESS, RHAT),
            "",
            1,
            "ess 412 of 400, rhat 1.004 of 1.01 at draw 650 of each chain",
        ),
        (
            "ess 400, 10 min",
            status(LOW, RHAT, rows=812, holds=False),
            "seconds",
            0,
            "10 min came first, at draw 812 of each chain, with ess 120 (tau)",
        ),
        (
            "ess 400, 7 gradients",
            status(LOW, rows=9, holds=False, unusable="y"),
            "gradients",
            0,
            "7 gradients came first, at draw 9 of each chain, with ess 120 (tau), NaN or infinite draws in y",
        ),
        (
            "ess 400",
            status(LOW, holds=False),
            "interrupt",
            0,
            "an interrupt came first, at draw 650 of each chain, with ess 120 (tau)",
        ),
        ("2 h", status(holds=False), "seconds", 1, "2 h came at draw 650 of each chain"),
        ("2 h", status(holds=False), "draws", 1, "the last draw came at draw 650 of each chain"),
        ("2 h", status(holds=False), "interrupt", 0, "an interrupt came at draw 650 of each chain"),
        ("ess 400, 10 s", status(ESS), "seconds", 1, "ess 412 of 400 at draw 650 of each chain"),
    ],
)
def test_attributes_tell_how_a_run_ended(text, seen, limit, reached, reason):
    until = Until.parse(text)
    found = attributes(until, seen, limit)
    assert found == {
        "until": str(until),
        "until_reached": reached,
        "until_reason": reason,
        "until_limit": limit,
        "until_draws": seen.rows,
    }
    findings = [each for each in stanadapt.diagnose(made_up(attrs=found)) if each.kind == "until"]
    if reached:
        assert findings == []
    else:
        assert [each.text for each in findings] == [f"until asked for {until}: {reason}."]
