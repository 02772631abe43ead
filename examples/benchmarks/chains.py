"""How often healthy runs have a finding on one chain: tails, step sizes and costs, waits, divergences.

    python examples/benchmarks/chains.py [--runs 2000] [--draws 1000 ...] [--name NAME ...] [--power]

Simulated runs of 4 chains of 1,000 draws of ten quantities each, whose chains all have the same law:
independent draws, autoregressive chains with 100 to 400 effective draws, heavy tails, tails that come in
clumps, counts and rounded draws. Their statistics are those of a healthy run: step sizes and costs that vary
by 20 % from chain to chain, 80 % of proposals accepted, divergences in 0.05 % of draws. The table has the
number of runs with a finding of each kind that names a chain, with any of them, and with effective sizes that
are too small.

With --power one chain of four hardly goes under the 5 % or 1 % quantile of one quantity: the share of runs
in which it is named. Two of five draws are effective there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import xarray
from scipy.signal import lfilter

import stanadapt
from stanadapt.result.container import container

CHAINS, DRAWS, QUANTITIES = 4, 1000, 10
KINDS = ("tails", "uneven", "still", "divergences")
ATTRIBUTES = {"method": "fisher_hmc", "settings": json.dumps({"target_accept": 0.8})}


def autoregressive(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Stationary chains with so many effective draws for the mean."""
    ratio = size / shape[-1]
    c = (1.0 - ratio) / (1.0 + ratio)
    noise = rng.standard_normal(shape)
    noise[..., 0] /= np.sqrt(1.0 - c * c)
    return np.asarray(lfilter([np.sqrt(1.0 - c * c)], [1.0, -c], noise, axis=-1))


def clumps(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Independent draws times a scale that changes slowly: both tails come in clumps."""
    return np.asarray(np.exp(autoregressive(rng, shape, size)) * rng.standard_normal(shape))


def cubed(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Slow chains with heavy tails."""
    return np.asarray(autoregressive(rng, shape, size) ** 3)


Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
LAWS: dict[str, Draw] = {
    "independent": lambda rng, shape: rng.standard_normal(shape),
    "autoregressive, 400": lambda rng, shape: autoregressive(rng, shape, 400),
    "autoregressive, 200": lambda rng, shape: autoregressive(rng, shape, 200),
    "autoregressive, 100": lambda rng, shape: autoregressive(rng, shape, 100),
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "heavy and slow, 200": lambda rng, shape: cubed(rng, shape, 200),
    "clumps in the tails, 200": lambda rng, shape: clumps(rng, shape, 200),
    "clumps in the tails, 100": lambda rng, shape: clumps(rng, shape, 100),
    "counts": lambda rng, shape: rng.poisson(1.5, shape).astype(float),
    "rarely one": lambda rng, shape: (rng.random(shape) < 0.03).astype(float),
    "rounded": lambda rng, shape: np.round(autoregressive(rng, shape, 400), 1),
}


def healthy(rng: np.random.Generator, draw: Draw, draws: int) -> xarray.Dataset:
    """A run whose chains are alike."""
    coords = {"chain": np.arange(CHAINS), "draw": np.arange(draws)}
    values = draw(rng, (QUANTITIES, CHAINS, draws)).transpose(1, 2, 0)
    shape = (CHAINS, draws)
    stats = {
        "step_size": np.exp(0.2 * rng.standard_normal((CHAINS, 1))) * np.ones(shape),
        "n_steps": rng.poisson(np.exp(0.2 * rng.standard_normal((CHAINS, 1))) * 8.0, shape),
        "accepted": rng.random(shape) < 0.8,
        "acceptance_rate": np.full(shape, 0.8),
        "diverging": rng.random(shape) < 0.0005,
    }
    dims = ("chain", "draw")
    return container(
        {
            "posterior": xarray.Dataset({"v": ((*dims, "i"), values)}, coords=coords, attrs=ATTRIBUTES),
            "sample_stats": xarray.Dataset({k: (dims, v) for k, v in stats.items()}, coords=coords),
        },
        {},
    )


def false_alarms(name: str, runs: int, draws: int) -> str:
    rng, began = np.random.default_rng(20_261), time.perf_counter()
    counts, any_, small = dict.fromkeys(KINDS, 0), 0, 0
    for _ in range(runs):
        findings = stanadapt.diagnose(healthy(rng, LAWS[name], draws))
        kinds = {each.kind for each in findings if each.chains or each.kind.startswith("ess")}
        for kind in KINDS:
            counts[kind] += kind in kinds
        any_ += bool(kinds & {*KINDS})
        small += bool(kinds & {"ess_bulk", "ess_tail"})
    seconds = time.perf_counter() - began
    shown = " | ".join(str(counts[kind]) for kind in KINDS)
    return f"| {name} | {draws:,} | {runs} | {shown} | {any_} | {small} | {seconds:.0f} |"


def power(lacking: float, share: float, draws: int, runs: int) -> str:
    """One chain has only a share of the draws that it should have in a tail of probability `lacking`."""
    rng, named = np.random.default_rng(7), 0
    for _ in range(runs):
        idata = healthy(rng, lambda rng, shape: autoregressive(rng, shape, 0.4 * draws), draws)
        values = idata["posterior"]["v"].values
        tail = np.quantile(values[:3, :, 0], lacking)
        gone = (values[3, :, 0] < tail) & (rng.random(draws) > share)
        values[3, gone, 0] = 2.0 * tail - values[3, gone, 0]
        named += any(each.kind == "tails" and each.chains == (3,) for each in stanadapt.diagnose(idata))
    return f"| {lacking:.0%} | {share:.0%} | {draws:,} | {named / runs:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--draws", type=int, nargs="+", default=[DRAWS])
    parser.add_argument("--name", nargs="+", choices=LAWS, default=list(LAWS))
    parser.add_argument("--power", action="store_true")
    options = parser.parse_args()
    if options.power:
        print(
            "| tail | share of it that the chain has | draws a chain | named |\n| ---: | ---: | ---: | ---: |"
        )
        for draws in options.draws:
            for lacking in (0.01, 0.05):
                for share in (0.0, 0.1, 0.3):
                    print(power(lacking, share, draws, options.runs), flush=True)
        return
    print(f"| law | draws | runs | {' | '.join(KINDS)} | any | too small sizes | s |")
    print("| --- |" + " ---: |" * (len(KINDS) + 5))
    for draws in options.draws:
        for name in options.name:
            print(false_alarms(name, options.runs, draws), flush=True)


if __name__ == "__main__":
    main()
