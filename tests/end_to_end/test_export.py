"""Draws for other tools: every digit comes back, and nothing is claimed that the method does not know."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pandas
import pytest
import xarray
from click.testing import CliRunner, Result
from xarray.backends import BackendArray
from xarray.core import indexing

import stanadapt
from programs import SHAPES
from stanadapt import cli
from stanadapt.errors import ArgumentError, OutputError
from stanadapt.result import files
from stanadapt.result.container import container, datasets
from stanadapt.result.formats import columns

pytestmark = [
    pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning"),
    pytest.mark.filterwarnings("ignore:The 'float_precision' argument"),  # pandas 3 needs it no longer
]


def draw(method: str, **keywords: Any) -> Any:
    run = {"chains": 3, "warmup": 200, "draws": 50, "seed": 1, "progress": False}
    return stanadapt.sample(SHAPES, {"n": 2}, method=method, log_likelihood="log_lik", **(run | keywords))


@pytest.fixture(scope="module")
def idata() -> Any:
    return draw("fisher_hmc", thin=2)


def values(idata: Any, name: str) -> np.ndarray:
    """Draws (chain, draw, ...), in whatever group they are."""
    groups = datasets(idata)
    return next(groups[group][name].values for group in groups if name in groups[group])


def own(n_chains: int = 2, n: int = 30, **arrays: Any) -> Any:
    """A result with draws of our own; names are given as they are, with `__` for a colon and a point."""
    rng = np.random.default_rng(3)
    attrs = arrays.pop("attrs", {})
    held = {
        name: (("chain", "draw", *[f"{name}_{i}" for i in range(np.ndim(rng.normal(size=shape)))]), made)
        for name, shape in arrays.items()
        for made in [rng.normal(size=(n_chains, n, *shape))]
    }
    stats = {"lp": (("chain", "draw"), rng.normal(size=(n_chains, n)))}
    groups = {"posterior": xarray.Dataset(held), "sample_stats": xarray.Dataset(stats)}
    coords = {"chain": np.arange(n_chains), "draw": np.arange(n)}
    return container({name: group.assign_coords(coords) for name, group in groups.items()}, attrs)


def check_table(frame: pandas.DataFrame, idata: Any) -> None:
    places = [f"[{i},{j}]" for j in (1, 2, 3) for i in (1, 2)]  # the first index changes fastest
    names = ["v", *[f"x{place}" for place in places], "k[1]", "k[2]", "log_lik[1]", "log_lik[2]"]
    assert list(frame.columns) == [".chain", ".iteration", ".draw", "lp__", *names]
    assert frame[".chain"].tolist() == [1] * 25 + [2] * 25 + [3] * 25
    assert frame[".iteration"].tolist() == list(range(1, 26)) * 3
    assert frame[".draw"].tolist() == list(range(1, 76))
    np.testing.assert_array_equal(frame["lp__"], values(idata, "lp").ravel())
    np.testing.assert_array_equal(frame["v"], values(idata, "v").ravel())
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(frame[f"x[{i + 1},{j + 1}]"], values(idata, "x")[:, :, i, j].ravel())
    np.testing.assert_array_equal(frame["k[2]"], values(idata, "k")[:, :, 1].ravel())
    np.testing.assert_array_equal(frame["log_lik[1]"], values(idata, "v").ravel())


def test_csv(idata: Any, tmp_path: Path) -> None:
    (path,) = stanadapt.export(idata, tmp_path / "fit.csv")
    assert path == tmp_path / "fit.csv"
    check_table(pandas.read_csv(path, float_precision="round_trip"), idata)
    assert list(tmp_path.iterdir()) == [path]


def test_parquet(idata: Any, tmp_path: Path) -> None:
    (path,) = stanadapt.export(idata, str(tmp_path / "fit.parquet"))
    frame = pandas.read_parquet(path)
    check_table(frame, idata)
    assert set(frame.dtypes.astype(str)) == {"int32", "float64"}


ALL = ["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__"]
NAMES = {"accept_stat__": "acceptance_rate", "stepsize__": "step_size", "treedepth__": "tree_depth"}
NAMES |= {"lp__": "lp", "n_leapfrog__": "n_steps", "divergent__": "diverging", "energy__": "energy"}
OWN = {
    "nuts": ALL,
    "fisher_hmc": [name for name in ALL if name != "treedepth__"],
    "hmc": [name for name in ALL if name != "treedepth__"],
    "arwmh": ["lp__", "accept_stat__", "stepsize__"],
    "rwm": ["lp__", "accept_stat__", "stepsize__"],
}


@pytest.mark.parametrize("method", OWN)
def test_stan_csv(method: str, tmp_path: Path) -> None:
    """CmdStanPy has the same draws, and those of Stan's columns that are true of the method."""
    idata = draw(method)
    paths = stanadapt.export(idata, tmp_path / "fit.csv", "stancsv")
    assert [path.name for path in paths] == ["fit_1.csv", "fit_2.csv", "fit_3.csv"]
    fit = cmdstanpy.from_csv([str(path) for path in paths])
    assert isinstance(fit, cmdstanpy.CmdStanMCMC)
    assert (fit.chains, fit.num_draws_sampling, fit.thin) == (3, 50, 1)
    drawn = fit.draws_xr()
    for name in ("v", "x", "k", "log_lik"):
        np.testing.assert_array_equal(drawn[name].values, values(idata, name))
    stats = fit.method_variables()
    assert list(stats) == OWN[method]
    for name, column in stats.items():
        np.testing.assert_array_equal(column.T, values(idata, NAMES[name]).astype(float))
    np.testing.assert_array_equal(fit.step_size, values(idata, "step_size")[:, -1])
    assert fit.metadata.cmdstan_config["seed"] == 1
    assert [fit.metadata.cmdstan_config[key] for key in ("num_warmup", "save_warmup", "id")] == [200, 0, 1]
    adaptation = datasets(idata)["adaptation"]
    np.testing.assert_allclose(
        [times["sampling"] for times in fit.time], adaptation["seconds"].values, atol=1e-6
    )


def test_stan_csv_has_what_was_learnt(tmp_path: Path) -> None:
    nuts, fisher = draw("nuts"), draw("fisher_hmc")
    for idata, kind, name in (
        (nuts, "diag_e", "preconditioner_diagonal"),
        (fisher, "dense_e", "preconditioner"),
    ):
        paths = stanadapt.export(idata, tmp_path / f"{kind}.csv", "stancsv")
        fit = cmdstanpy.from_csv([str(path) for path in paths])
        assert fit.metric_type == kind
        np.testing.assert_array_equal(fit.inv_metric, datasets(idata)["adaptation"][name].values)
    funnel = "parameters { real v; vector[6] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
    bent = stanadapt.sample(funnel, method="fisher_hmc", chains=1, seed=1, draws=50, progress=False)
    assert "transport" in datasets(bent)["adaptation"]
    (path,) = stanadapt.export(bent, tmp_path / "bent.csv", "stancsv")
    assert "mass matrix" not in path.read_text()  # it would be that of other coordinates


def test_divergences_are_counted_where_stan_counts_them(tmp_path: Path) -> None:
    idata = draw("nuts")
    stats = datasets(idata)["sample_stats"]
    stats["diverging"].values[1, [3, 7]] = True
    stats["tree_depth"].values[2, 5] = 10
    groups = datasets(idata) | {"sample_stats": stats}
    paths = stanadapt.export(container(groups, stats.attrs), tmp_path / "fit.csv", "stancsv")
    fit = cmdstanpy.from_csv([str(path) for path in paths])
    assert list(fit.divergences) == [0, 2, 0]
    assert list(fit.max_treedepths) == [0, 0, 1]


def test_complex_numbers_and_tuples(tmp_path: Path) -> None:
    """Named as CmdStan does, so that CmdStanPy makes complex numbers and tuples of them again."""
    named = {"z": (2,), "w": (2, 3, 2), "t.1:1": (), "t.1:2": (2,), "t.2:1": (), "t.2:2": (2,)}
    idata = own(**named, attrs={"complex": json.dumps(["z", "w"])})
    paths = stanadapt.export(idata, tmp_path / "fit.csv", "stancsv")
    fit = cmdstanpy.from_csv([str(path) for path in paths])
    for name in ("z", "w"):
        real, imaginary = np.moveaxis(values(idata, name), -1, 0)
        held = fit.stan_variable(name).reshape(real.shape)
        np.testing.assert_array_equal(held.real, real)
        np.testing.assert_array_equal(held.imag, imaginary)
    one, two = fit.stan_variable("t")[-1]
    assert one[0] == values(idata, "t.1:1")[-1, -1]
    np.testing.assert_array_equal(two[1], values(idata, "t.2:2")[-1, -1])
    (table,) = stanadapt.export(idata, tmp_path / "table.csv", "csv")
    with table.open(newline="") as file:
        header = next(csv.reader(file))[3:]
    assert header == list(fit.column_names)
    assert header[1:5] == ["z[real]", "z[imag]", "w[1,1,real]", "w[1,1,imag]"]
    assert header[-3:] == ["t[2].1", "t[2].2[1]", "t[2].2[2]"]


def test_arrays_of_complex_type(tmp_path: Path) -> None:
    plain = own(z=(3, 2))
    group = datasets(plain)["posterior"]
    z = group["z"][..., 0] + 1j * group["z"][..., 1]
    held = container(datasets(plain) | {"posterior": xarray.Dataset({"z": z})}, {})
    (path,) = stanadapt.export(held, tmp_path / "fit.csv")
    frame = pandas.read_csv(path, float_precision="round_trip")
    np.testing.assert_array_equal(frame["z[3,imag]"], values(plain, "z")[:, :, 2, 1].ravel())


def test_results_say_which_quantities_are_complex(tmp_path: Path) -> None:
    names = ["a", "z.real", "z.imag"]
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 3, lambda x: -x, names=names)
    idata = stanadapt.sample(target, method="rwm", chains=1, warmup=100, draws=20, seed=1, progress=False)
    (path,) = stanadapt.export(idata, tmp_path / "fit.csv", "stancsv")
    fit = cmdstanpy.from_csv(str(path))
    assert fit.stan_variable("z").dtype.kind == "c"


def test_names_are_those_of_the_program(tmp_path: Path) -> None:
    program = SHAPES.replace("int n;", "int n; vector[n] y;")
    idata = stanadapt.sample(
        program,
        {"n": 2, "y": [1.0, 2.0]},
        method="rwm",
        chains=1,
        warmup=50,
        draws=20,
        seed=1,
        progress=False,
        log_likelihood={"y": "log_lik"},
        posterior_predictive={"y": "k"},
    )
    (path,) = stanadapt.export(idata, tmp_path / "fit.csv")
    frame = pandas.read_csv(path)
    assert {"log_lik[1]", "log_lik[2]", "k[1]", "k[2]"} < set(frame.columns)
    np.testing.assert_array_equal(frame["k[2]"], datasets(idata)["posterior_predictive"]["y"].values[0, :, 1])


def test_groups_of_other_programs_may_share_names(tmp_path: Path) -> None:
    held = datasets(own(a=(), y=(2,)))
    drawn = held["posterior"]
    groups = {"posterior": drawn[["a"]], "log_likelihood": drawn[["y"]], "posterior_predictive": drawn[["y"]]}
    (path,) = stanadapt.export(container(groups, {}), tmp_path / "fit.csv")
    header = list(pandas.read_csv(path).columns)[3:]
    likelihood = [f"log_likelihood_y[{i}]" for i in (1, 2)]
    assert header == ["a", *likelihood, "posterior_predictive_y[1]", "posterior_predictive_y[2]"]


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    idata = own(v=())
    draws = datasets(idata)["posterior"]["v"].values
    draws[0, :4] = [np.nan, np.inf, -np.inf, 5e-324]
    (path,) = stanadapt.export(idata, tmp_path / "fit.csv")
    text = path.read_text().splitlines()
    assert [line.rpartition(",")[2] for line in text[1:5]] == ["NaN", "Inf", "-Inf", "5e-324"]  # R's words
    np.testing.assert_array_equal(pandas.read_csv(path)["v"], draws.ravel())
    fit = cmdstanpy.from_csv([str(path) for path in stanadapt.export(idata, tmp_path / "fit.csv", "stancsv")])
    np.testing.assert_array_equal(fit.draws_xr(vars=["v"])["v"].values, draws)


def test_chains_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    idata = own(3, v=())
    groups = {name: group.isel(chain=[0, 2]) for name, group in datasets(idata).items()}
    paths = stanadapt.export(container(groups, {}), tmp_path / "fit", "stancsv")
    assert [path.name for path in paths] == ["fit_1.csv", "fit_3.csv"]
    (table,) = stanadapt.export(container(groups, {}), tmp_path / "fit.csv")
    frame = pandas.read_csv(table)
    assert frame[".chain"].unique().tolist() == [1, 3]
    assert frame[".draw"].tolist() == list(range(1, 61))


def test_only_some_variables(idata: Any, tmp_path: Path) -> None:
    (path,) = stanadapt.export(idata, tmp_path / "fit.csv", var_names="v")
    assert list(pandas.read_csv(path).columns) == [".chain", ".iteration", ".draw", "lp__", "v"]
    (path,) = stanadapt.export(idata, tmp_path / "fit.parquet", var_names=["log_lik", "v"])
    assert list(pandas.read_parquet(path).columns)[4:] == ["log_lik[1]", "log_lik[2]", "v"]


class Counter(BackendArray):
    """An array that is read when it is asked for, and knows how much of it at a time."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.largest = self.read = 0

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        part = self.array[key]
        self.largest, self.read = max(self.largest, part.size), self.read + part.size
        return part


@pytest.mark.parametrize("kind", ["csv", "parquet", "stancsv"])
def test_draws_are_read_a_part_at_a_time(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idata = own(2, 1_000, x=(5,))
    expected = [path.read_bytes() for path in stanadapt.export(idata, tmp_path / "whole.csv", kind)]
    counter = Counter(values(idata, "x"))
    lazy = xarray.Variable(("chain", "draw", "x_0"), indexing.LazilyIndexedArray(counter))
    group = xarray.Dataset({"x": lazy}, coords={"chain": [0, 1], "draw": np.arange(1_000)})
    monkeypatch.setattr(columns, "_CHUNK_VALUES", 600)  # a hundred rows
    held = container(datasets(idata) | {"posterior": group}, {})
    paths = stanadapt.export(held, tmp_path / "parts.csv", kind)
    assert counter.largest == 500
    assert counter.read == 10_000
    if kind == "parquet":
        pandas.testing.assert_frame_equal(
            pandas.read_parquet(paths[0]), pandas.read_parquet(tmp_path / "whole.csv")
        )
    else:
        found = [path.read_bytes().replace(b"parts_", b"whole_") for path in paths]
        assert found == expected


def test_a_store_is_exported_as_it_lies_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stanadapt.run.preparation.memory.MEMORY_BYTES", 1_000)
    idata = draw("rwm", draws=400, store=tmp_path / "store")
    held = datasets(idata)["posterior"].variables["x"]
    assert not held._in_memory
    loaded = stanadapt.load(tmp_path / "store")
    assert list(datasets(loaded)["posterior"].data_vars) == ["v", "x", "k"]  # as in the program
    (path,) = stanadapt.export(loaded, tmp_path / "fit.csv")
    frame = pandas.read_csv(path, float_precision="round_trip")
    np.testing.assert_array_equal(frame["v"], values(idata, "v").ravel())
    stanadapt.export(idata, tmp_path / "again.csv")
    assert not held._in_memory
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_files_that_are_there_stay(idata: Any, tmp_path: Path) -> None:
    for kind, there in (("csv", "fit.csv"), ("parquet", "fit.csv"), ("stancsv", "fit_2.csv")):
        place = tmp_path / there
        place.write_text("mine")
        with pytest.raises(OutputError, match=f"{there} exists already"):
            stanadapt.export(idata, tmp_path / "fit.csv", kind)
        assert [path.name for path in tmp_path.iterdir()] == [there]
        assert place.read_text() == "mine"
        stanadapt.export(idata, tmp_path / "fit.csv", kind, overwrite=True)
        assert place.read_text(errors="replace") != "mine"
        for path in tmp_path.iterdir():
            path.unlink()


def test_chains_of_another_run_are_not_mixed_in(idata: Any, tmp_path: Path) -> None:
    (tmp_path / "fit_4.csv").write_text("lp__\n")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match=r"fit_4.csv is there, which would be taken for a chain"):
            stanadapt.export(idata, tmp_path / "fit.csv", "stancsv", overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["fit_4.csv"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "stancsv"])
def test_a_failure_leaves_nothing(
    kind: str, idata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when the last chain is written; older files stay as they were."""
    read = columns.QuantityDraws.rows

    def fail(self: Any, chain: int, draws: slice) -> np.ndarray:
        if chain == 2:
            raise OSError(28, "No space left on device")
        return read(self, chain, draws)

    monkeypatch.setattr(columns.QuantityDraws, "rows", fail)
    with pytest.raises(OutputError, match=r"cannot be written: .*No space left"):
        stanadapt.export(idata, tmp_path / "fit.csv", kind)
    assert list(tmp_path.iterdir()) == []


def without_lp(idata: Any) -> Any:
    return container({"posterior": datasets(idata)["posterior"]}, {})


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no suffix": (
        None,
        {"path": "fit"},
        "path='.*fit' is not allowed: path must be a name that ends in .csv",
    ),
    "no path": (None, {"path": 3}, "path=3 is not allowed"),
    "format": (None, {"format": "xlsx"}, "format='xlsx' is not allowed: .*one of csv, parquet, stancsv"),
    "variable": (None, {"var_names": ["w"]}, "var_names='w' is not allowed: .*one of v, x, k, log_lik"),
    "none": (None, {"var_names": []}, r"var_names=\[\] is not allowed"),
    "overwrite": (None, {"overwrite": "yes"}, "overwrite='yes' is not allowed"),
    "no result": (lambda _: 3, {}, "idata=3 is not allowed"),
    "no draws": (
        lambda idata: container({"posterior": datasets(idata)["posterior"].isel(draw=slice(0))}, {}),
        {},
        "idata has no draws",
    ),
    "no log density": (without_lp, {"format": "stancsv"}, "no log density of each draw.*use the format csv"),
    "name": (lambda _: own(**{"a,b": ()}), {"format": "stancsv"}, "'a,b' is no name of a variable in a Stan"),
    "name of Stan's": (lambda _: own(**{"a__": ()}), {"format": "stancsv"}, "'a__' is no name of a variable"),
    "twice": (lambda _: own(**{"a": (2,), "a[1]": ()}), {}, r"two columns named a\[1\]"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input(what: str, idata: Any, tmp_path: Path) -> None:
    alter, given, said = REFUSED[what]
    arguments = {"path": tmp_path / "fit.csv"} | given
    if isinstance(arguments["path"], str):
        arguments["path"] = str(tmp_path / arguments["path"])
    with pytest.raises(ArgumentError, match=said):
        stanadapt.export(idata if alter is None else alter(idata), **arguments)
    assert list(tmp_path.iterdir()) == []


def test_odd_names_are_quoted_in_tables(tmp_path: Path) -> None:
    names = ['a,"b"', "a\nb", "µ", "a__"]
    idata = own(**dict.fromkeys(names, ()))
    for kind, read in (("csv", pandas.read_csv), ("parquet", pandas.read_parquet)):
        (path,) = stanadapt.export(idata, tmp_path / f"fit.{kind}")
        assert list(read(path).columns)[4:] == names


def test_parquet_needs_pyarrow(idata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ArgumentError, match=r"pip install 'stanadapt\[parquet\]'"):
        stanadapt.export(idata, tmp_path / "fit.parquet")
    assert list(tmp_path.iterdir()) == []


def test_long_writing_says_how_far_it_is(
    idata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stanadapt.result.formats.export._SILENT_SECONDS", 0.0)
    stanadapt.export(idata, tmp_path / "fit.csv", progress=True)
    assert capsys.readouterr().err.splitlines()[0] == "stanadapt: writing the draws, 33% done"
    stanadapt.export(idata, tmp_path / "other.csv")
    assert capsys.readouterr() == ("", "")


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@pytest.fixture
def fit(idata: Any, tmp_path: Path) -> Path:
    files.write(idata, tmp_path / "fit.nc")
    return tmp_path / "fit.nc"


def test_command(fit: Path, idata: Any) -> None:
    folder = fit.parent
    done = command("export", fit, "--out", folder / "fit.parquet")
    assert (done.exit_code, done.stdout) == (0, f"Written to {folder}/fit.parquet\n")
    check_table(pandas.read_parquet(folder / "fit.parquet"), idata)
    done = command("export", fit, "--format=stancsv", "--out", folder / "fit.csv", "--var", "x")
    assert done.stdout == f"Written to {', '.join(f'{folder}/fit_{i}.csv' for i in (1, 2, 3))}\n"
    read = cmdstanpy.from_csv([f"{folder}/fit_{i}.csv" for i in (1, 2, 3)])
    np.testing.assert_array_equal(read.draws_xr(vars=["x"])["x"].values, values(idata, "x"))
    assert "v" not in read.stan_variables()


def test_command_refuses(fit: Path) -> None:
    out = fit.parent / "fit.csv"
    assert command("export", fit, "--out", out, "--quiet").output == ""
    again = command("export", fit, "--out", out)
    assert again.exit_code == 2
    assert "exists already: use --force to replace it" in " ".join(again.stderr.split())
    assert command("export", fit, "--out", out, "--force").exit_code == 0
    assert command("export", fit).exit_code == 2
    unknown = command("export", fit, "--out", fit.parent / "fit.xlsx")
    assert unknown.exit_code == 2
    assert "ends in .csv or .parquet" in " ".join(unknown.stderr.split())


def test_command_of_a_store(tmp_path: Path) -> None:
    idata = draw("rwm", store=tmp_path / "store")
    assert command("export", tmp_path / "store", "--out", tmp_path / "fit.csv").exit_code == 0
    frame = pandas.read_csv(tmp_path / "fit.csv", float_precision="round_trip")
    np.testing.assert_array_equal(frame["v"], values(idata, "v").ravel())


def test_quantities_may_be_named_in_the_command(tmp_path: Path) -> None:
    program, data = tmp_path / "model.stan", tmp_path / "data.json"
    program.write_text(SHAPES.replace("int n;", "int n; vector[n] y;"))
    data.write_text('{"n": 2, "y": [1.0, 2.0]}')
    run = [
        "sample",
        program,
        "--data",
        data,
        "--method=rwm",
        "--chains=1",
        "--warmup=50",
        "--draws=20",
        "--seed=1",
    ]
    named = ["--log-likelihood", "y=log_lik", "--posterior-predictive", "y=k", "--quiet"]
    assert command(*run, *named, "--out", tmp_path / "fit.nc").exit_code == 0
    groups = datasets(files.read(tmp_path / "fit.nc"))
    assert list(groups["log_likelihood"].data_vars) == list(groups["posterior_predictive"].data_vars) == ["y"]
    as_json = ["--log-likelihood", '{"y": "log_lik"}', "--posterior-predictive", '{"y": "k"}', "--quiet"]
    done = command(*run, *as_json, "--out", tmp_path / "json.nc")
    assert done.exit_code == 0, done.output
    groups = datasets(files.read(tmp_path / "json.nc"))
    assert list(groups["log_likelihood"]) == list(groups["posterior_predictive"]) == ["y"]
    wrong = command(*run, "--log-likelihood", "{y: log_lik}", "--out", tmp_path / "other.nc")
    assert wrong.exit_code == 2
    assert "is not valid JSON" in wrong.stderr
    twice = command(*run, *named, "--log-likelihood", "y=k", "--out", tmp_path / "other.nc")
    assert twice.exit_code == 2
    assert "y is named twice" in twice.stderr


def test_quantities_that_each_group_has_of_its_own(tmp_path: Path) -> None:
    """As a PyMC model does, whose log likelihood of y is called `log_likelihood:y` in the program."""
    held = datasets(own(a=(), y=(2,)))["posterior"]
    groups = {name: held[["y"]] for name in ("log_likelihood", "posterior_predictive")}
    noted = {name: {"y": f"{name}:y"} for name in groups}
    attrs = {"quantities": json.dumps(noted)}
    stats = datasets(own(a=()))["sample_stats"]
    idata = container({"posterior": held[["a"]], "sample_stats": stats, **groups}, attrs)
    fit = cmdstanpy.from_csv([str(path) for path in stanadapt.export(idata, tmp_path / "fit.csv", "stancsv")])
    assert set(fit.stan_variables()) == {"a", "log_likelihood_y", "posterior_predictive_y"}
