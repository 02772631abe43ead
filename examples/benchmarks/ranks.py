"""Everyday models: ranks of the truth, and shares of draws in tails beside Stan's NUTS.

    python examples/benchmarks/ranks.py [NAME ...] [--method fisher_hmc] [--runs 20] [--first 0]
        [--reference nuts] [--reference-draws 5000] [--without-reference]

NAMEs are models of rank_models.py, by default all. For every run parameters are drawn from the prior, and
data from the model given them; then 4 chains are run at the defaults. The truth is one more draw of the
posterior, so its ranks are uniform; over all runs their p-value for each scalar is that of Kolmogorov and
Smirnov, and the smallest one is printed beside its limit (a level of 1 % over all scalars). This sees errors
of a standard deviation or so. Tails are seen by a reference: a long run of another method, on a program in
which latents are not centred or, of series, integrated out; NUTS aims at an acceptance of 0.95. The shares
of draws below its quantiles, from 0.1 to 99.9 %, should be those of the reference. Their differences are in
standard errors of both, for all scalars that the reference has. The largest is in the table, and every run
in which it is over 6 has a line; it is silent where no finding says anything, of the reference neither: NUTS
may be the one that is wrong.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import stanadapt
from rank_models import MODELS, simulate
from stanadapt.diagnostics.estimates import Estimates
from stanadapt.result.container import datasets

PROBABILITIES = (0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999)
OFF = 6.0  # standard errors
LEVEL = 0.01


class Run(NamedTuple):
    """Draws of all scalars (k, chain, n), and the kinds of the findings."""

    draws: np.ndarray
    findings: list[str]


def run(
    program: str, names: tuple[str, ...], data: dict[str, Any], method: str, seed: int, **asked: Any
) -> Run:
    """Four chains."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        result = stanadapt.sample(program, data, method=method, seed=seed, workers=1, progress=False, **asked)
    posterior = datasets(result)["posterior"]
    parts = [posterior[name].values for name in names]
    flat = np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2)
    findings = sorted({finding.kind for finding in stanadapt.diagnose(result)})
    return Run(np.ascontiguousarray(flat.transpose(2, 0, 1)), findings)


def differences(one: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Of the shares of draws (k, chain, n) below the quantiles of a reference, in standard errors (k, p)."""
    limits = np.quantile(reference.reshape(len(reference), -1), PROBABILITIES, axis=1)
    found = np.empty((len(one), len(PROBABILITIES)))
    ratio = reference[0].size / one[0].size
    for j, (p, limit) in enumerate(zip(PROBABILITIES, limits, strict=True)):
        ours, theirs = (
            Estimates.of((draws < limit[:, None, None]).astype(float)) for draws in (one, reference)
        )
        # The variance of a share is at least that of independent draws. Where a run has no draw in a tail,
        # its error is that of the reference.
        error = np.fmax(ours.error[:, 0], np.sqrt(p * (1.0 - p) / one[0].size))
        error = np.fmax(error, np.where(ours.error[:, 0] > 0.0, 0.0, np.sqrt(ratio) * theirs.error[:, 0]))
        found[:, j] = (ours.value[:, 0] - theirs.value[:, 0]) / np.hypot(error, theirs.error[:, 0])
    return found


def look(name: str, given: argparse.Namespace) -> None:
    """All runs of a model, and the lines on it."""
    model, began = MODELS[name], time.perf_counter()
    labels, ranks, largest, findings, silent = [], [], 0.0, [], 0
    for number in range(given.first, given.first + given.runs):
        truth, data = simulate(name, number)
        labels = [
            f"{key}[{i}]" if np.size(truth[key]) > 1 else key
            for key in model.names
            for i in range(1, np.size(truth[key]) + 1)
        ]
        ours = run(model.program, model.names, data, given.method, number)
        x = np.concatenate([np.ravel(truth[key]) for key in model.names])
        below = (ours.draws < x[:, None, None]).mean(axis=(1, 2))
        ranks.append(below)
        findings.append(ours.findings)
        if ours.findings:
            print(f"{name} {number}: findings {', '.join(ours.findings)}", flush=True)
        if given.without_reference:
            continue
        program, kept = (model.alone, model.kept) if model.alone else (model.program, model.names)
        careful = {"settings": {"target_accept": 0.95}} if given.reference == "nuts" else {}
        reference = run(
            program, kept, data, given.reference, 10_000 + number, draws=given.reference_draws, **careful
        )
        z = differences(ours.draws[: len(reference.draws)], reference.draws)
        k, j = np.unravel_index(np.argmax(np.abs(z)), z.shape)
        largest = max(largest, float(np.abs(z).max()))
        if abs(z[k, j]) > OFF:
            silent += not (ours.findings or reference.findings)
            where = f"{labels[k]} at {PROBABILITIES[j]:.1%}: {z[k, j]:.1f} standard errors"
            found = f"findings {ours.findings}, of the reference {reference.findings}"
            print(f"{name} {number}: {where}; {found}", flush=True)
    p = np.array([stats.kstest(column, "uniform").pvalue for column in np.array(ranks).T])
    outside = float(((np.array(ranks) < 0.05) | (np.array(ranks) > 0.95)).mean())
    worst = int(p.argmin())
    print(
        f"| {name} | {len(labels)} | {given.runs} | {p.min():.2g} ({labels[worst]}) | {LEVEL / len(p):.1g} | "
        f"{outside:.3f} | {largest:.1f} | {silent} | {sum(map(bool, findings))} | "
        f"{time.perf_counter() - began:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, []])
    add("--method", default="fisher_hmc")
    add("--runs", type=int, default=20)
    add("--first", type=int, default=0)
    add("--reference", default="nuts")
    add("--reference-draws", type=int, default=5_000)
    add("--without-reference", action="store_true")
    given = parser.parse_args()
    print(
        "| model | scalars | runs | smallest p of ranks | limit | outside 90 % | largest difference | "
        "off and silent | with findings | s |\n| --- |" + " ---: |" * 9
    )
    for name in given.names or MODELS:
        look(name, given)


if __name__ == "__main__":
    main()
