"""Models of NumPyro: the same draws, names and groups as from NumPyro and ArviZ, and what is refused."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import stanadapt
from stanadapt.errors import ArgumentError, DataError, FindingsWarning, InitializationError, ModelError
from stanadapt.result.container import datasets, has_datatree

jax = pytest.importorskip("jax", reason="JAX is not installed; stanadapt[jax] brings it")
numpyro = pytest.importorskip("numpyro", reason="NumPyro is not installed; stanadapt[jax] brings it")
jax.config.update("jax_enable_x64", True)
import numpyro.distributions as dist  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.infer import MCMC, NUTS, log_likelihood  # noqa: E402

from jax_pairs import columns, pairs, stan_data, z_scores  # noqa: E402

PAIRS = pairs()
LEVEL = 0.001  # family-wise, of one test
RUN = {"method": "fisher_hmc", "chains": 2, "workers": 1, "seed": 5, "progress": False}


def sample(model, data=None, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


def draws(idata):
    group = datasets(idata)["posterior"]
    return {name: group[name].values for name in group.data_vars}


def assert_same_law(one, other, names):
    z = z_scores(columns(one, names), columns(other, names))
    assert np.abs(z).max() < stats.norm.isf(LEVEL / 2 / len(z))


@pytest.fixture(scope="module")
def schools():
    """NumPyro's own draws of eight schools, and ours with all that can be asked for."""
    pair = PAIRS["eight_schools"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MCMC(
            NUTS(pair.model),
            num_warmup=500,
            num_samples=1000,
            num_chains=2,
            chain_method="vectorized",
            progress_bar=False,
        )
        theirs.run(jax.random.key(1), **pair.data)
    ours = sample(pair.model, pair.data, draws=1000, log_likelihood="y", posterior_predictive="y")
    return theirs, ours


def test_draws_are_those_of_numpyro(schools):
    theirs, ours = schools
    samples = {name: np.asarray(each) for name, each in theirs.get_samples(group_by_chain=True).items()}
    assert_same_law(draws(ours), samples, PAIRS["eight_schools"].compared)


def test_groups_names_and_dims_are_those_of_arviz(schools):
    theirs, ours = schools
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("arviz_base" if has_datatree() else "arviz")
        expected = datasets(module.from_numpyro(theirs, log_likelihood=True))
    found = datasets(ours)
    for name in ("posterior", "log_likelihood", "observed_data"):
        assert set(found[name].data_vars) == set(expected[name].data_vars), name
        for variable in found[name].data_vars:
            assert found[name][variable].dims == expected[name][variable].dims, (name, variable)
            for dim in found[name][variable].dims[2 if name != "observed_data" else 0 :]:
                np.testing.assert_array_equal(found[name][dim], expected[name][dim])
    assert set(found["posterior_predictive"].data_vars) == {"y"}
    assert set(found["constant_data"].data_vars) == {"J", "sigma"}
    assert found["posterior"].attrs["backend"].startswith("NumPyro")
    np.testing.assert_array_equal(found["observed_data"]["y"], PAIRS["eight_schools"].data["y"])


def test_log_likelihoods_and_predictions_belong_to_their_draws(schools):
    ours = datasets(schools[1])
    pair = PAIRS["eight_schools"]
    flat = {name: each.reshape(-1, *each.shape[2:]) for name, each in draws(schools[1]).items()}
    latent = {name: jnp.array(flat[name]) for name in ("mu", "tau", "theta_tilde")}
    expected = np.asarray(log_likelihood(pair.model, latent, **pair.data)["y"]).reshape(2, 1000, 8)
    np.testing.assert_allclose(ours["log_likelihood"]["y"], expected, rtol=1e-10)
    theta = latent["mu"][:, None] + latent["tau"][:, None] * latent["theta_tilde"]
    np.testing.assert_allclose(flat["theta"], theta, rtol=1e-12, atol=1e-14)  # a sum may be nearly zero
    noise = (ours["posterior_predictive"]["y"].values.reshape(-1, 8) - flat["theta"]) / pair.data["sigma"]
    assert stats.kstest(noise.ravel(), "norm").pvalue > LEVEL


def test_draws_are_those_of_the_stan_program():
    """A simplex, an ordered vector and the Cholesky factor of a correlation matrix."""
    pair = PAIRS["constrained"]
    ours = draws(sample(pair.model, pair.data, draws=1000))
    stan = draws(sample(pair.program, stan_data("constrained", pair.data), draws=1000, seed=6))
    assert_same_law(ours, stan, pair.compared)
    np.testing.assert_allclose(ours["share"].sum(axis=-1), 1.0, rtol=1e-12)
    assert np.all(np.diff(ours["cut"], axis=-1) > 0.0)
    np.testing.assert_allclose(np.linalg.norm(ours["corr"], axis=-1), 1.0, rtol=1e-12)


def test_draws_and_predictions_do_not_depend_on_workers_or_blocks(monkeypatch):
    pair = PAIRS["regression"]
    keywords = {"warmup": 100, "draws": 50, "posterior_predictive": "y", "method": "mala"}
    ones = datasets(sample(pair.model, pair.data, **keywords))
    twos = datasets(sample(pair.model, pair.data, workers=2, **keywords))
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 0.0)
    short = datasets(sample(pair.model, pair.data, **keywords))
    for group in ("posterior", "sample_stats", "posterior_predictive"):
        for name in ones[group].data_vars:
            np.testing.assert_array_equal(ones[group][name], twos[group][name], err_msg=name)
            np.testing.assert_array_equal(ones[group][name], short[group][name], err_msg=name)
    assert ones["posterior"]["alpha"].dims == ("chain", "draw", "counties")
    assert ones["posterior_predictive"]["y"].dims == ("chain", "draw", "homes")


def test_threads_of_one_process_draw_the_same():
    pair = PAIRS["regression"]
    keywords = {"warmup": 100, "draws": 50, "workers": 2, "method": "mala", "log_likelihood": "y"}
    target = stanadapt.Target.from_numpyro(pair.model, pair.data, threads=True)
    one, other = datasets(sample(target, **keywords)), datasets(sample(pair.model, pair.data, **keywords))
    for group in ("posterior", "log_likelihood", "observed_data", "constant_data"):
        assert one[group].equals(other[group]), group


def test_one_thread_at_a_time_is_in_a_model():
    # NumPyro's handlers stand on one stack of the process: a second thread's model would meet the first's.
    meeting, met = threading.Barrier(2), []

    def model():
        met.append(wait_for_another())
        numpyro.sample("x", dist.Normal())

    def wait_for_another():
        try:
            meeting.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            meeting.reset()
            return False
        return True

    source = stanadapt.Target.from_numpyro(model, threads=True).source
    met.clear()
    with ThreadPoolExecutor(2) as threads:
        traces = [
            threads.submit(jax.eval_shape, function, jnp.zeros(1))
            for function in (source.log_density, source.constrain)
        ]
        assert [trace.result().shape for trace in traces] == [(), (1,)]
    assert len(met) >= 2
    assert not any(met)


@pytest.mark.parametrize("model", [None, 3.0, dist.Normal, "parameters { real x; }"])
def test_what_is_no_function_is_refused(model):
    with pytest.raises(ArgumentError, match=r"is not allowed: .*numpyro\.sample"):
        stanadapt.Target.from_numpyro(model)


def test_values_go_to_a_point_and_back():
    pair = PAIRS["constrained"]
    posterior = stanadapt.Posterior(pair.model, pair.data)
    x = np.random.default_rng(2).normal(size=(5, posterior.dim))
    values = posterior.constrain(x)
    for i, point in enumerate(x):
        back = posterior.unconstrain({name: values[name][i] for name in posterior.parameters})
        np.testing.assert_allclose(back, point, rtol=1e-8)
    good = {name: values[name][0] for name in posterior.parameters}
    for name, bad in (("share", [0.5, 0.5, 0.5]), ("cut", [2.0, 1.0, 0.0]), ("scale", [1.0, -1.0, 1.0])):
        with pytest.raises(ArgumentError, match=f"{name}.*support"):
            posterior.unconstrain(good | {name: bad})


def test_inits_and_the_users_own_names(tmp_path):
    pair = PAIRS["regression"]
    coords = {"counties": [f"county {i}" for i in range(12)]}
    inits = {"mu": 1.0, "tau": 0.5, "alpha": np.ones(12), "beta": 0.5, "sigma": 0.6}
    idata = sample(
        pair.model,
        pair.data,
        warmup=20,
        draws=10,
        method="mala",
        inits=inits,
        coords=coords,
        store=tmp_path / "run",
    )
    assert list(idata["posterior"]["counties"].values) == coords["counties"]
    start = stanadapt.Posterior(pair.model, pair.data).unconstrain(inits)
    np.testing.assert_allclose(datasets(idata)["adaptation"]["start"].values, np.stack([start, start]))
    again = datasets(stanadapt.load(tmp_path / "run"))
    assert again["posterior"]["alpha"].dims == ("chain", "draw", "counties")


def test_requests_live_in_a_store(tmp_path):
    pair = PAIRS["eight_schools"]
    keywords = {"warmup": 40, "method": "mala", "log_likelihood": "y"}
    whole = datasets(sample(pair.model, pair.data, draws=60, **keywords))
    sample(pair.model, pair.data, draws=30, store=tmp_path / "run", **keywords)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        more = datasets(stanadapt.extend(tmp_path / "run", 30, pair.model, pair.data, progress=False))
    for group in ("posterior", "log_likelihood"):
        for name in whole[group].data_vars:
            np.testing.assert_array_equal(whole[group][name], more[group][name])


def one_distribution(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def random_walk(y, by_condition=False):
    a = numpyro.sample("a", dist.Uniform(0.9, 1.0))

    def step(last, now):
        last = numpyro.sample("y", dist.Normal(a * last, 0.1), obs=None if by_condition else now)
        return last, last

    with handlers.condition(data={"y": y} if by_condition else {}):
        _, path = scan(step, 0.0, y)
    numpyro.deterministic("path", path)


def test_predictions_without_a_plate_are_as_many_as_the_data():
    data = {"y": np.array([[0.5, 0.0, 1.0], [2.0, 0.1, 0.2]])}
    idata = datasets(sample(one_distribution, data, draws=500, posterior_predictive="y"))
    noise = idata["posterior_predictive"]["y"].values.reshape(-1, 6)
    noise = noise - idata["posterior"]["mu"].values.reshape(-1, 1)
    assert stats.kstest(noise.ravel(), "norm").pvalue > LEVEL
    assert np.abs(np.corrcoef(noise.T) - np.eye(6)).max() < 0.2  # independent: deviations of 1 / sqrt(1000)


@pytest.mark.parametrize("by_condition", [False, True])
def test_predictions_of_a_scan_go_on_from_what_was_predicted(by_condition):
    data = {"y": jnp.array([100.0, 200.0, 300.0]), "by_condition": by_condition}
    idata = datasets(sample(random_walk, data, draws=200, posterior_predictive="y"))
    paths = idata["posterior_predictive"]["y"].values
    assert np.abs(paths).max() < 2.0  # steps of 0.1, far from the data
    np.testing.assert_array_equal(idata["posterior"]["path"][0, 0], data["y"])
    np.testing.assert_array_equal(idata["observed_data"]["y"], data["y"])


def in_the_plate(y, part=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", 3, subsample_size=part) as i:
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])


def test_arrays_of_jax_stay_what_they_are(tmp_path):
    """A model may index them with what JAX traces. A store has them as numbers."""
    y = jnp.array([1, 2, 4], dtype=jnp.float32)
    keywords = {"warmup": 20, "draws": 10, "method": "mala"}
    idata = datasets(sample(in_the_plate, {"y": y}, store=tmp_path / "run", **keywords))
    x = np.array([0.3])
    expected = -0.5 * (np.sum((np.array([1.0, 2.0, 4.0]) - x) ** 2) + x[0] ** 2) - 2.0 * np.log(2.0 * np.pi)
    assert stanadapt.Posterior(in_the_plate, {"y": y}).log_density(x) == pytest.approx(expected, rel=1e-12)
    assert idata["observed_data"]["y"].dims == ("N",)
    assert datasets(stanadapt.load(tmp_path / "run"))["observed_data"].equals(idata["observed_data"])


def with_a_key(y, key, weight):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y + weight * jax.random.normal(key))


def test_a_key_for_random_numbers_may_be_an_argument():
    data = {"y": 1.0, "key": jax.random.key(3), "weight": jnp.array(2.0)}
    posterior = stanadapt.Posterior(with_a_key, data)
    assert set(posterior.data) == {"y", "weight"}
    assert posterior.data["y"] == pytest.approx(1.0 + 2.0 * float(jax.random.normal(data["key"])))


@pytest.mark.parametrize("workers", [1, 2])
def test_one_model_is_fitted_to_many_data_sets(workers):
    keywords = {"method": "mala", "chains": 1, "warmup": 20, "draws": 10}
    sets = {"a": {"y": np.array([0.0, 1.0])}, "b": {"y": np.array([5.0])}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        fits = dict(
            stanadapt.sample_many(one_distribution, sets, seed=1, workers=workers, progress=False, **keywords)
        )
    for key, data in sets.items():
        alone = sample(one_distribution, data, **keywords, seed=fits[key].attrs["seed"])
        assert datasets(fits[key])["posterior"].equals(datasets(alone)["posterior"])


def discrete(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    k = numpyro.sample("k", dist.Poisson(3.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu + z + k, 1.0), obs=y)


def enumerated(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
    numpyro.sample("y", dist.Normal(mu + 2.0 * z, 1.0), obs=y)


def only_observed(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def no_statement(y):
    return y + 1.0


def twice():
    numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("mu", dist.Normal(0.0, 1.0))


def shape_of_a_value():
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros(3), 1.0))
    numpyro.sample("y", dist.Normal(mu[mu > 0.0], 1.0), obs=0.0)


def nan_everywhere():
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.factor("bad", jnp.nan * mu)


def slash():
    numpyro.sample("a/b", dist.Normal(0.0, 1.0))


def two_arrays():
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.deterministic("both", (mu, mu))


def no_gradient():
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.factor("loop", jax.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, mu))


def no_name():
    numpyro.sample("", dist.Normal(0.0, 1.0))


REFUSED = {
    "discrete": (discrete, {"y": 1.0}, ModelError, "discrete latent variables.*: z, k"),
    "only observed": (only_observed, {"y": 1.0}, ModelError, "no latent variables"),
    "no statement": (no_statement, {"y": 1.0}, ModelError, r"no_statement is not allowed.*numpyro\.sample"),
    "twice": (twice, None, ModelError, "two variables of one name.*mu"),
    "shapes": (shape_of_a_value, None, ModelError, "its shapes, or which branch.* depend on values"),
    "slash": (slash, None, ModelError, "'a/b' has a slash"),
    "missing": (only_observed, {}, DataError, "missing a required argument: 'y'"),
    "unknown": (only_observed, {"y": 1.0, "z": 2.0}, DataError, "unexpected keyword argument 'z'"),
    "no dict": (only_observed, [1.0], DataError, "data must be a dict of the model's arguments"),
    "ragged": (only_observed, {"y": [[1.0], [1.0, 2.0]]}, DataError, r"data\['y'\] is no array"),
    "subsample": (
        in_the_plate,
        {"y": jnp.ones(3), "part": 2},
        ModelError,
        "subsample of 2 of 3 in its plate N",
    ),
    "NumPy's": (in_the_plate, {"y": np.ones(3)}, ModelError, r"give jax\.numpy\.asarray\(a\)"),
    "two arrays": (two_arrays, None, ModelError, "has both as a tuple"),
    "no gradient": (no_gradient, None, ModelError, "no_gradient: its gradient fails"),
    "no name": (no_name, None, ModelError, "'' has no name"),
    "no model": (3.0, None, ArgumentError, "model=3.0 is not allowed.*NumPyro"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_in_one_line(case):
    model, data, kind, reason = REFUSED[case]
    with pytest.raises(kind, match=reason) as caught:
        sample(model, data)
    assert "\n" not in str(caught.value)


def test_nan_at_the_start_is_refused():
    with pytest.raises(InitializationError, match="the log density is nan"):
        sample(nan_everywhere)


def test_single_precision_is_refused_with_the_line_that_sets_it():
    with jax.enable_x64(False), pytest.raises(ArgumentError, match=r"float32.*jax_enable_x64"):
        sample(only_observed, {"y": 1.0})


def test_a_name_that_is_not_observed_is_refused():
    with pytest.raises(ArgumentError, match=r"log_likelihood='mu' is not allowed.*one of y"):
        sample(PAIRS["eight_schools"].model, PAIRS["eight_schools"].data, log_likelihood="mu")


def test_discrete_variables_that_are_summed_over_are_fine():
    if importlib.util.find_spec("funsor") is None:
        with pytest.raises(ModelError, match="to enumerate z, NumPyro needs funsor: pip install funsor"):
            stanadapt.Posterior(enumerated, {"y": 1.5})
        return
    posterior = stanadapt.Posterior(enumerated, {"y": 1.5})
    assert list(posterior.variables) == ["mu"]
    x = np.linspace(-2.0, 2.0, 5)
    mixture = np.log(0.7 * stats.norm.pdf(1.5, x) + 0.3 * stats.norm.pdf(1.5, x + 2.0)) + stats.norm.logpdf(x)
    np.testing.assert_allclose([posterior.log_density([each]) for each in x], mixture, rtol=1e-10)
    with pytest.raises(ArgumentError, match="enumerated"):
        sample(enumerated, {"y": 1.5}, log_likelihood="y")


def test_a_function_is_no_model_where_numpyro_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "numpyro")
    with pytest.raises(ArgumentError, match=r"model=<function.*NumPyro model \(with numpyro imported\)"):
        stanadapt.Posterior(twice)


def test_quantities_for_other_data():
    """The predictions of new data have their size, and their means: a times x."""

    def model(x, y=None):
        a, s = numpyro.sample("a", dist.Normal(0, 5)), numpyro.sample("s", dist.HalfNormal(2))
        numpyro.sample("y", dist.Normal(a * x, s), obs=y)

    fit = sample(model, {"x": np.ones(3), "y": np.array([1.0, 2.0, 3.0])}, draws=300)
    there = {"x": np.array([1.0, 10.0]), "y": np.zeros(2)}
    made = stanadapt.generate_quantities(model, fit, there, seed=1, predictions="y", progress=False)
    drawn, groups = draws(fit), datasets(made)
    y, mean = groups["predictions"]["y"].values, drawn["a"][..., None] * there["x"]
    z = (y - mean) / drawn["s"][..., None]
    assert y.shape == (2, 300, 2)
    assert np.abs(z.mean(axis=(0, 1))).max() * np.sqrt(600) < stats.norm.isf(LEVEL / 4)
    np.testing.assert_array_equal(groups["predictions_constant_data"]["x"], there["x"])
    assert groups["observed_data"]["y"].shape == (3,)
