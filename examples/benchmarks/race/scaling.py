"""The cost of an effective sample against the dimension."""

from __future__ import annotations

import pandas as pd

from stanadapt.diagnostics.table import three_figures as number


def costs(rows: pd.DataFrame) -> pd.DataFrame:
    """Gradients and seconds per effective sample, by d and sampler, over the seeds that were finished."""
    sums = rows[rows["status"] == "ok"].groupby(["d", "sampler"])[["gradients", "seconds", "bulk"]].sum()
    return pd.DataFrame({name: sums[name] / sums["bulk"] for name in ("gradients", "seconds")})


def table(rows: pd.DataFrame) -> str:
    """Markdown: gradients / milliseconds per effective sample, a line a dimension."""
    cost, names = costs(rows), list(rows["sampler"].unique())
    gradient = rows.groupby("d")["gradient_seconds"].median()
    lines = [["d", "µs/gradient", *names], ["---:"] * (len(names) + 2)]
    for d in sorted(rows["d"].unique()):
        cells = []
        for name in names:
            if (d, name) in cost.index:
                of = cost.loc[(d, name)]
                cells.append(f"{number(of['gradients'])} / {number(1e3 * of['seconds'])}")
            else:
                own = rows[(rows["d"] == d) & (rows["sampler"] == name)]
                cells.append(", ".join(sorted(set(own["status"]))))
        lines.append([str(d), number(1e6 * gradient[d]), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
