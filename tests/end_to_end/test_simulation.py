"""Approximate Bayesian computation: exact where its posterior is known, and clear about bad input."""

from __future__ import annotations

import pickle
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import stanadapt
from cases import thorough
from moments import limit, z_scores
from stanadapt import Posterior
from stanadapt.errors import ArgumentError, DataError, FindingsWarning, InitializationError
from stanadapt.numerics import synthetic
from stanadapt.result.container import datasets
from stanadapt.run.workers import processes
from stanadapt.run.workers.failures import ChainFailure
from stanadapt.simulators.priors import ScipyPrior

RUN = {
    "method": "am",
    "chains": 2,
    "warmup": 2_000,
    "draws": 10_000,
    "seed": 6,
    "progress": False,
    "workers": 1,
}
SHORT = {"warmup": 50, "draws": 50}
OBSERVED = np.array([0.5, 1.0, 1.2, -0.1])
PRIOR = {"mu": stats.norm(0.0, 2.0)}
PROGRAM = "parameters { real mu; } model { mu ~ normal(0, 2); }"
REGRESSION = """
data { real<lower=0> scale; }
parameters { vector[2] b; real<lower=0, upper=3> s; }
transformed parameters { real twice = 2 * s; }
model { b ~ normal(0, scale); s ~ gamma(2, 2); }
generated quantities { real total = sum(b); }
"""


def simulator(theta, rng):
    return theta["mu"] + rng.standard_normal(4)


def vectorized(theta, n_sim, rng):
    return theta["mu"] + rng.standard_normal((n_sim, 4))


def broken(theta, rng):
    raise KeyError("in the simulator")


def sample(target, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(target, **(RUN | keywords))


def assert_moments(idata, mean, variance):
    mu = idata["posterior"]["mu"].values[:, :, None]
    z = z_scores(np.concatenate([mu, (mu - mean) ** 2], axis=2), np.array([mean, variance]))
    assert np.abs(z).max() < limit(z.size), z


def normal_posterior(variance):
    """Mean and variance of mu where every observation has this variance around it."""
    precision = 1.0 / 4.0 + OBSERVED.size / variance
    return OBSERVED.sum() / variance / precision, 1.0 / precision


@pytest.mark.parametrize(
    "prior",
    [pytest.param(PRIOR, id="scipy", marks=pytest.mark.thorough), pytest.param(PROGRAM, id="stan")],
)
def test_gaussian_kernel_adds_its_width_to_the_noise(prior):
    target = stanadapt.abc(vectorized, OBSERVED, prior, epsilon=0.8, n_sim=10, vectorized=True)
    assert_moments(sample(target), *normal_posterior(1.0 + 0.8**2))


@pytest.mark.thorough
def test_uniform_kernel_is_that_of_the_accepted_simulations():
    def mean_of_data(theta, rng):
        return theta["mu"] + rng.standard_normal()

    target = stanadapt.abc(mean_of_data, 1.0, PROGRAM, epsilon=0.7, kernel="uniform", n_sim=3)
    grid = np.linspace(-10.0, 10.0, 20_001)
    weights = stats.norm(0.0, 2.0).pdf(grid) * (stats.norm.cdf(1.7 - grid) - stats.norm.cdf(0.3 - grid))
    mean = np.average(grid, weights=weights)
    assert_moments(sample(target), mean, np.average((grid - mean) ** 2, weights=weights))


# `make test` has that its estimate is without bias, and that chains keep what they have estimated.
@pytest.mark.thorough
def test_synthetic_likelihood_of_gaussian_summaries_is_exact():
    target = stanadapt.abc(vectorized, OBSERVED, PROGRAM, likelihood="synthetic", n_sim=15, vectorized=True)
    assert_moments(sample(target), *normal_posterior(1.0))


@pytest.mark.thorough
def test_plugged_in_synthetic_likelihood_is_not():
    target = stanadapt.abc(
        vectorized, OBSERVED, PROGRAM, likelihood="synthetic_plugin", n_sim=8, vectorized=True
    )
    with pytest.raises(AssertionError):
        assert_moments(sample(target), *normal_posterior(1.0))


@pytest.mark.parametrize(("p", "n"), [(1, 5), thorough(2, 6), thorough(3, 20)])
def test_unbiased_estimate_of_a_gaussian_density(p, n):
    """The mean of the estimate, not of its logarithm, is the density."""
    rng = np.random.default_rng(p)
    chol = np.tril(rng.normal(size=(p, p))) + 2.0 * np.eye(p)
    mean, observed = rng.normal(size=p), rng.normal(size=p)
    simulated = mean + rng.standard_normal((20_000, n, p)) @ chol.T
    truth = stats.multivariate_normal(mean, chol @ chol.T)
    z = []
    for estimate in (synthetic.log_unbiased_density, synthetic.log_plugin_density):
        found = np.exp([estimate(each, observed) for each in simulated])
        z.append((found.mean() - truth.pdf(observed)) / (found.std() / np.sqrt(found.size)))
    assert abs(z[0]) < limit(3)
    assert abs(z[1]) > limit(3)


def test_plugged_in_estimate_is_the_density_at_the_simulated_moments():
    rng = np.random.default_rng(1)
    simulated, observed = rng.normal(size=(9, 3)) * [1.0, 1e6, 1e-6], np.array([0.3, 1e5, -1e-7])
    law = stats.multivariate_normal(simulated.mean(0), np.cov(simulated.T), allow_singular=True)
    exact = -0.5 * (
        3 * np.log(2 * np.pi)
        + np.linalg.slogdet(np.cov(simulated.T))[1]
        + (observed - law.mean) @ np.linalg.solve(np.cov(simulated.T), observed - law.mean)
    )
    assert synthetic.log_plugin_density(simulated, observed) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("estimate", [synthetic.log_unbiased_density, synthetic.log_plugin_density])
def test_singular_scatter(estimate):
    """Off the span of the simulations the density is zero; in it there is none."""
    rng = np.random.default_rng(2)
    one = rng.normal(size=(12, 1))
    for simulated in (np.hstack([one, one]), np.hstack([one, np.full_like(one, 3.0)])):
        assert estimate(simulated, np.array([0.1, 0.5])) == -np.inf
        with pytest.raises(synthetic.SingularScatterError):
            estimate(simulated, simulated[0])


LAWS = {
    "normal": stats.norm(1.0, 2.0),
    "gamma": stats.gamma(2.0, scale=0.5),
    "shifted": stats.expon(loc=-1.0),
    "beta": stats.beta(2.0, 0.5),
    "uniform": stats.uniform(2.0, 3.0),
    "from above": stats.weibull_max(1.5, loc=4.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_densities_of_bounded_priors_have_their_jacobian(name):
    law = LAWS[name]
    prior = ScipyPrior({"a": law})
    for x in (np.array([-1.3]), np.array([0.2]), np.array([1.7])):
        theta, h = prior.values(x)["a"], 1e-6
        slope = (prior.values(x + h)["a"] - prior.values(x - h)["a"]) / (2 * h)
        assert slope > 0.0
        assert prior.log_density(x) == pytest.approx(float(law.logpdf(theta) + np.log(slope)), abs=1e-7)
        np.testing.assert_allclose(prior.unconstrain({"a": theta}), x, rtol=1e-12)
    for far in (-1e6, 1e6):  # where a density may be infinite on the bound itself
        assert prior.log_density(np.array([far])) < -1e5


class Shifted(type(stats.norm)):
    """A distribution whose density is not that of its formula."""

    def logpdf(self, x, *args, **keywords):
        return super().logpdf(x, *args, **keywords) - 1.0


class ForArrays(type(stats.norm)):
    """A distribution whose formula takes no numbers."""

    def _logpdf(self, x):
        return super()._logpdf(x) + np.zeros(len(x))


@pytest.mark.parametrize(
    ("law", "is_fast"),
    [
        (stats.norm(1.0, scale=2.0), True),
        (stats.gamma(2, scale=3.0), True),
        (stats.gamma(a=2, loc=-1.0), True),
        (stats.beta(2.0, 3.0, 1.0, 4.0), True),
        (stats.t(df=4), True),
        (stats.halfcauchy(scale=2.5), True),
        (stats.truncnorm(-1.0, 2.0, 1.0, 1.0), True),
        (stats.uniform(-1.0, 3.0), True),
        (stats.lognorm(0.5, 0.0, np.array([1.0, 2.0])), True),
        (stats.norm(np.zeros((2, 3)), 1.5), True),
        (Shifted()(0.0, 1.0), False),
        (ForArrays()(0.0, 1.0), False),
        (stats.multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]), False),
    ],
    ids=lambda value: value.dist.name if hasattr(value, "dist") else "",
)
def test_densities_of_priors_are_scipys(law, is_fast):
    """Where the formula of a distribution does not say the same, scipy's own function is called."""
    (part,) = ScipyPrior({"a": law}).parts
    assert (part.logpdf != law.logpdf) == is_fast
    for seed in range(20):
        x = law.rvs(random_state=np.random.default_rng([7, seed]))
        np.testing.assert_array_equal(part.logpdf(x), law.logpdf(x))


def test_priors_of_vectors():
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    prior = ScipyPrior(
        {
            "a": stats.multivariate_normal([1.0, -1.0], cov),
            "b": stats.uniform([0.0, 1.0, 2.0], [1.0, 1.0, 4.0]),
            "c": stats.norm(np.zeros((2, 2))),
            "d": stats.multivariate_normal([0.5]),
        }
    )
    names = ["a.1", "a.2", "b.1", "b.2", "b.3", "c.1.1", "c.2.1", "c.1.2", "c.2.2", "d.1"]
    assert prior.names(transformed=True, generated=True) == prior.unconstrained_names() == names
    x = np.random.default_rng(1).normal(size=10)
    theta = prior.values(x)
    assert {name: np.shape(value) for name, value in theta.items()} == {
        "a": (2,),
        "b": (3,),
        "c": (2, 2),
        "d": (1,),
    }
    log_density = stats.multivariate_normal([1.0, -1.0], cov).logpdf(x[:2])
    for entry, low, width in zip(x[2:5], [0.0, 1.0, 2.0], [1.0, 1.0, 4.0], strict=True):
        log_density += ScipyPrior({"u": stats.uniform(low, width)}).log_density(np.array([entry]))
    log_density += stats.norm.logpdf(x[5:9]).sum() + stats.norm.logpdf(x[9], 0.5)
    assert prior.log_density(x) == pytest.approx(log_density)
    np.testing.assert_array_equal(theta["c"], [[x[5], x[7]], [x[6], x[8]]])
    np.testing.assert_allclose(prior.unconstrain(theta), x)
    row = np.empty((1, 10))
    prior.writer(0)(x[None], row, np.zeros(1, np.int64))
    np.testing.assert_allclose(prior.unconstrain_flat(row[0]), x)


def test_stan_and_scipy_priors_are_the_same():
    """Draw for draw, up to rounding: the scales that they are sampled on are the same too."""

    def line(theta, rng):
        return theta["b"][0] + theta["b"][1] * np.arange(4.0) + theta["s"] * rng.standard_normal(4)

    program = REGRESSION.replace("gamma(2, 2)", "normal(1, 1)")  # truncated, by its bounds
    scipy_prior = {"b": stats.norm(np.zeros(2), 1.5), "s": stats.truncnorm(-1.0, 2.0, 1.0, 1.0)}
    one = stanadapt.abc(line, OBSERVED, program, prior_data={"scale": 1.5}, epsilon=1.0, n_sim=2)
    other = stanadapt.abc(line, OBSERVED, scipy_prior, epsilon=1.0, n_sim=2)
    runs = [datasets(sample(target, warmup=300, draws=300)) for target in (one, other)]
    for name in ("b", "s"):
        np.testing.assert_allclose(*[run["posterior"][name].values for run in runs], rtol=1e-6)
    assert set(runs[0]["posterior"]) == {"b", "s", "twice", "total"}
    np.testing.assert_allclose(runs[0]["posterior"]["twice"], 2 * runs[0]["posterior"]["s"])
    assert set(runs[0]["observed_data"]) == set(runs[1]["observed_data"]) == {"observed"}
    np.testing.assert_array_equal(runs[1]["observed_data"]["observed"], OBSERVED)
    assert float(runs[0]["constant_data"]["scale"]) == 1.5


def test_what_a_simulator_gets():
    seen = []

    def curious(theta, rng):
        seen.append(theta)
        with pytest.raises(ValueError, match="read-only"):
            theta["b"][0] = 1.0
        return rng.normal(size=4)

    stanadapt.abc(curious, OBSERVED, Posterior(REGRESSION, {"scale": 1.0}), epsilon=1.0)
    (theta,) = seen
    assert list(theta) == ["b", "s", "twice"]
    assert theta["b"].shape == (2,)
    assert isinstance(theta["s"], float)
    assert theta["twice"] == 2 * theta["s"]
    assert 0.0 < theta["s"] < 3.0


def test_a_distance_that_changes_the_data():
    def distance(simulated, observed):
        away = float(np.abs(simulated - observed).sum())
        observed += 1.0
        return away

    def kept(simulated, observed):
        return distance(simulated, observed.copy())

    found = [
        stanadapt.abc(lambda theta, rng: theta["a"], 1.0, {"a": stats.norm()}, epsilon=1.0, distance=each)
        for each in (distance, kept)
    ]
    for _ in range(3):
        assert found[0].log_density(np.array([0.5])) == found[1].log_density(np.array([0.5]))


def test_vectorized_simulators_give_the_same_draws():
    one = stanadapt.abc(simulator, OBSERVED, PRIOR, epsilon=1.0, n_sim=3)
    other = stanadapt.abc(vectorized, OBSERVED, PRIOR, epsilon=1.0, n_sim=3, vectorized=True)
    mus = [sample(target, draws=300, warmup=100)["posterior"]["mu"] for target in (one, other)]
    np.testing.assert_array_equal(*mus)


def test_summaries_and_distances():
    def summary(data):
        assert data.shape == (4,)
        return [data.mean(), data.std()]

    def distance(simulated, observed):
        assert simulated.shape == observed.shape == (2,)
        return float(np.linalg.norm(simulated - observed))

    keywords = {"epsilon": 0.5, "n_sim": 2, "summary": summary}
    one = stanadapt.abc(simulator, OBSERVED, PRIOR, distance=distance, **keywords)
    other = stanadapt.abc(simulator, OBSERVED, PRIOR, **keywords)
    mus = [sample(target, draws=200, warmup=100)["posterior"]["mu"] for target in (one, other)]
    np.testing.assert_array_equal(*mus)


def test_draws_and_counts_do_not_depend_on_workers():
    calls = []

    def counted(theta, rng):
        calls.append(1)
        return simulator(theta, rng)

    def run(workers, threads=False):
        target = stanadapt.abc(counted, OBSERVED, PROGRAM, epsilon=1.0, n_sim=3, threads=threads)
        calls.clear()
        return datasets(sample(target, workers=workers, chains=3, **SHORT))

    apart = run(2)
    assert not calls
    in_threads = run(2, threads=True)
    counted_there = len(calls)
    here = run(1)
    for other in (in_threads, here):
        np.testing.assert_array_equal(apart["posterior"]["mu"], other["posterior"]["mu"])
        for name in ("n_simulations", "n_simulations_warmup"):
            np.testing.assert_array_equal(apart["adaptation"][name], other["adaptation"][name])
    assert np.all(here["adaptation"]["n_simulations"] == 3 * SHORT["draws"])
    total = here["adaptation"]["n_simulations"] + here["adaptation"]["n_simulations_warmup"]
    assert int(total.sum()) == len(calls) == counted_there


@pytest.mark.parametrize("prior", [PRIOR, PROGRAM], ids=["scipy", "stan"])
def test_pickling(prior):
    target = stanadapt.abc(simulator, OBSERVED, prior, epsilon=1.0, summary=lambda data: data[:2])
    before = Posterior(target)
    after = pickle.loads(processes.pack(before))
    assert after.log_density(np.zeros(1)) == before.log_density(np.zeros(1))
    assert after.constrain(np.ones(1)) == before.constrain(np.ones(1)) == {"mu": 1.0}


def test_example():
    path = Path(__file__).parents[2] / "examples" / "g_and_k.py"
    main = runpy.run_path(str(path))["main"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        idata = main(warmup=50, draws=50, chains=1)
    assert set(idata["posterior"]) == {"a", "b", "g", "k"}
    assert int(idata["adaptation"]["n_simulations"][0]) == 40 * 50


def test_record_of_the_run():
    def run(epsilon):
        def distance(simulated, observed):
            return abs(simulated - observed).max()

        target = stanadapt.abc(simulator, OBSERVED, PRIOR, epsilon=epsilon, distance=distance)
        return sample(target, **SHORT)["posterior"].attrs

    assert run(1.0)["model_hash"] == run(1.0)["model_hash"] != run(2.0)["model_hash"]
    assert run(1.0)["noisy"] == 1


def test_a_library_that_allows_no_threads_gets_none(gaussian_libraries):
    def two(theta, rng):
        return rng.normal(theta["x"], theta["sigma"])

    prior = Posterior(gaussian_libraries["processes"])
    with pytest.raises(ArgumentError, match="threads=True is not allowed"):
        stanadapt.abc(two, [0.1, 0.2], prior, epsilon=1.0, threads=True)
    idata = sample(stanadapt.abc(two, [0.1, 0.2], prior, epsilon=1.0), **SHORT)
    assert idata["posterior"]["sigma"].shape == (2, 50)


def test_no_simulation_where_the_prior_is_zero():
    prior = 'parameters { real mu; } model { if (mu > 1) reject("above one"); mu ~ normal(0, 1); }'
    target = stanadapt.abc(simulator, OBSERVED, prior, epsilon=1.0, n_sim=10)
    idata = sample(target, warmup=1_000, draws=1_000, chains=1)
    assert float(idata["posterior"]["mu"].max()) <= 1.0
    assert 0 < int(idata["adaptation"]["n_simulations"][0]) < 10 * 1_000
    assert int(idata["adaptation"]["failures"].sum()) == 0


def test_starting_points_by_name():
    prior = {"a": stats.uniform(0.0, 2.0), "b": stats.norm(np.zeros(2), 1.0)}

    def normal(theta, rng):
        return rng.normal(theta["a"], 1.0, 4)

    target = stanadapt.abc(normal, OBSERVED, prior, epsilon=1.0)
    idata = sample(target, inits={"a": 0.5, "b": [1.0, -1.0]}, **SHORT)
    np.testing.assert_allclose(idata["adaptation"]["start"], [[np.log(0.5 / 1.5), 1.0, -1.0]] * 2)
    for value, message in ((3.0, "a is outside of the support"), (2.0, "on the boundary")):
        with pytest.raises(ArgumentError, match=message):
            sample(target, inits={"a": value, "b": [1.0, -1.0]}, **SHORT)


def test_no_start_within_epsilon_says_so():
    target = stanadapt.abc(simulator, OBSERVED + 1e3, PRIOR, epsilon=0.1, kernel="uniform")
    with pytest.raises(InitializationError, match="First reason: the estimate of the density is zero"):
        sample(target, **SHORT)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"simulator": 3}, r"simulator=3 is not allowed.*function of \(theta, rng\)"),
        ({"simulator": lambda theta, rng: np.zeros(3)}, r"simulator returned shape \(3,\) at theta=.*\(4,\)"),
        ({"simulator": lambda theta, rng: None}, r"simulator returned None at theta=\{'mu'.*numbers"),
        ({"simulator": lambda theta, rng: np.full(4, np.nan)}, r"simulator returned NaN at theta=\{'mu'"),
        (
            {"simulator": lambda theta, n, rng: np.zeros(4), "vectorized": True},
            r"shape \(4,\).*shape \(1, 4\)",
        ),
        ({"observed": [1.0, np.nan]}, "observed has values that are NaN"),
        ({"observed": []}, r"observed=\[\] is not allowed"),
        ({"observed": "data.csv"}, "observed='data.csv' is not allowed"),
        ({"epsilon": None}, "epsilon=None is not allowed.*above 0"),
        ({"epsilon": 0.0}, "epsilon=0.0 is not allowed.*above 0"),
        ({"epsilon": -1.0}, "epsilon=-1.0 is not allowed"),
        ({"epsilon": np.nan}, "epsilon=nan is not allowed"),
        ({"n_sim": 0}, "n_sim=0 is not allowed.*an integer from 1"),
        ({"n_sim": 2.0}, "n_sim=2.0 is not allowed"),
        ({"kernel": "gauss"}, "kernel='gauss' is not allowed.*gaussian, uniform"),
        ({"likelihood": "exact"}, "likelihood='exact' is not allowed.*kernel, synthetic"),
        ({"likelihood": "synthetic"}, "epsilon is not allowed with likelihood='synthetic'"),
        ({"likelihood": "synthetic", "epsilon": None, "n_sim": 7}, "n_sim=7 is not allowed.*at least 8"),
        (
            {"likelihood": "synthetic_plugin", "epsilon": None, "n_sim": 4},
            "n_sim=4 is not allowed.*at least 5",
        ),
        ({"distance": "euclidean"}, "distance='euclidean' is not allowed"),
        ({"distance": lambda simulated, observed: np.nan}, "distance returned NaN at theta="),
        ({"distance": lambda simulated, observed: -1.0}, "distance returned -1 at theta=.*at least 0"),
        ({"distance": lambda simulated, observed: simulated}, r"distance returned shape \(4,\).*shape \(\)"),
        ({"summary": 1}, "summary=1 is not allowed"),
        ({"summary": lambda data: np.nan}, "summary of the observed data has values that are NaN"),
        (
            {"summary": lambda data: np.zeros(1 if data[0] == OBSERVED[0] else 2)},
            r"summary returned shape \(2,\).*shape \(1,\)",
        ),
        ({"vectorized": "yes"}, "vectorized='yes' is not allowed"),
        ({"prior": None}, "prior=None is not allowed.*Stan program.*frozen"),
        ({"prior": {}}, "prior={} is not allowed"),
        ({"prior": {"mu": 1.0}}, r"prior\['mu'\]=1.0 is not allowed.*frozen continuous"),
        ({"prior": {"mu": stats.poisson(3)}}, r"prior\['mu'\]=.*is not allowed.*frozen continuous"),
        ({"prior": {"mu": stats.norm(0.0, -1.0)}}, r"prior\['mu'\]=norm\(0.0, -1.0\) has parameters"),
        ({"prior": {"b.1": stats.norm()}}, "prior has the name 'b.1'"),
        ({"prior": "parameters { }"}, "prior is a Stan program without parameters"),
        ({"prior_data": {"N": 1}}, "prior_data are allowed only where prior is a Stan program"),
        ({"threads": 1}, "threads=1 is not allowed"),
    ],
)
def test_bad_input_is_refused_before_a_run(keywords, message):
    given = {"simulator": simulator, "observed": OBSERVED, "prior": PRIOR, "epsilon": 1.0} | keywords
    with pytest.raises(ArgumentError, match=message):
        stanadapt.abc(given.pop("simulator"), given.pop("observed"), given.pop("prior"), **given)


def test_prior_data_that_do_not_fit():
    with pytest.raises(DataError, match="scale"):
        stanadapt.abc(simulator, OBSERVED, REGRESSION, prior_data={"scale": "wide"}, epsilon=1.0)


def test_noisy_priors_are_refused():
    noisy = stanadapt.Target.from_python(lambda x, rng: 0.0, 1, noisy=True)
    with pytest.raises(ArgumentError, match="prior is a noisy target"):
        stanadapt.abc(simulator, OBSERVED, Posterior(noisy), epsilon=1.0)


@pytest.mark.parametrize("value", [np.full(4, np.nan), np.zeros(3)])
def test_bad_simulations_end_a_run(value):
    def sometimes(theta, rng):
        return value if theta["mu"] > 2.0 else simulator(theta, rng)

    target = stanadapt.abc(sometimes, OBSERVED, PRIOR, epsilon=3.0)
    with pytest.raises(ArgumentError, match=r"simulator returned .* at theta=\{'mu': [2-9]"):
        sample(target)


def test_infinite_simulations_are_far_from_the_data():
    def sometimes(theta, rng):
        return np.full(4, np.inf) if theta["mu"] > 1.0 else simulator(theta, rng)

    idata = sample(stanadapt.abc(sometimes, OBSERVED, PRIOR, epsilon=3.0), **SHORT)
    assert float(idata["posterior"]["mu"].max()) <= 1.0
    target = stanadapt.abc(sometimes, OBSERVED, PRIOR, likelihood="synthetic", n_sim=9)
    with pytest.raises(ArgumentError, match=r"simulator returned infinity at theta=.*finite numbers"):
        sample(target, **SHORT)


def test_singular_covariances_are_explained():
    def twice(data):
        return [data.mean(), 2 * data.mean()]

    target = stanadapt.abc(simulator, OBSERVED, PRIOR, likelihood="synthetic", n_sim=9, summary=twice)
    with pytest.raises(
        ArgumentError, match=r"covariance of 9 simulated summaries is singular at theta=\{'mu'"
    ):
        sample(target, **SHORT)


def test_exceptions_of_a_simulator_come_through():
    with pytest.raises(KeyError, match="in the simulator"):
        stanadapt.abc(broken, OBSERVED, PRIOR, epsilon=1.0)

    def sometimes(theta, rng):
        return broken(theta, rng) if theta["mu"] > 1.0 else simulator(theta, rng)

    target = stanadapt.abc(sometimes, OBSERVED, PRIOR, epsilon=1.0)
    with pytest.raises(KeyError, match="in the simulator") as caught:
        sample(target)
    assert caught.value.__notes__[0].startswith("It was raised in chain ")
    with pytest.raises(KeyError) as caught:
        target.log_density(np.array([1.5]))
    below_this_test = caught.value.__traceback__.tb_next
    text = ChainFailure.of(0, caught.value.with_traceback(below_this_test)).traceback
    assert ", in sometimes\n" in text
    assert ", in broken\n    raise KeyError(" in text
    assert "simulation.py" not in text.replace("test_simulation.py", "")  # nothing of what led to it
