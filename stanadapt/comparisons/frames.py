"""The tables of a comparison: of runs, of methods, and of estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.discrepancy import median_distance, squared_mmd
from ..diagnostics.efficiency import rates
from ..diagnostics.estimates import STATISTICS
from .judging import Judgement, Standing
from .measures import median
from .running import FAILED, INTERRUPTED, NOT_RUN, OK, Attempt

if TYPE_CHECKING:
    import pandas

SIZES = ("ess_bulk_min", "ess_bulk_median", "ess_tail_min", "ess_tail_median")
_MOST_POINTS = 5_000  # a run is compared with so many points at most
_ESTIMATES = [
    *("method", "quantity", "statistic", "value", "mcse", "ess", "other", "other_mcse", "z", "p_value"),
]
PER_SECOND, PER_1000 = "per_second", "per_1000"
MEANINGS = {
    "repeats": "number of runs with figures",
    "ess_bulk_min_per_second": "smallest bulk effective sample size per second",
    "ess_bulk_min_per_1000": "smallest bulk effective sample size per 1000 evaluations",
    "status": "ok, interrupted, failed or not run; the notes give the reason",
    "converged": "whether the findings allow to trust the standard errors",
    "draws": "draws of each chain after warm-up",
    "seconds": "time of start, warm-up and draws",
    "evaluations": "evaluations of the density or its gradient, in warm-up and draws of all chains",
    "ess_bulk_min": "smallest effective sample size of the bulk, over all quantities",
    "ess_bulk_median": "median effective sample size of the bulk",
    "ess_tail_min": "smallest effective sample size of the tails",
    "ess_tail_median": "median effective sample size of the tails",
    "r_hat": "largest R-hat",
    "acceptance": "mean acceptance rate",
    "esjd": "mean squared length of a jump, unconstrained",
    "findings": "number of findings of diagnose",
    "z_mean": "largest |z| of means and standard deviations",
    "z_quantile": "largest |z| of the 5, 50 and 95 % quantiles",
    "z": "the largest |z| of means, standard deviations and quantiles",
    "z_of": "statistic and quantity with the largest |z|",
    "mmd2": "squared maximum mean discrepancy, unbiased: about 0 if the distributions are equal",
    "reason": "why the run has no figures, or fewer draws than the budget allows",
}


def make_runs(attempts: Sequence[Attempt], mmd: Mapping[int, float] | None) -> pandas.DataFrame:
    """Make a row for every run, by method and repeat.

    `mmd` has discrepancies by the place of the run, NaN in the table where it has none; None for no column.
    """
    import pandas

    rows = []
    for place, attempt in enumerate(attempts):
        row: dict[str, Any] = {"method": attempt.label, "repeat": attempt.repeat, "status": attempt.status}
        row |= _figures(attempt)
        if mmd is not None:
            row["mmd2"] = mmd.get(place, np.nan)
        rows.append(row | {"reason": attempt.reason})
    labels = list(dict.fromkeys(attempt.label for attempt in attempts))
    rows.sort(key=lambda row: labels.index(row["method"]))  # the repeats of a method one below the other
    frame = pandas.DataFrame(rows).set_index(["method", "repeat"])
    for size in SIZES:
        frame[f"{size}_{PER_SECOND}"] = frame[size] / frame["seconds"]
        frame[f"{size}_{PER_1000}"] = 1000.0 * frame[size] / frame["evaluations"]
    return frame


def _figures(attempt: Attempt) -> dict[str, Any]:
    figures = attempt.figures
    if figures is None:
        names = ("draws", "seconds", "evaluations", *SIZES, "r_hat", "acceptance", "esjd", "findings")
        return {"converged": False, **dict.fromkeys(names, np.nan)}
    bulk, tail, r_hat = figures.sizes
    return {
        "converged": not figures.obstacles,
        "draws": float(figures.draws),
        "seconds": figures.seconds,
        "evaluations": float(figures.evaluations),
        "ess_bulk_min": float(bulk.min()),
        "ess_bulk_median": median(bulk),
        "ess_tail_min": float(tail.min()),
        "ess_tail_median": median(tail),
        "r_hat": float(np.max(r_hat)),
        "acceptance": figures.acceptance,
        "esjd": figures.esjd,
        "findings": float(len(figures.findings)),
    }


def make_table(runs: pandas.DataFrame, judgement: Judgement, names: Sequence[str]) -> pandas.DataFrame:
    """Make a row for every method: means over repeats, the worst R-hat, rates of all repeats together."""
    import pandas

    labels = list(dict.fromkeys(runs.index.get_level_values("method")))
    groups = runs.groupby(level="method", sort=False)
    mean = groups[["draws", "seconds", "evaluations", *SIZES, "acceptance", "esjd"]].mean()
    table = pandas.DataFrame(index=pandas.Index(labels, name="method"))
    table["status"] = [_status(runs.loc[label, "status"]) for label in labels]
    table["repeats"] = groups["seconds"].count()
    table["converged"] = [
        label in judgement.standings and not judgement.standings[label].obstacle for label in labels
    ]
    for name in ("draws", "seconds", "evaluations", *SIZES):
        table[name] = mean[name]
    flat = runs.reset_index()
    for size in SIZES:
        table[f"{size}_{PER_SECOND}"] = rates(flat, ["method"], size, "seconds")
    for size in SIZES:
        table[f"{size}_{PER_1000}"] = 1000.0 * rates(flat, ["method"], size, "evaluations")
    table["r_hat"] = groups["r_hat"].max()
    for name in ("acceptance", "esjd"):
        table[name] = mean[name]
    table["findings"] = groups["findings"].max()
    distances = {label: _distances(standing, names) for label, standing in judgement.standings.items()}
    nothing = {"z_mean": np.nan, "z_quantile": np.nan, "z": np.nan, "z_of": ""}
    for name in nothing:
        table[name] = [distances.get(label, nothing)[name] for label in labels]
    if "mmd2" in runs:
        table["mmd2"] = groups["mmd2"].mean()
    table["reason"] = ["; ".join(dict.fromkeys(filter(None, runs.loc[label, "reason"]))) for label in labels]
    return table


def _status(of_runs: Sequence[str]) -> str:
    """Return the worst status of the repeats."""
    return next(status for status in (FAILED, INTERRUPTED, NOT_RUN, OK) if status in set(of_runs))


def _distances(standing: Standing, names: Sequence[str]) -> dict[str, Any]:
    """Find the largest |z| of a method, and its statistic and quantity."""
    unknown = {"z_mean": np.nan, "z_quantile": np.nan, "z": np.nan, "z_of": ""}
    if standing.contrast is None or np.isnan(standing.contrast.z).all():
        return unknown
    z = np.nan_to_num(np.abs(standing.contrast.z), nan=-1.0)
    row, column = divmod(int(z.argmax()), z.shape[1])
    moments, others = z[:, :2].max(), z[:, 2:].max()
    return {
        "z_mean": moments if moments >= 0.0 else np.nan,
        "z_quantile": others if others >= 0.0 else np.nan,
        "z": z.max(),
        "z_of": f"{STATISTICS[column]} of {names[row]}",
    }


def make_estimates(judgement: Judgement, names: Sequence[str]) -> pandas.DataFrame:
    """Make a row for every method, scalar and statistic, with the estimate that it is compared with."""
    import pandas

    k, s = len(names), len(STATISTICS)
    unknown = np.full((k, s), np.nan)
    frames = []
    for label, standing in judgement.standings.items():
        own, other, found = standing.estimates, standing.other, standing.contrast
        p_value = unknown if found is None else np.where(np.isnan(found.z), np.nan, found.p_value)
        columns = (
            [label] * (k * s),
            np.repeat(np.array(names, dtype=object), s),
            list(STATISTICS) * k,
            own.value.ravel(),
            own.error.ravel(),
            own.size.ravel(),
            (unknown if other is None else other.value).ravel(),
            (unknown if other is None else other.error).ravel(),
            (unknown if found is None else found.z).ravel(),
            p_value.ravel(),
        )
        frames.append(pandas.DataFrame(dict(zip(_ESTIMATES, columns, strict=True))))
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=_ESTIMATES)


def discrepancies(
    attempts: Sequence[Attempt], judgement: Judgement, sample: np.ndarray | None
) -> dict[int, float]:
    """Compute the squared MMD of every run from the draws of the reference or, without one, of the other
    methods.

    The keys are the places of the runs. Each scalar is divided by its interquartile range, so that all of
    them count; the scale of the kernel is the median distance between the points of the reference.
    """
    group = judgement.agreement.group
    pool = {
        label: np.concatenate(
            [each.figures.sample for each in attempts if each.label == label and each.figures is not None]
        )
        for label in group
    }
    everything = sample if sample is not None else np.concatenate(list(pool.values())) if pool else None
    if everything is None or len(everything) < 2:
        return {}
    low, high = np.quantile(everything, [0.25, 0.75], axis=0)
    spread = np.where(high > low, high - low, 1.0)
    scale = median_distance(everything / spread)
    found: dict[int, float] = {}
    for place, attempt in enumerate(attempts):
        others = [own for label, own in pool.items() if label != attempt.label]
        against = sample if sample is not None else np.concatenate(others) if others else None
        if attempt.figures is not None and against is not None and scale > 0.0:
            own = attempt.figures.sample
            some = against[:: -(-len(against) // _MOST_POINTS)]
            if np.isfinite(own).all():
                found[place] = squared_mmd(own / spread, some / spread, scale)
    return found
