"""Categoricals of new data: a level has the number that it had in the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray

import stanadapt
from stanadapt.errors import ArgumentError, DataError
from stanadapt.model.known_levels import with_known_levels
from stanadapt.result.container import datasets
from stanadapt.result.files import read, write

PROGRAM = """
data { int N; int J; array[N] int<lower=1, upper=J> school; }
parameters { vector[J] theta; }
model { theta ~ normal(0, 2); }
generated quantities { vector[N] mu = theta[school]; }
"""
LEVELS = ["Choate", "Deerfield", "Exeter"]


@pytest.fixture(scope="module")
def fit() -> Any:
    frame = pd.DataFrame({"school": pd.Categorical(["Exeter", "Choate"], LEVELS)})
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False}
    with pytest.warns(stanadapt.StanAdaptWarning):
        return stanadapt.sample(PROGRAM, frame, **run)


def predicted(fit: Any, school: Any) -> np.ndarray:
    """(draws, rows)"""
    new = pd.DataFrame({"school": school})
    made = stanadapt.generate_quantities(PROGRAM, fit, new, seed=1, predictions="mu", progress=False)
    return np.asarray(datasets(made)["predictions"]["mu"].values[0])


@pytest.mark.parametrize(
    "school",
    [
        pd.Categorical(["Exeter", "Deerfield"]),
        pd.Categorical(["Exeter", "Deerfield"], ["Exeter", "Deerfield", "Choate"]),
        pd.Categorical(["Exeter", "Deerfield"], ["Unused", *LEVELS]),
        ["Exeter", "Deerfield"],
    ],
    ids=["fewer", "other order", "one unused", "texts"],
)
def test_a_level_is_the_one_of_its_name(fit: Any, school: Any) -> None:
    theta = datasets(fit)["posterior"]["theta"].values[0]
    np.testing.assert_allclose(predicted(fit, school), theta[:, [2, 1]], rtol=1e-14)


def test_parameters_keep_the_labels_that_the_user_gave_them() -> None:
    frame = pd.DataFrame({"school": pd.Categorical(["Exeter", "Choate"])})
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False}
    with pytest.warns(stanadapt.StanAdaptWarning):
        named = stanadapt.sample(
            PROGRAM, frame, coords={"school": ["C", "E"]}, dims={"theta": ["school"]}, **run
        )
    made = stanadapt.generate_quantities(PROGRAM, named, frame, seed=1, progress=False)
    assert datasets(made)["posterior"]["school"].values.tolist() == ["C", "E"]


def test_of_a_file_too(fit: Any, tmp_path: Any) -> None:
    write(fit, tmp_path / "fit.nc")
    np.testing.assert_array_equal(
        predicted(read(tmp_path / "fit.nc"), pd.Categorical(["Deerfield"])),
        predicted(fit, pd.Categorical(["Deerfield"])),
    )


def test_a_level_that_no_parameter_is_of_is_refused(fit: Any) -> None:
    with pytest.raises(ArgumentError, match=r"theta with shape \(3,\).*did not have: school \['Andover'\]"):
        predicted(fit, pd.Categorical(["Andover", "Exeter"]))
    with pytest.raises(DataError, match="entry 2 is missing"):
        predicted(fit, pd.Categorical(["Exeter", None]))


LABELLED = """
data { int N; vector[N] x; int J; vector[J] z; }
parameters { vector[J] theta; }
model { theta ~ normal(z, 2); }
generated quantities { vector[N] mu = x + theta[1]; }
"""


def labelled(years: list[int], schools: list[str]) -> xarray.Dataset:
    values = {"x": ("year", np.array(years) / 1.0), "z": ("school", np.zeros(len(schools)))}
    return xarray.Dataset(values, coords={"year": years, "school": schools})


def test_labels_are_those_of_the_new_data() -> None:
    """Of what no parameter is indexed by; else the data must have the labels of the draws, in their order."""
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False}
    with pytest.warns(stanadapt.StanAdaptWarning):
        fit = stanadapt.sample(LABELLED, labelled([1, 2, 3], LEVELS), **run)
    for years in ([4, 5, 6], [3, 2, 1], [7]):
        data = labelled(years, LEVELS)
        made = stanadapt.generate_quantities(LABELLED, fit, data, seed=1, predictions="mu", progress=False)
        mu = datasets(made)["predictions"]["mu"]
        assert mu["year"].values.tolist() == years
        above = mu.values - datasets(made)["posterior"]["theta"].values[..., :1]
        np.testing.assert_allclose(above[0, 0], years)
        assert datasets(made)["posterior"]["school"].values.tolist() == LEVELS
    with pytest.raises(ArgumentError, match=r"data label school as .* draws of theta are of .*'Choate'"):
        stanadapt.generate_quantities(LABELLED, fit, labelled([1], LEVELS[::-1]), seed=1, progress=False)


def test_levels_that_are_numbers_and_data_in_a_dict() -> None:
    known = {"year": list(np.array([2001, 2003])), "lacking": ["a"]}
    given = {"year": pd.Series([2003, 1999, 2001], dtype="category"), "N": 3}
    recoded = with_known_levels(given, known)
    assert recoded.data["year"].codes.tolist() == [1, 2, 0]
    assert recoded.data["N"] == 3
    assert recoded.unknown == {"year": [1999]}
    for other in (None, "data.json", np.zeros(2), {"N": 3}, xarray.Dataset({"year": ("row", [2001])})):
        assert with_known_levels(other, known).data is other
