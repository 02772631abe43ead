"""Models of NumPyro, each with the Stan program of the same posterior: what draws are compared on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import numpy as jnp

from stanadapt.diagnostics.convergence import mcse_mean

jax.config.update("jax_enable_x64", True)

ROOT = Path(__file__).parents[2]


class Pair(NamedTuple):
    """A posterior, twice."""

    model: Callable[..., None]  # of NumPyro
    program: str  # of Stan
    data: dict[str, Any]
    compared: tuple[str, ...]  # variables that both have, with the same names and shapes


def eight_schools(J: int, sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", J):
        theta_tilde = numpyro.sample("theta_tilde", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * theta_tilde)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


EIGHT_SCHOOLS = """
data { int J; vector[J] sigma; vector[J] y; }
parameters { real mu; real<lower=0> tau; vector[J] theta_tilde; }
transformed parameters { vector[J] theta = mu + tau * theta_tilde; }
model { mu ~ normal(0, 5); tau ~ cauchy(0, 5); theta_tilde ~ std_normal(); y ~ normal(theta, sigma); }
"""


def regression(J: int, county: Any, x: Any, y: Any = None) -> None:
    """A hierarchical regression; counties are counted from 1, as in Stan."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("counties", J):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("homes", len(x)):
        numpyro.sample("y", dist.Normal(alpha[county - 1] + beta * x, sigma), obs=y)


REGRESSION = """
data { int J; int N; array[N] int county; vector[N] x; vector[N] y; }
parameters { real mu; real<lower=0> tau; vector[J] alpha; real beta; real<lower=0> sigma; }
model {
  mu ~ normal(0, 2); tau ~ normal(0, 1); alpha ~ normal(mu, tau); beta ~ normal(0, 1); sigma ~ normal(0, 1);
  y ~ normal(alpha[county] + beta * x, sigma);
}
"""


def process(x: Any, y: Any = None) -> None:
    """A regression by a Gaussian process."""
    rho = numpyro.sample("rho", dist.InverseGamma(5.0, 5.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    apart = (x[:, None] - x) / rho
    cov = alpha**2 * jnp.exp(-0.5 * apart**2) + sigma**2 * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(0.0, cov), obs=y)


PROCESS = """
data { int N; array[N] real x; vector[N] y; }
parameters { real<lower=0> rho; real<lower=0> alpha; real<lower=0> sigma; }
model {
  rho ~ inv_gamma(5, 5); alpha ~ normal(0, 1); sigma ~ normal(0, 1);
  y ~ multi_normal(rep_vector(0, N), add_diag(gp_exp_quad_cov(x, alpha, rho), square(sigma)));
}
"""


def constrained(counts: Any, grades: Any, z: Any) -> None:
    """A simplex, an ordered vector and the Cholesky factor of a correlation matrix."""
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("n", dist.Multinomial(int(np.sum(counts)), probs=share), obs=counts)
    ordered = dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,))
    cut = numpyro.sample("cut", ordered)
    numpyro.factor("cut_prior", dist.Normal(0.0, 3.0).log_prob(cut).sum())
    with numpyro.plate("pupils", len(grades)):
        numpyro.sample("grade", dist.OrderedLogistic(0.0, cut), obs=grades - 1)
    scale = numpyro.sample("scale", dist.HalfNormal(2.0).expand([3]).to_event(1))
    corr = numpyro.sample("corr", dist.LKJCholesky(3, 2.0))
    with numpyro.plate("points", len(z)):
        numpyro.sample("z", dist.MultivariateNormal(jnp.zeros(3), scale_tril=scale[:, None] * corr), obs=z)


CONSTRAINED = """
data { array[3] int counts; int G; array[G] int grades; int N; array[N] vector[3] z; }
parameters { simplex[3] share; ordered[3] cut; vector<lower=0>[3] scale; cholesky_factor_corr[3] corr; }
model {
  counts ~ multinomial(share); cut ~ normal(0, 3); grades ~ ordered_logistic(rep_vector(0, G), cut);
  scale ~ normal(0, 2); corr ~ lkj_corr_cholesky(2);
  z ~ multi_normal_cholesky(rep_vector(0, 3), diag_pre_multiply(scale, corr));
}
"""


def mixture(y: Any) -> None:
    """Two Gaussians, told apart by the order of their means."""
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,)))
    numpyro.factor("mean_prior", dist.Normal(0.0, 5.0).log_prob(mean).sum())
    scale = numpyro.sample("scale", dist.HalfNormal(2.0).expand([2]).to_event(1))
    parts = dist.Categorical(probs=jnp.stack([weight, 1.0 - weight]))
    with numpyro.plate("points", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(parts, dist.Normal(mean, scale)), obs=y)


MIXTURE = """
data { int N; vector[N] y; }
parameters { real<lower=0, upper=1> weight; ordered[2] mean; vector<lower=0>[2] scale; }
model {
  weight ~ beta(2, 2); mean ~ normal(0, 5); scale ~ normal(0, 2);
  for (n in 1:N)
    target += log_mix(weight, normal_lpdf(y[n] | mean[1], scale[1]), normal_lpdf(y[n] | mean[2], scale[2]));
}
"""


def pairs() -> dict[str, Pair]:
    """The models by name, with data that are the same in every process."""
    rng = np.random.default_rng(20)
    schools = json.loads((ROOT / "models" / "eight_schools" / "eight_schools.json").read_text())
    schools = {
        "J": 8,
        "sigma": np.array(schools["sigma"], dtype=float),
        "y": np.array(schools["y"], dtype=float),
    }
    county, x = rng.integers(1, 13, 120), rng.normal(size=120)
    homes = 1.0 + 0.5 * rng.normal(size=12)[county - 1] + 0.7 * x + 0.6 * rng.normal(size=120)
    line = np.linspace(0.0, 4.0, 25)
    wave = np.sin(2.0 * line) + 0.2 * rng.normal(size=25)
    grades = 1 + (rng.logistic(size=80)[:, None] > [-1.0, 0.5, 2.0]).sum(axis=1)
    points = rng.normal(size=(40, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.5], [0.0, 0.0, 0.7]])
    two = np.concatenate([rng.normal(-1.5, 0.6, 60), rng.normal(1.5, 1.0, 90)])
    return {
        "eight_schools": Pair(eight_schools, EIGHT_SCHOOLS, schools, ("mu", "tau", "theta")),
        "regression": Pair(
            regression,
            REGRESSION,
            {"J": 12, "county": county, "x": x, "y": homes},
            ("mu", "tau", "alpha", "beta", "sigma"),
        ),
        "process": Pair(process, PROCESS, {"x": line, "y": wave}, ("rho", "alpha", "sigma")),
        "constrained": Pair(
            constrained,
            CONSTRAINED,
            {"counts": np.array([12, 25, 8]), "grades": grades, "z": points},
            ("share", "cut", "scale", "corr"),
        ),
        "mixture": Pair(mixture, MIXTURE, {"y": two}, ("weight", "mean", "scale")),
    }


def stan_data(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The same data with the sizes that a Stan program wants."""
    sizes = {
        "regression": {"N": len(data.get("x", ()))},
        "process": {"N": len(data.get("x", ()))},
        "constrained": {"G": len(data.get("grades", ())), "N": len(data.get("z", ()))},
        "mixture": {"N": len(data.get("y", ()))},
    }
    return {**data, **sizes.get(name, {})}


def columns(draws: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The entries of variables (k, chain, draw) that vary, of draws (chain, draw, ...) by name."""
    flat = [np.moveaxis(draws[name].reshape(*draws[name].shape[:2], -1), 2, 0) for name in names]
    entries = np.concatenate(flat).astype(float)
    return entries[np.ptp(entries.reshape(len(entries), -1), axis=1) > 1e-12]


def z_scores(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """z (2 k) of differences of means and of second moments about a common centre; (k, chain, draw)."""
    centre = 0.5 * (one.mean(axis=(1, 2)) + other.mean(axis=(1, 2)))[:, None, None]
    z = []
    for power in (1, 2):
        first, second = (one - centre) ** power, (other - centre) ** power
        error = np.hypot(mcse_mean(first), mcse_mean(second))
        z.append((first.mean(axis=(1, 2)) - second.mean(axis=(1, 2))) / error)
    return np.concatenate(z)
