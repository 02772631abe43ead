"""PosteriorDB: its posteriors, opened, and their reference draws on the unconstrained scale."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from targets import ROOT

DATABASE = Path(
    os.environ.get("POSTERIORDB", ROOT.parent / "shared" / "data" / "posteriordb" / "posterior_database")
)


def unzipped(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def opened(database: Path, name: str) -> stanadapt.Posterior:
    entry = json.loads((database / "posteriors" / f"{name}.json").read_text())
    data = unzipped(database / "data" / "data" / f"{entry['data_name']}.json.zip")
    return stanadapt.Posterior(database / "models" / "stan" / f"{entry['model_name']}.stan", data)


def reference(database: Path, name: str, posterior: stanadapt.Posterior) -> np.ndarray | None:
    """The reference draws (n, d), unconstrained; None where there are none."""
    path = database / "reference_posteriors" / "draws" / "draws" / f"{name}.json.zip"
    if not path.is_file():
        return None
    chains = unzipped(path)
    values = {key: np.concatenate([chain[key] for chain in chains]) for key in chains[0]}
    return unconstrained(by_variable(values, posterior), posterior)


def by_variable(values: dict[str, np.ndarray], posterior: stanadapt.Posterior) -> dict[str, np.ndarray]:
    """Arrays (n, *shape) by variable, of columns by the names of scalars, `beta[2]` from 1."""
    n = len(next(iter(values.values())))
    names = dict.fromkeys(key.partition("[")[0] for key in values)
    arrays = {name: np.empty((n, *posterior.variables[name].shape)) for name in names}
    for key, column in values.items():
        name, _, index = key.partition("[")
        place = tuple(int(i) - 1 for i in index.rstrip("]").split(",")) if index else ()
        arrays[name][(slice(None), *place)] = column
    return arrays


def unconstrained(arrays: dict[str, np.ndarray], posterior: stanadapt.Posterior) -> np.ndarray:
    """Points (n, d). A parameter that is missing is solved for, from what the draws hold instead of it."""
    n = len(next(iter(arrays.values())))
    missing = [name for name in posterior.parameters if name not in arrays]
    for name in missing:
        arrays = arrays | {name: np.zeros((n, *posterior.parameters[name].shape))}
    points = np.array(
        [posterior.unconstrain({name: arrays[name][i] for name in posterior.parameters}) for i in range(n)]
    )
    for name in missing:
        instead = next(key for key in arrays if key not in posterior.parameters)
        solve(points, posterior, name, instead, arrays[instead])
    return points


def solve(
    points: np.ndarray, posterior: stanadapt.Posterior, name: str, instead: str, values: np.ndarray
) -> None:
    """Put into `points` (n, d) that `name` for which `instead`, affine in it, has its `values` (n, k)."""
    columns = [i for i, key in enumerate(posterior.unconstrained_names) if key.partition(".")[0] == name]
    moved = np.repeat(points[:, None], 1 + len(columns), axis=1)
    for k, column in enumerate(columns):
        moved[:, 1 + k, column] = 1.0
    images = posterior.constrain(moved, transformed=True)[instead]  # (n, 1 + k, k)
    matrices = (images[:, 1:] - images[:, :1]).transpose(0, 2, 1)
    points[:, columns] = np.linalg.solve(matrices, (values - images[:, 0])[..., None])[..., 0]
