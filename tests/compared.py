"""Comparisons without runs: what they would be made of, for tests of what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

import stanadapt
from pages import EVIL
from stanadapt.comparisons.comparison_result import Comparison
from stanadapt.comparisons.conclusion import conclude
from stanadapt.comparisons.measures import Figures
from stanadapt.comparisons.plan import ComparisonPlan, make_plan
from stanadapt.comparisons.running import FAILED, NOT_RUN, OK, Attempt
from stanadapt.diagnostics.efficiency import Sizes
from stanadapt.diagnostics.estimates import Estimates
from stanadapt.diagnostics.finding import Finding
from stanadapt.result.container import container

PROGRAM = """
parameters { real mu; vector[2] theta; corr_matrix[2] R; }
transformed parameters { real twice = 2 * mu; }
model { mu ~ std_normal(); theta ~ normal(0, 3); }
"""


def as_result(draws: dict[str, np.ndarray]) -> Any:
    dims = ("chain", "draw")
    variables = {
        name: ((*dims, *(f"{name}_{i}" for i in range(values.ndim - 2))), values)
        for name, values in draws.items()
    }
    return container({"posterior": xarray.Dataset(variables)})


def plan_for(posterior: stanadapt.Posterior, methods: list[str], **keywords: Any) -> ComparisonPlan:
    given: dict[str, Any] = {
        "methods": {label: {"method": "rwm"} for label in methods},
        "budget": "10 s",
        "repeats": 1,
        "reference": None,
        "var_names": ["mu", "theta"],
        "mmd": False,
        "seed": 1,
        "backend": "auto",
        "error_rate": 0.001,
        "progress": False,
        "chains": 4,
        "thin": 1,
        "workers": 2,
        "inits": None,
        "init_radius": 2.0,
        "coords": None,
        "dims": None,
    }
    return make_plan(posterior, None, **(given | keywords))


def attempt(
    label: str, seed: int, *, shift: float = 0.0, repeat: int = 0, kinds: tuple[str, ...] = (), n: int = 500
) -> Attempt:
    """A run whose draws of mu and theta are independent, and moved by so many standard deviations."""
    scale = np.array([1.0, 3.0, 3.0])
    draws = (np.random.default_rng([seed, repeat]).normal(size=(3, 4, n)) + shift) * scale[:, None, None]
    arrays = {"mu": draws[0], "theta": draws[1:].transpose(1, 2, 0)}
    figures = Figures(
        draws=n,
        seconds=2.0,
        evaluations=10_000,
        sizes=Sizes.of(draws),
        estimates=Estimates.of(draws),
        acceptance=0.3,
        esjd=1.5,
        findings=[Finding(kind, kind) for kind in kinds],
        sample=draws.reshape(3, -1).T[:500],
    )
    return Attempt(label, repeat, "rwm", OK, idata=as_result(arrays), figures=figures)


def evil_comparison(posterior: stanadapt.Posterior) -> Comparison:
    """One with a wrong method, whose label is markup, one that failed, and one that was not run."""
    attempts = [
        attempt("a", 1),
        attempt("b", 2),
        attempt(EVIL, 3, shift=0.4),
        Attempt("broken $x_1$", 0, "rwm", FAILED, f"it says {EVIL}", error=ValueError("no")),
        Attempt("late", 0, "rwm", NOT_RUN, "the comparison was interrupted"),
    ]
    return conclude(plan_for(posterior, [each.label for each in attempts], mmd=True), attempts, 2)
