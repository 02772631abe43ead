"""What the looks of `until` cost beside the run that they end, and how far it draws beyond its goal.

    python examples/benchmarks/until.py [--seeds 3] [--factors 1.05 1.1 1.15 1.2 1.3 1.5] [--name NAME ...]
        [--autocorrelated SEEDS]

A run of many draws is cut at the rows of the schedule, and looked at there until its goal holds: 4 chains on
all cores, a method at its defaults. Then the same run is made with as many draws as that took, and the time
of the looks is set against its time, warm-up included: processor time of both over all threads, since other
programs may be running; medians over seeds. Passes: statistics that were computed, over quantities. Beyond:
the effective size of all draws at the stop, of the worst quantity, over the goal; and the least over seeds.
With --autocorrelated also runs of normal variables of known autocorrelation: how the smallest size by all
draws at the stop, and the known one of the bulk, compare with the goal.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

import stanadapt
from diagnosis import gaussian
from stanadapt import Until
from stanadapt.diagnostics.convergence import convergence
from stanadapt.diagnostics.statistics import each_column
from stanadapt.diagnostics.until import GoalWatch
from stanadapt.result.container import datasets
from stanadapt.run import stopping as goals
from stanadapt.run.stopping import Schedule

MODELS = Path(__file__).parents[2] / "models"
CHAINS = 4

# Persons of some ability answer questions of some difficulty: many parameters, and a gradient that is dear.
ANSWERS = """
data { int<lower=1> P; int<lower=1> Q; array[P, Q] int<lower=0, upper=1> right; }
parameters { vector[P] ability; vector[Q] difficulty; real<lower=0> spread; }
model {
  spread ~ normal(0, 2);
  ability ~ std_normal();
  difficulty ~ normal(0, spread);
  for (p in 1:P) right[p] ~ bernoulli_logit(ability[p] - difficulty);
}
"""


class Case(NamedTuple):
    name: str
    method: str
    until: str
    most: int  # draws a chain


CASES = [
    Case("eight_schools", "fisher_hmc", "ess 400", 2_000),
    Case("eight_schools", "fisher_mala", "ess 400, rhat 1.01", 40_000),
    Case("eight_schools", "fisher_mala", "ess 4000, rhat 1.01", 200_000),
    Case("eight_schools", "rwm", "ess 400", 200_000),
    Case("logistic_regression", "fisher_hmc", "ess 400, rhat 1.01", 2_000),
    Case("logistic_regression", "fisher_mala", "ess 1000", 40_000),
    Case("hierarchical", "fisher_hmc", "ess 1000", 10_000),
    Case("gaussian 1000", "fisher_hmc", "ess 400, rhat 1.01", 2_000),
    Case("gaussian 3000", "mala", "ess 400", 10_000),
    Case("answers", "fisher_hmc", "ess 400, rhat 1.01", 1_000),
    Case("answers", "fisher_hmc", "ess 800, mcse spread 0.01", 1_000),
]


def posterior_of(name: str) -> stanadapt.Posterior:
    if name.startswith("gaussian"):
        return stanadapt.Posterior(gaussian(int(name.split()[1])))
    if name == "answers":
        rng = np.random.default_rng(1)
        logits = rng.standard_normal((1000, 1)) - rng.standard_normal(20)
        right = (rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))).astype(int)
        return stanadapt.Posterior(ANSWERS, {"P": 1000, "Q": 20, "right": right})
    return stanadapt.Posterior(MODELS / name / f"{name}.stan", MODELS / name / f"{name}.json")


def run(posterior: stanadapt.Posterior, case: Case, draws: int, seed: int) -> tuple[np.ndarray, float]:
    """The draws (chain, draw, column), and their seconds without the diagnosis after them."""
    began = time.process_time()
    idata = stanadapt.sample(
        posterior, method=case.method, chains=CHAINS, draws=draws, seed=seed, progress=False
    )
    middle = time.process_time()
    stanadapt.diagnose(idata, list(posterior.parameters))
    seconds = 2.0 * middle - began - time.process_time()
    group = datasets(idata)["posterior"]
    values = np.empty((CHAINS, draws, posterior.n_values))
    for name, variable in posterior.variables.items():
        values[..., variable.columns] = group[name].values
    return values, seconds


class Ended(NamedTuple):
    rows: int
    reached: bool
    looks: int
    computed: int
    seconds: float  # of all looks
    longest: float  # of one


def draw_until(until: Until, posterior: stanadapt.Posterior, values: np.ndarray) -> Ended:
    """Look at draws as they would come."""
    schedule, watch = Schedule(until, CHAINS, values.shape[1]), GoalWatch(until, posterior)
    rows, not_before, times, reached = 0, 0.0, [], False
    while not reached and (then := schedule.next(rows, not_before=not_before)) > rows:
        rows = then
        began = time.process_time()
        status = watch.look(values[:, :rows])
        times.append(time.process_time() - began)
        reached, not_before = status.done, status.not_before
    return Ended(rows, reached, len(times), watch.computed, sum(times), max(times))


def beyond(until: Until, posterior: stanadapt.Posterior, values: np.ndarray) -> float:
    """The smallest effective size of all draws over the goal."""
    columns = GoalWatch(until, posterior).columns
    found = each_column(convergence, [values[..., columns]])
    return float(min(np.nanmin(found.ess_bulk), np.nanmin(found.ess_tail)) / (until.ess or np.nan))


def line(case: Case, seeds: int) -> None:
    posterior, until = posterior_of(case.name), Until.parse(case.until)
    assert until is not None
    found = []
    for seed in range(seeds):
        values, _ = run(posterior, case, case.most, seed)
        tries = [draw_until(until, posterior, values) for _ in range(2)]
        ended = min(tries, key=lambda each: each.seconds)
        spent = run(posterior, case, ended.rows, seed)[1]
        over = beyond(until, posterior, values[:, : ended.rows])
        found.append((*ended, spent, ended.seconds / spent, over))
    middle = [statistics.median(column) for column in zip(*found, strict=True)]
    rows, _, looks, computed, seconds, longest, spent, share, over = middle
    reached = sum(each[1] for each in found)
    least = min(each[-1] for each in found)
    print(
        f"| {case.name}, `{case.method}` | {case.until} | {posterior.dim} | {reached}/{seeds} | {rows:.0f} | "
        f"{looks:.0f} | {computed / posterior.dim:.1f} | {spent:.3f} | {1e3 * seconds:.1f} | "
        f"{1e3 * longest:.1f} | {share:.1%} | {over:.2f} ({least:.2f}) |",
        flush=True,
    )


def factors(chosen: list[float], seeds: int) -> None:
    """Looks and draws beyond the goal by the factor from one look to the next."""
    print("\n| factor | looks | time of looks, ms | draws over those needed |\n| ---: | ---: | ---: | ---: |")
    case = CASES[1]
    posterior, until = posterior_of(case.name), Until(ess=400)
    drawn = [run(posterior, case, case.most, seed)[0] for seed in range(4 * seeds)]
    default = goals.FACTOR
    goals.FACTOR = 1.005
    needed = [draw_until(until, posterior, values).rows for values in drawn]
    for factor in chosen:
        goals.FACTOR = factor
        ended = [draw_until(until, posterior, values) for values in drawn]
        ratio = np.mean([each.rows / least for each, least in zip(ended, needed, strict=True)])
        milliseconds = 1e3 * np.mean([each.seconds for each in ended])
        print(
            f"| {factor} | {np.mean([each.looks for each in ended]):.0f} | {milliseconds:.1f} | {ratio:.3f} |"
        )
    goals.FACTOR = default


def autocorrelated(coefficient: float, goal: float, seeds: int) -> None:
    """Sizes at the stop, of four autocorrelated normal variables, over the goal."""
    posterior, until, found = posterior_of("gaussian 4"), Until(ess=goal), []
    share = (1.0 - coefficient) / (1.0 + coefficient)
    for seed in range(seeds):
        noise = np.random.default_rng((77, seed)).standard_normal((CHAINS, int(goal / share), 4))
        noise[:, 1:] *= np.sqrt(1.0 - coefficient**2)
        values = lfilter([1.0], [1.0, -coefficient], noise, axis=1)
        ended = draw_until(until, posterior, values)
        if ended.reached:
            known = CHAINS * ended.rows * share / goal
            found.append((beyond(until, posterior, values[:, : ended.rows]), known, ended.looks))
    by_draws, known, looks = (np.array(column) for column in zip(*found, strict=True))
    print(
        f"| {coefficient} | {goal:g} | {len(found)}/{seeds} | {looks.mean():.0f} | {by_draws.min():.3f} | "
        f"{np.mean(by_draws < 1.0):.0%} | {np.median(by_draws):.2f} | {np.median(known):.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factors", type=float, nargs="*", default=[1.05, 1.1, 1.15, 1.2, 1.3, 1.5])
    parser.add_argument("--name", nargs="*")
    parser.add_argument("--autocorrelated", type=int, default=0, metavar="SEEDS")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = "run | goal | d | reached | draws | looks | passes | run, s | looks, ms | longest | share | beyond"
    print(f"| {head} |\n| --- | --- |" + " ---: |" * 10)
    for case in CASES:
        if options.name is None or case.name in options.name:
            line(case, options.seeds)
    if options.factors:
        factors(options.factors, options.seeds)
    if options.autocorrelated:
        print("\n| coefficient | goal | reached | looks | least | under 1 | median | known |")
        print("|" + " ---: |" * 8)
        for coefficient, goal in ((0.0, 400.0), (0.9, 400.0), (0.9, 2000.0), (0.97, 400.0), (0.995, 100.0)):
            autocorrelated(coefficient, goal, options.autocorrelated)


if __name__ == "__main__":
    main()
