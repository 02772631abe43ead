"""The samplers, one file each. A new method is a file here and a line in METHODS."""

from __future__ import annotations

import importlib
from typing import cast

from .. import check
from .base import Sampler, Stage, named, resolve

METHODS = {
    "rwm": "random-walk Metropolis, isotropic",
    "mala": "Metropolis-adjusted Langevin, isotropic",
    "ada_mala": "MALA preconditioned by the running covariance of the chain",
    "fisher_mala": "MALA preconditioned by the inverse Fisher matrix, learnt from scores",
}


def sampler(method: str) -> Sampler:
    """The module of `method`; an unknown name is refused with the nearest ones."""
    name = check.choice("method", method, METHODS)
    return cast(Sampler, importlib.import_module(f"{__name__}.{name}"))


__all__ = ["METHODS", "Sampler", "Stage", "named", "resolve", "sampler"]
