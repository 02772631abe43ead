"""The table of a race and the bars that a method of ours is held to.

ESS/s of a sampler on a problem: the sum of its smallest ESS over the seeds that it finished, by the sum of
their seconds. A ratio in a geometric mean is held between 1/100 and 100, so that a stuck chain, with an ESS
of 0, counts as a hundredth and does not decide alone. A run that failed or was capped has no ESS/s: a problem
that a peer did not finish is left out for that peer; one that ours did not finish counts as a hundredth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from stanadapt.diagnostics.efficiency import rates as pooled
from stanadapt.diagnostics.table import three_figures as number

R_HAT, Z = 1.01, 4.0
CORE_SHARE = 0.9
CLIP = 100.0


class Bar(NamedTuple):
    """A line of the summary."""

    what: str
    value: str
    met: bool
    missed: list[str]

    def __str__(self) -> str:
        who = f"; missed: {', '.join(self.missed)}" if self.missed else ""
        return f"- {'met' if self.met else 'MISSED'}: {self.what}: {self.value}{who}"


def rates(rows: pd.DataFrame, size: str) -> pd.DataFrame:
    """ESS/s (problem x sampler) of one number of chains; `size` is "bulk" or "tail". NaN: no run finished."""
    rate = pooled(rows[rows["status"] == "ok"], ["problem", "sampler"], size, "seconds").unstack()
    return rate.reindex(index=rows["problem"].unique(), columns=rows["sampler"].unique())


def geometric_mean(ratios: pd.Series) -> float:
    known = ratios.dropna().clip(1 / CLIP, CLIP)
    return float(np.exp(np.log(known).mean())) if len(known) else float("nan")


def to_best(rate: pd.DataFrame, ours: str, peers: Sequence[str]) -> pd.Series:
    """Ratio of ours to the best peer, by problem; NaN where no peer has any, 0 where ours has none."""
    best = rate[list(peers)].max(axis=1)
    return rate[ours].fillna(0.0) / best.where(best > 0.0)


def to_each(rate: pd.DataFrame, ours: str, peers: Sequence[str]) -> dict[str, float]:
    """Geometric mean of the ratios of ours to each peer, over the problems that the peer finished."""
    return {
        peer: geometric_mean((rate[ours].fillna(0.0) / rate[peer]).where(rate[peer].notna()))
        for peer in peers
        if rate[peer].notna().any()
    }


def bars(rows: pd.DataFrame, ours: str, peers: Sequence[str]) -> list[Bar]:
    """Of one number of chains."""
    finished = set(rows[rows["status"] == "ok"]["sampler"])
    peers = [peer for peer in peers if peer in finished]
    found = _speed(rows, ours, peers) if peers else []
    mine = rows[rows["sampler"] == ours]
    if (mine["chains"] > 1).any():
        found.append(_converged(rows, ours, peers))
    z = mine.groupby("problem")["z"].max().dropna()
    far = [f"{name} ({value:.1f})" for name, value in z[z > Z].items()]
    found.append(
        Bar(
            f"means within {Z:g} standard errors of the reference",
            f"{len(z) - len(far)} of {len(z)}",
            not far,
            far,
        )
    )
    lost = mine[mine["status"] != "ok"]
    names = sorted({f"{run.problem} ({run.status})" for run in lost.itertuples()})
    found.append(Bar("runs finished", f"{len(mine) - len(lost)} of {len(mine)}", not names, names))
    return found


def _speed(rows: pd.DataFrame, ours: str, peers: Sequence[str]) -> list[Bar]:
    bulk, tail = rates(rows, "bulk"), rates(rows, "tail")
    ratio, tails = to_best(bulk, ours, peers).dropna(), to_best(tail, ours, peers).dropna()
    each = to_each(bulk, ours, peers)
    single = min(each, key=lambda peer: each[peer])
    best, tail_best = geometric_mean(ratio), geometric_mean(tails)
    low = [f"{name} ({value:.2f})" for name, value in ratio.sort_values().items() if value < 1.0]
    tail_low = [f"{name} ({value:.2f})" for name, value in tails.sort_values().items() if value < 1.0]
    listed = ", ".join(
        f"{peer} {value:.2f}" for peer, value in sorted(each.items(), key=lambda item: item[1])
    )
    return [
        Bar(
            "bulk ESS/s, at least 3 times the best peer on each posterior (geometric mean)",
            f"{best:.2f} over {len(ratio)}",
            best >= 3.0,
            [],
        ),
        Bar(
            "bulk ESS/s, at least 5 times the best single peer (geometric mean)",
            f"{each[single]:.2f} times {single} (of {listed})",
            each[single] >= 5.0,
            [],
        ),
        Bar(
            "bulk ESS/s, no posterior under the best peer",
            f"{len(ratio) - len(low)} of {len(ratio)}",
            not low,
            low,
        ),
        Bar(
            "tail ESS/s, at least twice the best peer on each posterior (geometric mean)",
            f"{tail_best:.2f} over {len(tails)}, {len(tail_low)} under 1",
            tail_best >= 2.0,
            tail_low,
        ),
    ]


def _converged(rows: pd.DataFrame, ours: str, peers: Sequence[str]) -> Bar:
    """R-hat in all seeds, on all problems but those where every peer fails too."""
    r_hat = rows["r_hat"].where(rows["status"] == "ok", np.inf)
    worst = r_hat.groupby([rows["problem"], rows["sampler"]]).max().unstack().reindex(columns=[ours, *peers])
    fails = worst[ours] >= R_HAT
    hopeless = fails & (worst[list(peers)] >= R_HAT).all(axis=1) if len(peers) else fails & False
    missed = [f"{name} ({worst.at[name, ours]:.3f})" for name in worst.index[fails & ~hopeless]]
    excused = f", {int(hopeless.sum())} where every peer fails too" if hopeless.any() else ""
    return Bar(f"R-hat under {R_HAT}", f"{int((~fails).sum())} of {len(worst)}{excused}", not missed, missed)


def table(rows: pd.DataFrame) -> str:
    """Markdown, a line a problem: bulk ESS/s of all samplers, and of the best its ESS per 1000 gradients."""
    samplers = list(rows["sampler"].unique())
    rate = rates(rows, "bulk")
    finished = rows[rows["status"] == "ok"]
    per_gradient = 1000.0 * pooled(finished, ["problem", "sampler"], "bulk", "gradients")
    facts = rows.groupby("problem")[["d", "gradient_seconds"]].median()
    lines = [["posterior", "d", "µs/gradient", *samplers, "best", "its ESS/1000 gradients"]]
    lines.append(["---"] + ["---:"] * (len(samplers) + 2) + ["---", "---:"])
    for problem in rate.index:
        of = rate.loc[problem]
        best = str(of.idxmax()) if of.notna().any() else ""
        lines.append(
            [
                str(problem),
                f"{facts.at[problem, 'd']:.0f}",
                number(1e6 * facts.at[problem, "gradient_seconds"]),
                *(cell(rows, problem, sampler, of[sampler]) for sampler in samplers),
                best,
                number(per_gradient.get((problem, best), np.nan)),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(rows: pd.DataFrame, problem: object, sampler: str, rate: float) -> str:
    """ESS/s; with a star where R-hat is too large, and how many runs did not end well."""
    own = rows[(rows["problem"] == problem) & (rows["sampler"] == sampler)]
    lost = own[own["status"] != "ok"]["status"]
    star = "*" if (own["r_hat"] >= R_HAT).any() else ""
    said = f" ({len(lost)} {'/'.join(sorted(set(lost)))})" if len(lost) else ""
    return f"{number(rate)}{star}{said}".strip()


def failures(rows: pd.DataFrame) -> str:
    """A line for each kind of failure of each sampler."""
    lost = rows[rows["status"] != "ok"]
    groups = lost.groupby(["sampler", "status", "reason"], dropna=False, sort=True)
    lines = []
    for (sampler, status, reason), runs in groups:
        where = sorted(set(runs["problem"]))
        shown = ", ".join(where[:6]) + (", ..." if len(where) > 6 else "")
        lines.append(f"- {sampler} {status}, {len(runs)} runs ({shown}): {reason}")
    return "\n".join(lines)


def disturbed(rows: pd.DataFrame) -> str:
    """A warning, where other processes took the core from chains that should have had one to themselves."""
    alone = rows[(rows["chains"] == 1) & (rows["status"] == "ok") & (rows["seconds"] > 0.1)]
    share = alone["cpu_seconds"] / alone["seconds"]
    few = share[share < CORE_SHARE]
    if few.empty:
        return ""
    return (
        f"The machine was not idle: {len(few)} of {len(alone)} runs of one chain, of those over 0.1 s, had "
        f"their core for less than {CORE_SHARE:.0%} of the time; the median of these is "
        f"{few.median():.0%}."
    )


def summary(rows: pd.DataFrame, methods: Sequence[str], peers: Sequence[str]) -> str:
    """All that is printed of a race."""
    parts = []
    for chains, some in rows.groupby("chains"):
        seeds = ", ".join(str(seed) for seed in sorted(some["seed"].unique()))
        heading = f"{chains} {'chain' if chains == 1 else 'chains'}"
        parts.append(f"## {heading}, min bulk ESS/s, seeds {seeds}\n\n{table(some)}")
        there = set(some["sampler"])
        for method in (method for method in methods if method in there):
            lines = "\n".join(str(bar) for bar in bars(some, method, peers))
            parts.append(f"Bars of `{method}`, {heading}:\n\n{lines}")
    if shared := disturbed(rows):
        parts.append(shared)
    if lost := failures(rows):
        parts.append(f"Runs that did not end well:\n\n{lost}")
    return "\n\n".join(parts)
