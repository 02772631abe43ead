"""The figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check, samplers
from ..diagnostics.efficiency import Sizes, squared_jump_distance
from ..diagnostics.estimates import Estimates
from ..diagnostics.finding import Finding
from ..diagnostics.findings import diagnose
from ..diagnostics.statistics import each_column
from ..result.container import attributes, datasets
from .quantities import Quantities
from .whole import seconds_of_chains

if TYPE_CHECKING:
    from ..result.container import InferenceData

SAMPLE = 1_000  # an MMD is estimated from so many draws of a run
# Findings after which the standard errors of a run mean nothing.
_NOT_CONVERGED = {
    "nan": "NaN or infinite draws",
    "constant": "no chain moved",
    "short": "too few draws",
    "r_hat": "R-hat",
    "apart": "a chain sits apart",
    "tails": "the tails of a chain",
    "mode_weights": "the weights of modes",
    "leaving": "a chain moves away",
    "ess_bulk": "effective sample size",
    "ess_tail": "effective sample size",
    "still": "a chain stood still",
    "improper": "the posterior seems improper",
}


class Figures(NamedTuple):
    """The figures of a run, and of its k scalars."""

    draws: int  # of each chain, as kept
    seconds: float  # start, warm-up and draws
    evaluations: int  # of the density or its gradient, in warm-up and draws of all chains
    sizes: Sizes
    estimates: Estimates
    acceptance: float
    esjd: float
    findings: list[Finding]
    sample: np.ndarray  # (m, k) some of the draws, evenly spread

    @property
    def obstacles(self) -> list[str]:
        """Reasons why the run has not converged, in a few words each; empty if it has."""
        kinds = [each.kind for each in self.findings if each.kind in _NOT_CONVERGED]
        return list(dict.fromkeys(_NOT_CONVERGED[kind] for kind in kinds))


def evaluations_of_warmup(adaptation: Any) -> int:
    """Evaluations of all chains before their draws: by iterations, and by searches for coordinates."""
    of_searches = adaptation["field_gradients"].sum() if "field_gradients" in adaptation else 0
    return int(adaptation["evaluations_warmup"].sum() + of_searches)


def measure(idata: InferenceData, quantities: Quantities, workers: int) -> Figures:
    """Measure a result with `unconstrained_posterior` and at least four draws of each chain."""
    groups, attrs = datasets(idata), attributes(idata)
    draws = quantities.draws(idata)
    flat = draws.reshape(-1, draws.shape[2])
    adaptation, stats = groups["adaptation"], groups["sample_stats"]
    seconds = float(attrs["sampling_time"])
    if samplers.facts(attrs["method"]).whole_chains and "seconds_total" in adaptation:
        # The start of its processes may take longer than a chain, and it says nothing about the method.
        seconds = seconds_of_chains(adaptation["seconds_total"].values.tolist(), workers)
    return Figures(
        draws=draws.shape[1],
        seconds=seconds,
        evaluations=evaluations_of_warmup(adaptation) + int(adaptation["evaluations"].sum()),
        sizes=each_column(Sizes.of, [draws]),
        estimates=each_column(Estimates.of, [draws]),
        acceptance=float(stats["acceptance_rate"].mean()),
        esjd=squared_jump_distance(groups["unconstrained_posterior"]["x"].values),
        findings=diagnose(idata, quantities.names),
        sample=flat[:: -(-len(flat) // SAMPLE)].copy(),
    )


def median(values: np.ndarray) -> float:
    """Compute the median of scalars; NaN if there are none."""
    return float(np.median(values)) if values.size else float("nan")


def in_words(error: BaseException) -> str:
    """Give the reason for a row without figures: the message, with the type if the error is not our own."""
    own = type(error).__module__.partition(".")[0] == __package__.partition(".")[0]
    text = check.one_line(error)
    return text if own or text == type(error).__name__ else f"{type(error).__name__}: {text}"
