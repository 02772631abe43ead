"""The tables "there | here" of the page for those who come from other packages: their lines run.

Lines on the right run always, on a small model, but for those that need a model of a package that is missing.
Lines on the left run where the other package is installed. CmdStan is played by fake_cmdstan.py.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import arviz
import cmdstanpy
import matplotlib
import numpy as np
import pandas
import pytest
from scipy import stats

import fake_cmdstan
import stanadapt
from stanadapt.result.container import has_datatree

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "coming_from.md"
IN_R = ("rstan", "brms")
NEEDS_CMDSTAN = (
    "fit.summary()",
    "fit.diagnose()",
    "model.log_prob(",
    "model.generate_quantities(",
    "model.optimize(",
    "model.laplace_sample(",
    "model.pathfinder(",
    "inits=fit.create_inits(",
)  # programs of CmdStan, which may be missing
OF_ARVIZ_0 = {"arviz.psens(": "arviz.psense("}  # what the lines name, and what arviz 1 calls it
MOST = 60  # iterations of a run, whatever a line asks for
PROGRAM = """data { int<lower=0> N; vector[N] y; vector<lower=0>[N] sigma; }
parameters { real mu; real<lower=0> tau; vector[N] theta; }
model { mu ~ normal(0, 5); tau ~ normal(0, 5); theta ~ normal(mu, tau); y ~ normal(theta, sigma); }
generated quantities {
  vector[N] log_lik;
  for (n in 1 : N) log_lik[n] = normal_lpdf(y[n] | theta[n], sigma[n]);
}
"""
PREDICTS = (
    PROGRAM.partition("generated")[0]
    + """generated quantities {
  array[N] real y_rep = normal_rng(theta, sigma);
}
"""
)
ROWS = """data { int N; int J; array[N] int<lower=1, upper=J> school; vector[N] y; }
parameters { vector[J] theta; }
model { theta ~ normal(0, 5); y ~ normal(theta[school], 1); }
"""
DATA = {"N": 3, "y": [28.0, 8.0, -3.0], "sigma": [15.0, 10.0, 16.0]}

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # few draws, and what other packages say
    pytest.mark.usefixtures("folder"),
]


class Row(NamedTuple):
    """A row of a table: the first line of code in each cell; empty where a cell does not begin with one."""

    package: str
    there: str
    here: str


def rows() -> list[Row]:
    found = []
    for section in PAGE.read_text("utf-8").split("\n## From ")[1:]:
        package = section.partition("\n")[0]
        for line in section.partition("\n## ")[0].split("\n"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("|") and len(cells) == 2 and not line.startswith(("| there", "| ---")):
                found.append(Row(package, *map(_code, cells)))
    return found


def _code(cell: str) -> str:
    code = re.match(r"`([^`]+)`", cell)
    return "" if code is None or "..." in code[1] else code[1]


ALL = rows()
HERE = list(dict.fromkeys((row.package, row.here) for row in ALL if row.here))


def lines_there(package: str) -> list[str]:
    return [row.there for row in ALL if row.package == package and row.there]


def is_argument(code: str) -> bool:
    return re.match(r"\w+=[^=]", code) is not None


def test_there_is_a_table_for_each_package() -> None:
    count = {name: sum(row.package == name for row in ALL) for name in {row.package for row in ALL}}
    assert set(count) == {"CmdStanPy", "PyStan", "rstan", "brms", "nutpie", "PyMC", "NumPyro"}
    assert min(count.values()) >= 8
    assert len(HERE) >= 70


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    Path("m.stan").write_text(PROGRAM)
    Path("predict.stan").write_text(PREDICTS)
    Path("rows.stan").write_text(ROWS)
    Path("d.json").write_text(json.dumps(DATA))
    yield
    importlib.import_module("matplotlib.pyplot").close("all")


def limited(function: Any, **defaults: Any) -> Any:
    """A function that runs a few iterations, whatever it is asked for."""

    def run(*arguments: Any, **keywords: Any) -> Any:
        keywords = defaults | {
            name: min(value, MOST) if name in LONG and isinstance(value, int) else value
            for name, value in keywords.items()
        }
        return function(
            *(min(each, MOST) if isinstance(each, int) else each for each in arguments), **keywords
        )

    return run


LONG = ("draws", "warmup", "tune", "num_samples", "num_warmup", "iter_sampling", "iter_warmup")
# One worker, since models of JAX have a process for each, which imports JAX anew for every line.
sample = limited(stanadapt.sample, progress=False, draws=MOST, warmup=MOST, seed=3, workers=1)


@pytest.fixture(scope="module")
def idata() -> Any:
    run = {"method": "fisher_hmc", "save_warmup": True, "log_likelihood": "y=log_lik", "workers": 2}
    return sample(PROGRAM, DATA, **run)


def names(idata: Any) -> dict[str, Any]:
    """What lines on the right may name."""
    public = {name: getattr(stanadapt, name) for name in stanadapt.__all__ if name != "sample"}
    schools = ["Choate", "Deerfield", "Exeter"]
    frame = {
        "y": [1.0, 2.0, 4.0, 3.0],
        "school": pandas.Categorical(["Exeter", "Choate", "Deerfield", "Choate"], schools),
    }
    return functions() | {
        "stanadapt": types.SimpleNamespace(**(public | {"sample": sample})),
        "arviz": arviz,
        "program": PROGRAM,
        "data": DATA,
        "frame": pandas.DataFrame(frame),
        "idata": idata,
        "likely": idata,
        "x": np.zeros(5),
    }


def models() -> dict[str, Any]:
    """Models of packages that are installed, with their data."""
    held = {}
    if importlib.util.find_spec("pymc") is not None:
        held["PyMC"] = (pymc_model(), None)
    if importlib.util.find_spec("numpyro") is not None:
        held["NumPyro"] = (numpyro_model(), {"y": np.array(DATA["y"])})
    return held


def pymc_model() -> Any:
    import pymc

    with pymc.Model() as model:
        mu = pymc.Normal("mu", 0.0, 5.0)
        tau = pymc.HalfNormal("tau", 5.0)
        pymc.Normal("y", pymc.Normal("theta", mu, tau, shape=3), DATA["sigma"], observed=DATA["y"])
    return model


def numpyro_model() -> Any:
    import jax
    import numpyro
    from numpyro import distributions

    jax.config.update("jax_enable_x64", True)

    def model(y: Any = None) -> None:
        mu = numpyro.sample("mu", distributions.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", distributions.HalfNormal(5.0))
        theta = numpyro.sample("theta", distributions.Normal(mu, tau).expand([3]).to_event(1))
        numpyro.sample("y", distributions.Normal(theta, np.array(DATA["sigma"])), obs=y)

    return model


def log_density(x: Any) -> Any:
    return -0.5 * (x * x).sum()


def functions() -> dict[str, Any]:
    """A simulator with its data and prior, and log densities."""
    held: dict[str, Any] = {
        "simulator": lambda parameters, rng: rng.normal(parameters["mu"], 1.0, 3),
        "observed": np.array([1.0, 2.0, 3.0]),
        "prior": {"mu": stats.norm(0, 5)},
        "log_density": log_density,
        "gradient": lambda x: -x,
    }
    if importlib.util.find_spec("jax") is not None:
        jnp = importlib.import_module("jax.numpy")
        held["params"] = jnp.zeros(3)
    return held


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    return models()


@pytest.mark.parametrize(("package", "code"), HERE, ids=lambda text: text[:60])
def test_here(package: str, code: str, idata: Any, theirs: dict[str, Any]) -> None:
    """A line as it stands; an argument in a call of `sample`."""
    known = names(idata)
    model, data = theirs.get(package, ("m.stan", DATA))
    if "params" in code and "params" not in known:
        pytest.skip("JAX is not installed")
    needs_model = re.search(r"\bmodel\b", code.replace('"m.stan"', "")) or re.match(r"\w+=\"y\"$", code)
    if needs_model and package not in theirs and package in ("PyMC", "NumPyro"):
        pytest.skip(f"{package} is not installed")
    if package in theirs:
        known |= {"model": model, "data": data}
    if "by_school" in code:
        known["by_school"] = sample(ROWS, known["frame"])
    if "of_model" in code:
        known["of_model"] = sample(model, data, method="fisher_hmc")
    if is_argument(code):
        given = {each.split("=")[0] for each in re.split(r", (?=\w+=)", code)}
        assert given <= set(inspect.signature(stanadapt.sample).parameters)
        code = f"stanadapt.sample(model_, data_, {code})"
    for older, newer in OF_ARVIZ_0.items() if has_datatree() else ():
        code = code.replace(older, newer)
    exec(code, known | {"model_": model, "data_": data})


def run_there(package: str, known: dict[str, Any], call: str, left_out: tuple[str, ...] = ()) -> None:
    """The lines of a package in their order; an argument in a call of it."""
    done = 0
    for code in lines_there(package):
        if not code.startswith(left_out or ("\0",)):
            line = call.format(code) if is_argument(code) else code
            try:
                exec(line, known)
            except Exception as error:
                raise AssertionError(f"{package}: {code}") from error
            done += 1
    assert done >= 6


def test_there_in_cmdstanpy() -> None:
    def opened(**keywords: Any) -> Any:
        return cmdstanpy.CmdStanModel(exe_file=fake_cmdstan.make(Path.cwd() / "m.stan"), **keywords)

    plain = cmdstanpy.CmdStanModel.sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            cmdstanpy.CmdStanModel,
            "sample",
            limited(plain, show_progress=False, chains=1, iter_warmup=MOST, iter_sampling=MOST),
        )
        known = {"CmdStanModel": opened, "data": DATA, "arviz": arviz}
        run_there("CmdStanPy", known, "fit = model.sample(data=data, {})", NEEDS_CMDSTAN)


def test_there_in_pystan() -> None:
    stan = pytest.importorskip("stan", reason="PyStan is not installed")
    run_there("PyStan", {"stan": stan, "program": PROGRAM, "data": DATA}, "{}")


def test_there_in_pymc() -> None:
    pymc = pytest.importorskip("pymc", reason="PyMC is not installed; stanadapt[pymc] brings it")
    public = {name: getattr(pymc, name) for name in ("Metropolis", "Potential", "Simulator")}
    pm = types.SimpleNamespace(
        sample=limited(pymc.sample, progressbar=False, cores=1),
        stats=types.SimpleNamespace(
            compute_log_likelihood=limited(pymc.stats.compute_log_likelihood, progressbar=False),
            compute_log_prior=limited(pymc.stats.compute_log_prior, progressbar=False),
        ),
        sample_prior_predictive=pymc.sample_prior_predictive,
        sample_posterior_predictive=limited(pymc.sample_posterior_predictive, progressbar=False),
        sample_smc=limited(pymc.sample_smc, progressbar=False),
        find_MAP=pymc.find_MAP,
        **public,
    )
    run_there("PyMC", {"pm": pm, "model": pymc_model(), "arviz": arviz}, "{}")


def test_there_in_numpyro() -> None:
    pytest.importorskip("numpyro", reason="NumPyro is not installed; stanadapt[jax] brings it")
    from jax import random
    from numpyro.infer import MCMC, NUTS, Predictive, init_to_value, log_likelihood
    from numpyro.infer.autoguide import AutoLaplaceApproximation
    from numpyro.infer.util import compute_log_probs

    known = {
        "MCMC": limited(MCMC, progress_bar=False),
        **{"NUTS": NUTS, "init_to_value": init_to_value, "log_likelihood": log_likelihood, "random": random},
        **{"Predictive": Predictive, "AutoLaplaceApproximation": AutoLaplaceApproximation},
        **{"compute_log_probs": compute_log_probs, "np": np},
        **{"model": numpyro_model(), "data": {"y": np.array(DATA["y"])}, "arviz": arviz},
    }
    run_there("NumPyro", known, "{}")


def test_lines_in_r_are_told_from_python() -> None:
    headings = {
        section.partition("\n")[0]: "| there, in R | here |" in section
        for section in PAGE.read_text("utf-8").split("\n## From ")[1:]
    }
    assert tuple(name for name, is_in_r in headings.items() if is_in_r) == IN_R
