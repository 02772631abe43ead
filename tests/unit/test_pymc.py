"""PyMC models as targets: densities, names, values, data that change, and what is refused."""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import warnings

import cloudpickle
import numba
import numpy as np
import pytest
from scipy import sparse, stats

import stanadapt
from stanadapt import Posterior, Target
from stanadapt.errors import ArgumentError, DataError, InitializationError, ModelError, StanAdaptWarning
from stanadapt.model.backends.pymc import calls, philox
from stanadapt.model.backends.python import LOG_DENSITY

pm = pytest.importorskip("pymc", reason="PyMC is not installed: pip install 'stanadapt[pymc]'")

import pytensor  # noqa: E402
import pytensor.sparse  # noqa: E402
import pytensor.tensor as pt  # noqa: E402

from pymc_cases import (  # noqa: E402
    EFFECTS,
    ERRORS,
    SCHOOLS,
    Blind,
    Twice,
    normal,
    own_op,
    schools,
    value_point,
)
from stanadapt.model.backends.pymc import pymc_functions as functions  # noqa: E402
from stanadapt.model.backends.pymc.pymc_graphs import Graphs  # noqa: E402

X = np.linspace(-1.0, 1.0, 10)  # a point of the schools
RUN = {"chains": 2, "warmup": 50, "draws": 20, "seed": 3, "progress": False, "method": "mala"}


def no_compiling(monkeypatch):
    for name in ("_compile_density", "_compile_rows"):
        monkeypatch.setattr(functions, name, lambda *_: pytest.fail("it was compiled again"))


def ready(model):
    target = Target.from_pymc(model)
    target.compile(lambda _: None)
    return target


def reference(model):
    """PyMC's own log density and gradient at a point."""
    value = model.compile_logp(mode="FAST_COMPILE")
    score = model.compile_dlogp(mode="FAST_COMPILE")
    return lambda x: (float(value(value_point(model, x))), score(value_point(model, x)))


def test_density_and_gradient_are_pymcs_own():
    model = schools()
    target = Target.from_pymc(model)
    for x in (X, np.zeros(10), 3.0 * X):
        value, score = target.log_density_gradient(x)
        expected, slopes = reference(model)(x)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(score, slopes, rtol=1e-9)
        assert target.log_density(x) == pytest.approx(expected, rel=1e-12)


def test_names_and_values():
    posterior = Posterior(schools())
    assert posterior.names == ["mu", "tau", *[f"theta_trans.{i + 1}" for i in range(8)]]
    assert posterior.unconstrained_names == posterior.names
    assert list(posterior.transformed_parameters) == ["theta"]
    assert not posterior.generated_quantities
    values = posterior.constrain(np.stack([X, 2.0 * X]), transformed=True)
    assert values["tau"] == pytest.approx(np.exp([X[1], 2.0 * X[1]]))
    theta = values["mu"][:, None] + values["tau"][:, None] * values["theta_trans"]
    np.testing.assert_allclose(values["theta"], theta)


def test_entries_of_matrices_are_in_their_places():
    """Read off the graphs, without numba's compiler."""
    with pm.Model() as model:
        matrix = pm.Normal("matrix", shape=(2, 3))
        pm.Deterministic("turned", matrix.T)
        pm.Dirichlet("shares", np.ones((2, 3)))
    target = Target.from_pymc(model)
    assert target.unconstrained_names()[:3] == ["matrix.1.1", "matrix.1.2", "matrix.1.3"]
    assert target.unconstrained_names()[6:] == [f"shares.{i}.{j}" for i in (1, 2) for j in (1, 2)]
    assert target.names(transformed=False, generated=False)[:3] == ["matrix.1.1", "matrix.2.1", "matrix.1.2"]
    program, _ = target._graphs.values_program(())
    (row,) = functions.look(target._graphs, program)(X)
    described = Posterior(target).variables
    values = {name: variable.take(row) for name, variable in described.items()}
    np.testing.assert_array_equal(values["matrix"], X[:6].reshape(2, 3))
    np.testing.assert_array_equal(values["turned"], X[:6].reshape(2, 3).T)
    np.testing.assert_allclose(values["shares"].sum(axis=1), 1.0)
    np.testing.assert_allclose(target.unconstrain(values), X)
    flat = row[: len(Posterior(target).names)]
    np.testing.assert_allclose(target.unconstrain_flat(flat), X)


def test_values_outside_of_the_support_are_told():
    posterior = Posterior(schools())
    inside = {"mu": 1.0, "tau": 2.0, "theta_trans": np.arange(8.0)}
    np.testing.assert_allclose(posterior.unconstrain(inside), [1.0, np.log(2.0), *range(8)])
    with pytest.raises(ArgumentError, match=r"tau=-2.0 is not in its support"):
        posterior.unconstrain(inside | {"tau": -2.0})
    with pytest.raises(ArgumentError, match=r"inits: on the boundary of the support in tau"):
        stanadapt.sample(posterior, inits=inside | {"tau": 0.0}, **RUN)


def test_other_data_and_a_model_made_again_are_not_compiled(monkeypatch):
    model = normal()
    before = Target.from_pymc(model)
    x = np.array([0.3])
    kept = before.log_density(x)
    before.writer(1)
    no_compiling(monkeypatch)
    assert Target.from_pymc(normal()).log_density(x) == kept
    with model:
        pm.set_data({"data": [0.5, -0.5, 1.0, 7.0]})
    after = Target.from_pymc(model)
    assert after.log_density_gradient(x)[0] == pytest.approx(reference(model)(x)[0])
    assert after.log_density(x) != kept
    assert before.log_density(x) == kept  # a target has the data that it was made with
    np.testing.assert_array_equal(after.data["y"], [0.5, -0.5, 1.0, 7.0])


def test_another_prior_is_another_model():
    keys = [Graphs(normal(prior)).key for prior in (1.0, 1.0, 2.0)]
    assert keys[0] == keys[1] != keys[2]
    texts = [Graphs(normal(prior)).identity() for prior in (1.0, 1.0, 2.0)]
    assert texts[0] == texts[1] != texts[2]


def sparse_columns(scale):
    matrix = sparse.csr_matrix(scale * np.eye(3))
    with pm.Model() as model:
        b = pm.Normal("b", shape=(3, 1))
        mean = pytensor.sparse.dot(pytensor.sparse.as_sparse_variable(matrix), b)
        pm.Normal("y", mean, 1.0, observed=np.ones((3, 1)))
    return model


def recursion(steps_back):
    with pm.Model() as model:
        rate = pm.Normal("rate")
        levels = pytensor.scan(
            lambda level, factor: factor * level + 1.0,
            outputs_info=[pt.constant(1.0, dtype="float64")],
            non_sequences=[rate],
            n_steps=5,
            truncate_gradient=steps_back,
            return_updates=False,
        )
        pm.Normal("y", levels, 1.0, observed=np.ones(5))
    return model


@pytest.mark.parametrize(("make", "given"), [(sparse_columns, (1.0, 7.0)), (recursion, (-1, 2))])
def test_models_that_look_alike_are_not_taken_for_one_another(make, given):
    one, other, again = (Graphs(make(value)) for value in (*given, given[0]))
    assert one.key == again.key != other.key
    assert one.identity() == again.identity() != other.identity()


def test_what_data_make_is_made_once():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        y = pm.Data("data", rng.poisson(2.0, 30))
        pm.Poisson("y", pm.math.exp(pm.Normal("a")), observed=y)
    graphs = Graphs(model)
    program = graphs.density_program()
    assert "Gammaln" in " ".join(map(str, program.made))
    assert "Gammaln" not in pytensor.printing.debugprint(program.outputs, file="str")
    made = functions._make(
        functions._function(graphs, program.given, program.made, "FAST_COMPILE"), graphs.data
    )
    x = np.array([0.4])
    value, score = functions.look(graphs, program)(x, *made)
    expected, slopes = reference(model)(x)
    assert float(value) == pytest.approx(expected)
    np.testing.assert_allclose(score, slopes)


def test_likelihood_and_new_data():
    target = Target.from_pymc(schools()).with_quantities(["y"], ["y"])
    posterior = Posterior(target)
    assert list(posterior.generated_quantities) == ["log_likelihood:y", "posterior_predictive:y"]
    points = np.tile(X, (4000, 1))
    values = np.empty((4000, posterior.n_values))
    write = target.writer(5)
    write(points, values, np.arange(4000))
    found = {name: variable.take(values) for name, variable in posterior.variables.items()}
    expected = stats.norm.logpdf(EFFECTS, found["theta"][0], ERRORS)
    np.testing.assert_allclose(found["log_likelihood:y"][7], expected)
    away = (found["posterior_predictive:y"] - found["theta"]) / ERRORS
    assert stats.kstest(away.ravel(), "norm").pvalue > 1e-3
    assert abs(stats.pearsonr(away[1:, 0], away[:-1, 0]).statistic) < 0.06  # rows are independent
    part = np.empty((3, posterior.n_values))
    write(points[:3], part, np.array([10, 3, 999]))  # whatever was written before
    np.testing.assert_array_equal(part, values[[10, 3, 999]])
    other = np.empty_like(part)
    target.writer(6)(points[:3], other, np.array([10, 3, 999]))
    assert not np.any(other[:, -8:] == part[:, -8:])


def test_new_data_that_nothing_can_draw():
    def logp(value, mu):
        return -0.5 * (value - mu) ** 2

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("mu"), logp=logp, observed=np.zeros(3))
    with pytest.raises(ModelError, match=r"posterior_predictive of y cannot be evaluated: .*CustomDist"):
        stanadapt.sample(model, posterior_predictive="y", **RUN)


def test_pickles_hold_the_data_of_the_target():
    model = normal()
    posterior = Posterior(model)
    with model:
        pm.set_data({"data": [50.0, 60.0, 70.0]})
    x = np.array([0.3])
    again = pickle.loads(cloudpickle.dumps(posterior))
    assert again.log_density(x) == posterior.log_density(x)
    np.testing.assert_array_equal(again.data["y"], [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(model["data"].get_value(), [50.0, 60.0, 70.0])
    asked = posterior.with_quantities(["y"], [])  # asked for after the data have changed
    np.testing.assert_array_equal(asked.data["y"], [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(asked.model.data["y"], [1.0, 2.0, 4.0])


def test_an_op_that_numba_does_not_know():
    with pytest.warns(
        StanAdaptWarning, match=r"numba cannot compile it \(Twice.* has no numba form\)"
    ) as told:
        target = ready(own_op(Twice()))
    assert not target.thread_safe
    assert len([each for each in told if each.category is StanAdaptWarning]) == 1
    x = np.array([0.2, -0.7])
    expected = np.sum(stats.norm.logpdf(x)) + np.sum(stats.norm.logpdf([1.0, 2.0], 2.0 * x))
    assert target.log_density(x) == pytest.approx(expected)
    np.testing.assert_allclose(target.log_density_gradient(x)[1], -x + 2.0 * (np.array([1.0, 2.0]) - 2.0 * x))
    values = Posterior(target).constrain(x)
    np.testing.assert_array_equal(values["mu"], x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StanAdaptWarning)  # a worker process says nothing
        assert pickle.loads(cloudpickle.dumps(target)).log_density(x) == pytest.approx(expected)


def test_an_op_without_a_gradient():
    model = own_op(Blind())
    with (
        pytest.warns(StanAdaptWarning, match="numba"),
        pytest.raises(ArgumentError, match=r"needs a gradient"),
    ):
        stanadapt.sample(model, **RUN)


def discrete():
    with pm.Model() as model:
        pm.Normal("y", pm.Poisson("k", 3.0) + pm.Bernoulli("b", 0.5), observed=1.0)
    return model


def single_precision():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        pm.Normal("a")
    return model


def dotted():
    with pm.Model() as model:
        pm.Normal("a.b")
    return model


def random_density():
    with pm.Model() as model:
        batch = pm.Minibatch(np.arange(20.0), batch_size=5)
        pm.Normal("y", pm.Normal("a"), observed=batch, total_size=20)
    return model


def shapes_that_move():
    with pm.Model() as model:
        a = pm.Normal("a", shape=3)
        pm.Deterministic("above", a[a > 0.0])
        pm.Deterministic("below", a[a <= 0.0])  # together they always have three entries
    return model


def shapes_that_do_not_fit():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a", shape=3), 1.0, observed=np.ones(4))
    return model


def loose_random_variable():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a") + pm.Normal.dist(), 1.0, observed=1.0)
    return model


def complex_values():
    with pm.Model() as model:
        pm.Deterministic("z", pt.complex(pm.Normal("a"), pm.Normal("b")))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (shapes_that_move, r"the shape of above depends on the values of parameters \(\(0,\) or"),
        (shapes_that_do_not_fit, r"PyMC cannot evaluate it: .*\(4,\), \(3,\)"),
        (loose_random_variable, "PyMC cannot evaluate it: Random variables detected"),
        (complex_values, "its deterministic z is complex"),
        (pm.Model, "no free variables"),
        (discrete, "its variables k, b are discrete"),
        (single_precision, "its variable a is float32, and float64 is needed"),
        (dotted, "'a.b' has a dot"),
        (random_density, "draws random numbers"),
    ],
)
def test_models_that_are_refused(make, message):
    with pytest.raises((ModelError, ArgumentError), match=message) as caught:
        stanadapt.sample(make(), **RUN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [None, 3, pm.Model, "a"])
def test_what_is_no_model(given):
    with pytest.raises(ArgumentError, match=r"model must be a pymc.Model"):
        Target.from_pymc(given)


def test_data_beside_a_model_are_refused():
    with pytest.raises(DataError, match=r"pm\.set_data"):
        stanadapt.sample(normal(), {"data": [1.0]}, **RUN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_likelihood": "z"}, r"log_likelihood='z'.*one of y"),
        ({"posterior_predictive": ["mu"]}, r"posterior_predictive='mu'.*one of y"),
        ({"method": "nuts"}, "needs a Stan program"),
        ({"coords": {"school": [1, 2]}}, "coords.*length 8"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        stanadapt.sample(schools(), **(RUN | arguments))


def test_a_start_without_a_density_names_the_term():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Potential("broken", pt.log(-pt.exp(mu)))
    with pytest.raises(InitializationError, match=r"log density is nan: .*broken \(nan\)"):
        stanadapt.sample(model, **RUN)


def test_data_that_do_not_fit_one_another_are_told_in_a_sentence():
    with pm.Model() as model:
        x, y = pm.Data("x", np.ones(3)), pm.Data("y_data", np.ones(3))
        pm.Normal("y", pm.Normal("mu") * x, 1.0, observed=y)
        pm.set_data({"x": np.ones(5)})
    with pytest.raises(InitializationError, match=r"nan: .*\(3,\).*\(5,\)") as caught:
        stanadapt.sample(model, **RUN)
    assert len(str(caught.value)) < 300


def test_a_gradient_that_is_not_finite_is_told():
    with pm.Model() as model:
        pm.Potential("root", -pt.sqrt(pt.abs(pm.Normal("mu"))))
    with pytest.raises(InitializationError, match=r"gradient is not finite in mu"):
        stanadapt.sample(model, inits=np.zeros((2, 1)), **RUN)


def test_labels_are_the_models():
    target = Target.from_pymc(schools())
    assert list(target.coords["school"]) == SCHOOLS
    assert target.dims["theta"] == ["school"]
    np.testing.assert_array_equal(target.data["y"], EFFECTS)
    np.testing.assert_array_equal(target.data["sigma"], ERRORS)
    assert target.modelled == {"y"}


def test_streams_depend_on_the_iteration_alone():
    assert philox.is_known_memory()  # of the NumPy that runs here
    streams = philox.PhiloxStreams(7, 2)

    def numbers(iteration, begin):
        begin(iteration)
        return [generator.normal(size=3).tolist() for generator in streams.generators]

    fast = {i: numbers(i, lambda i: philox.begin(streams.addresses, i)) for i in (5, 0, 2**40)}
    assert fast == {i: numbers(i, streams.begin_slowly) for i in (0, 2**40, 5)}
    rows = [row for pair in fast.values() for row in pair]
    assert len({tuple(row) for row in rows}) == 6


def test_a_call_says_whether_it_has_returned():
    @numba.njit
    def root(x):
        if x[0] < 0.0:
            raise ValueError("negative")
        return np.sqrt(x)

    held = {"root": calls.at_address(root, [calls.array_type("float64", 1)]), "carray": numba.carray}
    lines = [
        "def call(x):",
        "    is_fine, found = root((carray(x, (1,)),))",
        "    return found[0] if is_fine else -1.0",
    ]
    call = calls.compile_text(lines, held, LOG_DENSITY).ctypes
    assert [call(ctypes.byref(ctypes.c_double(value))) for value in (9.0, -9.0)] == [3.0, -1.0]


def test_blas_has_one_thread_while_chains_run(monkeypatch):
    """The last bits of what it computes depend on how many it has, and draws must not."""
    entered = []

    def limit():
        entered.append(True)
        return contextlib.nullcontext()

    monkeypatch.setattr("stanadapt.run.workers.turns.one_thread", limit)
    with pm.Model() as model:
        pm.Normal("x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stanadapt.sample(model, method="rwm", chains=1, warmup=20, draws=20, seed=1, progress=False)
    assert entered
