"""Draws of runs that begin with what an earlier one has learnt have the posterior's law, whatever that was.

A z-score is that of `moments.py`. A test fails when the largest |z| of its moments is over the Bonferroni
limit of a family-wise level of 0.1 %: that is the rate at which a right sampler fails it. Earlier runs have
another seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import CASES, partly_thorough, thorough
from exact import CHOL, gaussian
from moments import LEVEL, limit, model_z_scores, z_scores
from stanadapt import samplers
from stanadapt.result.container import attributes, container, datasets
from stanadapt.run.warmup import what_it_takes

MODELS = Path(__file__).parents[2] / "models"
EXACT = gaussian()
ABLE = [name for name in samplers.METHODS if what_it_takes(samplers.facts(name))]
CHECKED = [name for name in ABLE if samplers.facts(name).takes_pilot or name == "fisher_hmc"]
ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
WRONG = {
    "100 times too wide": 1e4 * CHOL @ CHOL.T,
    "100 times too narrow": 1e-4 * CHOL @ CHOL.T,
    "of another shape": ROTATION @ np.diag([1e-3, 1.0, 1e3]) @ ROTATION.T,
}


def each_and_all(methods: Iterable[str], cases: Iterable[str]) -> Iterator[Any]:
    """One method with all cases, and each method with the last of them; `make thorough` has all pairs."""
    *_, last = cases = list(cases)
    for method in methods:
        for case in cases:
            yield (pytest.param if method == "fisher_hmc" or case == last else thorough)(method, case)


def fit(model: Any, data: Any, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        return stanadapt.sample(model, data, progress=False, **keywords)


# Of those that take a step size, and of those that take a metric: walks, Langevin steps and trajectories.
# `make thorough` has the others.
KEPT = ("rwm", "fisher_mala", "fisher_hmc", "gad_mala_fast")


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize("method", partly_thorough(ABLE, KEPT))
def test_moments_of_models(method: str, seed: int) -> None:
    model = CASES[method].models[0]
    folder = MODELS / model
    earlier = fit(
        folder / f"{model}.stan", folder / f"{model}.json", method="fisher_hmc", chains=3, seed=seed - 1
    )
    z = model_z_scores(folder, seed=seed, method=method, draws=CASES[method].draws, warm=earlier)
    assert np.abs(z).max() < limit(z.size), z


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize("method", ["fisher_hmc", thorough("ada_mala"), "arwmh"])
def test_moments_in_coordinates_that_were_learnt(method: str, seed: int) -> None:
    """A funnel, whose variance a random walk does not find without them.

    What is compared are v, and x e^(-v/2), which is normal: the squares of x itself have no error that a
    sample could tell, since e^v is 8,000 at one draw in a thousand.
    """
    folder = MODELS / "funnel"
    files = folder / "funnel.stan", folder / "funnel.json"
    earlier = fit(*files, method="fisher_hmc", seed=seed - 1)
    draws = 2_000 if method == "fisher_hmc" else 40_000
    posterior = datasets(fit(*files, method=method, draws=draws, seed=seed, warm=earlier))["posterior"]
    v = posterior["v"].values[:, :, None]
    normal = np.concatenate((v / 3.0, posterior["x"].values * np.exp(-0.5 * v)), axis=2)
    known = np.zeros(normal.shape[2])
    z = np.concatenate((z_scores(normal, known), z_scores(np.square(normal), known + 1.0)))
    assert np.abs(z).max() < limit(z.size), z


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize(("method", "wrong"), [*each_and_all(CHECKED, WRONG)])
def test_a_wrong_metric_is_noticed(method: str, wrong: str, seed: int) -> None:
    earlier = fit(EXACT.target, None, method="fisher_hmc", draws=500, seed=seed - 1)
    groups = datasets(earlier)
    adaptation = groups["adaptation"]
    given = adaptation["preconditioner"].copy(data=np.array([WRONG[wrong]] * 4))
    groups = groups | {"adaptation": adaptation.assign(preconditioner=given)}
    idata = fit(
        EXACT.target, None, method=method, warm=container(groups, attributes(earlier)), seed=seed, draws=5_000
    )
    check(datasets(idata)["posterior"]["x"].values, np.zeros(3), CHOL @ CHOL.T)


SHIFTS = {
    "narrower": ([0.0, 0.0, 0.0], [0.01, 0.01, 0.01]),
    "wider": ([0.0, 0.0, 0.0], [100.0, 100.0, 100.0]),
    "elsewhere": ([50.0, -50.0, 50.0], [1.0, 1.0, 1.0]),
    "all of it": ([50.0, 0.0, 20.0], [0.01, 1.0, 100.0]),
}


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize(
    ("method", "shift"), [*each_and_all(["fisher_hmc", "fisher_mala", "ada_mala", "amala"], SHIFTS)]
)
def test_another_posterior(method: str, shift: str, seed: int) -> None:
    """Starts, metric and step sizes are those of a standard normal one."""
    program = "data { vector[3] m; vector[3] s; } parameters { vector[3] x; } model { x ~ normal(m, s); }"
    mean, sd = SHIFTS[shift]
    earlier = fit(program, {"m": [0.0] * 3, "s": [1.0] * 3}, method=method, seed=seed - 1)
    idata = fit(program, {"m": mean, "s": sd}, method=method, warm=earlier, seed=seed, draws=5_000)
    check(datasets(idata)["posterior"]["x"].values, np.array(mean), np.diag(np.square(sd)))


def check(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> None:
    """The means of the draws (chain, draw, d) and of their squared distances from the mean."""
    squares = np.square(draws - mean) / np.diag(cov)
    z = np.concatenate([z_scores(draws, mean), z_scores(squares, np.ones(len(mean)))])
    assert np.abs(z).max() < limit(z.size), z
