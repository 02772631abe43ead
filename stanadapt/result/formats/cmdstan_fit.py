"""A fit of CmdStanPy as a result: its draws, and what its chains have learnt."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from ... import samplers
from ...errors import ArgumentError
from ...model.backends.stan.native import demangle
from ...model.variables import variables
from ..container import OWN_GROUP, Groups, container
from ..labels import SAMPLE_DIMS, Labels
from .stancsv import STAN_COLUMNS, own_method

if TYPE_CHECKING:
    from ..container import InferenceData


def is_fit(given: Any) -> bool:
    """Whether it is a `cmdstanpy.CmdStanMCMC`. It cannot be one where CmdStanPy is not imported."""
    library = sys.modules.get("cmdstanpy")
    return library is not None and isinstance(given, library.CmdStanMCMC)


def read_fit(fit: Any, name: str = "warm") -> InferenceData:
    """A `cmdstanpy.CmdStanMCMC` as a result of ours.

    Its group `adaptation` has the inverse metric and the step size of each chain. It lacks the names of the
    unconstrained parameters, which CmdStan does not write. `name` is that of the argument, for messages.

    Raises
    ------
    ArgumentError
        Its chains have learnt nothing, or its files cannot be read.
    """
    try:
        config, draws = fit.metadata.cmdstan_config, fit.draws()
        steps = fit.step_size
    except Exception as error:  # its files are read now, and may be gone
        raise ArgumentError(f"{name}: the files of the CmdStanMCMC cannot be read: {error}") from error
    if steps is None or str(config.get("algorithm")) == "fixed_param":
        raise ArgumentError(f"{name} was drawn by CmdStan with fixed_param: its chains have learnt nothing")
    header = str(config["raw_header"]).split(",")
    groups = cmdstan_groups(header, draws.transpose(1, 0, 2))
    chains = groups["posterior"]["chain"].values
    groups[OWN_GROUP] = _adaptation(fit, config, np.asarray(steps, dtype=float), chains)
    attrs = _attributes(config)
    for group in groups.values():
        group.attrs.update(attrs)
    return container(groups, attrs)


def cmdstan_groups(header: Sequence[str], values: np.ndarray) -> Groups:
    """The posterior and the statistics of iterations, from columns (chain, draw, column) of CmdStan's files.

    `header` has the names of the columns.
    """
    names = [demangle(name) for name in header]
    places = [i for i, name in enumerate(names) if not name.endswith("__")]
    coords = {"chain": np.arange(values.shape[0]), "draw": np.arange(values.shape[1])}
    drawn = values[:, :, places]
    held = {name: each.take(drawn) for name, each in variables([names[i] for i in places]).items()}
    stats = {
        own: (SAMPLE_DIMS, values[:, :, names.index(name)].astype(bool if own == "diverging" else float))
        for name, own in STAN_COLUMNS.items()
        if name in names
    }
    return {
        "posterior": Labels({}, {}).dataset(held, coords),
        "sample_stats": xarray.Dataset(stats, coords=coords),
    }


def _adaptation(fit: Any, config: dict[str, Any], steps: np.ndarray, chains: np.ndarray) -> xarray.Dataset:
    held: dict[str, Any] = {"final_step_size": ("chain", steps)}
    kind = config.get("metric")
    metric = fit.inv_metric if kind in ("diag_e", "dense_e") else None
    if metric is not None and metric.size:
        d = metric.shape[-1]
        metric = np.asarray(metric, dtype=float).reshape(len(chains), *(d,) * (1 if kind == "diag_e" else 2))
        dims = ("unconstrained", "unconstrained_2")[: metric.ndim - 1]
        name = "preconditioner" if metric.ndim == 3 else "preconditioner_diagonal"
        held[name] = (("chain", *dims), metric)
    return xarray.Dataset(held, coords={"chain": chains})


def _attributes(config: dict[str, Any]) -> dict[str, Any]:
    method = own_method(config)
    declared = samplers.settings_of(samplers.sampler(method))
    settings = {"target_accept": config.get("delta"), "max_tree_depth": config.get("max_depth")}
    known = {name: value for name, value in settings.items() if value is not None and name in declared}
    attrs = {
        "method": method,
        "settings": json.dumps(known),
        "tuning_steps": int(config.get("num_warmup", 0)),
    }
    version = [config.get(f"stan_version_{part}") for part in ("major", "minor", "patch")]
    attrs["backend"] = f"CmdStan {'.'.join(map(str, version))}"
    attrs["model_hash"] = str(config.get("model", "unknown"))
    return attrs | ({"seed": config["seed"]} if "seed" in config else {})
