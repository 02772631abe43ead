"""Large hierarchies, changepoints and a walk with a gap, with simulated data: what tails.py runs on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ITEMS_DATA = """
data {
  int<lower=1> persons;
  int<lower=1> items;
  array[persons, items] int<lower=0, upper=1> y;
}
"""
ITEMS_CENTRED = (
    ITEMS_DATA
    + """
parameters {
  vector[persons] theta;
  vector[items] b;
  real<lower=0> sigma;
}
model {
  sigma ~ normal(0, 2);
  b ~ normal(0, 3);
  theta ~ normal(0, sigma);
  for (i in 1 : items) {
    y[ : , i] ~ bernoulli_logit(theta - b[i]);
  }
}
"""
)
ITEMS = (
    ITEMS_DATA
    + """
parameters {
  vector[persons] theta;
  vector[items] b;
  real<lower=0> sigma;
}
model {
  sigma ~ normal(0, 2);
  b ~ normal(0, 3);
  theta ~ std_normal();
  for (i in 1 : items) {
    y[ : , i] ~ bernoulli_logit(sigma * theta - b[i]);
  }
}
"""
)
ITEMS_2PL = (
    ITEMS_DATA
    + """
parameters {
  vector[persons] theta;
  vector<lower=0>[items] a;
  vector[items] b;
  real mu;
  real<lower=0> sigma_a;
  real<lower=0> sigma_b;
}
model {
  mu ~ normal(0, 2);
  sigma_a ~ normal(0, 1);
  sigma_b ~ normal(0, 2);
  theta ~ std_normal();
  a ~ lognormal(0, sigma_a);
  b ~ normal(mu, sigma_b);
  for (i in 1 : items) {
    y[ : , i] ~ bernoulli_logit(a[i] * (theta - b[i]));
  }
}
"""
)
COUNTY_DATA = """
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> county;
  vector[N] x;
  vector[N] y;
}
"""
COUNTY_CENTRED = (
    COUNTY_DATA
    + """
parameters {
  vector[J] a;
  vector[J] b;
  vector[2] mu;
  vector<lower=0>[2] sigma;
  real<lower=0> sigma_y;
}
model {
  mu ~ normal(0, 5);
  sigma ~ normal(0, 1);
  sigma_y ~ normal(0, 2);
  a ~ normal(mu[1], sigma[1]);
  b ~ normal(mu[2], sigma[2]);
  y ~ normal(a[county] + b[county] .* x, sigma_y);
}
"""
)
COUNTY = (
    COUNTY_DATA
    + """
parameters {
  vector[J] u;
  vector[J] v;
  vector[2] mu;
  vector<lower=0>[2] sigma;
  real<lower=0> sigma_y;
}
model {
  vector[J] a = mu[1] + sigma[1] * u;
  vector[J] b = mu[2] + sigma[2] * v;
  mu ~ normal(0, 5);
  sigma ~ normal(0, 1);
  sigma_y ~ normal(0, 2);
  u ~ std_normal();
  v ~ std_normal();
  y ~ normal(a[county] + b[county] .* x, sigma_y);
}
"""
)
COUNTY_LKJ = (
    COUNTY_DATA
    + """
parameters {
  matrix[2, J] z;
  vector[2] mu;
  vector<lower=0>[2] sigma;
  cholesky_factor_corr[2] L;
  real<lower=0> sigma_y;
}
model {
  matrix[2, J] ab = rep_matrix(mu, J) + diag_pre_multiply(sigma, L) * z;
  mu ~ normal(0, 5);
  sigma ~ normal(0, 1);
  sigma_y ~ normal(0, 2);
  L ~ lkj_corr_cholesky(2);
  to_vector(z) ~ std_normal();
  y ~ normal(to_vector(ab[1, county]) + to_vector(ab[2, county]) .* x, sigma_y);
}
"""
)
COUNTY_LKJ_CENTRED = (
    COUNTY_DATA
    + """
parameters {
  array[J] vector[2] ab;
  vector[2] mu;
  vector<lower=0>[2] sigma;
  cholesky_factor_corr[2] L;
  real<lower=0> sigma_y;
}
model {
  mu ~ normal(0, 5);
  sigma ~ normal(0, 1);
  sigma_y ~ normal(0, 2);
  L ~ lkj_corr_cholesky(2);
  ab ~ multi_normal_cholesky(mu, diag_pre_multiply(sigma, L));
  vector[N] m;
  for (i in 1 : N) {
    m[i] = ab[county[i]][1] + ab[county[i]][2] * x[i];
  }
  y ~ normal(m, sigma_y);
}
"""
)
CHANGEPOINTS = """
data {
  int<lower=1> T;
  int<lower=1> S;
  int<lower=1> K;
  vector[T] t;
  vector[S] change;
  matrix[T, K] X;
  vector[T] y;
}
transformed data {
  matrix[T, S] A;
  for (s in 1 : S) {
    for (i in 1 : T) {
      A[i, s] = t[i] > change[s];
    }
  }
}
parameters {
  real k;
  real m;
  vector[S] delta;
  real<lower=0> sigma;
  vector[K] beta;
}
model {
  k ~ normal(0, 5);
  m ~ normal(0, 5);
  delta ~ double_exponential(0, 0.05);
  sigma ~ normal(0, 0.5);
  beta ~ normal(0, 10);
  y ~ normal((k + A * delta) .* t + (m - A * (change .* delta)) + X * beta, sigma);
}
"""
CHANGEPOINTS_SCALE = (
    CHANGEPOINTS.replace("real<lower=0> sigma;", "real<lower=0> sigma;\n  real<lower=0> tau;")
    .replace("double_exponential(0, 0.05)", "double_exponential(0, tau)")
    .replace("sigma ~ normal", "tau ~ normal(0, 0.2);\n  sigma ~ normal")
)
BROWNIAN = """
data {
  int<lower=1> T;
  int<lower=1> n;
  array[n] int<lower=1, upper=T> seen;
  vector[n] y;
}
parameters {
  real<lower=0> innovation;
  real<lower=0> noise;
  vector[T] x;
}
model {
  innovation ~ lognormal(0, 2);
  noise ~ lognormal(0, 2);
  x[1] ~ normal(0, innovation);
  x[2 : T] ~ normal(x[1 : (T - 1)], innovation);
  y ~ normal(x[seen], noise);
}
"""
CROSSED = """
data {
  int<lower=1> N;
  int<lower=1> I;
  int<lower=1> J;
  int<lower=1> K;
  array[N] int<lower=1, upper=I> first;
  array[N] int<lower=1, upper=J> second;
  array[N] int<lower=1, upper=K> third;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real mu;
  vector[I] a;
  vector[J] b;
  vector[K] c;
  vector<lower=0>[3] sigma;
}
model {
  mu ~ normal(0, 3);
  sigma ~ normal(0, 1);
  a ~ normal(0, sigma[1]);
  b ~ normal(0, sigma[2]);
  c ~ normal(0, sigma[3]);
  y ~ bernoulli_logit(mu + a[first] + b[second] + c[third]);
}
"""

CROSSED_SMALL = """
data {
  int<lower=1> I;
  int<lower=1> J;
  int<lower=1> n;
  array[I, J] int<lower=0, upper=n> y;
}
parameters {
  real mu;
  vector[I] a;
  vector[J] b;
  vector<lower=0>[2] sigma;
}
model {
  mu ~ normal(0, 1);
  sigma ~ exponential(1);
  a ~ normal(0, sigma[1]);
  b ~ normal(0, sigma[2]);
  for (i in 1 : I) {
    y[i] ~ binomial_logit(n, mu + a[i] + b);
  }
}
"""


def effects(likelihood: str, *, centred: bool, cholesky: bool = True) -> str:
    """A program for K correlated effects of each group, with normal data or another likelihood."""
    noise = likelihood == "normal"
    if not centred:
        parameters = "matrix[K, J] z; cholesky_factor_corr[K] L;"
        prior = "L ~ lkj_corr_cholesky(2); to_vector(z) ~ std_normal();"
    elif cholesky:
        parameters = "array[J] vector[K] b; cholesky_factor_corr[K] L;"
        prior = "L ~ lkj_corr_cholesky(2); b ~ multi_normal_cholesky(mu, diag_pre_multiply(sigma, L));"
    else:
        parameters = "array[J] vector[K] b; corr_matrix[K] R;"
        prior = "R ~ lkj_corr(2); b ~ multi_normal(mu, quad_form_diag(R, sigma));"
    return f"""
data {{
  int<lower=1> N;
  int<lower=1> J;
  int<lower=1> K;
  array[N] int<lower=1, upper=J> group;
  matrix[N, K] X;
  {"vector[N] y" if noise else "array[N] int<lower=0> y"};
}}
parameters {{
  vector[K] mu;
  vector<lower=0>[K] sigma;
  {"real<lower=0> sigma_y;" if noise else ""}
  {parameters}
}}
model {{
  {"" if centred else "matrix[K, J] b = diag_pre_multiply(sigma, L) * z;"}
  vector[N] m;
  mu ~ normal(0, 5);
  sigma ~ normal(0, 1);
  {"sigma_y ~ normal(0, 2);" if noise else ""}
  {prior}
  for (i in 1:N) {{
    m[i] = X[i] * {"b[group[i]]" if centred else "(mu + b[, group[i]])"};
  }}
  y ~ {likelihood}({"m, sigma_y" if noise else "m"});
}}
"""


def logistic(eta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-eta))


def answers(items: int) -> dict[str, Any]:
    """Of 1,000 persons, all items alike."""
    rng = np.random.default_rng(30)
    theta, b = 0.8 * rng.normal(size=(1_000, 1)), rng.normal(size=items) - 1.0
    return {"persons": 1_000, "items": items, "y": rng.binomial(1, logistic(theta - b))}


def grouped(
    groups: int, effects: int, each: int, draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]
) -> dict[str, Any]:
    """Groups with correlated effects, of a time and of other predictors, and `each` observations."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(groups), each)
    times = np.tile(np.linspace(0.0, 1.8, each), groups)
    predictors = np.vstack((np.ones(group.size), times, rng.normal(size=(effects, group.size))))[:effects].T
    sigma, correlations = np.resize([0.5, 0.3, 0.4], effects), np.full((effects, effects), 0.4)
    np.fill_diagonal(correlations, 1.0)
    b = np.resize([1.0, -0.5, 0.3], effects)
    covariance = correlations * np.outer(sigma, sigma)
    b = b + rng.multivariate_normal(np.zeros(effects), covariance, groups)
    y = draw(rng, (predictors * b[group]).sum(axis=1))
    return {"N": group.size, "J": groups, "K": effects, "group": group + 1, "X": predictors, "y": y}


def of_days(groups: int) -> dict[str, Any]:
    """Ten days of each person, as in a study of sleep."""
    return grouped(groups, 2, 10, lambda rng, m: m + 0.8 * rng.normal(size=m.size))


def of_choices(groups: int) -> dict[str, Any]:
    return grouped(groups, 2, 8, lambda rng, m: rng.binomial(1, logistic(m)))


def of_counts(groups: int) -> dict[str, Any]:
    return grouped(groups, 2, 6, lambda rng, m: rng.poisson(np.exp(m)))


def of_three(groups: int) -> dict[str, Any]:
    return grouped(groups, 3, 10, lambda rng, m: m + 0.8 * rng.normal(size=m.size))


def answers_2pl(items: int) -> dict[str, Any]:
    rng = np.random.default_rng(31)
    theta, b = rng.normal(size=(1_000, 1)), rng.normal(size=items)
    a = np.exp(0.3 * rng.normal(size=items))
    return {"persons": 1_000, "items": items, "y": rng.binomial(1, logistic(a * (theta - b)))}


def counties(number: int) -> dict[str, Any]:
    """Houses in counties, some one and some twenty; x is a floor, 0 or 1, often the same in all."""
    rng = np.random.default_rng(32)
    county = np.repeat(np.arange(1, number + 1), 1 + rng.geometric(0.15, number))
    a = 1.3 + 0.35 * rng.normal(size=number)
    b = -0.7 + 0.25 * (0.4 * (a - 1.3) / 0.35 + 0.9 * rng.normal(size=number))
    x = rng.binomial(1, 0.25, county.size).astype(float)
    y = a[county - 1] + b[county - 1] * x + 0.75 * rng.normal(size=county.size)
    return {"N": county.size, "J": number, "county": county, "x": x, "y": y}


def days(number: int) -> dict[str, Any]:
    """Three years with seasons, and a trend whose slope changes at six of 60 places where it might."""
    rng = np.random.default_rng(33)
    t = np.linspace(0.0, 1.0, number)
    change = np.linspace(0.0, 0.8, 62)[1:-1]
    delta = np.zeros(60)
    delta[rng.choice(60, 6, replace=False)] = rng.laplace(0.0, 0.6, 6)
    year = 2.0 * np.pi * 3.0 * t[:, None] * np.arange(1, 6)
    waves = np.concatenate((np.sin(year), np.cos(year)), axis=1)
    trend = 0.4 * t + np.maximum(t[:, None] - change, 0.0) @ delta
    y = trend + waves @ (0.05 * rng.normal(size=10)) + 0.05 * rng.normal(size=number)
    return {"T": number, "S": 60, "K": 10, "t": t, "change": change, "X": waves, "y": y}


def walk_with_gap(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(34)
    x = np.cumsum(0.1 * rng.normal(size=length))
    third = length // 3
    seen = np.concatenate((np.arange(1, third + 1), np.arange(length - third + 1, length + 1)))
    return {"T": length, "n": seen.size, "seen": seen, "y": x[seen - 1] + 0.15 * rng.normal(size=seen.size)}


def crossed(number: int) -> dict[str, Any]:
    """Three crossed factors: the second has few levels' worth of variance, the third nearly none."""
    rng = np.random.default_rng(35)
    sizes, scales = (number, number // 2, 40), (0.9, 0.4, 0.05)
    n = 8 * number
    levels = [rng.integers(0, size, n) for size in sizes]
    eta = -0.5 + sum(
        scale * rng.normal(size=size)[level] for size, scale, level in zip(sizes, scales, levels, strict=True)
    )
    first, second, third = (level + 1 for level in levels)
    own = dict(zip("IJK", sizes, strict=True))
    return own | {
        "N": n,
        "first": first,
        "second": second,
        "third": third,
        "y": rng.binomial(1, logistic(eta)),
    }


def crossed_small(number: int) -> dict[str, Any]:
    """Two crossed factors, each pair of levels seen; the second has little variance."""
    rng = np.random.default_rng(36)
    eta = 0.3 + 0.8 * rng.normal(size=(number, 1)) + 0.2 * rng.normal(size=number + 3)
    return {"I": number, "J": number + 3, "n": 3, "y": rng.binomial(3, logistic(eta))}


def curves(number: int, likelihood: str, *, groups: bool = False) -> str:
    """Smooth functions of predictors, as brms writes them, and effects of groups beside them."""
    outcomes, last = (
        ("vector[N] y", "real<lower=0> sigma;") if likelihood == "normal" else ("array[N] int y", "")
    )
    each = range(1, number + 1)
    data = "".join(f" matrix[N, K] Z{i}; vector[N] x{i};" for i in each)
    parameters = "".join(f" real b{i}; vector[K] z{i}; real<lower=0> tau{i};" for i in each)
    priors = "".join(
        f" b{i} ~ normal(0, 5); z{i} ~ std_normal(); tau{i} ~ student_t(3, 0, 2.5);" for i in each
    )
    eta = "".join(f" + b{i} * x{i} + Z{i} * (tau{i} * z{i})" for i in each)
    if groups:
        data += " int J; array[N] int group;"
        parameters += " vector[J] u; real<lower=0> s;"
        priors += " u ~ std_normal(); s ~ student_t(3, 0, 2.5);"
        eta += " + s * u[group]"
    if likelihood == "normal":
        priors, eta = priors + " sigma ~ student_t(3, 0, 2.5);", f"{eta}, sigma"
    return f"""
data {{ int N; int K; {outcomes};{data} }}
parameters {{ real a;{parameters} {last} }}
model {{
  a ~ student_t(3, 0, 2.5);{priors}
  y ~ {likelihood}(a{eta});
}}
"""


def maximal(likelihood: str, *, centred: bool) -> str:
    """Crossed subjects and items, each with an intercept and a slope that are correlated."""
    noise = likelihood == "normal"
    parameters = (
        "array[J] vector[2] u; array[I] vector[2] w;" if centred else "matrix[2, J] z_u; matrix[2, I] z_w;"
    )
    turned = """
  matrix[2, J] u = diag_pre_multiply(tau_u, L_u) * z_u;
  matrix[2, I] w = diag_pre_multiply(tau_w, L_w) * z_w;"""
    prior = """
  u ~ multi_normal_cholesky(rep_vector(0, 2), diag_pre_multiply(tau_u, L_u));
  w ~ multi_normal_cholesky(rep_vector(0, 2), diag_pre_multiply(tau_w, L_w));"""
    u, w = ("u[subject[n]][{}]", "w[item[n]][{}]") if centred else ("u[{}, subject[n]]", "w[{}, item[n]]")
    terms = [f"b[{k}] + {u.format(k)} + {w.format(k)}" for k in (1, 2)]
    return f"""
data {{
  int N; int J; int I;
  array[N] int subject;
  array[N] int item;
  vector[N] x;
  {"vector[N] y" if noise else "array[N] int y"};
}}
parameters {{
  vector[2] b;
  vector<lower=0>[2] tau_u;
  vector<lower=0>[2] tau_w;
  cholesky_factor_corr[2] L_u;
  cholesky_factor_corr[2] L_w;
  {"real<lower=0> sigma;" if noise else ""}
  {parameters}
}}
model {{{"" if centred else turned}
  vector[N] m;
  b ~ normal(0, 5); tau_u ~ normal(0, 2); tau_w ~ normal(0, 2);
  L_u ~ lkj_corr_cholesky(2); L_w ~ lkj_corr_cholesky(2);
  {"sigma ~ normal(0, 2);" if noise else ""}
  {prior if centred else "to_vector(z_u) ~ std_normal(); to_vector(z_w) ~ std_normal();"}
  for (n in 1:N) m[n] = {terms[0]} + ({terms[1]}) * x[n];
  y ~ {likelihood}({"m, sigma" if noise else "m"});
}}
"""


def classes(*, centred: bool) -> str:
    """Classes in schools, with slopes of the classes."""
    own = (
        "vector[S] a; vector[C] c; vector[C] v;"
        if centred
        else "vector[S] z_a; vector[C] z_c; vector[C] z_v;"
    )
    turned = """
  vector[C] c = mu[1] + s[1] * z_a[school] + s[2] * z_c;
  vector[C] v = mu[2] + s[3] * z_v;
  z_a ~ std_normal(); z_c ~ std_normal(); z_v ~ std_normal();"""
    prior = "a ~ normal(mu[1], s[1]); c ~ normal(a[school], s[2]); v ~ normal(mu[2], s[3]);"
    return f"""
data {{ int N; int S; int C; array[N] int group; array[C] int school; vector[N] x; vector[N] y; }}
parameters {{ vector[2] mu; vector<lower=0>[3] s; real<lower=0> sigma; {own} }}
model {{
  {prior if centred else turned}
  mu ~ normal(0, 5); s ~ normal(0, 2); sigma ~ normal(0, 2);
  y ~ normal(c[group] + v[group] .* x, sigma);
}}
"""


OVERDISPERSED = """
data { int N; int J; array[N] int group; vector[N] x; array[N] int y; }
parameters { real a; real b; vector[J] z; vector[N] z_each; real<lower=0> s; real<lower=0> s_each; }
model {
  a ~ normal(0, 3); b ~ normal(0, 1); s ~ normal(0, 1); s_each ~ normal(0, 1);
  z ~ std_normal(); z_each ~ std_normal();
  y ~ poisson_log(a + b * x + s * z[group] + s_each * z_each);
}
"""
RATINGS = """
data { int N; int J; int I; array[N] int person; array[N] int item; array[N] int y; }
parameters { ordered[4] c; vector[J] z; vector[I] z_item; real<lower=0> s; real<lower=0> s_item; }
model {
  c ~ normal(0, 3); s ~ normal(0, 2); s_item ~ normal(0, 2); z ~ std_normal(); z_item ~ std_normal();
  y ~ ordered_logistic(s * z[person] + s_item * z_item[item], c);
}
"""
FACTORIAL = """
data { int N; int A; int B; array[N] int i; array[N] int j; vector[N] y; }
parameters {
  real mu; vector[A] a; vector[B] b; matrix[A, B] ab;
  real<lower=0> s_a; real<lower=0> s_b; real<lower=0> s_ab; real<lower=0> sigma;
}
model {
  mu ~ normal(0, 10); s_a ~ normal(0, 3); s_b ~ normal(0, 3); s_ab ~ normal(0, 3); sigma ~ normal(0, 3);
  a ~ normal(0, s_a); b ~ normal(0, s_b); to_vector(ab) ~ normal(0, s_ab);
  for (n in 1:N) y[n] ~ normal(mu + a[i[n]] + b[j[n]] + ab[i[n], j[n]], sigma);
}
"""
STUDIES = """
data { int N; int S; array[N] int study; vector[N] y; vector<lower=0>[N] error; }
parameters { real mu; vector[S] a; vector[N] theta; real<lower=0> s; real<lower=0> tau; }
model {
  mu ~ normal(0, 1); s ~ cauchy(0, 0.5); tau ~ cauchy(0, 0.5);
  a ~ normal(mu, s); theta ~ normal(a[study], tau);
  y ~ normal(theta, error);
}
"""

# Answers of persons to testlets of four items: what a person brings to each testlet has a scale of its own.
TESTLETS = """
data { int P; int I; int L; array[I] int l; array[P, I] int y; }
parameters {
  vector[P] theta; vector[I] b; matrix[P, L] g; real<lower=0> s; vector<lower=0>[L] s_g; real<lower=0> s_b;
}
model {
  s ~ std_normal(); s_g ~ std_normal(); s_b ~ normal(0, 2);
  theta ~ normal(0, s); b ~ normal(0, s_b); for (k in 1:L) g[, k] ~ normal(0, s_g[k]);
  for (p in 1:P) for (i in 1:I) y[p, i] ~ bernoulli_logit(theta[p] + g[p, l[i]] - b[i]);
}
"""


SOFT_SUM = """
data { int J; int N; array[N] int g; vector[N] x; array[N] int y; }
parameters { real mu; real b; vector[J] u; real<lower=0> s; }
model {
  mu ~ normal(0, 2); b ~ std_normal(); s ~ exponential(1);
  u ~ normal(0, s); sum(u) ~ normal(0, 0.001 * J); y ~ bernoulli_logit(mu + b * x + u[g]);
}
"""

QUANTILES = """
data { int J; int N; array[N] int g; vector[N] x; vector[N] y; }
parameters { real mu; real b; vector[J] u; real<lower=0> s; real<lower=0> sigma; }
model {
  mu ~ normal(0, 5); b ~ normal(0, 5); s ~ normal(0, 2); sigma ~ normal(0, 2);
  u ~ normal(0, s); y ~ skew_double_exponential(mu + b * x + u[g], 2 * sigma, 0.75);
}
"""

BEARINGS = """
data { int J; int n; matrix[n, J] y; }
parameters { array[J] unit_vector[2] m; real<lower=0> k; }
model {
  k ~ gamma(2, 0.1);
  for (j in 1:J) y[, j] ~ von_mises(atan2(m[j, 2], m[j, 1]), k);
}
"""

JOINT = """
data { int J; int n; matrix[n, J] y; vector[J] time; array[J] int event; }
parameters { real b; real<lower=0> tau; real<lower=0> sigma; real h; real a; vector[J] z; }
model {
  vector[J] u = tau * z;
  b ~ normal(0, 3); tau ~ std_normal(); sigma ~ std_normal();
  h ~ normal(0, 2); a ~ std_normal(); z ~ std_normal();
  for (j in 1:J) {
    y[, j] ~ normal(b + u[j], sigma);
    target += event[j] * (h + a * u[j]) - exp(h + a * u[j]) * time[j];
  }
}
"""

TWO_OUTCOMES = """
data { int J; int n; row_vector[n] t; matrix[J, n] y; matrix[J, n] w; }
parameters {
  vector[4] b; vector<lower=0>[4] s; cholesky_factor_corr[4] L; matrix[4, J] z;
  real<lower=0> error_y; real<lower=0> error_w;
}
model {
  matrix[4, J] u = diag_pre_multiply(s, L) * z;
  b ~ normal(0, 3); s ~ student_t(3, 0, 2.5); L ~ lkj_corr_cholesky(1); to_vector(z) ~ std_normal();
  error_y ~ student_t(3, 0, 2.5); error_w ~ student_t(3, 0, 2.5);
  for (j in 1:J) {
    y[j] ~ normal(b[1] + u[1, j] + (b[2] + u[2, j]) * t, error_y);
    w[j] ~ normal(b[3] + u[3, j] + (b[4] + u[4, j]) * t, error_w);
  }
}
"""

LASSO = """
data { int N; int K; matrix[N, K] X; vector[N] y; }
parameters { real a; vector[K] b; real<lower=0> s; real<lower=0> sigma; }
model {
  a ~ normal(0, 5); s ~ std_normal(); sigma ~ normal(0, 2);
  b ~ double_exponential(0, s); y ~ normal(a + X * b, sigma);
}
"""

# Horseshoes: weights with a scale each, all of which may be small, with a limit or without one, in a centred
# program and in one that is not.
HORSESHOE = """
data { int N; int K; matrix[N, K] X; vector[N] y; }
parameters {
  real a; vector[K] z; vector<lower=0>[K] lam; real<lower=0> tau; real<lower=0> c2; real<lower=0> sigma;
}
model {
  vector[K] s = tau * lam .* sqrt(c2 ./ (c2 + square(tau * lam)));
  a ~ normal(0, 2); sigma ~ normal(0, 2); z ~ std_normal();
  lam ~ student_t(3, 0, 1); tau ~ student_t(3, 0, 0.1); c2 ~ inv_gamma(2, 8);
  y ~ normal(a + X * (s .* z), sigma);
}
"""
HORSESHOE_CENTRED = HORSESHOE.replace("z ~ std_normal()", "z ~ normal(0, s)").replace("(s .* z)", "z")
HORSESHOE_NO_LIMIT = (
    HORSESHOE_CENTRED.replace(" .* sqrt(c2 ./ (c2 + square(tau * lam)))", "")
    .replace("real<lower=0> c2; ", "")
    .replace(
        "lam ~ student_t(3, 0, 1); tau ~ student_t(3, 0, 0.1); c2 ~ inv_gamma(2, 8);",
        "lam ~ cauchy(0, 1); tau ~ cauchy(0, 0.1);",
    )
)


def subjects_and_items(subjects: int, normal: bool = True) -> dict[str, Any]:
    """Half as many items, each seen by all."""
    rng, items = np.random.default_rng(3), subjects // 2
    subject, item = (v.ravel() for v in np.meshgrid(np.arange(subjects), np.arange(items), indexing="ij"))
    x = np.where((subject + item) % 2 == 0, -0.5, 0.5)
    root = np.linalg.cholesky(np.array([[1.0, 0.4], [0.4, 1.0]]))
    u = rng.normal(size=(subjects, 2)) @ (np.diag([1.0, 0.4]) @ root).T
    w = rng.normal(size=(items, 2)) @ (np.diag([0.6, 0.3]) @ root).T
    m = 0.5 + u[subject, 0] + w[item, 0] + (0.8 + u[subject, 1] + w[item, 1]) * x
    y = m + rng.normal(size=m.size) if normal else rng.binomial(1, logistic(m))
    data = {"N": m.size, "J": subjects, "I": items, "subject": subject + 1, "item": item + 1}
    return data | {"x": x, "y": y}


def classes_of(schools: int) -> dict[str, Any]:
    """Four classes of twelve pupils in each school."""
    rng, number = np.random.default_rng(4), 4 * schools
    school, group = np.repeat(np.arange(schools), 4), np.repeat(np.arange(number), 12)
    x = rng.normal(size=group.size)
    c = 1.0 + 0.5 * rng.normal(size=schools)[school] + 0.3 * rng.normal(size=number)
    y = c[group] + (0.5 + 0.2 * rng.normal(size=number))[group] * x + rng.normal(size=x.size)
    return {"N": x.size, "S": schools, "C": number, "group": group + 1, "school": school + 1, "x": x, "y": y}


def overdispersed(groups: int) -> dict[str, Any]:
    """Eight counts in each group."""
    rng, group = np.random.default_rng(5), np.repeat(np.arange(groups), 8)
    x = rng.normal(size=group.size)
    m = 1.0 + 0.3 * x + 0.6 * rng.normal(size=groups)[group] + 0.4 * rng.normal(size=x.size)
    return {"N": x.size, "J": groups, "group": group + 1, "x": x, "y": rng.poisson(np.exp(m))}


def ratings(persons: int) -> dict[str, Any]:
    """Twelve items with five categories."""
    rng, items = np.random.default_rng(6), 12
    person, item = (v.ravel() for v in np.meshgrid(np.arange(persons), np.arange(items), indexing="ij"))
    m = (
        1.2 * rng.normal(size=persons)[person]
        + 0.7 * rng.normal(size=items)[item]
        + rng.logistic(size=person.size)
    )
    y = 1 + (m[:, None] > np.array([-2.0, -0.5, 0.7, 2.0])).sum(axis=1)
    return {"N": y.size, "J": persons, "I": items, "person": person + 1, "item": item + 1, "y": y}


def factorial(rows: int) -> dict[str, Any]:
    """Six columns, and four observations in a cell."""
    rng, columns = np.random.default_rng(16), 6
    i, j, _ = (v.ravel() for v in np.meshgrid(*map(np.arange, (rows, columns, 4)), indexing="ij"))
    y = 2.0 + rng.normal(size=rows)[i] + 0.5 * rng.normal(size=columns)[j] + rng.normal(size=i.size)
    y += 0.3 * rng.normal(size=(rows, columns))[i, j]
    return {"N": y.size, "A": rows, "B": columns, "i": i + 1, "j": j + 1, "y": y}


def smooth(rng: np.random.Generator, length: int, weights: int) -> tuple[np.ndarray, np.ndarray]:
    """A predictor, and a basis of thin plates over it whose weights are independent."""
    x, knots = rng.random(length), np.linspace(0.0, 1.0, weights + 2)[1:-1]
    distances = np.abs(knots[:, None] - knots[None]) ** 3
    left, sizes, right = np.linalg.svd(distances)
    return x - 0.5, np.abs(x[:, None] - knots[None]) ** 3 @ np.linalg.inv(left * np.sqrt(sizes) @ right)


def of_curves(length: int, noise: float | None = 0.4, groups: int = 0) -> dict[str, Any]:
    """Two curves, or one and groups; normal with this noise, or counts."""
    rng = np.random.default_rng(15)
    (x1, Z1), (x2, Z2) = (smooth(rng, length, 8) for _ in range(2))
    mean, data = np.sin(7.0 * (x1 + 0.5)), {"N": length, "K": 8, "x1": x1, "Z1": Z1}
    if groups:
        group = rng.integers(0, groups, length)
        mean += 0.5 * rng.normal(size=groups)[group]
        data |= {"J": groups, "group": group + 1}
    else:
        mean += 4.0 * np.square(x2)
        data |= {"x2": x2, "Z2": Z2}
    y = rng.poisson(np.exp(0.5 + mean)) if noise is None else mean + noise * rng.normal(size=length)
    return data | {"y": y}


def studies(number: int) -> dict[str, Any]:
    """Three effects in each study, with known errors."""
    rng, study = np.random.default_rng(14), np.repeat(np.arange(number), 3)
    error = rng.uniform(0.1, 0.4, study.size)
    theta = 0.3 + 0.2 * rng.normal(size=number)[study] + 0.1 * rng.normal(size=study.size)
    y = theta + error * rng.normal(size=study.size)
    return {"N": y.size, "S": number, "study": study + 1, "y": y, "error": error}


def answers_to_testlets(persons: int) -> dict[str, Any]:
    """Five testlets."""
    rng, testlets = np.random.default_rng(15), np.repeat(np.arange(5), 4)
    theta, b = rng.normal(size=persons), rng.normal(size=testlets.size)
    g = 0.6 * rng.normal(size=(persons, 5))
    y = rng.binomial(1, logistic(theta[:, None] + g[:, testlets] - b))
    return {"P": persons, "I": testlets.size, "L": 5, "l": testlets + 1, "y": y}


def of_quantiles(groups: int) -> dict[str, Any]:
    """Twelve values in a group, with skewed noise."""
    rng, group = np.random.default_rng(17), np.repeat(np.arange(groups), 12)
    x = rng.normal(size=group.size)
    y = 1.0 + 0.5 * x + rng.normal(size=groups)[group] + rng.gumbel(size=group.size)
    return {"J": groups, "N": group.size, "g": group + 1, "x": x, "y": y}


def of_animals(number: int) -> dict[str, Any]:
    """Eight bearings of each animal, around its own direction."""
    rng = np.random.default_rng(19)
    y = rng.vonmises(rng.uniform(-np.pi, np.pi, number), 6.0, (8, number))
    return {"J": number, "n": len(y), "y": y}


def of_patients(number: int) -> dict[str, Any]:
    """Six measurements of each patient, and the time of an event, or 3 if there is none by then."""
    rng = np.random.default_rng(20)
    u = rng.normal(size=number)
    y, time = 2.0 + u + 0.6 * rng.normal(size=(6, number)), rng.exponential(np.exp(0.5 - 0.7 * u))
    return {
        "J": number,
        "n": len(y),
        "y": y,
        "time": np.minimum(time, 3.0),
        "event": (time < 3.0).astype(int),
    }


def of_children(number: int) -> dict[str, Any]:
    """Two measures of each child at five times, each along a line; levels and slopes are correlated."""
    rng, t = np.random.default_rng(21), np.linspace(-1.0, 1.0, 5)
    scales = np.array([1.0, 0.4, 0.8, 0.3])
    correlations = np.eye(4) + 0.3 * (1.0 - np.eye(4))
    u = rng.multivariate_normal(np.zeros(4), correlations * np.outer(scales, scales), number)
    y = 1.0 + u[:, [0]] + (0.5 + u[:, [1]]) * t + 0.7 * rng.normal(size=(number, 5))
    w = -0.5 + u[:, [2]] + (0.2 + u[:, [3]]) * t + 0.5 * rng.normal(size=(number, 5))
    return {"J": number, "n": 5, "t": t, "y": y, "w": w}


def of_sparse(n: int, k: int = 40) -> dict[str, Any]:
    """k covariates, five of which matter."""
    rng = np.random.default_rng(18)
    X, b = rng.normal(size=(n, k)), np.append([2.0, -1.5, 1.0, 0.6, 0.3], np.zeros(k - 5))
    return {"N": n, "K": k, "X": X, "y": X @ b + rng.normal(size=n)}


def choices_of_groups(groups: int) -> dict[str, Any]:
    """Five choices in a group, about, of a few that are much alike."""
    rng = np.random.default_rng(16)
    group, x = rng.integers(groups, size=5 * groups), rng.normal(size=5 * groups)
    y = rng.binomial(1, logistic(0.3 + 0.5 * x + 0.4 * rng.normal(size=groups)[group]))
    return {"J": groups, "N": group.size, "g": group + 1, "x": x, "y": y}


class TailModel(NamedTuple):
    program: str
    data: Callable[[int], dict[str, Any]]
    size: int
    scales: tuple[str, ...]  # names of the variables that are scales


MODELS = {
    "items_centred": TailModel(ITEMS_CENTRED, answers, 5, ("sigma",)),
    "items": TailModel(ITEMS, answers, 5, ("sigma",)),
    "items_2pl": TailModel(ITEMS_2PL, answers_2pl, 10, ("sigma_a", "sigma_b", "a")),
    "county_centred": TailModel(COUNTY_CENTRED, counties, 190, ("sigma", "sigma_y")),
    "county": TailModel(COUNTY, counties, 190, ("sigma", "sigma_y")),
    "county_lkj_centred": TailModel(COUNTY_LKJ_CENTRED, counties, 190, ("sigma", "sigma_y")),
    "county_lkj": TailModel(COUNTY_LKJ, counties, 190, ("sigma", "sigma_y")),
    "days_centred": TailModel(effects("normal", centred=True), of_days, 18, ("sigma",)),
    "days": TailModel(effects("normal", centred=False), of_days, 18, ("sigma",)),
    "choices_centred": TailModel(effects("bernoulli_logit", centred=True), of_choices, 100, ("sigma",)),
    "choices": TailModel(effects("bernoulli_logit", centred=False), of_choices, 100, ("sigma",)),
    "counts_centred": TailModel(effects("poisson_log", centred=True), of_counts, 60, ("sigma",)),
    "three_centred": TailModel(effects("normal", centred=True), of_three, 60, ("sigma",)),
    "three": TailModel(effects("normal", centred=False), of_three, 60, ("sigma",)),
    "three_matrix": TailModel(effects("normal", centred=True, cholesky=False), of_three, 60, ("sigma",)),
    "changepoints": TailModel(CHANGEPOINTS, days, 1_000, ("sigma",)),
    "changepoints_scale": TailModel(CHANGEPOINTS_SCALE, days, 1_000, ("sigma", "tau")),
    "brownian": TailModel(BROWNIAN, walk_with_gap, 30, ("innovation", "noise")),
    "brownian_long": TailModel(BROWNIAN, walk_with_gap, 150, ("innovation", "noise")),
    "crossed": TailModel(CROSSED, crossed, 240, ("sigma",)),
    "crossed_small": TailModel(CROSSED_SMALL, crossed_small, 12, ("sigma",)),
    "maximal_centred": TailModel(maximal("normal", centred=True), subjects_and_items, 40, ("tau_u", "tau_w")),
    "maximal": TailModel(maximal("normal", centred=False), subjects_and_items, 40, ("tau_u", "tau_w")),
    "maximal_choices": TailModel(
        maximal("bernoulli_logit", centred=False),
        functools.partial(subjects_and_items, normal=False),
        60,
        ("tau_u", "tau_w"),
    ),
    "classes_centred": TailModel(classes(centred=True), classes_of, 20, ("s", "sigma")),
    "classes": TailModel(classes(centred=False), classes_of, 20, ("s", "sigma")),
    "overdispersed": TailModel(OVERDISPERSED, overdispersed, 40, ("s", "s_each")),
    "ratings": TailModel(RATINGS, ratings, 100, ("s", "s_item")),
    "factorial": TailModel(FACTORIAL, factorial, 12, ("s_a", "s_b", "s_ab", "sigma")),
    "studies": TailModel(STUDIES, studies, 20, ("s", "tau")),
    "soft_sum": TailModel(SOFT_SUM, choices_of_groups, 40, ("s",)),
    "quantiles": TailModel(QUANTILES, of_quantiles, 25, ("s", "sigma")),
    "bearings": TailModel(BEARINGS, of_animals, 20, ("k",)),
    "joint": TailModel(JOINT, of_patients, 80, ("tau", "sigma")),
    "two_outcomes": TailModel(TWO_OUTCOMES, of_children, 60, ("s", "error_y", "error_w")),
    "lasso": TailModel(LASSO, of_sparse, 120, ("s", "sigma")),
    "horseshoe_80": TailModel(
        HORSESHOE, functools.partial(of_sparse, k=80), 120, ("lam", "tau", "c2", "sigma")
    ),
    "horseshoe_centred": TailModel(
        HORSESHOE_CENTRED, functools.partial(of_sparse, k=30), 100, ("lam", "tau", "c2", "sigma")
    ),
    "horseshoe_no_limit": TailModel(
        HORSESHOE_NO_LIMIT, functools.partial(of_sparse, k=30), 100, ("lam", "tau", "sigma")
    ),
    "testlets": TailModel(TESTLETS, answers_to_testlets, 80, ("s", "s_g", "s_b")),
    "curves": TailModel(curves(2, "normal"), of_curves, 300, ("tau1", "tau2", "sigma")),
    "curve_and_groups": TailModel(
        curves(1, "normal", groups=True), functools.partial(of_curves, groups=25), 300, ("tau1", "s", "sigma")
    ),
    "curve_and_groups_counts": TailModel(
        curves(1, "poisson_log", groups=True),
        functools.partial(of_curves, noise=None, groups=30),
        400,
        ("tau1", "s"),
    ),
}
