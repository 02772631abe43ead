"""Findings on parallel tempering: whether replicas have travelled, and whether what they say agrees."""

from __future__ import annotations

import itertools

import numpy as np
import xarray

from ..result.path_results import LEGS
from .finding import Finding, plain_chains

FEWEST_TRIPS = 10  # of replicas from a reference to the posterior, in a chain
APART = 4.0  # standard errors between two estimates of one number that are a finding
_ROUGH = 0.05  # nats; less is no finding, since standard errors are estimates too
_LEAST_WEIGHT = 0.02  # differences of a mode's weight below this are no finding
_OVERLAP = 3.0  # scales between the middles of components that belong to one mode, root mean square


def path_findings(group: xarray.Dataset) -> list[Finding]:
    """What the group `tempering` of a result says against it."""
    if group.sizes.get("neighbours", 0) == 0:
        return []
    found = [_few_trips(group), _legs_apart(group), _weights_apart(group)]
    return [finding for finding in found if finding is not None]


def _few_trips(group: xarray.Dataset) -> Finding | None:
    trips = group["round_trips"].values
    few = trips.sum(axis=1) < FEWEST_TRIPS
    leg = int(np.argmin(trips.min(axis=0)))
    if few.any():
        chains, where, least = few, "both references", float(trips.sum(axis=1).min())
    elif trips[:, 0].min() < FEWEST_TRIPS / 2:
        chains, where, leg = trips[:, 0] < FEWEST_TRIPS / 2, "the broad reference", 0
        least = float(trips[:, 0].min())
    else:
        return None
    labels = group["chain"].values[chains]
    text = (
        f"Only {least:.0f} replicas have come from {where} to the posterior in chain {labels[0]}"
        f"{' and others' if len(labels) > 1 else ''}: modes that are not known may be missed, and weights of "
        "modes are uncertain. Draw more, or use more rungs (settings rungs, most_rungs)."
    )
    numbers = {"smallest": least, "limit": FEWEST_TRIPS, "leg": leg}
    return Finding("round_trips", text, chains=plain_chains(labels), numbers=numbers)


def _legs_apart(group: xarray.Dataset) -> Finding | None:
    logs, errors = group["log_integral_of_leg"].values, group["log_integral_error_of_leg"].values
    gap = np.abs(logs[:, 0] - logs[:, 1])
    apart = ~(gap <= APART * np.hypot(errors[:, 0], errors[:, 1]) + _ROUGH)
    if not apart.any():
        return None
    labels = group["chain"].values[apart]
    worst = int(np.argmax(np.where(apart, np.nan_to_num(gap, nan=np.inf), -1.0)))
    shown = ", ".join(
        f"{logs[worst, i]:.4g} ± {errors[worst, i]:.2g} from the {leg} one" for i, leg in enumerate(LEGS)
    )
    text = (
        f"The two legs of the path disagree on the evidence, up to a constant: {shown}, in chain "
        f"{group['chain'].values[worst]}. One of them misses a part of the posterior. Warm up longer, draw "
        "more, or raise settings reach and search."
    )
    return Finding("legs", text, chains=plain_chains(labels), numbers={"gap": float(gap[worst])})


def _weights_apart(group: xarray.Dataset) -> Finding | None:
    """A mode to which two chains give different weights; a mode that a chain does not know has none there."""
    means, scales, weights, errors = (
        group[name].values for name in ("mode", "mode_scale", "mode_weight", "mode_weight_error")
    )
    chains, known = group["chain"].values, np.isfinite(weights)
    owner = np.nonzero(known)[0]
    labels = _overlapping(means[known], scales[known])
    worst: tuple[float, int, int, float, float] | None = None
    for label in range(labels.max() + 1):
        parts = [(labels == label) & (owner == chain) for chain in range(len(chains))]
        shares = np.array([weights[known][part].sum() for part in parts])
        squares = np.array([np.nansum(errors[known][part] ** 2) for part in parts])
        for one, other in itertools.permutations(range(len(chains)), 2):
            gap = float(shares[one] - shares[other])
            # A chain that does not know a mode has no draw of it, and no error that would excuse that.
            limit = APART * np.sqrt(squares[one] + squares[other]) if parts[other].any() else 0.0
            if gap > _LEAST_WEIGHT + limit and (worst is None or gap > worst[0]):
                worst = (gap, one, other, float(shares[one]), float(shares[other]))
    if worst is None:
        return None
    _, one, other, here, there = worst
    text = (
        f"Chains disagree on the weight of a mode: {here:.2g} in chain {chains[one]}, {there:.2g} in chain "
        f"{chains[other]}. It is missed by one of them, or replicas travel too seldom. Other modes may be "
        "missed by all of them. Warm up longer, draw more, or raise the setting search."
    )
    numbers = {"weight": here, "other": there}
    return Finding("mode_weights", text, chains=plain_chains(chains[[one, other]]), numbers=numbers)


def _overlapping(means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Which modes (k,) the components (k, d) of all chains belong to, numbered from 0.

    Components that overlap belong to one mode, and those that overlap with one of these: along a ring, each
    chain has others.
    """
    from scipy.sparse.csgraph import connected_components  # here, since few results come to it

    with np.errstate(all="ignore"):
        away = np.abs(means[:, None] - means) / np.maximum(scales[:, None], scales)
        near = np.sqrt(np.mean(away**2, axis=-1)) < _OVERLAP
    return np.asarray(connected_components(near, directed=False)[1])
