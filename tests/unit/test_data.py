"""Data: every kind of value that users have reaches the model as it is, or is refused by name."""

from __future__ import annotations

import array
import datetime
import json
import warnings
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import stanadapt
from stanadapt import Posterior
from stanadapt.errors import DataError
from stanadapt.model import data as data_module
from stanadapt.model.program import data_declarations, undeclared_names

ECHO_VECTOR = "data { int N; vector[N] v; } generated quantities { vector[N] w = v; }"
ECHO_INTS = "data { int N; array[N] int v; } generated quantities { array[N] int w = v; }"
ECHO_MATRIX = "data { int N; int K; matrix[N, K] v; } generated quantities { matrix[N, K] w = v; }"
ECHO_REAL = "data { real v; } generated quantities { real w = v; }"
ECHO_INT = "data { int v; } generated quantities { int w = v; }"


def echoed(code, data):
    """The data as the model itself has them."""
    return Posterior(code, data).constrain(np.zeros(0), generated=True)["w"]


def refusal(code, data):
    """The one line that refuses the data."""
    with pytest.raises(DataError) as caught:
        Posterior(code, data)
    message = str(caught.value)
    assert "\n" not in message
    return message


VECTORS = {
    "list": [1, 2.5, 3],
    "tuple": (1, 2.5, 3),
    "nested NumPy scalars": [np.float32(1), np.float64(2.5), np.int8(3)],
    "0-d arrays": [np.array(1), np.array(2.5), np.array(3)],
    "float16": np.array([1, 2.5, 3], np.float16),
    "float32": np.array([1, 2.5, 3], np.float32),
    "longdouble": np.array([1, 2.5, 3], np.longdouble),
    "big-endian": np.array([1, 2.5, 3], ">f8"),
    "strided": np.array([1, 0, 2.5, 0, 3])[::2],
    "objects": np.array([1, 2.5, 3], dtype=object),
    "unmasked": np.ma.array([1, 2.5, 3]),
    "Series": pd.Series([1, 2.5, 3], index=list("abc")),
    "Series of nullable": pd.Series([1, 2.5, 3], dtype="Float64"),
    "Index": pd.Index([1, 2.5, 3]),
    "column": pd.DataFrame({"a": [1, 2.5, 3]})["a"],
    "DataArray": xr.DataArray([1, 2.5, 3], dims="x"),
    "fractions": [1, Fraction(5, 2), 3],
    "array.array": array.array("d", [1, 2.5, 3]),
    "deque": deque([1, 2.5, 3]),
}


@pytest.mark.parametrize("value", VECTORS.values(), ids=VECTORS)
def test_vectors(value):
    assert echoed(ECHO_VECTOR, {"N": 3, "v": value}).tolist() == [1, 2.5, 3]


INTEGERS = {
    "list": [1, 0, 1],
    "bools": [True, False, True],
    "NumPy bools": np.array([True, False, True]),
    "range": range(3),
    "int8": np.array([1, 0, 1], np.int8),
    "uint64": np.array([1, 0, 1], np.uint64),
    "Series": pd.Series([1, 0, 1]),
    "nullable": pd.Series([1, 0, 1], dtype="Int64"),
    "boolean": pd.Series([True, False, True], dtype="boolean"),
    "limits": [2**31 - 1, -(2**31), 0],
}


@pytest.mark.parametrize("value", INTEGERS.values(), ids=INTEGERS)
def test_integers(value):
    assert echoed(ECHO_INTS, {"N": 3, "v": value}).tolist() == [int(entry) for entry in value]


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.bool_]
)
def test_integer_scalars(kind):
    assert echoed(ECHO_INT, {"v": kind(1)}) == 1
    assert echoed(ECHO_INT, {"v": np.array(1, kind)}) == 1


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.float16(2.5), np.longdouble(2.5), np.array(2.5)])
def test_real_scalars(value):
    assert echoed(ECHO_REAL, {"v": value}) == 2.5


@pytest.mark.parametrize("value", [2**53, 2**62, 10**30, -(10**30), np.uint64(2**63)])
def test_large_integers_are_reals_where_reals_are_declared(value):
    assert echoed(ECHO_REAL, {"v": value}) == float(value)
    assert echoed(ECHO_VECTOR, {"N": 2, "v": [value, 1]}).tolist() == [float(value), 1]


MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
MATRICES = {
    "lists": MATRIX,
    "tuples": tuple(map(tuple, MATRIX)),
    "arrays in a list": [np.array(row) for row in MATRIX],
    "Series in a list": [pd.Series(row) for row in MATRIX],
    "Fortran order": np.asfortranarray(MATRIX),
    "transposed view": np.array(MATRIX).T.copy().T,
    "DataFrame": pd.DataFrame(MATRIX, columns=list("abc")),
    "mixed DataFrame": pd.DataFrame({"a": [1, 4], "b": [2.0, 5.0], "c": [3, 6]}),
    "DataArray": xr.DataArray(MATRIX, dims=("x", "y")),
}


@pytest.mark.parametrize("value", MATRICES.values(), ids=MATRICES)
def test_matrices_keep_rows_and_columns(value):
    assert echoed(ECHO_MATRIX, {"N": 2, "K": 3, "v": value}).tolist() == MATRIX


def test_a_dataset_is_data():
    dataset = xr.Dataset({"N": 3, "v": ("x", [1.0, 2.0, 3.0])}, coords={"x": [5, 6, 7]})
    assert echoed(ECHO_VECTOR, dataset).tolist() == [1, 2, 3]
    assert echoed(ECHO_VECTOR, OrderedDict(N=1, v=[4])).tolist() == [4]


@pytest.mark.parametrize(
    "value",
    [
        [np.nan, np.inf, -np.inf],
        np.array([np.nan, np.inf, -np.inf]),
        ["NaN", "Infinity", "-inf"],
        ["nan", "+Inf", "-Infinity"],
        np.array(["NaN", "inf", "-inf"]),
        pd.Series([None, np.inf, -np.inf]),
    ],
)
def test_nan_and_infinity_reach_the_model(value):
    np.testing.assert_array_equal(echoed(ECHO_VECTOR, {"N": 3, "v": value}), [np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("tokens", ["[NaN, Infinity, -Infinity]", '["NaN", "Inf", "-Inf"]'])
def test_nan_and_infinity_in_json(tokens):
    values = echoed(ECHO_VECTOR, f'{{"N": 3, "v": {tokens}}}')
    np.testing.assert_array_equal(values, [np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("write", [lambda path: path, str], ids=["Path", "str"])
def test_json_files(tmp_path, write):
    path = tmp_path / "data with spaces.json"
    path.write_text(json.dumps({"N": 2, "v": [1, 2.5]}))
    assert echoed(ECHO_VECTOR, write(path)).tolist() == [1, 2.5]
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")  # the mark that some editors write
    assert echoed(ECHO_VECTOR, write(path)).tolist() == [1, 2.5]


EMPTY = {
    "list": [],
    "array": np.zeros(0),
    "ints": np.zeros(0, int),
    "tuple": (),
    "Series": pd.Series([], dtype=float),
}


@pytest.mark.parametrize("value", EMPTY.values(), ids=EMPTY)
def test_empty_vectors(value):
    assert Posterior(ECHO_VECTOR, {"N": 0, "v": value}).data["v"].size == 0


@pytest.mark.parametrize("value", [[], np.zeros((0, 3)), [[]]])
def test_empty_matrices(value):
    code = (
        "data { int N; matrix[N, 3] X; matrix[3, N] Y; } generated quantities { real w = sum(X) + sum(Y); }"
    )
    assert echoed(code, {"N": 0, "X": value, "Y": np.zeros((3, 0))}) == 0
    assert echoed(code, {"N": 0, "X": value, "Y": [[], [], []]}) == 0


def test_variables_without_entries_may_be_missing():
    code = "data { int N; vector[N] v; array[N, 2] int z; } generated quantities { real w = N; }"
    assert echoed(code, {"N": 0}) == 0


def test_more_data_than_declared_are_kept():
    assert echoed(ECHO_VECTOR, {"N": 1, "v": [1], "unused": [[1, 2]], "a.b": 3}).tolist() == [1]


REFUSED = {
    "missing": (ECHO_VECTOR, {"v": [1]}, ["lack", "N (a single int)", "Given: v"]),
    "nothing": (ECHO_VECTOR, None, ["lack", "N", "v (vector, sizes [N])", "Given: none"]),
    "too short": (ECHO_VECTOR, {"N": 3, "v": [1]}, ["data['v']", "(1,)", "(3,)", "vector"]),
    "too long": (ECHO_VECTOR, {"N": 1, "v": [1, 2]}, ["data['v']", "(2,)", "(1,)"]),
    "scalar for a vector": (ECHO_VECTOR, {"N": 1, "v": 1.0}, ["data['v']", "()", "(1,)"]),
    "vector for a scalar": (ECHO_VECTOR, {"N": [1], "v": [1.0]}, ["data['N']", "(1,)", "a single int"]),
    "nested for flat": (ECHO_VECTOR, {"N": 4, "v": [[1, 2], [3, 4]]}, ["data['v']", "(2, 2)", "(4,)"]),
    "flat for nested": (ECHO_MATRIX, {"N": 2, "K": 2, "v": [1, 2, 3, 4]}, ["data['v']", "(4,)", "(2, 2)"]),
    "transposed": (ECHO_MATRIX, {"N": 2, "K": 3, "v": np.ones((3, 2))}, ["data['v']", "(3, 2)", "(2, 3)"]),
    "empty for a vector": (ECHO_VECTOR, {"N": 2, "v": []}, ["data['v']", "(0,)", "(2,)"]),
    "vector for empty": (ECHO_VECTOR, {"N": 0, "v": [1, 2]}, ["data['v']", "(2,)", "(0,)"]),
    "negative size": (ECHO_VECTOR, {"N": -3, "v": []}, ["data['v']", "-3", "[N]", "at least 0"]),
    "float for int": (ECHO_INT, {"v": 2.5}, ["data['v']", "2.5", "int"]),
    "float in ints": (ECHO_INTS, {"N": 3, "v": [1, 2, 2.5]}, ["data['v']", "2.5", "int"]),
    "whole float for int": (ECHO_INT, {"v": 3.0}, ["data['v']", "3.0", "int"]),
    "NaN for int": (ECHO_INTS, {"N": 2, "v": [1, np.nan]}, ["data['v']", "nan", "int"]),
    "int out of range": (ECHO_INT, {"v": 2**31}, ["data['v']", "2147483648", "2147483647"]),
    "int out of all ranges": (ECHO_INT, {"v": 10**30}, ["data['v']", "1e+30", "int"]),
    "int64 out of range": (ECHO_INTS, {"N": 1, "v": np.array([-(2**40)])}, ["data['v']", "-1099511627776"]),
    "beyond floats": (ECHO_REAL, {"v": 10**400}, ["data['v']", "range of a float"]),
    "ragged": (ECHO_MATRIX, {"N": 2, "K": 2, "v": [[1, 2], [3]]}, ["data['v']", "ragged", "(2,)", "(1,)"]),
    "ragged depth": (ECHO_MATRIX, {"N": 2, "K": 2, "v": [[1, 2], 3]}, ["data['v']", "ragged", "(2,)", "()"]),
    "None": (ECHO_REAL, {"v": None}, ["data['v']", "None", "numbers"]),
    "None inside": (ECHO_VECTOR, {"N": 2, "v": [1, None]}, ["data['v']", "None", "numbers"]),
    "NA": (ECHO_VECTOR, {"N": 2, "v": pd.Series([1, None], dtype="Int64")}, ["data['v']", "<NA>", "numbers"]),
    "text": (ECHO_REAL, {"v": "3.5"}, ["data['v']", "'3.5' (str)", "numbers"]),
    "bytes": (ECHO_REAL, {"v": b"3"}, ["data['v']", "b'3'", "numbers"]),
    "text inside": (ECHO_VECTOR, {"N": 2, "v": [1, "two"]}, ["data['v']", "'two'", "numbers"]),
    "array of text": (ECHO_VECTOR, {"N": 2, "v": np.array(["a", "b"])}, ["data['v']", "'a'", "numbers"]),
    "missing category": (
        ECHO_VECTOR,
        {"N": 1, "v": pd.Categorical([None])},
        ["data['v']", "entry 1 is missing"],
    ),
    "date": (ECHO_REAL, {"v": datetime.date(2020, 1, 1)}, ["data['v']", "date", "numbers"]),
    "dates": (
        ECHO_VECTOR,
        {"N": 1, "v": pd.Series(pd.to_datetime(["2020-01-01"]))},
        ["data['v']", "datetime64", "numbers"],
    ),
    "times": (ECHO_VECTOR, {"N": 1, "v": np.array([1], "m8[s]")}, ["data['v']", "timedelta64", "numbers"]),
    "records": (ECHO_VECTOR, {"N": 1, "v": np.zeros(1, "f8,f8")}, ["data['v']", "dtype", "numbers"]),
    "masked": (ECHO_VECTOR, {"N": 2, "v": np.ma.array([1.0, 2], mask=[0, 1])}, ["data['v']", "masked"]),
    "masked inside": (
        ECHO_MATRIX,
        {"N": 1, "K": 2, "v": [np.ma.array([1.0, 2], mask=[0, 1])]},
        ["data['v']", "masked"],
    ),
    "set": (ECHO_VECTOR, {"N": 2, "v": {1, 2}}, ["data['v']", "{1, 2}", "set"]),
    "generator": (ECHO_VECTOR, {"N": 1, "v": (i for i in [1])}, ["data['v']", "generator"]),
    "decimal": (ECHO_REAL, {"v": Decimal("1.5")}, ["data['v']", "Decimal"]),
    "dict": (ECHO_VECTOR, {"N": 1, "v": {"a": 1}}, ["data['v']", "dict", "['a']"]),
    "tuple object": (ECHO_VECTOR, {"N": 1, "v": {"1": 1}}, ["data['v']", "JSON object", "vector"]),
    "DataFrame with text": (
        ECHO_MATRIX,
        {"N": 1, "K": 2, "v": pd.DataFrame({"a": [1], "b": ["x"]})},
        ["data['v']", "'x'"],
    ),
    "Dataset as a value": (ECHO_VECTOR, {"N": 1, "v": xr.Dataset({"a": 1})}, ["data['v']", "Dataset"]),
    "complex for real": (ECHO_REAL, {"v": 1 + 2j}, ["data['v']", "a single real"]),
    "name": (ECHO_REAL, {3: 1.0, "v": 1}, ["data", "name 3", "strings"]),
    "below": ("data { real<lower=0> s; } parameters { real x; }", {"s": -1.5}, ["s is -1.5", "0"]),
    "above": (
        "data { int K; array[2] int<upper=K> z; } parameters { real x; }",
        {"K": 3, "z": [1, 4]},
        ["z", "4", "3"],
    ),
    "no simplex": (
        "data { simplex[2] p; } parameters { real x; }",
        {"p": [0.5, 0.6]},
        ["p", "simplex", "1.1"],
    ),
    "not ordered": ("data { ordered[2] o; } parameters { real x; }", {"o": [2, 1]}, ["o", "ordered"]),
    "no covariance": (
        "data { cov_matrix[2] S; } parameters { real x; }",
        {"S": [[1, 2], [2, 1]]},
        ["S", "definite"],
    ),
    "rejected by the program": (
        'data { int N; } transformed data { if (N > 1) reject("N too large: ", N); } parameters { real x; }',
        {"N": 2},
        ["N too large: 2"],
    ),
    "division by zero": (
        "data { int N; } transformed data { int a = 3 %/% N; int b = 3 % N; } parameters { real x; }",
        {"N": 0},
        ["zero"],
    ),
    "negative parameter size": (
        "data { int N; } parameters { vector[N - 5] x; }",
        {"N": 3},
        ["x", "-2"],
    ),
}


@pytest.mark.parametrize(("code", "data", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(code, data, parts):
    message = refusal(code, data)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("data", [3, [1, 2], b"{}", {1, 2}, np.zeros(3), object()])
def test_data_of_another_type(data):
    message = refusal(ECHO_REAL, data)
    assert f"of type {type(data).__name__} is not allowed" in message
    assert "a dict, a DataFrame, an xarray Dataset, a path to a JSON file, JSON text, or None" in message


JSON_ERRORS = {
    "cut off": ('{"v": [1, 2', "not valid JSON"),
    "trailing comma": ('{"v": 1,}', "not valid JSON"),
    "list": ("[1, 2]", "holds a list; a JSON object is needed"),
    "repeated name": ('{"v": 1, "v": 2}', "'v' comes twice"),
    "null": ('{"v": null}', "data['v'] holds None"),
    "too large": ('{"v": 1e400}', "1e400 is beyond the range of a float"),
    "too many digits": ('{"v": ' + "9" * 5000 + "}", "not valid JSON"),
    "too deep": ("[" * 100_000, "nested too deeply"),
    "ragged": ('{"v": [[1, 2], [3]]}', "ragged"),
}


@pytest.mark.parametrize(("text", "said"), JSON_ERRORS.values(), ids=JSON_ERRORS)
def test_json_errors(tmp_path, text, said):
    assert said in refusal(ECHO_REAL, text)
    path = tmp_path / "bad.json"
    path.write_text(text)
    message = refusal(ECHO_REAL, path)
    assert said in message


@pytest.mark.parametrize("text", ["", " ", "nowhere.json", "N = 3 " * 1000, "a\0b.json", "v <- 3"])
def test_json_file_that_is_not_there(text):
    assert refusal(ECHO_REAL, text).startswith("data=")


def test_json_file_that_cannot_be_read(tmp_path):
    assert "is a directory" in refusal(ECHO_REAL, tmp_path)
    (tmp_path / "binary.json").write_bytes(b'{"v": "\xff\xfe"}')
    assert "cannot be read" in refusal(ECHO_REAL, tmp_path / "binary.json")
    (tmp_path / "none.json").write_text("")
    assert "is not valid JSON" in refusal(ECHO_REAL, tmp_path / "none.json")


def test_user_data_are_left_alone():
    given = {"N": 2, "v": np.array([1.0, 2.0])}
    posterior = Posterior(ECHO_VECTOR, given)
    given["v"][0] = 9
    assert list(given) == ["N", "v"]
    np.testing.assert_array_equal(posterior.constrain(np.zeros(0), generated=True)["w"], [1, 2])
    np.testing.assert_array_equal(posterior.data["v"], [1, 2])


@pytest.mark.parametrize(
    "value", [(3, [1.5, 2]), (np.int8(3), np.array([1.5, 2])), {"1": 3, "2": (1.5, 2)}, {1: 3, 2: [1.5, 2]}]
)
def test_stan_tuples(value):
    read = data_module.read({"t": value}, tuples=["t"])
    written = json.loads(data_module.to_json(read))["t"]
    assert written["1"] == 3
    assert list(written["2"].values() if isinstance(written["2"], dict) else written["2"]) == [1.5, 2]


def test_arrays_of_stan_tuples():
    read = data_module.read({"t": [(1, 2.5), (3, 4.5)]}, tuples=["t"])
    assert read == {"t": [{"1": 1, "2": 2.5}, {"1": 3, "2": 4.5}]}
    read = data_module.read({"t": [[(1, 2.5)], [(3, 4.5)]]}, tuples=["t"])
    assert read == {"t": [[{"1": 1, "2": 2.5}], [{"1": 3, "2": 4.5}]]}


@pytest.mark.parametrize("data", [{"t": [{"1": 1, "2": [2.5]}]}, '{"t": [{"1": 1, "2": [2.5]}]}'])
def test_dicts_are_stan_tuples_without_declarations(data):
    assert data_module.read(data) == {"t": [{"1": 1, "2": [2.5]}]}


def test_what_holds_stan_tuples_is_no_array_of_numbers():
    with pytest.raises(DataError, match=r"data\['y'\] holds a JSON object; it is declared as vector"):
        Posterior("data { vector[1] y; } parameters { real x; }", {"y": [{"1": 1}]})
    with pytest.raises(DataError, match=r"data\['t'\] is ragged"):
        data_module.read({"t": [[{"1": 1}], [{"1": 1}, {"1": 2}]]})
    within: list = []
    within.append(within)
    with pytest.raises(DataError, match="nested too deeply"):
        data_module.read({"t": within})


def test_a_text_that_names_a_json_file_is_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("{a}.json", "[b]", "{c\n}"):
        (tmp_path / name).write_text('{"N": 3}')
        assert data_module.read(name) == {"N": 3}
    with pytest.raises(DataError, match="no such file"):
        data_module.read("{d}.json")


@pytest.mark.parametrize("value", [[1 + 2j, 3], np.array([1 + 2j, 3]), [[1, 2], [3, 0]]])
def test_complex_numbers_are_pairs(value):

    declared = data_declarations("data { complex_vector[2] c; }")
    fitted = data_module.conform(data_module.read({"c": value}), declared)
    assert fitted["c"].tolist() == [[1, 2], [3, 0]]
    real = data_module.conform(data_module.read({"c": [1, 3]}), declared)
    assert real["c"].tolist() == [[1, 0], [3, 0]]


def test_library_data_are_read_without_declarations():
    assert data_module.read({"v": ((1, 2), (3, 4))})["v"].tolist() == [[1, 2], [3, 4]]
    assert json.loads(data_module.to_json({"v": np.array([1.5, np.inf])})) == {"v": [1.5, float("inf")]}


def test_json_for_stan():
    values = {"x": 0.1 + 0.2, "n": 3, "a": np.array([[1.5, np.nan], [-np.inf, 1e300]]), "e": np.empty(0)}
    values["t"] = [{"1": 1, "2": [np.inf, 2.5]}]
    text = data_module.to_json(values)
    assert "NaN" in text
    assert "-Infinity" in text
    assert list(json.loads(text)) == list(values)
    read = data_module.read(text, tuples=["t"])
    assert (read["x"], read["n"], read["t"]) == (values["x"], 3, values["t"])
    np.testing.assert_array_equal(read["a"], values["a"])
    assert read["e"].size == 0


def test_entries_that_the_program_does_not_declare_are_told_once():
    """Also those whose names are in comments or in other blocks."""
    code = """data { int n; /* k */ } // zz
    parameters { real x; } model { real k = 1; x ~ normal(n, k); }"""
    data = {"n": 1, "k": 3, "zz": [1]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            stanadapt.Posterior(code, data)
        stanadapt.Posterior(code, {**data, "n": 2})
    assert [str(each.message) for each in caught] == [
        "data have entries that the Stan program does not declare: k, zz"
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = stanadapt.sample_many(
            f"{code} // many",
            [data] * 3,
            method="rwm",
            warmup=200,
            draws=50,
            seed=1,
            workers=1,
            progress=False,
        )
        assert len([*results]) == 3
    told = [str(each.message) for each in caught if "not declare" in str(each.message)]
    assert told == ["data have entries that the Stan program does not declare: k, zz"]


def test_nothing_is_said_of_data_where_an_include_cannot_be_read():
    assert undeclared_names('data { #include "more.stan"\n }', ["y"]) == []
    assert undeclared_names("data { real y; tuple(int, real) odd; }", ["y", "x", "odd"]) == ["x"]
