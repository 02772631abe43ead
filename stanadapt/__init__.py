"""Adaptive MCMC for Stan programs, at native speed, into ArviZ.

import stanadapt
idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
stanadapt.summary(idata)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .comparisons import compare
from .garbage import paused_collector
from .reports import report
from .version import __version__

if TYPE_CHECKING:
    from . import errors
    from .api import compile, methods, sample
    from .approximations.laplace_draws import laplace
    from .approximations.optimum import optimize
    from .approximations.pathfinder_draws import pathfinder
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
    from .plots.approximation_plot import plot_approximation
    from .plots.chains import plot_chains
    from .plots.ess import plot_ess
    from .plots.field_plot import plot_field
    from .plots.path_plot import plot_path
    from .plots.policy_plot import plot_policy
    from .plots.preconditioner import plot_preconditioner
    from .predictive.generated import generate_quantities
    from .predictive.prior_draws import prior_predictive
    from .result.formats.export import export
    from .result.formats.tidy_draws import draws_frame
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
    "draws_frame",
    "errors",
    "export",
    "extend",
    "generate_quantities",
    "laplace",
    "load",
    "log_evidence",
    "methods",
    "optimize",
    "pathfinder",
    "plot_adaptation",
    "plot_approximation",
    "plot_chains",
    "plot_ess",
    "plot_field",
    "plot_path",
    "plot_policy",
    "plot_preconditioner",
    "prior_predictive",
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
    "draws_frame": "result.formats.tidy_draws",
    "export": "result.formats.export",
    "extend": "runs",
    "generate_quantities": "predictive.generated",
    "laplace": "approximations.laplace_draws",
    "load": "runs",
    "log_evidence": "evidence.evidence_estimate",
    "methods": "api",
    "optimize": "approximations.optimum",
    "pathfinder": "approximations.pathfinder_draws",
    "plot_adaptation": "plots.adaptation",
    "plot_approximation": "plots.approximation_plot",
    "plot_chains": "plots.chains",
    "plot_ess": "plots.ess",
    "plot_field": "plots.field_plot",
    "plot_path": "plots.path_plot",
    "plot_policy": "plots.policy_plot",
    "plot_preconditioner": "plots.preconditioner",
    "prior_predictive": "predictive.prior_draws",
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
    with paused_collector():
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
