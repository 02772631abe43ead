"""Every method on ten odd targets: who is right, who is wrong and says so, and who is silently wrong.

    python examples/benchmarks/odd_targets.py [--seeds 1] [METHOD ...]

A result without findings claims 100 effective draws a chain and more, in the tails too. So a run is wrong
where the share of its draws in an event of known probability is off by more than four standard errors at 400
effective draws. The events are the tails and the middle of what is known of each target: its quantiles at
0.01, 0.05, 0.5, 0.95 and 0.99. All methods run at their defaults, with four chains from random starts.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import stanadapt
from stanadapt.result.container import datasets

LEVELS = np.array([0.01, 0.05, 0.5, 0.95, 0.99])
EFFECTIVE, ERRORS = 400, 4.0


class Odd(NamedTuple):
    """A target, and what is known of it."""

    program: str
    uniform: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]  # draws -> uniform under the law


def _mixture(x: np.ndarray) -> np.ndarray:
    return 0.3 * stats.norm.cdf(x, -6, 1) + 0.7 * stats.norm.cdf(x, 6, 1)


def _step(x: np.ndarray) -> np.ndarray:
    """Distribution function of a normal law with three times the density above 0."""
    below = stats.norm.cdf(np.minimum(x, 0.0))
    above = 3.0 * (stats.norm.cdf(np.maximum(x, 0.0)) - 0.5)
    return (below + above) / 2.0


def _radius(x: np.ndarray) -> np.ndarray:
    """Distribution function of the radius r with density r exp(-(r - 5)² / (2 * 0.3²))."""
    grid = np.linspace(0.0, 9.0, 20_001)
    density = grid * np.exp(-0.5 * ((grid - 5.0) / 0.3) ** 2)
    total = np.cumsum(density)
    return np.interp(np.hypot(x[..., 0], x[..., 1]), grid, total / total[-1])


TARGETS = {
    "bounded by a jump": Odd(
        'parameters { real x; } model { if (x < 0 || x > 1) reject("outside"); }', lambda d: {"x": d["x"]}
    ),
    "discontinuity": Odd(
        "parameters { real x; } model { x ~ std_normal(); if (x > 0) target += log(3); }",
        lambda d: {"x": _step(d["x"])},
    ),
    "heavy tails": Odd(
        "parameters { real x; } model { x ~ cauchy(0, 1); }", lambda d: {"x": stats.cauchy.cdf(d["x"])}
    ),
    "two modes": Odd(
        """parameters { real x; }
        model { target += log_mix(0.3, normal_lpdf(x | -6, 1), normal_lpdf(x | 6, 1)); }""",
        lambda d: {"x": _mixture(d["x"])},
    ),
    "ring": Odd(
        "parameters { vector[2] x; } model { target += -0.5 * square((sqrt(dot_self(x)) - 5) / 0.3); }",
        lambda d: {
            "radius": _radius(d["x"]),
            "angle": (np.arctan2(d["x"][..., 1], d["x"][..., 0]) / np.pi + 1.0) / 2.0,
        },
    ),
    "funnel": Odd(
        "parameters { real v; vector[9] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }",
        lambda d: {"v": stats.norm.cdf(d["v"], 0, 3)},
    ),
    "flat direction": Odd(
        """parameters { vector[2] x; }
        model { x[1] + x[2] ~ normal(0, 0.1); x[1] - x[2] ~ normal(0, 1000); }""",
        lambda d: {
            "sum": stats.norm.cdf(d["x"].sum(axis=-1), 0, 0.1),
            "difference": stats.norm.cdf(d["x"][..., 0] - d["x"][..., 1], 0, 1000),
        },
    ),
    "NaN region": Odd(
        "parameters { real x; } model { x ~ std_normal(); target += 0 * sqrt(1 - x); }",
        lambda d: {"x": stats.norm.cdf(d["x"]) / stats.norm.cdf(1.0)},
    ),
    "tiny and huge scales": Odd(
        "parameters { vector[2] x; } model { x ~ normal([0, 0]', [1e-6, 1e6]'); }",
        lambda d: {
            "tiny": stats.norm.cdf(d["x"][..., 0], 0, 1e-6),
            "huge": stats.norm.cdf(d["x"][..., 1], 0, 1e6),
        },
    ),
    "one dimension": Odd(
        "parameters { real<lower=0> x; } model { x ~ gamma(0.5, 1); }",
        lambda d: {"x": stats.gamma.cdf(d["x"], 0.5)},
    ),
}


class Verdict(NamedTuple):
    """What a run is worth: the largest error in standard errors at `EFFECTIVE` draws, and its findings."""

    error: float
    kinds: list[str]

    @property
    def word(self) -> str:
        if self.error <= ERRORS:
            return "right"
        return "says so" if self.kinds else "SILENT"


def judge(draws: dict[str, np.ndarray], odd: Odd, kinds: list[str]) -> Verdict:
    """Compare the shares of draws (chain, draw, ...) in the events with their probabilities."""
    worst = 0.0
    for uniform in odd.uniform(draws).values():
        shares = np.array([np.mean(uniform <= level) for level in LEVELS])
        errors = np.abs(shares - LEVELS) / np.sqrt(LEVELS * (1.0 - LEVELS) / EFFECTIVE)
        worst = max(worst, float(errors.max()))
    return Verdict(worst, kinds)


def run(odd: Odd, method: str, seed: int) -> Verdict | str:
    """The verdict of one run, or the error that it ended with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            idata: Any = stanadapt.sample(odd.program, method=method, seed=seed, progress=False)
        except stanadapt.StanAdaptError as error:
            return type(error).__name__
    posterior = datasets(idata)["posterior"]
    draws = {str(name): posterior[name].values for name in posterior.data_vars}
    return judge(draws, odd, [finding.kind for finding in stanadapt.diagnose(idata)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("methods", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    methods = given.methods or list(stanadapt.methods().index)
    counts: dict[str, list[int]] = {}
    print("| method | " + " | ".join(TARGETS) + " |\n| --- |" + " --- |" * len(TARGETS))
    for method in methods:
        cells = []
        for name, odd in TARGETS.items():
            verdicts = [run(odd, method, seed) for seed in range(1, given.seeds + 1)]
            words = [verdict if isinstance(verdict, str) else verdict.word for verdict in verdicts]
            cells.append(", ".join(sorted(set(words))))
            for verdict in verdicts:
                if isinstance(verdict, Verdict) and verdict.word == "SILENT":
                    counts.setdefault(f"{method} on {name}", []).append(round(verdict.error))
        print(f"| `{method}` | " + " | ".join(cells) + " |", flush=True)
    silent = ", ".join(f"{where} ({errors} standard errors)" for where, errors in counts.items())
    print(f"\nSilently wrong: {silent or 'none'}")


if __name__ == "__main__":
    main()
