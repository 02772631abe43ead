"""Fisher HMC says where it fails, at every seed, and accuses no posterior that it draws from well.

Findings have no law, so the rates beside the tests are what is promised and `make proof` measures. Rates over
all of PosteriorDB: examples/benchmarks/divergences.py.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import stanadapt
from stanadapt.diagnostics.statistics import e_bfmi
from stanadapt.errors import StanAdaptWarning
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
NECKS = ("eight_schools_centered", "funnel")
GOOD = ("correlated_gaussian", "linear_regression", "logistic_regression", "eight_schools", "hierarchical")


def run(model: str, seed: int, **settings: str) -> tuple[set[str], float]:
    """Kinds of findings, and the smallest E-BFMI of a chain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        idata = stanadapt.sample(
            MODELS / model / f"{model}.stan",
            MODELS / model / f"{model}.json",
            method="fisher_hmc",
            seed=seed,
            settings=settings,
            progress=False,
        )
        kinds = {finding.kind for finding in stanadapt.diagnose(idata)}
    energy = datasets(idata)["sample_stats"]["energy"].transpose("chain", "draw").values
    return kinds, float(e_bfmi(energy).min())


@pytest.mark.seeds(*range(1, 9), rate=0.02)
@pytest.mark.parametrize("model", NECKS)
def test_necks_are_found(model: str, seed: int) -> None:
    kinds, bfmi = run(model, seed, transport="off")
    assert "energy" in kinds
    assert bfmi < 0.3


@pytest.mark.seeds(*range(1, 5), rate=0.05)
def test_a_ridge_is_found(seed: int) -> None:
    """The energy knows nothing of a ridge that bends; divergences do, in coordinates where it is bent.

    Of 50 other seeds three have none: there the tails are too few, or chains disagree, and this is said.
    """
    assert {"divergences", "r_hat", "ess_tail"} & run("banana", seed, transport="off")[0]


@pytest.mark.seeds(1, 2, rate=0.01)
@pytest.mark.parametrize("model", [*GOOD, *NECKS, "banana"])
def test_good_posteriors_are_not_accused(model: str, seed: int) -> None:
    kinds, bfmi = run(model, seed)
    assert not {"divergences", "energy"} & kinds
    assert bfmi > 0.4
