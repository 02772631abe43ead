"""Which pictures a report has, and in what words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check, plots
from ..result.container import Groups, datasets
from .vector import Picture, picture

if TYPE_CHECKING:
    from ..result.container import InferenceData


class Failure(NamedTuple):
    """A picture that could not be drawn; the rest of the page is there all the same."""

    id: str
    title: str
    reason: str


class Plan(NamedTuple):
    """A picture that a report may have."""

    id: str
    title: str
    description: str
    draw: Callable[..., Any]
    is_possible: Callable[[Groups], bool]


def _has(group: str, *names: str) -> Callable[[Groups], bool]:
    return lambda groups: group in groups and all(name in groups[group] for name in names)


def _has_history(groups: Groups) -> bool:
    return "adaptation" in groups and bool(groups["adaptation"].sizes.get("note", 0))


def _has_policy(groups: Groups) -> bool:
    attrs = groups["posterior"].attrs
    dim = groups["adaptation"].sizes.get("unconstrained", 0) if "adaptation" in groups else 0
    return attrs.get("method") == "rlmh" and 0 < dim <= 2


PLANS = (
    Plan(
        "chains",
        "Chains",
        "Traces, ranks and densities of the quantities about which there is most to say, the worst first. "
        "Chains that agree lie on top of each other in the traces and densities, and have flat ranks.",
        plots.plot_chains,
        lambda groups: True,
    ),
    Plan(
        "energy",
        "Energy",
        "The distribution of the energy, and of its changes from draw to draw. Where the changes are much "
        "narrower, the chains explore the tails slowly.",
        plots.plot_energy,
        _has("sample_stats", "energy"),
    ),
    Plan(
        "ess",
        "Effective sample size",
        "How the effective sample sizes grow with the draws and with time. They should grow in proportion: "
        "a curve that bends down shows chains that get stuck.",
        plots.plot_ess,
        lambda groups: True,
    ),
    Plan(
        "adaptation",
        "Adaptation",
        "Step size, acceptance and what was learnt over warm-up, a line for each chain, with the stages of "
        "warm-up shaded. Chains that have learnt the same end close to each other.",
        plots.plot_adaptation,
        _has_history,
    ),
    Plan(
        "preconditioner",
        "Preconditioner",
        "The correlations between parameters that chains have learnt, and how far the chains agree on them.",
        plots.plot_preconditioner,
        _has("adaptation", "preconditioner"),
    ),
    Plan(
        "policy",
        "Policy",
        "The policy of proposals before and after training.",
        plots.plot_policy,
        _has_policy,
    ),
)


def draw_pictures(idata: InferenceData) -> Iterator[Picture | Failure]:
    """All pictures that the result has something for."""
    groups = datasets(idata)
    for plan in PLANS:
        if not plan.is_possible(groups):
            continue
        try:
            axes = plan.draw(idata)
            figure = np.ravel(axes)[0].figure
            yield picture(figure, plan.id, plan.title, plan.description)
            plots.close(figure)
        except Exception as error:  # a report without a picture is better than none
            yield Failure(plan.id, plan.title, f"{type(error).__name__}: {check.one_line(error)}")
