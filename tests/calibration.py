"""Simulation-based calibration: the simulations, and the ranks that come of them.

Parameters are drawn from the prior, data from the model given them, and draws from the posterior given the
data. Then the parameters are one more draw from that posterior: their rank among the L draws kept is uniform
on 0, ..., L. Talts, Betancourt, Simpson, Vehtari and Gelman (2018), Validating Bayesian inference algorithms
with simulation-based calibration.

Ranked are all parameters, and the log likelihood of the data: it alone sees draws that ignore the data.
Modrák, Moon, Kim, Bürkner, Huurre, Faltejsková, Gelman and Vehtari (2023), Simulation-based calibration
checking for Bayesian computation: the choice of test quantities shapes sensitivity.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import stanadapt
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[1] / "models"
REPLICATES = 400  # data sets; all methods see the same
# Which data sets: 0 for those of the tables in the docs, and any other number for so many that are new.
BATCH = int(os.environ.get("CALIBRATE_BATCH") or 0)
KEPT = 63  # draws kept of each chain, L; ranks have L + 1 = 64 values

# Iterations from one kept draw to the next, fixed before any rank is seen: as many as make the draws all but
# independent on both models, which `effective_share` checks. A method that is not named takes the default.
SPACING = {
    "rwm": 1_000,
    "gad_rwm": 1_000,
    "mala": 600,
    "gad_mala_fast": 400,
    "gad_mala_exact": 400,
    "mmala": 400,
    "hmc": 200,
    "kamh": 600,
    "kmc_lite": 100,
    "kmc_finite": 100,
    "rlmh": 400,
    "rlmh_mala": 100,
    "fisher_hmc": 20,
    "tempered": 5,
    "nuts": 10,
}
DEFAULT_SPACING = 200

Data = dict[str, Any]
Simulation = tuple[np.ndarray, Data]  # the parameters (k,), in the order of `names`, and the data


class Model(NamedTuple):
    """A Stan program with its prior, written once more in Python."""

    program: str
    names: tuple[str, ...]  # variables that are ranked
    labels: tuple[str, ...]  # the k scalars in them, and the log likelihood
    simulate: Callable[[np.random.Generator], Simulation]
    log_likelihood: Callable[[np.ndarray, Data], np.ndarray]  # parameters (..., k) -> (...)


class Draws(NamedTuple):
    """What the replicates of one method on one model came to."""

    truth: np.ndarray  # (n, k) parameters that the data were simulated from
    kept: np.ndarray  # (n, L, k) draws from the posterior


def _shipped(name: str) -> tuple[str, Data]:
    folder = MODELS / name
    return (folder / f"{name}.stan").read_text(), json.loads((folder / f"{name}.json").read_text())


# --- Linear regression: the posterior is known, so exact draws can tell the suite from the methods


_X = np.random.default_rng(0).standard_normal((10, 6))  # few observations, so that prior and Jacobian matter
_REGRESSION = _shipped("linear_regression")[1] | {"N": 10, "d": 6, "X": _X}


def regression_prior(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (n, k)."""
    sigma_sq = _REGRESSION["prior_scale"] / rng.gamma(_REGRESSION["prior_shape"], size=(n, 1))
    beta = rng.normal(0.0, _REGRESSION["prior_sd"] * np.sqrt(sigma_sq), (n, _X.shape[1]))
    return np.hstack([beta, sigma_sq])


def _simulate_regression(rng: np.random.Generator) -> Simulation:
    parameters = regression_prior(1, rng)[0]
    y = rng.normal(_X @ parameters[:-1], np.sqrt(parameters[-1]))
    return parameters, _REGRESSION | {"y": y}


def _regression_log_likelihood(parameters: np.ndarray, data: Data) -> np.ndarray:
    beta, sigma_sq = parameters[..., :-1], parameters[..., -1:]
    return stats.norm.logpdf(data["y"], beta @ _X.T, np.sqrt(sigma_sq)).sum(axis=-1)


def regression_posterior(data: Data, n: int, rng: np.random.Generator) -> np.ndarray:
    """Exact draws (n, k), by the conjugate updates of shape, scale, mean and precision."""
    y = data["y"]
    precision = _X.T @ _X + np.eye(_X.shape[1]) / data["prior_sd"] ** 2
    mean = np.linalg.solve(precision, _X.T @ y)
    shape = data["prior_shape"] + y.size / 2
    scale = data["prior_scale"] + 0.5 * (y @ y - mean @ precision @ mean)
    sigma_sq = scale / rng.gamma(shape, size=n)
    z = np.linalg.solve(np.linalg.cholesky(precision).T, rng.standard_normal((mean.size, n))).T
    return np.column_stack([mean + np.sqrt(sigma_sq)[:, None] * z, sigma_sq])


def without_jacobian(program: str) -> str:
    """The regression's program on the scale that the sampler works on, with the Jacobian forgotten."""
    scale = "  real<lower=0> sigma_sq; // variance of the noise\n"
    block = "transformed parameters {\n"
    assert program.count(scale) == program.count(block) == 1
    program = program.replace(scale, "  real log_sigma_sq;\n")
    return program.replace(block, block + "  real sigma_sq = exp(log_sigma_sq);\n")


# --- Eight schools: a hierarchy with a heavy-tailed prior, in the non-centred form

_SCHOOLS = _shipped("eight_schools")[1]
_WIDEST = 100.0  # range of the eight effects


def _simulate_schools(rng: np.random.Generator) -> Simulation:
    """Parameters and data, until the data's range is below a limit.

    tau's Cauchy prior now and then gives effects of thousands of points, which put the non-centred form into
    a ridge that no sampler here explores in a minute. Dropping data by a rule that looks at the data alone
    leaves the posterior of the others what it is, and so ranks are uniform still.
    """
    while True:
        mu, tau = rng.normal(0.0, 5.0), abs(5.0 * rng.standard_cauchy())
        theta_trans = rng.standard_normal(_SCHOOLS["J"])
        y = rng.normal(mu + tau * theta_trans, _SCHOOLS["sigma"])
        if np.ptp(y) < _WIDEST:
            return np.array([mu, tau, *theta_trans]), _SCHOOLS | {"y": y}


def _schools_log_likelihood(parameters: np.ndarray, data: Data) -> np.ndarray:
    return _log_likelihood_of_effects(parameters[..., :1] + parameters[..., 1:2] * parameters[..., 2:], data)


def _log_likelihood_of_effects(theta: np.ndarray, data: Data) -> np.ndarray:
    return stats.norm.logpdf(data["y"], theta, data["sigma"]).sum(axis=-1)


def _simulate_centred_schools(rng: np.random.Generator) -> Simulation:
    truth, data = _simulate_schools(rng)
    mu, tau, standardised = truth[0], truth[1], truth[2:]
    return np.array([mu, tau, *(mu + tau * standardised)]), data


def _centred_schools_log_likelihood(parameters: np.ndarray, data: Data) -> np.ndarray:
    return _log_likelihood_of_effects(parameters[..., 2:], data)


# --- Latent fields: a series whose counts follow an autoregression, and a random walk with noise

_LENGTH = 50
_AUTOREGRESSION = """
data { int T; array[T] int y; }
parameters { real mu; real<lower=-1, upper=1> phi; real<lower=0> s; vector[T] h; }
model {
  mu ~ normal(0, 1);
  (phi + 1) / 2 ~ beta(5, 1.5);
  s ~ normal(0, 0.5);
  h[1] ~ normal(0, s / sqrt(1 - phi^2));
  h[2:T] ~ normal(phi * h[1:(T - 1)], s);
  y ~ poisson_log(mu + h);
}
"""
_WALK = """
data { int T; vector[T] y; }
parameters { real<lower=0> s; real<lower=0> o; vector[T] l; }
model {
  s ~ normal(0, 1);
  o ~ normal(0, 1);
  l[1] ~ normal(0, 5);
  l[2:T] ~ normal(l[1:(T - 1)], s);
  y ~ normal(l, o);
}
"""
_MOST_COUNTS = 1_000


def _simulate_autoregression(rng: np.random.Generator) -> Simulation:
    """Parameters and data, until the largest count is below a limit, which is a rule of the data alone."""
    while True:
        mu, phi, s = rng.normal(), 2.0 * rng.beta(5.0, 1.5) - 1.0, abs(0.5 * rng.normal())
        h = np.empty(_LENGTH)
        h[0] = s / np.sqrt(1.0 - phi**2) * rng.normal()
        for t in range(1, _LENGTH):
            h[t] = phi * h[t - 1] + s * rng.normal()
        if mu + h.max() < 2.0 * np.log(_MOST_COUNTS):
            y = rng.poisson(np.exp(mu + h))
            if y.max() < _MOST_COUNTS:
                return np.array([mu, phi, s, *h]), {"T": _LENGTH, "y": y}


def _counts_log_likelihood(parameters: np.ndarray, data: Data) -> np.ndarray:
    rate = np.exp(parameters[..., :1] + parameters[..., 3:])
    return stats.poisson.logpmf(data["y"], rate).sum(axis=-1)


def _simulate_walk(rng: np.random.Generator) -> Simulation:
    s, o = np.abs(rng.normal(size=2))
    walk = 5.0 * rng.normal() + np.cumsum(np.append(0.0, s * rng.normal(size=_LENGTH - 1)))
    return np.array([s, o, *walk]), {"T": _LENGTH, "y": walk + o * rng.normal(size=_LENGTH)}


def _walk_log_likelihood(parameters: np.ndarray, data: Data) -> np.ndarray:
    return stats.norm.logpdf(data["y"], parameters[..., 2:], parameters[..., 1:2]).sum(axis=-1)


def _elements(name: str) -> tuple[str, ...]:
    return tuple(f"{name}[{t}]" for t in range(1, _LENGTH + 1))


SIMULATED = {
    "linear_regression": Model(
        _shipped("linear_regression")[0],
        ("beta", "sigma_sq"),
        (*(f"beta[{j}]" for j in range(1, 7)), "sigma_sq", "log_lik"),
        _simulate_regression,
        _regression_log_likelihood,
    ),
    "eight_schools": Model(
        _shipped("eight_schools")[0],
        ("mu", "tau", "theta_trans"),
        ("mu", "tau", *(f"theta_trans[{j}]" for j in range(1, 9)), "log_lik"),
        _simulate_schools,
        _schools_log_likelihood,
    ),
    # For those that learn the coordinates of a hierarchy; others do not reach its neck, and say so.
    "eight_schools_centered": Model(
        _shipped("eight_schools_centered")[0],
        ("mu", "tau", "theta"),
        ("mu", "tau", *(f"theta[{j}]" for j in range(1, 9)), "log_lik"),
        _simulate_centred_schools,
        _centred_schools_log_likelihood,
    ),
    # For those that learn the coordinates of fields.
    "autoregression": Model(
        _AUTOREGRESSION,
        ("mu", "phi", "s", "h"),
        ("mu", "phi", "s", *_elements("h"), "log_lik"),
        _simulate_autoregression,
        _counts_log_likelihood,
    ),
    "random_walk": Model(
        _WALK,
        ("s", "o", "l"),
        ("s", "o", *_elements("l"), "log_lik"),
        _simulate_walk,
        _walk_log_likelihood,
    ),
}
OF_HIERARCHIES = ("eight_schools_centered",)
OF_FIELDS = ("autoregression", "random_walk")


def _numbered(replicate: int) -> int:
    """The number of a replicate among those of all batches, which is the seed of its chain too."""
    return BATCH * REPLICATES + replicate


def simulation(name: str, replicate: int) -> Simulation:
    """Parameters and data of a replicate of the batch, which depend on nothing else."""
    seed = np.random.SeedSequence([list(SIMULATED).index(name), _numbered(replicate)])
    return SIMULATED[name].simulate(np.random.default_rng(seed))


def one_replicate(method: str, name: str, program: str, replicate: int) -> np.ndarray:
    """Draws (L, k) from the posterior given a replicate's data, by one chain from a random start."""
    _, data = simulation(name, replicate)
    spacing = SPACING.get(method, DEFAULT_SPACING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)  # one chain of few draws
        result = stanadapt.sample(
            program,
            data,
            method=method,
            chains=1,
            workers=1,
            draws=KEPT * spacing,
            thin=spacing,
            seed=_numbered(replicate),
            progress=False,
        )
    posterior = datasets(result)["posterior"]
    return np.concatenate([posterior[key].values.reshape(KEPT, -1) for key in SIMULATED[name].names], axis=1)


def all_replicates(method: str, name: str, pool: Executor, program: str | None = None) -> Draws:
    """Every replicate of a method on a model, or on another program in its place."""
    work = partial(one_replicate, method, name, program or SIMULATED[name].program)
    kept = [work(0)]  # here first: processes that compile the same kernel would do so all at once
    kept += pool.map(work, range(1, REPLICATES), chunksize=10)
    truth = [simulation(name, replicate)[0] for replicate in range(REPLICATES)]
    return Draws(np.array(truth), np.array(kept))


def with_log_likelihood(name: str, draws: Draws) -> Draws:
    """The same with the log likelihood of each replicate's data as one more column."""
    log_likelihood = SIMULATED[name].log_likelihood
    data = [simulation(name, replicate)[1] for replicate in range(len(draws.truth))]
    of_truth = [log_likelihood(x, given) for x, given in zip(draws.truth, data, strict=True)]
    of_kept = [log_likelihood(x, given) for x, given in zip(draws.kept, data, strict=True)]
    return Draws(
        np.column_stack([draws.truth, of_truth]),
        np.concatenate([draws.kept, np.array(of_kept)[:, :, None]], axis=2),
    )


def ranks(draws: Draws) -> np.ndarray:
    """Number of kept draws below the truth (n, k); the truth ties with none, since all are continuous."""
    return np.sum(draws.kept < draws.truth[:, None, :], axis=1)


def effective_share(kept: np.ndarray) -> np.ndarray:
    """Effective sample size of the kept draws (n, L, k) over L, for each quantity (k,).

    One chain of 63 draws tells little of its autocorrelation, 400 together tell it to two digits. Lags beyond
    five are left out. Centring each chain at its own mean takes 1 / (L share) from every correlation, which
    the division puts back.
    """
    lags, length = 5, kept.shape[1]
    centred = kept - kept.mean(axis=1, keepdims=True)
    power = np.sum(centred**2, axis=1)
    total = np.ones(kept.shape[2])
    for lag in range(1, lags + 1):
        products = np.sum(centred[:, lag:] * centred[:, :-lag], axis=1)
        still = np.ones_like(power)  # a chain that never moved
        total += 2 * np.divide(products, power, out=still, where=power > 0).mean(axis=0)
    return np.asarray((1 - 2 * lags / length) / total)
