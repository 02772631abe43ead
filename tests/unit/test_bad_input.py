"""Bad input of every kind to `sample`: one clear line before sampling, nothing lost, no crash, no hang."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import stanadapt
from cases import OF_EACH_KIND, kernel_methods, partly_thorough, resolve
from stanadapt import Posterior, check, samplers
from stanadapt.errors import (
    ArgumentError,
    ChainError,
    DataError,
    EvaluationError,
    InitializationError,
    ModelError,
)
from stanadapt.result.container import datasets
from stanadapt.run.workers.threads import Threads
from stanadapt.samplers import METHODS
from stanadapt.samplers.settings import Limit

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.errors.StanAdaptWarning")  # few draws

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools.stan"
NORMAL = "parameters { real x; } model { x ~ normal(0, 1); }"
GENERATED = """
data { int N; vector[N] y; }
parameters { real mu; }
model { y ~ normal(mu, 1); mu ~ normal(0, 1); }
generated quantities { vector[N] log_lik = y - mu; vector[N] y_rep = y + mu; real one = 1; }
"""
DATA = {"N": 3, "y": [1.0, 2.0, 3.0]}


def draw(model=NORMAL, data=None, **more):
    options = {"method": "rwm", "chains": 2, "warmup": 50, "draws": 50, "seed": 1, "progress": False}
    return stanadapt.sample(model, data, **(options | more))


@pytest.fixture(scope="module")
def posterior():
    return Posterior(NORMAL)


def refused(error, parts, *arguments, **keywords):
    with pytest.raises(error) as caught:
        draw(*arguments, **keywords)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


HUGE = pytest.param(10**5000, id="10**5000")
NO_INTEGERS = [2.0, 2.5, "2", True, None, [2], math.nan, np.array([1, 2]), Decimal(2)]


@pytest.mark.usefixtures("never_runs")
class TestArguments:
    @pytest.mark.parametrize("name", ["chains", "draws", "thin", "workers"])
    @pytest.mark.parametrize("value", [0, -1, HUGE, *NO_INTEGERS])
    def test_counts(self, posterior, name, value):
        if value is None and name in ("draws", "workers"):
            return  # the default
        refused(ArgumentError, [f"{name}=", f"{name} must be an integer"], posterior, **{name: value})

    @pytest.mark.parametrize("value", [-1, HUGE, *(v for v in NO_INTEGERS if v is not None)])
    def test_warmup(self, posterior, value):
        refused(ArgumentError, ["warmup=", "warmup must be an integer from 0"], posterior, warmup=value)

    @pytest.mark.parametrize("value", [-1, 2**32, HUGE, *(v for v in NO_INTEGERS if v is not None)])
    def test_seed(self, posterior, value):
        refused(ArgumentError, ["seed=", "an integer from 0 to 4294967295"], posterior, seed=value)

    def test_thin_beyond_draws(self, posterior):
        refused(ArgumentError, ["thin=51", "from 1 to 50"], posterior, thin=51)

    @pytest.mark.parametrize(
        "value", [-1, -0.5, math.nan, math.inf, -math.inf, 1e101, 10**400, "2", True, None, [2.0], 1j]
    )
    def test_init_radius(self, posterior, value):
        refused(
            ArgumentError, ["init_radius=", "a finite number of at least 0"], posterior, init_radius=value
        )

    @pytest.mark.parametrize("name", ["progress", "save_warmup", "keep_unconstrained"])
    @pytest.mark.parametrize("value", ["yes", 1, None])
    def test_flags(self, posterior, name, value):
        refused(ArgumentError, [f"{name}={value!r}", "True or False"], posterior, **{name: value})

    @pytest.mark.parametrize(
        ("value", "near"),
        [("fisher-mala", "fisher_mala"), ("Mala", "mala"), ("rwmm", "rwm"), ("", ""), (None, ""), (3, "")],
    )
    def test_method(self, posterior, value, near):
        parts = [f"method={value!r}", "rwm", "fisher_mala", *([f"nearest: {near}"] if near else [])]
        refused(ArgumentError, parts, posterior, method=value)

    @pytest.mark.parametrize("value", ["stan", "Stanli", None, 1])
    def test_backend(self, value):
        refused(ArgumentError, [f"backend={value!r}", "auto, stanli, bridgestan"], backend=value)

    def test_data_twice(self, posterior):
        refused(ArgumentError, ["data are not allowed with a Posterior"], posterior, {"N": 1})


@pytest.mark.usefixtures("never_runs")
class TestSettings:
    @pytest.mark.parametrize("value", [3, "rwm", [("step_rate", 0.1)], True])
    def test_type(self, posterior, value):
        refused(
            ArgumentError,
            ["settings=", "a dict or stanadapt.samplers.rwm.Settings"],
            posterior,
            settings=value,
        )

    def test_settings_of_another_method(self, posterior):
        other = samplers.sampler("mala").Settings()
        refused(ArgumentError, ["settings=", "stanadapt.samplers.rwm.Settings"], posterior, settings=other)

    @pytest.mark.parametrize("name", ["step_rat", "", 3, None])
    def test_unknown(self, posterior, name):
        refused(
            ArgumentError, [f"setting={name!r}", "target_accept, step_rate"], posterior, settings={name: 1}
        )

    @pytest.mark.parametrize("method", METHODS)
    def test_every_setting_of_every_method(self, posterior, method):
        """Nothing but what its limits allow gets through, whatever the method."""
        sampler = samplers.sampler(method)
        for name, setting in samplers.settings_of(sampler).items():
            wrong = [[1], math.nan, "nonsense", 1j]
            wrong += [] if setting.optional else [None]
            if isinstance(setting.allowed, Limit):
                low, high, open_low = setting.allowed
                wrong += [True, math.inf, -math.inf, 10**400, "0.5"]
                wrong += [low - 1] if low > -math.inf else []
                wrong += [2 * high + 1] if high < math.inf else []
                wrong += [low] if open_low else []
            for value in wrong:
                refused(
                    ArgumentError,
                    [f"settings[{name!r}]=", "must be"],
                    posterior,
                    method=method,
                    settings={name: value},
                )


def _ends(sampler):
    """Every number that is just allowed; not the largest counts, which may rightly take for ever."""
    for name, setting in samplers.settings_of(sampler).items():
        if not isinstance(setting.allowed, Limit):
            continue
        low, high, open_low = setting.allowed
        if setting.kind is int:
            yield name, int(low)
        else:
            yield name, 1e-308 if open_low else low
            yield name, min(high, 1e308)


# `TestSettings` has every setting of every method; what a chain makes of those at their limits is run for one
# method of each kind, and for the others in `make thorough`, where many rungs take longest.
@pytest.mark.parametrize("method", partly_thorough(METHODS, {*OF_EACH_KIND} - {"tempered"}))
def test_settings_that_are_just_allowed(method):
    """A reasonable chain is not to be expected, but one that ends well."""
    two = Posterior("parameters { vector[2] x; } model { x ~ normal(0, 1); }")
    of_method = samplers.sampler(method)
    cheap = {"basis": 20} if "basis" in samplers.settings_of(of_method) else {}
    for name, value in _ends(of_method):
        settings = cheap | {name: value}
        result = draw(two, method=method, settings=settings, chains=1, warmup=30, draws=3)
        assert np.all(np.isfinite(datasets(result)["posterior"]["x"])), settings


SYNTAX = {
    "syntax": ("parameters {\n real x\n}", ["line 3", 'Expected ";"']),
    "semantics": ("parameters { real x; }\nmodel { x ~ nrmal(0, 1); }", ["line 2", "nrmal"]),
    "type": ("parameters { real x; }\nmodel { int n = x; }", ["line 2"]),
    "undeclared": ("model {\n target += zzz;\n}", ["line 2", "zzz"]),
    "old arrays": ("data { int N; real y[N]; }", ["line 1"]),
    "prose": ("model {{ fit me a line }}", ["line 1"]),
}


@pytest.mark.usefixtures("never_runs")
class TestModels:
    @pytest.mark.parametrize(("code", "parts"), SYNTAX.values(), ids=SYNTAX)
    def test_compiler_messages(self, tmp_path, code, parts):
        path = tmp_path / "bad.stan"
        path.write_text(code)
        for model in (code, path):
            with pytest.raises(ModelError) as caught:
                draw(model)
            for part in ["model: the Stan program does not compile", *parts]:
                assert part in str(caught.value)

    def test_missing_includes(self):
        refused(
            ModelError, ["model: line 2 includes 'nowhere.stan'"], "functions {\n#include nowhere.stan\n}"
        )

    @pytest.mark.parametrize(
        "model", ["nowhere.stan", "nowhere.so", "a" * 5000 + ".stan", "x.stan\0", "fit me"]
    )
    def test_missing_files(self, model):
        refused(ModelError, ["model=", model[:30].rstrip("\0")], model)
        refused(ModelError, ["model=", model[:30].rstrip("\0")], Path(model))

    def test_directories(self, tmp_path):
        refused(ModelError, [f"model='{tmp_path}'"[:70], "directory"], tmp_path)
        (tmp_path / "x.stan").mkdir()
        refused(ModelError, ["x.stan", "directory"], tmp_path / "x.stan")
        (tmp_path / "x.so").mkdir()
        refused(ModelError, ["x.so"], tmp_path / "x.so")

    def test_other_files(self, tmp_path):
        (tmp_path / "model.txt").write_text(NORMAL)
        refused(ModelError, ["model.txt", "does not end in .stan"], tmp_path / "model.txt")
        (tmp_path / "binary.stan").write_bytes(b"\xff\xfe\x00parameters")
        refused(ModelError, ["binary.stan", "cannot be read"], tmp_path / "binary.stan")
        (tmp_path / "empty.stan").write_text("\n")
        refused(ModelError, ["empty.stan", "empty"], tmp_path / "empty.stan")
        (tmp_path / "text.so").write_text("no library")
        refused(ModelError, ["text.so", "is not a library"], tmp_path / "text.so")

    @pytest.mark.parametrize(
        ("code", "part"),
        [
            ("", "empty"),
            (" \n", "empty"),
            (NORMAL + "\0 { garbage", "NUL character at position"),
            (NORMAL + "// \ud800", "not valid Unicode"),
        ],
    )
    def test_text(self, code, part):
        refused(ModelError, ["model: the Stan program", part], code)

    @pytest.mark.parametrize(
        "model", [None, 3, b"model { }", ["model { }"], {"code": NORMAL}, object(), NORMAL.upper]
    )
    def test_other_types(self, model):
        refused(ArgumentError, ["model=", "a path to a .stan file, Stan program text"], model)

    @pytest.mark.parametrize(
        "code", ["model { }", "// nothing\n", "data { int N; }", "transformed data { int n = 1; }"]
    )
    def test_nothing_to_draw(self, code):
        refused(ModelError, ["no parameters and no generated quantities"], code, {"N": 1})

    def test_missing_data(self):
        refused(DataError, ["J (a single int)", "sigma (real, sizes [J])", "Given: none"], SCHOOLS)
        refused(DataError, ["nowhere.json", "no such file"], SCHOOLS, "nowhere.json")


def test_a_text_that_names_a_program_is_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("{x}.stan", "a\nb.stan"):
        refused(ModelError, ["model=", "no such file"], name)
        (tmp_path / name).write_text(NORMAL)
        assert Posterior(name).dim == 1
    (tmp_path / "{x}.so").write_text("no library")
    refused(ModelError, ["{x}.so", "is not a library"], "{x}.so")
    (tmp_path / "{x}").write_text(NORMAL)
    refused(ModelError, ["{x}", "does not end in .stan"], "{x}")
    assert Posterior(NORMAL + "// like x.stan\n").dim == 1


def test_a_program_can_come_in_many_forms(tmp_path):
    (tmp_path / "sizes.stan").write_text("int N; // from a file\n")
    code = """
    /* data { int M; } */
    data {
    #include sizes.stan
      array[N] int<lower=1, upper=N> z; // #include nowhere.stan
      real data_x; int int_rate;
    }
    transformed data { int twice = 2 * N; }
    parameters { real x; } // "
    model { print("// {"[1:0]); x ~ normal(data_x, 1); }
    """.replace('print("// {"[1:0]); ', "")
    path = tmp_path / "modèle no. 1.stan"
    data = {"N": 2, "z": [1, 2], "data_x": 0.5, "int_rate": 3}
    for text in (code, code.replace("\n", "\r\n"), "\ufeff" + code):
        path.write_text(text, encoding="utf-8", newline="")
        for model in (path, str(path)):
            assert Posterior(model, data).dim == 1
    with pytest.raises(DataError, match=r"data\['z'\] has shape \(3,\)"):
        Posterior(path, data | {"z": [1, 2, 2]})
    with pytest.raises(DataError, match=r"lack .* N \(a single int\)"):
        Posterior(path, {"z": [1], "data_x": 1, "int_rate": 1})


LABELS = {
    "unknown likelihood": ({"log_likelihood": "log_like"}, ["log_likelihood='log_like'", "nearest: log_lik"]),
    "parameter as likelihood": ({"log_likelihood": ["mu"]}, ["log_likelihood='mu'", "log_lik, y_rep"]),
    "no name": ({"log_likelihood": [3]}, ["log_likelihood=3", "log_lik, y_rep"]),
    "None": ({"log_likelihood": None}, ["log_likelihood=None", "a list of names"]),
    "number": ({"posterior_predictive": 3}, ["posterior_predictive=3", "a list of names"]),
    "unknown predictive": ({"posterior_predictive": "y_hat"}, ["posterior_predictive='y_hat'", "y_rep"]),
    "both": (
        {"log_likelihood": "y_rep", "posterior_predictive": "y_rep"},
        ["log_likelihood and posterior_predictive", "'y_rep'"],
    ),
    "dims of unknown": ({"dims": {"theta": ["i"]}}, ["dims", "'theta'", "mu"]),
    "too many dims": ({"dims": {"y_rep": ["i", "j"]}}, ["dims['y_rep']", "at most 1"]),
    "dims of a scalar": ({"dims": {"mu": ["i"]}}, ["dims['mu']", "at most 0"]),
    "dims as text": ({"dims": {"y_rep": "i"}}, ["dims['y_rep']='i'", "a list"]),
    "dims as a number": ({"dims": {"y_rep": 3}}, ["dims['y_rep']=3", "a list"]),
    "dims of numbers": ({"dims": {"y_rep": [3]}}, ["dims['y_rep']=[3]", "a list of names"]),
    "dims with a slash": ({"dims": {"y_rep": ["a/b"]}}, ["dims['y_rep']='a/b'", "without a slash"]),
    "dims of dots": ({"dims": {"y_rep": [".."]}}, ["dims['y_rep']='..'", "not . or .."]),
    "dims with NUL": ({"dims": {"y_rep": ["a\0"]}}, ["dims['y_rep']=", "control characters"]),
    "taken dims": ({"dims": {"y_rep": ["chain"]}}, ["dims['y_rep']", "chain"]),
    "dims like a variable": ({"dims": {"y_rep": ["mu"]}}, ["dims['y_rep']", "mu"]),
    "dims no dict": ({"dims": ["i"]}, ["dims=['i']", "a dict"]),
    "coords too short": (
        {"dims": {"y_rep": ["i"]}, "coords": {"i": [1, 2]}},
        ["coords['i']", "of length 3", "y_rep"],
    ),
    "coords of unknown": ({"coords": {"i": [1, 2, 3]}}, ["coords['i']", "no dimension"]),
    "coords as a number": ({"dims": {"y_rep": ["i"]}, "coords": {"i": 3}}, ["coords['i']=3", "a list"]),
    "coords as text": ({"dims": {"y_rep": ["i"]}, "coords": {"i": "abc"}}, ["coords['i']='abc'", "a list"]),
    "ragged coords": (
        {"dims": {"y_rep": ["i"]}, "coords": {"i": [[1], [2, 3], 4]}},
        ["coords['i']", "a list"],
    ),
    "coords no dict": ({"coords": 3}, ["coords=3", "a dict"]),
}


@pytest.mark.usefixtures("never_runs")
@pytest.mark.parametrize(("keywords", "parts"), LABELS.values(), ids=LABELS)
def test_labels(keywords, parts):
    refused(ArgumentError, parts, GENERATED, DATA, **keywords)


CLASHES = {
    "parameter": """parameters { array[3] real t; real t_dim_0; }
        model { t ~ normal(0, 1); t_dim_0 ~ normal(0, 1); }""",
    "generated": NORMAL + " generated quantities { vector[2] t; real t_dim_0 = 1; t = [1, 2]'; }",
    "target": stanadapt.Target.from_python(lambda x: -x @ x, 4, names=["t.1", "t.2", "t.3", "t_dim_0"]),
    "prior": stanadapt.abc(
        lambda theta, rng: theta["t_dim_0"],
        1.0,
        {"t": stats.norm([0.0, 0.0]), "t_dim_0": stats.norm()},
        epsilon=1.0,
    ),
}


@pytest.mark.parametrize("model", CLASHES.values(), ids=CLASHES)
def test_variables_with_the_name_of_a_dimension(model, request):
    request.getfixturevalue("never_runs")
    refused(ModelError, ["t_dim_0", "name of a dimension of t"], model)


def test_a_dimension_with_a_name_of_its_own_clashes_with_no_variable():
    group = datasets(draw(CLASHES["parameter"], dims={"t": ["i"]}))["posterior"]
    assert group["t"].dims == ("chain", "draw", "i")
    assert group["t_dim_0"].dims == ("chain", "draw")


@pytest.mark.usefixtures("never_runs")
def test_data_with_names_that_no_result_can_have():
    given = {"x": 1.0}
    refused(ModelError, ["y_dim_0", "name of a dimension of y"], NORMAL, {"y": [1, 2], "y_dim_0": 1})
    refused(ArgumentError, ["data: the name='a/b'", "without a slash"], NORMAL, given | {"a/b": 1})
    code = "parameters { matrix[2, 3] m; } model { to_vector(m) ~ normal(0, 1); }"
    refused(ArgumentError, ["dims['m']", "different"], code, dims={"m": ["m_dim_1"]})


@pytest.mark.usefixtures("never_runs")
def test_dims_of_two_lengths():
    code = "parameters { vector[2] a; vector[3] b; } model { a ~ normal(0, 1); b ~ normal(0, 1); }"
    refused(ArgumentError, ["dims", "'i'", "2", "3"], code, dims={"a": ["i"], "b": ["i"]})


def test_labels_that_fit():
    result = datasets(
        draw(
            GENERATED,
            DATA,
            dims={"y_rep": ["school"], "y": ("school",)},
            coords={"school": np.array(["a", "b", "c"])},
            log_likelihood="log_lik",
            posterior_predictive=("y_rep",),
        )
    )
    assert set(result["posterior"]) == {"mu", "one"}
    assert list(result["posterior_predictive"]["school"].values) == ["a", "b", "c"]
    assert result["log_likelihood"]["log_lik"].shape == (2, 50, 3)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_without_parameters(method):
    """It has only generated quantities, whatever the method."""
    code = "data { int N; } generated quantities { real y = normal_rng(N, 1); array[2] int z = {N, 1}; }"
    result = datasets(draw(code, {"N": 3}, method=method, save_warmup=True, keep_unconstrained=True))
    assert result["posterior"]["y"].shape == (2, 50)
    assert len(np.unique(result["posterior"]["y"])) == 100
    assert np.all(result["posterior"]["z"] == [3, 1])


NOWHERE = {
    "minus infinity": ("target += negative_infinity();", "the log density is -inf"),
    "NaN": ("target += not_a_number();", "the log density is nan"),
    "reject": ('reject("x is ", 2, " here");', "x is 2 here"),
    "failed check": ("x ~ normal(0, -1);", "Scale parameter is -1"),
}


@pytest.mark.parametrize(("statement", "reason"), NOWHERE.values(), ids=NOWHERE)
@pytest.mark.parametrize("method", ["rwm", "fisher_mala"])
def test_no_start(statement, reason, method):
    code = f"parameters {{ real x; }} model {{ {statement} }}"
    refused(InitializationError, ["chain ", "100 tries uniform on (-2, 2)", reason], code, method=method)
    refused(InitializationError, ["its starting point", reason], code, method=method, init_radius=0)


def test_no_gradient_at_the_start():
    code = "parameters { real x; } model { target += hypot(0 * x, 0 * x) - square(x); }"
    refused(InitializationError, ["finite log density and gradient", "not finite in x"], code, method="mala")
    assert datasets(draw(code))["posterior"]["x"].shape == (2, 50)  # this method needs none


@pytest.mark.parametrize("method", partly_thorough(kernel_methods(), OF_EACH_KIND))
def test_rejections_while_sampling_are_counted(method):
    code = 'parameters { real x; } model { if (x > 1) reject("x is too large"); x ~ normal(0, 1); }'
    result = draw(code, method=method, warmup=200, draws=200)
    groups = datasets(result)
    assert groups["posterior"]["x"].shape == (2, 200)
    assert groups["posterior"]["x"].max() <= 1
    assert int(groups["adaptation"]["failures"].sum()) > 0
    texts = [str(finding) for finding in stanadapt.diagnose(result)]
    assert any("failed in" in text and "x is too large" in text for text in texts)


def test_generated_quantities_that_reject_are_nan():
    code = NORMAL + ' generated quantities { real y = x; if (x > 0) reject("no"); real z = 1; }'
    result = datasets(draw(code, warmup=200, draws=200))["posterior"]
    fails = result["x"] > 0
    assert 0 < int(fails.sum()) < fails.size
    assert np.all(np.isfinite(result["x"]))
    for name in ("y", "z"):
        np.testing.assert_array_equal(np.isnan(result[name]), fails)
    np.testing.assert_array_equal(result["y"].where(~fails), result["x"].where(~fails))


LARGE = "data { int N; } parameters { vector[N] x; } model { x ~ normal(0, 1); }"


def matrices(method):
    sampler, settings = resolve(method, {})
    return samplers.n_matrices(sampler, settings)


MATRICES = [name for name in kernel_methods() if matrices(name)]


@pytest.fixture(scope="module")
def large():
    return Posterior(LARGE, {"N": 15_570})


@pytest.mark.usefixtures("never_runs")
class TestMemory:
    @pytest.mark.parametrize("method", MATRICES)
    def test_matrices(self, monkeypatch, large, method):
        monkeypatch.setattr(check, "free_memory", lambda: 3 * 2.0**30)
        gib = f"{8 * 15_570**2 * (matrices(method) + 1) * 2 / 2**30:.1f} GiB"
        parts = [
            f"method='{method}'",
            gib,
            "15570 x 15570",
            "3.0 GiB are free",
            "Methods that need none: ",
            "rwm",
        ]
        refused(ArgumentError, parts, large, method=method)

    def test_draws(self, monkeypatch, large):
        monkeypatch.setattr(check, "free_memory", lambda: 2.0**30)
        parts = ["draws=20000 of 2 chains", "4.6 GiB", "1.0 GiB are free", "thin"]
        refused(ArgumentError, parts, large, draws=20_000)

    @pytest.mark.parametrize("counts", [{"draws": 2**31 - 1}, {"chains": 2**31 - 1}])
    def test_counts_beyond_memory(self, monkeypatch, posterior, counts):
        monkeypatch.setattr(check, "free_memory", lambda: 2.0**33)
        refused(ArgumentError, ["GiB", "are free"], posterior, **counts)

    @pytest.mark.parametrize(
        "block",
        [
            "parameters { vector[N] x; }",
            "parameters { array[N, N] cov_matrix[N] x; }",
            "parameters { real y; } transformed parameters { matrix[N, 2] x = rep_matrix(y, N, 2); }",
            "parameters { real y; } generated quantities { vector[N] x; }",
        ],
    )
    def test_values(self, monkeypatch, block):
        monkeypatch.setattr(check, "free_memory", lambda: 2.0**33)
        refused(
            ModelError,
            ["model: x (", "values", "GiB", "8.0 GiB are free"],
            f"data {{ int N; }} {block}",
            {"N": 2**31 - 1},
        )

    def test_local_variables_are_not_counted(self, monkeypatch):
        monkeypatch.setattr(check, "free_memory", lambda: 2.0**33)
        code = "data { int N; } generated quantities { real y = 1; if (N < 9) { int k; vector[N] x; } }"
        assert Posterior(code, {"N": 2**31 - 1}).n_values == 1


def test_memory_that_runs_out_has_a_name(monkeypatch, posterior):
    def run(*_):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(Threads, "team", run)
    refused(ChainError, ["more memory than there is", "1 TiB", "thin"], posterior)


@pytest.mark.parametrize(
    "x",
    [None, "a", [1, 2], [1, None, 2], np.zeros(3, complex), [[1], [2, 3]], np.zeros((3, 1)), object(), 1.0],
)
def test_points(x):
    three = Posterior("parameters { vector[2] x; real<lower=0> s; } model { s ~ normal(0, 1); }")
    for function in (three.log_density, three.log_density_gradient, three.constrain):
        with pytest.raises(ArgumentError, match=r"x=.* is not allowed: x must be an? .*3") as caught:
            function(x)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (None, ["lack", "x, s"]),
        ({"x": [1, 2]}, ["lack", "s"]),
        ({"x": [1, 2], "s": -1}, ["outside the support", "-1", "for s"]),
        ({"x": [[1, 2]], "s": 1}, ["values['x']", "(1, 2)", "(2,)"]),
        ({"x": [1, 2], "s": 1, "y": 1}, ["values['y']", "no parameter"]),
    ],
)
def test_values(values, parts):
    three = Posterior("parameters { vector[2] x; real<lower=0> s; } model { s ~ normal(0, 1); }")
    with pytest.raises(ArgumentError) as caught:
        three.unconstrain(values)
    for part in parts:
        assert part in str(caught.value)


def test_points_that_the_model_rejects():
    steep = Posterior('parameters { real x; } model { if (x > 1) reject("x is ", x); }')
    for function in (steep.log_density, steep.log_density_gradient):
        with pytest.raises(EvaluationError, match="x is 2"):
            function([2.0])


@pytest.mark.parametrize("function", [stanadapt.summary, stanadapt.diagnose])
def test_results_of_something_else(function):
    for idata in (None, 3, {}, "result.nc", [1]):
        with pytest.raises(ArgumentError, match=r"idata=.* must be a result of stanadapt.sample"):
            function(idata)
    result = draw()
    for names in ([], 3, {"x"}, ["z"], [3]):
        with pytest.raises(ArgumentError, match="var_names"):
            function(result, names)
    assert len(function(result, "x")) == len(function(result, ["x"]))


def test_no_warmup_and_one_draw():
    result = datasets(draw(warmup=0, draws=1, chains=1))
    assert result["posterior"]["x"].shape == (1, 1)


@pytest.mark.parametrize("method", partly_thorough(METHODS, OF_EACH_KIND))
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_hardly_any_warmup(posterior, method, warmup):
    result = datasets(draw(posterior, method=method, warmup=warmup, draws=3, save_warmup=True))
    assert np.all(np.isfinite(result["posterior"]["x"]))
    assert result["warmup_posterior"]["x"].shape == (2, warmup)


CRASHES = {
    "more parameters than memory": """
        stanadapt.Posterior("data { int N; } parameters { vector[N] x; }", {"N": 2**31 - 1})
    """,
    "sizes that overflow": """
        stanadapt.Posterior("data { int N; } parameters { array[N, N] matrix[N, N] x; }", {"N": 2**31 - 1})
    """,
    "division by zero": """
        stanadapt.Posterior(
            "data { int N; } transformed data { int a = 1 % N; } parameters { real x; }", {"N": 0}
        )
    """,
    "index out of range": """
        stanadapt.Posterior(
            "data { int N; array[N] int z; } transformed data { int a = z[N * 1000000]; }"
            "parameters { real x; }", {"N": 2, "z": [1, 2]}
        )
    """,
    "index out of range while sampling": """
        stanadapt.sample(
            "data { int N; } parameters { vector[2] x; } model { for (n in 1:N) x[n] ~ normal(0, 1); }",
            {"N": 1000000}, method="rwm", warmup=5, draws=5, progress=False
        )
    """,
    "a library of something else": """
        import ctypes.util, pathlib, shutil, tempfile
        found = next(pathlib.Path(sys.base_prefix).rglob("_struct*.so"), None) or sys.exit(3)
        with tempfile.TemporaryDirectory() as folder:
            stanadapt.Posterior(shutil.copy(found, pathlib.Path(folder, "other.so")))
    """,
    "threads, one of which fails": """
        stanadapt.sample(
            "parameters { real x; } model { if (x > 0.5) reject(x); x ~ normal(0, 1); }",
            method="fisher_mala", chains=4, workers=4, warmup=5, draws=5, progress=False,
            inits=[[0.0], [0.0], [0.0], [9.0]]
        )
    """,
}


@pytest.mark.parametrize("code", CRASHES.values(), ids=CRASHES)
def test_no_crash_and_no_hang(code):
    """In a process of its own, so that a segmentation fault is a failed test."""
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    ending = "except stanadapt.StanAdaptError as error:\n    print(error)\n    sys.exit(3)\n"
    script = f"import sys\nimport stanadapt\ntry:\n{body}\n{ending}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
