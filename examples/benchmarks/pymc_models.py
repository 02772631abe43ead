"""PyMC models: whether draws agree with PyMC's own and with the Stan program's, and how fast each sampler is.

    python examples/benchmarks/pymc_models.py agree [MODEL ...]
    python examples/benchmarks/pymc_models.py race [MODEL ...]

`agree` draws from each model by fisher_hmc on PyMC's gradient, by pm.sample, and by fisher_hmc on the Stan
program of the same model. It compares means and second moments of all variables, in standard errors of Monte
Carlo. `race` has the smallest effective sample size per second of fisher_hmc, of pm.sample's NUTS and of
nutpie on the same PyMC model, and what each compiles for; all with 4 chains, two at a time.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Before NumPy is imported: chains have the cores, and BLAS one thread in each, as in our own.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import arviz
import numpy as np
import pymc as pm
from scipy import stats

import stanadapt
from stanadapt.model.speed import seconds_per_gradient
from stanadapt.result.container import datasets, statistics

MODELS = Path(__file__).parents[2] / "models"
RUN = {"chains": 4, "warmup": 1000, "draws": 2000, "seed": 1}
LEVEL = 0.01  # family-wise, of a comparison


class Case(NamedTuple):
    """A model twice: in PyMC and in Stan."""

    model: Any
    program: str
    data: Mapping[str, Any]
    names: Mapping[str, str]  # of the variables that are compared: PyMC's name -> Stan's


def eight_schools() -> Case:
    effects, errors = (
        [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0],
        [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0],
    )
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        sigma = pm.Data("sigma", errors, dims="school")
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
        z = pm.Normal("theta_trans", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, sigma, observed=effects, dims="school")
    program = (MODELS / "eight_schools" / "eight_schools.stan").read_text()
    names = ("mu", "tau", "theta_trans", "theta")
    return Case(model, program, {"J": 8, "y": effects, "sigma": errors}, dict(zip(names, names, strict=True)))


def hierarchical_regression() -> Case:
    rng = np.random.default_rng(1)
    n, groups = 200, 8
    g, x = rng.integers(0, groups, n), rng.normal(size=n)
    y = rng.normal(1.0, 0.7, groups)[g] + rng.normal(-0.5, 0.3, groups)[g] * x + rng.normal(0.0, 0.5, n)
    coords = {"group": [f"g{i}" for i in range(groups)], "term": ["intercept", "slope"], "row": np.arange(n)}
    with pm.Model(coords=coords) as model:
        group, covariate = pm.Data("g", g, dims="row"), pm.Data("x", x, dims="row")
        mu = pm.Normal("mu", 0.0, 2.0, dims="term")
        tau = pm.HalfNormal("tau", 1.0, dims="term")
        z = pm.Normal("z", 0.0, 1.0, dims=("group", "term"))
        beta = pm.Deterministic("beta", mu + tau * z, dims=("group", "term"))
        sigma = pm.Exponential("sigma", 1.0)
        mean = beta[group, 0] + beta[group, 1] * covariate
        pm.Normal("y", mean, sigma, observed=y, dims="row")
    program = """
    data { int n; int k; array[n] int g; vector[n] x; vector[n] y; }
    parameters { vector[2] mu; vector<lower=0>[2] tau; matrix[k, 2] z; real<lower=0> sigma; }
    transformed parameters {
      matrix[k, 2] beta;
      for (j in 1 : 2) beta[ : , j] = mu[j] + tau[j] * z[ : , j];
    }
    model {
      mu ~ normal(0, 2); tau ~ normal(0, 1); to_vector(z) ~ std_normal(); sigma ~ exponential(1);
      y ~ normal(beta[g, 1] + beta[g, 2] .* x, sigma);
    }"""
    names = ("mu", "tau", "beta", "sigma")
    data = {"n": n, "k": groups, "g": g + 1, "x": x, "y": y}
    return Case(model, program, data, dict(zip(names, names, strict=True)))


def gp_regression() -> Case:
    rng = np.random.default_rng(2)
    x = np.linspace(0.0, 1.0, 25)
    y = np.sin(6.0 * x) + 0.2 * rng.normal(size=25)
    with pm.Model() as model:
        length, size = pm.InverseGamma("length", 5.0, 1.0), pm.HalfNormal("size", 1.0)
        sigma = pm.HalfNormal("sigma", 0.5)
        gp = pm.gp.Marginal(cov_func=size**2 * pm.gp.cov.ExpQuad(1, length))
        gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=sigma)
    program = """
    data { int n; array[n] real x; vector[n] y; }
    parameters { real<lower=0> length; real<lower=0> size; real<lower=0> sigma; }
    model {
      matrix[n, n] K = add_diag(gp_exp_quad_cov(x, size, length), square(sigma) + 1e-6);
      length ~ inv_gamma(5, 1); size ~ normal(0, 1); sigma ~ normal(0, 0.5);
      y ~ multi_normal_cholesky(rep_vector(0, n), cholesky_decompose(K));
    }"""
    names = ("length", "size", "sigma")
    return Case(model, program, {"n": 25, "x": x, "y": y}, dict(zip(names, names, strict=True)))


def simplex_ordered_lkj() -> Case:
    rng = np.random.default_rng(3)
    cov = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, -0.4], [0.0, -0.4, 0.6]])
    y = rng.multivariate_normal(np.zeros(3), cov, size=40)
    counts = np.array([3, 5, 8, 4])
    ratings = rng.choice(4, p=[0.1, 0.3, 0.4, 0.2], size=60)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(4, 2.0))
        ordered = pm.distributions.transforms.ordered
        c = pm.Normal("c", 0.0, 2.0, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
        sds = pm.Exponential.dist(1.0, shape=3)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=sds, compute_corr=True)
        pm.Multinomial("counts", n=20, p=w, observed=counts)
        pm.OrderedLogistic("ratings", eta=0.0, cutpoints=c, observed=ratings, compute_p=False)
        pm.MvNormal("y", mu=np.zeros(3), chol=chol, observed=y)
    program = """
    data { int n; int m; array[n] vector[3] y; array[4] int counts; array[m] int ratings; }
    parameters { simplex[4] w; ordered[3] c; cholesky_factor_corr[3] L; vector<lower=0>[3] sds; }
    model {
      w ~ dirichlet(rep_vector(2, 4)); c ~ normal(0, 2); L ~ lkj_corr_cholesky(2); sds ~ exponential(1);
      counts ~ multinomial(w); ratings ~ ordered_logistic(rep_vector(0, m), c);
      y ~ multi_normal_cholesky(rep_vector(0, 3), diag_pre_multiply(sds, L));
    }
    generated quantities { matrix[3, 3] corr = multiply_lower_tri_self_transpose(L); }"""
    data = {"n": 40, "m": 60, "y": y, "counts": counts, "ratings": ratings + 1}
    return Case(model, program, data, {"w": "w", "c": "c", "chol_stds": "sds", "chol_corr": "corr"})


def mixture() -> Case:
    rng = np.random.default_rng(4)
    y = np.concatenate([rng.normal(-2.0, 1.0, 40), rng.normal(2.0, 0.5, 60)])
    with pm.Model() as model:
        w = pm.Dirichlet("w", [2.0, 2.0])
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0.0, 2.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
        sigma = pm.HalfNormal("sigma", 1.0, shape=2)
        pm.NormalMixture("y", w, mu, sigma, observed=y)
    program = """
    data { int n; vector[n] y; }
    parameters { simplex[2] w; ordered[2] mu; vector<lower=0>[2] sigma; }
    model {
      w ~ dirichlet(rep_vector(2, 2)); mu ~ normal(0, 2); sigma ~ normal(0, 1);
      for (i in 1 : n)
        target += log_mix(w[1], normal_lpdf(y[i] | mu[1], sigma[1]), normal_lpdf(y[i] | mu[2], sigma[2]));
    }"""
    names = ("w", "mu", "sigma")
    return Case(model, program, {"n": len(y), "y": y}, dict(zip(names, names, strict=True)))


def poisson_data() -> Case:
    """Its data are `pm.Data`; `poisson_other_data` is the same model with others, and not compiled again."""
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        x, y = pm.Data("x", np.zeros((1, 3))), pm.Data("counts", np.zeros(1, int))
        alpha, beta = pm.Normal("alpha", 0.0, 1.0), pm.Normal("beta", 0.0, 1.0, shape=3)
        pm.Poisson("y", pm.math.exp(alpha + x @ beta), observed=y)
    return _poisson(model, rng, 150)


def poisson_other_data() -> Case:
    case = poisson_data()
    return _poisson(case.model, np.random.default_rng(6), 220)


def _poisson(model: Any, rng: np.random.Generator, n: int) -> Case:
    x = rng.normal(size=(n, 3))
    y = rng.poisson(np.exp(0.5 + x @ np.array([0.3, -0.2, 0.1])))
    with model:
        pm.set_data({"x": x, "counts": y})
    program = """
    data { int n; matrix[n, 3] x; array[n] int y; }
    parameters { real alpha; vector[3] beta; }
    model { alpha ~ normal(0, 1); beta ~ normal(0, 1); y ~ poisson_log(alpha + x * beta); }"""
    return Case(model, program, {"n": n, "x": x, "y": y}, {"alpha": "alpha", "beta": "beta"})


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each
    for each in (
        eight_schools,
        hierarchical_regression,
        gp_regression,
        simplex_ordered_lkj,
        mixture,
        poisson_data,
        poisson_other_data,
    )
}


def by_stanadapt(model: Any, data: Any = None, **more: Any) -> Any:
    return stanadapt.sample(model, data, method="fisher_hmc", workers=2, progress=False, **(RUN | more))


def by_pymc(model: Any, sampler: str = "pymc") -> Any:
    with model:
        return pm.sample(
            tune=RUN["warmup"],
            draws=RUN["draws"],
            chains=RUN["chains"],
            cores=2,
            random_seed=RUN["seed"],
            nuts_sampler=sampler,
            progressbar=False,
            compute_convergence_checks=False,
        )


def columns(idata: Any, names: Any) -> np.ndarray:
    """Draws (chain, draw, k) of the variables."""
    posterior = datasets(idata)["posterior"]
    values = [posterior[name].values for name in names]
    return np.concatenate([each.reshape(*each.shape[:2], -1) for each in values], axis=2)


def moments(draws: np.ndarray, at: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of draws and of their squares about `at`, in units of `scale`, with their standard errors."""
    functions = np.concatenate([(draws - at) / scale, ((draws - at) / scale) ** 2], axis=2)
    ess = [effective_size(functions[:, :, k], "mean") for k in range(functions.shape[2])]
    return functions.mean((0, 1)), functions.std((0, 1)) / np.sqrt(ess)


def effective_size(column: np.ndarray, method: str) -> float:
    if np.ptp(column) < 1e-9 * max(1.0, float(np.abs(column).max())):  # known without error
        return float("inf")
    return float(statistics().ess(arviz.convert_to_dataset(column), method=method)["x"])


def agree(name: str) -> str:
    case = CASES[name]()
    ours = by_stanadapt(case.model)
    theirs = by_pymc(case.model)
    program = by_stanadapt(case.program, case.data, seed=RUN["seed"] + 1)  # independent
    draws = columns(ours, case.names)
    # Constants up to rounding, such as the diagonal of a correlation, are compared as numbers: scale 1.
    at, scale = draws.mean((0, 1)), draws.std((0, 1))
    scale[scale < 1e-9 * np.maximum(1.0, np.abs(at))] = 1.0
    mean, error = moments(draws, at, scale)
    row = [name, f"{draws.shape[2]}"]
    for others in (columns(theirs, case.names), columns(program, case.names.values())):
        other, own = moments(others, at, scale)
        spread = np.hypot(error, own)
        varies = spread > 0.0
        assert np.allclose(mean[~varies], other[~varies], atol=1e-9)
        z = (mean - other)[varies] / spread[varies]
        limit = stats.norm.isf(LEVEL / 2 / len(z))
        row += [f"{np.abs(z).max():.2f} of {limit:.2f}", "yes" if np.abs(z).max() < limit else "NO"]
    return f"| {' | '.join(row)} |"


def race(name: str) -> str:
    import nutpie

    case = CASES[name]()
    free = [rv.name for rv in case.model.free_RVs]
    target: Any = stanadapt.Target.from_pymc(case.model)
    row = [name]
    began = time.perf_counter()
    target.compile(lambda _: None)
    seconds = time.perf_counter() - began
    gradient = seconds_per_gradient(target.target(), np.zeros(target.dim))
    by_stanadapt(target, warmup=100, draws=10)  # its own kernels are compiled
    began = time.perf_counter()
    row.append(f"{1e6 * gradient:.1f}")
    row.append(rate(by_stanadapt(target), free, time.perf_counter() - began, seconds))
    theirs = by_pymc(case.model)  # compiles C, which it keeps, as PyTensor does for the others
    began = time.perf_counter()
    theirs = by_pymc(case.model)
    whole = time.perf_counter() - began
    sampling = float(datasets(theirs)["posterior"].attrs["sampling_time"])
    row.append(rate(theirs, free, sampling, whole - sampling))
    began = time.perf_counter()
    compiled = nutpie.compile_pymc_model(case.model)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    given = {"tune": RUN["warmup"], "draws": RUN["draws"], "chains": RUN["chains"], "cores": 2}
    drawn = nutpie.sample(compiled, seed=RUN["seed"], progress_bar=False, **given)
    row.append(rate(drawn, free, time.perf_counter() - began, seconds))
    return f"| {' | '.join(row)} |"


def rate(idata: Any, names: list[str], seconds: float, compiling: float) -> str:
    draws = columns(idata, names)
    least = min(effective_size(draws[:, :, k], "bulk") for k in range(draws.shape[2]))
    return f"{least / seconds:,.0f} ({seconds:.1f}, {compiling:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("agree", "race"))
    parser.add_argument("models", nargs="*", help=f"of {', '.join(CASES)}; all by default")
    asked = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"pymc {pm.__version__}, stanadapt {stanadapt.__version__}\n")
    if asked.what == "agree":
        print("| model | values | largest z to pm.sample | agree | largest z to Stan | agree |")
        print("| --- | ---: | ---: | --- | ---: | --- |")
    else:
        print(
            "| model | gradient, µs | fisher_hmc | pm.sample | nutpie |\n| --- | ---: | ---: | ---: | ---: |"
        )
    for name in asked.models or CASES:
        print(agree(name) if asked.what == "agree" else race(name), flush=True)


if __name__ == "__main__":
    main()
