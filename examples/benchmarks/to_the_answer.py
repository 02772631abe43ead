"""From nothing to an effective sample size of 400: gradients and CPU seconds, warm-up counted.

    python examples/benchmarks/to_the_answer.py [NAME ...] [--samplers ours stan_diag nutpie] [--seeds 1]
        [--out to_the_answer.csv] [--resume] [--show]

NAMEs are posteriors of PosteriorDB (the two folders in ../shared/data, or the one that POSTERIORDB names) and
the ones of DEAR, whose gradients take more than a millisecond. `ours` is `stanadapt.sample` by `fisher_hmc`
with `until="ess 400"` and its looks, `ours_pooled` the same with the setting `pooled`; `stan_diag` is Stan's
NUTS as CmdStan runs it by default, with a warm-up of 1,000 iterations, and the others are peers of the race
(race/samplers.py) at their defaults. A run of four chains of a peer is cut where the smallest ESS, of bulk
and tail over all parameters, first reaches 400: draws are looked at ten by ten. The gradients of the draws
behind the cut are taken off, and the seconds are shared out by gradients. What is timed is what the race
times: no imports, no compilation, no opening of the model. Every run has a process of its own, in which
another one loads kernels before.
"""

from __future__ import annotations

import argparse
import functools
import os

# Before NumPy is imported, here and in the processes.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from race import problems, samplers, shim, sweep
from race.judge import sizes
from race.problems import Problem
from race.racer import Clock, Outcome
from warm import read

ENOUGH = 400.0  # effective draws
CHAINS = 4
STEP = 10  # draws of a chain, from one look at a peer's run to the next
MOST = (500, 2_000)  # draws of a chain of a peer: the second where the first are too few
LIMIT = 20_000  # draws of a chain of ours, if it does not stop before

# A predator and its prey: pelts of hares and lynxes in thousands, 1900 to 1920 (Hudson's Bay Company).
HARES_AND_LYNXES = """
functions {
  vector change(real t, vector z, vector theta) {
    return [(theta[1] - theta[2] * z[2]) * z[1], (theta[4] * z[1] - theta[3]) * z[2]]';
  }
}
data {
  int<lower=0> T;
  array[T] real t;
  array[2] real first;
  array[T, 2] real y;
}
parameters {
  vector<lower=0>[4] theta;
  vector<lower=0>[2] start;
  array[2] real<lower=0> sigma;
}
model {
  array[T] vector[2] z = ode_bdf_tol(change, start, 0, t, 1e-6, 1e-6, 100000, theta);
  theta[{1, 3}] ~ normal(1, 0.5);
  theta[{2, 4}] ~ normal(0.05, 0.05);
  sigma ~ lognormal(-1, 1);
  start ~ lognormal(log(10), 1);
  for (k in 1 : 2) {
    first[k] ~ lognormal(log(start[k]), sigma[k]);
    y[ : , k] ~ lognormal(log(z[ : , k]), sigma[k]);
  }
}
"""
HARES = [30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22, 25.4, 27.1]
HARES += [40.3, 57, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7]
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4]
LYNXES += [8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]

REGRESSION = """
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] X;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  y ~ bernoulli_logit(alpha + X * beta);
}
"""


def hares_and_lynxes() -> Problem:
    rows = np.column_stack([HARES, LYNXES]).tolist()
    years = list(range(1, len(rows)))
    data = {"T": len(years), "t": years, "first": rows[0], "y": rows[1:]}
    return problems.opened("hares_and_lynxes", HARES_AND_LYNXES, data)


def process() -> Problem:
    """PosteriorDB's regression by a Gaussian process, with more observations."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-20.0, 20.0, 195))
    y = 2.0 * np.sin(x / 4.0) + np.cos(x / 7.0) + 0.5 * rng.standard_normal(len(x))
    program = read("gp_pois_regr-gp_regr")[0]
    return problems.opened("process", program, {"N": len(x), "x": x.tolist(), "y": y.tolist()})


def hidden_states() -> Problem:
    """PosteriorDB's example of a hidden Markov model, with a longer series."""
    rng = np.random.default_rng(1)
    states = [0]
    for _ in range(3_499):
        states.append(rng.choice(2, p=[[0.8, 0.2], [0.35, 0.65]][states[-1]]))
    y = np.array([3.0, 9.0])[states] + rng.standard_normal(len(states))
    program = read("hmm_example-hmm_example")[0]
    return problems.opened("hidden_states", program, {"N": len(y), "K": 2, "y": y.tolist()})


def regression() -> Problem:
    """A logistic regression whose predictors are correlated."""
    rng = np.random.default_rng(1)
    n, k = 55_000, 20
    x = rng.standard_normal((n, k)) + rng.standard_normal((n, 1))
    chance = 1.0 / (1.0 + np.exp(-x @ rng.normal(0.0, 0.3, k)))
    y = (rng.random(n) < chance).astype(int)
    return problems.opened("regression", REGRESSION, {"N": n, "K": k, "X": x.tolist(), "y": y.tolist()})


DEAR: dict[str, Callable[[], Problem]] = {
    made.__name__: made for made in (hares_and_lynxes, process, hidden_states, regression)
}
NAMES = [
    "eight_schools-eight_schools_noncentered",
    "arK-arK",
    "garch-garch11",
    "low_dim_gauss_mix-low_dim_gauss_mix",
    "gp_pois_regr-gp_pois_regr",
    "mcycle_gp-accel_gp",
    "diamonds-diamonds",
    "radon_mn-radon_hierarchical_intercept_noncentered",
    *DEAR,
]
OURS = ["ours_pooled", "ours"]  # the first of them that ran is compared with the peers
COLUMNS = [*sweep.KEY, "chains", "d", "milliseconds", "status", "draws", "ess", "r_hat", "before"]
COLUMNS += ["gradients", "cpu_seconds"]


def ours(problem: Problem, seed: int, *, pooled: bool = False) -> dict[str, Any]:
    asked = {"method": "fisher_hmc", "settings": {"pooled": pooled}, "until": f"ess {ENOUGH:g}"}
    measured = sweep.measure(problem, chains=CHAINS, draws=LIMIT, seed=seed, **asked)
    figures = measured.figures
    own = measured.draws[..., : len(problem.parameters)][..., ~problem.steady]
    return judged(own) | {
        "before": figures["gradients"] - figures["draw_gradients"],
        "gradients": figures["gradients"],
        "cpu_seconds": figures["cpu_seconds"],
    }


def judged(draws: np.ndarray) -> dict[str, Any]:
    bulk, tail, r_hat = sizes(draws)
    return {"draws": draws.shape[1], "ess": min(bulk, tail), "r_hat": r_hat}


def peer(problem: Problem, name: str, seed: int) -> dict[str, Any]:
    racer = samplers.racer(name)(problem, CHAINS, 2)
    run = stan if name.startswith("stan") else drawn
    for most in MOST:
        outcome = run(racer, most, seed)
        assert outcome.steps is not None
        own = outcome.draws[..., : len(problem.parameters)][..., ~problem.steady]
        enough = (n for n in range(STEP, most + 1, STEP) if min(sizes(own[:, :n])[:2]) >= ENOUGH)
        n = next(enough, most)
        verdict = judged(own[:, :n])
        if verdict["ess"] >= ENOUGH:
            break
    gradients = outcome.gradients - outcome.steps[:, n:].sum()
    return verdict | {
        "before": outcome.gradients - outcome.steps.sum(),
        "gradients": gradients,
        "cpu_seconds": outcome.cpu_seconds * gradients / outcome.gradients,
    }


def drawn(racer: Any, draws: int, seed: int) -> Outcome:
    racer.prepare(draws)
    return racer.run(draws, seed)()


def stan(racer: Any, draws: int, seed: int) -> Outcome:
    """As the race has it, but the same run tells the gradients of its warm-up."""
    import stanli

    with Clock() as clock:
        fit = racer.model.sample(
            chains=CHAINS, parallel_chains=2, seed=seed, samples=draws, save_warmup=True, refresh=0
        )
    steps = fit.sampler_stats[..., stanli.SAMPLER_COLUMNS.index("n_leapfrog__")]
    values = np.asarray(fit.draws())[:, -draws:]
    return Outcome(clock.seconds, clock.cpu_seconds, float(steps.sum()), values, steps[:, -draws:])


def work(connection: Connection, given: argparse.Namespace, name: str, sampler: str, seed: int) -> None:
    """The process of a run."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    problem = DEAR[name]() if name in DEAR else problems.opened(name, *read(name))
    seconds = shim.gradient_seconds(shim.opened(problem.bridgestan_data))
    connection.send({"d": problem.d, "milliseconds": 1e3 * seconds})
    run = functools.partial(peer, name=sampler)
    if sampler in OURS:
        run = functools.partial(ours, pooled=sampler == "ours_pooled")
    # Loads what a first run loads. Which kernels ours needs depends on the problem.
    run(problem if sampler in OURS else problems.small(), seed=1_000 + seed)
    connection.send(run(problem, seed=seed))


def table(rows: pd.DataFrame) -> str:
    """Markdown: medians over seeds; and the best peer over ours."""
    names = list(rows["sampler"].unique())
    peers = [name for name in names if name not in OURS]
    best = next(name for name in OURS if name in names)
    heads = ["posterior", "d", "a gradient, ms"]
    heads += [f"{name}: {what}" for name in names for what in ("gradients", "CPU s")]
    heads += [f"warm-up of {best}", "best peer: gradients", "best peer: CPU s"]
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    ratios: dict[str, list[float]] = {"gradients": [], "cpu_seconds": []}
    for model, of_model in rows.groupby("model", sort=False):
        middle = of_model.groupby("sampler")[["gradients", "cpu_seconds", "before"]].median().reindex(names)
        ess = of_model.groupby("sampler")["ess"].min()
        cells = [str(model), f"{of_model['d'].iloc[0]:.0f}", f"{of_model['milliseconds'].median():.2g}"]
        for name in names:
            over = "more than " if ess.get(name, 0.0) < 0.95 * ENOUGH else ""
            for value in middle.loc[name, ["gradients", "cpu_seconds"]]:
                cells.append(over + sweep.written(value) if np.isfinite(value) else "no run")
        own = middle.loc[best]
        cells.append(f"{own['before'] / own['gradients']:.0%}")
        for column in ("gradients", "cpu_seconds"):
            ratios[column].append(middle.loc[peers, column].min() / own[column])
            cells.append(f"{ratios[column][-1]:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    means = {column: np.exp(np.nanmean(np.log(found))) for column, found in ratios.items()}
    cells = ["geometric mean", *[""] * (len(heads) - 3), *(f"{value:.2f}" for value in means.values())]
    lines.append(f"| {' | '.join(cells)} |")
    for column in ("gradients", "cpu_seconds"):
        least = sum(ratio > 1.0 for ratio in ratios[column])
        lines += ["", f"The least {column.replace('_', ' ')}: {best} on {least} of {len(ratios[column])}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME")
    add("--samplers", nargs="*", default=[*OURS, "stan_diag", "nutpie"], choices=[*OURS, *samplers.PEERS])
    add("--seeds", nargs="*", type=int, default=[1])
    add("--out", type=Path, default=Path("to_the_answer.csv"))
    add("--resume", action="store_true")
    add("--show", action="store_true")
    given = parser.parse_args()
    given.chains = CHAINS
    sweep.leave_out_lacking(given, OURS)
    rows = sweep.read(given.out) if given.show else sweep.run_all(work, given, NAMES, COLUMNS)
    print(table(rows))


if __name__ == "__main__":
    main()
