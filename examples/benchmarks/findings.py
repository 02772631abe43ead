"""How often findings on what draws lack are right: heavy tails that are slow, modes, improper posteriors.

    python examples/benchmarks/findings.py [--method fisher_mala fisher_hmc] [--seeds 20] [--name NAME ...]
    python examples/benchmarks/findings.py --posteriordb [--method fisher_hmc]

Ten heavy-tailed and ten light-tailed targets at a method's defaults. Of every target: how often the draws
have less than two thirds or more than three halves of the true probability beyond the 1 % and 99 % quantiles;
how often there is a finding of each kind; and how often nothing at all is said although the probability is
wrong. With --posteriordb the posteriors that have reference draws, one seed each, with the seconds that
looking at tails and modes took beside those of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import stanadapt
from posteriordb import DEFAULT, program_and_data
from stanadapt.result import build
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
KINDS = ("heavy_tails", "modes", "improper")
EXACT = 2_000_000  # draws that stand for the distribution where it has no closed form


class Case(NamedTuple):
    """A target, and the distribution of its parameter x where it is known."""

    program: str
    quantile: Callable[[float], float] | None = None
    data: Any = None


def student(degrees: int) -> Case:
    program = f"parameters {{ real x; }} model {{ x ~ student_t({degrees}, 0, 1); }}"
    return Case(program, stats.t(degrees).ppf)


def simulated(draw: Callable[[np.random.Generator], np.ndarray]) -> Callable[[float], float]:
    """The quantiles of exact draws."""
    draws = draw(np.random.default_rng(0))
    return lambda p: float(np.quantile(draws, p))


def of(text: str) -> str:
    return f"parameters {{ real x; }} model {{ x ~ {text}; }}"


def positive(text: str) -> str:
    return f"parameters {{ real<lower=0> x; }} model {{ x ~ {text}; }}"


def shipped(name: str) -> Case:
    """A program that comes with the project, with its data."""
    folder = MODELS / name
    return Case((folder / f"{name}.stan").read_text(), data=json.loads((folder / f"{name}.json").read_text()))


CORRELATED = """transformed data { matrix[8, 8] S;
  for (i in 1:8) for (j in 1:8) S[i, j] = 0.9^abs(i - j); }
parameters { vector[8] x; } model { x ~ multi_normal(rep_vector(0, 8), S); }"""
RATIO = """parameters { real x; real b; }  // b x is normal, given b
model { b ~ normal(0, 1); target += -0.5 * square(b * x) + log(abs(b)); }"""
FUNNEL = "parameters { real v; real x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
HORSESHOE = "parameters { real<lower=0> l; real x; } model { l ~ cauchy(0, 1); x ~ normal(0, l); }"
MIXTURE = "log_mix(0.3, normal_lpdf(x | -1.5, 1), normal_lpdf(x | 1.5, 1))"
LOGISTIC = """transformed data {
  array[20] int y = {1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1};
  vector[20] u; for (i in 1:20) u[i] = (i - 10.5) / 6; }
parameters { real a; real x; }
model { a ~ normal(0, 2); x ~ normal(0, 2); y ~ bernoulli_logit(a + x * u); }"""
CASES: dict[str, Case] = {
    **{f"t, {degrees}": student(degrees) for degrees in (1, 2, 3, 4, 5, 10)},
    "half-Cauchy scale": Case(positive("cauchy(0, 1)"), stats.halfcauchy.ppf),
    "ratio of normals": Case(RATIO, stats.cauchy.ppf),
    "funnel": Case(FUNNEL, simulated(lambda rng: rng.normal(0.0, np.exp(rng.normal(0.0, 3.0, EXACT) / 2)))),
    "horseshoe": Case(HORSESHOE, simulated(lambda rng: rng.normal(0.0, np.abs(rng.standard_cauchy(EXACT))))),
    "normal": Case(of("normal(0, 1)"), stats.norm.ppf),
    "exponential": Case(positive("exponential(1)"), stats.expon.ppf),
    "gamma": Case(positive("gamma(0.5, 1)"), stats.gamma(0.5).ppf),
    "beta": Case(
        "parameters { real<lower=0, upper=1> x; } model { x ~ beta(0.5, 3); }", stats.beta(0.5, 3).ppf
    ),
    "Laplace": Case(of("double_exponential(0, 1)"), stats.laplace.ppf),
    "logistic": Case(of("logistic(0, 1)"), stats.logistic.ppf),
    "mixture": Case(f"parameters {{ real x; }} model {{ target += {MIXTURE}; }}"),
    "8-d correlated": Case(CORRELATED),
    "eight schools": shipped("eight_schools"),
    "logistic regression": Case(LOGISTIC),
}


def is_wrong(draws: np.ndarray, quantile: Callable[[float], float]) -> bool:
    """Whether the probability beyond the 1 % and 99 % quantiles is off by half."""
    beyond = np.mean((draws < quantile(0.01)) | (draws > quantile(0.99))) / 0.02
    return not 2 / 3 < beyond < 3 / 2


def measure(method: str, name: str, seeds: int) -> str:
    """A row of the table."""
    case = CASES[name]
    posterior = stanadapt.Posterior(case.program, case.data)
    counts, wrong, silent = dict.fromkeys(KINDS, 0), 0, 0
    for seed in range(seeds):
        idata = stanadapt.sample(posterior, method=method, seed=seed, progress=False)
        found = {finding.kind for finding in stanadapt.diagnose(idata, list(posterior.parameters))}
        for kind in KINDS:
            counts[kind] += kind in found
        if case.quantile is not None and is_wrong(datasets(idata)["posterior"]["x"].values, case.quantile):
            wrong += 1
            silent += not found
    told = (str(wrong), str(silent)) if case.quantile is not None else ("", "")
    return " | ".join([f"| {method}", name, told[0], *map(str, counts.values()), f"{told[1]} |"])


def database(method: str) -> None:
    """The table of PosteriorDB's posteriors."""
    spent = [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            spent[0] += time.perf_counter() - began
            return result

        return run

    vars(build).update({name: timed(vars(build)[name]) for name in ("tail_indices", "unvisited")})
    folder = Path(os.environ.get("POSTERIORDB", DEFAULT))
    print(
        "| posterior | d | s | s to look at tails and modes | findings |\n| --- | ---: | ---: | ---: | --- |"
    )
    for path in sorted((folder / "reference_posteriors" / "draws" / "draws").glob("*.json.zip")):
        name = path.name.removesuffix(".json.zip")
        posterior = stanadapt.Posterior(*program_and_data(folder, name))
        spent[0] = 0.0
        idata = stanadapt.sample(posterior, method=method, seed=1, progress=False)
        kinds = [finding.kind for finding in stanadapt.diagnose(idata, list(posterior.parameters))]
        seconds = datasets(idata)["posterior"].attrs["sampling_time"]
        print(
            f"| {name} | {posterior.dim} | {seconds:.2f} | {spent[0]:.3f} | {', '.join(kinds)} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", nargs="+", default=["fisher_mala", "fisher_hmc"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--name", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--posteriordb", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.posteriordb:
        for method in options.method:
            database(method)
        return
    print(f"| method | target | wrong | {' | '.join(KINDS)} | wrong, and nothing said |")
    print("| --- | --- |" + " ---: |" * (len(KINDS) + 2))
    for method in options.method:
        for name in options.name:
            print(measure(method, name, options.seeds), flush=True)


if __name__ == "__main__":
    main()
