"""The lines that draw a result again: in Python and, if the command has all the options, in a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import samplers
from ..diagnostics.approximation import is_approximation
from ..result.container import Groups
from .facts import parse_object

_MODEL, _DATA = "model.stan", "data.json"  # a result does not hold the files' own names
_NEEDED = ("method", "settings", "seed", "chains", "tuning_steps", "draws", "thin")


class Lines(NamedTuple):
    """How to draw a result again."""

    python: str
    shell: str  # empty if the command cannot draw it
    lacking: list[str]  # a sentence for each thing that the reader must provide


def lines(groups: Groups, attrs: Mapping[str, Any]) -> Lines | None:
    """Write the lines for a result; None if it does not say how it was drawn."""
    if is_approximation(attrs):
        return _approximation_lines(groups, attrs)
    if not all(name in attrs for name in _NEEDED) or attrs["method"] not in samplers.METHODS:
        return None
    has_program = bool(attrs.get("model_code"))
    has_data = any(name in groups for name in ("observed_data", "constant_data"))
    is_generated = "quantities_seed" in attrs
    given = _arguments(groups, attrs, is_generated)
    python = [repr(_MODEL) if has_program else "model", *([repr(_DATA)] if has_data else [])]
    python += [f"{name}={value!r}" for name, value in given.items()]
    text = f"import stanadapt\nidata = stanadapt.sample({', '.join(python)})"
    lacking = []
    if is_generated:
        named = ["program", "idata", "data", f"seed={int(attrs['quantities_seed'])}"]
        named += [f"{name}={value!r}" for name, value in _named_quantities(groups, attrs).items()]
        named += ["log_prior=True"] if attrs.get("quantities_log_prior") else []
        text += f"\nidata = stanadapt.generate_quantities({', '.join(named)})"
        lacking.append("program and data are those whose quantities were generated from the draws.")
    if not has_program:
        lacking.append("model is the program or the target of the run: the result does not hold it.")
    if has_data:
        lacking.append(f"{_DATA} has the data of the run.")
    if "inits" in attrs:
        lacking.append("The run was given starting points (inits), which the result does not hold.")
    if "warm" in attrs:
        lacking.append("The run began with what an earlier run learned (warm): it needs that result again.")
    if attrs.get("until_limit") in ("seconds", "interrupt") or int(attrs.get("interrupted", 0)):
        lacking.append("A limit of time or a signal ended the run: a new run may have more or fewer draws.")
    return Lines(text, _shell(given, has_data) if has_program and not is_generated else "", lacking)


def _named_quantities(groups: Groups, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quantities by the group that the user chose for them."""
    others, given = parse_object(attrs.get("quantities")), dict[str, Any]()
    for name in ("log_likelihood", "posterior_predictive", "predictions"):
        if name in groups:
            own = others.get(name, {})
            quantities = {str(each): own.get(str(each), str(each)) for each in groups[name].data_vars}
            given[name] = quantities if own else list(quantities)
    return given


def _approximation_lines(groups: Groups, attrs: Mapping[str, Any]) -> Lines:
    """Write the lines for a maximum, or an approximation."""
    function, has_program = str(attrs["method"]), bool(attrs.get("model_code"))
    has_data = any(name in groups for name in ("observed_data", "constant_data"))
    given = parse_object(attrs.get("settings")) | {"seed": int(attrs["seed"])}
    python = [repr(_MODEL) if has_program else "model", *([repr(_DATA)] if has_data else [])]
    python += [f"{name}={value!r}" for name, value in given.items()]
    words = ["stanadapt", function, _MODEL, *(["--data", _DATA] if has_data else [])]
    for name, value in given.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{option}" if value else f"--no-{option}"]
        else:
            words += [f"--{option}", str(value)]
    lacking = [f"{_DATA} has the data of the run."] if has_data else []
    if "inits" in attrs:
        lacking.append("The run was given starting points (inits), which the result does not hold.")
    text = f"import stanadapt\nidata = stanadapt.{function}({', '.join(python)})"
    return Lines(text, shlex.join([*words, "--out", "fit.nc"]) if has_program else "", lacking)


def _arguments(groups: Groups, attrs: Mapping[str, Any], is_generated: bool) -> dict[str, Any]:
    """Return the arguments of `sample`, by name, that decide what the run draws."""
    method = str(attrs["method"])
    given: dict[str, Any] = {"method": method}
    settings = _changed_settings(method, str(attrs["settings"]))
    if settings:
        given["settings"] = settings
    given |= {"chains": int(attrs["chains"]), "warmup": int(attrs["tuning_steps"])}
    given |= {"draws": int(attrs["draws"])}
    if int(attrs["thin"]) > 1:
        given["thin"] = int(attrs["thin"])
    given["seed"] = int(attrs["seed"])
    radius = float(attrs.get("init_radius", 2.0))
    if radius != 2.0:
        given["init_radius"] = radius
    if str(attrs.get("backend", "")).lower().startswith("bridgestan"):
        given["backend"] = "bridgestan"
    if "until" in attrs:
        given["until"] = str(attrs["until"])
    if not is_generated:
        given |= _named_quantities(groups, attrs)
    if "log_prior" in groups and not attrs.get("quantities_log_prior"):
        given["log_prior"] = True
    if "warmup_posterior" in groups:
        given["save_warmup"] = True
    if "unconstrained_posterior" in groups:
        given["keep_unconstrained"] = True
    return given


def _changed_settings(method: str, text: str) -> dict[str, Any]:
    """Return the settings that differ from the method's defaults, or are unknown to this version."""
    settings = parse_object(text)
    declared = samplers.settings_of(samplers.sampler(method))
    return {
        name: value
        for name, value in settings.items()
        if name not in declared or declared[name].default != value
    }


def _shell(given: Mapping[str, Any], has_data: bool) -> str:
    words = ["stanadapt", "sample", _MODEL, *(["--data", _DATA] if has_data else [])]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name == "settings":
            for setting, chosen in value.items():
                words += ["--set", f"{setting}={chosen if isinstance(chosen, str) else json.dumps(chosen)}"]
        elif value is True:
            words.append(option)
        elif isinstance(value, dict):
            for own, quantity in value.items():
                words += [option, f"{own}={quantity}"]
        elif isinstance(value, list):
            for each in value:
                words += [option, each]
        else:
            words += [option, str(value)]
    return f"{shlex.join([*words, '--out', 'fit.nc'])}\nstanadapt report fit.nc --out fit.html"
