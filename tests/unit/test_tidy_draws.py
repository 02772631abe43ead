"""Draws as a data frame: every number is in its row and its column, under Stan's name."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

import stanadapt
from programs import SHAPES
from stanadapt.errors import ArgumentError
from stanadapt.result.container import container, datasets

INDEX = ["chain", "iteration", "draw"]
COLUMNS = ["v", *[f"x[{i},{j}]" for j in (1, 2, 3) for i in (1, 2)], "k[1]", "k[2]"]

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


@pytest.fixture(scope="module")
def idata() -> Any:
    run: dict[str, Any] = {"chains": 3, "warmup": 40, "draws": 25, "seed": 1, "progress": False}
    return stanadapt.sample(
        SHAPES, {"n": 2}, method="fisher_hmc", log_likelihood="log_lik", save_warmup=True, **run
    )


def made(n_chains: int = 2, n: int = 30, **shapes: Any) -> Any:
    """A result with arrays of these shapes as its posterior."""
    rng = np.random.default_rng(1)
    variables = {
        name: (
            ["chain", "draw", *(f"{name}_{i}" for i in range(len(shape)))],
            rng.normal(size=(n_chains, n, *shape)),
        )
        for name, shape in shapes.items()
    }
    coords = {"chain": np.arange(n_chains), "draw": np.arange(n)}
    return container({"posterior": xarray.Dataset(variables, coords=coords)}, {})


def test_a_row_for_each_draw(idata: Any) -> None:
    frame = stanadapt.draws_frame(idata)
    assert list(frame.columns) == [*INDEX, "lp__", *COLUMNS, "log_lik[1]", "log_lik[2]"]
    assert frame["chain"].tolist() == [1] * 25 + [2] * 25 + [3] * 25
    assert frame["iteration"].tolist() == list(range(1, 26)) * 3
    assert frame["draw"].tolist() == list(range(1, 76))
    groups = datasets(idata)
    x = groups["posterior"]["x"].values
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(frame[f"x[{i + 1},{j + 1}]"], x[:, :, i, j].ravel())
    np.testing.assert_array_equal(frame["lp__"], groups["sample_stats"]["lp"].values.ravel())
    np.testing.assert_array_equal(frame["log_lik[2]"], frame["v"])
    assert frame.dtypes.astype(str).tolist() == ["int64"] * 3 + ["float64"] * 12


@pytest.mark.parametrize("names", ["x", ["x"], ("x",)])
def test_only_some_variables(idata: Any, names: Any) -> None:
    assert list(stanadapt.draws_frame(idata, names).columns) == INDEX + COLUMNS[1:7]


def test_statistics_have_the_names_of_stan(idata: Any) -> None:
    frame = stanadapt.draws_frame(idata, "v", sample_stats=True)
    stats = datasets(idata)["sample_stats"]
    assert list(frame.columns[:4]) == [*INDEX, "lp__"]
    assert frame.columns[-1] == "v"
    assert {"accept_stat__", "stepsize__", "n_leapfrog__", "divergent__", "energy__"} <= set(frame.columns)
    assert len(frame.columns) == 4 + len(stats.data_vars)
    np.testing.assert_array_equal(frame["divergent__"], stats["diverging"].values.ravel())
    assert frame["divergent__"].dtype == bool
    assert frame["n_leapfrog__"].dtype == stats["n_steps"].dtype


def test_evaluations_of_other_methods_are_no_leapfrog_steps() -> None:
    run: dict[str, Any] = {"chains": 1, "warmup": 10, "draws": 5, "seed": 1, "progress": False}
    frame = stanadapt.draws_frame(stanadapt.sample(SHAPES, {"n": 1}, method="rwm", **run), sample_stats=True)
    assert "n_steps" in frame.columns
    assert not {"n_leapfrog__", "divergent__"} & set(frame.columns)


def test_warm_up_comes_before_the_draws_of_each_chain(idata: Any) -> None:
    frame = stanadapt.draws_frame(idata, warmup=True, sample_stats=True)
    groups = datasets(idata)
    n = groups["warmup_posterior"].sizes["draw"]
    assert n > 0
    assert list(frame.columns[:5]) == [*INDEX, "warmup", "lp__"]
    assert "log_lik[1]" not in frame.columns
    for chain in range(3):
        rows = frame[frame["chain"] == chain + 1]
        assert rows["iteration"].tolist() == list(range(1, n + 26))
        assert rows["warmup"].tolist() == [True] * n + [False] * 25
        for group, part in (("warmup_posterior", rows[:n]), ("posterior", rows[n:])):
            np.testing.assert_array_equal(part["x[2,3]"], groups[group]["x"].values[chain, :, 1, 2])
        for group, part in (("warmup_sample_stats", rows[:n]), ("sample_stats", rows[n:])):
            np.testing.assert_array_equal(part["lp__"], groups[group]["lp"].values[chain])
    assert frame["draw"].tolist() == list(range(1, len(frame) + 1))
    assert frame["warmup"].dtype == bool


def test_export_writes_the_same_table(idata: Any, tmp_path: Any) -> None:
    (path,) = stanadapt.export(idata, tmp_path / "fit.parquet")
    written = pandas.read_parquet(path).rename(columns={f".{name}": name for name in INDEX})
    pandas.testing.assert_frame_equal(written, stanadapt.draws_frame(idata), check_dtype=False)


def test_other_results_have_frames() -> None:
    frame = stanadapt.draws_frame(made(2, 30, a=(), b=(2,)))
    assert list(frame.columns) == [*INDEX, "a", "b[1]", "b[2]"]


def test_chains_of_a_run_that_was_stopped_keep_their_numbers(idata: Any) -> None:
    groups = {
        name: group.isel(chain=[0, 2]) for name, group in datasets(idata).items() if "chain" in group.dims
    }
    frame = stanadapt.draws_frame(container(groups, {}), "v", warmup=True)
    assert frame["chain"].unique().tolist() == [1, 3]
    np.testing.assert_array_equal(frame.loc[~frame["warmup"], "v"], groups["posterior"]["v"].values.ravel())


def test_a_large_result_is_copied_once() -> None:
    """Beside the frame there is room for no more than a part of the draws that is read at a time."""
    idata = made(4, 5_000, x=(500,))
    size = 4 * 5_000 * 500 * 8
    tracemalloc.start()
    frame = stanadapt.draws_frame(idata)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frame.shape == (20_000, 503)
    assert size < peak < 2.2 * size


def test_arrow_takes_the_frame(idata: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    frame = stanadapt.draws_frame(idata)
    table = pyarrow.table(frame)
    assert table.column_names == list(frame.columns)
    np.testing.assert_array_equal(table["x[2,1]"].to_numpy(), frame["x[2,1]"])
    stream = pyarrow.RecordBatchReader.from_stream(frame).read_all()
    np.testing.assert_array_equal(stream["draw"].to_numpy(), frame["draw"])


def test_polars_takes_the_frame(idata: Any) -> None:
    polars = pytest.importorskip("polars")
    frame = stanadapt.draws_frame(idata)
    table = polars.DataFrame(frame)
    assert table.columns == list(frame.columns)
    np.testing.assert_array_equal(table["x[2,1]"].to_numpy(), frame["x[2,1]"])


REFUSED = {
    "no result": (None, {}, "a result of stanadapt.sample"),
    "no draws": (container({"posterior": xarray.Dataset()}, {}), {}, "no draws"),
    "unknown": (made(a=()), {"var_names": ["b"]}, "var_names='b' is not allowed"),
    "empty": (made(a=()), {"var_names": []}, "a list of variables"),
    "no warm-up": (made(a=()), {"warmup": True}, "draw with save_warmup=True"),
    "no flag": (made(a=()), {"sample_stats": 3}, "sample_stats=3 is not allowed"),
    "name taken": (made(iteration=()), {}, "a variable iteration"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input(what: str) -> None:
    idata, keywords, said = REFUSED[what]
    with pytest.raises(ArgumentError, match=said):
        stanadapt.draws_frame(idata, **keywords)


def test_a_quantity_that_warm_up_lacks_is_named(idata: Any) -> None:
    with pytest.raises(ArgumentError, match="log_lik is not kept in warm-up"):
        stanadapt.draws_frame(idata, ["v", "log_lik"], warmup=True)
