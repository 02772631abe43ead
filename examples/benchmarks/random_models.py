"""Hierarchical models made at random: a Stan program of some parts, its parameters from the prior, and data.

A model is a sum of parts and observations given the sum. Parts are effects of groups, crossed or with slopes
that correlate with them, random walks of first and second order, autoregressions, and coefficients with a
common scale. Each is centred or not, and its scale has one of some priors. All priors are proper and have no
limits by data, so the truth is one more draw of the posterior. Models of `SHORT` are one short series each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

COUNTS = ("poisson", "negative_binomial")  # whose sum is an exponent: their scales are small


class Model(NamedTuple):
    """A program, its data, and true values by their names: of all scalars and one latent of each part."""

    words: str
    program: str
    data: dict[str, Any]
    truth: dict[str, float]


class Family(NamedTuple):
    """What models are made of."""

    data: tuple[int, ...]  # numbers of observations
    terms: tuple[int, int]  # of a series: so many at least, and fewer than so many
    parts: tuple[Callable[[_Parts, str], None], ...]
    most: int  # parts of one model


class _Parts:
    """The lines of a program and the values so far."""

    def __init__(self, rng: np.random.Generator, family: Family, likelihood: str) -> None:
        self.rng, self.family, self.likelihood = rng, family, likelihood
        self.n = n = int(rng.choice(family.data))
        self.declared: list[str] = ["int N;"]
        self.parameters: list[str] = []
        self.transformed: list[str] = []
        self.statements: list[str] = []
        self.terms: list[str] = []
        self.words: list[str] = []
        self.data: dict[str, Any] = {"N": n}
        self.truth: dict[str, float] = {}
        self.sum = np.zeros(n)

    def scale(self, name: str) -> float:
        """A scale with one of some priors."""
        rng = self.rng
        spread = 0.3 if self.likelihood in COUNTS else 1.0
        priors: list[tuple[str, Callable[[], float]]] = [
            (f"normal(0, {spread})", lambda: abs(rng.normal(0.0, spread))),
            (f"exponential({1 / spread})", lambda: rng.exponential(spread)),
            (f"lognormal({np.log(spread) - 0.5}, 0.7)", lambda: rng.lognormal(np.log(spread) - 0.5, 0.7)),
            (f"inv_gamma(3, {2 * spread})", lambda: 2.0 * spread / rng.gamma(3.0)),
            (f"gamma(2, {2 / spread})", lambda: rng.gamma(2.0) * spread / 2.0),
        ]
        if self.likelihood not in COUNTS:
            priors.append(("student_t(4, 0, 1)", lambda: abs(rng.standard_t(4))))
        prior, draw = priors[rng.integers(len(priors))]
        self.parameters.append(f"real<lower=0> {name};")
        self.statements.append(f"{name} ~ {prior};")
        self.truth[name] = value = float(draw())
        return value

    def location(self, name: str, spread: float) -> float:
        self.parameters.append(f"real {name};")
        self.statements.append(f"{name} ~ normal(0, {spread});")
        self.truth[name] = value = float(self.rng.normal(0.0, spread))
        return value

    def index(self, name: str, size: int) -> np.ndarray:
        """The member of each observation, from 1 on. Some members may have no observation."""
        weights = self.rng.dirichlet(np.full(size, 5.0))
        member = self.rng.choice(size, self.n, p=weights) + 1
        self.declared += [f"int {name}_n;", f"array[N] int {name}_i;"]
        self.data |= {f"{name}_n": size, f"{name}_i": member}
        return member - 1

    def latents(self, name: str, size: str, values: np.ndarray, at: np.ndarray) -> None:
        """Add latents to the sum; one of them is looked at."""
        self.terms.append(f"{name}[{size.removesuffix('_n')}_i]")
        self.sum += values[at]
        k = int(self.rng.integers(len(values)))
        self.truth[f"{name}.{k + 1}"] = float(values[k])

    def effects_of_one_scale(self, own: str) -> str:
        """Declare effects b with the scale tau, centred or not. Returns what is said of their form."""
        centred = self.is_centred()
        if centred:
            self.parameters.append(f"vector[{own}_n] {own}_b;")
            self.statements.append(f"{own}_b ~ normal(0, {own}_tau);")
        else:
            self.parameters.append(f"vector[{own}_n] {own}_z;")
            self.transformed.append(f"vector[{own}_n] {own}_b = {own}_tau * {own}_z;")
            self.statements.append(f"{own}_z ~ std_normal();")
        return "" if centred else " (z)"

    def is_centred(self) -> bool:
        return bool(self.rng.random() < 0.5)


def effects(parts: _Parts, own: str) -> None:
    """Effects of groups."""
    size = int(parts.rng.integers(4, 40))
    at = parts.index(own, size)
    tau = parts.scale(f"{own}_tau")
    z = parts.rng.normal(size=size)
    form = parts.effects_of_one_scale(own)
    parts.latents(f"{own}_b", f"{own}_n", tau * z, at)
    parts.words.append(f"{size} effects{form}")


def slopes(parts: _Parts, own: str) -> None:
    """Intercepts and slopes of groups, which correlate."""
    size = int(parts.rng.integers(5, 30))
    at = parts.index(own, size)
    tau = np.array([parts.scale(f"{own}_tau1"), parts.scale(f"{own}_tau2")])
    x = parts.rng.normal(size=parts.n)
    rho = 2.0 * parts.rng.beta(2.0, 2.0) - 1.0  # as lkj_corr_cholesky(2) has it for two
    factor = np.array([[1.0, 0.0], [rho, np.sqrt(1.0 - rho * rho)]])
    b = (tau[:, None] * (factor @ parts.rng.normal(size=(2, size)))).T
    parts.declared.append(f"vector[N] {own}_x;")
    parts.data[f"{own}_x"] = x
    parts.parameters.append(f"cholesky_factor_corr[2] {own}_L;")
    parts.statements.append(f"{own}_L ~ lkj_corr_cholesky(2);")
    scales = f"[{own}_tau1, {own}_tau2]'"
    centred = parts.is_centred()
    if centred:
        parts.parameters.append(f"array[{own}_n] vector[2] {own}_b;")
        parts.statements.append(
            f"{own}_b ~ multi_normal_cholesky(rep_vector(0, 2), diag_pre_multiply({scales}, {own}_L));"
        )
        pick = f"{own}_b[{own}_i[n], {{}}]"
    else:
        parts.parameters.append(f"matrix[2, {own}_n] {own}_z;")
        parts.transformed.append(
            f"matrix[2, {own}_n] {own}_b = diag_pre_multiply({scales}, {own}_L) * {own}_z;"
        )
        parts.statements.append(f"to_vector({own}_z) ~ std_normal();")
        pick = f"{own}_b[{{}}, {own}_i[n]]"
    parts.transformed.append(
        f"vector[N] {own}_s; for (n in 1:N) {own}_s[n] = {pick.format(1)} + {pick.format(2)} * {own}_x[n];"
    )
    parts.terms.append(f"{own}_s")
    parts.truth[f"{own}_L.2.1"] = float(rho)
    parts.sum += b[at, 0] + b[at, 1] * x
    parts.words.append(f"{size} slopes{'' if centred else ' (z)'}")


def series(parts: _Parts, own: str) -> None:
    """A random walk of first or second order, or an autoregression."""
    rng = parts.rng
    size = int(rng.integers(*parts.family.terms))
    at = parts.index(own, size)
    kind = ("walk", "smooth walk", "autoregression")[rng.integers(3)]
    s = parts.scale(f"{own}_s")
    if kind == "smooth walk":
        s *= 0.1
    e = rng.normal(size=size)
    step = f"{own}_s" if kind != "smooth walk" else f"0.1 * {own}_s"
    centred = parts.is_centred()
    value, n = np.zeros(size), f"{own}_n"
    lead = 1.0
    if kind == "autoregression":
        phi = float(rng.uniform(-0.2, 1.0))
        parts.parameters.append(f"real<lower=-0.2, upper=1> {own}_phi;")
        parts.truth[f"{own}_phi"] = phi
        lead = 1.0 / np.sqrt(1.0 - phi * phi)
        first, rest = f"{step} / sqrt(1 - square({own}_phi))", f"{own}_phi * {{v}}[1:({n} - 1)]"
    elif kind == "walk":
        phi, first, rest = 1.0, step, f"{{v}}[1:({n} - 1)]"
    value[0] = lead * s * e[0]
    if kind == "smooth walk":
        value[1] = value[0] + s * e[1]
        for t in range(2, size):
            value[t] = 2.0 * value[t - 1] - value[t - 2] + s * e[t]
    else:
        for t in range(1, size):
            value[t] = phi * value[t - 1] + s * e[t]
    h = f"{own}_h"
    if centred:
        parts.parameters.append(f"vector[{n}] {h};")
        if kind == "smooth walk":
            parts.statements += [
                f"{h}[1] ~ normal(0, {step}); {h}[2] ~ normal({h}[1], {step});",
                f"{h}[3:{n}] ~ normal(2 * {h}[2:({n} - 1)] - {h}[1:({n} - 2)], {step});",
            ]
        else:
            parts.statements += [
                f"{h}[1] ~ normal(0, {first});",
                f"{h}[2:{n}] ~ normal({rest.format(v=h)}, {step});",
            ]
    else:
        parts.parameters.append(f"vector[{n}] {own}_z;")
        parts.statements.append(f"{own}_z ~ std_normal();")
        if kind == "walk":
            parts.transformed.append(f"vector[{n}] {h} = {step} * cumulative_sum({own}_z);")
        elif kind == "smooth walk":
            # The second of the first steps begins at 0.
            parts.transformed.append(
                f"vector[{n}] {h}; {{ {h}[1] = {step} * {own}_z[1]; {h}[2] = {h}[1] + {step} * {own}_z[2]; "
                f"for (t in 3:{n}) {h}[t] = 2 * {h}[t - 1] - {h}[t - 2] + {step} * {own}_z[t]; }}"
            )
        else:
            parts.transformed.append(
                f"vector[{n}] {h}; {h}[1] = {first} * {own}_z[1]; "
                f"for (t in 2:{n}) {h}[t] = {own}_phi * {h}[t - 1] + {step} * {own}_z[t];"
            )
    parts.latents(h, n, value, at)
    parts.words.append(f"{kind} of {size}{'' if centred else ' (z)'}")


def coefficients(parts: _Parts, own: str) -> None:
    """Coefficients of a regression with a common scale."""
    size = int(parts.rng.integers(2, 15))
    x = parts.rng.normal(size=(parts.n, size))
    tau = parts.scale(f"{own}_tau")
    b = tau * parts.rng.normal(size=size)
    parts.declared += [f"int {own}_n;", f"matrix[N, {own}_n] {own}_x;"]
    parts.data |= {f"{own}_n": size, f"{own}_x": x}
    form = parts.effects_of_one_scale(own)
    parts.terms.append(f"{own}_x * {own}_b")
    parts.truth[f"{own}_b.1"] = float(b[0])
    parts.sum += x @ b
    parts.words.append(f"{size} coefficients{form}")


def observe(parts: _Parts) -> None:
    """Observations given the sum."""
    rng, eta = parts.rng, parts.sum
    kind = parts.likelihood
    y: np.ndarray
    if kind == "normal":
        y = eta + parts.scale("sigma") * rng.normal(size=parts.n)
        parts.statements.append("y ~ normal(eta, sigma);")
    elif kind == "student":
        nu = float(rng.gamma(2.0) * 10.0)
        parts.parameters.append("real<lower=0> nu;")
        parts.statements.append("nu ~ gamma(2, 0.1);")
        parts.truth["nu"] = nu
        y = eta + parts.scale("sigma") * rng.standard_t(nu, size=parts.n)
        parts.statements.append("y ~ student_t(nu, eta, sigma);")
    elif kind == "bernoulli":
        y = (rng.random(parts.n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        parts.statements.append("y ~ bernoulli_logit(eta);")
    elif kind == "poisson":
        y = rng.poisson(np.exp(eta))
        parts.statements.append("y ~ poisson_log(eta);")
    else:
        phi = float(rng.gamma(2.0) * 5.0)
        parts.parameters.append("real<lower=0> phi;")
        parts.statements.append("phi ~ gamma(2, 0.2); y ~ neg_binomial_2_log(eta, phi);")
        parts.truth["phi"] = phi
        y = rng.poisson(np.exp(eta) * rng.gamma(phi, size=parts.n) / phi)
    parts.declared.append("vector[N] y;" if kind in ("normal", "student") else "array[N] int y;")
    parts.data["y"] = y


MIXED = Family((60, 150, 300), (15, 80), (effects, effects, slopes, series, series, coefficients), 3)
SHORT = Family((20, 40, 100), (4, 16), (series,), 1)
LIKELIHOODS = ("normal", "normal", "student", "bernoulli", "poisson", "negative_binomial")


def make(seed: int, family: Family = MIXED) -> Model:
    """The model of a seed."""
    rng = np.random.default_rng([seed, 20_31])
    likelihood = LIKELIHOODS[rng.integers(len(LIKELIHOODS))]
    parts = _Parts(rng, family, likelihood)
    parts.sum += parts.location("a", 0.5 if likelihood in COUNTS else 2.0)
    for number in range(int(rng.integers(1, family.most + 1))):
        family.parts[rng.integers(len(family.parts))](parts, f"p{number}")
    observe(parts)
    eta = " + ".join(["rep_vector(a, N)", *parts.terms])
    program = "\n".join(
        [
            "data {",
            *parts.declared,
            "}",
            "parameters {",
            *parts.parameters,
            "}",
            "transformed parameters {",
            *parts.transformed,
            "}",
            "model {",
            f"vector[N] eta = {eta};",
            *parts.statements,
            "}",
        ]
    )
    words = f"{likelihood}, {parts.n}: {', '.join(parts.words)}"
    return Model(words, program, parts.data, parts.truth)
