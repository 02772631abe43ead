"""A run that begins with what an earlier one has learnt."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import stanadapt
from cases import partly_thorough, thorough
from exact import gaussian
from stanadapt import samplers
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.numerics.metric import as_matrix
from stanadapt.numerics.metric_choice import metric_of
from stanadapt.result.container import attributes, container, datasets
from stanadapt.result.files import write
from stanadapt.run.preparation.warm_start import SHARE
from stanadapt.run.warmup import what_it_takes
from stanadapt.samplers.base import METRIC, STEP_SIZE
from stanadapt.transport.composition import is_map
from stanadapt.transport.learning import learn_funnel
from stanadapt.transport.map_table import KIND, OWN, ROWS, SCALE, no_transport

EXACT = gaussian()
PROGRAM = "data { real m; vector[3] s; } parameters { vector[3] x; } model { x ~ normal(m, s); }"
OLD, NEW = {"m": 0.0, "s": [1.0, 2.0, 0.5]}, {"m": 0.2, "s": [0.9, 1.9, 0.45]}
FUNNEL = "parameters { real v; vector[6] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"


def draw(model: Any = PROGRAM, data: Any = None, **keywords: Any) -> Any:
    run = {"method": "fisher_hmc", "chains": 2, "draws": 200, "seed": 5, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        return stanadapt.sample(model, data, **(run | keywords))


def x(idata: Any) -> np.ndarray:
    return np.asarray(datasets(idata)["posterior"]["x"].values)


def learnt(idata: Any, name: str) -> np.ndarray:
    return np.asarray(datasets(idata)["adaptation"][name].values)


def settings(idata: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(attributes(idata)["settings"])
    return found


@pytest.fixture(scope="module")
def earlier() -> Any:
    """Of 4 chains by Fisher HMC."""
    return draw(data=OLD, chains=4, draws=500, seed=1)


@pytest.fixture(scope="module")
def funnel() -> Any:
    return draw(FUNNEL, draws=500, seed=1)


def change(idata: Any, group: str, alter: Callable[[xarray.Dataset], xarray.Dataset | None]) -> Any:
    """The result with another group; None leaves it out."""
    groups = datasets(idata) | {group: alter(datasets(idata)[group])}
    return container({name: each for name, each in groups.items() if each is not None}, attributes(idata))


def alter_learnt(idata: Any, name: str, alter: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The result with other values of what was learnt."""
    return change(
        idata,
        "adaptation",
        lambda group: group.assign({name: group[name].copy(data=alter(group[name].values))}),
    )


def test_warm_up_is_short_and_the_metric_that_of_the_new_data(earlier: Any) -> None:
    cold, warm = (draw(data=NEW, chains=4, warm=given) for given in (None, earlier))
    assert learnt(cold, "warmup_iterations").min() == 160
    assert learnt(warm, "warmup_iterations").max() <= 100
    cov = np.diag(np.square(NEW["s"]))
    np.testing.assert_allclose(learnt(warm, "preconditioner"), [cov] * 4, atol=1e-6)
    said = attributes(warm)["warm"]
    assert said.startswith("starts, metric, step size of fisher_hmc, seed 1, model ")
    assert "warm" not in attributes(cold)


@pytest.mark.parametrize("chains", [1, 2, 4, 7])
def test_chains_start_at_earlier_draws_of_chains_in_turn(earlier: Any, chains: int) -> None:
    idata = draw(data=NEW, chains=chains, warm=earlier, draws=10)
    places = []
    for i, start in enumerate(learnt(idata, "start")):
        found = np.argwhere(np.all(x(earlier)[i % 4] == start, axis=1))
        assert len(found) == 1
        places.append((i % 4, found.item()))
    assert len(set(places)) == chains
    if chains == 7:
        assert all(places[i][1] < 250 <= places[i + 4][1] for i in range(3))
    other = draw(data=NEW, chains=chains, warm=earlier, draws=10, seed=6)
    assert not np.array_equal(learnt(other, "start"), learnt(idata, "start"))


def test_unconstrained_draws_are_taken_where_they_were_kept() -> None:
    program = "parameters { real<lower=0> s; } model { s ~ exponential(1); }"
    kept = draw(program, keep_unconstrained=True, seed=1)
    plain = change(kept, "unconstrained_posterior", lambda _: None)
    starts = [learnt(draw(program, warm=given), "start") for given in (kept, plain)]
    np.testing.assert_allclose(starts[0], starts[1], rtol=1e-12)
    shifted = change(kept, "unconstrained_posterior", lambda group: group.assign(x=group["x"] + 100.0))
    assert learnt(draw(program, warm=shifted, draws=1, warmup=0), "start").min() > 50.0


def test_starts_may_be_given(earlier: Any) -> None:
    points = np.ones((2, 3))
    idata = draw(data=NEW, warm=earlier, inits=points)
    np.testing.assert_array_equal(learnt(idata, "start"), points)
    assert attributes(idata)["warm"].startswith("metric, step size of")
    assert learnt(idata, "warmup_iterations").max() <= 100


def test_a_start_that_has_no_density_any_more_is_a_random_one(earlier: Any) -> None:
    wall = 'parameters { vector[3] x; } model { x ~ std_normal(); if (max(abs(x)) > 1.0) reject("outside"); }'
    idata = draw(wall, warm=earlier, chains=8, draws=50)
    starts = learnt(idata, "start")
    assert np.abs(starts).max() < 1.0
    kept = [(x(earlier) == start).all(axis=2).any() for start in starts]
    assert 0 < sum(kept) < 8


def test_a_start_outside_of_the_new_support_is_a_random_one(earlier: Any) -> None:
    positive = "parameters { vector<lower=0>[3] x; } model { x ~ normal(0, 1); }"
    idata = draw(positive, warm=earlier, chains=8)
    assert np.all(np.isfinite(learnt(idata, "start")))
    assert learnt(idata, "warmup_iterations").max() <= 600
    assert x(idata).min() >= 0.0


# What chains begin with shows where they have no warm-up.


@pytest.mark.parametrize("chains", [2, 6])
def test_chain_i_goes_on_from_earlier_chain_i(earlier: Any, chains: int) -> None:
    steps = learnt(earlier, "final_step_size")
    metrics = learnt(earlier, "preconditioner") * np.array([1.0, 2.0, 3.0, 4.0])[:, None, None]
    given = alter_learnt(earlier, "preconditioner", lambda _: metrics)
    idata = draw(data=NEW, warm=given, chains=chains, warmup=0, draws=10)
    turns = np.arange(chains) % 4
    np.testing.assert_allclose(learnt(idata, "preconditioner"), metrics[turns], rtol=1e-9)
    np.testing.assert_allclose(learnt(idata, "final_step_size"), steps[turns], rtol=1e-12)


@pytest.mark.parametrize("method", ["mala", "hmc", "rwm"])
def test_step_sizes_are_those_of_the_same_method(method: str, earlier: Any) -> None:
    first = draw(data=OLD, method=method, warmup=300, seed=1)
    second = draw(data=NEW, method=method, warm=first, warmup=0, draws=10)
    np.testing.assert_array_equal(learnt(second, "final_step_size"), learnt(first, "final_step_size"))
    assert attributes(second)["warm"].startswith(f"starts, step size of {method}")
    mine = draw(data=NEW, method=method, warm=first, warmup=0, draws=10, settings={"initial_step_size": 0.2})
    np.testing.assert_array_equal(learnt(mine, "final_step_size"), 0.2)
    foreign = draw(data=NEW, method=method, warm=earlier, warmup=0, draws=10)
    assert attributes(foreign)["warm"].startswith("starts of fisher_hmc")
    assert not np.isin(learnt(foreign, "final_step_size"), learnt(earlier, "final_step_size")).any()


@pytest.mark.parametrize("method", [thorough("am"), "arwmh"])
@pytest.mark.parametrize("source", ["fisher_hmc", "fisher_mala", "gad_mala_fast", "mala", "nuts", "am"])
def test_random_walks_take_the_metric_of_any_method(method: str, source: str) -> None:
    """Some preconditioners are like the covariance only up to a factor; mala has none, nuts a diagonal."""
    cov = np.cov(EXACT.draw(100_000, np.random.default_rng(1)).T)
    model, data = EXACT.target, None
    if source == "nuts":
        cov, model, data = np.diag(np.square(OLD["s"])), PROGRAM, OLD
    first = draw(model, data, method=source, seed=1, draws=4_000)
    again = draw(model, data, method=method, warm=first, warmup=0, draws=4_000)
    for metric in learnt(again, "preconditioner"):
        ratios = np.linalg.eigvals(np.linalg.solve(cov, metric)).real
        assert 0.4 < ratios.min() <= ratios.max() < 2.5
    rate = datasets(again)["sample_stats"]["acceptance_rate"].values.mean()
    assert 0.15 < rate < 0.5


PILOTED = [name for name in samplers.METHODS if samplers.facts(name).takes_pilot]


@pytest.mark.parametrize("method", partly_thorough(PILOTED, ("fisher_mala", "gad_rwm", "mmala")))
def test_methods_with_a_pilot_have_it_check_what_was_learnt(method: str, earlier: Any) -> None:
    idata = draw(data=NEW, method=method, warm=earlier)
    assert settings(idata)["pilot"] == 90
    assert attributes(idata)["tuning_steps"] == samplers.facts(method).warmup // SHARE
    stages = set(learnt(idata, "stage"))
    assert "pilot_window_1" in stages or "pilot_window_2" in stages
    short = draw(data=NEW, method=method, warm=earlier, warmup=50, draws=10)
    assert settings(short)["pilot"] == 50
    without = draw(data=NEW, method=method, warm=earlier, settings={"pilot": 0}, warmup=60, draws=10)
    assert settings(without)["pilot"] == 0


@pytest.mark.parametrize("method", ["ada_mala", "amala", "gad_mala_fast", "fisher_mala"])
def test_without_a_pilot_they_take_over_themselves(method: str, earlier: Any) -> None:
    given = {"settings": {"pilot": 0}, "warmup": 0, "draws": 10}
    metric = learnt(draw(data=NEW, method=method, warm=earlier, **given), "preconditioner")[0]
    ratio = np.diag(metric) / np.diag(learnt(earlier, "preconditioner")[0])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)


def test_every_method_begins_warm_or_says_that_it_cannot(earlier: Any, never_runs: None) -> None:
    able = {name for name in samplers.METHODS if what_it_takes(samplers.facts(name))}
    assert {"fisher_hmc", "am", "arwmh", "hmc", "mala", "rwm", *PILOTED} == able
    for name in set(samplers.METHODS) - able:
        with pytest.raises(ArgumentError, match=rf"warm is not allowed with method='{name}'.*fisher_hmc"):
            draw(data=NEW, method=name, warm=earlier)


def test_what_methods_say_is_what_they_have() -> None:
    for name in samplers.METHODS:
        module: Any = samplers.sampler(name)
        takes = what_it_takes(module.FACTS)
        assert hasattr(module, "take_over") == (takes == METRIC), name
        if takes == STEP_SIZE:
            assert "initial_step_size" in module.Settings._fields


def test_auto_begins_warm_as_the_method_that_it_takes(earlier: Any) -> None:
    idata = draw(data=NEW, method="auto", warm=earlier)
    assert attributes(idata)["method"] == "fisher_hmc"
    assert learnt(idata, "warmup_iterations").max() <= 100


def test_coordinates_are_kept_in_results_and_taken_up(funnel: Any, tmp_path: Path) -> None:
    table = learnt(funnel, "transport")
    assert table.shape[0] == 2
    assert table.shape[1] >= 6
    idata = draw(FUNNEL, warm=funnel, warmup=0, draws=10)
    np.testing.assert_array_equal(learnt(idata, "transport"), table)
    np.testing.assert_allclose(learnt(idata, "preconditioner"), learnt(funnel, "preconditioner"), rtol=1e-9)
    assert "coordinates" in attributes(idata)["warm"]
    path = tmp_path / "earlier.nc"
    write(funnel, path)
    runs = [x(draw(FUNNEL, warm=given)) for given in (funnel, path, str(path))]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_random_walks_move_in_the_coordinates_that_were_learnt(funnel: Any) -> None:
    """Without them a random walk does not reach the neck of a funnel."""
    idata = draw(FUNNEL, method="arwmh", warm=funnel, draws=20_000)
    v = datasets(idata)["posterior"]["v"].values
    assert abs(v.mean()) < 0.5
    assert 2.6 < v.std() < 3.4


def test_coordinates_that_are_switched_off_are_not_taken(funnel: Any) -> None:
    idata = draw(FUNNEL, warm=funnel, settings={"transport": "off"}, draws=10)
    assert np.all(learnt(idata, "scale_head") == -1)
    assert "transport" not in datasets(idata)["adaptation"]
    assert "coordinates" not in attributes(idata)["warm"]


def test_coordinates_that_a_result_lacks_leave_its_metric_without_use(funnel: Any) -> None:
    """The metric is that of other coordinates then; the covariance of the draws takes its place."""
    cut = change(funnel, "adaptation", lambda group: group.drop_vars("transport"))
    idata = draw(FUNNEL, warm=cut, method="am", warmup=0, draws=10)
    points = np.concatenate([datasets(funnel)["posterior"]["v"].values[..., None], x(funnel)], axis=2)
    cov = np.cov(points.reshape(-1, 7).T)
    np.testing.assert_allclose(learnt(idata, "preconditioner")[0], cov, rtol=1e-9)


@pytest.mark.parametrize("method", ["fisher_hmc", "fisher_mala", "arwmh"])
def test_draws_depend_on_the_seed_alone(method: str, earlier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**keywords: Any) -> np.ndarray:
        return x(draw(data=NEW, method=method, warm=earlier, chains=5, warmup=300, **keywords))

    one = run(workers=1)
    np.testing.assert_array_equal(run(workers=2), one)
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 1e-5)
    np.testing.assert_array_equal(run(workers=2, save_warmup=True), one)


def test_processes_draw_the_same(earlier: Any) -> None:
    draws = []
    for threads in (False, True):
        target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 3, lambda x: -x, threads=threads)
        draws.append(x(draw(target, warm=earlier, workers=2, draws=20)))
    np.testing.assert_array_equal(*draws)


def test_a_run_without_it_is_what_it_was(earlier: Any) -> None:
    np.testing.assert_array_equal(x(draw(data=NEW)), x(draw(data=NEW, warm=None)))


def test_findings_of_the_earlier_run_are_told_in_a_line(earlier: Any) -> None:
    def move(group: xarray.Dataset) -> xarray.Dataset:
        return group.assign(x=group["x"] + xarray.DataArray([0.0, 0.0, 0.0, 9.0], dims="chain"))

    apart = change(earlier, "posterior", move)
    with pytest.warns(StanAdaptWarning, match=r"^warm: the earlier run has findings \(r_hat, apart.*\)"):
        stanadapt.sample(PROGRAM, NEW, method="fisher_hmc", warm=apart, seed=1, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stanadapt.sample(PROGRAM, NEW, method="fisher_hmc", warm=earlier, seed=1, progress=False)


def _without_chains(idata: Any) -> Any:
    return change(idata, "adaptation", lambda group: group.isel(chain=[0, 1]))


def _nan(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values[2, 0, 0] = np.nan
    return values


def _rename_method(idata: Any) -> Any:
    groups = {name: each.assign_attrs(method="newer") for name, each in datasets(idata).items()}
    return container(groups, attributes(idata))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "number": (lambda _: 3, r"warm=3 is not allowed: warm must be an earlier InferenceData"),
    "dict": (lambda _: {"x": 1}, r"warm=.*is not allowed: warm must be an earlier InferenceData"),
    "path": (lambda _: "/nowhere/fit.nc", r"warm: /nowhere/fit.nc: there is no such file"),
    "file": (lambda _: __file__, r"warm: .*test_warm.py cannot be read"),
    "nothing learnt": (
        lambda idata: change(idata, "adaptation", lambda _: None),
        "no group named adaptation",
    ),
    "no posterior": (lambda idata: change(idata, "posterior", lambda _: None), "no draws in its posterior"),
    "unfinished": (
        lambda idata: change(idata, "posterior", lambda group: group.isel(draw=slice(0))),
        "stopped before its warm-up had ended",
    ),
    "method": (_rename_method, "drawn by the method 'newer'"),
    "chains": (_without_chains, "draws of 4 chains, and what other chains have learnt"),
    "NaN": (
        lambda idata: alter_learnt(idata, "preconditioner", _nan),
        "the preconditioner that chain 2 has learnt is not finite and positive",
    ),
    "negative": (lambda idata: alter_learnt(idata, "preconditioner", np.negative), "not finite and positive"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input(what: str, earlier: Any, never_runs: None) -> None:
    alter, said = REFUSED[what]
    with pytest.raises(ArgumentError, match=said):
        draw(data=NEW, warm=alter(earlier))


OTHERS = {
    "parameters { vector[3] y; } model { y ~ std_normal(); }": "warm lacks the parameter y of the model",
    "parameters { vector[4] x; } model { x ~ std_normal(); }": r"with shape \(3,\), and the model declares",
    "parameters { simplex[3] x; } model { }": "3 unconstrained parameters, and the model 2: warm has x.3",
    "parameters { vector[3] x; real z; } model { z ~ std_normal(); }": "warm lacks the parameter z",
}


@pytest.mark.parametrize(("program", "said"), OTHERS.items())
def test_other_parameters(program: str, said: str, earlier: Any, never_runs: None) -> None:
    with pytest.raises(ArgumentError, match=said):
        draw(program, warm=earlier)


def test_more_parameters_than_the_model_has() -> None:
    more = draw("parameters { vector[3] x; real z; } model { x ~ std_normal(); z ~ std_normal(); }")
    with pytest.raises(ArgumentError, match="4 unconstrained parameters, and the model 3: warm has z, which"):
        draw(data=NEW, warm=more)


def test_faithful_runs_begin_with_nothing(earlier: Any, never_runs: None) -> None:
    with pytest.raises(ArgumentError, match="warm is not allowed with faithful=True"):
        draw(data=NEW, method="mala", warm=earlier, settings={"faithful": True})


def _broken(column: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def alter(tables: np.ndarray) -> np.ndarray:
        tables = tables.copy()
        tables[0, -1, column] = value
        return tables

    return alter


BROKEN = [(KIND, 7.0), (OWN, 99.0), (OWN, 1.5), (OWN, 0.0), (SCALE, -3.0), (SCALE, 6.0), (ROWS, 9.0)]


@pytest.mark.parametrize(("column", "value"), BROKEN)
def test_coordinates_that_are_no_map_are_refused(
    column: int, value: float, funnel: Any, never_runs: None
) -> None:
    """Before kernels see them: a place outside of the arrays would be read from anywhere in memory."""
    with pytest.raises(ArgumentError, match="warm: the transport of chain 0 is no map of 7 coordinates"):
        draw(FUNNEL, warm=alter_learnt(funnel, "transport", _broken(column, value)))


def test_maps_are_told_from_other_tables() -> None:
    table = learn_funnel()
    d = 8
    assert is_map(table, d)
    assert is_map(no_transport(), d)
    assert not is_map(table, 7)
    assert not is_map(table[:, :-1], d)
    assert not is_map(table[::-1].copy(), d)
    assert not is_map(np.concatenate((table, table)), d)
    assert not is_map(np.where(table == table[0, ROWS], 2.0, table), d)
    assert not is_map(np.full_like(table, np.nan), d)


@pytest.mark.parametrize("d", [3, 40, 150])
@pytest.mark.parametrize("form", ["dense", "auto", "low_rank"])
def test_metric_of_a_matrix(d: int, form: str) -> None:
    rng = np.random.default_rng(1)
    scale, directions = np.geomspace(0.1, 10.0, d), np.linalg.qr(rng.normal(size=(d, 2)))[0]
    cov = (np.eye(d) + directions @ np.diag([9.0, -0.6]) @ directions.T) * np.outer(scale, scale)
    metric = metric_of(cov, dense=form == "dense", compressing=form == "auto")
    ratios = np.linalg.eigvals(np.linalg.solve(cov, as_matrix(metric))).real
    if form == "dense" or (form == "auto" and d == 3):
        np.testing.assert_allclose(as_matrix(metric), cov, rtol=1e-8, atol=1e-10)
        assert len(metric.inverse_mass) == d
    elif d > 3:
        assert not len(metric.inverse_mass)
        assert ratios.min() > 1 / 1.6
        assert ratios.max() < 1.6
    assert (len(metric.chol_t) == d) == (form == "dense" or (form == "auto" and d <= 100))


@pytest.mark.parametrize("form", ["dense", "auto", "low_rank"])
@pytest.mark.parametrize("d", [3, 150])
def test_metric_of_a_diagonal_and_of_no_covariance(form: str, d: int) -> None:
    variances = np.geomspace(0.1, 10.0, d)
    indefinite = np.diag(variances)
    indefinite[0, 1] = indefinite[1, 0] = 100.0
    for given in (variances, indefinite):
        metric = metric_of(given, dense=form == "dense", compressing=form == "auto")
        np.testing.assert_allclose(as_matrix(metric), np.diag(variances), rtol=1e-9, atol=1e-12)


def test_large_results_have_the_diagonal_and_that_is_taken() -> None:
    program = "data { int d; } parameters { vector[d] x; } model { x ~ normal(0, 3); }"
    run = {"data": {"d": 1_001}, "draws": 30, "settings": {"curvature": False}}
    first = draw(program, seed=1, warmup=100, **run)
    assert "preconditioner" not in datasets(first)["adaptation"]
    second = draw(program, warm=first, warmup=0, **run)
    expected = learnt(first, "preconditioner_diagonal")
    np.testing.assert_allclose(learnt(second, "preconditioner_diagonal"), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["preconditioner", "final_step_size"])
def test_words_in_place_of_numbers_are_refused(name: str, earlier: Any) -> None:
    words = alter_learnt(earlier, name, lambda values: np.full(values.shape, "x"))
    with pytest.raises(ArgumentError, match="warm is damaged"):
        draw(warm=words)
