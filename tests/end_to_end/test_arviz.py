"""A result works with ArviZ: its statistics, its plots and its files, in both versions.

ArviZ 0.23 and 1.x name some of these differently, and 1.x has no waic.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arviz
import matplotlib
import numpy as np
import pytest
import xarray

import stanadapt
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.result.container import attributes, datasets, has_datatree

matplotlib.use("Agg")

N = 20
PROGRAM = """
data { int n; vector[n] y; }
parameters { real mu; real<lower=0> sigma; vector[3] z; }
model {
  mu ~ normal(0, 5); sigma ~ exponential(1); z ~ std_normal();
  target += -n * log(sigma) - dot_self(y - mu) / (2 * square(sigma));
}
generated quantities {
  vector[n] log_lik;
  array[n] real y_rep = normal_rng(rep_vector(mu, n), sigma);
  for (i in 1:n) log_lik[i] = normal_lpdf(y[i] | mu, sigma);
}
"""
DATA = {"n": N, "y": np.random.default_rng(1).normal(1.0, 2.0, N)}
OLD = pytest.mark.skipif(has_datatree(), reason="ArviZ 1.x has it no longer")
NEW = pytest.mark.skipif(not has_datatree(), reason="ArviZ 1.x has it")

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def draw(method: str, **keywords: Any) -> Any:
    named = {"log_likelihood": {"y": "log_lik"}, "posterior_predictive": {"y": "y_rep"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        run = {"chains": 4, "draws": 300, "seed": 1, "progress": False}
        return stanadapt.sample(PROGRAM, DATA, method=method, **(run | named | keywords))


@pytest.fixture(scope="module")
def idata() -> Any:
    return draw("fisher_hmc")


@pytest.fixture(scope="module")
def other() -> Any:
    return draw("hmc", warmup=500)


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    yield
    matplotlib.pyplot.close("all")


def axes(drawn: Any) -> list[Any]:
    """The axes of what a plot of either version returns."""
    if hasattr(drawn, "viz"):  # a PlotCollection
        return matplotlib.pyplot.gcf().axes
    return list(np.atleast_1d(drawn).flat)


def lines(drawn: Any) -> int:
    return sum(len(ax.lines) for ax in axes(drawn))


def elpd_exactly(idata: Any) -> float:
    """Of each observation the logarithm of its mean likelihood."""
    likelihood = datasets(idata)["log_likelihood"]["y"].values.reshape(-1, N)
    return float(np.log(np.exp(likelihood).mean(axis=0)).sum())


def test_loo(idata: Any) -> None:
    found = arviz.loo(idata, pointwise=True)
    elpd = float(found.elpd if has_datatree() else found.elpd_loo)
    # Leaving an observation out costs about the effective number of parameters, mu and sigma.
    assert 0.5 < elpd_exactly(idata) - elpd < 4.0
    assert np.asarray(found.pareto_k).shape == (N,)
    assert np.asarray(found.pareto_k).max() < 0.7


@OLD
def test_waic(idata: Any) -> None:
    found = arviz.waic(idata)
    assert 0.5 < elpd_exactly(idata) - found.elpd_waic < 4.0


def test_compare(idata: Any, other: Any) -> None:
    table = arviz.compare({"fisher_hmc": idata, "hmc": other})
    assert set(table.index) == {"fisher_hmc", "hmc"}
    elpd = table["elpd" if has_datatree() else "elpd_loo"]
    assert abs(elpd["fisher_hmc"] - elpd["hmc"]) < 0.3


def test_summary_is_ours(idata: Any) -> None:
    theirs, ours = arviz.summary(idata, round_to="none"), stanadapt.summary(idata)
    np.testing.assert_allclose(theirs["r_hat"].to_numpy(float), ours["r_hat"].to_numpy(), rtol=1e-6)
    np.testing.assert_allclose(theirs["ess_bulk"].to_numpy(float), ours["ess_bulk"].to_numpy(), rtol=1e-6)


def test_plot_trace(idata: Any) -> None:
    drawn = arviz.plot_trace(idata, var_names=["mu", "z"])
    assert lines(drawn) >= 4 * 4  # a line for each chain of each of four scalars


def test_plot_rank(idata: Any) -> None:
    drawn = arviz.plot_rank(idata, var_names=["mu", "sigma"])
    assert len(axes(drawn)) >= 2
    assert sum(len(ax.patches) + len(ax.lines) + len(ax.collections) for ax in axes(drawn)) >= 8


@pytest.mark.parametrize("method", ["fisher_hmc", "hmc"])
def test_plot_energy(method: str, idata: Any, other: Any) -> None:
    result = {"fisher_hmc": idata, "hmc": other}[method]
    drawn = arviz.plot_energy(result)
    assert sum(len(ax.lines) + len(ax.collections) + len(ax.patches) for ax in axes(drawn)) >= 2
    found = arviz.bfmi(result)
    bfmi = found["energy"].values if has_datatree() else found
    assert np.shape(bfmi) == (4,)
    assert np.all(np.asarray(bfmi) > 0.3)


@OLD
def test_plot_ppc(idata: Any) -> None:
    (ax,) = axes(arviz.plot_ppc(idata, num_pp_samples=30))
    assert lines(ax) >= 2  # of the data and of the mean over draws
    assert ax.get_xlabel() == "y"


@NEW
def test_plot_ppc_dist(idata: Any) -> None:
    drawn = arviz.plot_ppc_dist(idata, num_samples=30)
    assert lines(drawn) >= 31
    assert "y" in [ax.get_title() for ax in axes(drawn)]


def test_plot_loo_pit(idata: Any) -> None:
    """It takes data, replicated data and likelihood by the one name that all of them have."""
    drawn = arviz.plot_loo_pit(idata) if has_datatree() else arviz.plot_loo_pit(idata, y="y")
    assert lines(drawn) >= 1


def check_same(read: Any, idata: Any) -> None:
    ours = datasets(idata)
    theirs = {name: each.load() for name, each in datasets(read).items()}
    assert set(theirs) == set(ours)
    for name, group in ours.items():
        assert {str(each) for each in theirs[name].data_vars} == {str(each) for each in group.data_vars}
        for variable, values in group.data_vars.items():
            np.testing.assert_array_equal(theirs[name][variable].values, values.values)
            assert theirs[name][variable].dims == values.dims
        assert theirs[name].attrs["method"] == "fisher_hmc"
    assert attributes(read)["seed"] == 1
    assert stanadapt.diagnose(read) == stanadapt.diagnose(idata)


def test_to_netcdf_and_back(idata: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "fit.nc")
    idata.to_netcdf(path)
    check_same(arviz.from_netcdf(path), idata)


@NEW
def test_to_zarr_and_back(idata: Any, tmp_path: Path) -> None:
    path = tmp_path / "fit.zarr"
    idata.to_zarr(path)
    check_same(xarray.open_datatree(path, engine="zarr"), idata)
    check_same(arviz.from_zarr(path), idata)


@OLD
def test_to_zarr_and_back_by_way_of_a_datatree(idata: Any, tmp_path: Path) -> None:
    """ArviZ 0.23 itself writes no Zarr of version 3, and says that this is the way."""
    path = tmp_path / "fit.zarr"
    with pytest.raises(ImportError, match="to_datatree"):
        idata.to_zarr(str(path))
    idata.to_datatree().to_zarr(path)
    check_same(arviz.InferenceData.from_datatree(xarray.open_datatree(path, engine="zarr")), idata)


def test_names_of_quantities(idata: Any) -> None:
    groups = datasets(idata)
    for name in ("log_likelihood", "posterior_predictive"):
        assert groups[name]["y"].dims == ("chain", "draw", "y_dim_0")
    assert list(groups["observed_data"].data_vars) == ["y"]  # the program itself does not say so
    assert set(groups["posterior"].data_vars) == {"mu", "sigma", "z"}
    expected = '{"log_likelihood": {"y": "log_lik"}, "posterior_predictive": {"y": "y_rep"}}'
    assert attributes(idata)["quantities"] == expected
    plain = draw("fisher_hmc", log_likelihood="log_lik", posterior_predictive=["y_rep"], draws=20)
    assert "quantities" not in attributes(plain)
    assert "constant_data" in datasets(plain)
    assert "y" in datasets(plain)["constant_data"]
    first = datasets(idata)["posterior_predictive"]["y"].values[:, :20]
    np.testing.assert_array_equal(datasets(plain)["posterior_predictive"]["y_rep"].values, first)


def test_a_store_keeps_the_names(tmp_path: Path) -> None:
    kept = draw("fisher_hmc", draws=40, store=tmp_path / "fit")
    stanadapt.extend(tmp_path / "fit", 20, progress=False)
    for read in (kept, stanadapt.load(tmp_path / "fit")):
        assert list(datasets(read)["posterior_predictive"].data_vars) == ["y"]
        assert list(datasets(read)["observed_data"].data_vars) == ["y"]
        assert "y_rep" in attributes(read)["quantities"]
    longer = datasets(stanadapt.load(tmp_path / "fit"))["posterior_predictive"]["y"]
    assert longer.sizes["draw"] == 60
    np.testing.assert_array_equal(longer.values[:, :40], datasets(kept)["posterior_predictive"]["y"].values)


REFUSED = {
    "unknown data": ({"posterior_predictive": {"w": "y_rep"}}, "the data of y_rep='w' is not allowed.*n, y"),
    "unknown quantity": ({"posterior_predictive": {"y": "y_hat"}}, "posterior_predictive='y_hat'.*y_rep"),
    "another shape": ({"posterior_predictive": {"n": "y_rep"}}, r"shape \(20,\), and the data n have \(\)"),
    "twice": ({"log_likelihood": {"y": "log_lik", "n": "log_lik"}}, "made of different generated"),
    "one name": ({"posterior_predictive": ["y=y_rep", "y=log_lik"]}, "made of different generated"),
    "no data": ({"log_likelihood": "=log_lik"}, "log_likelihood='=log_lik' is not allowed"),
    "no quantity": ({"log_likelihood": ["y="]}, "DATA=NAME such as 'y=log_lik'"),
    "no text": ({"log_likelihood": {3: "log_lik"}}, "made of names, which are texts"),
    "dims of the quantity": ({"dims": {"y_rep": ["i"]}}, r"dims\['y_rep'\] is not allowed: y_rep is named y"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_names_that_are_refused(what: str) -> None:
    arguments, said = REFUSED[what]
    with pytest.raises(ArgumentError, match=said):
        draw("fisher_hmc", **arguments)
