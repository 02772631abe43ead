"""What options of several commands take, and what their texts mean."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from .completion import complete_variable

EXISTING = click.Path(exists=True, dir_okay=False)
RESULT = click.Path(exists=True)  # a file, or the folder of a run
STORE = click.Path(exists=True, file_okay=False)
COUNT: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
CHAINS: dict[str, Any] = COUNT | {"default": 4, "show_default": True, "help": "Number of chains."}
WARMUP: dict[str, Any] = {
    "type": click.IntRange(min=0),
    "metavar": "N",
    "help": "Iterations of each chain in which the method adapts. [default: the method's]",
}
DRAWS: dict[str, Any] = COUNT | {"help": "Iterations of each chain after that. [default: the method's]"}
SEED: dict[str, Any] = {"type": click.IntRange(0, 2**32 - 1), "metavar": "N"}
RADIUS: dict[str, Any] = {"type": click.FloatRange(min=0), "metavar": "R", "default": 2.0}
INCLUDE_PATH: dict[str, Any] = {
    "multiple": True,
    "type": click.Path(exists=True, file_okay=False),
    "metavar": "DIR",
    "help": "A folder for included files, looked at after those of the files themselves. May be repeated.",
}

JSON: dict[str, Any] = {
    "is_flag": True,
    "help": "Print JSON, for scripts; null is a number that is not finite.",
}
VAR: dict[str, Any] = {"multiple": True, "metavar": "NAME", "shell_complete": complete_variable}
VAR |= {"help": "Only this variable. May be repeated."}


def output_options(default: str) -> Callable[[Any], Any]:
    """The options of commands that write a result."""
    options = [
        click.option("--no-progress", is_flag=True, help="No progress bar."),
        click.option("--quiet", is_flag=True, help="Print errors only."),
        click.option(
            "--out",
            type=click.Path(),
            metavar="FILE",
            help=f"The netCDF file to write. [default: {default}]",
        ),
        click.option("--force", is_flag=True, help="Replace the file if it exists."),
    ]
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def parse_settings(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE texts as the values that the method's settings take; what does not parse stays a text.

    Such a text, and a name that is unknown, are refused where settings are checked, in the words used there.
    """
    from .. import samplers
    from ..run.preparation import auto

    auto.check_method(method, dict.fromkeys(pairs))
    if method == auto.NAME:
        return {}
    module = samplers.sampler(method)
    declared = samplers.settings_of(module)
    values: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        name, text = name.strip(), text.strip()
        if not sign or not name:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--set")
        if name in values:
            raise click.BadParameter(f"{name} is set twice", param_hint="--set")
        values[name] = samplers.parse(declared[name], text) if name in declared else text
    samplers.resolve(module, values)
    return values


def parse_quantities(option: str, texts: Sequence[str]) -> dict[str, str]:
    """NAME, DATA=NAME of the data that a quantity is of, or a JSON object of such, as a dict by own name."""
    named: dict[str, str] = {}
    for text in texts:
        for own, quantity in _pairs(option, text).items():
            if own in named:
                raise click.BadParameter(f"{own} is named twice", param_hint=option)
            named[own] = quantity
    return named


def _pairs(option: str, text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        own, _, quantity = (part.strip() for part in text.partition("="))
        return {own: quantity or own}
    try:
        pairs = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not valid JSON: {error}", param_hint=option) from error
    return dict(pairs)


def parse_inits(text: str) -> Any:
    """A radius, the result of an earlier run, or the path of a JSON file."""
    from ..result.files import read

    with contextlib.suppress(ValueError):
        return float(text)
    if Path(text).suffix in (".nc", ".npz"):
        return read(text)
    if not Path(text).is_file():
        raise click.BadParameter(f"{text!r} is neither a number nor a file", param_hint="--init")
    return text
