"""A run that begins with what the chains of a CmdStanPy fit have learnt."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pytest

import fake_cmdstan
import stanadapt
from stanadapt.diagnostics.earlier import begin_from
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.result.container import attributes, datasets
from stanadapt.result.formats.cmdstan_fit import read_fit

PROGRAM = """
data { int d; vector[d] s; real rho; }
parameters { vector[d] x; real<lower=0> t; }
model { x ~ normal(0, s); x[1] ~ normal(rho * x[2], s[1]); t ~ gamma(9, 3); }
generated quantities { real y = normal_rng(x[1], 1); }
"""
DATA = {"d": 3, "s": [1.0, 3.0, 0.1], "rho": 0.3}


def draw(warm: Any, method: str = "fisher_hmc", data: Any = DATA, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        run = {"chains": 2, "draws": 200, "seed": 5, "progress": False}
        return stanadapt.sample(PROGRAM, data, method=method, warm=warm, **(run | keywords))


def learnt(idata: Any, name: str) -> np.ndarray:
    return np.asarray(datasets(idata)["adaptation"][name].values)


def fit_by_cmdstan(folder: Path, metric: str, **keywords: Any) -> cmdstanpy.CmdStanMCMC:
    path = folder / "model.stan"
    path.write_text(PROGRAM)
    model = cmdstanpy.CmdStanModel(stan_file=path, exe_file=fake_cmdstan.make(path))
    run: dict[str, Any] = {"chains": 4, "iter_warmup": 500, "iter_sampling": 300, "seed": 1, "sig_figs": 18}
    run |= {"metric": metric, "max_treedepth": 10, "adapt_engaged": True, "show_progress": False}
    return model.sample(
        data=DATA, output_dir=folder, inits={"x": [0.1, 0.2, 0.1], "t": 2.0}, **(run | keywords)
    )


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, cmdstanpy.CmdStanMCMC]:
    kinds = ("diag_e", "dense_e")
    return {kind: fit_by_cmdstan(tmp_path_factory.mktemp(kind), kind) for kind in kinds}


@pytest.mark.parametrize("kind", ["diag_e", "dense_e"])
def test_what_is_read(kind: str, fits: dict[str, cmdstanpy.CmdStanMCMC]) -> None:
    fit = fits[kind]
    groups = datasets(read_fit(fit))
    drawn = fit.draws_xr()
    for name in ("x", "t", "y"):
        np.testing.assert_array_equal(groups["posterior"][name].values, drawn[name].values)
    np.testing.assert_array_equal(groups["sample_stats"]["lp"].values, fit.method_variables()["lp__"].T)
    assert groups["sample_stats"]["diverging"].dtype == bool
    warm = begin_from(fit)
    assert warm.method == "nuts"
    np.testing.assert_array_equal(warm.metric, fit.inv_metric)
    np.testing.assert_array_equal(warm.step_size, fit.step_size)
    assert stanadapt.diagnose(read_fit(fit)) == []


@pytest.mark.parametrize("kind", ["diag_e", "dense_e"])
def test_fisher_hmc_begins_with_metric_and_step_size(
    kind: str, fits: dict[str, cmdstanpy.CmdStanMCMC]
) -> None:
    fit = fits[kind]
    bare = draw(fit, warmup=0, draws=10)
    metrics = fit.inv_metric[:2]
    expected = metrics if kind == "dense_e" else np.stack([np.diag(metric) for metric in metrics])
    np.testing.assert_allclose(learnt(bare, "preconditioner"), expected, rtol=1e-8, atol=1e-12)
    # A step of this method takes two gradients, and is at most a trajectory.
    np.testing.assert_allclose(learnt(bare, "final_step_size"), np.minimum(2 * fit.step_size[:2], 1.9))
    idata = draw(fit, chains=4, draws=1_000)
    assert learnt(idata, "warmup_iterations").max() <= 160
    said = attributes(idata)["warm"]
    assert said.startswith("starts, metric, step size of nuts, seed 1, model ")
    assert [finding.kind for finding in stanadapt.diagnose(idata)] == []
    starts, drawn = learnt(idata, "start"), fit.draws_xr()["x"].values
    for chain, start in enumerate(starts):
        assert np.isclose(drawn[chain], start[:3], rtol=1e-12).all(axis=1).any()


def test_hmc_takes_a_step_as_short_as_the_smallest_scale_needs(
    fits: dict[str, cmdstanpy.CmdStanMCMC],
) -> None:
    for fit in fits.values():
        metrics = fit.inv_metric[:2]
        smallest = metrics.min(axis=1) if metrics.ndim == 2 else np.linalg.eigvalsh(metrics)[:, 0]
        idata = draw(fit, "hmc", warmup=0, draws=200)
        np.testing.assert_allclose(learnt(idata, "final_step_size"), fit.step_size[:2] * np.sqrt(smallest))
        assert attributes(idata)["warm"].startswith("starts, step size of nuts")
        assert datasets(idata)["sample_stats"]["acceptance_rate"].values.mean() > 0.6


@pytest.mark.parametrize("method", ["fisher_mala", "amala", "arwmh"])
def test_other_methods_take_the_metric(method: str, fits: dict[str, cmdstanpy.CmdStanMCMC]) -> None:
    idata = draw(fits["dense_e"], method)
    assert attributes(idata)["warm"].startswith("starts, metric of nuts")
    cold = draw(None, method)
    assert attributes(idata)["tuning_steps"] < attributes(cold)["tuning_steps"]
    if method != "arwmh":
        assert {"pilot_window_1", "pilot_window_2"} & set(learnt(idata, "stage"))


@pytest.mark.parametrize("method", ["mala", "rwm"])
def test_steps_of_another_kind_are_not_taken(method: str, fits: dict[str, cmdstanpy.CmdStanMCMC]) -> None:
    assert attributes(draw(fits["diag_e"], method))["warm"].startswith("starts of nuts")


def test_files_that_were_exported_begin_as_the_result_itself(tmp_path: Path) -> None:
    """Also of a method that is not Stan's, whose step size is its own then."""
    for method in ("fisher_hmc", "hmc", "nuts"):
        idata = draw(None, method, warmup=300)
        paths = stanadapt.export(idata, tmp_path / f"{method}.csv", "stancsv")
        fit = cmdstanpy.from_csv([str(path) for path in paths])
        again = [
            draw(given, method if method != "nuts" else "fisher_hmc", warmup=0) for given in (idata, fit)
        ]
        np.testing.assert_array_equal(*(learnt(each, "final_step_size") for each in again))
        np.testing.assert_allclose(*(datasets(each)["posterior"]["x"].values for each in again), rtol=1e-8)


def test_many_fits_begin_with_it(fits: dict[str, cmdstanpy.CmdStanMCMC]) -> None:
    run = {"method": "fisher_hmc", "chains": 2, "draws": 100, "seed": 1, "progress": False, "workers": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        found = dict(stanadapt.sample_many(PROGRAM, {"a": DATA}, warm=fits["diag_e"], **run))
    assert attributes(found["a"])["warm"].startswith("starts, metric, step size of nuts")


def test_a_fit_of_another_model_is_refused(fits: dict[str, cmdstanpy.CmdStanMCMC]) -> None:
    with pytest.raises(ArgumentError, match=r"parameter x with shape \(3,\), and the model declares \(4,\)"):
        draw(fits["diag_e"], data=DATA | {"d": 4, "s": [1.0, 1.0, 1.0, 1.0]})
    simplex = "parameters { simplex[3] x; real<lower=0> t; } model { t ~ exponential(1); }"
    with pytest.raises(ArgumentError, match="metric for 4 unconstrained parameters, and the model has 3"):
        stanadapt.sample(simplex, method="fisher_hmc", warm=fits["diag_e"], progress=False)


def test_fits_that_have_learnt_nothing_are_refused(
    fits: dict[str, cmdstanpy.CmdStanMCMC], tmp_path: Path
) -> None:
    fit = fits["diag_e"]
    paths = []
    for path in fit.runset.csv_files:
        text = Path(path).read_text().replace("algorithm = hmc (Default)", "algorithm = fixed_param")
        paths.append(tmp_path / Path(path).name)
        paths[-1].write_text(text)
    held = cmdstanpy.from_csv([str(path) for path in paths])
    with pytest.raises(ArgumentError, match="fixed_param: its chains have learnt nothing"):
        draw(held)
