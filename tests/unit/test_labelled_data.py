"""Tables and labelled arrays as data: columns by name, sizes from lengths, and labels in the result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray

import stanadapt
from stanadapt.errors import DataError, ModelError
from stanadapt.result.container import datasets

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # few draws

PROGRAM = """
data {
  int<lower=0> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> school;
  vector[N] y;
  array[N] int<lower=0, upper=1> girl;
}
parameters { real mu; vector[J] theta; matrix[J, J] pair; }
model {
  theta ~ normal(mu, 1); mu ~ normal(0, 5); to_vector(pair) ~ std_normal();
  y ~ normal(theta[school] + mu * to_vector(girl), 1);
}
generated quantities {
  vector[N] log_lik;
  for (n in 1 : N) log_lik[n] = normal_lpdf(y[n] | theta[school[n]], 1);
}
"""
SCHOOLS = ["Choate", "Deerfield", "Exeter"]
FRAME = pd.DataFrame(
    {
        "comment": ["a", "b", "c", "d"],
        "y": [1.0, 2.5, -1.0, np.nan],
        "school": pd.Categorical(["Exeter", "Choate", "Exeter", "Choate"], categories=SCHOOLS),
        "girl": [True, False, False, True],
        3: range(4),
    }
).assign(y=[1.0, 2.5, -1.0, 0.5])
RUN: dict[str, Any] = {"chains": 2, "warmup": 20, "draws": 5, "seed": 1, "progress": False, "method": "rwm"}


def data_of(data: Any, program: str = PROGRAM) -> dict[str, Any]:
    return stanadapt.Posterior(program, data).data


def test_columns_sizes_and_levels() -> None:
    held = data_of(FRAME)
    assert set(held) == {"N", "J", "school", "y", "girl"}
    assert (held["N"], held["J"]) == (4, 3)
    assert held["school"].tolist() == [3, 1, 3, 1]
    assert held["y"].tolist() == [1.0, 2.5, -1.0, 0.5]
    assert held["girl"].tolist() == [1, 0, 0, 1]


def test_nothing_is_said_of_other_columns(recwarn: pytest.WarningsRecorder) -> None:
    stanadapt.Posterior(PROGRAM, FRAME)
    assert [str(each.message) for each in recwarn] == []


def test_levels_are_coordinates_of_what_they_count(tmp_path: Path) -> None:
    idata = stanadapt.sample(PROGRAM, FRAME, **RUN)
    posterior = datasets(idata)["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert posterior["school"].values.tolist() == SCHOOLS
    assert posterior["pair"].dims == ("chain", "draw", "school", "pair_dim_1")
    assert posterior["log_lik"].dims == ("chain", "draw", "log_lik_dim_0")
    data = datasets(idata)["constant_data"]
    assert data["school"].values.tolist() == [3, 1, 3, 1]
    assert data["school_levels"].values.tolist() == SCHOOLS
    table = stanadapt.summary(idata, "theta")
    assert list(table.index) == [f"theta[{name}]" for name in SCHOOLS]
    idata.to_netcdf(tmp_path / "fit.nc")
    assert "theta[1]" in stanadapt.draws_frame(idata).columns


def test_levels_are_kept_where_nothing_has_their_number() -> None:
    program = "data { int N; array[N] int school; } parameters { real x; } model { x ~ std_normal(); }"
    idata = stanadapt.sample(program, FRAME, **RUN)
    assert datasets(idata)["constant_data"]["school_levels"].values.tolist() == SCHOOLS


def test_a_named_index_labels_the_rows() -> None:
    frame = FRAME.set_index(pd.Index(["ann", "bob", "cy", "di"], name="pupil"))
    idata = stanadapt.sample(PROGRAM, frame, log_likelihood={"y": "log_lik"}, **RUN)
    groups = datasets(idata)
    assert groups["observed_data"]["y"].dims == ("pupil",)
    assert groups["log_likelihood"]["y"].dims == ("chain", "draw", "pupil")
    assert groups["log_likelihood"]["pupil"].values.tolist() == ["ann", "bob", "cy", "di"]


def test_dims_and_coords_of_the_user_come_first() -> None:
    idata = stanadapt.sample(PROGRAM, FRAME, dims={"theta": ["place"]}, coords={"place": [7, 8, 9]}, **RUN)
    posterior = datasets(idata)["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "place")
    assert posterior["place"].values.tolist() == [7, 8, 9]


def test_labels_stay_with_a_posterior_and_a_store(tmp_path: Path) -> None:
    import pickle

    posterior = pickle.loads(pickle.dumps(stanadapt.Posterior(PROGRAM, FRAME)))
    idata = stanadapt.sample(posterior, store=tmp_path / "store", **RUN)
    for each in (
        idata,
        stanadapt.load(tmp_path / "store"),
        stanadapt.extend(tmp_path / "store", 5, data=FRAME),
    ):
        assert datasets(each)["posterior"]["theta"].dims == ("chain", "draw", "school")
        assert datasets(each)["posterior"]["school"].values.tolist() == SCHOOLS


def test_kinds_of_levels() -> None:
    program = "data { int N; array[N] int c; int K; }"
    program = (
        program.replace("int c", "int<upper=K> c") + "parameters { vector[K] x; } model { x ~ std_normal(); }"
    )
    ages = pd.cut(pd.Series([1.0, 7.0, 3.0]), [0, 5, 10])
    for column, levels in (
        (ages, ["(0, 5]", "(5, 10]"]),
        (pd.Series([20, 10, 20], dtype="category"), [10, 20]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
    ):
        program_ = program.replace("int K; }", "}").replace("data {", "data { int K;")
        idata = stanadapt.sample(program_, pd.DataFrame({"c": column}), **RUN)
        assert datasets(idata)["posterior"]["c"].values.tolist() == levels


def test_a_dict_may_hold_labelled_columns() -> None:
    held = stanadapt.Posterior(PROGRAM, {**FRAME[["y", "school", "girl"]], "N": 4, "J": 3})
    assert held.data["school"].tolist() == [3, 1, 3, 1]
    assert held.labels.levels == {"school": SCHOOLS}


def arrays() -> xarray.Dataset:
    return xarray.Dataset(
        {"y": ("school", [28.0, 8.0, -3.0]), "sigma": ("school", [15.0, 10.0, 16.0]), "other": ("z", ["a"])},
        coords={"school": SCHOOLS},
    )


EIGHT = """
data { int<lower=0> J; vector[J] y; vector<lower=0>[J] sigma; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model { tau ~ normal(0, 5); theta ~ normal(mu, tau); y ~ normal(theta, sigma); mu ~ normal(0, 5); }
generated quantities {
  vector[J] log_lik;
  for (j in 1 : J) log_lik[j] = normal_lpdf(y[j] | theta[j], sigma[j]);
}
"""


@pytest.mark.parametrize("form", ["dataset", "dict", "array"])
def test_coordinates_of_xarray_go_on(form: str) -> None:
    data: Any = arrays()
    program = EIGHT
    if form == "dict":
        data = {"J": 3, "y": data["y"], "sigma": data["sigma"]}
    if form == "array":
        data, program = data["y"], EIGHT.replace(" vector<lower=0>[J] sigma;", "").replace("sigma[j]", "1")
        program = program.replace("theta, sigma", "theta, 1")
    idata = stanadapt.sample(program, data, log_likelihood={"y": "log_lik"}, **RUN)
    groups = datasets(idata)
    for group, name in (("posterior", "theta"), ("observed_data", "y"), ("log_likelihood", "y")):
        assert groups[group][name].dims[-1] == "school"
        assert groups[group]["school"].values.tolist() == SCHOOLS
    assert groups["posterior"]["theta"].sel(school="Exeter").shape == (2, 5)


def test_a_dimension_may_be_a_size_that_the_program_declares() -> None:
    data = xarray.Dataset({"v": (("K", "D"), np.arange(6.0).reshape(2, 3))}, coords={"D": [10, 20, 30]})
    program = "data { int K; int D; int E; matrix[K, D] v; array[E] real w; }"
    held = data_of(
        data.assign(w=("e", [1.0])), program + "parameters { real x; } model { x ~ std_normal(); }"
    )
    assert (held["K"], held["D"], held["E"]) == (2, 3, 1)


def test_a_dimension_with_the_name_of_a_parameter_is_left_out() -> None:
    program = "data { int N; vector[N] y; } parameters { real school; vector[N] z; }"
    program += "model { y ~ normal(school, 1); z ~ std_normal(); }"
    idata = stanadapt.sample(program, arrays(), **RUN)
    assert datasets(idata)["posterior"]["z"].dims == ("chain", "draw", "z_dim_0")
    assert datasets(idata)["observed_data"]["y"].dims == ("school",)


@pytest.mark.parametrize("dim", ["draw", "chain", "a/b", "N"])
def test_dimensions_that_a_result_cannot_have_are_left_out(dim: str, tmp_path: Path) -> None:
    program = "data { int N; vector[N] y; } parameters { vector[N] z; } "
    program += "model { y ~ normal(z, 1); z ~ std_normal(); }"
    array = xarray.DataArray([1.0, 2.0], dims=dim, coords={dim: [7, 8]}, name="y")
    idata = stanadapt.sample(program, {"N": 2, "y": array}, **RUN)
    z = datasets(idata)["posterior"]["z"]
    assert z.dims == ("chain", "draw", "N" if dim == "N" else "z_dim_0")
    assert datasets(idata)["observed_data"]["y"].dims == ("y_dim_0",)
    idata.to_netcdf(tmp_path / "fit.nc")


def test_dates_are_coordinates(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=3, name="day")
    frame = pd.DataFrame({"y": [1.0, 2.0, 3.0]}, index=days)
    program = "data { int N; vector[N] y; } parameters { vector[N] z; } "
    program += "model { y ~ normal(z, 1); z ~ std_normal(); }"
    idata = stanadapt.sample(program, frame, **RUN)
    np.testing.assert_array_equal(datasets(idata)["posterior"]["day"].values, days.values)
    idata.to_netcdf(tmp_path / "fit.nc")


def other_table(library: str) -> Any:
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").Table.from_pandas(FRAME[["y", "school", "girl"]])
    polars = pytest.importorskip("polars")
    return polars.DataFrame(
        {
            "y": FRAME["y"].tolist(),
            "girl": FRAME["girl"].tolist(),
            "school": polars.Series(FRAME["school"].tolist(), dtype=polars.Enum(SCHOOLS)),
        }
    )


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_tables_of_other_libraries(library: str) -> None:
    posterior = stanadapt.Posterior(PROGRAM, other_table(library))
    assert posterior.data["school"].tolist() == [3, 1, 3, 1]
    assert posterior.data["N"] == 4
    assert posterior.labels.levels == {"school": SCHOOLS}


def test_tables_of_other_libraries_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table:
        def __arrow_c_stream__(self) -> None: ...

    with pytest.raises(DataError, match="data of type Table cannot be read as a table"):
        stanadapt.Posterior(PROGRAM, Table())
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match="data of type Table are not allowed without pyarrow"):
        stanadapt.Posterior(PROGRAM, Table())


def missing_level() -> pd.DataFrame:
    return FRAME.assign(school=pd.Categorical(["Exeter", None, "Exeter", "Choate"]))


REFUSED = {
    "missing column": (FRAME.drop(columns="y"), "data lack what the Stan program declares: y"),
    "missing level": (missing_level(), "data['school'] is categorical, and its entry 2 is missing"),
    "texts": (
        FRAME.astype({"school": str}),
        "data['school'] is a column of texts; numbers are needed, or a ",
    ),
    "a number as name": ({3: FRAME["school"]}, "the name 3 is not allowed"),
    "no name": (xarray.DataArray([1.0]), "a DataArray without a name"),
    "missing numbers": (FRAME.assign(girl=pd.array([1, 0, None, 1], "Int64")), "data['girl'] holds <NA>"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_tables(what: str) -> None:
    data, said = REFUSED[what]
    with pytest.raises(DataError, match=re.escape(said)):
        stanadapt.Posterior(PROGRAM, data)


def test_a_library_takes_no_table(tmp_path: Path) -> None:
    (tmp_path / "a_model.so").touch()
    with pytest.raises(DataError, match="a library does not say which of its columns it declares"):
        stanadapt.Posterior(tmp_path / "a_model.so", FRAME)
    with pytest.raises(ModelError, match="is not a library"):
        stanadapt.Posterior(tmp_path / "a_model.so", arrays()[["y"]])


@pytest.mark.parametrize("form", ["dict", "list"])
def test_many_tables(form: str, tmp_path: Path) -> None:
    frames = {"all": FRAME, "some": FRAME[:3]}
    given = frames if form == "dict" else [*frames.values()]
    for _ in range(2):
        fits = dict(stanadapt.sample_many(PROGRAM, given, out=tmp_path / "fits", workers=1, **RUN))
        lengths = [datasets(each)["posterior"]["log_lik"].shape[-1] for each in fits.values()]
        assert sorted(lengths) == [3, 4]
