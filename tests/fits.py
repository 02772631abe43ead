"""Runs of Fisher HMC whose findings are looked at, not shown."""

from __future__ import annotations

import warnings
from typing import Any

import stanadapt
from stanadapt.result.container import datasets


def run(program: str, data: Any, **keywords: Any) -> tuple[Any, Any, set[str]]:
    """Posterior, adaptation and the kinds of findings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(program, data, method="fisher_hmc", progress=False, **keywords)
    groups = datasets(idata)
    kinds = {finding.kind for finding in stanadapt.diagnose(idata)}
    return groups["posterior"], groups["adaptation"], kinds
