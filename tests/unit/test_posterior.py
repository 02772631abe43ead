"""A program with data, opened: densities, transforms, generated quantities."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from stanadapt.errors import ArgumentError, DataError, EvaluationError, ModelError

MODELS = Path(__file__).parents[2] / "models"
NAMES = sorted(folder.name for folder in MODELS.iterdir() if folder.is_dir())

CONSTRAINED = {
    "real<lower=1> p;": (),
    "real<upper=-2> p;": (),
    "real<lower=-1, upper=3> p;": (),
    "vector<lower=0>[4] p;": (4,),
    "array[2] real<lower=0> p;": (2,),
    "vector<offset=1, multiplier=3>[2] p;": (2,),
    "simplex[4] p;": (4,),
    "ordered[3] p;": (3,),
    "positive_ordered[3] p;": (3,),
    "cholesky_factor_corr[3] p;": (3, 3),
    "cholesky_factor_cov[3] p;": (3, 3),
    "corr_matrix[3] p;": (3, 3),
    "cov_matrix[3] p;": (3, 3),
    "matrix[2, 3] p;": (2, 3),
    "row_vector[3] p;": (3,),
    "array[2, 3] vector[4] p;": (2, 3, 4),
    "array[2] simplex[3] p;": (2, 3),
    "array[2] matrix<lower=0>[3, 2] p;": (2, 3, 2),
}

OUTPUTS = """
parameters { real<lower=0> x; }
transformed parameters { real twice = 2 * x; }
model { x ~ exponential(1); }
generated quantities {
  matrix[2, 3] q;
  array[2] vector[3] a;
  array[2, 3] matrix[4, 5] m;
  real u = normal_rng(0, 1);
  int k = poisson_rng(5);
  for (i in 1:2) for (j in 1:3) {
    q[i, j] = 10 * i + j;
    a[i, j] = 10 * i + j;
    for (k_ in 1:4) for (l in 1:5) m[i, j][k_, l] = 1000 * i + 100 * j + 10 * k_ + l;
  }
}
"""


@pytest.fixture(scope="module")
def outputs():
    return stanadapt.Posterior(OUTPUTS)


def model(name):
    return stanadapt.Posterior(MODELS / name / f"{name}.stan", MODELS / name / f"{name}.json")


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_that_of_the_density(name):
    posterior = model(name)
    rng = np.random.default_rng(5)
    x = 0.5 * rng.standard_normal(posterior.dim)
    value, score = posterior.log_density_gradient(x)
    assert value == pytest.approx(posterior.log_density(x), rel=1e-12)
    h = 1e-5
    for _ in range(5):
        direction = rng.standard_normal(posterior.dim)
        ahead, behind = (posterior.log_density(x + sign * h * direction) for sign in (1, -1))
        assert (ahead - behind) / (2 * h) == pytest.approx(score @ direction, rel=1e-5, abs=1e-5)


def test_dimensions_and_names():
    posterior = model("eight_schools")
    assert posterior.dim == 10
    assert (
        posterior.unconstrained_names
        == posterior.names
        == ["mu", "tau", *[f"theta_trans.{i}" for i in range(1, 9)]]
    )
    assert list(posterior.parameters) == ["mu", "tau", "theta_trans"]
    assert list(posterior.transformed_parameters) == ["theta"]
    covariance = stanadapt.Posterior(
        "parameters { cov_matrix[2] S; } model { S ~ wishart(3, identity_matrix(2)); }"
    )
    assert covariance.names == ["S.1.1", "S.2.1", "S.1.2", "S.2.2"]
    assert covariance.dim == len(covariance.unconstrained_names) == 3


def test_jacobian_is_included():
    posterior = stanadapt.Posterior("parameters { real<lower=0> p; } model { p ~ exponential(1); }")
    # The density of u = log p is exp(u - exp(u)).
    values = [posterior.log_density([u]) for u in (-1.0, 0.5, 2.0)]
    wanted = [u - np.exp(u) for u in (-1.0, 0.5, 2.0)]
    np.testing.assert_allclose(np.diff(values), np.diff(wanted))


@pytest.mark.parametrize("declaration", CONSTRAINED)
def test_constraining_and_back(declaration):
    posterior = stanadapt.Posterior(f"parameters {{ {declaration} }} model {{ }}")
    x = np.random.default_rng(2).standard_normal(posterior.dim)
    values = posterior.constrain(x)
    assert values["p"].shape == CONSTRAINED[declaration]
    np.testing.assert_allclose(posterior.unconstrain(values), x, atol=1e-9)
    np.testing.assert_allclose(posterior.unconstrain({"p": values["p"].tolist()}), x, atol=1e-9)


def test_constrained_values_are_in_their_support():
    program = """parameters { simplex[3] s; ordered[3] o; cov_matrix[3] S; cholesky_factor_corr[3] L;
      real<lower=-1, upper=3> b; } model { }"""
    posterior = stanadapt.Posterior(program)
    values = posterior.constrain(np.random.default_rng(3).standard_normal((50, posterior.dim)))
    np.testing.assert_allclose(values["s"].sum(-1), 1.0)
    assert np.all(values["s"] > 0.0)
    assert np.all(np.diff(values["o"]) > 0.0)
    np.testing.assert_allclose(values["S"], values["S"].swapaxes(-1, -2))
    assert np.all(np.linalg.eigvalsh(values["S"]) > 0.0)
    np.testing.assert_array_equal(values["L"], np.tril(values["L"]))
    np.testing.assert_allclose((values["L"] ** 2).sum(-1), 1.0)
    assert np.all((values["b"] > -1.0) & (values["b"] < 3.0))


def test_matrices_are_not_transposed(outputs):
    values = outputs.constrain([0.3], generated=True)
    np.testing.assert_array_equal(values["q"], [[11, 12, 13], [21, 22, 23]])
    np.testing.assert_array_equal(values["a"], [[11, 12, 13], [21, 22, 23]])
    i, j, k, n = np.indices((2, 3, 4, 5)) + 1
    np.testing.assert_array_equal(values["m"], 1000 * i + 100 * j + 10 * k + n)


def test_blocks_come_when_asked_for(outputs):
    assert list(outputs.constrain([0.0])) == ["x"]
    assert list(outputs.constrain([0.0], transformed=True)) == ["x", "twice"]
    assert list(outputs.constrain([0.0], generated=True)) == ["x", "q", "a", "m", "u", "k"]
    values = outputs.constrain([0.7], transformed=True)
    assert values["x"] == pytest.approx(np.exp(0.7))
    assert values["twice"] == pytest.approx(2 * np.exp(0.7))


def test_many_points_at_once(outputs):
    x = np.random.default_rng(1).standard_normal((2, 3, 1))
    values = outputs.constrain(x, transformed=True, generated=True)
    assert {name: value.shape for name, value in values.items()} == {
        "x": (2, 3),
        "twice": (2, 3),
        "q": (2, 3, 2, 3),
        "a": (2, 3, 2, 3),
        "m": (2, 3, 2, 3, 4, 5),
        "u": (2, 3),
        "k": (2, 3),
    }
    np.testing.assert_allclose(values["x"], np.exp(x[..., 0]))
    assert outputs.constrain(np.empty((0, 1)))["x"].shape == (0,)


def test_points_in_any_memory_layout():
    posterior = model("eight_schools")
    x = np.random.default_rng(1).standard_normal((4, posterior.dim))
    wanted = posterior.constrain(x)["theta_trans"]
    for same in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x.tolist()):
        np.testing.assert_array_equal(posterior.constrain(same)["theta_trans"], wanted)
    strided = np.repeat(x[0], 2)[::2]
    assert posterior.log_density(strided) == posterior.log_density(x[0])


def test_random_numbers_of_generated_quantities_have_a_seed(outputs):
    x = np.zeros((50, 1))
    first, same, other = (outputs.constrain(x, generated=True, seed=seed)["u"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert len(np.unique(first)) == 50
    assert not np.any(first == other)


def test_generated_quantities_that_reject_are_nan():
    program = """parameters { real x; } model { x ~ std_normal(); }
      generated quantities { real y = x; if (x > 0) reject("// generated quantities {"); }"""
    program = program.replace("model", "transformed parameters { real twice = 2 * x; } model", 1)
    posterior = stanadapt.Posterior(program)
    for opened in (posterior, pickle.loads(pickle.dumps(posterior))):
        values = opened.constrain([[-1.0], [1.0], [-2.0]], transformed=True, generated=True)
        np.testing.assert_array_equal(values["x"], [-1.0, 1.0, -2.0])
        np.testing.assert_array_equal(values["twice"], [-2.0, 2.0, -4.0])
        np.testing.assert_array_equal(values["y"], [-1.0, np.nan, -2.0])


def test_rejection_has_the_models_words():
    program = 'parameters { real x; } model { if (x > 1) reject("x is ", x); x ~ std_normal(); }'
    posterior = stanadapt.Posterior(program)
    for function in (posterior.log_density, posterior.log_density_gradient):
        with pytest.raises(EvaluationError, match="x is 2"):
            function([2.0])


@pytest.mark.parametrize("x", [0.0, [0.0], [[0.0] * 10], [0.0] * 11])
def test_points_of_the_wrong_shape(x):
    posterior = model("eight_schools")
    for function in (posterior.log_density, posterior.log_density_gradient):
        with pytest.raises(ArgumentError, match=r"a point of shape \(10,\)"):
            function(x)
    if np.shape(x) != (1, 10):
        with pytest.raises(ArgumentError, match="dim=10"):
            posterior.constrain(x)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"s": [0.5, 0.5]}, "lack parameters.*b"),
        ({"s": [0.5, 0.5], "b": 1.0, "c": 1.0}, r"values\['c'\] is no parameter"),
        ({"s": [0.5, 0.5, 0.0], "b": 1.0}, "shape"),
        ({"s": [0.5, 0.5], "b": [1.0]}, "shape"),
        ({"s": [0.5, 0.4], "b": 1.0}, "outside the support.*sum"),
        ({"s": [0.5, 0.5], "b": -1.0}, "outside the support.*0"),
    ],
)
def test_values_that_cannot_be_unconstrained(values, message):
    posterior = stanadapt.Posterior("parameters { simplex[2] s; real<lower=0> b; } model { }")
    with pytest.raises(ArgumentError, match=rf"(?s){message}"):
        posterior.unconstrain(values)


def test_parameters_of_size_zero():
    program = "parameters { real x; vector[0] empty; } model { x ~ std_normal(); }"
    posterior = stanadapt.Posterior(program)
    assert list(posterior.parameters) == ["x"]
    np.testing.assert_array_equal(posterior.unconstrain({"x": 1.5}), [1.5])
    np.testing.assert_array_equal(posterior.unconstrain({"x": 1.5, "empty": []}), [1.5])


def test_seed_is_for_transformed_data():
    program = """transformed data { real m = normal_rng(0, 1); }
      parameters { real x; } model { x ~ normal(m, 1); }"""
    one, same, other = (stanadapt.Posterior(program, seed=seed) for seed in (1, 1, 2))
    x = np.array([0.3])
    gradients = [posterior.log_density_gradient(x)[1][0] for posterior in (one, same, other)]
    assert gradients[0] == gradients[1] != gradients[2]
    assert pickle.loads(pickle.dumps(other)).log_density_gradient(x)[1][0] == gradients[2]


def test_pickled_posterior_is_the_same_in_another_process(tmp_path):
    posterior = model("eight_schools")
    x = np.linspace(-1.0, 1.0, posterior.dim)
    path = tmp_path / "posterior.pickle"
    path.write_bytes(pickle.dumps(posterior))
    script = (
        "import pickle, sys, numpy as np\n"
        "posterior = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(repr(posterior.log_density(np.linspace(-1.0, 1.0, posterior.dim))))\n"
    )
    said = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert float(said.stdout) == posterior.log_density(x)


def test_pickled_library_is_the_same(gaussian_libraries):
    posterior = stanadapt.Posterior(gaussian_libraries["processes"], {"reject": 1})
    again = pickle.loads(pickle.dumps(posterior))
    assert again.log_density(np.ones(3)) == -1.5
    assert again.library == posterior.library
    with pytest.raises(EvaluationError, match="x is above one"):
        again.log_density([1.5, 0.0, 0.0])


def test_library_that_is_gone_cannot_be_unpickled(gaussian_libraries, tmp_path):
    path = tmp_path / "moved_model.so"
    path.write_bytes(gaussian_libraries["threads"].read_bytes())
    text = pickle.dumps(stanadapt.Posterior(path))
    path.unlink()
    with pytest.raises(ModelError, match=r"moved_model\.so can no longer be opened"):
        pickle.loads(text)


@pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")
def test_sampling_from_it():
    posterior = model("eight_schools")
    keywords = {"method": "mala", "chains": 1, "warmup": 50, "draws": 20, "seed": 1, "progress": False}
    one = stanadapt.sample(posterior, **keywords)
    two = stanadapt.sample(
        MODELS / "eight_schools" / "eight_schools.stan",
        MODELS / "eight_schools" / "eight_schools.json",
        **keywords,
    )
    np.testing.assert_array_equal(one["posterior"]["theta"], two["posterior"]["theta"])
    with pytest.raises(ArgumentError, match="opened with its data"):
        stanadapt.sample(posterior, {"J": 8}, **keywords)


@pytest.mark.parametrize("wrong", [3, None, 1.5, ["a.stan"]])
def test_what_is_no_model(wrong):
    with pytest.raises(ArgumentError, match="model="):
        stanadapt.Posterior(wrong)


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "model.txt").write_text("parameters { real x; }")
    (tmp_path / "empty.stan").write_text("\n")
    for path, message in (
        (tmp_path, "directory"),
        (tmp_path / "gone.stan", "no such file"),
        (tmp_path / "model.txt", r"\.stan"),
        (tmp_path / "empty.stan", "empty"),
    ):
        with pytest.raises(ModelError, match=message):
            stanadapt.Posterior(path)
    with pytest.raises(DataError, match="J"):
        stanadapt.Posterior(MODELS / "eight_schools" / "eight_schools.stan")
    with pytest.raises(ArgumentError, match="backend='nimble' is not allowed"):
        stanadapt.Posterior("parameters { real x; } model { }", backend="nimble")


def test_includes_are_found_beside_the_program(tmp_path):
    (tmp_path / "half.stan").write_text("real half(real x) { return x / 2; }\n")
    (tmp_path / "model.stan").write_text(
        "functions {\n#include half.stan\n}\nparameters { real x; } model { half(x) ~ std_normal(); }"
    )
    posterior = stanadapt.Posterior(tmp_path / "model.stan")
    assert posterior.log_density_gradient([2.0])[1][0] == pytest.approx(-0.5)
