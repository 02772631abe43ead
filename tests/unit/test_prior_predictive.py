"""Draws from the prior against closed forms, and the log prior of draws."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray
from click.testing import CliRunner
from scipy import stats

import stanadapt
from stanadapt.cli import main
from stanadapt.errors import ArgumentError, FindingsWarning, ModelError, StanAdaptWarning
from stanadapt.predictive.log_prior import LogPrior
from stanadapt.reports import reproduce
from stanadapt.result.container import attributes, container, datasets, has_datatree, statistics
from stanadapt.result.files import read, write

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools.stan"
SCHOOLS_DATA = MODELS / "eight_schools" / "eight_schools.json"

CONJUGATE = """
data { int N; vector[N] y; real<lower=0> sd_mu; }
parameters { real mu; real<lower=0> s2; }
model { mu ~ normal(1, sd_mu); s2 ~ inv_gamma(5, 4); y ~ normal(mu, sqrt(s2)); }
generated quantities { vector[N] y_rep; for (n in 1:N) y_rep[n] = normal_rng(mu, sqrt(s2)); }
"""
FLAGGED = """
data { int N; vector[N] y; int prior_only; }
parameters { real mu; }
model { target += normal_lpdf(mu | 3, 1) + 0 * sum(y); if (!prior_only) target += normal_lpdf(y | mu, 1); }
"""
DATA = {"N": 2, "y": [100.0, 101.0], "sd_mu": 2.0}
TRANSFORMS = """
data { int N; vector[N] y; }
parameters {
  real<lower=0, upper=1> a; simplex[3] p; ordered[2] o; unit_vector[2] u; cov_matrix[2] S;
  vector<lower=1>[2] v;
}
transformed parameters { real logit_a = logit(a); }
model {
  a ~ beta(2, 3); p ~ dirichlet([1, 2, 3]'); o ~ normal(0, 2); S ~ wishart(4, identity_matrix(2));
  for (i in 1:2) v[i] ~ gamma(2, 1) T[1, ];
  target += -log(a);
  y ~ normal(a + p[1] + o[1] + v[1], 1);
}
"""


def draws(result: Any, group: str, name: str) -> np.ndarray:
    """(chain, draw, ...)"""
    return np.asarray(datasets(result)[group][name].values)


@functools.cache
def prior_of(seed: int) -> Any:
    """Four chains; the warnings of an unlucky one are its own."""
    return stanadapt.prior_predictive(
        CONJUGATE, DATA, predictive={"y": "y_rep"}, seed=seed, draws=2_000, progress=False
    )


def thinned(result: Any, group: str, name: str) -> np.ndarray:
    """Every 10th draw: Fisher HMC's are nearly independent by then."""
    return draws(result, group, name)[:, ::10]


@pytest.mark.filterwarnings("ignore::stanadapt.errors.FindingsWarning")
@pytest.mark.parametrize("kind", ["table", "dataset", "categorical in a dict", "file"])
def test_the_flag_is_set_in_labelled_data(kind: str, tmp_path: Path) -> None:
    code = """
    data { int N; int J; array[N] int<lower=1, upper=J> g; vector[N] y; int prior_only; }
    parameters { vector[J] theta; }
    model { theta ~ std_normal(); if (!prior_only) y ~ normal(theta[g], 1); }
    """
    group, y = pandas.Categorical(["b", "a", "b"]), np.ones(3)
    (tmp_path / "data.json").write_text('{"N": 3, "J": 2, "g": [2, 1, 2], "y": [1, 1, 1]}')
    rows = {"g": ("row", [2, 1, 2]), "y": ("row", y), "J": 2}
    given = {
        "table": pandas.DataFrame({"g": group, "y": y}),
        "dataset": xarray.Dataset(rows, coords={"row": ["p", "q", "r"]}),
        "categorical in a dict": {"N": 3, "J": 2, "g": group, "y": y},
        "file": tmp_path / "data.json",
    }[kind]
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False}
    with pytest.warns(StanAdaptWarning):
        prior = stanadapt.prior_predictive(code, given, **run)
    held = datasets(prior)
    assert held["constant_data"]["prior_only"].item() == 1
    labels = held["prior"].coords.get("g")
    assert (None if labels is None else labels.values.tolist()) == (
        None if kind in ("dataset", "file") else ["a", "b"]
    )


def test_what_needs_a_posterior_says_where_the_draws_of_a_prior_are() -> None:
    prior = container({"prior": xarray.Dataset({"mu": (("chain", "draw"), np.zeros((2, 5)))})})
    for read_it in (stanadapt.summary, stanadapt.diagnose, stanadapt.draws_frame, stanadapt.report):
        with pytest.raises(ArgumentError, match=r"arviz\.summary\(idata, group='prior'\) reads"):
            read_it(prior)


def test_the_prior_is_that_of_the_closed_form() -> None:
    """Kolmogorov-Smirnov at level 0.001 each. Of 50 other seeds one has failed, in y, with p = 0.0008."""
    prior = prior_of(1)
    laws = {
        ("prior", "mu"): stats.norm(1, 2).cdf,
        ("prior", "s2"): stats.invgamma(5, scale=4).cdf,
    }
    for (group, name), law in laws.items():
        assert stats.kstest(thinned(prior, group, name).ravel(), law).pvalue > 0.001, name
    # Of y - mu it is a Student t with 10 degrees of freedom, whose scale is the root of 4 / 5.
    y = thinned(prior, "prior_predictive", "y")[..., 0] - thinned(prior, "prior", "mu")
    assert stats.kstest(y.ravel(), stats.t(10, scale=np.sqrt(0.8)).cdf).pvalue > 0.001


@pytest.mark.filterwarnings("ignore::stanadapt.errors.FindingsWarning")
def test_groups_and_facts_of_a_prior() -> None:
    prior = prior_of(1)
    groups, attrs = datasets(prior), attributes(prior)
    assert set(groups) == {
        "prior",
        "prior_predictive",
        "sample_stats_prior",
        "observed_data",
        "constant_data",
    }
    assert list(groups["observed_data"].data_vars) == ["y"]
    assert set(groups["constant_data"].data_vars) == {"N", "sd_mu"}
    assert json.loads(attrs["likelihood_statements"]) == ["y ~ normal(mu, sqrt(s2));"]
    assert attrs["prior_from"] == "the program without its likelihood of y"
    assert attrs["model_code"] == CONJUGATE
    again = stanadapt.prior_predictive(
        CONJUGATE,
        DATA,
        predictive={"y": "y_rep"},
        seed=1,
        draws=2_000,
        workers=1,
        progress=False,
    )
    for group, name in (("prior", "mu"), ("prior_predictive", "y")):
        np.testing.assert_array_equal(draws(again, group, name), draws(prior, group, name))


@pytest.mark.filterwarnings("ignore::stanadapt.errors.FindingsWarning")
def test_a_flag_in_the_data() -> None:
    """mu is normal(3, 1), whatever y is: over 4,000 draws the mean is within 5 standard errors of it."""
    prior = stanadapt.prior_predictive(FLAGGED, {"N": 1, "y": [50.0]}, seed=1, progress=False)
    mu = draws(prior, "prior", "mu")
    assert abs(mu.mean() - 3) < 5 / np.sqrt(mu.size / 4)
    assert attributes(prior)["prior_from"] == "prior_only = 1 in the data"
    assert "prior_predictive" not in datasets(prior)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("parameters { real x; } model { x ~ std_normal(); }", "cannot be told which data are observed"),
        (CONJUGATE.replace("mu ~ normal(1, sd_mu);", ""), "no prior is left for mu"),
        (CONJUGATE.replace("y ~ normal", "y - mu ~ normal"), "whether data or parameters are modelled"),
    ],
)
def test_what_has_no_prior_is_refused(model: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        stanadapt.prior_predictive(model, DATA)


def test_other_models_are_refused_in_words() -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 1)
    with pytest.raises(
        ModelError, match=r"in the text of a Stan program, and it is none.*pymc\.sample_prior"
    ):
        stanadapt.prior_predictive(target)
    with pytest.raises(
        ModelError, match=r"in the text of a Stan program, and it is none.*pymc\.stats\.compute_log_prior"
    ):
        stanadapt.sample(target, log_prior=True, progress=False)
    with pytest.raises(ArgumentError, match="log_prior=1 is not allowed"):
        stanadapt.sample(CONJUGATE, DATA, log_prior=1, progress=False)


def test_arguments_that_are_not_allowed() -> None:
    for arguments, message in (
        ({"observed": "z"}, r"observed='z' is not allowed: observed must be one of N, sd_mu, y"),
        ({"observed": []}, r"observed=\[\] is not allowed"),
        ({"predictive": "z"}, "^predictive='z' is not allowed: predictive must be one of y_rep"),
        ({"chains": 0}, "chains=0 is not allowed"),
    ):
        with pytest.raises(ArgumentError, match=message):
            stanadapt.prior_predictive(CONJUGATE, DATA, progress=False, **arguments)
    with pytest.raises(ArgumentError, match="data are not allowed with a Posterior"):
        stanadapt.prior_predictive(stanadapt.Posterior(CONJUGATE, DATA), DATA)


def test_observed_data_can_be_named() -> None:
    code = CONJUGATE.replace("y ~ normal(mu, sqrt(s2))", "(y - mu) / sqrt(s2) ~ std_normal()")
    prior = stanadapt.prior_predictive(code, DATA, observed="y", seed=1, draws=100, chains=1, progress=False)
    assert json.loads(attributes(prior)["likelihood_statements"]) == ["(y - mu) / sqrt(s2) ~ std_normal();"]
    assert abs(draws(prior, "prior", "mu").mean()) < 10  # and not 100, where the data are


@pytest.fixture(scope="module")
def schools() -> Any:
    return stanadapt.sample(
        SCHOOLS,
        SCHOOLS_DATA,
        method="fisher_hmc",
        seed=1,
        progress=False,
        log_likelihood={"y": "log_lik"},
        log_prior=True,
    )


def test_the_log_prior_of_a_fit(schools: Any) -> None:
    mu, tau, z = (draws(schools, "posterior", name) for name in ("mu", "tau", "theta_trans"))
    expected = stats.norm(0, 5).logpdf(mu) + stats.cauchy(0, 5).logpdf(tau) + stats.norm.logpdf(z).sum(-1)
    np.testing.assert_allclose(draws(schools, "log_prior", "log_prior"), expected, atol=1e-11)


def test_generated_quantities_keep_the_log_prior_of_the_draws(schools: Any) -> None:
    """Also under a program without a prior; the lines that draw it again have it where it was asked for."""
    bare = "parameters { real mu; } generated quantities { real twice = 2 * mu; }"
    made = stanadapt.generate_quantities(bare, schools, seed=1, progress=False)
    np.testing.assert_array_equal(
        draws(made, "log_prior", "log_prior"), draws(schools, "log_prior", "log_prior")
    )
    again = reproduce.lines(datasets(made), attributes(made))
    assert again is not None
    first, second = again.python.splitlines()[1:]
    assert "log_prior=True" in first
    assert "log_prior" not in second


def test_the_log_prior_is_kept_in_a_store(tmp_path: Path) -> None:
    run: dict[str, Any] = {"method": "fisher_hmc", "seed": 1, "chains": 2, "draws": 50, "progress": False}
    asked = run | {"log_prior": True, "store": tmp_path / "run"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        made = stanadapt.sample(CONJUGATE, DATA, **asked)
        resumed = stanadapt.resume(tmp_path / "run", progress=False)
        kept = stanadapt.load(tmp_path / "run")
        longer = stanadapt.extend(tmp_path / "run", 30, progress=False)
    expected = draws(made, "log_prior", "log_prior")
    mu, s2 = (draws(longer, "posterior", name) for name in ("mu", "s2"))
    np.testing.assert_array_equal(draws(kept, "log_prior", "log_prior"), expected)
    np.testing.assert_array_equal(draws(resumed, "log_prior", "log_prior"), expected)
    whole = stats.norm(1, 2).logpdf(mu) + stats.invgamma(5, scale=4).logpdf(s2)
    np.testing.assert_allclose(draws(longer, "log_prior", "log_prior"), whole, atol=1e-11)
    np.testing.assert_array_equal(
        draws(stanadapt.load(tmp_path / "run"), "log_prior", "log_prior")[:, :50], expected
    )


def test_a_log_prior_that_fails_loses_no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ArgumentError("log_prior: some draws lie on the boundary")

    monkeypatch.setattr(LogPrior, "at", fail)
    run: dict[str, Any] = {"seed": 1, "chains": 1, "draws": 50, "log_prior": True, "progress": False}
    with pytest.warns(StanAdaptWarning, match="no group log_prior: log_prior: some draws lie on the bound"):
        made = stanadapt.sample(CONJUGATE, DATA, method="fisher_hmc", **run)
    assert draws(made, "posterior", "mu").shape == (1, 50)


def test_the_command_prior(tmp_path: Path) -> None:
    named = ["--predictive", "y=y_rep", "--seed=1", "--draws=200", "--chains=2"]
    done = CliRunner().invoke(
        main, ["prior", str(SCHOOLS), f"--data={SCHOOLS_DATA}", *named, "--out", str(tmp_path / "prior.nc")]
    )
    assert done.exit_code == 0, done.output
    assert "Drawn from the program without its likelihood of y." in done.output
    assert "theta_trans[7]" in done.output
    assert "prior_predictive: y" in done.output
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        expected = stanadapt.prior_predictive(
            SCHOOLS, SCHOOLS_DATA, predictive={"y": "y_rep"}, seed=1, draws=200, chains=2, progress=False
        )
    for group, name in (("prior", "tau"), ("prior_predictive", "y")):
        with xarray.open_dataset(tmp_path / "prior.nc", group=group) as made:
            np.testing.assert_array_equal(made[name].values, draws(expected, group, name))
    done = CliRunner().invoke(main, ["summary", str(tmp_path / "prior.nc")])
    assert done.exit_code
    assert "its draws are of the prior, in the group prior" in done.output
    done = CliRunner().invoke(main, ["prior", str(SCHOOLS), f"--data={SCHOOLS_DATA}", "--observed=z"])
    assert done.exit_code == 2
    assert "observed" in done.output


def test_log_prior_log_likelihood_and_jacobian_are_the_density(schools: Any) -> None:
    """lp is their sum up to a constant; the Jacobian is log(tau), since tau is positive."""
    parts = draws(schools, "log_prior", "log_prior") + np.log(draws(schools, "posterior", "tau"))
    parts += draws(schools, "log_likelihood", "y").sum(-1)
    apart = parts - draws(schools, "sample_stats", "lp")
    assert np.ptp(apart) < 1e-9


def test_the_log_prior_without_jacobians() -> None:
    """For parameters of many kinds, at draws that come from anywhere."""
    data = {"N": 1, "y": [0.0]}
    posterior = stanadapt.Posterior(TRANSFORMS, data)
    x = np.random.default_rng(2).normal(size=(1, 20, posterior.dim))
    held = posterior.constrain(x)
    group = xarray.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(value.ndim - 2))), value)
            for name, value in held.items()
        },
        coords={"chain": [0], "draw": np.arange(20)},
    )
    made = stanadapt.generate_quantities(
        TRANSFORMS, container({"posterior": group}), data, log_prior=True, progress=False
    )
    a, p, o, S, v = (held[name][0] for name in ("a", "p", "o", "S", "v"))
    expected = [
        stats.beta(2, 3).logpdf(a[i])
        + stats.dirichlet([1, 2, 3]).logpdf(p[i] / p[i].sum())
        + stats.norm(0, 2).logpdf(o[i]).sum()
        + stats.wishart(4, np.eye(2)).logpdf(S[i])
        + (stats.gamma(2).logpdf(v[i]) - stats.gamma(2).logsf(1)).sum()
        - np.log(a[i])
        for i in range(20)
    ]
    np.testing.assert_allclose(draws(made, "log_prior", "log_prior")[0], expected, rtol=1e-9)


def test_power_scaling_by_arviz(schools: Any) -> None:
    """mu depends on its prior, normal(0, 5), more than the threshold 0.05; and on the data."""
    argument = "group" if has_datatree() else "component"
    psense = statistics().psense if has_datatree() else statistics().psens
    for component in ("prior", "likelihood"):
        found = psense(schools, var_names=["mu", "tau"], **{argument: component})
        assert 0.05 < float(found["mu"]) < 0.5


def test_in_a_shell(schools: Any, tmp_path: Path) -> None:
    write(schools, tmp_path / "fit.nc")
    words = ["generate", str(SCHOOLS), str(tmp_path / "fit.nc"), "--data", str(SCHOOLS_DATA), "--log-prior"]
    done = CliRunner().invoke(main, [*words, "--no-progress", "--out", str(tmp_path / "made.nc")])
    assert done.exit_code == 0, done.output
    assert "log_prior: log_prior\n" in done.output
    made = draws(read(tmp_path / "made.nc"), "log_prior", "log_prior")
    np.testing.assert_allclose(made, draws(schools, "log_prior", "log_prior"), rtol=1e-12)
    words = ["sample", str(SCHOOLS), "--data", str(SCHOOLS_DATA), "--method", "fisher_hmc", "--log-prior"]
    words += ["--draws", "50", "--seed", "1", "--quiet", "--out", str(tmp_path / "short.nc")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert draws(read(tmp_path / "short.nc"), "log_prior", "log_prior").shape == (4, 50)
