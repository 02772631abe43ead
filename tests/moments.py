"""Draws against known means, in standard errors of Monte Carlo."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from scipy import stats

import stanadapt
from stanadapt.result.container import datasets, statistics

LEVEL = 0.001  # family-wise, of one test: the rate at which a right sampler fails it


def z_scores(draws: np.ndarray, mean: np.ndarray, mcse: np.ndarray | float = 0.0) -> np.ndarray:
    """z of the mean of `draws` (chain, draw, k) against `mean` (k,), known up to `mcse` (k,)."""
    known = np.broadcast_to(mcse, np.shape(mean))
    z = []
    for k in range(draws.shape[2]):
        column = draws[:, :, k]
        ess = float(statistics().ess(as_dataset(column), method="mean")["x"])
        own = column.std(ddof=1) / np.sqrt(ess)
        z.append((column.mean() - mean[k]) / np.hypot(own, known[k]))
    return np.array(z)


def model_z_scores(folder: Path, *, seed: int, **keywords: Any) -> np.ndarray:
    """z of the first and second moments of a model of models/, from random starts with adaptation on."""
    truth = json.loads((folder / "truth.json").read_text())["moments"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)  # R-hat just over 1.01 is no failure here
        idata = stanadapt.sample(
            folder / f"{folder.name}.stan",
            folder / f"{folder.name}.json",
            seed=seed,
            progress=False,
            **keywords,
        )
    posterior = datasets(idata)["posterior"]
    names = [name for name in truth if name in posterior]
    assert names
    draws = np.concatenate([flat(posterior[name].values) for name in names], axis=2)

    def moment(key: str) -> np.ndarray:
        return np.concatenate([np.ravel(truth[name][key]) for name in names]).astype(float)

    mean, sd = moment("mean"), moment("sd")
    z = z_scores(draws, mean, moment("mcse_mean"))
    squares = (draws - mean) ** 2 / sd**2
    # sd is known with its own error; by the delta method the squared ratio is with twice the relative one
    return np.concatenate([z, z_scores(squares, np.ones_like(sd), 2 * moment("mcse_sd") / sd)])


def flat(values: Any) -> np.ndarray:
    """Draws (chain, draw, k) of a variable of any shape."""
    array = np.asarray(values)
    return array.reshape(*array.shape[:2], -1)


def as_dataset(column: np.ndarray) -> Any:
    """Draws of one number (chain, draw) as arviz takes them."""
    return xarray.Dataset({"x": (("chain", "draw"), column)})


def limit(count: int) -> float:
    """What the largest of `count` |z| may be (Bonferroni)."""
    return float(stats.norm.isf(LEVEL / 2 / count))
