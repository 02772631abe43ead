"""Targets from Python callables and from compiled ones."""

from __future__ import annotations

import math
import pickle
import warnings

import numba
import numpy as np
import pytest

import stanadapt
from stanadapt import Target
from stanadapt.errors import ArgumentError, DataError, FindingsWarning, InitializationError
from stanadapt.model.backends.python import LOG_DENSITY, LOG_DENSITY_GRADIENT
from stanadapt.target import ProgramGradient, log_density_gradient

# One worker: starting processes takes a second or two. See test_python_processes.py for these.
RUN = {"chains": 2, "warmup": 60, "draws": 40, "seed": 3, "progress": False, "workers": 1}


def log_density(x):
    return -0.5 * float(x @ x)


def gradient(x):
    return -x


@numba.cfunc(LOG_DENSITY)
def compiled_log_density(x):
    total = 0.0
    for i in range(3):
        total -= 0.5 * x[i] * x[i]
    return total


@numba.cfunc(LOG_DENSITY_GRADIENT)
def compiled_gradient(x, score):
    total = 0.0
    for i in range(3):
        total -= 0.5 * x[i] * x[i]
        score[i] = -x[i]
    return total


@numba.cfunc(LOG_DENSITY)
def half_line(x):
    return -x[0] if x[0] > 0.0 else -math.inf


@numba.cfunc(LOG_DENSITY_GRADIENT)
def compiled_half_line(x, score):
    score[0] = -1.0 if x[0] < 9.0 else math.nan
    return -x[0] if x[0] > 0.0 else -math.inf


def sample(target, **keywords):
    """A short run, without the findings that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(target, **(RUN | keywords))


def python_target():
    return Target.from_python(log_density, 3, gradient)


def compiled_target():
    return Target.from_python(compiled_log_density, 3, compiled_gradient)


@pytest.mark.parametrize("make", [python_target, compiled_target])
def test_values_and_gradients(make):
    posterior = stanadapt.Posterior(make())
    x = np.array([1.0, -2.0, 0.5])
    value, score = posterior.log_density_gradient(x)
    assert posterior.log_density(x) == value == pytest.approx(-2.625)
    np.testing.assert_array_equal(score, -x)


@pytest.mark.parametrize("method", ["rwm", "mala"])
def test_compiled_and_python_give_the_same_draws(method):
    slow, fast = sample(python_target(), method=method), sample(compiled_target(), method=method)
    # The first dot product is BLAS's and the second a loop: they may differ in the last bit.
    np.testing.assert_allclose(slow["posterior"]["x"], fast["posterior"]["x"], rtol=1e-9)


def test_addresses_do_as_well():
    target = Target.from_python(compiled_log_density.address, 3, compiled_gradient.address)
    np.testing.assert_array_equal(
        sample(target)["posterior"]["x"], sample(compiled_target())["posterior"]["x"]
    )


def test_compiled_callables_never_enter_python(monkeypatch):
    target = compiled_target()
    for name in ("_evaluate_users_functions", "_checked_value", "_checked_gradient"):
        monkeypatch.setattr(target, name, None)  # calling it would be a TypeError
    assert np.all(np.isfinite(sample(target)["posterior"]["x"]))


def test_mean_and_variance_are_right():
    idata = sample(compiled_target(), method="mala", warmup=1000, draws=20_000)
    x = idata["posterior"]["x"]
    np.testing.assert_allclose(x.mean(("chain", "draw")), 0.0, atol=0.05)
    np.testing.assert_allclose(x.var(("chain", "draw")), 1.0, atol=0.07)


@pytest.mark.parametrize("where", ["log_density", "gradient"])
def test_exception_of_a_callable_ends_the_run_with_it(where):
    error = ZeroDivisionError("in a user's function")
    calls = 0

    def failing(x):
        nonlocal calls
        calls += 1
        if calls > 300:
            raise error
        return log_density(x) if where == "log_density" else gradient(x)

    functions = {"log_density": log_density, "gradient": gradient} | {where: failing}
    target = Target.from_python(functions["log_density"], 3, functions["gradient"], threads=True)
    with pytest.raises(ZeroDivisionError) as caught:
        sample(target, chains=4, workers=2, draws=10_000)
    assert caught.value is error
    assert [note[:-2] for note in error.__notes__] == ["It was raised in chain "]
    assert calls < 300 + 4 * 1000  # the other chains end too
    calls = -100_000
    assert np.all(np.isfinite(sample(target)["posterior"]["x"]))  # nothing is left of it


def test_exception_at_the_start_ends_the_run_with_it():
    def failing(x):
        raise LookupError("at once")

    with pytest.raises(LookupError, match="at once"):
        sample(Target.from_python(failing, 2), method="rwm")


def test_minus_infinity_is_a_rejection_and_no_failure():
    def bounded(x):
        return -x[0] if x[0] > 0.0 else -np.inf

    for function in (bounded, half_line):
        idata = sample(Target.from_python(function, 1), method="rwm", draws=500)
        assert np.all(idata["posterior"]["x"] > 0.0)
        assert np.any(idata["sample_stats"]["acceptance_rate"] == 0.0)
        assert int(idata["adaptation"]["failures"].sum()) == 0


def test_nan_is_a_failure_that_is_reported():
    def broken(x):
        return log_density(x) if x[0] < 1.0 else np.nan

    idata = sample(Target.from_python(broken, 1), method="rwm", draws=500)
    assert int(idata["adaptation"]["failures"].sum()) > 0
    assert "the log density is nan" in set(idata["adaptation"]["first_failure"].values)
    assert "failures" in {finding.kind for finding in stanadapt.diagnose(idata)}


def test_no_starting_point_says_why():
    with pytest.raises(InitializationError, match="the log density is -inf"):
        sample(Target.from_python(lambda x: -np.inf, 1), method="rwm")


@pytest.mark.parametrize("wrong", [lambda x: -x[:-1], lambda x: -np.append(x, 1.0), lambda x: 0.0])
def test_gradient_of_the_wrong_shape(wrong):
    target = Target.from_python(log_density, 3, wrong)
    with pytest.raises(ArgumentError, match=r"gradient returned shape \(.*\); it must be \(3,\)"):
        sample(target)


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: None, lambda x: "1.0", lambda x: 1j])
def test_value_that_is_no_number(wrong):
    with pytest.raises(ArgumentError, match=r"value of log_density.*one real number"):
        sample(Target.from_python(wrong, 2), method="rwm")


def test_callables_cannot_change_the_chain():
    def careless(x):
        value = log_density(x)
        x[:] = 1e6
        return value

    kept = sample(Target.from_python(log_density, 3), method="rwm")["posterior"]["x"]
    np.testing.assert_array_equal(
        sample(Target.from_python(careless, 3), method="rwm")["posterior"]["x"], kept
    )


def test_a_density_that_changes_its_point_leaves_the_gradient_alone():
    def careless(x):
        value = log_density(x)
        x *= 1e6
        return value

    def careless_gradient(x):
        score = gradient(x)
        x[:] = np.nan
        return score

    target = Target.from_python(careless, 3, careless_gradient)
    point = np.array([0.5, -1.0, 2.0])
    np.testing.assert_array_equal(target.log_density_gradient(point)[1], gradient(point))
    kept = sample(Target.from_python(log_density, 3, gradient), method="mala")
    found = sample(target, method="mala")
    for group, name in (("posterior", "x"), ("sample_stats", "acceptance_rate")):
        np.testing.assert_array_equal(found[group][name], kept[group][name])


def test_methods_that_need_a_gradient_refuse():
    target = Target.from_python(log_density, 3)
    with pytest.raises(ArgumentError, match=r"method='mala' needs a gradient.*rwm"):
        sample(target, method="mala")
    for function in (log_density, compiled_log_density):
        with pytest.raises(ArgumentError, match="no gradient"):
            stanadapt.Posterior(Target.from_python(function, 3)).log_density_gradient(np.zeros(3))
    assert sample(target, method="rwm")["posterior"]["x"].shape == (2, 40, 3)


@pytest.mark.parametrize(
    ("names", "dim", "shapes"),
    [
        (None, 3, {"x": (3,)}),
        (None, 1, {"x": (1,)}),
        ("beta", 2, {"beta": (2,)}),
        ("beta", 1, {"beta": (1,)}),
        (["beta"], 1, {"beta": ()}),
        (["a", "b"], 2, {"a": (), "b": ()}),
        (["a", "b.1", "b.2"], 3, {"a": (), "b": (2,)}),
        (["b.2", "c"], 2, {"b.2": (), "c": ()}),
        (["b", "b.1"], 2, {"b": (), "b.1": ()}),
    ],
)
def test_names(names, dim, shapes):
    posterior = stanadapt.Posterior(Target.from_python(log_density, dim, gradient, names=names))
    assert {name: variable.shape for name, variable in posterior.variables.items()} == shapes
    values = posterior.constrain(np.arange(float(dim)))
    assert np.concatenate([np.ravel(value) for value in values.values()]).tolist() == list(range(dim))


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["a", "a"],
        ["a", ""],
        ["a", 1],
        ["a", "b", "c"],
        5,
        2.5,
        b"ab",
        {"a": 1, "b": 2},
        "a/b",
        ".",
        ["a", ".."],
        ["a", "b\0"],
        ["a\n", "b"],
        ["a", "\ud800"],
    ],
)
def test_names_that_do_not_fit(names):
    with pytest.raises(ArgumentError, match="names="):
        Target.from_python(log_density, 2, names=names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 2), "log_density=None is not allowed"),
        ((log_density, 0), "dim=0 is not allowed"),
        ((log_density, 10**9), "dim=1000000000 is not allowed: .*GiB to open"),
        ((log_density, 10**9, None, "x" * 3), "dim=1000000000 is not allowed"),
        ((log_density, 2.0), "dim=2.0 is not allowed"),
        ((log_density, 2, 3.5), "gradient=3.5 is not allowed"),
        ((log_density, 3, compiled_gradient), "both compiled"),
        ((compiled_log_density, 3, gradient), "both compiled"),
        ((compiled_gradient, 3), "log_density is a cfunc of 2 arguments.*LOG_DENSITY"),
        ((compiled_log_density, 3, compiled_log_density), "gradient is a cfunc of 1 .*LOG_DENSITY_GRADIENT"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Target.from_python(*arguments)


def test_data_are_refused():
    with pytest.raises(DataError, match="Python target"):
        stanadapt.sample(python_target(), {"N": 1}, **RUN)


def test_starting_points_by_name():
    target = Target.from_python(log_density, 3, gradient, names=["a", "b.1", "b.2"])
    idata = sample(target, inits={"a": 1.0, "b": [2.0, 3.0]})
    np.testing.assert_array_equal(idata["adaptation"]["start"], [[1.0, 2.0, 3.0]] * 2)


def test_pickling():
    posterior = pickle.loads(pickle.dumps(stanadapt.Posterior(python_target())))
    assert posterior.log_density(np.ones(3)) == -1.5
    assert sample(posterior)["posterior"]["x"].shape == (2, 40, 3)
    with pytest.raises(TypeError, match="use threads"):
        pickle.dumps(stanadapt.Posterior(compiled_target()))


def test_record_of_the_run():
    first, second = sample(python_target()), sample(python_target())
    assert first["posterior"].attrs["model_hash"] == second["posterior"].attrs["model_hash"]
    assert first["posterior"].attrs["backend"] == "Python"
    assert sample(compiled_target())["posterior"].attrs["backend"] == f"numba {numba.__version__}"


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_gradient_without_a_map_is_that_of_kernels(order):
    target = Target.from_python(compiled_log_density, 3, compiled_gradient)
    native = target.target()
    points = np.array(np.random.default_rng(1).normal(size=(5, 3)), order=order)
    scores, score = np.empty_like(points), np.empty(3)
    found = ProgramGradient(native).at_all(points, scores)
    for x, value, gradient in zip(points, found, scores, strict=True):
        assert log_density_gradient(native, np.ascontiguousarray(x), score) == value
        np.testing.assert_array_equal(gradient, score)
        np.testing.assert_array_equal(gradient, -x)
        apart = np.zeros(6)
        assert ProgramGradient(native)(x, apart[::2]) == value
        np.testing.assert_array_equal(apart, np.column_stack((score, np.zeros(3))).ravel())


def test_a_gradient_that_is_not_there_has_no_density_and_is_not_counted():
    target, score = Target.from_python(half_line, 1, compiled_half_line), np.empty(1)
    native = target.target()
    gradient = ProgramGradient(native)
    assert [gradient(np.array([x]), score) for x in (2.0, -1.0, 10.0)] == [-2.0, -math.inf, -math.inf]
    assert native.failures.total[0] == 0
