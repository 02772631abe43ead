"""Effects of groups in the coordinates that Fisher HMC learns: scales and correlation have their known law.

With normal data and a known error, effects and their means can be integrated out. The quantiles of what is
left, two log scales and the correlation, are those of a density on a grid. Each test names the fault that it
is there to see.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import CubicSpline
from scipy.special import expit

from cases import thorough
from fits import run
from shares import finer, largest_error, log_normal, quantiles, quantiles_of_three, quantiles_of_two
from tail_models import MODELS
from weights import WEIGHTS, WEIGHTS_NOT_CENTRED, laws_of_weights, weights_of

LIMIT = 4.5  # standard errors
RATE = 0.01
ERROR = 0.8
GROUPS, EACH = 10, 5
PRIOR = """
  mu ~ normal(0, 5); sigma ~ std_normal(); L ~ lkj_corr_cholesky(2);
"""
DATA = "data { int J; int n; matrix[n, 2] X; matrix[n, J] y; }"
SHARED = "vector[2] mu; vector<lower=0>[2] sigma; cholesky_factor_corr[2] L;"
CENTRED = f"""
{DATA} parameters {{ array[J] vector[2] b; {SHARED} }}
model {{
  {PRIOR} b ~ multi_normal_cholesky(mu, diag_pre_multiply(sigma, L));
  for (j in 1:J) y[, j] ~ normal(X * b[j], {ERROR});
}}
"""
NOT_CENTRED = f"""
{DATA} parameters {{ matrix[2, J] z; {SHARED} }}
model {{
  {PRIOR} to_vector(z) ~ std_normal(); matrix[2, J] b = diag_pre_multiply(sigma, L) * z;
  for (j in 1:J) y[, j] ~ normal(X * (mu + b[, j]), {ERROR});
}}
"""
SCALARS = f"""
{DATA}
parameters {{
  vector[J] a; vector[J] b; vector[2] mu; real<lower=0> s_b; real<lower=0> s_a; real<lower=-1, upper=1> rho;
}}
model {{
  mu ~ normal(0, 5); s_a ~ std_normal(); s_b ~ std_normal();
  target += log1m(square(rho));  // LKJ with eta = 2
  matrix[2, 2] S = [[square(s_a), rho * s_a * s_b], [rho * s_a * s_b, square(s_b)]];
  for (j in 1:J) {{
    [a[j], b[j]]' ~ multi_normal(mu, S);
    y[, j] ~ normal(X * [a[j], b[j]]', {ERROR});
  }}
}}
"""
TESTLETS = f"""
data {{ int P; int L; int n; array[P, L] vector[n] y; }}
parameters {{ vector[P] th; matrix[P, L] g; real log_t; vector[L] log_g; }}
model {{
  log_t ~ normal(-1, 1); log_g ~ normal(-1, 1); th ~ normal(0, exp(log_t));
  for (k in 1:L) g[, k] ~ normal(0, exp(log_g[k]));
  for (p in 1:P) for (k in 1:L) y[p, k] ~ normal(th[p] + g[p, k], {ERROR});
}}
"""

UPPER = 0.6  # some draws of the scales are near it
BOUNDED, BOUNDED_NOT_CENTRED = (
    program.replace("vector<lower=0>[2]", f"vector<lower=0, upper={UPPER}>[2]")
    for program in (CENTRED, NOT_CENTRED)
)


def data_of(rng: np.random.Generator, groups: int, each: int, root: np.ndarray) -> dict[str, Any]:
    """Groups with one design, whose effects have the covariance root root^T."""
    X = np.column_stack((np.ones(each), np.linspace(-0.5, 1.0, each)))
    b = np.array([1.0, -0.5]) + rng.normal(size=(groups, 2)) @ root.T
    return {"J": groups, "n": each, "X": X, "y": X @ b.T + ERROR * rng.normal(size=(each, groups))}


def laws_of(data: dict[str, Any], upper: float = np.inf) -> list[np.ndarray]:
    """Quantiles of both log scales and of u, atanh of the correlation; scales may have an upper bound."""
    X = data["X"]
    noise = ERROR**2 * np.linalg.inv(X.T @ X)  # of an estimate of the effects of a group
    estimates = np.linalg.lstsq(X, data["y"], rcond=None)[0]
    ends = (-14.0, 2.0) if np.isinf(upper) else (-13.0, 18.0)  # of log scales, or of logits
    grids = [np.linspace(*ends, 80), np.linspace(*ends, 80), np.linspace(-5.0, 5.0, 40)]
    for points in ((320, 320, 60), ()):
        scales = [grid if np.isinf(upper) else np.log(upper * expit(grid)) for grid in grids[:2]]
        density = density_of([*scales, grids[2]], data["J"], noise, estimates)
        if np.isfinite(upper):  # of logits
            density *= np.multiply.outer(*(1.0 - expit(grid) for grid in grids[:2]))[:, :, None]
        marginals = [density.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
        if points:
            grids = [finer(grid, p, n) for grid, p, n in zip(grids, marginals, points, strict=True)]
    return [quantiles(grid, p) for grid, p in zip([*scales, grids[2]], marginals, strict=True)]


def density_of(grids: list[np.ndarray], groups: int, noise: np.ndarray, estimates: np.ndarray) -> np.ndarray:
    """The density of both log scales and u on grids, up to a factor."""
    log_a, log_b, u = np.meshgrid(*grids, indexing="ij", sparse=True)
    a, b, rho = np.exp(log_a), np.exp(log_b), np.tanh(u)
    # The covariance of an estimate is S + noise, and mu has a normal prior around 0 with variance 25.
    v11, v22, v12 = a * a + noise[0, 0], b * b + noise[1, 1], rho * a * b + noise[0, 1]
    det = v11 * v22 - v12 * v12
    q11, q22, q12 = v22 / det, v11 / det, -v12 / det
    sums, squares = estimates.sum(axis=1), estimates @ estimates.T
    log_p = -0.5 * groups * np.log(det)
    log_p -= 0.5 * (q11 * squares[0, 0] + q22 * squares[1, 1] + 2.0 * q12 * squares[0, 1])
    m11, m22, m12 = groups * q11 + 0.04, groups * q22 + 0.04, groups * q12
    c1, c2 = q11 * sums[0] + q12 * sums[1], q12 * sums[0] + q22 * sums[1]
    m_det = m11 * m22 - m12 * m12
    log_p += -0.5 * np.log(m_det) + 0.5 * (m22 * c1 * c1 - 2.0 * m12 * c1 * c2 + m11 * c2 * c2) / m_det
    log_p += log_a + log_b - 0.5 * (a * a + b * b) + 2.0 * np.log1p(-rho * rho)  # the priors
    return np.asarray(np.exp(log_p - log_p.max()))


@functools.cache
def known_weights() -> tuple[dict[str, Any], list[np.ndarray]]:
    """Ten weights, few data, so that the scale may be near 0."""
    data = weights_of(np.random.default_rng(4), 60, 10, 0.4)
    return data, laws_of_weights(data)


@pytest.mark.seeds(1, 2, rate=RATE)
@pytest.mark.parametrize("program", [WEIGHTS, WEIGHTS_NOT_CENTRED], ids=["centred", "not centred"])
def test_the_scale_of_weights_that_the_data_tie_has_its_law(program: str, seed: int) -> None:
    """Axes that are not those of the data's precision, or a map that turns scores the wrong way."""
    data, laws = known_weights()
    posterior, adaptation, findings = run(program, data, seed=seed, draws=4_000)
    if program == WEIGHTS:
        assert (adaptation["field_effects"].values.sum(axis=-1) == 10).all()
    else:  # few weights that are not centred have a law of their own, with the line beside them
        assert (adaptation["field_weights"].values.sum(axis=-1) == 10 + 2 * 2).all()
    for name, law in zip(("tau", "sigma"), laws, strict=True):
        draws = np.log(posterior[name].values)
        assert largest_error(draws, law, findings) < LIMIT


@functools.cache
def known(upper: float = np.inf) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Few groups, so that scales may be near 0 and the correlation near 1."""
    data = data_of(np.random.default_rng(9), GROUPS, EACH, np.array([[0.5, 0.0], [0.2, 0.25]]))
    return data, laws_of(data, upper)


@pytest.mark.seeds(1, 2, 3, rate=RATE)
@pytest.mark.parametrize(
    "program",
    [CENTRED, thorough(NOT_CENTRED), thorough(SCALARS), BOUNDED, thorough(BOUNDED_NOT_CENTRED)],
    ids=["centred", "not centred", "scalars", "bounded", "bounded, not centred"],
)
def test_scales_and_the_correlation_have_their_law(program: str, seed: int) -> None:
    """A map without its log determinant or a derivative of a head, and necks that a chain does not see.

    Without learned coordinates the centred program has 1 effective draw of the scales in 80 gradients.
    """
    data, laws = known(UPPER if program in (BOUNDED, BOUNDED_NOT_CENTRED) else np.inf)
    posterior, adaptation, findings = run(program, data, seed=seed, draws=4_000)
    assert (adaptation["field_effects"].values.max(axis=-1) == 2).all()
    if program == SCALARS:
        found = [np.log(posterior["s_a"]), np.log(posterior["s_b"]), np.arctanh(posterior["rho"])]
    else:
        sigma = np.log(posterior["sigma"])
        found = [sigma[..., 0], sigma[..., 1], np.arctanh(posterior["L"][..., 1, 0])]
    for draws, law in zip(found, laws, strict=True):
        assert largest_error(draws.values, law, findings) < LIMIT


@functools.cache
def answers_to_testlets() -> tuple[dict[str, Any], list[np.ndarray]]:
    """20 persons, two testlets of three items; quantiles of the log scales of persons and of testlets."""
    rng, persons, each, number = np.random.default_rng(11), 20, 3, 2
    level, own = 0.7 * rng.normal(size=persons), np.array([0.5, 0.3]) * rng.normal(size=(persons, number))
    y = (level[:, None] + own)[:, :, None] + ERROR * rng.normal(size=(persons, number, each))
    means = y.mean(axis=2)
    squares, noise = means.T @ means, ERROR**2 / each

    def log_density(t: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        common, first, second = np.exp(2.0 * t), np.exp(2.0 * u) + noise, np.exp(2.0 * v) + noise
        det = first * second + common * (first + second)
        of_squares = (common + second) * squares[0, 0] + (common + first) * squares[1, 1]
        prior = (t + 1.0) ** 2 + (u + 1.0) ** 2 + (v + 1.0) ** 2
        log_p = -0.5 * (persons * np.log(det) + of_squares / det + prior) + common * squares[0, 1] / det
        return np.asarray(log_p)

    data = {"P": persons, "L": number, "n": each, "y": y}
    return data, quantiles_of_three(log_density, *[(-9.0, 2.0)] * 3)


@pytest.mark.seeds(1, 2, rate=RATE)
def test_scales_of_testlets_have_their_law(seed: int) -> None:
    """Effects of a person in two variables, whose scales are a number and a vector."""
    data, laws = answers_to_testlets()
    posterior, adaptation, findings = run(TESTLETS, data, seed=seed, draws=4_000)
    assert ((adaptation["field_effects"].values == 3).sum(axis=-1) == 3 * data["P"]).any()
    draws = [posterior["log_t"].values, *np.moveaxis(posterior["log_g"].values, -1, 0)]
    for values, law in zip(draws, laws, strict=True):
        assert largest_error(values, law, findings) < LIMIT


SOFT_SUM = """
data { int J; int N; array[N] int g; vector[N] y; }
parameters { real m; vector[J] a; real log_s; real log_e; }
model {
  m ~ normal(0, 2); log_s ~ normal(-1, 1); log_e ~ normal(-0.5, 0.5);
  a ~ normal(0, exp(log_s)); sum(a) ~ normal(0, 0.001 * J);
  y ~ normal(m + a[g], exp(log_e));
}
"""


@functools.cache
def groups_with_a_soft_sum() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Ten groups of two to six; quantiles of the log scales of effects and of errors.

    The sum of effects is one more observation, 0, with a small error.
    """
    rng, groups = np.random.default_rng(14), 10
    group = np.repeat(np.arange(groups), rng.integers(2, 7, size=groups))
    y = 0.5 + 0.4 * rng.normal(size=groups)[group] + 0.6 * rng.normal(size=len(group))
    seen = np.concatenate((np.eye(groups)[group], np.ones((1, groups))))
    observed, is_data = np.append(y, 0.0), np.append(np.ones(len(y)), 0.0)
    of_mean = 4.0 * np.outer(is_data, is_data) + np.diag((0.001 * groups) ** 2 * (1.0 - is_data))

    def log_density(u: float, v: float) -> float:
        prior = -0.5 * ((u + 1.0) ** 2 + ((v + 0.5) / 0.5) ** 2)
        covariance = of_mean + np.exp(2.0 * u) * seen @ seen.T + np.exp(2.0 * v) * np.diag(is_data)
        return prior + log_normal(observed, covariance)

    data = {"J": groups, "N": len(y), "g": group + 1, "y": y}
    return data, quantiles_of_two(log_density, (-7.0, 2.0), (-2.5, 1.0))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_effects_with_a_soft_sum_leave_both_scales_their_law(seed: int) -> None:
    """They are turned to axes, one of which is that of the sum."""
    data, laws = groups_with_a_soft_sum()
    posterior, adaptation, findings = run(SOFT_SUM, data, seed=seed, draws=4_000)
    assert (adaptation["field_role"].values[:, 1:-2] == 1).all(axis=-1).any()
    for name, law in zip(("log_s", "log_e"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


# Effects with measurements of unknown error, and one more of each with a known one.
MEASURED_TWICE = """
data { int J; int n; matrix[n, J] y; vector[J] w; }
parameters { vector[J] a; real log_s; real log_e; }
model {
  log_s ~ normal(-1, 1); log_e ~ normal(-0.5, 1);
  a ~ normal(0, exp(log_s)); w ~ normal(a, 0.5);
  for (j in 1:J) y[, j] ~ normal(a[j], exp(log_e));
}
"""


@functools.cache
def groups_measured_twice() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Twelve groups, two measurements of each; quantiles of the log scales of effects and of errors."""
    rng, groups, each = np.random.default_rng(15), 12, 2
    a = 0.6 * rng.normal(size=groups)
    y, w = a + 0.5 * rng.normal(size=(each, groups)), a + 0.5 * rng.normal(size=groups)
    observed = np.concatenate((y, w[None]))

    def log_density(u: float, v: float) -> float:
        prior = -0.5 * ((u + 1.0) ** 2 + (v + 0.5) ** 2)
        covariance = np.exp(2.0 * u) + np.diag([np.exp(2.0 * v)] * each + [0.25])
        return prior + sum(log_normal(one, covariance) for one in observed.T)

    return {"J": groups, "n": each, "y": y, "w": w}, quantiles_of_two(log_density, (-7.0, 2.0), (-3.0, 2.0))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_effects_that_are_measured_twice_leave_both_scales_their_law(seed: int) -> None:
    """The scale of errors changes a share of what data tell of an effect."""
    data, laws = groups_measured_twice()
    posterior, adaptation, findings = run(MEASURED_TWICE, data, seed=seed, draws=4_000)
    assert (adaptation["field_effects"].values[:, : data["J"]] == 1).all(axis=-1).any()
    for name, law in zip(("log_s", "log_e"), laws, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT


# One effect is told by y, with an unknown error, the other one by w, with a known one.
TWO_OUTCOMES = f"""
data {{ int J; int n; matrix[n, J] y; matrix[n, J] w; }}
parameters {{ matrix[2, J] z; vector<lower=0>[2] sigma; cholesky_factor_corr[2] L; real log_e; }}
model {{
  sigma ~ std_normal(); L ~ lkj_corr_cholesky(2); log_e ~ normal(-0.5, 0.5);
  to_vector(z) ~ std_normal(); matrix[2, J] b = diag_pre_multiply(sigma, L) * z;
  for (j in 1:J) {{ y[, j] ~ normal(b[1, j], exp(log_e)); w[, j] ~ normal(b[2, j], {ERROR}); }}
}}
"""


@functools.cache
def groups_with_two_outcomes() -> tuple[dict[str, Any], list[np.ndarray]]:
    """Twelve groups, three data of each outcome; quantiles of three log scales and of u."""
    rng, groups, each = np.random.default_rng(16), 12, 3
    b = rng.normal(size=(groups, 2)) @ np.array([[0.8, 0.4], [0.0, 0.6]])
    y, w = (b[:, i] + noise * rng.normal(size=(each, groups)) for i, noise in enumerate((0.6, ERROR)))
    means = np.stack((y.mean(axis=0), w.mean(axis=0)))
    squares, left = means @ means.T, np.square(y - means[0]).sum()
    grids = [np.linspace(-9.0, 2.0, 40), np.linspace(-9.0, 2.0, 40), np.linspace(-4.0, 4.0, 24)]
    grids.append(np.linspace(-2.0, 1.0, 24))
    for points in ((100, 100, 40, 30), ()):
        log_a, log_b, u, v = np.meshgrid(*grids, indexing="ij", sparse=True)
        a, b_, rho = np.exp(log_a), np.exp(log_b), np.tanh(u)
        v11, v22, v12 = a * a + np.exp(2.0 * v) / each, b_ * b_ + ERROR**2 / each, rho * a * b_
        det = v11 * v22 - v12 * v12
        log_p = -0.5 * groups * np.log(det) - groups * (each - 1) * v - 0.5 * left * np.exp(-2.0 * v)
        log_p -= 0.5 * (v22 * squares[0, 0] + v11 * squares[1, 1] - 2.0 * v12 * squares[0, 1]) / det
        log_p += log_a + log_b - 0.5 * (a * a + b_ * b_) + 2.0 * np.log1p(-rho * rho)
        log_p -= 0.5 * ((v + 0.5) / 0.5) ** 2
        density = np.exp(log_p - log_p.max())
        marginals = [density.sum(axis=tuple(k for k in range(4) if k != axis)) for axis in range(4)]
        if points:
            grids = [finer(grid, p, n) for grid, p, n in zip(grids, marginals, points, strict=True)]
    data = {"J": groups, "n": each, "y": y, "w": w}
    laws = []
    for grid, p in zip(grids, marginals, strict=True):  # a grid of four axes is coarse, and p is smooth
        between = np.linspace(grid[0], grid[-1], 4_000)
        laws.append(quantiles(between, np.exp(CubicSpline(grid, np.log(p))(between))))
    return data, laws


@pytest.mark.seeds(1, 2, rate=RATE)
def test_effects_of_two_outcomes_leave_scales_and_errors_their_law(seed: int) -> None:
    """The error of one outcome changes what is told of its effect alone."""
    data, laws = groups_with_two_outcomes()
    posterior, adaptation, findings = run(TWO_OUTCOMES, data, seed=seed, draws=4_000)
    assert (adaptation["field_effects"].values[:, : 2 * data["J"]] == 2).all(axis=-1).any()
    sigma = np.log(posterior["sigma"].values)
    draws = [sigma[..., 0], sigma[..., 1], np.arctanh(posterior["L"].values[..., 1, 0])]
    for values, law in zip((*draws, posterior["log_e"].values), laws, strict=True):
        assert largest_error(values, law, findings) < LIMIT


@pytest.mark.thorough
@pytest.mark.seeds(1, 2, rate=RATE)
@pytest.mark.parametrize(
    "names",
    [("choices_centred", "choices"), ("three_centred", "three"), ("three_centred", "three_matrix")],
)
def test_programs_that_are_centred_and_not_have_the_same_law(names: tuple[str, str], seed: int) -> None:
    """Data that are not normal, and three effects: both orders of the numbers of correlations."""
    drawn = []
    for name in names:
        model = MODELS[name]
        posterior, adaptation, _ = run(model.program, model.data(model.size), seed=seed, draws=2_000)
        assert (adaptation["field_effects"].values.max(axis=-1) > 0).all()
        sigma, lower = posterior["sigma"].values, posterior["L" if "L" in posterior else "R"].values
        if "L" in posterior:
            lower = lower @ np.moveaxis(lower, -1, -2)
        below = np.tril_indices(lower.shape[-1], -1)
        drawn.append(np.concatenate((np.log(sigma), lower[..., below[0], below[1]]), axis=-1))
    for first, second in zip(*(np.moveaxis(one, -1, 0) for one in drawn), strict=True):
        thinned = [one[:, ::4].ravel() for one in (first, second)]
        assert stats.ks_2samp(*thinned).pvalue > 0.01 / (6 * 6)


@pytest.mark.seeds(1, 2, rate=RATE)
@pytest.mark.parametrize("name", ["classes", thorough("maximal")])
def test_several_factors_have_the_same_law_in_both_forms(name: str, seed: int) -> None:
    """Classes in schools, and subjects with items: a law of a later factor that is taken for another one."""
    drawn = []
    for form in (f"{name}_centred", name):
        model = MODELS[form]
        posterior, adaptation, _ = run(model.program, model.data(model.size // 2), seed=seed, draws=2_000)
        assert (adaptation["field_effects"].values.max(axis=-1) > 0).all()
        latents = adaptation["field_role"].values == 1
        assert (latents.sum(axis=-1) == latents.shape[-1] - (6 if name == "classes" else 9)).all()
        scales = [np.log(posterior[scale].values) for scale in model.scales]
        drawn.append(np.concatenate([one.reshape(*one.shape[:2], -1) for one in scales], axis=-1))
    for first, second in zip(*(np.moveaxis(one, -1, 0) for one in drawn), strict=True):
        thinned = [one[:, ::4].ravel() for one in (first, second)]
        assert stats.ks_2samp(*thinned).pvalue > 0.01 / (4 * 4)
