"""The maximum of a density from several starts, against closed forms and CmdStan's documented output."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from programs import BERNOULLI, FLIPS
from stanadapt.errors import ArgumentError, FindingsWarning

MODELS = Path(__file__).parents[2] / "models"
NORMAL = """
data { int N; vector[N] y; }
parameters { real mu; real<lower=0> sigma; }
model { y ~ normal(mu, sigma); }
generated quantities {
  real z = normal_rng(mu, sigma);
  vector[N] ll;
  for (i in 1:N) ll[i] = normal_lpdf(y[i] | mu, sigma);
}
"""
MULTINOMIAL = """
data { int K; array[K] int n; }
parameters { simplex[K] t; }
model { n ~ multinomial(t); }
"""
TWO_MODES = """
parameters { real m; }
model { target += log_mix(0.3, normal_lpdf(m | -5, 1), normal_lpdf(m | 5, 1)); }
"""


def optimum(*arguments: Any, **keywords: Any) -> Any:
    """Of a model with which nothing is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return stanadapt.optimize(*arguments, seed=keywords.pop("seed", 1), **keywords)


def found(*arguments: Any, **keywords: Any) -> tuple[Any, list[Any]]:
    """The result, and the findings that it warns of."""
    with pytest.warns(FindingsWarning) as caught:
        idata = stanadapt.optimize(*arguments, seed=1, **keywords)
    warning = caught[0].message
    assert isinstance(warning, FindingsWarning)
    return idata, list(warning.findings)


def value(idata: Any, name: str) -> np.ndarray:
    return np.asarray(idata["posterior"][name].values[0, 0])


@pytest.mark.parametrize(("jacobian", "theta", "lp"), [(False, 0.2, -5.00402), (True, 0.25, -6.74802)])
def test_bernoulli_as_cmdstan_documents_it(jacobian: bool, theta: float, lp: float) -> None:
    """CmdStan User's Guide, "Optimization": theta = 0.2 with lp__ = -5.00402; 0.25 with the Jacobian."""
    idata = optimum(BERNOULLI, FLIPS, jacobian=jacobian)
    assert float(value(idata, "theta")) == pytest.approx(theta, abs=1e-6)
    assert float(idata["sample_stats"]["lp"].values[0, 0]) == pytest.approx(lp, abs=5e-6)
    assert idata.attrs["approximation"] == "optimum"
    assert idata.attrs["jacobian"] == int(jacobian)


def test_maximum_likelihood_of_a_normal_law() -> None:
    y = np.random.default_rng(1).normal(3.0, 2.0, 50)
    idata = optimum(NORMAL, {"N": 50, "y": y})
    assert float(value(idata, "mu")) == pytest.approx(y.mean(), abs=1e-7)
    assert float(value(idata, "sigma")) == pytest.approx(y.std(), rel=1e-7)
    # With the Jacobian sigma^-n becomes sigma^-(n - 1).
    moved = optimum(NORMAL, {"N": 50, "y": y}, jacobian=True)
    assert float(value(moved, "sigma")) == pytest.approx(y.std(ddof=1), rel=1e-7)


def test_the_curvature_gives_the_inverse_information() -> None:
    """Of mu and log sigma: sigma^2 / n and 1 / (2 n), and no covariance."""
    y = np.random.default_rng(2).normal(-1.0, 0.3, 40)
    idata = optimum(NORMAL, {"N": 40, "y": y})
    cov = idata["adaptation"]["preconditioner"].values[0]
    assert cov == pytest.approx(np.diag([y.var() / 40, 1.0 / 80]), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("jacobian", [False, True])
def test_a_simplex(jacobian: bool) -> None:
    """The frequencies; with Stan's Jacobian, which is the product of the entries, one more of each."""
    n = np.array([5, 3, 12])
    idata = optimum(MULTINOMIAL, {"K": 3, "n": n}, jacobian=jacobian)
    counts = n + int(jacobian)
    assert value(idata, "t") == pytest.approx(counts / counts.sum(), abs=1e-6)


def test_a_scale_with_a_lognormal_law() -> None:
    """The mode of the density is exp(m - s^2), and that of the log of the scale m."""
    code = "parameters { real<lower=0> s; } model { s ~ lognormal(0.4, 0.7); }"
    assert float(value(optimum(code), "s")) == pytest.approx(np.exp(0.4 - 0.49), rel=1e-6)
    assert float(value(optimum(code, jacobian=True), "s")) == pytest.approx(np.exp(0.4), rel=1e-6)


def test_conjugate_regression() -> None:
    """The posterior of the coefficients is a t law around the ridge estimate: so are its modes."""
    folder = MODELS / "linear_regression"
    data = stanadapt.Posterior(str(folder / "linear_regression.stan"), folder / "linear_regression.json").data
    X, y = np.asarray(data["X"]), np.asarray(data["y"])
    precision = X.T @ X + np.eye(X.shape[1]) / data["prior_sd"] ** 2
    beta = np.linalg.solve(precision, X.T @ y)
    idata = optimum(folder / "linear_regression.stan", data)
    assert value(idata, "beta") == pytest.approx(beta, rel=1e-6)
    rest = y @ y - beta @ precision @ beta
    shape = data["prior_shape"] + 0.5 * len(y) + 0.5 * len(beta)
    mode = (data["prior_scale"] + 0.5 * rest) / (shape + 1.0)
    assert float(value(idata, "sigma_sq")) == pytest.approx(mode, rel=1e-6)


def test_different_maxima_are_counted() -> None:
    idata, findings = found(TWO_MODES, starts=12)
    assert [finding.kind for finding in findings] == ["optima"]
    assert float(value(idata, "m")) == pytest.approx(5.0, abs=1e-3)
    own = idata["adaptation"]
    assert list(own["optimum_kind"].values) == ["maximum", "maximum"]
    assert own["optimum_count"].values.sum() == 12
    assert (own["optimum_count"].values > 0).all()
    assert idata["optima"]["m"].values == pytest.approx([5.0, -5.0], abs=1e-3)
    ends = own["climb_end"].values
    assert np.bincount(ends).tolist() == own["optimum_count"].values.tolist()
    gap = np.log(0.7 / 0.3)
    assert own["optimum_lp"].values[0] - own["optimum_lp"].values[1] == pytest.approx(gap, abs=1e-6)


@pytest.mark.parametrize(
    ("code", "data", "kind", "where"),
    [
        (BERNOULLI, {"N": 3, "y": [1, 1, 1]}, "edge", "theta"),
        ("parameters { real a; real b; } model { a + b ~ normal(1, 2); }", None, "flat", "a, b"),
        (MULTINOMIAL, {"K": 2, "n": [4, 0]}, "edge", "t.1"),
        ("parameters { real x; } model { target += -exp(-x); }", None, "edge", "x"),
    ],
    ids=["all successes", "a sum", "no count", "towards infinity"],
)
def test_a_density_without_one_maximum(code: str, data: Any, kind: str, where: str) -> None:
    idata, findings = found(code, data)
    assert [finding.kind for finding in findings] == [kind]
    assert idata.attrs["is_maximum"] == 0
    assert idata["adaptation"]["optimum_where"].values.tolist() == [where]
    assert idata["adaptation"]["optimum_count"].values.tolist() == [10]
    assert "preconditioner" not in idata["adaptation"]
    assert [str(each) for each in stanadapt.diagnose(idata)] == [str(each) for each in findings]


@pytest.mark.parametrize("jacobian", [False, True])
def test_the_density_of_a_centred_hierarchy_has_no_end(jacobian: bool) -> None:
    """It rises without end as tau tends to zero, and the schools' effects to their mean."""
    folder = MODELS / "eight_schools_centered"
    files = folder / "eight_schools_centered.stan", folder / "eight_schools_centered.json"
    idata, findings = found(*files, jacobian=jacobian)
    assert [finding.kind for finding in findings] == ["edge"]
    assert findings[0].variables == ("tau",)
    assert float(value(idata, "tau")) < 1e-6


def test_a_climb_that_may_not_go_on_is_not_called_a_maximum() -> None:
    """In so many dimensions Newton's method does not go on with it."""
    code = "parameters { vector[600] x; } model { x ~ student_t(4, 20, 3); }"
    idata, findings = found(code, max_iterations=1, starts=3)
    assert {finding.kind for finding in findings} == {"unfinished"}
    assert idata.attrs["is_maximum"] == 0


def test_wide_posteriors_far_from_zero_are_no_edges() -> None:
    code = "parameters { real m; vector[600] x; } model { m ~ normal(1e6, 1e4); x ~ normal(20, 3); }"
    idata = optimum(code, starts=2)
    assert float(value(idata, "m")) == pytest.approx(1e6, rel=1e-3)


def test_points_without_a_density_do_not_end_a_climb() -> None:
    """The support ends in front of the maximum of what is climbed at first."""
    code = """
    parameters { real x; }
    model { if (x > 1.5) reject("too far"); x ~ normal(1.4, 0.01); }
    """
    idata = optimum(code, inits=np.array([[-40.0], [0.0]]), starts=2)
    assert float(value(idata, "x")) == pytest.approx(1.4, abs=1e-6)


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (found(TWO_MODES, starts=4)[0] for _ in range(2))
    for name in ("climb_start", "climb_lp", "optimum_x"):
        assert np.array_equal(first["adaptation"][name].values, second["adaptation"][name].values)


def test_generated_quantities_and_labels_come_as_from_sample() -> None:
    y = np.arange(4.0)
    idata = optimum(
        NORMAL,
        {"N": 4, "y": y},
        dims={"y": ["row"]},
        coords={"row": list("abcd")},
        log_likelihood={"y": "ll"},
    )
    assert idata["log_likelihood"]["y"].dims == ("chain", "draw", "row")
    assert idata["posterior"]["z"].shape == (1, 1)
    assert idata["observed_data"]["y"].values.tolist() == y.tolist()
    assert idata["unconstrained_posterior"]["x"].shape == (1, 1, 2)


def test_the_result_goes_through_a_file(tmp_path: Path) -> None:
    from stanadapt.result.files import read, write

    idata, findings = found(TWO_MODES)
    write(idata, tmp_path / "fit.nc")
    again = read(str(tmp_path / "fit.nc"))
    assert [str(each) for each in stanadapt.diagnose(again)] == [str(each) for each in findings]
    assert again["optima"]["m"].values.tolist() == idata["optima"]["m"].values.tolist()


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"starts": 0}, "starts=0 is not allowed"),
        ({"jacobian": 1}, "jacobian=1 is not allowed"),
        ({"max_iterations": 1.5}, "max_iterations=1.5"),
        ({"inits": np.zeros((2, 1)), "starts": 3}, "inits has shape"),
        ({"seed": -1}, "seed=-1"),
        ({"backend": "stan"}, "backend='stan'"),
        ({"log_likelihood": "nothing"}, "log_likelihood"),
    ],
)
def test_arguments_are_checked(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        stanadapt.optimize(TWO_MODES, **keywords)


def test_models_that_cannot_be_climbed_are_refused() -> None:
    without = stanadapt.Target.from_python(lambda x: -float(x @ x), 1)
    with pytest.raises(ArgumentError, match="needs a gradient"):
        stanadapt.optimize(without)
    with pytest.raises(ArgumentError, match="no parameters"):
        stanadapt.optimize("generated quantities { real x = 1; }")
    with pytest.raises(ArgumentError, match="only estimated"):
        stanadapt.optimize(stanadapt.Target.from_python(lambda x, rng: 0.0, 1, noisy=True))


def test_an_exception_of_a_python_target_comes_through() -> None:
    def density(x: np.ndarray) -> float:
        if x[0] > 0.5:
            raise ZeroDivisionError("in the user's own code")
        return float(x[0])

    target = stanadapt.Target.from_python(density, 1, lambda x: np.ones(1))
    with pytest.raises(ZeroDivisionError, match="user's own code"):
        stanadapt.optimize(target, seed=1)
