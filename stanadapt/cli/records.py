"""What commands print with --json: one JSON value, with keys that stay as they are.

Keys may be added, but none is renamed or changes its meaning. Numbers that are not finite are null, since
JSON has no word for them. Texts stand as in the program and the file, with control characters escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

if TYPE_CHECKING:
    import pandas

    from ..diagnostics.finding import Finding
    from ..evidence.evidence_estimate import Evidence
    from ..model.posterior import Posterior

_COLUMNS = ("mean", "sd", "lower", "upper", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")


def print_record(record: Mapping[str, Any]) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(_plain(record), indent=2, allow_nan=False))


def summary_record(frame: pandas.DataFrame, interval: float) -> dict[str, Any]:
    """Of the DataFrame of `stanadapt.summary`; the interval's ends are called lower and upper."""
    rows = frame.set_axis(list(_COLUMNS), axis=1).to_dict("records")
    named = [{"name": str(name)} | row for name, row in zip(frame.index, rows, strict=True)]
    return {"interval": interval, "quantities": named}


def diagnose_record(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings, without which the list is empty."""
    keys = ("kind", "message", "variables", "chains", "numbers")
    rows = [(each.kind, str(each), each.variables, each.chains, each.numbers) for each in findings]
    return {"findings": [dict(zip(keys, row, strict=True)) for row in rows]}


def evidence_record(evidence: Evidence) -> dict[str, Any]:
    """Of what `stanadapt.log_evidence` returns."""
    keys = ("kind", "message", "numbers")
    findings = [
        dict(zip(keys, (each.kind, str(each), each.numbers), strict=True)) for each in evidence.findings
    ]
    return evidence._asdict() | {"findings": findings}


def methods_record() -> dict[str, Any]:
    """All methods. The numbers of auto are those of the method that it takes."""
    from .. import api
    from ..run.preparation import auto

    frame = api.methods()
    rows = [
        {"name": str(name), "description": row.description, "gradient": bool(row.gradient)}
        | {"warmup": int(row.warmup), "draws": int(row.draws)}
        for name, row in frame.iterrows()
    ]
    unknown = dict.fromkeys(("gradient", "warmup", "draws"))
    return {"methods": [*rows, {"name": auto.NAME, "description": auto.DESCRIPTION, **unknown}]}


def method_record(name: str) -> dict[str, Any]:
    """A method with its settings."""
    from .. import api, samplers
    from ..run.preparation import auto

    if name == auto.NAME:
        return {"name": name, "description": auto.DESCRIPTION, "settings": []}
    rows = [{"name": str(setting)} | dict(row) for setting, row in api.methods(name).iterrows()]
    return {"name": name, "description": samplers.METHODS[name], "settings": rows}


def check_record(model: str, opened: Posterior, start: tuple[float, float] | None) -> dict[str, Any]:
    """A model that is open; `start` is the log density where chains can start, and the time of a gradient."""
    variables = [
        {"name": name, "shape": list(variable.shape), "kind": kind}
        for kind, group in kinds(opened).items()
        for name, variable in group.items()
    ]
    found = None if start is None else {"log_density": start[0], "seconds_per_gradient": start[1]}
    facts = {"model": model, "backend": opened.library, "dimension": opened.dim}
    return facts | {"variables": variables, "start": found}


def kinds(opened: Posterior) -> dict[str, Any]:
    """The variables of a model by their kind."""
    return {
        "parameter": opened.parameters,
        "transformed parameter": opened.transformed_parameters,
        "generated quantity": opened.generated_quantities,
    }


def _plain(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
