"""Log densities in JAX: by way of C and of Python, in their own names, and what is refused."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import stanadapt
from stanadapt import Target
from stanadapt.errors import ArgumentError, FindingsWarning, InitializationError, StoreError
from stanadapt.result.container import datasets
from stanadapt.target import log_density, log_density_gradient

jax = pytest.importorskip("jax", reason="JAX is not installed; stanadapt[jax] brings it")
jax.config.update("jax_enable_x64", True)
from jax import numpy as jnp  # noqa: E402

from stanadapt.model.backends.jax import jax_exchange  # noqa: E402

RUN = {"method": "mala", "chains": 2, "warmup": 60, "draws": 40, "seed": 3, "progress": False, "workers": 1}
EXAMPLE = {"b": np.zeros((2, 3)), "a": 0.0}


def density(p):
    """It has another value and gradient at every entry."""
    weights = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return -0.5 * jnp.sum(weights * (p["b"] - weights) ** 2) - jnp.cosh(p["a"] - 7.0)


def normal(x):
    return -0.5 * jnp.sum(x**2)


@pytest.fixture(params=["by way of C", "by way of Python"])
def route(request, monkeypatch):
    if request.param == "by way of Python":
        monkeypatch.setattr(jax_exchange, "is_at_hand", lambda: False)
    elif not jax_exchange.is_at_hand():
        pytest.skip("this system has no semaphores in memory")
    return request.param


def sample(model, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, **(RUN | keywords))


def assert_same(one, other):
    for group in ("posterior", "sample_stats"):
        ones, others = datasets(one)[group], datasets(other)[group]
        assert set(ones) == set(others)
        for name in ones:
            np.testing.assert_array_equal(ones[name], others[name], err_msg=name)


def test_kernels_see_jax_values_and_gradients(route):
    target = Target.from_jax(density, EXAMPLE)
    native, score = target.target(), np.empty(7)
    for x in np.random.default_rng(1).normal(size=(20, 7)):
        p = {"a": jnp.array(x[0]), "b": jnp.array(x[1:].reshape(3, 2).T)}
        value, gradient = jax.value_and_grad(density)(p)
        expected = np.concatenate([[gradient["a"]], np.asarray(gradient["b"]).T.ravel()])
        assert log_density_gradient(native, x, score) == pytest.approx(float(value), rel=1e-13)
        np.testing.assert_allclose(score, expected, rtol=1e-12)
        assert log_density(native, x) == pytest.approx(float(value), rel=1e-13)
        again, gradient = target.log_density_gradient(x)
        assert again == pytest.approx(float(value), rel=1e-13)
        np.testing.assert_allclose(gradient, expected, rtol=1e-12)
        assert target.log_density(x) == pytest.approx(float(value), rel=1e-13)
    target.raise_pending()
    assert native.failures.total[0] == 0


def test_a_point_outside_of_the_support_is_no_failure(route):
    target = Target.from_jax(lambda x: jnp.where(x[0] > 0.0, -x[0], -jnp.inf), 1)
    native, score = target.target(), np.empty(1)
    assert log_density_gradient(native, np.array([-1.0]), score) == -np.inf
    assert log_density_gradient(native, np.array([1.0]), score) == -1.0
    assert native.failures.total[0] == 0


def test_the_loop_of_a_model_that_is_gone_ends():
    target = Target.from_jax(normal, 1)
    log_density_gradient(target.target(), np.ones(1), np.empty(1))
    assert any(each.name == "stanadapt-xla" for each in threading.enumerate())
    del target
    gc.collect()
    assert not any(each.name == "stanadapt-xla" for each in threading.enumerate())


def test_a_gradient_that_is_not_finite_is_a_failure(route):
    target = Target.from_jax(lambda x: -jnp.sqrt(jnp.abs(x[0])) - x[1] ** 2, 2)
    native, score = target.target(), np.empty(2)
    assert log_density_gradient(native, np.array([0.0, 1.0]), score) == -np.inf
    assert native.failures.total[0] == 1


class Pair(NamedTuple):
    low: float
    high: float


def test_a_pytree_comes_out_under_its_own_names_and_shapes():
    example = {"b": np.zeros((2, 3)), "c": {"d": np.zeros(2), "e": [0.0, np.zeros(1)]}, "f": Pair(0.0, 0.0)}

    def log_density(p):
        return (
            normal(p["b"])
            + normal(p["c"]["d"])
            + normal(p["c"]["e"][1])
            - p["f"].low ** 2
            - p["f"].high ** 2
            - p["c"]["e"][0] ** 2
        )

    posterior = stanadapt.Posterior(Target.from_jax(log_density, example))
    shapes = {name: variable.shape for name, variable in posterior.parameters.items()}
    assert shapes == {"b": (2, 3), "c_d": (2,), "c_e_0": (), "c_e_1": (1,), "f_low": (), "f_high": ()}
    assert posterior.names[:3] == ["b.1.1", "b.2.1", "b.1.2"]
    b = np.arange(6.0).reshape(2, 3)
    values = {"b": b, "c_d": [1.0, 2.0], "c_e_0": 3.0, "c_e_1": [4.0], "f_low": 5.0, "f_high": 6.0}
    x = posterior.unconstrain(values)
    np.testing.assert_array_equal(posterior.constrain(x)["b"], b)
    expected = -0.5 * (np.sum(b**2) + 5.0 + 16.0) - 25.0 - 36.0 - 9.0
    assert posterior.log_density(x) == pytest.approx(expected)
    idata = sample(posterior)
    assert idata["posterior"]["b"].shape == (2, 40, 2, 3)
    assert idata["posterior"].attrs["backend"].startswith("JAX")


def test_a_number_stands_for_a_vector():
    idata = sample(Target.from_jax(normal, 3), dims={"x": ["place"]}, coords={"place": ["u", "v", "w"]})
    assert list(idata["posterior"]["place"].values) == ["u", "v", "w"]


def test_keys_for_random_numbers_and_constants_may_be_in_a_log_density(route):
    one, other = (jax.random.key(seed) for seed in (1, 2))

    def near(key):
        return stanadapt.Posterior(Target.from_jax(lambda x: normal(x - jax.random.normal(key, (2,))), 2))

    assert near(one).digest() != near(other).digest()
    np.testing.assert_allclose(
        near(one).log_density_gradient(np.zeros(2))[1], jax.random.normal(one, (2,)), rtol=1e-12
    )
    flat = datasets(sample(Target.from_jax(lambda x: 0.5, 1), warmup=5, draws=5))["sample_stats"]
    np.testing.assert_array_equal(flat["lp"], 0.5)


@pytest.mark.parametrize("method", ["rwm", "mala", "fisher_hmc"])
def test_draws_do_not_depend_on_where_blocks_end(method, monkeypatch):
    """A block of one iteration is a loop of XLA's for each of them."""
    whole = sample(Target.from_jax(density, EXAMPLE), method=method)
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 0.0)
    assert_same(whole, sample(Target.from_jax(density, EXAMPLE), method=method))


def test_chains_have_processes_that_start_from_scratch(tmp_path):
    """No fork, whose child would have locks of threads that it has not; the draws are the same."""
    forks, parent = [], os.getpid()
    os.register_at_fork(before=lambda: forks.append(os.getpid()))
    jax.mark_of_the_parent = True
    try:

        def traced(p):
            import jax  # the worker's own

            (tmp_path / f"{os.getpid()} {hasattr(jax, 'mark_of_the_parent')}").touch()
            assert jax.config.jax_enable_x64
            return density(p)

        here = sample(Target.from_jax(traced, EXAMPLE))
        assert {path.name for path in tmp_path.iterdir()} == {f"{parent} True"}
        apart = sample(Target.from_jax(traced, EXAMPLE), workers=2)
    finally:
        del jax.mark_of_the_parent
    assert_same(here, apart)
    workers = {path.name for path in tmp_path.iterdir()} - {f"{parent} True"}
    assert len(workers) == 2
    assert all(name.endswith("False") for name in workers)
    assert forks == []


THREADS_OF_BLAS = """
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np, stanadapt, threadpoolctl
from jax import numpy as jnp

def field(x):
    factor = jnp.linalg.cholesky(2.0 * jnp.eye(400) + jnp.exp(-(x[0] ** 2)))
    return -0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(factor, x, lower=True) ** 2)

def draws(threads):
    run = {"method": "mala", "chains": 1, "warmup": 5, "draws": 5, "seed": 3, "progress": False}
    with threadpoolctl.threadpool_limits(threads, "blas"):
        return stanadapt.sample(stanadapt.Target.from_jax(field, 400), **run)["posterior"]["x"]

np.testing.assert_array_equal(draws(1), draws(2))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread on one core")
def test_draws_do_not_depend_on_the_threads_of_blas():
    """Its last bits depend on them.

    In a process of its own: after XLA has asked for a processor's matrix registers, tests that call stanli's
    compiler themselves would end this one.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", THREADS_OF_BLAS],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_stan_programs_compile_after_jax_has_computed():
    """Stan's compiler cannot start where XLA has asked for a processor's matrix registers."""
    script = """
import jax, numpy
jax.config.update("jax_enable_x64", True)
jax.jit(lambda a: a @ a)(numpy.eye(400)).block_until_ready()
import stanadapt
print(stanadapt.Posterior("parameters { real x; } model { x ~ std_normal(); }").log_density([2.0]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "-2.0\n"), done.stderr


def test_threads_give_the_same_draws():
    target = Target.from_jax(density, EXAMPLE, threads=True)
    assert_same(sample(target, chains=4, workers=1), sample(target, chains=4, workers=4))


def test_no_loop_is_left_waiting():
    target = Target.from_jax(density, EXAMPLE)
    sample(target)
    assert not any(each.name == "stanadapt-xla" for each in threading.enumerate())


def test_a_target_that_is_pickled_is_the_same():
    import cloudpickle

    target = Target.from_jax(density, EXAMPLE)
    x = np.linspace(-1.0, 1.0, 7)
    again = pickle.loads(cloudpickle.dumps(target))
    assert again.log_density(x) == target.log_density(x)
    assert again.names(transformed=True, generated=True) == target.names(transformed=True, generated=True)
    assert again.identity() == target.identity()


def test_models_are_told_apart_by_what_they_compute():
    def shifted(by):
        shift = np.array([by, 0.0])
        return Target.from_jax(lambda x: normal(x - shift), 2).identity()

    assert shifted(1.0) == shifted(1.0)
    assert shifted(1.0) != shifted(2.0)


def test_a_store_goes_on_with_the_same_model(tmp_path):
    target = Target.from_jax(density, EXAMPLE)
    whole = sample(target, draws=80)
    sample(target, store=tmp_path / "run")
    with pytest.raises(StoreError, match="of another model"):
        stanadapt.extend(tmp_path / "run", 40, Target.from_jax(lambda p: 2.0 * density(p), EXAMPLE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        more = stanadapt.extend(tmp_path / "run", 40, Target.from_jax(density, EXAMPLE), progress=False)
    assert_same(whole, more)


def test_an_exception_while_xla_runs_ends_the_run_with_it(route):
    def fail(x):
        if x[0] > 0.0:
            raise KeyError("from the callback")
        return x[0]

    def log_density(x):
        return normal(x) + 0.0 * jax.lax.stop_gradient(
            jax.pure_callback(fail, jax.ShapeDtypeStruct((), np.float64), jax.lax.stop_gradient(x))
        )

    with pytest.raises(Exception, match="from the callback"):
        sample(Target.from_jax(log_density, 2), method="rwm", chains=1)


ONE_CORE = """
import os
os.sched_setaffinity(0, {0})
import jax, numpy as np, stanadapt, warnings
warnings.simplefilter("ignore")
jax.config.update("jax_enable_x64", True)
from jax import numpy as jnp
t = np.linspace(0.0, 1.0, 150)
apart = (t[:, None] - t) ** 2
def density(x):
    factor = jnp.linalg.cholesky(jnp.exp(-apart * jnp.exp(x[0])) + jnp.exp(x[1]) * jnp.eye(len(t)))
    return -jnp.sum(factor @ factor * 1e-3) - 0.5 * jnp.sum(x**2)
target = stanadapt.Target.from_jax(density, 2, threads=True)
stanadapt.sample(target, method="mala", chains=3, workers=3, warmup=20, draws=10, seed=1, progress=False)
print(float(jax.jit(lambda x: (x @ x @ x).sum())(jnp.ones((300, 300)))))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to a core")
def test_programs_of_the_pool_leave_room_for_others():
    """XLA runs large programs in a pool, here of one thread: three chains' loops, and the user's own."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_CORE], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 300.0**4


def nan_here(x):
    return jnp.where(x[0] < 1e9, jnp.nan, 0.0)


def infinite_gradient(x):
    return -jnp.sqrt(x[0] * 0.0) - normal(x)


def no_gradient(x):
    return -jax.lax.while_loop(lambda y: y < 3.0, lambda y: y + 1.0, x[0])


REFUSED = {
    "no function": (lambda: Target.from_jax(3.0, 2), "log_density=3.0 is not allowed"),
    "no dimension": (lambda: Target.from_jax(normal, 0), "params=0 is not allowed"),
    "no entries": (lambda: Target.from_jax(normal, {}), "params is empty"),
    "texts": (lambda: Target.from_jax(normal, {"a": "b"}), "params: a='b' is not allowed"),
    "one name": (
        lambda: Target.from_jax(normal, {"a": {"b": 0.0}, "a_b": 0.0}),
        "two parameters have the name 'a_b'",
    ),
    "a dot": (lambda: Target.from_jax(normal, {"a.1": 0.0}), "no dot"),
    "shapes": (
        lambda: Target.from_jax(lambda x: jnp.sum(x[x > 0.0]), 2),
        "its shapes, or which branch is taken, depend on values",
    ),
    "a branch": (
        lambda: Target.from_jax(lambda x: x[0] if x[0] > 0.0 else x[1], 2),
        "its shapes, or which branch is taken, depend on values",
    ),
    "a vector": (lambda: Target.from_jax(lambda x: x, 2), "it must return one real number"),
    "nothing": (lambda: Target.from_jax(lambda x: None, 2), "it must return one real number"),
    "single": (
        lambda: Target.from_jax(lambda x: jnp.float32(1.0) * normal(x).astype("float32"), 2),
        "float64 is needed",
    ),
    "threads": (lambda: Target.from_jax(normal, 2, threads=1), "threads=1 is not allowed"),
    "an error": (lambda: Target.from_jax(lambda x: x["a"], 2), "log_density fails: TypeError"),
    "no gradient": (lambda: Target.from_jax(no_gradient, 2), "log_density: its gradient fails: .*while_loop"),
    "NumPy": (lambda: Target.from_jax(lambda x: np.asarray(x).sum(), 2), "call jax.numpy instead"),
    "no order": (lambda: Target.from_jax(normal, {"a": 0.0, 1: 0.0}), "params must be a pytree"),
    "too many": (lambda: Target.from_jax(normal, 10**12), "params=1000000000000 is not allowed"),
    "an integer": (lambda: Target.from_jax(lambda x: 3, 2), "log_density returned 3; it must return"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_in_one_line(case):
    make, reason = REFUSED[case]
    with pytest.raises(ArgumentError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_single_precision_is_refused_with_the_line_that_sets_it():
    with (
        jax.enable_x64(False),
        pytest.raises(ArgumentError, match=r'float32.*jax\.config\.update\("jax_enable_x64", True\)'),
    ):
        Target.from_jax(normal, 2)


def test_nan_at_the_start_is_refused():
    with pytest.raises(InitializationError, match="the log density is nan"):
        sample(Target.from_jax(nan_here, 2))


def test_a_gradient_that_is_nowhere_finite_is_refused():
    with pytest.raises(InitializationError, match=r"the gradient is not finite in x\.1"):
        sample(Target.from_jax(infinite_gradient, 2))


def test_the_method_nuts_is_refused():
    with pytest.raises(ArgumentError, match="needs a Stan program, and this model is one of JAX"):
        sample(Target.from_jax(normal, 2), method="nuts")


def test_data_are_refused():
    with pytest.raises(stanadapt.errors.DataError, match="data are not allowed"):
        stanadapt.Posterior(Target.from_jax(normal, 2), {"y": 1})


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ArgumentError, match=r"pip install 'stanadapt\[jax\]'"):
        Target.from_jax(normal, 2)


def test_jax_is_imported_late():
    code = "import sys, stanadapt; stanadapt.Target, stanadapt.Posterior; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(stanadapt.__file__).parents[1])
