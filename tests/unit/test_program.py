"""What is read off the text of Stan programs."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from stanadapt import Posterior
from stanadapt.errors import DataError, ModelError
from stanadapt.model import data as data_module
from stanadapt.model.program import block, data_declarations, declarations, has_fixed_bounds, observed_names

KNOWN = {"N": 5, "K": 3, "z": np.array([1, 4, 2]), "X": np.zeros((5, 11)), "r": 2.5}

DECLARATIONS = [
    ("int N;", "int", ()),
    ("real r", "real", ()),
    ("int<lower=0> n;", "int", ()),
    ("int int_rate;", "int", ()),
    ("real data_x;", "real", ()),
    ("vector[N] v;", "vector", (5,)),
    ("vector [ N ]v;", "vector", (5,)),
    ("row_vector[N] v;", "row_vector", (5,)),
    ("matrix<lower=0>[N, K] X;", "matrix", (5, 3)),
    ("array[N] int<lower=1, upper=K> z;", "int", (5,)),
    ("array[N, K] vector[2] a;", "vector", (5, 3, 2)),
    ("array[2, 3] cov_matrix[K] S;", "cov_matrix", (2, 3, 3, 3)),
    ("corr_matrix[K] S;", "corr_matrix", (3, 3)),
    ("cholesky_factor_corr[K] L;", "cholesky_factor_corr", (3, 3)),
    ("cholesky_factor_cov[K] L;", "cholesky_factor_cov", (3, 3)),
    ("cholesky_factor_cov[N, K] L;", "cholesky_factor_cov", (5, 3)),
    ("simplex[K] p;", "simplex", (3,)),
    ("sum_to_zero_vector[K] p;", "sum_to_zero_vector", (3,)),
    ("vector<lower=0, upper=max(z)>[2 * N + 1] v;", "vector", (11,)),
    ("vector<lower=(r > 2 ? 1 : 0)>[N] v;", "vector", (5,)),
    ("vector<offset=r, multiplier=2>[N] v;", "vector", (5,)),
    ("vector[max(z)] v;", "vector", (4,)),
    ("vector[sum(z) - min(N, K)] v;", "vector", (4,)),
    ("vector[z[2]] v;", "vector", (4,)),
    ("vector[size(z)] v;", "vector", (3,)),
    ("matrix[rows(X), cols(X)] v;", "matrix", (5, 11)),
    ("vector[N %/% 2] v;", "vector", (2,)),
    ("vector[N / 2] v;", "vector", (2,)),
    ("vector[-N / 2 + 4] v;", "vector", (2,)),
    ("vector[N % 3] v;", "vector", (2,)),
    ("vector[N\n + 1] v;", "vector", (6,)),
    ("matrix[(N + 1) * K, max({1, 2})] v;", "matrix", (18, None)),
    ("vector[N > 2 ? 1 : 2] v;", "vector", (None,)),
    ("vector[choose(N, 2)] v;", "vector", (None,)),
    ("vector[lambda] v;", "vector", (None,)),
    ("vector[unknown] v;", "vector", (None,)),
    ("vector[N / 0] v;", "vector", (None,)),
    ("vector[z[9]] v;", "vector", (None,)),
    ("vector[size(X)] v;", "vector", (None,)),
    ("complex c;", "complex", ()),
    ("complex_vector[N] c;", "complex_vector", (5,)),
    ("tuple(int, array[N] real) t;", "tuple", ()),
    ("array[2] tuple(vector[N], int) t;", "tuple", (2,)),
]


@pytest.mark.parametrize(("text", "kind", "shape"), DECLARATIONS, ids=[case[0] for case in DECLARATIONS])
def test_a_declaration(text, kind, shape):
    declared = data_declarations(f"data {{ {text.rstrip(';')}; }}")
    (declaration,) = declared.values()
    assert declaration.type == kind
    assert declaration.shape(KNOWN) == shape


def test_several_variables_in_one_declaration():
    declared = data_declarations("data { int N, K; vector[N] a, b ; }")
    assert list(declared) == ["N", "K", "a", "b"]
    assert declared["b"].sizes == ("N",)


COMMENTED = """
// data { int a; }
/* data { int b;
} // */
functions { real f(data real x) { print("data { int c; } // "); return x; } }
data // here
{
  int N; // ; int d;
  /* int e; */ vector[N /* ] */ ] v; // }
  // #include missing.stan
}
transformed   data { int M = N; }
transformed parameters { real t = 1; { real hidden; } }
parameters { real x; }
model { v ~ normal(x, 1); target += normal_lpdf(N | x, 1); print("u ~ "); }
"""


def test_comments_texts_and_other_blocks_are_left_out():
    assert list(data_declarations(COMMENTED)) == ["N", "v"]
    assert list(declarations(COMMENTED, "parameters")) == ["x"]
    assert "M" in block(COMMENTED, "transformed data")
    assert block(COMMENTED, "generated quantities") == ""
    assert observed_names(COMMENTED) == {"v", "N"}


@pytest.mark.parametrize(
    "code", ["", "data", "data {", "data { int", "}{", "data { int; }", "data { array[; }", "/*"]
)
def test_text_that_is_no_program_declares_nothing(code):
    assert data_declarations(code) == {}


@pytest.mark.parametrize(
    ("declared", "fixed"),
    [
        ("", True),
        ("real x; vector<lower=0>[N] m; // x\n array[2] real<lower=low, upper=high> s;", True),
        ("real x; real<lower=x> y;", False),
        ("real x; vector<offset=0, multiplier=exp(x)>[2] y;", False),
        ("real x; array[2] real<upper=f(1, x)> y;", False),
        ("real x; unknown<lower=2> y;", False),
        ('real x; #include "y.stan"', False),
    ],
)
def test_bounds_are_fixed_where_no_parameter_stands_in_them(declared: str, fixed: bool) -> None:
    code = f"data {{ int N; real low, high; }} parameters {{ {declared} }} model {{ x ~ normal(y, 1); }}"
    assert has_fixed_bounds(code) is fixed


@pytest.mark.parametrize("model", ["path", "text"])
def test_includes_that_double_end_with_an_error(tmp_path, monkeypatch, model):
    for i in range(16):
        (tmp_path / f"f{i}.stan").write_text(f"#include f{i + 1}.stan\n" * 2)
    (tmp_path / "f16.stan").write_text("// the last one\n")
    main = tmp_path / "main.stan"
    main.write_text("#include f0.stan\nparameters { real x; } model { x ~ normal(0, 1); }")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"includes files more than 1000 times.* write each of them once"):
        Posterior(main if model == "path" else main.read_text())


ANY = "parameters { real x; } model { x ~ normal(0, 1); }"
VALID = {
    "sizes by a sum": (
        "int N; array[N] int<lower=0> n; vector[sum(n)] y;",
        {"N": 2, "n": [1, 2], "y": [1, 2, 3]},
    ),
    "sizes by a choice": ("int N; array[N, N > 1 ? 1 : 2] real y;", {"N": 2, "y": [[1], [2]]}),
    "sizes by entries": (
        "array[2, 2] int d; vector[d[1, 2]] y; array[d[2][1]] real q;",
        {"d": [[0, 2], [3, 0]], "y": [1, 2], "q": [1, 2, 3]},
    ),
    "sizes by arithmetic": (
        "int N; array[(N - 1) * 2] real z; array[N %/% 2, N % 2 + 1] real w;",
        {"N": 3, "z": [1, 2, 3, 4], "w": [[1, 2]]},
    ),
    "sizes by dimensions": (
        "array[2] int d; matrix[d[1], d[2]] y; array[size(d), cols(y)] real q;",
        {"d": [1, 2], "y": [[1, 2]], "q": [[1, 2], [3, 4]]},
    ),
    "words of Python": ("int lambda; vector[lambda] def;", {"lambda": 2, "def": [1, 2]}),
    "names like numbers": ("real e; real E1; int x1e;", {"e": 1, "E1": 2, "x1e": 3}),
    "no columns": (
        "int N; array[N] matrix[2, 0] y; vector[0] z;",
        {"N": 2, "y": np.zeros((2, 2, 0)), "z": []},
    ),
    "no columns, nested": ("int N; array[N] matrix[2, 0] y;", {"N": 2, "y": [[[], []], [[], []]]}),
    "constrained types": (
        (
            "corr_matrix[2] C; cholesky_factor_corr[2] L; unit_vector[2] u; positive_ordered[2] o;"
            "cholesky_factor_cov[3, 2] K; cov_matrix[2] S; row_vector[2] r; simplex[2] p;"
        ),
        {
            "C": np.eye(2),
            "L": np.eye(2),
            "u": [1, 0],
            "o": [1, 2],
            "K": [[1, 0], [1, 1], [1, 1]],
            "S": np.eye(2),
            "r": [1, 2],
            "p": [0.5, 0.5],
        },
    ),
    "no spaces": ("int N;vector<lower=0>[N]y;real<lower=-1,upper=1>z;", {"N": 1, "y": [1], "z": 0}),
    "comments inside": ("int N /* ; */; vector /* a */ [N] // ;\n y /* } */;", {"N": 1, "y": [1]}),
}


@pytest.mark.parametrize(("text", "data"), VALID.values(), ids=VALID)
def test_valid_data_are_accepted(text, data):
    """The compiler takes these programs and their data, so the reading of declarations must."""
    opened = Posterior(f"data {{ {text} }} {ANY}", data, backend="stanli")
    assert set(data_declarations(opened.code)) == set(data)


def test_sizes_by_functions_of_the_program():
    code = "functions { int f(int a) { return a + 1; } } data { int N; vector[f(N)] y; }" + ANY
    assert Posterior(code, {"N": 2, "y": [1, 2, 3]}).dim == 1
    with pytest.raises(DataError, match="y"):  # not known here, so the backend has to say it
        Posterior(code, {"N": 2, "y": [1, 2]})


@pytest.mark.data
def test_every_posterior_of_posteriordb_fits_its_declarations(posteriordb):
    """No valid data set may be refused, and every declaration there is read in full."""
    files = sorted((posteriordb / "posteriors").glob("*.json"))
    assert files
    for file in files:
        entry = json.loads(file.read_text())
        code = (posteriordb / "models" / "stan" / f"{entry['model_name']}.stan").read_text()
        with zipfile.ZipFile(posteriordb / "data" / "data" / f"{entry['data_name']}.json.zip") as archive:
            values = json.loads(archive.read(archive.namelist()[0]))
        declared = data_declarations(code)
        fitted = data_module.conform(data_module.read(values), declared)
        assert len(declared) == block(code, "data").count(";"), file.stem
        for name, declaration in declared.items():
            assert declaration.shape(fitted) == np.shape(values[name]), (file.stem, name)


def test_names_of_coordinates_are_those_of_the_values_they_have() -> None:
    """Stan itself names arrays of vectors and matrices as if their first index ran first."""
    program = """
    parameters {
      real r; array[3] vector[2] b; matrix[2, 3] m; array[2] matrix[2, 2] c; array[2, 3] real a;
      array[2] simplex[3] s;
    }
    model { target += -square(r); }
    """
    values = {
        "r": 7.0,
        "b": 10.0 + np.arange(6.0).reshape(3, 2),
        "m": 20.0 + np.arange(6.0).reshape(2, 3),
        "c": 30.0 + np.arange(8.0).reshape(2, 2, 2),
        "a": 40.0 + np.arange(6.0).reshape(2, 3),
        "s": np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]),
    }
    posterior = Posterior(program, {})
    x = dict(zip(posterior.unconstrained_names, posterior.model.unconstrain(values), strict=True))
    for name in ("r", "b", "m", "c", "a"):
        for place, value in np.ndenumerate(values[name]):
            assert x[".".join((name, *(str(i + 1) for i in place)))] == value
    assert [name for name in x if name.startswith("s")] == ["s.1.1", "s.1.2", "s.2.1", "s.2.2"]
