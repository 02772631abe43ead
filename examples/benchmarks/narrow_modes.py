"""How narrow a mode the search before a `tempered` run finds, and what it says of that.

    python examples/benchmarks/narrow_modes.py [--seeds 24] [--scale 1 0.7 0.5 0.4] [--case NAME ...]

Searches alone, without a run, in ten dimensions. Cases: `hidden`, one of eight modes, with 7 % of the mass,
which lies behind others (mode_models.py); `beside one`, a tenth of the mass 20 standard deviations from a
wide mode, in a direction that depends on the seed; `anywhere`, one of eight modes at random places, which
depend on the seed, too. The columns: the scale of the mode, relative to the others; how many searches find
it; the median and the range of the scale that the searches say they would see every second time;
evaluations, and CPU seconds, of a search.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import stanadapt
from mode_models import problems
from stanadapt import samplers
from stanadapt.run.inits import Init
from stanadapt.run.job import Job
from stanadapt.run.preparation.known_modes import hand_over

D = 10
PROGRAM = str(problems()["narrow_and_hidden"]().program)


class Mixture(NamedTuple):
    """Eight normal laws, of which some may have no weight to speak of; `part` is the narrow one."""

    means: np.ndarray  # (8, 10)
    weights: np.ndarray  # (8,)
    part: int


def hidden(seed: int) -> Mixture:
    data: Any = problems()["narrow_and_hidden"]().data
    return Mixture(np.array(data["m"]), np.array(data["w"]), 2)


def beside_one(seed: int) -> Mixture:
    direction = np.random.default_rng(100 + seed).standard_normal(D)
    means = np.zeros((8, D))
    means[0] = 20.0 * direction / np.linalg.norm(direction)
    return Mixture(means, np.array([0.1, *[0.9 / 7] * 7]), 0)


def anywhere(seed: int) -> Mixture:
    rng = np.random.default_rng(500 + seed)
    return Mixture(rng.uniform(-10.0, 10.0, (8, D)), np.array([0.1, *[0.9 / 7] * 7]), 0)


CASES: dict[str, Callable[[int], Mixture]] = {
    "hidden": hidden,
    "beside one": beside_one,
    "anywhere": anywhere,
}


def searched(law: Mixture, scale: float, chains: int, seed: int) -> tuple[bool, dict[str, Any], float]:
    """Whether a search finds the narrow mode, its notes, and its CPU seconds."""
    scales = np.where(np.arange(8) == law.part, scale, 1.0)
    data = {"m": law.means.tolist(), "w": law.weights.tolist(), "s": scales.tolist()}
    posterior = stanadapt.Posterior(PROGRAM, data)
    settings = samplers.resolve(samplers.sampler("tempered"), {})
    job = Job("tempered", settings, 1_000, 1_000, 1, chains, seed, False, False)
    began = time.process_time()
    starts, notes = hand_over(job, posterior, [Init(2.0)] * chains, False)
    seconds = time.process_time() - began
    away = np.linalg.norm(np.asarray(starts[0].modes) - law.means[law.part], axis=1)
    return bool(away.min() < 1.0), notes, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--scale", type=float, nargs="+", default=[1.0, 0.7, 0.5, 0.4])
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    asked = parser.parse_args()
    print("| case | scale | found | narrowest seen | from | to | evaluations | CPU s |")
    print("| --- |" + " ---: |" * 7)
    for name in asked.case:
        for scale in asked.scale:
            runs = [searched(CASES[name](seed), scale, asked.chains, seed) for seed in range(asked.seeds)]
            said = np.array([notes["modes_narrowest_seen"] for _, notes, _ in runs])
            taken = np.median([notes["modes_search_evaluations"] for _, notes, _ in runs])
            found = f"{sum(each for each, _, _ in runs)} of {len(runs)}"
            seconds = np.median([each for _, _, each in runs])
            limits = f"{np.median(said):.2f} | {said.min():.2f} | {said.max():.2f}"
            print(f"| {name} | {scale:g} | {found} | {limits} | {taken:,.0f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
