"""Models with latent fields, as a user would write them, with simulated data: what fields.py runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

VOLATILITY = """
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> phi;
  real<lower=0> sigma;
  vector[T] h;
}
model {
  mu ~ normal(0, 3);
  (phi + 1) / 2 ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  h[1] ~ normal(mu, sigma / sqrt(1 - square(phi)));
  h[2 : T] ~ normal(mu + phi * (h[1 : (T - 1)] - mu), sigma);
  y ~ normal(0, exp(h / 2));
}
"""
VOLATILITY_NONCENTRED = """
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> phi;
  real<lower=0> sigma;
  vector[T] z;
}
model {
  vector[T] h = sigma * z;
  h[1] /= sqrt(1 - square(phi));
  for (t in 2 : T) {
    h[t] += phi * h[t - 1];
  }
  mu ~ normal(0, 3);
  (phi + 1) / 2 ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  z ~ std_normal();
  y ~ normal(0, exp((mu + h) / 2));
}
"""
AUTOREGRESSION = """
data {
  int<lower=1> T;
  array[T] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> phi;
  real<lower=0> sigma;
  vector[T] x;
}
model {
  mu ~ normal(0, 3);
  (phi + 1) / 2 ~ beta(5, 1.5);
  sigma ~ normal(0, 1);
  x[1] ~ normal(0, sigma / sqrt(1 - square(phi)));
  x[2 : T] ~ normal(phi * x[1 : (T - 1)], sigma);
  y ~ poisson_log(mu + x);
}
"""
TREND = """
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  vector[T] level;
  vector[T] slope;
  real<lower=0> sigma_level;
  real<lower=0> sigma_slope;
  real<lower=0> sigma;
}
model {
  sigma_level ~ normal(0, 1);
  sigma_slope ~ normal(0, 0.5);
  sigma ~ normal(0, 2);
  level[1] ~ normal(0, 5);
  slope[1] ~ normal(0, 1);
  level[2 : T] ~ normal(level[1 : (T - 1)] + slope[1 : (T - 1)], sigma_level);
  slope[2 : T] ~ normal(slope[1 : (T - 1)], sigma_slope);
  y ~ normal(level, sigma);
}
"""
WALK = """
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  vector[T] level;
  real<lower=0> step;
  real<lower=0> noise;
  real<lower=1> nu;
}
model {
  step ~ normal(0, 1);
  noise ~ normal(0, 1);
  nu ~ gamma(2, 0.1);
  level[1] ~ normal(0, 5);
  level[2 : T] ~ normal(level[1 : (T - 1)], step);
  y ~ student_t(nu, level, noise);
}
"""
ICAR = """
data {
  int<lower=1> N;
  int<lower=1> E;
  array[E] int<lower=1, upper=N> node1;
  array[E] int<lower=1, upper=N> node2;
  array[N] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> sigma;
  vector[N] u;
}
model {
  mu ~ normal(0, 3);
  sigma ~ normal(0, 1);
  target += -(N - 1) * log(sigma) - 0.5 * dot_self((u[node1] - u[node2]) / sigma);
  sum(u) ~ normal(0, 0.01 * N);
  y ~ poisson_log(mu + u);
}
"""
BYM2 = """
data {
  int<lower=1> N;
  int<lower=1> E;
  array[E] int<lower=1, upper=N> node1;
  array[E] int<lower=1, upper=N> node2;
  real<lower=0> scaling;  // of the structured part, so that its variance is about 1
  array[N] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> sigma;
  real<lower=0, upper=1> rho;
  vector[N] theta;
  vector[N] phi;
}
model {
  mu ~ normal(0, 3);
  sigma ~ normal(0, 1);
  rho ~ beta(0.5, 0.5);
  theta ~ std_normal();
  target += -0.5 * dot_self(phi[node1] - phi[node2]);
  sum(phi) ~ normal(0, 0.001 * N);
  y ~ poisson_log(mu + sigma * (sqrt(1 - rho) * theta + sqrt(rho / scaling) * phi));
}
"""
PROCESS = """
data {
  int<lower=1> N;
  array[N] real x;
  array[N] int<lower=0> y;
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  real a;
  vector[N] f;
}
model {
  matrix[N, N] K = gp_exp_quad_cov(x, alpha, rho) + diag_matrix(rep_vector(1e-4, N));
  rho ~ inv_gamma(5, 5);
  alpha ~ std_normal();
  a ~ normal(0, 2);
  f ~ multi_normal_cholesky(rep_vector(0, N), cholesky_decompose(K));
  y ~ poisson_log(a + f);
}
"""

# The regularised horseshoe of Piironen and Vehtari (2017), Sparsity information and regularization in the
# horseshoe and other shrinkage priors; d = 2 predictors + 3, the sizes of two posteriors of PosteriorDB.
HORSESHOE = """
data {
  int<lower=1> n;
  int<lower=1> d;
  matrix[n, d] x;
  array[n] int<lower=0, upper=1> y;
}
parameters {
  real beta0;
  vector[d] z;
  real<lower=0> tau;
  vector<lower=0>[d] lambda;
  real<lower=0> caux;
}
model {
  real c = 2.5 * sqrt(caux);
  vector[d] shrunk = sqrt(c ^ 2 * square(lambda) ./ (c ^ 2 + tau ^ 2 * square(lambda)));
  z ~ std_normal();
  lambda ~ cauchy(0, 1);
  tau ~ cauchy(0, 0.01);
  caux ~ inv_gamma(2, 2);
  beta0 ~ normal(0, 10);
  y ~ bernoulli_logit(beta0 + x * (z .* shrunk * tau));
}
"""
TOPICS = """
data {
  int<lower=2> K;
  int<lower=2> V;
  int<lower=1> M;
  int<lower=1> N;
  array[N] int<lower=1, upper=V> w;
  array[N] int<lower=1, upper=M> doc;
}
parameters {
  array[M] simplex[K] theta;
  array[K] simplex[V] phi;
}
model {
  for (m in 1 : M) {
    theta[m] ~ dirichlet(rep_vector(0.3, K));
  }
  for (k in 1 : K) {
    phi[k] ~ dirichlet(rep_vector(0.1, V));
  }
  for (n in 1 : N) {
    vector[K] gamma;
    for (k in 1 : K) {
      gamma[k] = log(theta[doc[n], k]) + log(phi[k, w[n]]);
    }
    target += log_sum_exp(gamma);
  }
}
"""


# Coefficients that change with time: three walks in the columns of a matrix of innovations.
COEFFICIENTS = """
data { int T; int K; matrix[T, K] x; vector[T] y; }
parameters { vector[K] first; matrix[T - 1, K] z; vector<lower=0>[K] tau; real<lower=0> sigma; }
model {
  matrix[T, K] b;
  for (k in 1 : K) {
    b[, k] = first[k] + cumulative_sum(append_row(0, tau[k] * z[, k]));
  }
  first ~ normal(0, 2);
  to_vector(z) ~ std_normal();
  tau ~ normal(0, 0.5);
  sigma ~ exponential(1);
  y ~ normal(rows_dot_product(x, b), sigma);
}
"""

# An autoregression of second order in its innovations.
WAVES = """
data { int T; vector[T] y; }
parameters {
  real<lower=-1, upper=1> r1;
  real<lower=-1, upper=1> r2;
  real<lower=0> s;
  real<lower=0> sigma;
  real mu;
  vector[T] z;
}
model {
  vector[T] h = s * z;
  h[2] += r1 * (1 - r2) * h[1];
  for (t in 3 : T) {
    h[t] += r1 * (1 - r2) * h[t - 1] + r2 * h[t - 2];
  }
  s ~ std_normal();
  sigma ~ std_normal();
  mu ~ normal(0, 2);
  z ~ std_normal();
  y ~ normal(mu + h, sigma);
}
"""

# A walk whose steps are a walk, with counts.
SMOOTH = """
data { int T; array[T] int y; }
parameters { real a; real b; vector[T] z; real<lower=0> tau; }
model {
  a ~ normal(0, 3);
  b ~ normal(0, 3);
  z ~ std_normal();
  tau ~ normal(0, 0.1);
  y ~ poisson_log(a + b * linspaced_vector(T, -1, 1) + tau * cumulative_sum(cumulative_sum(z)));
}
"""

# Volatilities of several stocks, each with parameters of its own.
STOCKS = """
data { int T; int K; matrix[T, K] y; }
parameters {
  vector[K] mu;
  vector<lower=-1, upper=1>[K] phi;
  vector<lower=0>[K] sigma;
  matrix[T, K] h;
}
model {
  mu ~ normal(0, 3);
  (phi + 1) / 2 ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  for (k in 1 : K) {
    h[1, k] ~ normal(mu[k], sigma[k] / sqrt(1 - square(phi[k])));
    h[2 : T, k] ~ normal(mu[k] + phi[k] * (h[1 : (T - 1), k] - mu[k]), sigma[k]);
    y[, k] ~ normal(0, exp(h[, k] / 2));
  }
}
"""

# The same in their innovations.
STOCKS_NONCENTRED = """
data { int T; int K; matrix[T, K] y; }
parameters {
  vector[K] mu;
  vector<lower=-1, upper=1>[K] phi;
  vector<lower=0>[K] sigma;
  matrix[T, K] z;
}
model {
  mu ~ normal(0, 3);
  (phi + 1) / 2 ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  to_vector(z) ~ std_normal();
  for (k in 1 : K) {
    vector[T] h = sigma[k] * z[ , k];
    h[1] /= sqrt(1 - square(phi[k]));
    for (t in 2 : T) {
      h[t] += phi[k] * h[t - 1];
    }
    y[ , k] ~ normal(0, exp((mu[k] + h) / 2));
  }
}
"""

# Counts of persons in a few weeks, each of them a walk.
PERSONS = """
data { int N; int T; array[N, T] int y; }
parameters {
  real mu;
  real<lower=0> first;
  real<lower=0> step;
  array[N] vector[T] h;
}
model {
  mu ~ normal(0, 2);
  first ~ std_normal();
  step ~ normal(0, 0.5);
  for (i in 1 : N) {
    h[i, 1] ~ normal(mu, first);
    h[i, 2 : T] ~ normal(h[i, 1 : (T - 1)], step);
    y[i] ~ poisson_log(h[i]);
  }
}
"""

# Walks of several places with one noise, and scales that have a mean and a scale of their own.
PLACES = """
data { int T; int K; matrix[T, K] y; }
parameters {
  real m;
  real<lower=0> spread;
  vector[K] log_s;
  real<lower=0> sigma;
  matrix[T, K] x;
}
model {
  m ~ normal(-1, 1);
  spread ~ std_normal();
  log_s ~ normal(m, spread);
  sigma ~ std_normal();
  for (k in 1 : K) {
    x[1, k] ~ normal(0, 3);
    x[2 : T, k] ~ normal(x[1 : (T - 1), k], exp(log_s[k]));
    y[, k] ~ normal(x[, k], sigma);
  }
}
"""

# Counts of persons, whose levels and persistences are a population's, and whose innovations have one scale.
PANEL = """
data { int J; int T; array[J, T] int y; }
parameters {
  real mean_level;
  real<lower=0> spread_of_levels;
  real mean_persistence;
  real<lower=0> spread_of_persistences;
  vector[J] level;
  vector[J] persistence;
  real<lower=0> sigma;
  matrix[J, T] h;
}
model {
  mean_level ~ normal(0, 2);
  spread_of_levels ~ std_normal();
  mean_persistence ~ std_normal();
  spread_of_persistences ~ normal(0, 0.5);
  level ~ normal(mean_level, spread_of_levels);
  persistence ~ normal(mean_persistence, spread_of_persistences);
  sigma ~ std_normal();
  for (j in 1 : J) {
    real phi = tanh(persistence[j]);
    h[j, 1] ~ normal(0, sigma / sqrt(1 - square(phi)));
    h[j, 2 : T] ~ normal(phi * h[j, 1 : (T - 1)], sigma);
    y[j] ~ poisson_log(level[j] + to_vector(h[j]));
  }
}
"""

PARTIES = """
data {
  int<lower=1> T;
  int<lower=2> K;
  int<lower=1> N;
  int<lower=1> H;
  array[N] int<lower=1, upper=T> t;
  array[N] int<lower=1, upper=H> h;
  array[N, K] int<lower=0> y;
}
parameters {
  vector<lower=0>[K - 1] sigma;
  matrix[T, K - 1] mu;
  real<lower=0> tau;
  matrix[H, K - 1] house;
}
model {
  sigma ~ normal(0, 0.3);
  tau ~ normal(0, 0.3);
  to_vector(house) ~ normal(0, tau);
  mu[1] ~ normal(0, 1);
  for (k in 1 : K - 1) {
    mu[2 : T, k] ~ normal(mu[1 : T - 1, k], sigma[k]);
  }
  for (n in 1 : N) {
    y[n] ~ multinomial_logit(append_row(to_vector(mu[t[n]] + house[h[n]]), 0));
  }
}
"""
POLLS = """
data {
  int<lower=1> T;
  int<lower=1> S;
  int<lower=1> N;
  int<lower=1> H;
  array[N] int<lower=1, upper=T> t;
  array[N] int<lower=1, upper=S> s;
  array[N] int<lower=1, upper=H> h;
  array[N] int<lower=0, upper=700> y;
}
parameters {
  real<lower=0> sigma_nation;
  real<lower=0> sigma_state;
  real<lower=0> tau;
  vector[T] z;
  matrix[T, S] w;
  vector[S] first;
  vector[H] house;
}
transformed parameters {
  vector[T] nation = cumulative_sum(z) * sigma_nation;
  matrix[T, S] mu;
  for (j in 1 : S) {
    mu[ : , j] = first[j] + cumulative_sum(w[ : , j]) * sigma_state + nation;
  }
}
model {
  vector[N] eta;
  sigma_nation ~ normal(0, 0.1);
  sigma_state ~ normal(0, 0.1);
  tau ~ normal(0, 0.2);
  z ~ std_normal();
  to_vector(w) ~ std_normal();
  first ~ normal(0, 0.5);
  house ~ std_normal();
  for (n in 1 : N) {
    eta[n] = mu[t[n], s[n]] + tau * house[h[n]];
  }
  y ~ binomial_logit(700, eta);
}
"""
AREAS = """
data {
  int<lower=1> N;
  int<lower=1> T;
  int<lower=0> E;
  array[E] int<lower=1, upper=N> node1;
  array[E] int<lower=1, upper=N> node2;
  array[N, T] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> sigma_u;
  real<lower=0> sigma_w;
  real<lower=0> sigma_d;
  vector[N] u;
  vector[T] w;
  matrix[N, T] d;
}
model {
  mu ~ normal(0, 3);
  sigma_u ~ normal(0, 1);
  sigma_w ~ normal(0, 0.5);
  sigma_d ~ normal(0, 0.5);
  target += -0.5 * dot_self(u[node1] - u[node2]) / sigma_u ^ 2 - (N - 1) * log(sigma_u);
  sum(u) ~ normal(0, 0.001 * N);
  w[1] ~ normal(0, 0.01);
  w[2 : T] ~ normal(w[1 : T - 1], sigma_w);
  to_vector(d) ~ normal(0, sigma_d);
  for (t in 1 : T) {
    y[ : , t] ~ poisson_log(mu + u + w[t] + d[ : , t]);
  }
}
"""
TEAMS = """
data {
  int<lower=2> n;
  int<lower=1> W;
  int<lower=1> G;
  array[G] int<lower=1, upper=W> week;
  array[G] int<lower=1, upper=n> home;
  array[G] int<lower=1, upper=n> away;
  array[G, 2] int<lower=0> goals;
}
parameters {
  real mu;
  real advantage;
  real<lower=0> sigma_first;
  real<lower=0> sigma;
  array[W] vector[n] strength;
}
model {
  mu ~ normal(0, 1);
  advantage ~ normal(0, 1);
  sigma_first ~ normal(0, 1);
  sigma ~ normal(0, 0.2);
  strength[1] ~ normal(0, sigma_first);
  for (w in 2 : W) {
    strength[w] ~ normal(strength[w - 1], sigma);
  }
  for (g in 1 : G) {
    real d = strength[week[g]][home[g]] - strength[week[g]][away[g]];
    goals[g, 1] ~ poisson_log(mu + advantage + d);
    goals[g, 2] ~ poisson_log(mu - d);
  }
}
"""
REGRESSION = """
data {
  int<lower=2> T;
  int<lower=1> K;
  matrix[T, K] x;
  vector[T] y;
}
parameters {
  vector<lower=0>[K] sigma;
  real<lower=0> noise;
  matrix[T, K] b;
}
model {
  sigma ~ normal(0, 0.3);
  noise ~ normal(0, 1);
  b[1] ~ normal(0, 2);
  for (k in 1 : K) {
    b[2 : T, k] ~ normal(b[1 : (T - 1), k], sigma[k]);
  }
  y ~ normal(rows_dot_product(x, b), noise);
}
"""
CURRENCIES = """
data {
  int<lower=2> T;
  int<lower=1> K;
  array[T] vector[K] y;
}
parameters {
  vector[K] mu;
  vector<lower=0, upper=1>[K] phi;
  vector<lower=0>[K] sigma;
  cholesky_factor_corr[K] L;
  matrix[T, K] h;
}
model {
  mu ~ normal(0, 2);
  phi ~ beta(20, 1.5);
  sigma ~ normal(0, 0.5);
  L ~ lkj_corr_cholesky(2);
  for (k in 1 : K) {
    h[1, k] ~ normal(mu[k], sigma[k] / sqrt(1 - square(phi[k])));
    h[2 : T, k] ~ normal(mu[k] + phi[k] * (h[1 : (T - 1), k] - mu[k]), sigma[k]);
  }
  for (t in 1 : T) {
    y[t] ~ multi_normal_cholesky(rep_vector(0, K), diag_pre_multiply(exp(h[t]' / 2), L));
  }
}
"""
EPIDEMIC = """
data {
  int<lower=1> T;
  int<lower=1> S;
  vector[S] serial; // shares of cases that come so many days after the one that infects them
  array[T] int<lower=0> y;
}
parameters {
  real<lower=0> sigma;
  real<lower=0> k;
  real<lower=0> first;
  vector[T] z;
}
transformed parameters {
  vector[T] log_R = cumulative_sum(append_row(0.5 * z[1], sigma * z[2 : T]));
  vector[T] cases;
  for (t in 1 : T) {
    if (t <= 7) {
      cases[t] = first;
    } else {
      real pressure = 0;
      for (s in 1 : min(S, t - 1)) {
        pressure += serial[s] * cases[t - s];
      }
      cases[t] = exp(log_R[t]) * pressure;
    }
  }
}
model {
  sigma ~ normal(0, 0.1);
  k ~ normal(0, 20);
  first ~ exponential(0.05);
  z ~ std_normal();
  y ~ neg_binomial_2(cases, k);
}
"""

# Votes of justices: their positions walk from term to term, and cases have thresholds and weights.
POSITIONS = """
data { int J; int T; int K; array[J, T, K] int y; }
parameters {
  matrix[J, T] theta; matrix[T, K] a; matrix<lower=0>[T, K] b; real<lower=0> s; real<lower=0> s_b;
}
model {
  s ~ normal(0, 0.5); s_b ~ std_normal();
  theta[, 1] ~ normal(0, 2); for (t in 2:T) theta[, t] ~ normal(theta[, t - 1], s);
  to_vector(a) ~ normal(0, 2); to_vector(b) ~ lognormal(0, s_b);
  for (j in 1:J) for (t in 1:T) y[j, t] ~ bernoulli_logit(b[t] * theta[j, t] - a[t]);
}
"""

# A regression on a covariate that is measured with an error which is roughly known.
COVARIATE = """
data { int n; vector[n] w; vector[n] y; }
parameters {
  vector[n] x; real mu; real<lower=0> tau; real a; real b; real<lower=0> sigma; real<lower=0> s;
}
model {
  mu ~ normal(0, 5); tau ~ normal(0, 3); a ~ normal(0, 5); b ~ normal(0, 2);
  sigma ~ std_normal(); s ~ normal(0.8, 0.1);
  x ~ normal(mu, tau); w ~ normal(x, s); y ~ normal(a + b * x, sigma);
}
"""

# A monthly state, of which an indicator is seen in each month, and the sum in each quarter.
NOWCAST = """
data { int Q; vector[Q] q; vector[3 * Q] m; }
parameters {
  vector[3 * Q] x; real<lower=-1, upper=1> phi; real<lower=0> s; real<lower=0> s_q; real<lower=0> s_m; real l;
}
model {
  phi ~ normal(0.5, 0.3); s ~ normal(0, 0.5); s_q ~ normal(0, 0.5); s_m ~ normal(0, 0.5); l ~ normal(1, 0.5);
  x[1] ~ std_normal(); x[2:(3 * Q)] ~ normal(phi * x[1:(3 * Q - 1)], s);
  for (k in 1:Q) q[k] ~ normal(sum(x[(3 * k - 2):(3 * k)]), s_q);
  m ~ normal(l * x, s_m);
}
"""


# Counts of a few persons, with a mean and an autoregression for each.
VISITS = """
data { int S; int T; array[S, T] int y; }
parameters {
  real a; vector[S] u; real<lower=0> s_u; real<lower=0, upper=1> phi; real<lower=0> s; matrix[S, T] e;
}
model {
  a ~ normal(0, 2); s_u ~ normal(0, 1); s ~ normal(0, 1); phi ~ beta(4, 2); u ~ normal(0, s_u);
  for (k in 1:S) {
    e[k, 1] ~ normal(0, s / sqrt(1 - square(phi))); e[k, 2:T] ~ normal(phi * e[k, 1:(T - 1)], s);
    y[k] ~ poisson_log(a + u[k] + e[k]);
  }
}
"""


def autoregression(rng: np.random.Generator, length: int, phi: float, sigma: float) -> np.ndarray:
    """A stationary series around 0."""
    x = rng.normal(size=length) * sigma
    x[0] /= np.sqrt(1.0 - phi**2)
    for t in range(1, length):
        x[t] += phi * x[t - 1]
    return x


def neighbours(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the edges of a grid, from 1."""
    place = np.arange(1, rows * columns + 1).reshape(rows, columns)
    across, down = (place[:, :-1], place[:, 1:]), (place[:-1], place[1:])
    first, second = (np.concatenate([side[i].ravel() for side in (across, down)]) for i in (0, 1))
    return first, second


def volatility(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(20)
    h = -1.0 + autoregression(rng, length, 0.97, 0.2)
    return {"T": length, "y": np.exp(h / 2) * rng.normal(size=length)}


def counts(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(21)
    return {"T": length, "y": rng.poisson(np.exp(1.0 + autoregression(rng, length, 0.9, 0.3)))}


def trend(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(22)
    slope = np.cumsum(0.05 * rng.normal(size=length))
    level = np.cumsum(slope + 0.2 * rng.normal(size=length))
    return {"T": length, "y": level + rng.normal(size=length)}


def walk(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(23)
    level = np.cumsum(0.3 * rng.normal(size=length))
    return {"T": length, "y": level + 0.7 * rng.standard_t(3, size=length)}


def coefficients(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(28)
    x = rng.normal(size=(length, 3))
    walks = np.array([1.0, -1.0, 0.0]) + np.cumsum(rng.normal(size=(length, 3)) * [0.2, 0.1, 0.05], axis=0)
    return {"T": length, "K": 3, "x": x, "y": (x * walks).sum(axis=1) + 0.5 * rng.normal(size=length)}


def waves(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(29)
    h = 0.4 * rng.normal(size=length)
    for t in range(2, length):
        h[t] += 1.2 * h[t - 1] - 0.5 * h[t - 2]
    return {"T": length, "y": 1.0 + h + 0.3 * rng.normal(size=length)}


def smooth_counts(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(30)
    steps = np.cumsum(0.02 * rng.normal(size=length))
    return {"T": length, "y": rng.poisson(np.exp(np.clip(1.5 + np.cumsum(steps), -3.0, 5.0)))}


def stocks(length: int) -> dict[str, Any]:
    rng, n = np.random.default_rng(31), 8
    y = np.empty((length, n))
    for column in y.T:
        phi, sigma = rng.uniform(0.85, 0.98), rng.uniform(0.15, 0.4)
        h = rng.normal(-1.0, 0.5) + autoregression(rng, length, phi, sigma)
        column[:] = np.exp(h / 2) * rng.normal(size=length)
    return {"T": length, "K": n, "y": y}


def counts_of_a_panel(length: int, n: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(34)
    phi, level = np.tanh(rng.normal(0.6, 0.3, n)), rng.normal(1.0, 0.7, n)
    h = np.array([autoregression(rng, length, each, 0.5) for each in phi])
    return {"J": n, "T": length, "y": rng.poisson(np.exp(level[:, None] + h))}


def persons(n: int) -> dict[str, Any]:
    rng, weeks = np.random.default_rng(33), 8
    h = rng.normal(0.5, 0.6, (n, 1)) + np.cumsum(0.3 * rng.normal(size=(n, weeks)), axis=1)
    return {"N": n, "T": weeks, "y": rng.poisson(np.exp(h))}


def places(length: int) -> dict[str, Any]:
    rng, n = np.random.default_rng(32), 12
    steps = np.exp(rng.normal(-1.5, 0.5, n)) * rng.normal(size=(length, n))
    walks = rng.normal(size=n) + np.cumsum(steps, axis=0)
    return {"T": length, "K": n, "y": walks + 0.4 * rng.normal(size=walks.shape)}


def counts_on_a_grid(side: int) -> dict[str, Any]:
    rng = np.random.default_rng(24)
    i, j = np.divmod(np.arange(side * side), side)
    field = np.sin(i / 3) + np.cos(j / 4)
    first, second = neighbours(side, side)
    y = rng.poisson(3.0 * np.exp(0.5 * (field - field.mean())))
    return {"N": side * side, "E": first.size, "node1": first, "node2": second, "y": y}


def scaled_counts_on_a_grid(side: int) -> dict[str, Any]:
    """The same, and the geometric mean of the variances of the structured part."""
    data = counts_on_a_grid(side)
    first, second, n = data["node1"] - 1, data["node2"] - 1, side * side
    precision = np.zeros((n, n))
    for a, b in zip(first, second, strict=True):
        precision[[a, b], [a, b]] += 1.0
        precision[[a, b], [b, a]] -= 1.0
    variances = np.diag(np.linalg.pinv(precision))
    return data | {"scaling": float(np.exp(np.log(variances).mean()))}


def counts_on_a_line(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(25)
    x = np.sort(rng.uniform(0.0, 10.0, n))
    return {"N": n, "x": x, "y": rng.poisson(np.exp(0.5 * (np.sin(x) + 0.3 * x)))}


def outcomes(predictors: int) -> dict[str, Any]:
    """Two classes of a few dozen, by five of many predictors, as in studies of gene expression."""
    rng, n = np.random.default_rng(26), 54 if predictors < 3_000 else 102
    x = rng.standard_normal((n, predictors))
    chance = 1.0 / (1.0 + np.exp(-x[:, :5] @ np.array([3.0, -3.0, 2.0, -2.0, 2.0])))
    return {"n": n, "d": predictors, "x": x, "y": (rng.random(n) < chance).astype(int)}


def documents(n: int) -> dict[str, Any]:
    """Of 60 words each, on four topics."""
    rng, words = np.random.default_rng(27), 150
    topics = rng.dirichlet(np.full(words, 0.1), size=4)
    shares = rng.dirichlet(np.full(4, 0.3), size=n)
    drawn = [rng.choice(words, 60, p=share @ topics) + 1 for share in shares]
    whole = np.concatenate(drawn)
    document = np.repeat(np.arange(1, n + 1), 60)
    return {"K": 4, "V": words, "M": n, "N": whole.size, "w": whole, "doc": document}


def shares_of_parties(length: int) -> dict[str, Any]:
    """Polls of five houses, of 800 people each."""
    rng, k, n, houses = np.random.default_rng(28), 7, 6 * length // 5, 5
    steps = rng.uniform(0.03, 0.15, k - 1) * rng.normal(size=(length, k - 1))
    mu = 0.5 * rng.normal(size=k - 1) + np.cumsum(steps, axis=0)
    house = 0.1 * rng.normal(size=(houses, k - 1))
    t, h = np.sort(rng.integers(length, size=n)), rng.integers(houses, size=n)
    weights = np.exp(np.column_stack((mu[t] + house[h], np.zeros(n))))
    y = np.array([rng.multinomial(800, row / row.sum()) for row in weights])
    return {"T": length, "K": k, "N": n, "H": houses, "t": t + 1, "h": h + 1, "y": y}


def polls_of_states(length: int) -> dict[str, Any]:
    """Of 700 people each, in eight states that move with the nation and by themselves."""
    rng, states, n, houses = np.random.default_rng(29), 8, 5 * length // 2, 8
    nation, first = np.cumsum(0.04 * rng.normal(size=length)), 0.3 * rng.normal(size=states)
    own, house = np.cumsum(0.05 * rng.normal(size=(length, states)), axis=0), 0.08 * rng.normal(size=houses)
    t, s, h = (rng.integers(size, size=n) for size in (length, states, houses))
    y = rng.binomial(700, 1.0 / (1.0 + np.exp(-(nation[t] + own[t, s] + first[s] + house[h]))))
    known = {"T": length, "S": states, "N": n, "H": houses}
    return known | {"t": t + 1, "s": s + 1, "h": h + 1, "y": y}


def counts_of_areas(side: int) -> dict[str, Any]:
    """Over eight years, with an effect of each area and year."""
    rng, years = np.random.default_rng(30), 8
    i, j = np.divmod(np.arange(side * side), side)
    field = 0.3 * (np.sin(i / 2) + np.cos(j / 2))
    w = np.cumsum(0.15 * rng.normal(size=years))
    log_rate = 1.5 + (field - field.mean())[:, None] + w + 0.15 * rng.normal(size=(side * side, years))
    first, second = neighbours(side, side)
    y = rng.poisson(np.exp(log_rate))
    return {"N": side * side, "T": years, "E": first.size, "node1": first, "node2": second, "y": y}


def results_of_teams(weeks: int) -> dict[str, Any]:
    """Fourteen teams that all play in each week."""
    rng, n = np.random.default_rng(31), 14
    strength = np.cumsum(
        np.vstack((0.3 * rng.normal(size=n), 0.05 * rng.normal(size=(weeks - 1, n)))), axis=0
    )
    pairs = np.array([rng.permutation(n).reshape(-1, 2) for _ in range(weeks)]).reshape(-1, 2)
    week = np.repeat(np.arange(weeks), n // 2)
    d = strength[week, pairs[:, 0]] - strength[week, pairs[:, 1]]
    goals = rng.poisson(np.exp(np.column_stack((0.5 + d, 0.3 - d))))
    home, away = pairs.T + 1
    return {"n": n, "W": weeks, "G": len(week), "week": week + 1, "home": home, "away": away, "goals": goals}


def regression(length: int) -> dict[str, Any]:
    """On a constant and four predictors, whose coefficients are walks."""
    rng, k = np.random.default_rng(32), 5
    x = np.column_stack((np.ones(length), rng.normal(size=(length, k - 1))))
    b = np.cumsum(rng.normal(size=(length, k)) * [0.1, 0.05, 0.2, 0.1, 0.15], axis=0)
    return {"T": length, "K": k, "x": x, "y": (x * b).sum(axis=1) + 0.4 * rng.normal(size=length)}


def rates_of_exchange(length: int) -> dict[str, Any]:
    """Of three currencies to one, which makes their errors correlated."""
    rng, k = np.random.default_rng(33), 3
    h = np.column_stack([autoregression(rng, length, 0.95, 0.25) for _ in range(k)])
    errors = rng.multivariate_normal(np.zeros(k), 0.5 + 0.5 * np.eye(k), size=length)
    return {"T": length, "K": k, "y": np.exp(h / 2) * errors}


def cases(length: int) -> dict[str, Any]:
    """Of a disease; each infects others two weeks long, most of them after five days."""
    rng, days = np.random.default_rng(34), 14
    serial = np.exp(-0.5 * np.square((np.arange(1, days + 1) - 5) / 2))
    serial /= serial.sum()
    log_rate, expected = 0.1 + np.cumsum(0.06 * rng.normal(size=length)), np.full(length, 20.0)
    for t in range(7, length):
        n = min(days, t)
        expected[t] = np.exp(log_rate[t]) * (serial[:n] @ expected[t - 1 :: -1][:n])
    return {
        "T": length,
        "S": days,
        "serial": serial,
        "y": rng.negative_binomial(10, 10 / (10 + expected)),
    }


def votes(terms: int) -> dict[str, Any]:
    """Of nine justices, twelve in each term."""
    rng, justices, each = np.random.default_rng(35), 9, 12
    steps = np.cumsum(0.25 * rng.normal(size=(justices, terms)), axis=1)
    theta = np.linspace(-2, 2, justices)[:, None] + steps
    a, b = rng.normal(size=(terms, each)), 1.2 * np.exp(0.4 * rng.normal(size=(terms, each)))
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(a - b * theta[:, :, None])))
    return {"J": justices, "T": terms, "K": each, "y": y}


def measured(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(36)
    x = 2.0 + 1.5 * rng.normal(size=n)
    return {"n": n, "w": x + 0.8 * rng.normal(size=n), "y": 1.0 + 0.7 * x + 0.5 * rng.normal(size=n)}


def quarters(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(37)
    x = autoregression(rng, 3 * number, 0.6, 0.4)
    q = x.reshape(number, 3).sum(axis=1) + 0.2 * rng.normal(size=number)
    return {"Q": number, "q": q, "m": 0.8 * x + 0.5 * rng.normal(size=x.size)}


def visits(persons: int) -> dict[str, Any]:
    """Over forty weeks."""
    rng, weeks = np.random.default_rng(38), 40
    u, e = 0.6 * rng.normal(size=persons), [autoregression(rng, weeks, 0.8, 0.4) for _ in range(persons)]
    return {"S": persons, "T": weeks, "y": rng.poisson(np.exp(0.8 + u[:, None] + np.array(e)))}


class FieldModel(NamedTuple):
    program: str
    data: Callable[[int], dict[str, Any]]
    size: int
    goal: float  # least bulk ESS per 1,000 gradients of the draws


MODELS = {
    "volatility": FieldModel(VOLATILITY, volatility, 500, 60.0),
    "volatility_long": FieldModel(VOLATILITY, volatility, 2_000, 40.0),
    "volatility_noncentred": FieldModel(VOLATILITY_NONCENTRED, volatility, 300, 40.0),
    "autoregression": FieldModel(AUTOREGRESSION, counts, 300, 100.0),
    "trend": FieldModel(TREND, trend, 200, 30.0),
    "walk": FieldModel(WALK, walk, 250, 80.0),
    "coefficients": FieldModel(COEFFICIENTS, coefficients, 100, np.nan),
    "waves": FieldModel(WAVES, waves, 200, np.nan),
    "smooth": FieldModel(SMOOTH, smooth_counts, 120, np.nan),
    "stocks": FieldModel(STOCKS, stocks, 100, np.nan),
    "stocks_noncentred": FieldModel(STOCKS_NONCENTRED, stocks, 100, np.nan),
    "places": FieldModel(PLACES, places, 60, np.nan),
    "persons": FieldModel(PERSONS, persons, 60, np.nan),
    "panel": FieldModel(PANEL, counts_of_a_panel, 60, np.nan),
    "parties": FieldModel(PARTIES, shares_of_parties, 100, np.nan),
    "polls": FieldModel(POLLS, polls_of_states, 60, np.nan),
    "areas": FieldModel(AREAS, counts_of_areas, 6, np.nan),
    "teams": FieldModel(TEAMS, results_of_teams, 26, np.nan),
    "regression": FieldModel(REGRESSION, regression, 120, np.nan),
    "currencies": FieldModel(CURRENCIES, rates_of_exchange, 150, np.nan),
    "epidemic": FieldModel(EPIDEMIC, cases, 80, np.nan),
    "positions": FieldModel(POSITIONS, votes, 20, np.nan),
    "covariate": FieldModel(COVARIATE, measured, 120, np.nan),
    "nowcast": FieldModel(NOWCAST, quarters, 40, np.nan),
    "visits": FieldModel(VISITS, visits, 12, np.nan),
    "icar": FieldModel(ICAR, counts_on_a_grid, 12, 200.0),
    "bym2": FieldModel(BYM2, scaled_counts_on_a_grid, 12, np.nan),
    "bym2_large": FieldModel(BYM2, scaled_counts_on_a_grid, 44, np.nan),
    "process": FieldModel(PROCESS, counts_on_a_line, 60, 30.0),
    "process_large": FieldModel(PROCESS, counts_on_a_line, 200, np.nan),
    "horseshoe": FieldModel(HORSESHOE, outcomes, 1_536, np.nan),
    "horseshoe_large": FieldModel(HORSESHOE, outcomes, 5_966, np.nan),
    "topics": FieldModel(TOPICS, documents, 100, np.nan),
}
