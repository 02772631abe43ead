"""Suite 4: with adaptation on, from random starts, the moments are those of the posterior.

A z-score is (mean - truth) / sqrt(MCSE² + the truth's own MCSE²). A test looks at the means of all parameters
of a model and fails when the largest |z| is over the Bonferroni limit of a family-wise level of 0.1 %: that
is the rate at which a right sampler fails it. Second moments are looked at too, through the mean of the
squared distance to the true mean.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import CASES, methods, thorough
from moments import LEVEL, as_dataset, limit, model_z_scores, z_scores
from stanadapt.result.container import datasets, statistics

MODELS = Path(__file__).parents[2] / "models"


SLOWEST = ("kmc_finite", "kmc_lite")
WITH_ALL = ("fisher_mala", "fisher_hmc")  # with one gradient, and with many
USUAL = "linear_regression"


def runs() -> Iterator[Any]:
    """Each method with its models; but those not of WITH_ALL with one of them, which costs little.

    `make test` leaves kmc_finite and kmc_lite, the slowest by far, to an exact law (test_noisy.py).
    """
    for method in methods():
        models = CASES[method].models if method in CASES else ()
        for model in models:
            is_usual = model == (USUAL if USUAL in models else models[0])
            is_kept = method in WITH_ALL or (is_usual and method not in SLOWEST)
            yield pytest.param(method, model, marks=() if is_kept else pytest.mark.thorough)


# With reference draws in PosteriorDB; the first five are those on which the paper's own warm-up fails.
REFERENCE = [
    thorough("diamonds-diamonds"),
    thorough("nes1972-nes"),
    "arma-arma11",
    thorough("earnings-earn_height"),
    thorough("bball_drive_event_0-hmm_drive_0"),  # the longest by far
    "arK-arK",
    "garch-garch11",
    thorough("mesquite-mesquite"),
    thorough("kidiq-kidscore_interaction"),
    "eight_schools-eight_schools_noncentered",
    thorough("low_dim_gauss_mix-low_dim_gauss_mix"),
]


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize(("method", "model"), [*runs()])
def test_moments_of_models(method: str, model: str, seed: int) -> None:
    z = model_z_scores(MODELS / model, method=method, seed=seed, draws=CASES[method].draws)
    assert np.abs(z).max() < limit(z.size), z


@pytest.mark.data
@pytest.mark.seeds(3, rate=0.01)  # LEVEL, and the rate of a finding where nothing is wrong
@pytest.mark.parametrize("name", REFERENCE)
def test_reference_draws_of_posteriordb(name: str, posteriordb: Path, seed: int) -> None:
    """The default method, at its defaults, from random starts, against PosteriorDB's reference draws."""
    entry = json.loads((posteriordb / "posteriors" / f"{name}.json").read_text())
    with zipfile.ZipFile(posteriordb / "data" / "data" / f"{entry['data_name']}.json.zip") as archive:
        data = json.loads(archive.read(archive.namelist()[0]))
    path = posteriordb / "reference_posteriors" / "draws" / "draws"
    with zipfile.ZipFile(path / f"{entry['reference_posterior_name']}.json.zip") as archive:
        reference = json.loads(archive.read(archive.namelist()[0]))
    program = posteriordb / "models" / "stan" / f"{entry['model_name']}.stan"
    idata = stanadapt.sample(program, data, seed=seed, progress=False)
    posterior = datasets(idata)["posterior"]
    names = {flat.partition("[")[0] for flat in reference[0]}
    assert stanadapt.diagnose(idata, sorted(names)) == []

    z = []
    for flat in reference[0]:
        known = np.array([chain[flat] for chain in reference])
        base, _, index = flat.partition("[")
        place = tuple(int(i) - 1 for i in index.rstrip("]").split(",")) if index else ()
        own = posterior[base].values[(slice(None), slice(None), *place)]
        known_ess = float(statistics().ess(as_dataset(known), method="mean")["x"])
        known_mcse = known.std(ddof=1) / np.sqrt(known_ess)
        z.append(z_scores(own[:, :, None], np.array([known.mean()]), np.array([known_mcse]))[0])
    assert np.abs(z).max() < limit(len(z)), dict(zip(reference[0], z, strict=True))
