"""Everyday models with priors that can be simulated: what ranks.py runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ZERO_INFLATED = """
data { int N; int P; matrix[N, P] x; array[N] int<lower=0> y; }
parameters { real a; vector[P] b; real c; }
model {
  a ~ normal(0.5, 1); b ~ normal(0, 0.5); c ~ normal(-1, 1);
  for (n in 1:N) {
    real eta = a + x[n] * b;
    real counted = bernoulli_logit_lpmf(0 | c) + poisson_log_lpmf(y[n] | eta);
    target += y[n] == 0 ? log_sum_exp(bernoulli_logit_lpmf(1 | c), counted) : counted;
  }
}
"""
ORDERED_PROBIT = """
data { int N; int P; int K; matrix[N, P] x; array[N] int<lower=1, upper=K> y; }
parameters { vector[P] b; ordered[K - 1] cut; }
model {
  b ~ normal(0, 1); cut ~ normal(0, 1.5);
  for (n in 1:N) {
    real eta = x[n] * b;
    if (y[n] == 1)
      target += log(Phi(cut[1] - eta));
    else if (y[n] == K)
      target += log(Phi(eta - cut[K - 1]));
    else
      target += log(Phi(cut[y[n]] - eta) - Phi(cut[y[n] - 1] - eta));
  }
}
"""
GROWTH = """
data { int J; int T; vector[T] t; matrix[J, T] y; }
parameters {
  real mu_a; real mu_c; real<lower=0> s_a; real<lower=0> s_c; real<lower=0> delay; real<lower=0> noise;
  vector[J] log_a; vector[J] log_c;
}
model {
  mu_a ~ normal(2, 0.5); mu_c ~ normal(-1, 0.5); s_a ~ normal(0, 0.5); s_c ~ normal(0, 0.5);
  delay ~ lognormal(1, 0.3); noise ~ normal(0, 0.5);
  log_a ~ normal(mu_a, s_a); log_c ~ normal(mu_c, s_c);
  for (j in 1:J)
    y[j] ~ normal(exp(log_a[j] - delay * exp(-exp(log_c[j]) * t)), noise);
}
"""
GROWTH_ALONE = """
data { int J; int T; vector[T] t; matrix[J, T] y; }
parameters {
  real mu_a; real mu_c; real<lower=0> s_a; real<lower=0> s_c; real<lower=0> delay; real<lower=0> noise;
  vector[J] of_a; vector[J] of_c;
}
model {
  mu_a ~ normal(2, 0.5); mu_c ~ normal(-1, 0.5); s_a ~ normal(0, 0.5); s_c ~ normal(0, 0.5);
  delay ~ lognormal(1, 0.3); noise ~ normal(0, 0.5);
  of_a ~ std_normal(); of_c ~ std_normal();
  for (j in 1:J)
    y[j] ~ normal(exp(mu_a + s_a * of_a[j] - delay * exp(-exp(mu_c + s_c * of_c[j]) * t)), noise);
}
"""
SEASONS = """
data { int T; int S; vector[T] y; }
parameters {
  real<lower=0> s_level; real<lower=0> s_season; real<lower=0> noise; vector[T] level; vector[T] season;
}
model {
  s_level ~ normal(0, 0.5); s_season ~ normal(0, 0.3); noise ~ normal(0, 1);
  level[1] ~ normal(0, 5); level[2:T] ~ normal(level[1:(T - 1)], s_level);
  season[1:(S - 1)] ~ normal(0, 2);
  for (t in S:T) season[t] ~ normal(-sum(season[(t - S + 1):(t - 1)]), s_season);
  y ~ normal(level + season, noise);
}
"""
SEASONS_ALONE = """
data { int T; int S; vector[T] y; }
transformed data {
  matrix[T, T] season = identity_matrix(T);  // of its innovations
  matrix[T, T] walk; matrix[T, T] first; matrix[T, T] later;
  for (t in S:T) for (i in 1:(S - 1)) season[t] -= season[t - i];
  for (t in 1:T) for (u in 1:T) walk[t, u] = min(t, u) - 1;
  first = season[, 1:(S - 1)] * season[, 1:(S - 1)]'; later = season[, S:T] * season[, S:T]';
}
parameters { real<lower=0> s_level; real<lower=0> s_season; real<lower=0> noise; }
model {
  matrix[T, T] K = rep_matrix(25, T, T) + square(s_level) * walk + 4 * first + square(s_season) * later;
  s_level ~ normal(0, 0.5); s_season ~ normal(0, 0.3); noise ~ normal(0, 1);
  for (t in 1:T) K[t, t] += square(noise);
  y ~ multi_normal_cholesky(rep_vector(0, T), cholesky_decompose(K));
}
"""
MISSING = """
data { int T; int M; array[T - M] int seen; array[M] int unseen; vector[T - M] y_seen; }
parameters {
  real mu; real<lower=-1, upper=1> phi; real<lower=0> s; real<lower=0> noise; vector[T] x; vector[M] y_unseen;
}
model {
  vector[T] y;
  y[seen] = y_seen; y[unseen] = y_unseen;
  mu ~ normal(0, 2); (phi + 1) / 2 ~ beta(5, 1.5); s ~ normal(0, 1); noise ~ normal(0, 1);
  x[1] ~ normal(mu, s / sqrt(1 - phi^2)); x[2:T] ~ normal(mu + phi * (x[1:(T - 1)] - mu), s);
  y ~ normal(x, noise);
}
"""
MISSING_ALONE = """
data { int T; int M; array[T - M] int seen; array[M] int unseen; vector[T - M] y_seen; }
parameters { real mu; real<lower=-1, upper=1> phi; real<lower=0> s; real<lower=0> noise; }
model {
  matrix[T - M, T - M] K;
  mu ~ normal(0, 2); (phi + 1) / 2 ~ beta(5, 1.5); s ~ normal(0, 1); noise ~ normal(0, 1);
  for (i in 1:(T - M)) {
    K[i, i] = square(s) / (1 - square(phi)) + square(noise);
    for (j in 1:(i - 1)) {
      K[i, j] = square(s) / (1 - square(phi)) * phi ^ (seen[i] - seen[j]);
      K[j, i] = K[i, j];
    }
  }
  y_seen ~ multi_normal_cholesky(rep_vector(mu, T - M), cholesky_decompose(K));
}
"""
MIXTURE = """
data { int N; vector[N] x; vector[N] y; }
parameters { ordered[2] a; vector[2] b; vector<lower=0>[2] s; real<lower=0, upper=1> p; }
model {
  a ~ normal(0, 3); b ~ normal(0, 1); s ~ normal(0, 1); p ~ beta(3, 3);
  for (n in 1:N) {
    vector[2] eta = a + b * x[n];
    target += log_mix(p, normal_lpdf(y[n] | eta[1], s[1]), normal_lpdf(y[n] | eta[2], s[2]));
  }
}
"""

Simulated = tuple[dict[str, Any], dict[str, Any]]  # the truth by name, and the data


def zero_inflated(rng: np.random.Generator) -> Simulated:
    n, x = 150, rng.normal(size=(150, 3))
    truth = {"a": rng.normal(0.5, 1.0), "b": 0.5 * rng.normal(size=3), "c": rng.normal(-1.0, 1.0)}
    none = rng.random(n) < 1.0 / (1.0 + np.exp(-truth["c"]))
    y = np.where(none, 0, rng.poisson(np.exp(truth["a"] + x @ truth["b"])))
    return truth, {"N": n, "P": 3, "x": x, "y": y}


def ordered_probit(rng: np.random.Generator) -> Simulated:
    n, x = 150, rng.normal(size=(150, 2))
    truth = {"b": rng.normal(size=2), "cut": np.sort(1.5 * rng.normal(size=4))}
    latent = x @ truth["b"] + rng.normal(size=n)
    y = 1 + (latent[:, None] > truth["cut"]).sum(axis=1)
    return truth, {"N": n, "P": 2, "K": 5, "x": x, "y": y}


def growth(rng: np.random.Generator) -> Simulated:
    subjects, t = 20, np.linspace(0.0, 10.0, 7)
    truth: dict[str, Any] = {"mu_a": rng.normal(2.0, 0.5), "mu_c": rng.normal(-1.0, 0.5)}
    truth |= {"s_a": abs(0.5 * rng.normal()), "s_c": abs(0.5 * rng.normal())}
    truth |= {"delay": np.exp(rng.normal(1.0, 0.3)), "noise": abs(0.5 * rng.normal())}
    truth["log_a"] = rng.normal(truth["mu_a"], truth["s_a"], subjects)
    truth["log_c"] = rng.normal(truth["mu_c"], truth["s_c"], subjects)
    rate = np.exp(truth["log_c"])[:, None]
    mean = np.exp(truth["log_a"][:, None] - truth["delay"] * np.exp(-rate * t))
    return truth, {"J": subjects, "T": t.size, "t": t, "y": rng.normal(mean, truth["noise"])}


def seasons(rng: np.random.Generator) -> Simulated:
    length, period = 60, 4
    truth: dict[str, Any] = {"s_level": abs(0.5 * rng.normal()), "s_season": abs(0.3 * rng.normal())}
    truth["noise"] = abs(rng.normal())
    steps = truth["s_level"] * rng.normal(size=length)
    steps[0] = 5.0 * rng.normal()
    truth["level"], season = np.cumsum(steps), 2.0 * rng.normal(size=length)
    for t in range(period - 1, length):
        season[t] = -season[t - period + 1 : t].sum() + truth["s_season"] * rng.normal()
    truth["season"] = season
    y = truth["level"] + season + truth["noise"] * rng.normal(size=length)
    return truth, {"T": length, "S": period, "y": y}


def missing(rng: np.random.Generator) -> Simulated:
    length, unseen = 60, np.sort(rng.choice(60, 15, replace=False))
    truth: dict[str, Any] = {"mu": 2.0 * rng.normal(), "phi": 2.0 * rng.beta(5.0, 1.5) - 1.0}
    truth |= {"s": abs(rng.normal()), "noise": abs(rng.normal())}
    x = truth["s"] * rng.normal(size=length)
    x[0] /= np.sqrt(1.0 - truth["phi"] ** 2)
    for t in range(1, length):
        x[t] += truth["phi"] * x[t - 1]
    truth["x"] = truth["mu"] + x
    y = truth["x"] + truth["noise"] * rng.normal(size=length)
    truth["y_unseen"], seen = y[unseen], np.delete(np.arange(length), unseen)
    data = {"T": length, "M": unseen.size, "seen": seen + 1, "unseen": unseen + 1, "y_seen": y[seen]}
    return truth, data


def mixture(rng: np.random.Generator) -> Simulated:
    n, x = 150, rng.normal(size=150)
    truth: dict[str, Any] = {"a": np.sort(3.0 * rng.normal(size=2)), "b": rng.normal(size=2)}
    truth |= {"s": np.abs(rng.normal(size=2)), "p": rng.beta(3.0, 3.0)}
    which = np.where(rng.random(n) < truth["p"], 0, 1)
    y = truth["a"][which] + truth["b"][which] * x + truth["s"][which] * rng.normal(size=n)
    return truth, {"N": n, "x": x, "y": y}


class RankModel(NamedTuple):
    """A Stan program with its prior and its data, written once more in Python."""

    program: str
    names: tuple[str, ...]  # of the parameters
    simulate: Callable[[np.random.Generator], Simulated]
    # A program with the same posterior for some of the parameters, and these; in it latents are not centred,
    # or integrated out, so that it has no necks.
    alone: str | None = None
    kept: tuple[str, ...] = ()


def simulate(name: str, number: int) -> Simulated:
    """The truth and the data of a model's data set with this number."""
    return MODELS[name].simulate(np.random.default_rng([list(MODELS).index(name), number]))


MODELS = {
    "zero_inflated": RankModel(ZERO_INFLATED, ("a", "b", "c"), zero_inflated),
    "ordered_probit": RankModel(ORDERED_PROBIT, ("b", "cut"), ordered_probit),
    "growth": RankModel(
        GROWTH,
        ("mu_a", "mu_c", "s_a", "s_c", "delay", "noise", "log_a", "log_c"),
        growth,
        GROWTH_ALONE,
        ("mu_a", "mu_c", "s_a", "s_c", "delay", "noise"),
    ),
    "seasons": RankModel(
        SEASONS,
        ("s_level", "s_season", "noise", "level", "season"),
        seasons,
        SEASONS_ALONE,
        ("s_level", "s_season", "noise"),
    ),
    "missing": RankModel(
        MISSING,
        ("mu", "phi", "s", "noise", "x", "y_unseen"),
        missing,
        MISSING_ALONE,
        ("mu", "phi", "s", "noise"),
    ),
    "mixture": RankModel(MIXTURE, ("a", "b", "s", "p"), mixture),
}
