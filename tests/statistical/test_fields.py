"""Latent fields in the coordinates that Fisher HMC learns: the heads have their law, down to its last 0.1 %.

The laws are known: without data that of the heads is their prior, and with normal data the latents can be
integrated out. Each test names the fault that it is there to see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stanadapt
from densities import in_maps
from fits import run
from frozen import move_exact_draws
from programs import MISSING, TRUE_VALUES, WALK
from shares import (
    PROBABILITIES,
    errors,
    largest_error,
    log_normal,
    quantiles,
    quantiles_of_three,
    quantiles_of_two,
)
from stanadapt.target import log_density_gradient
from stanadapt.transport.composition import into_z
from stanadapt.transport.field_table import field_of, split
from stanadapt.transport.fields.field_learning import learn_field
from tail_models import MODELS

LIMIT = 4.5  # standard errors
RATE = 0.01
NORMAL = stats.norm.ppf(PROBABILITIES)
BROWNIAN = MODELS["brownian"]

PRIOR_T = 60
PRIOR = """
data { int T; }
parameters { real log_s; real a; real mu; vector[T] h; }
model {
  real phi = tanh(a); real s = exp(log_s);
  log_s ~ std_normal(); a ~ normal(1, 0.5); mu ~ normal(0, 3);
  h[1] ~ normal(mu, s / sqrt(1 - phi^2)); h[2:T] ~ normal(mu + phi * (h[1:T-1] - mu), s);
}
"""
FREE_WALK = """
data { int T; }
parameters { real<lower=0> s; vector[T] h; }
model { s ~ std_normal(); h[1] ~ std_normal(); h[2:T] ~ normal(h[1:T-1], s); }
"""
GAPS = """
data { int T; int n; array[n] int seen; vector[n] y; }
parameters { real log_s; real a; vector[T] h; }
model {
  real phi = tanh(a);
  log_s ~ std_normal(); a ~ normal(1, 0.7);
  h[1] ~ normal(0, exp(log_s) / sqrt(1 - phi^2)); h[2:T] ~ normal(phi * h[1:T-1], exp(log_s));
  y ~ normal(h[seen], 0.5);
}
"""
TWO_SERIES = """
data { int T; matrix[T, 2] y; }
parameters { matrix[T, 2] h; vector[2] log_s; vector[2] log_e; }
model {
  log_s ~ std_normal(); log_e ~ std_normal();
  for (k in 1:2) {
    h[1, k] ~ normal(0, 2); h[2:T, k] ~ normal(h[1:(T - 1), k], exp(log_s[k]));
    y[, k] ~ normal(h[, k], exp(log_e[k]));
  }
}
"""
INNOVATIONS = """
data { int T; int n; array[n] int seen; vector[n] y; }
parameters { real log_s; real a; vector[T] z; }
model {
  real phi = tanh(a); vector[T] h = exp(log_s) * z;
  h[1] /= sqrt(1 - phi^2);
  for (t in 2:T) h[t] += phi * h[t - 1];
  log_s ~ std_normal(); a ~ normal(1, 0.7); z ~ std_normal();
  y ~ normal(h[seen], 0.5);
}
"""
COEFFICIENTS = """
data {{ int T; matrix[T, 2] x; vector[T] y; }}
parameters {{ vector[2] b; vector[2] log_s; {declaration} }}
model {{
  matrix[T, 2] walks;
  for (k in 1:2) walks[, k] = b[k] + exp(log_s[k]) * cumulative_sum(to_vector({steps}));
  b ~ std_normal(); log_s ~ std_normal();
  for (k in 1:2) to_vector({steps}) ~ std_normal();
  y ~ normal(rows_dot_product(x, walks), 0.5);
}}
"""
SUMS = """
data { int T; vector[T] y; }
parameters { real log_s; real log_e; vector[T] z; }
model {
  log_s ~ normal(-2, 1); log_e ~ std_normal(); z ~ std_normal();
  y ~ normal(exp(log_s) * cumulative_sum(cumulative_sum(z)), exp(log_e));
}
"""
PROCESS = """
data { int N; array[N] real t; vector[N] y; }
parameters { real log_alpha; real log_rho; vector[N] z; }
model {
  log_alpha ~ std_normal(); log_rho ~ normal(0, 0.5); z ~ std_normal();
  y ~ normal(cholesky_decompose(add_diag(gp_exp_quad_cov(t, exp(log_alpha), exp(log_rho)), 1e-6)) * z, 0.3);
}
"""
SHORT = """
data { int T; vector[T] y; }
parameters { real log_s; real log_o; vector[T] h; }
model {
  log_s ~ normal(-1, 1); log_o ~ normal(-1, 1);
  h[1] ~ std_normal(); h[2:T] ~ normal(h[1:T-1], exp(log_s)); y ~ normal(h, exp(log_o));
}
"""
SHORT_INNOVATIONS = """
data { int T; vector[T] y; }
parameters { real log_s; real a; real m; vector[T] z; }
model {
  real phi = inv_logit(a); vector[T] h = exp(log_s) * z;
  h[1] /= sqrt(1 - phi^2);
  for (t in 2:T) h[t] += phi * h[t - 1];
  log_s ~ std_normal(); a ~ normal(0, 1.5); m ~ normal(0, 2); z ~ std_normal();
  y ~ normal(m + h, 0.05);
}
"""
TREND = """
data { int T; vector[T] y; }
parameters { vector[T] l; vector[T] b; real<lower=0> s_l; real<lower=0> s_y; }
model {
  s_l ~ std_normal(); s_y ~ normal(0, 2); l[1] ~ normal(0, 5); b[1] ~ std_normal();
  l[2:T] ~ normal(l[1:T-1] + b[1:T-1], s_l); b[2:T] ~ normal(b[1:T-1], 0.05); y ~ normal(l, s_y);
}
"""


def autoregression(n: int, phi: float) -> np.ndarray:
    """The covariance (n, n) of n terms with unit innovations."""
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.asarray(phi**lags / (1.0 - phi * phi))


def has_heads(adaptation: Any, *heads: int) -> np.ndarray:
    """Which chains (chain,) have a field with these heads."""
    roles = adaptation["field_role"].values
    return np.array([set(np.flatnonzero(role == 2)) == set(heads) for role in np.atleast_2d(roles)])


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_an_autoregression_without_data_has_the_law_of_its_prior(seed: int) -> None:
    """A map without its log determinant: the draws of the heads would be from another law.

    Where mu is far out and log_s is small, the map is not exact enough, and a chain may be held elsewhere;
    then there are divergences, and the finding says so.
    """
    posterior, adaptation, findings = run(PRIOR, {"T": PRIOR_T}, seed=seed, draws=3_000)
    assert has_heads(adaptation, 0, 1).any()
    for name, law in {"log_s": NORMAL, "a": 1.0 + 0.5 * NORMAL, "mu": 3.0 * NORMAL}.items():
        draws = posterior[name].values
        assert largest_error(draws, law, findings) < LIMIT


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_walk_with_a_free_level_is_right_in_the_neck(seed: int) -> None:
    """G whose errors are small beside the scales of latents, and not beside the level's, which is wide.

    A chain in such coordinates turns back where the scale of the steps is small: of the lowest 1 % of the law
    it has but a part.
    """
    posterior, adaptation, _ = run(FREE_WALK, {"T": 50}, seed=seed, draws=4_000)
    assert has_heads(adaptation, 0).any()
    log_s = np.log(posterior["s"].values)
    assert np.abs(errors(log_s, np.log(stats.halfnorm.ppf(PROBABILITIES)))).max() < LIMIT


@functools.cache
def nearly_still() -> tuple[dict[str, Any], np.ndarray]:
    """Noise without a walk, and the quantiles of its log scale."""
    y, grid = np.random.default_rng(3).normal(size=60), np.linspace(-14.0, 3.0, 500)
    steps = np.minimum.outer(np.arange(1.0, 61.0), np.arange(1.0, 61.0))
    log_p = [-0.125 * (u + 1.0) ** 2 + log_normal(y, np.exp(2.0 * u) * steps + np.eye(60)) for u in grid]
    return {"T": 60, "y": y}, quantiles(grid, np.exp(np.array(log_p) - max(log_p)))


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_walk_that_data_do_not_show_is_right_in_the_neck(seed: int) -> None:
    """Modes that are fitted in units of the middle of the design, which are far too large in the neck."""
    data, law = nearly_still()
    posterior, adaptation, _ = run(WALK, data, seed=seed, draws=4_000)
    assert has_heads(adaptation, 0).any()
    assert np.abs(errors(posterior["log_s"].values, law)).max() < LIMIT


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_field_that_chains_learn_together_is_right_in_the_neck(seed: int) -> None:
    """It is looked for after 15 iterations of each chain, which may be far from where the posterior is."""
    data, law = nearly_still()
    more = {"settings": {"pooled": True}, "seed": seed, "draws": 4_000}
    posterior, adaptation, _ = run(WALK, data, **more)
    assert has_heads(adaptation, 0).all()
    assert np.abs(errors(posterior["log_s"].values, law)).max() < LIMIT
    for chain in posterior["log_s"].values:
        assert np.abs(errors(chain[None], law)).max() < LIMIT


@functools.cache
def with_gaps() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """80 terms of an autoregression, of which every second ten are not seen; quantiles of log_s and a."""
    rng, n = np.random.default_rng(5), 80
    h = np.linalg.cholesky(autoregression(n, 0.9)) @ rng.normal(size=n) * 0.4
    seen = np.flatnonzero((np.arange(n) // 10) % 2 == 0)
    y = h[seen] + 0.5 * rng.normal(size=len(seen))

    def log_density(u: float, a: float) -> float:
        covariance = np.exp(2.0 * u) * autoregression(n, float(np.tanh(a)))[np.ix_(seen, seen)]
        prior = -0.5 * u * u - 0.5 * ((a - 1.0) / 0.7) ** 2
        return prior + log_normal(y, covariance + 0.25 * np.eye(len(seen)))

    data = {"T": n, "n": len(seen), "seen": seen + 1, "y": y}
    return data, quantiles_of_two(log_density, (-6.0, 2.0), (-2.0, 4.0))


# `make test` has the walk with missing data below, whose latents without data are the same ones.
@pytest.mark.thorough
@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_series_with_gaps_is_right(seed: int) -> None:
    """Latents that have no data take no part in the field, or their law is that of the others."""
    data, laws = with_gaps()
    posterior, adaptation, _ = run(GAPS, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 0, 1).any()
    assert (np.atleast_2d(adaptation["field_role"].values)[has_heads(adaptation, 0, 1)] > 0).all()
    for name, law in zip(("log_s", "a"), laws, strict=True):
        assert np.abs(errors(posterior[name].values, law)).max() < LIMIT


@functools.cache
def with_missing_data() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """An autoregression with noise, of which every fourth datum is missing; quantiles of both log scales."""
    rng, n = np.random.default_rng(11), 60
    h = np.linalg.cholesky(autoregression(n, 0.9)) @ rng.normal(size=n) * 0.6
    unseen = np.arange(2, n, 4)
    seen = np.delete(np.arange(n), unseen)
    y = h[seen] + 0.5 * rng.normal(size=len(seen))
    of_series = autoregression(n, 0.9)[np.ix_(seen, seen)]

    def log_density(u: float, v: float) -> float:
        covariance = np.exp(2.0 * u) * of_series + np.exp(2.0 * v) * np.eye(len(seen))
        return -0.5 * (u * u + v * v) + log_normal(y, covariance)

    data = {"T": n, "M": len(unseen), "seen": seen + 1, "unseen": unseen + 1, "y_seen": y}
    return data, quantiles_of_two(log_density, (-5.0, 2.0), (-5.0, 2.0))


@pytest.mark.seeds(1, rate=RATE)
def test_missing_data_of_a_series_are_latents_of_its_field(seed: int) -> None:
    """They were taken for effects, beside a field that took them for data."""
    data, laws = with_missing_data()
    posterior, adaptation, _ = run(MISSING, data, seed=seed, draws=2_000)
    found = has_heads(adaptation, 0, 1)
    assert found.any()
    assert (np.atleast_2d(adaptation["field_role"].values)[found][:, 2:] > 0).all()
    for name, law in zip(("log_s", "log_e"), laws, strict=True):
        assert np.abs(errors(posterior[name].values, law)).max() < LIMIT


@functools.cache
def two_series() -> tuple[dict[str, Any], list[tuple[np.ndarray, np.ndarray]]]:
    """Two walks of 40 terms with noise; quantiles of both log scales of each."""
    rng, n = np.random.default_rng(12), 40
    walk = np.minimum.outer(np.arange(n), np.arange(n)).astype(float)
    y = np.cumsum(rng.normal(size=(n, 2)) * [0.5, 0.3], axis=0) + rng.normal(size=(n, 2)) * [0.3, 0.5]

    def law(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def log_density(u: float, v: float) -> float:
            covariance = 4.0 + np.exp(2.0 * u) * walk + np.exp(2.0 * v) * np.eye(n)
            return -0.5 * (u * u + v * v) + log_normal(values, covariance)

        return quantiles_of_two(log_density, (-5.0, 2.0), (-5.0, 2.0))

    return {"T": n, "y": y}, [law(values) for values in y.T]


# `make test` has the law of five scales and a noise (test_panels.py), and that two pairs have a law each
# (unit/test_head_law.py).
@pytest.mark.thorough
@pytest.mark.seeds(1, rate=RATE)
def test_each_of_two_series_has_the_law_of_its_scales(seed: int) -> None:
    """Four heads of one field, and each pair has a tail of its own: only one of them had a law."""
    data, laws = two_series()
    posterior, adaptation, findings = run(TWO_SERIES, data, seed=seed, draws=2_000)
    roots = np.atleast_2d(adaptation["field_root"].values)
    assert max(len(np.unique(row[row >= 0])) for row in roots) == 2
    for k, of_series in enumerate(laws):
        for name, law in zip(("log_s", "log_e"), of_series, strict=True):
            assert largest_error(posterior[name].values[..., k], law, findings) < LIMIT


@pytest.mark.seeds(1, 2, rate=RATE)
def test_a_series_in_its_innovations_is_right(seed: int) -> None:
    """The derivatives in the heads that the series passes on, and terms at its end that no data tell of."""
    data, laws = with_gaps()
    posterior, adaptation, _ = run(INNOVATIONS, data, seed=seed, draws=3_000, chains=2)
    assert has_heads(adaptation, 0, 1).any()
    for name, law in zip(("log_s", "a"), laws, strict=True):
        assert np.abs(errors(posterior[name].values, law)).max() < LIMIT


@functools.cache
def coefficients() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """A regression on two columns whose coefficients are walks of 40 days; quantiles of both log scales."""
    rng, n = np.random.default_rng(9), 40
    x = rng.normal(size=(n, 2))
    walks = np.cumsum(rng.normal(size=(n, 2)) * [0.3, 0.1], axis=0)
    y = (x * walks).sum(axis=1) + 0.5 * rng.normal(size=n)
    products = [np.outer(column, column) for column in x.T]
    days = np.minimum.outer(np.arange(n), np.arange(n)) + 1.0

    def log_density(u: float, v: float) -> float:
        ways = [1.0 + np.exp(2.0 * one) * days for one in (u, v)]
        covariance = products[0] * ways[0] + products[1] * ways[1] + 0.25 * np.eye(n)
        return float(-0.5 * (u * u + v * v)) + log_normal(y, covariance)

    return {"T": n, "x": x, "y": y}, quantiles_of_two(log_density, (-6.0, 3.0), (-6.0, 3.0))


# `make test` sees that such innovations are standard normal (unit/test_innovations.py), and that a regression
# with more of them has a field for each coefficient (unit/test_many_heads.py).
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("declaration", "steps"),
    [("matrix[T, 2] z;", "z[, k]"), ("matrix[2, T] z;", "z[k]")],
    ids=["columns", "rows"],
)
@pytest.mark.seeds(1, 2, rate=RATE)
def test_coefficients_that_are_walks_have_the_law_of_their_scales(
    seed: int, declaration: str, steps: str
) -> None:
    """Two series of innovations in one variable, which the data of a day tie: every entry of a factor."""
    data, laws = coefficients()
    program = COEFFICIENTS.format(declaration=declaration, steps=steps)
    posterior, adaptation, findings = run(program, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 2, 3).any()
    for k, law in enumerate(laws):
        draws = posterior["log_s"].values[..., k]
        assert largest_error(draws, law, findings) < LIMIT


@functools.cache
def sums_of_sums() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """40 terms of a walk whose steps are a walk, with noise; quantiles of both log scales."""
    rng, n = np.random.default_rng(10), 40
    sums = np.tril(np.ones((n, n))) @ np.tril(np.ones((n, n)))
    y = 0.1 * sums @ rng.normal(size=n) + rng.normal(size=n)

    def log_density(u: float, v: float) -> float:
        covariance = np.exp(2.0 * u) * sums @ sums.T + np.exp(2.0 * v) * np.eye(n)
        return -0.5 * ((u + 2.0) ** 2 + v * v) + log_normal(y, covariance)

    return {"T": n, "y": y}, quantiles_of_two(log_density, (-7.0, 1.0), (-1.5, 1.5))


# `make test` has the innovations of a short series below, and those of two terms in unit/test_innovations.py.
@pytest.mark.thorough
@pytest.mark.seeds(1, 2, rate=RATE)
def test_sums_of_sums_have_the_law_of_their_scales(seed: int) -> None:
    """Innovations of which a term depends on the two before: regressions that answers tell to few digits.

    The noise may be a latent: given the scale of the steps it changes their law by little.
    """
    data, laws = sums_of_sums()
    posterior, adaptation, findings = run(SUMS, data, seed=seed, draws=3_000)
    assert (has_heads(adaptation, 0) | has_heads(adaptation, 0, 1)).any()
    for name, law in zip(("log_s", "log_e"), laws, strict=True):
        draws = posterior[name].values
        assert largest_error(draws, law, findings) < LIMIT


@functools.cache
def trend() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """60 terms of a local linear trend, and quantiles of the logarithms of the scales."""
    rng, n = np.random.default_rng(8), 60
    slope = np.cumsum(0.05 * rng.normal(size=n))
    y = np.cumsum(slope + 0.2 * rng.normal(size=n)) + rng.normal(size=n)
    sums = np.tril(np.ones((n, n)), -1)  # of slopes before, of steps before
    slopes = np.minimum.outer(np.arange(n), np.arange(n)) * 0.05**2 + 1.0
    fixed = 25.0 + sums @ slopes @ sums.T
    steps = np.minimum.outer(np.arange(n), np.arange(n)).astype(float)

    def log_density(u: float, v: float) -> float:
        prior = u - 0.5 * np.exp(2.0 * u) + v - 0.125 * np.exp(2.0 * v)
        return float(prior) + log_normal(y, fixed + np.exp(2.0 * u) * steps + np.exp(2.0 * v) * np.eye(n))

    return {"T": n, "y": y}, quantiles_of_two(log_density, (-9.0, 1.5), (-2.0, 1.5))


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_trend_has_the_law_that_its_filter_gives(seed: int) -> None:
    """Latents of two variables, of which one has fixed steps: factors with fill, and two heads.

    The lowest 5 % of log s_l are in a neck, where a and G have to cancel each other to one part in a
    thousand.
    """
    data, laws = trend()
    posterior, adaptation, _ = run(TREND, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 120, 121).any()
    for name, law in zip(("s_l", "s_y"), laws, strict=True):
        assert np.abs(errors(np.log(posterior[name].values), law)).max() < LIMIT


@functools.cache
def covariate_with_errors() -> tuple[dict[str, Any], list[np.ndarray]]:
    """40 values; quantiles of the slope and of both log scales, where true values are integrated out."""
    rng, n = np.random.default_rng(12), 40
    x = rng.normal(size=n)
    w, y = x + 0.4 * rng.normal(size=n), 0.9 * x + 0.3 * rng.normal(size=n)

    def log_density(b: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        of_w, of_both, of_y = 1.0 + np.exp(2.0 * u), b, b * b + np.exp(2.0 * v)
        det = of_w * of_y - of_both * of_both
        squares = (of_y * (w @ w) + of_w * (y @ y) - 2.0 * of_both * (w @ y)) / det
        prior = 4.0 * (b - 1.0) ** 2 + ((u + 1.0) / 0.3) ** 2 + (v + 1.0) ** 2
        return np.asarray(-0.5 * (n * np.log(det) + squares + prior))

    data = {"n": n, "w": w, "y": y}
    return data, quantiles_of_three(log_density, (-1.0, 2.5), (-7.0, 1.5), (-7.0, 1.5))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_latents_that_nothing_ties_leave_their_heads_their_law(seed: int) -> None:
    """The scale of the regression may be nothing, and then all true values are on its line."""
    data, laws = covariate_with_errors()
    posterior, adaptation, findings = run(TRUE_VALUES, data, seed=seed, draws=4_000)
    assert has_heads(adaptation, data["n"], data["n"] + 1, data["n"] + 2).any()
    for name, law in zip(("b", "log_s", "log_e"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


@functools.cache
def persons_with_means() -> tuple[dict[str, Any], list[np.ndarray]]:
    """Eight persons, ten times; quantiles of the log scales of means, of steps and of the noise.

    With the eigenvalues k and the axes of a series with unit steps, where all coordinates of a mean are c, a
    person has the covariance diag(d) + e^(2u) c c^T, d = e^(2v) k + e^(2w), by the formula of Sherman and
    Morrison.
    """
    rng, persons, times = np.random.default_rng(13), 8, 10
    series = np.linalg.inv(np.eye(times) - PERSISTENCE * np.eye(times, k=-1))
    k, axes = np.linalg.eigh(series @ series.T)
    means, steps = 0.5 * rng.normal(size=persons), 0.4 * rng.normal(size=(persons, times))
    y = means[:, None] + steps @ series.T + 0.3 * rng.normal(size=(persons, times))
    c, z = axes.sum(axis=0), y @ axes
    products = z.T @ z

    def log_density(u: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        over_d = [1.0 / (np.exp(2.0 * v) * one + np.exp(2.0 * w)) for one in k]
        of_mean = sum(ci * ci * over for ci, over in zip(c, over_d, strict=True))
        squares = sum(products[i, i] * over for i, over in enumerate(over_d))
        across = sum(
            c[i] * c[j] * products[i, j] * over_d[i] * over_d[j] for i in range(times) for j in range(times)
        )
        more = 1.0 + np.exp(2.0 * u) * of_mean
        log_det = np.log(more) - sum(np.log(over) for over in over_d)
        prior = (u + 1.0) ** 2 + ((v + 1.0) / 0.5) ** 2 + (w + 1.5) ** 2
        return np.asarray(-0.5 * (persons * log_det + squares - np.exp(2.0 * u) * across / more + prior))

    data = {"S": persons, "T": times, "phi": PERSISTENCE, "y": y}
    return data, quantiles_of_three(log_density, (-7.0, 2.0), (-4.0, 1.0), (-8.0, 1.0))


PERSISTENCE = 0.7
MEANS = """
data { int S; int T; real phi; matrix[S, T] y; }
parameters { vector[S] u; matrix[S, T] e; real log_u; real log_e; real log_y; }
model {
  log_u ~ normal(-1, 1); log_e ~ normal(-1, 0.5); log_y ~ normal(-1.5, 1); u ~ normal(0, exp(log_u));
  e[, 1] ~ normal(0, exp(log_e)); to_vector(e[, 2:T]) ~ normal(phi * to_vector(e[, 1:(T - 1)]), exp(log_e));
  for (t in 1:T) y[, t] ~ normal(u + e[, t], exp(log_y));
}
"""


@pytest.mark.seeds(1, 2, rate=RATE)
def test_means_of_a_few_persons_and_their_series_leave_all_scales_their_law(seed: int) -> None:
    """As the noise goes to nothing, a series is what the mean leaves of the data. If it had a field given the
    means, it could not follow these, and the lower tail of the noise would be lost.
    """
    data, laws = persons_with_means()
    posterior, adaptation, findings = run(MEANS, data, seed=seed, draws=4_000)
    n = data["S"] * (data["T"] + 1)
    assert has_heads(adaptation, n, n + 1, n + 2).any()
    for name, law in zip(("log_u", "log_e", "log_y"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


@functools.cache
def walk_with_a_gap() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """30 terms of a walk, seen with noise but for the middle ten; quantiles of both log scales."""
    data = BROWNIAN.data(BROWNIAN.size)
    y, steps = data["y"], np.minimum.outer(data["seen"], data["seen"]).astype(float)

    def log_density(u: float, v: float) -> float:
        prior = -0.125 * (u * u + v * v)
        return prior + log_normal(y, np.exp(2.0 * u) * steps + np.exp(2.0 * v) * np.eye(data["n"]))

    return data, quantiles_of_two(log_density, (-6.0, 2.0), (-12.0, 1.0), fine=240)


@pytest.mark.seeds(1, 2, rate=RATE)
def test_a_walk_whose_noise_may_be_nothing_has_its_law(seed: int) -> None:
    """A tail of one head in which the other is three times as narrow, and a shoulder that is e^-5 high.

    With one metric for the heads a chain came there once in a thousand draws, and nothing said so.
    """
    data, laws = walk_with_a_gap()
    posterior, adaptation, findings = run(BROWNIAN.program, data, seed=seed, draws=6_000)
    assert has_heads(adaptation, 0, 1).any()
    assert (adaptation["bend"].values[..., 1] < 0.0).any()
    for name, law in zip(("innovation", "noise"), laws, strict=True):
        draws = np.log(posterior[name].values)
        assert largest_error(draws, law, findings) < LIMIT
    lowest = np.log(posterior["noise"].values) < laws[1][1]
    assert (lowest.sum(axis=1) > 10).all()  # 60 are expected of each chain


@functools.cache
def eight_years() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """A walk of eight terms with noise; quantiles of the log scales of its steps and of the noise."""
    rng, n = np.random.default_rng(1), 8
    y = rng.normal() + np.cumsum(0.4 * rng.normal(size=n)) + 0.3 * rng.normal(size=n)
    walk = np.minimum.outer(np.arange(n), np.arange(n)).astype(float)

    def log_density(u: float, v: float) -> float:
        covariance = 1.0 + np.exp(2.0 * u) * walk + np.exp(2.0 * v) * np.eye(n)
        return -0.5 * ((u + 1.0) ** 2 + (v + 1.0) ** 2) + log_normal(y, covariance)

    return {"T": n, "y": y}, quantiles_of_two(log_density, (-5.5, 3.5), (-5.5, 3.5))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_a_series_of_few_years_has_the_law_of_its_scales(seed: int) -> None:
    """Ten coordinates in all, of which half are wide: without a field chains turn back in both necks."""
    data, laws = eight_years()
    posterior, adaptation, findings = run(SHORT, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 0, 1).sum() >= 3
    for name, law in zip(("log_s", "log_o"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


@functools.cache
def nine_terms() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """An autoregression that precise data hold; quantiles of the log of its steps and the logit of phi."""
    rng, n = np.random.default_rng(5), 9
    y = np.linalg.cholesky(autoregression(n, 0.4) + 0.5 * np.eye(n)) @ rng.normal(size=n)

    def log_density(u: float, v: float) -> float:
        covariance = np.exp(2.0 * u) * autoregression(n, 1.0 / (1.0 + np.exp(-v)))
        return -0.5 * (u * u + v * v / 2.25) + log_normal(y, covariance + 4.0 + 0.05**2 * np.eye(n))

    return {"T": n, "y": y}, quantiles_of_two(log_density, (-2.5, 3.5), (-8.0, 7.0))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_a_short_series_in_its_innovations_has_the_law_of_its_heads(seed: int) -> None:
    """They hardly change its precision, which precise data give, and the first term has a scale of its own.

    Between 0 and 1 this scale is a function of phi that laws with knots at equal places had only to 5 %,
    which is many standard errors of such data: half of the chains had divergences.
    """
    data, laws = nine_terms()
    posterior, adaptation, findings = run(SHORT_INNOVATIONS, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 0, 1).all()
    for name, law in zip(("log_s", "a"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


@functools.cache
def process() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """20 values of a Gaussian process with noise; quantiles of its log scale and log length."""
    rng, n = np.random.default_rng(6), 20
    t = np.linspace(0.0, 4.0, n)
    y = np.sin(2.0 * t) + 0.3 * rng.normal(size=n)
    square = np.square(np.subtract.outer(t, t))

    def log_density(u: float, v: float) -> float:
        covariance = np.exp(2.0 * u - 0.5 * square * np.exp(-2.0 * v)) + (0.09 + 1e-6) * np.eye(n)
        return float(-0.5 * u * u - 2.0 * v * v) + log_normal(y, covariance)

    return {"N": n, "t": t, "y": y}, quantiles_of_two(log_density, (-3.5, 3.5), (-2.5, 2.5))


# `make test` sees that such a process is standard normal wherever its heads are (unit/test_dense_fields.py).
@pytest.mark.thorough
@pytest.mark.seeds(1, 2, rate=RATE)
def test_a_gaussian_process_has_the_law_of_its_heads(seed: int) -> None:
    """A dense precision, which changes with both heads: where its law is wrong, a chain stands still."""
    data, laws = process()
    posterior, adaptation, findings = run(PROCESS, data, seed=seed, draws=3_000)
    assert has_heads(adaptation, 0, 1).any()
    for name, law in zip(("log_alpha", "log_rho"), laws, strict=True):
        draws = posterior[name].values
        assert largest_error(draws, law, findings) < LIMIT


def exact_draw(rng: np.random.Generator) -> np.ndarray:
    """Of the prior of the autoregression."""
    log_s, a, mu = rng.normal(), 1.0 + 0.5 * rng.normal(), 3.0 * rng.normal()
    h = np.linalg.cholesky(autoregression(PRIOR_T, float(np.tanh(a)))) @ rng.normal(size=PRIOR_T)
    return np.concatenate(([log_s, a, mu], mu + np.exp(log_s) * h))


def standardised(x: np.ndarray) -> np.ndarray:
    """Independent standard normal variables, if x (n, d) is from the prior of the autoregression."""
    log_s, a, mu, h = x[:, :1], x[:, 1:2], x[:, 2:3], x[:, 3:]
    phi, r = np.tanh(a), (h - mu) * np.exp(-log_s)
    first, steps = r[:, :1] * np.sqrt(1.0 - phi**2), r[:, 1:] - phi * r[:, :-1]
    return np.hstack((log_s, (a - 1.0) / 0.5, mu / 3.0, first, steps))


@pytest.mark.seeds(1, 2, rate=0.001)
def test_a_frozen_chain_leaves_exact_draws_as_they_are(seed: int) -> None:
    """A wrong log determinant changes the law at once; a wrong pull on the heads, only the acceptance.

    Exact draws, each moved by one iteration, must be exact draws again. A chain that has adapted itself to a
    wrong law hardly moves from exact draws, so the heads' jumps count too.
    """
    posterior = stanadapt.Posterior(PRIOR, {"T": PRIOR_T})
    d, rng = posterior.dim, np.random.default_rng(seed)
    moved = move_exact_draws(posterior, 0.5 * rng.normal(size=d), exact_draw, 3_000, rng)
    assert len(split(moved.transport)[0])
    assert moved.accepted[:, -1].mean() > 0.6
    standard = standardised(moved.ends)
    jumps = (standard - standardised(moved.starts))[:, :2]
    assert np.sqrt(np.square(jumps).mean(axis=0)).min() > 0.7
    level = 0.001 / (d + 1)  # of each test: Bonferroni
    for column in standard.T:
        assert stats.kstest(column, "norm").pvalue > level
    distances = stats.chi2.cdf(np.square(standard).sum(axis=1), d)
    assert stats.kstest(distances, "uniform").pvalue > level


def free_walk_draws(n: int, rng: np.random.Generator) -> np.ndarray:
    s = np.abs(rng.normal(size=n))
    steps = np.hstack((rng.normal(size=(n, 1)), s[:, None] * rng.normal(size=(n, 49))))
    return np.hstack((np.log(s)[:, None], np.cumsum(steps, axis=1)))


def prior_draws(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.array([exact_draw(rng) for _ in range(n)])


@pytest.mark.seeds(1, rate=RATE)
@pytest.mark.parametrize(
    ("program", "t", "draws", "heads"),
    [(FREE_WALK, 50, free_walk_draws, [0]), (PRIOR, PRIOR_T, prior_draws, [0, 1])],
    ids=["walk", "autoregression"],
)
def test_exact_draws_are_standard_normal_in_z_wherever_their_heads_are(
    program: str, t: int, draws: Callable[[int, np.random.Generator], np.ndarray], heads: list[int], seed: int
) -> None:
    """A law that fits where most draws are, and not beyond: it can hold a chain, which then looks well.

    Draws are sorted by a head. The latents' root mean square is 1 in the middle, in both tails, and in the
    last 0.5 % on either side.
    """
    posterior = stanadapt.Posterior(program, {"T": t})
    target = posterior.model.target()
    n, rng = 4_000, np.random.default_rng(seed)
    x = draws(n, rng)
    variables = (
        np.array([0, 1, 2, *[3] * t])[-x.shape[1] :] if x.shape[1] > t + 1 else np.array([0, *[1] * t])
    )

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        return float(log_density_gradient(target, at, score))

    learned, _ = learn_field(in_maps(evaluate), x[0], np.ones(x.shape[1]), variables)
    assert learned is not None
    field, z = field_of(learned.rows), np.empty_like(x)
    np.testing.assert_array_equal(field.heads, heads)
    for row, out in zip(x, z, strict=True):
        into_z(learned.rows, row, out)
    latents = np.setdiff1d(field.own, [2]) if len(heads) == 2 else field.own
    for head in heads:
        order = np.argsort(x[:, head])
        for first, last in ((0, 20), (20, 200), (200, 3_800), (3_800, 3_980), (3_980, n)):
            size = np.sqrt(np.square(z[order[first:last]][:, latents]).mean())
            assert size == pytest.approx(1.0, abs=0.1 + 0.5 / np.sqrt(last - first))
