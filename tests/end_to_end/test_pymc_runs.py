"""Runs of PyMC models: the right posterior, the groups that pm.sample gives, stores, processes, clusters."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from moments import LEVEL, z_scores
from stanadapt.errors import ArgumentError, FindingsWarning, StanAdaptWarning, StoreError
from stanadapt.model.backends.pymc.pymc_model import PyMCTarget
from stanadapt.result.container import datasets

pm = pytest.importorskip("pymc", reason="PyMC is not installed: pip install 'stanadapt[pymc]'")

from scipy import stats  # noqa: E402

from pymc_cases import EFFECTS, Twice, exact_normal, normal, own_op, schools  # noqa: E402

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools"
SHORT = {"chains": 3, "warmup": 60, "draws": 40, "seed": 3, "progress": False, "method": "mala"}


def sample(model, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, **(SHORT | keywords))


def assert_same(one, other):
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group in set(ones) - {"adaptation"}:
        assert set(ones[group]) == set(others[group])
        for name in ones[group]:
            np.testing.assert_array_equal(ones[group][name], others[group][name], err_msg=name)


def columns(idata, names):
    posterior = datasets(idata)["posterior"]
    values = [posterior[name].values for name in names]
    return np.concatenate([each.reshape(*each.shape[:2], -1) for each in values], axis=2)


@pytest.fixture(scope="module")
def model():
    return schools()


def test_draws_have_the_moments_of_the_stan_program(model):
    # In 2,000 draws the mean of the squares of tau, which has a long tail, is not normal yet.
    run = {"method": "fisher_hmc", "chains": 4, "warmup": 600, "draws": 8_000}
    draws = columns(sample(model, **run), ("mu", "tau", "theta_trans", "theta"))
    truth = json.loads((SCHOOLS / "truth.json").read_text())["moments"]
    known = {
        key: np.concatenate([np.ravel(truth[name][key]) for name in ("mu", "tau", "theta_trans", "theta")])
        for key in ("mean", "sd", "mcse_mean", "mcse_sd")
    }
    squares = (draws - known["mean"]) ** 2 / known["sd"] ** 2
    z = np.concatenate(
        [
            z_scores(draws, known["mean"], known["mcse_mean"]),
            z_scores(squares, np.ones(draws.shape[2]), 2.0 * known["mcse_sd"] / known["sd"]),
        ]
    )
    assert np.max(np.abs(z)) < stats.norm.isf(LEVEL / 2 / z.size)


def test_other_data_are_fitted_without_compiling(capfd):
    model = normal()
    run = {"method": "fisher_hmc", "warmup": 300, "draws": 1500, "progress": True}
    lines = []
    for data in ([1.0, 2.0, 4.0], [-3.0, 0.0, 1.0, 2.0, 9.0]):
        with model:
            pm.set_data({"data": data})
        idata = sample(model, **run)
        lines.append([line for line in capfd.readouterr().err.splitlines() if "PyMC" in line])
        mean, sd = exact_normal(np.array(data))
        draws = columns(idata, ["mu"])
        z = [*z_scores(draws, np.array([mean])), *z_scores((draws - mean) ** 2 / sd**2, np.ones(1))]
        assert np.max(np.abs(z)) < stats.norm.isf(LEVEL / 2 / 2)
        np.testing.assert_array_equal(datasets(idata)["observed_data"]["y"], data)
    assert lines[1] == []
    assert set(lines[0]) <= {"stanadapt: compiling PyMC's model, once a session"}


def test_groups_are_those_of_pymc(model):
    asked = {"log_likelihood": "y", "posterior_predictive": "y"}
    ours = datasets(sample(model, **asked))
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick = {"draws": 5, "tune": 0, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
        step = pm.Metropolis(compile_kwargs={"mode": "FAST_COMPILE"})
        mode = {"mode": "FAST_COMPILE"}
        theirs = pm.sample(step=step, compute_convergence_checks=False, compile_kwargs=mode, **quick)
        pm.compute_log_likelihood(theirs, progressbar=False, compile_kwargs=mode)
        pm.sample_posterior_predictive(
            theirs, extend_inferencedata=True, progressbar=False, random_seed=1, compile_kwargs=mode
        )
    theirs = datasets(theirs)
    assert set(theirs) - set(ours) == set()
    for name in set(theirs) - {"sample_stats"}:
        own, other = ours[name].drop_attrs(), theirs[name].drop_attrs()
        assert set(own.data_vars) == set(other.data_vars), name
        for variable in own.data_vars:
            assert own[variable].dims == other[variable].dims, (name, variable)
            assert own[variable].dtype == other[variable].dtype, (name, variable)
        assert list(own["school"].values) == list(other["school"].values)
        assert set(own.coords) == set(other.coords)
    for name in ("observed_data", "constant_data"):
        for variable, values in theirs[name].items():
            np.testing.assert_array_equal(ours[name][variable], values)
    ours = datasets(sample(model, **asked))  # PyMC 5 leaves the model with its observed variables twice
    theta, likelihood = ours["posterior"]["theta"], ours["log_likelihood"]["y"]
    expected = stats.norm.logpdf(EFFECTS, theta.values, ours["constant_data"]["sigma"].values)
    np.testing.assert_allclose(likelihood, expected)


def test_missing_values():
    """PyMC draws them, and new data have the shape of all data, or of those that were observed."""
    data = np.array([[0.5, 1.0], [np.nan, 2.0], [1.5, np.nan], [0.0, -1.0]])
    missing = np.isnan(data)
    with pm.Model(coords={"row": list("abcd"), "side": ["left", "right"]}) as model:
        mu = pm.Normal("mu", shape=2)
        pm.Normal("x", mu, 1.0, observed=data, dims=("row", "side"))
        pm.MvNormal("y", mu, cov=np.eye(2), observed=data, dims=("row", "side"))
    likely = ["x_observed", "y_observed"]
    groups = datasets(sample(model, log_likelihood=likely, posterior_predictive=["x", "y", "x_observed"]))
    drawn = groups["posterior"]
    for name in ("x", "y"):
        new = groups["posterior_predictive"][name]
        assert new.dims == drawn[name].dims == ("chain", "draw", "row", "side")
        assert list(new["row"].values) == list("abcd")
        np.testing.assert_array_equal(drawn[name].values[..., ~missing], np.tile(data[~missing], (3, 40, 1)))
        np.testing.assert_array_equal(new.values[..., missing], drawn[f"{name}_unobserved"])
        assert not np.any(new.values[..., ~missing] == data[~missing])
    observed = groups["posterior_predictive"]["x_observed"]
    np.testing.assert_array_equal(groups["posterior_predictive"]["x"].values[..., ~missing], observed)
    assert groups["log_likelihood"]["x_observed"].shape == (3, 40, 6)
    found = groups["log_likelihood"]["y_observed"].values  # PyMC's has one value a row
    away = np.where(missing, drawn["y"].values, data) - drawn["mu"].values[..., None, :]
    np.testing.assert_allclose(found, stats.norm.logpdf(away).sum(axis=-1))
    with pytest.raises(ArgumentError, match="log_likelihood must be one of x_observed, y_observed"):
        sample(model, log_likelihood="y")


def test_draws_do_not_depend_on_threads_or_blocks(model, monkeypatch):
    asked = {"log_likelihood": "y", "posterior_predictive": "y", "save_warmup": True}
    one, several = sample(model, workers=1, **asked), sample(model, workers=3, **asked)
    assert_same(one, several)
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 0.0)
    assert_same(one, sample(model, workers=1, **asked))


def test_runs_in_a_store_go_on(model, tmp_path):
    asked = {"log_likelihood": "y", "posterior_predictive": "y"}
    whole = sample(model, **asked)
    sample(model, store=tmp_path / "run", draws=15, **asked)
    with pytest.raises(ArgumentError, match="pass the same model again"):
        stanadapt.extend(tmp_path / "run", 25, progress=False)
    with pytest.raises(StoreError, match="another model"):
        stanadapt.extend(tmp_path / "run", 25, normal(), progress=False)
    other = schools()
    with other:
        pm.set_data({"sigma": np.ones(8)})
    with pytest.raises(StoreError, match="other data"):
        stanadapt.extend(tmp_path / "run", 25, other, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        longer = stanadapt.extend(tmp_path / "run", 25, schools(), progress=False)
    assert_same(whole, longer)
    assert_same(whole, stanadapt.load(tmp_path / "run"))


def test_an_op_that_numba_does_not_know_runs_in_processes():
    model = own_op(Twice())
    with pytest.warns(StanAdaptWarning, match="chains run in processes"):
        apart = sample(model, workers=2)
    assert_same(apart, sample(model, workers=1))


def test_models_go_to_a_cluster(model):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        there = sample(model, cluster=client, posterior_predictive="y")
    assert_same(there, sample(model, posterior_predictive="y"))


def test_many_fits(model):
    other = schools()
    with other:
        pm.set_data({"sigma": np.full(8, 3.0)})
    fits = {"first": (model, None), "second": (other, None)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        run = {name: value for name, value in SHORT.items() if name not in ("seed", "progress")}
        found = dict(stanadapt.sample_many(None, fits, seed=1, workers=1, progress=False, **run))
    spread = {key: float(datasets(each)["posterior"]["theta"].std()) for key, each in found.items()}
    assert set(spread) == {"first", "second"}
    assert spread["second"] > spread["first"]


@pytest.mark.parametrize("method", ["rwm", "auto"])
def test_other_methods(method, model):
    idata = sample(model, method=method, warmup=300, draws=100)
    assert np.all(np.isfinite(columns(idata, ["mu", "tau", "theta"])))


def test_a_run_begins_where_an_earlier_one_ended(model):
    first = sample(model, method="fisher_hmc", warmup=300, draws=100)
    again = sample(model, method="fisher_hmc", warm=first, draws=100)
    assert float(datasets(again)["adaptation"]["warmup_iterations"].max()) < 300
    ended = sample(model, inits=first)
    last = PyMCTarget(model)
    for i in range(3):
        draw = {
            name: datasets(first)["posterior"][name].values[i, -1] for name in ("mu", "tau", "theta_trans")
        }
        np.testing.assert_allclose(datasets(ended)["adaptation"]["start"][i], last.unconstrain(draw))


def test_quantities_over_saved_draws():
    """Random numbers depend on the seed alone, and the log likelihood is that of PyMC's normal law."""
    y = np.array([1.0, 2.0, 4.0])
    with pm.Model(coords={"obs": ["a", "b", "c"]}) as model:
        mu, s = pm.Normal("mu", 0, 5), pm.HalfNormal("s", 2)
        pm.Deterministic("twice", 2 * mu)
        pm.Normal("y", mu, s, observed=y, dims="obs")
    fit = sample(model)
    made, again = (
        stanadapt.generate_quantities(
            model,
            fit,
            seed=3,
            workers=workers,
            log_likelihood="y",
            posterior_predictive="y",
            progress=False,
        )
        for workers in (1, 2)
    )
    assert_same(made, again)
    groups, drawn = datasets(made), datasets(fit)["posterior"]
    np.testing.assert_allclose(groups["posterior"]["twice"], 2 * drawn["mu"], rtol=1e-12)
    expected = stats.norm(drawn["mu"].values[..., None], drawn["s"].values[..., None]).logpdf(y)
    np.testing.assert_allclose(groups["log_likelihood"]["y"], expected, rtol=1e-10)
    assert groups["posterior_predictive"]["y"].dims == ("chain", "draw", "obs")
    new = stanadapt.generate_quantities(model, fit, seed=3, predictions="y", progress=False)
    np.testing.assert_array_equal(datasets(new)["predictions"]["y"], groups["posterior_predictive"]["y"])
