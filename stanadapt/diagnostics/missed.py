"""What the draws may lack without looking wrong: tails, modes, and a posterior that has no mass.

Each function returns a finding, or None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray

from ..result.labels import SAMPLE_DIMS
from .convergence import effective_size
from .finding import Finding
from .statistics import column, each, row_names, variables

INDEX_LIMIT = 0.32  # of the tail; for Student's t with 2 degrees of freedom 0.4 is found, with 3 degrees 0.25
TAIL = 0.01  # probability of the tails whose draws should be worth as much as others
TAIL_SHARE = 0.4  # of the effective sample size in the middle
TAIL_ESS = 100  # a chain
OVERFLOWING = 1e100  # draws that no posterior has
HUGE = 1e15  # draws that make a posterior suspect where chains do not agree or do not move,
TINY = 1e-15  # and so do positive ones, or those of a single number
RISE = 1e6  # nats a dimension by which the log density rises during the draws
STICKY_TAIL = 0.05  # probability of a tail in which acceptance is looked at,
STICKY_SHARE = 0.25  # and the share of the acceptance of all draws below which it is too low there
_PLACES = 30  # fewer places in a tail, where a chain stands for a while each, say nothing
_WORST = 3  # parameters that a text names


def heavy_tails(posterior: xarray.Dataset, adaptation: xarray.Dataset) -> Finding | None:
    """Parameters whose scores fall towards zero in the tails, where the draws are worth little.

    A method that moves well there, since it knows how heavy they are, has draws that are worth as much in the
    tails as in the middle; of those nothing is said.
    """
    if "tail_index" not in adaptation.data_vars:
        return None
    labels, values = adaptation["unconstrained"].values, adaptation["tail_index"].values
    heavy = {str(labels[j]): float(values[j]) for j in np.flatnonzero(values > INDEX_LIMIT)}
    found = [(index, name) for name, index in heavy.items() if _is_slow(name, posterior)]
    if not found:
        return None
    shown = ", ".join(f"{name} ({index:.2g})" for index, name in sorted(found, reverse=True)[:_WORST])
    text = (
        f"{len(found)} quantities have heavy tails, with an index (1 / degrees of freedom of Student's t) of "
        f"at least {shown}: the score falls towards zero there, chains go out and come back too rarely, and "
        "quantiles such as 1 % and 99 % may be far off although R-hat is near 1. Write such parameters as "
        "scale mixtures of normals or as transformations of normal ones, try method='auto', and do not rely "
        "on outer quantiles before two methods agree on them."
    )
    numbers = {"count": len(found), "largest": max(found)[0], "limit": INDEX_LIMIT}
    return Finding("heavy_tails", text, numbers=numbers)


def _is_slow(name: str, posterior: xarray.Dataset) -> bool:
    """Whether draws of a scalar, named as in `theta.1.2`, are worth little in its tails."""
    base, *index = name.split(".")
    if name in posterior.data_vars:
        base, index = name, []
    if base not in posterior.data_vars:
        return False
    values = variables(posterior)[base].transpose(*SAMPLE_DIMS, ...).values
    place: tuple[Any, ...] = (slice(None), slice(None), *(int(i) - 1 for i in index))
    draws = values[place]
    if draws.ndim != 2 or not np.isfinite(draws).all():
        return False
    levels = np.quantile(draws, [TAIL, 1.0 - TAIL, 0.25, 0.5, 0.75])
    tails, middle = np.split(effective_size(np.stack([draws <= level for level in levels])), [2])
    return not tails.min() > max(TAIL_SHARE * middle.max(), TAIL_ESS * draws.shape[0])


class _TailAcceptance(NamedTuple):
    """Of k scalars, in the lower and in the upper tail."""

    rates: np.ndarray  # (k, 2) acceptance of the proposals that are made there
    places: np.ndarray  # (k, 2) number of different places


def sticky_tails(posterior: xarray.Dataset, stats: xarray.Dataset | None) -> Finding | None:
    """Parameters in whose tails proposals are hardly accepted.

    A chain whose steps are too long for a region goes there rarely and then stays for long. Where it has not
    stayed yet, all chains agree, but lack a part of the tail. In parallel tempering a place is left as well
    when a replica comes to the posterior from a reference, which counts like a proposal that is accepted:
    a narrow mode where trajectories are hardly accepted is left and come to again by these.
    """
    if stats is None:
        return None
    accepted, rates = column(stats, "accepted", np.any), column(stats, "acceptance_rate", np.mean)
    if accepted is None or rates is None or rates.shape != tuple(posterior.sizes[dim] for dim in SAMPLE_DIMS):
        return None
    restarted = column(stats, "restarted", np.any)
    if restarted is not None:
        rates = np.where(restarted, 1.0, rates)
    leaving, overall = rates[:, 1:].ravel(), float(rates.mean())  # a rate is that of the way to its draw
    # Where the mean in a tail is so low, at least half of the rates there are below twice that.
    if not np.mean(leaving < 2.0 * STICKY_SHARE * overall) >= 0.5 * STICKY_TAIL:
        return None

    def in_tails(draws: np.ndarray) -> _TailAcceptance:
        from_here = draws[:, :, :-1].reshape(len(draws), -1)
        is_new = (np.diff(draws, axis=2, prepend=np.nan) != 0.0)[:, :, :-1].reshape(from_here.shape)
        low, high = np.quantile(from_here, [STICKY_TAIL, 1.0 - STICKY_TAIL], axis=1)[..., None]
        tails = np.stack([from_here <= low, from_here >= high], axis=1)
        return _TailAcceptance((tails @ leaving) / tails.sum(axis=2), (tails & is_new[:, None]).sum(axis=2))

    found = each(in_tails, posterior)
    sticky = (found.rates < STICKY_SHARE * overall) & (found.places >= _PLACES)
    if not sticky.any():
        return None
    names = row_names(posterior)
    worst = sorted((float(found.rates[row, side]), int(row), int(side)) for row, side in np.argwhere(sticky))
    shown = ", ".join(
        f"in the {('lower', 'upper')[side]} tail of {names[row]} ({rate:.2g})"
        for rate, row, side in worst[:_WORST]
    )
    text = (
        f"Proposals are hardly accepted {shown}: all in all at a rate of {overall:.2g}. Chains come there "
        "too rarely and then stay, so that draws may lack a part of the tail although R-hat is near 1. Raise "
        "target_accept, reparametrise, or take a method that learns coordinates (fisher_hmc); do not rely on "
        "quantiles there, nor on means to their standard error."
    )
    rows = list(dict.fromkeys(row for _, row, _ in worst))[:_WORST]
    numbers = {"count": len({row for _, row, _ in worst}), "smallest": worst[0][0], "overall": overall}
    return Finding("sticky_tails", text, tuple(names[row] for row in rows), numbers=numbers)


def modes(adaptation: xarray.Dataset) -> Finding | None:
    """Modes that a search has found, and that no chain has visited."""
    if "mode_climbs" not in adaptation.data_vars:
        return None
    climbs, logp, log_mass = (adaptation[name].values for name in ("mode_climbs", "mode_lp", "mode_log_mass"))
    rises = adaptation["mode_rise"].values if "mode_rise" in adaptation else [None] * len(logp)
    shares = np.exp(log_mass - np.logaddexp.reduce([0.0, *log_mass]))
    shown = "; ".join(
        f"{_where(int(n))} at log density {height:.6g}{_comparison(rise)}, with about {share:.2g} of the mass"
        for n, height, rise, share in zip(climbs, logp, rises, shares, strict=True)
    )
    some, them = ("a mode", "it") if len(climbs) == 1 else (f"{len(climbs)} modes", "them")
    text = (
        f"A search has found {some} that no chain has visited: {shown} (by Laplace's approximation, from "
        f"below). The draws lack {them}: start chains there (inits, adaptation/mode), and do not trust "
        "shares of modes that chains do not change between."
    )
    numbers = {"count": len(climbs), "climbs": int(climbs.sum()), "mass": float(shares.sum())}
    return Finding("modes", text, numbers=numbers)


def _where(climbs: int) -> str:
    """How a mode was found."""
    if climbs == 0:
        return "mass that surrounds the draws, many times as wide as these,"
    return f"where {climbs} climb{'s have' if climbs > 1 else ' has'} ended,"


def _comparison(rise: float | None) -> str:
    """How high a mode is beside the highest point that chains have come near."""
    if rise is None:  # of a result that does not know
        return ""
    if abs(rise) < 0.05:
        return ", as high as what they have visited"
    return f", {abs(rise):.3g} {'higher' if rise > 0 else 'lower'} than the highest that they have visited"


def improper(
    posterior: xarray.Dataset,
    adaptation: xarray.Dataset,
    largest: np.ndarray,
    lowest: np.ndarray,
    disagree: np.ndarray,
    constant: np.ndarray,
    lp: np.ndarray | None,
) -> Finding | None:
    """Whether the posterior seems to have no finite mass.

    Of each scalar of `posterior`, `largest` (k,) has the magnitude of its draws, `lowest` (k,) the lowest
    one, `disagree` (k,) tells whether chains do not agree on it, and `constant` (k,) whether none has moved.
    `lp` (chain, draw) is the log density.

    A positive parameter may go to 0 without end, such as the scale of effects whose sum is 0, if their prior
    has a term for each of them, and so one too many. Chains may agree then, as far as numbers let them go.
    But so they may on parts of a simplex, and of these nothing is said.
    """
    if "unconstrained" not in adaptation.coords:
        return None
    labels = adaptation["unconstrained"].values
    bases = {str(label).split(".")[0] for label in labels} | {str(label) for label in labels}
    is_parameter, is_alone = np.concatenate(
        [np.tile([name in bases, size == 1], (size, 1)) for name, size in _sizes(posterior)]
    ).T
    rise = 0.0 if lp is None else _rise(lp)
    size = float(np.nanmax(largest[is_parameter], initial=0.0))
    apart = float(np.nanmax(largest[is_parameter & disagree], initial=0.0))
    if size > OVERFLOWING:
        what = f"draws are as large as {size:.2g}"
    elif apart > HUGE:
        what = f"draws are as large as {apart:.2g}, and chains do not agree or do not move"
    elif (
        near := (disagree | is_alone) & is_parameter & (lowest >= 0.0) & (lowest < TINY) & (largest > 0.0)
    ).any():
        least = np.flatnonzero(near)[np.argmin(lowest[near])]
        what = (
            f"draws of {row_names(posterior)[least]} come as near to 0 as {lowest[least]:.2g}. If it is the "
            "scale of effects whose sum is 0, their prior has one term too many"
        )
    elif lp is not None and (disagree & ~constant).any() and lp.min() == lp.max():
        what = "the log density is the same in all draws, and chains do not agree"
    elif rise > RISE * labels.size:
        what = f"the log density has risen by {rise:.2g} during the draws"
    else:
        return None
    text = (
        f"The posterior seems improper, so that there is nothing to draw from: {what}. Give every parameter "
        "a prior, and see whether the data tell of each of them."
    )
    return Finding("improper", text, numbers={"largest": size, "rise": rise})


def _sizes(posterior: xarray.Dataset) -> list[tuple[str, int]]:
    """The names of variables, and how many numbers each has."""
    return [
        (str(name), int(np.prod([values.sizes[dim] for dim in values.dims if dim not in SAMPLE_DIMS])))
        for name, values in variables(posterior).items()
    ]


def _rise(lp: np.ndarray) -> float:
    """By how much the log density rises at least, in every chain, from the first half to the second."""
    half = lp.shape[1] // 2
    return float((lp[:, half:].min(axis=1) - lp[:, :half].max(axis=1)).min()) if half else 0.0
