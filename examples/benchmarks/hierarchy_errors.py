"""How often Fisher HMC is wrong on hierarchies, and how often it says so.

    python examples/benchmarks/hierarchy_errors.py [--runs 200] [--first 0] [--draws 4000] [KIND ...]

Every run has data and a seed of its own. What is known are quantiles of the scales, from 0.1 to 99.9 %: other
parameters are integrated out, and the scales are summed on a grid. A run is off if the share of its draws
under one of the quantiles is off by more than 4.5 standard errors; a chain is off if its own share under the
1, 5, 50, 95 or 99 % quantile is off by more than 6. Laws come from the test suites, which need pytest
(`pip install .[test]`). Kinds:

    centred, mixed, mirrored, standardised    hierarchies of two levels, theta ~ N(mu[parent], tau) and
                  mu ~ N(mu0, omega), with 5 to 12 groups of 1 to 9 members: both levels centred; theta alone
                  centred; mu alone; none
    small         both levels centred, 10 groups of 2 to 7
    radon         groups with a common slope and an unknown error, as in the radon models
    intercepts    the same in a program that is not centred
    lines         a line for each group, whose intercept and slope the data do not tie: two factors of single
                  effects, both centred or not
    slopes        groups with an intercept and a slope that are correlated, centred
    scores        the same in a program that is not centred
    bounded       the same two, with an upper bound of the scales, near which some draws are
    weights       weights of a curve, which the data tie, with one scale; centred and not
    schools, funnel, horseshoe    the models of tests/statistical/test_hierarchies.py, whose data are fixed
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

import stanadapt
from stanadapt.result.container import datasets

sys.path += [str(Path(__file__).parents[2] / "tests"), str(Path(__file__).parents[2] / "tests/statistical")]
import test_effects as effects
import test_hierarchies as suite

from hierarchies import lines_program, two_level_program
from weights import WEIGHTS, WEIGHTS_NOT_CENTRED, laws_of_weights, weights_of

OFF, CHAIN_OFF = 4.5, 6.0  # standard errors
INNER = slice(1, 6)  # of PROBABILITIES: 1 to 99 %
PROBABILITIES = suite.PROBABILITIES
RADON = """
data { int J; int N; array[N] int county; vector[N] floor; vector[N] y; }
parameters { vector[J] alpha; real mu; real beta; real<lower=0> tau; real<lower=0> sigma; }
model {
  mu ~ normal(0, 3); beta ~ normal(0, 3); tau ~ normal(0, 1); sigma ~ normal(0, 1);
  alpha ~ normal(mu, tau); y ~ normal(alpha[county] + beta * floor, sigma);
}
"""
INTERCEPTS = RADON.replace("alpha ~ normal(mu, tau)", "alpha ~ std_normal()").replace(
    "alpha[county]", "mu + tau * alpha[county]"
)


class Case(NamedTuple):
    """A posterior with what is known of it."""

    model: Any
    data: Any
    quantiles: dict[str, np.ndarray]  # of the logarithm of scales, a row for each, and of the funnel's v


def grouped(rng: np.random.Generator, sizes: np.ndarray, tau: float, omega: float) -> dict[str, Any]:
    """Data of two levels, with members in mixed order."""
    parent = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = 1.0 + omega * rng.normal(size=len(sizes))[parent] + np.hypot(1.0, tau) * rng.normal(size=len(parent))
    return {"J": len(sizes), "N": len(y), "parent": parent + 1, "y": y}


def any_hierarchy(rng: np.random.Generator, centred: bool, upper_centred: bool) -> Case:
    fewest, most = rng.integers(1, 4), rng.integers(5, 10)
    sizes = rng.integers(fewest, most + 1, rng.integers(5, 13))
    data = grouped(rng, sizes, float(np.exp(rng.normal(-0.3, 0.6))), float(np.exp(rng.normal(-0.9, 0.6))))
    tau, omega = suite.quantiles_of_two_levels(data)
    return Case(two_level_program(centred, upper_centred), data, {"tau": tau, "omega": omega})


def small(rng: np.random.Generator) -> Case:
    data = grouped(rng, rng.integers(2, 8, 10), 1.0, 0.4)
    tau, omega = suite.quantiles_of_two_levels(data)
    return Case(two_level_program(True, True), data, {"tau": tau, "omega": omega})


def radon(rng: np.random.Generator, program: str = RADON) -> Case:
    """alpha, mu and beta are integrated out: y is normal with a covariance that tau and sigma give."""
    groups = int(rng.integers(5, 13))
    county = rng.permutation(np.repeat(np.arange(groups), rng.integers(1, 9, groups)))
    floor = (rng.random(len(county)) < 0.3).astype(float)
    tau, sigma = float(np.exp(rng.normal(-1.2, 0.5))), float(np.exp(rng.normal(-0.3, 0.2)))
    y = 1.3 - 0.6 * floor + tau * rng.normal(size=groups)[county] + sigma * rng.normal(size=len(county))
    member = (county[:, None] == np.arange(groups)).astype(float)
    fixed = 9.0 * (np.ones((len(y), len(y))) + np.outer(floor, floor))
    u, v = np.linspace(-14.0, 2.0, 321), np.linspace(-2.5, 1.5, 81)  # log tau, log sigma
    log_p = np.empty((u.size, v.size))
    for k, log_tau in enumerate(u):
        values, vectors = np.linalg.eigh(fixed + np.exp(2.0 * log_tau) * member @ member.T)
        along = np.square(vectors.T @ y)
        spread = np.maximum(values, 0.0)[:, None] + np.exp(2.0 * v)
        log_p[k] = -0.5 * (np.log(spread) + along[:, None] / spread).sum(axis=0)
    for scale in (u[:, None], v[None, :]):
        log_p += stats.norm.logpdf(np.exp(scale)) + scale
    density = np.exp(log_p - log_p.max())
    data = {"J": groups, "N": len(y), "county": county + 1, "floor": floor, "y": y}
    return Case(program, data, {"tau": suite.quantiles(u, density.sum(axis=1))})


def lines(rng: np.random.Generator) -> Case:
    """Means over times and slopes are independent, each normal around a mean, with tau and a known error."""
    groups, n, u = int(rng.integers(5, 15)), int(rng.integers(3, 9)), np.linspace(-14.0, 2.0, 1_601)
    t, tau = np.linspace(-1.0, 1.0, n), np.exp(rng.normal(-0.9, 0.6, 2))
    alpha, beta = np.array([0.7, -0.4])[:, None] + tau[:, None] * rng.normal(size=(2, groups))
    y = alpha[:, None] + beta[:, None] * t + rng.normal(size=(groups, n))
    laws = []
    for seen, error in ((y.mean(axis=1), 1.0 / n), (y @ t / (t @ t), 1.0 / (t @ t))):
        variance = np.exp(2.0 * u) + error
        along = groups * np.square(seen.mean()) / (variance + 9.0 * groups)
        log_p = -0.5 * ((groups - 1) * np.log(variance) + np.log(variance + 9.0 * groups) + along)
        log_p += -0.5 * groups * seen.var() / variance + stats.norm.logpdf(np.exp(u)) + u
        laws.append(suite.quantiles(u, np.exp(log_p - log_p.max())))
    program = lines_program(not rng.integers(2), known_error=True)
    return Case(program, {"J": groups, "T": n, "t": t, "y": y, "sigma": 1.0}, {"tau": np.array(laws)})


def correlated(rng: np.random.Generator, program: str, upper: float = np.inf) -> Case:
    """Five to fourteen groups of three to six; scales and the correlation of all sizes."""
    scales, rho = np.exp(rng.normal(-1.0, 0.6, 2)), rng.uniform(-0.9, 0.9)
    root = scales[:, None] * np.array([[1.0, 0.0], [rho, np.sqrt(1.0 - rho * rho)]])
    data = effects.data_of(rng, int(rng.integers(5, 15)), int(rng.integers(3, 7)), root)
    return Case(program, data, {"sigma": np.array(effects.laws_of(data, upper)[:2])})


def bounded(rng: np.random.Generator) -> Case:
    programs = effects.BOUNDED, effects.BOUNDED_NOT_CENTRED
    return correlated(rng, programs[int(rng.integers(2))], effects.UPPER)


def weights(rng: np.random.Generator) -> Case:
    """Six to twenty-four weights, of all sizes."""
    size, k = int(rng.integers(30, 100)), int(rng.integers(6, 25))
    data = weights_of(rng, size, k, float(np.exp(rng.normal(-1.0, 0.8))))
    programs = WEIGHTS, WEIGHTS_NOT_CENTRED
    tau, sigma = laws_of_weights(data)
    return Case(programs[int(rng.integers(2))], data, {"tau": tau, "sigma": sigma})


KINDS: dict[str, Callable[[np.random.Generator], Case]] = {
    "centred": lambda rng: any_hierarchy(rng, True, True),
    "mixed": lambda rng: any_hierarchy(rng, True, False),
    "mirrored": lambda rng: any_hierarchy(rng, False, True),
    "standardised": lambda rng: any_hierarchy(rng, False, False),
    "small": small,
    "radon": radon,
    "intercepts": lambda rng: radon(rng, INTERCEPTS),
    "lines": lines,
    "slopes": lambda rng: correlated(rng, effects.CENTRED),
    "scores": lambda rng: correlated(rng, effects.NOT_CENTRED),
    "bounded": bounded,
    "weights": weights,
    "schools": lambda rng: Case(
        *suite.shipped("eight_schools_centered"), {"tau": suite.quantiles_of_schools()}
    ),
    "funnel": lambda rng: Case(*suite.shipped("funnel"), {"v": 3.0 * stats.norm.ppf(PROBABILITIES)}),
    "horseshoe": lambda rng: Case(
        suite.HORSESHOE,
        {"J": len(suite.OUTCOMES), "y": suite.OUTCOMES},
        {"tau": suite.quantiles_of_horseshoe()},
    ),
}


def run(kind: str, k: int, draws: int) -> dict[str, Any]:
    """One run: its largest errors, as a whole and of a chain, and its findings."""
    case = KINDS[kind](np.random.default_rng([k, 77]))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(
            case.model, case.data, method="fisher_hmc", seed=k, draws=draws, progress=False, workers=1
        )
    seconds = time.perf_counter() - began
    largest, of_chains, posterior = 0.0, np.zeros(0), datasets(idata)["posterior"]
    for name, limits in case.quantiles.items():
        values = posterior[name].values if name == "v" else np.log(posterior[name].values)
        scales = np.moveaxis(values.reshape(*values.shape[:2], -1), -1, 0)
        for scale, law in zip(scales, np.atleast_2d(limits), strict=True):
            largest = max(largest, float(np.abs(suite.errors(scale, law)).max()))
            own = [np.abs(suite.errors(chain[None], law)[INNER]).max() for chain in scale]
            of_chains = np.maximum(of_chains, own) if len(of_chains) else np.array(own)
    return {
        "kind": kind,
        "run": k,
        "seconds": seconds,
        "findings": sorted({finding.kind for finding in stanadapt.diagnose(idata)}),
        "largest": largest,
        "chains": [float(value) for value in of_chains],
    }


def summary(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A row for each kind."""
    table = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        off = [row for row in own if row["largest"] > OFF]
        chains = [value for row in own for value in row["chains"]]
        table[kind] = {
            "runs": len(own),
            "with findings": sum(bool(row["findings"]) for row in own),
            "off": len(off),
            "off without a finding": sum(not row["findings"] for row in off),
            "chains off": sum(value > CHAIN_OFF for value in chains),
            "of chains": len(chains),
            "largest error": max(row["largest"] for row in own),
            "seconds a run": float(np.median([row["seconds"] for row in own])),
        }
    return pd.DataFrame(table).T


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first run: its data and its seed")
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--json", type=Path, help="file to which each run is appended as a line")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(KINDS):
        parser.error(f"KIND {min(unknown)} is none of {', '.join(KINDS)}")
    rows = []
    for kind in asked.kinds or KINDS:
        for k in range(asked.first, asked.first + asked.runs):
            row = run(kind, k, asked.draws)
            rows.append(row)
            if row["findings"] or row["largest"] > OFF or max(row["chains"]) > CHAIN_OFF:
                print(
                    f"{kind} {k}: {row['largest']:.1f} standard errors, findings {row['findings']}",
                    flush=True,
                )
            if asked.json:
                with asked.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(summary(rows).to_string(float_format=lambda value: f"{value:.4g}"))


if __name__ == "__main__":
    main()
