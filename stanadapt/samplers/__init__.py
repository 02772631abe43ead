"""The samplers, one file for each method. A new method is a file here and a line in method_names.py."""

from __future__ import annotations

import importlib
from typing import cast

from .. import check
from ..method_names import METHODS
from .base import (
    Engine,
    Facts,
    Handover,
    Method,
    Sampler,
    Stage,
    advance,
    climbs,
    enter,
    explore,
    history,
    is_engine,
    keeps_adapting,
    knowledge,
    n_matrices,
    outcome,
    stats,
)
from .settings import parse, resolve, settings_of, user_values, uses_gradient


def sampler(method: str) -> Sampler | Engine:
    """The module of `method`. Refuses an unknown name, with the nearest names in the message."""
    name = check.choice("method", method, METHODS)
    return cast(Sampler | Engine, importlib.import_module(f"{__name__}.{name}"))


def facts(method: str) -> Facts:
    """The `Facts` of `method`."""
    return sampler(method).FACTS


__all__ = [
    "METHODS",
    "Engine",
    "Facts",
    "Handover",
    "Method",
    "Sampler",
    "Stage",
    "advance",
    "climbs",
    "enter",
    "explore",
    "facts",
    "history",
    "is_engine",
    "keeps_adapting",
    "knowledge",
    "n_matrices",
    "outcome",
    "parse",
    "resolve",
    "sampler",
    "settings_of",
    "stats",
    "user_values",
    "uses_gradient",
]
