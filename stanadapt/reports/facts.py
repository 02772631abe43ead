"""Facts about a run: the method and its settings, the program, the data, and versions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import samplers
from ..diagnostics.approximation import APPROXIMATIONS, is_approximation
from ..diagnostics.table import duration
from ..result.container import Groups
from ..result.labels import SAMPLE_DIMS
from .summary_table import Column, Table

_LONGEST = 2_000  # characters of a fact
_LONGEST_PROGRAM = 150_000  # characters


class Fact(NamedTuple):
    """A line of a list."""

    label: str
    text: str
    note: str = ""

    @property
    def short_text(self) -> str:
        """The text, cut to a length that a reader can take in."""
        return self.text if len(self.text) <= _LONGEST else f"{self.text[:_LONGEST]}…"


class Program(NamedTuple):
    """The model's program."""

    text: str
    left_out: int  # characters


def run_facts(groups: Groups, attrs: Mapping[str, Any]) -> list[Fact]:
    """List how the draws were made."""
    method = str(attrs.get("method", ""))
    sizes = groups["posterior"].sizes
    found = []
    if is_approximation(attrs):
        return _approximation_facts(attrs, sizes["draw"]) + _record_facts(groups, attrs)
    if method:
        found.append(Fact("Method", method, samplers.METHODS.get(method, "")))
    else:
        library = f"{attrs.get('inference_library', '')} {attrs.get('inference_library_version', '')}".strip()
        found.append(Fact("Drawn by", library or "unknown"))
    if "auto_reason" in attrs:
        found.append(Fact("Chosen because", str(attrs["auto_reason"])))
    found.append(Fact("Draws", f"{sizes['chain']} chains of {sizes['draw']:,}"))
    warmup, thin = number(attrs, "tuning_steps"), number(attrs, "thin")
    if math.isfinite(warmup):
        found.append(Fact("Warm-up", f"{_warmup(groups, int(warmup))} iterations a chain"))
    if thin > 1:
        found.append(Fact("Thinned", f"one draw of {thin:.0f} is kept"))
    if "until" in attrs:
        found.append(Fact("Drawn until", str(attrs["until"]), str(attrs.get("until_reason", ""))))
    if "warm" in attrs:
        found.append(Fact("Began with", str(attrs["warm"])))
    if attrs.get("inits"):
        found.append(Fact("Starts", "given by the user"))
    elif math.isfinite(radius := number(attrs, "init_radius")):
        found.append(Fact("Starts", f"uniform on (-{radius:g}, {radius:g}), unconstrained"))
    return found + _record_facts(groups, attrs)


def _approximation_facts(attrs: Mapping[str, Any], draws: int) -> list[Fact]:
    """List how an approximation, or a maximum, was made."""
    words = APPROXIMATIONS.get(str(attrs["approximation"]), str(attrs["approximation"]))
    found = [Fact("Approximation", words, "These are no chains, and no draws of the posterior itself.")]
    if "pareto_k" in attrs:
        found.append(Fact("Draws", f"{draws:,}"))
        found.append(Fact("Pareto k", f"{number(attrs, 'pareto_k'):.2f}"))
        found.append(Fact("Effective draws", f"{number(attrs, 'effective_draws'):,.0f}"))
    if "density" in attrs:
        found.append(Fact("Density", str(attrs["density"])))
    for label, name in (("Gradients", "gradients"), ("Densities", "densities")):
        if name in attrs:
            found.append(Fact(label, f"{number(attrs, name):,.0f}"))
    return found


def _record_facts(groups: Groups, attrs: Mapping[str, Any]) -> list[Fact]:
    """List what every result records."""
    found = []
    coordinates = groups["adaptation"].attrs.get("coordinates") if "adaptation" in groups else None
    if coordinates:
        found.append(Fact("Learned coordinates", str(coordinates)))
    if math.isfinite(evidence := number(attrs, "log_evidence")):
        error = number(attrs, "log_evidence_error")
        found.append(Fact("Log evidence", f"{evidence:.4g} ± {error:.2g}", "from the path of rungs"))
    if "modes_narrowest_seen" in attrs:
        scale = number(attrs, "modes_narrowest_seen")
        seen = f"down to {scale:.2f} of the largest one's scale" if math.isfinite(scale) else "none for sure"
        found.append(Fact("Modes the search would have seen", seen, "half of those with a tenth of the mass"))
    for label, name in (("Seed", "seed"), ("Evaluated by", "backend"), ("Model hash", "model_hash")):
        if name in attrs:
            found.append(Fact(label, str(attrs[name])))
    if (seconds := number(attrs, "sampling_time")) > 0:
        found.append(Fact("Time", duration(seconds)))
    if "created_at" in attrs:
        found.append(Fact("Created", str(attrs["created_at"])))
    if attrs.get("store"):
        found.append(Fact("Store", str(attrs["store"])))
    return found


def settings_rows(attrs: Mapping[str, Any]) -> Table | None:
    """List the settings of the method; None if the result does not have them."""
    settings = parse_object(attrs.get("settings"))
    if not settings:
        return None
    method = attrs.get("method")
    declared = samplers.settings_of(samplers.sampler(str(method))) if method in samplers.METHODS else {}
    rows = []
    for name, value in settings.items():
        own = declared.get(name)
        default = "" if own is None else json.dumps(own.default)
        rows.append([name, json.dumps(value), default, "" if own is None else own.meaning])
    columns = [Column(label, number=False) for label in ("Setting", "Value", "Default", "Meaning")]
    return Table("settings", f"Settings of {method}", columns, rows)


def version_facts(attrs: Mapping[str, Any]) -> list[Fact]:
    """List the machine and the packages that made the draws."""
    return [Fact(name, str(value)) for name, value in parse_object(attrs.get("versions")).items()]


def program(attrs: Mapping[str, Any]) -> Program | None:
    """Return the program's text; None if the result does not hold it."""
    text = str(attrs.get("model_code", ""))
    return Program(text[:_LONGEST_PROGRAM], max(0, len(text) - _LONGEST_PROGRAM)) if text else None


def data_rows(groups: Groups) -> Table | None:
    """List names, shapes and ranges of the data; None if there are no data."""
    rows = []
    for group, role in (("observed_data", "modelled"), ("constant_data", "given")):
        for name, values in (groups[group].data_vars if group in groups else {}).items():
            shape = " x ".join(map(str, values.shape)) or "scalar"
            rows.append([str(name), role, shape, str(values.dtype), _range(values.values)])
    columns = [Column(label, number=False) for label in ("Name", "Role", "Shape", "Type", "Range")]
    return Table("data", "Data of the model", columns, rows) if rows else None


def quantity_rows(groups: Groups) -> Table:
    """List names and shapes of all drawn quantities."""
    rows = []
    for group in ("posterior", "posterior_predictive", "predictions", "log_likelihood", "log_prior"):
        for name, values in (groups[group].data_vars if group in groups else {}).items():
            own = [f"{values.sizes[dim]}" for dim in values.dims if dim not in SAMPLE_DIMS]
            rows.append([str(name), group, " x ".join(own) or "scalar"])
    columns = [Column(label, number=False) for label in ("Name", "Group", "Shape")]
    return Table("quantities", "Variables and their shapes", columns, rows)


def _warmup(groups: Groups, asked: int) -> str:
    """Say how many iterations warm-up took; chains may have ended it before its limit."""
    if "adaptation" not in groups or "warmup_iterations" not in groups["adaptation"]:
        return f"{asked:,}"
    done = groups["adaptation"]["warmup_iterations"].values
    shown = f"{done[0]:,}" if done.min() == done.max() else f"{done.min():,} to {done.max():,}"
    return shown if int(done.max()) == asked else f"{shown} of at most {asked:,}"


def _range(values: np.ndarray) -> str:
    if not values.size or values.dtype.kind not in "iuf":
        return ""
    low, high = np.nanmin(values), np.nanmax(values)
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def number(attrs: Mapping[str, Any], name: str) -> float:
    """Return an attribute as a number; NaN if it is missing, or if another program stored something else."""
    try:
        return float(attrs[name])
    except (KeyError, TypeError, ValueError):
        return math.nan


def parse_list(text: Any) -> list[Any]:
    """Read a list from JSON; return an empty one if another program stored something else."""
    try:
        held = json.loads(text)
    except (TypeError, ValueError):
        return []
    return held if isinstance(held, list) else []


def parse_object(text: Any) -> dict[str, Any]:
    """Read an object from JSON; return an empty one if another program stored something else."""
    try:
        held = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}
