"""The group `tempering` of a result: what the paths of a run's chains have shown, and the evidence.

The integral of the density that chains evaluate lacks the constants that Stan programs leave out. They are
found where the posterior is at hand (model/log_constants.py). Where they cannot be, the group has the
integral alone, and `evidence_note` says why: a number that is off by a constant would be worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray

from .. import check
from ..errors import ModelError
from ..model.log_constants import log_constant
from ..model.posterior import Posterior
from ..run.draws import ChainResult
from .schema import stack_chains

LEGS = ("broad", "fitted")
_MOST_POINTS = 40  # at which constants are looked for
_SAME = 4.0  # modes of two chains are the same within so many standard deviations


def tempering_group(
    chains: Sequence[ChainResult],
    names: Sequence[str],
    dims: Mapping[str, tuple[str, ...]],
    posterior: Posterior | None,
) -> xarray.Dataset:
    """The outcomes of the chains as a dataset; shorter arrays end in NaN."""
    variables: dict[str, Any] = {}
    for name in chains[0].outcome:
        arrays = [np.asarray(chain.outcome[name], float) for chain in chains]
        variables[name] = (("chain", *dims.get(name, ())), stack_chains(arrays))
    coords = {
        "chain": [chain.index for chain in chains],
        "leg": list(LEGS),
        "factor": [*LEGS, "posterior"],
        "unconstrained": list(names),
    }
    attrs: dict[str, Any] = {}
    if posterior is not None:
        shift, attrs = _constant(chains, posterior)
        variables["log_evidence"] = (("chain",), variables["log_integral"][1] + shift)
        variables["log_evidence_error"] = (("chain",), variables["log_integral_error"][1])
    return xarray.Dataset(variables, coords=coords, attrs=attrs)


def _constant(chains: Sequence[ChainResult], posterior: Posterior) -> tuple[float, dict[str, Any]]:
    """What the density lacks, or NaN, and attributes that say which density it is."""
    modes = [chain.outcome["mode"] for chain in chains]
    points = np.concatenate([np.array([chain.start for chain in chains]), *modes])
    points = points[np.isfinite(points).all(axis=1)][:_MOST_POINTS]
    model = posterior.model
    inside = [x for x in points if np.isfinite(_height(model, x))]
    if not inside:
        return np.nan, {"evidence_note": "no point of the support is known at which to find the constants"}
    try:
        found = log_constant(posterior, np.array(inside))
    except ModelError as error:
        return np.nan, {"evidence_note": check.one_line(error)}
    return found.value, {"evidence_density": found.density}


def _height(model: Any, x: np.ndarray) -> float:
    try:
        return float(model.log_density(x))
    except Exception:  # outside of the support, or whatever a Python target raises
        return -np.inf


def evidence_of(group: xarray.Dataset) -> dict[str, float]:
    """Attributes with the evidence of all chains together, and its standard error, where it is known.

    Chains count alike: one that has found a mode alone has the largest estimate, and its own error does not
    tell how rare that is. The error is the larger one of those that chains state and that their spread shows.
    """
    logs, errors = group["log_evidence"].values, group["log_evidence_error"].values
    if not (np.isfinite(logs).all() and np.isfinite(errors).all()):
        return {}
    stated = float(np.sqrt(np.sum(errors**2)) / len(errors))
    shown = float(np.std(logs, ddof=1) / np.sqrt(len(logs))) if len(logs) > 2 else 0.0
    return {"log_evidence": float(np.mean(logs)), "log_evidence_error": max(stated, shown)}
