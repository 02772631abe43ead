"""The pictures of a report, with their titles and descriptions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import check
from ..diagnostics.approximation import is_approximation
from ..errors import ArgumentError
from ..plots.adaptation import plot_adaptation
from ..plots.approximation_plot import plot_approximation
from ..plots.canvas import draw_detached
from ..plots.chains import plot_chains
from ..plots.energy_plot import plot_energy
from ..plots.ess import plot_ess
from ..plots.field_plot import plot_field
from ..plots.path_plot import plot_path
from ..plots.policy_plot import plot_policy
from ..plots.preconditioner import plot_preconditioner
from ..result.container import attributes
from .vector import Picture, picture

if TYPE_CHECKING:
    from ..result.container import InferenceData


_MOST_BYTES = 2_600_000  # for all pictures together
_LONGEST = 500  # characters of a reason


class Failure(NamedTuple):
    """A picture that could not be drawn. The page has everything else."""

    id: str
    title: str
    reason: str


class Plan(NamedTuple):
    """A picture that a report may have."""

    id: str
    title: str
    description: str
    draw: Callable[..., Any]  # raises ArgumentError if the result has nothing to show
    of_chains: bool = False  # whether it says nothing of draws of an approximation, or of a maximum


PLANS = (
    Plan(
        "approximation",
        "Approximation",
        "How the density of the posterior differs from that of the approximation at its draws, or where "
        "climbs have ended. Weights correct a narrow spread; a long tail to the right they cannot.",
        plot_approximation,
    ),
    Plan(
        "chains",
        "Chains",
        "Traces, ranks and densities of the quantities with the most serious findings, the worst first. "
        "If chains agree, their traces and densities overlap and their ranks are flat.",
        plot_chains,
        of_chains=True,
    ),
    Plan(
        "energy",
        "Energy",
        "The distribution of the energy, and of its changes from draw to draw. If the changes are much "
        "narrower, the chains explore the tails slowly.",
        plot_energy,
    ),
    Plan(
        "ess",
        "Effective sample size",
        "How the effective sample sizes grow with the draws and with time. They should grow in proportion: "
        "a curve that bends down shows chains that get stuck.",
        plot_ess,
        of_chains=True,
    ),
    Plan(
        "adaptation",
        "Adaptation",
        "Step size, acceptance and the preconditioner over warm-up, a line for each chain; stages of warm-up "
        "are shaded. The lines of chains that learned the same end close to each other.",
        plot_adaptation,
    ),
    Plan(
        "preconditioner",
        "Preconditioner",
        "The correlations between parameters that the chains learned, and how well the chains agree on them.",
        plot_preconditioner,
    ),
    Plan(
        "field",
        "Latent field",
        "Latents, given their neighbours, against the parameter on which their scales depend most, and "
        "below the coordinates that the chains learned, where the funnel should be gone.",
        plot_field,
    ),
    Plan(
        "path",
        "Path",
        "How often exchanges along the path to the posterior are refused, and the way of one replica of each "
        "chain: it should go from end to end.",
        plot_path,
    ),
    Plan(
        "policy",
        "Policy",
        "The policy of proposals before and after training.",
        plot_policy,
    ),
)


def draw_pictures(idata: InferenceData) -> Iterator[Picture | Failure]:
    """Draw every picture that the result has data for."""
    left = _MOST_BYTES
    is_approximate = is_approximation(attributes(idata))
    for plan in PLANS:
        if plan.of_chains and is_approximate:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # matplotlib warns if long names leave no room
                figure = draw_detached(plan.draw, idata)
                made = picture(figure, plan.id, plan.title, plan.description)
        except ArgumentError:  # the result has no data for this picture
            continue
        except Exception as error:  # a report without a picture is better than none
            reason = f"{type(error).__name__}: {check.one_line(error)}"
            yield Failure(plan.id, plan.title, reason[:_LONGEST])
            continue
        left -= len(made.markup.encode())
        yield made if left >= 0 else Failure(plan.id, plan.title, "it does not fit in a page of 5 MB")
