"""Adaptive MCMC for Stan programs, at native speed, into ArviZ.

import stanadapt
idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
stanadapt.summary(idata)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .comparisons import compare
from .reports import report
from .version import __version__

if TYPE_CHECKING:
    from . import errors
    from .api import compile, methods, sample
    from .comparisons.comparison_result import Comparison
    from .diagnostics.findings import diagnose
    from .diagnostics.replay import replay
    from .diagnostics.table import summary
    from .errors import (
        ArgumentError,
        ChainError,
        DataError,
        EvaluationError,
        FindingsWarning,
        InitializationError,
        ModelError,
        OutputError,
        StanAdaptError,
        StanAdaptWarning,
        StoreError,
    )
    from .evidence.evidence_estimate import Evidence, log_evidence
    from .evidence.model_table import compare_models
    from .many import sample_many
    from .model.backends.python import Target
    from .model.posterior import Posterior
    from .plots.adaptation import plot_adaptation
    from .plots.chains import plot_chains
    from .plots.ess import plot_ess
    from .plots.field_plot import plot_field
    from .plots.policy_plot import plot_policy
    from .plots.preconditioner import plot_preconditioner
    from .result.formats.export import export
    from .run.stopping import Until
    from .runs import extend, load, resume
    from .simulators.abc import abc


__all__ = [
    "ArgumentError",
    "ChainError",
    "Comparison",
    "DataError",
    "EvaluationError",
    "Evidence",
    "FindingsWarning",
    "InitializationError",
    "ModelError",
    "OutputError",
    "Posterior",
    "StanAdaptError",
    "StanAdaptWarning",
    "StoreError",
    "Target",
    "Until",
    "__version__",
    "abc",
    "compare",
    "compare_models",
    "compile",
    "diagnose",
    "errors",
    "export",
    "extend",
    "load",
    "log_evidence",
    "methods",
    "plot_adaptation",
    "plot_chains",
    "plot_ess",
    "plot_field",
    "plot_policy",
    "plot_preconditioner",
    "replay",
    "report",
    "resume",
    "sample",
    "sample_many",
    "summary",
]

# Where each name comes from. They are imported at their first use, because numba and xarray take the better
# part of a second, which `stanadapt --help` can do without.
_HOMES = {
    "Comparison": "comparisons.comparison_result",
    "Evidence": "evidence.evidence_estimate",
    "Posterior": "model.posterior",
    "Target": "model.backends.python",
    "Until": "run.stopping",
    "abc": "simulators.abc",
    "compare_models": "evidence.model_table",
    "compile": "api",
    "diagnose": "diagnostics.findings",
    "export": "result.formats.export",
    "extend": "runs",
    "load": "runs",
    "log_evidence": "evidence.evidence_estimate",
    "methods": "api",
    "plot_adaptation": "plots.adaptation",
    "plot_chains": "plots.chains",
    "plot_ess": "plots.ess",
    "plot_field": "plots.field_plot",
    "plot_policy": "plots.policy_plot",
    "plot_preconditioner": "plots.preconditioner",
    "replay": "diagnostics.replay",
    "resume": "runs",
    "sample": "api",
    "sample_many": "many",
    "summary": "diagnostics.table",
    **dict.fromkeys(
        (
            "ArgumentError",
            "ChainError",
            "DataError",
            "EvaluationError",
            "FindingsWarning",
            "InitializationError",
            "ModelError",
            "OutputError",
            "StanAdaptError",
            "StanAdaptWarning",
            "StoreError",
        ),
        "errors",
    ),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
