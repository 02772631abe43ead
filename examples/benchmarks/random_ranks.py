"""Hierarchical models made at random: ranks of the truth, and effective sizes, by what a model is made of.

    python examples/benchmarks/random_ranks.py [--first 0] [--last 100] [--short] [--draws 500] [--out F]
    python examples/benchmarks/random_ranks.py --show F

Each seed from `first` on and before `last` has a model of random_models.py, with `short` one of a series of 4
to 15 terms. Its parameters come from the prior and its data from these. Four chains of Fisher HMC run at the
defaults. The truth is one more draw of the posterior, so that the share of draws below it is uniform: over
all models, a p-value of Kolmogorov and Smirnov for each kind of parameter, and the shares of truths beyond
the first and the last percent of the draws. This needs no reference, and sees models that nobody thought of.
Each run is a line of the file when it ends.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

import stanadapt
from random_models import MIXED, SHORT, Family, make
from stanadapt.result.container import datasets

SCALES = ("tau", "tau1", "tau2", "s", "sigma")
SIZE = 400  # effective draws in all chains together, below which a run counts as poor


def run(seed: int, draws: int, family: Family = MIXED) -> dict[str, Any]:
    """One model: shares of draws below the truth, sizes, gradients and findings."""
    model, began = make(seed, family), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(
            model.program, model.data, method="fisher_hmc", seed=seed, draws=draws, progress=False
        )
    seconds = time.perf_counter() - began
    posterior, adaptation = datasets(idata)["posterior"], datasets(idata)["adaptation"]
    shares = {}
    for name, true in model.truth.items():
        variable, *index = name.split(".")
        place = (slice(None), slice(None), *[int(i) - 1 for i in index])
        shares[name] = float((posterior[variable].values[place] < true).mean())
    summary = stanadapt.summary(idata)
    return {
        "seed": seed,
        "model": model.words,
        "shares": shares,
        "bulk": float(summary["ess_bulk"].min()),
        "tail": float(summary["ess_tail"].min()),
        "gradients": sum(
            float(adaptation[name].sum()) for name in ("evaluations", "field_gradients") if name in adaptation
        ),
        "seconds": seconds,
        "findings": sorted({finding.kind for finding in stanadapt.diagnose(idata)}),
    }


def made_of(words: str) -> str:
    """What a model is made of: series, groups and coefficients."""
    found = {"series": " of " in words, "groups": "effects" in words or "slopes" in words}
    found["coefficients"] = "coefficients" in words
    return " and ".join(name for name, is_in in found.items() if is_in)


def kind_of(name: str) -> str:
    """Which kind of parameter a name is."""
    own = name.split(".")[0].split("_")[-1]
    return "scale" if own in SCALES else {"L": "correlation", "h": "series", "b": "effect"}.get(own, own)


def show(rows: list[dict[str, Any]]) -> None:
    """Print both tables."""
    runs = pd.DataFrame(rows)
    runs["made of"] = runs["model"].map(made_of)
    runs["poor"] = (runs["bulk"] < SIZE) | runs["findings"].map(lambda kinds: "divergences" in kinds)
    runs["per 1,000 gradients"] = 1_000 * runs["bulk"] / runs["gradients"]
    groups = runs.groupby("made of")
    table = groups[["bulk", "tail", "per 1,000 gradients", "seconds"]].median()
    table["bulk, lowest tenth"] = groups["bulk"].quantile(0.1)
    table["runs"], table["poor"] = groups.size(), groups["poor"].sum()
    print(table.round(1).to_markdown(), end="\n\n")
    shares = pd.DataFrame(
        [(kind_of(name), share) for row in rows for name, share in row["shares"].items()],
        columns=["parameter", "share"],
    )
    by_kind = shares.groupby("parameter")["share"]
    ranks = pd.DataFrame(
        {
            "truths": by_kind.size(),
            "p": by_kind.apply(lambda s: stats.kstest(s, "uniform").pvalue),
            "below 1 %": by_kind.apply(lambda s: (s < 0.01).mean()),
            "above 99 %": by_kind.apply(lambda s: (s > 0.99).mean()),
        }
    )
    print(ranks.round(3).to_markdown())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=100)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("random_ranks.jsonl"))
    parser.add_argument("--show", type=Path)
    asked = parser.parse_args()
    if asked.show is None:
        if not 0 <= asked.first < asked.last:
            parser.error(f"--first {asked.first} has to be 0 or more, and less than --last {asked.last}")
        for seed in range(asked.first, asked.last):
            row = run(seed, asked.draws, SHORT if asked.short else MIXED)
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            sizes = f"bulk {row['bulk']:.0f}, tail {row['tail']:.0f}"
            print(f"{seed} {row['model']}: {sizes}, {row['seconds']:.1f} s {row['findings']}", flush=True)
    file = asked.show or asked.out
    show([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])


if __name__ == "__main__":
    main()
