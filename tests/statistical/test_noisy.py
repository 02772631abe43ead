"""Targets whose density is only estimated: exact all the same, and exact only if estimates are kept.

The noise has a known law: the logarithm of the estimate is log pi(x) + s z - s²/2 with z standard normal and
s a function of x, so that the estimate is unbiased. What a chain keeps in its stationary law has the density
pi(x) w p(w), w = the weight exp(s z - s²/2): there the logarithm of w is normal with mean +s²/2 (Andrieu and
Roberts, 2009).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_invariance import LEVEL

import stanadapt
from broken import broken_sampler
from cases import CASES, kernel_methods, p_values_after, partly_thorough, resolve_small, thorough
from exact import CHOL, PRECISION, SHAPE, UNMIX, Exact, gaussian, skewed
from moments import limit, z_scores
from stanadapt import Target, samplers
from stanadapt.errors import ArgumentError, FindingsWarning, InitializationError
from stanadapt.result.container import datasets
from stanadapt.samplers import METHODS, facts
from stanadapt.samplers.base import SURROGATE
from stanadapt.target import log_density

DRAWS, STEPS = 4_000, 10
RUN = {"method": "rwm", "chains": 2, "warmup": 60, "draws": 40, "seed": 3, "progress": False, "workers": 1}

ABLE = [method for method in kernel_methods() if not samplers.facts(method).gradient]
# A walk and a policy: what noise changes is the same in all of them, that a chain keeps its estimate.
KEPT = ("rwm", "rlmh")


def spread(x: np.ndarray) -> float:
    """s(x): a chain that draws estimates again stays where they are noisy."""
    return 1.5 if x[0] > 0.0 else 0.5


def log_gaussian(x: np.ndarray) -> float:
    return float(-0.5 * x @ PRECISION @ x)


def log_skewed(x: np.ndarray) -> float:
    u = UNMIX @ x
    return float(np.sum(SHAPE * u - np.exp(u)))


def noisy(log_pi: Callable[[np.ndarray], float]) -> Any:
    def log_estimate(x: np.ndarray, rng: np.random.Generator) -> float:
        s = spread(x)
        return log_pi(x) + s * rng.standard_normal() - 0.5 * s * s

    return Target.from_python(log_estimate, 3, noisy=True)


LAWS = {"gaussian": (gaussian, log_gaussian), "skewed": (skewed, log_skewed)}


def law_is_kept(sampler: Any, settings: Any, name: str, seed: int) -> bool:
    make, log_pi = LAWS[name]

    def kept(x: np.ndarray, rng: np.random.Generator) -> float:
        s = spread(x)
        return log_pi(x) + s * rng.standard_normal() + 0.5 * s * s

    law = make()
    exact = Exact(name, noisy(log_pi), law.draw, law.probabilities)
    p_values = p_values_after(sampler, settings, exact, n=DRAWS, steps=STEPS, seed=seed, estimate=kept)
    return bool(p_values.min() > LEVEL / p_values.size)


class Refreshing:
    """A method that draws the estimate at the current point again before each of its iterations."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        if sampler.FACTS.refits:
            self.until_refit, self.refit = sampler.until_refit, sampler.refit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)

    def sweep(self, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Any) -> Any:
        for i in range(len(trace.logp)):
            row = type(trace)(*(column[i : i + 1] for column in trace))
            state = state._replace(logp=log_density(target, state.x))
            state = self.sampler.sweep(target, settings, state, rng, adapting, row)
        return state


@pytest.mark.seeds(1, rate=LEVEL)
@pytest.mark.parametrize("law", [thorough("gaussian"), "skewed"])
@pytest.mark.parametrize("method", partly_thorough(ABLE, KEPT))
def test_frozen_kernel_leaves_the_law_invariant(method: str, law: str, seed: int) -> None:
    assert law_is_kept(*resolve_small(method, {}), law, seed)


@pytest.mark.thorough
@pytest.mark.seeds(1, rate=0.01)
@pytest.mark.parametrize("method", ABLE)
def test_suite_goes_red_where_estimates_are_drawn_again(method: str, seed: int) -> None:
    sampler, settings = resolve_small(method, {})
    assert not law_is_kept(Refreshing(sampler), settings, "gaussian", seed)


@pytest.mark.seeds(1, rate=0.01)
def test_suite_goes_red_for_a_kernel_that_draws_again(tmp_path: Path, seed: int) -> None:
    text = "logp_y = log_density(target, y)\n"
    again = f"{text}    logp = log_density(target, x)\n"
    sampler = broken_sampler("rwm", "samplers/rwm.py", text, again, tmp_path)
    settings = resolve_small("rwm", {})[1]
    assert not all(law_is_kept(sampler, settings, name, seed) for name in LAWS)


@pytest.mark.seeds(4, rate=LEVEL)
@pytest.mark.parametrize("method", ABLE)
def test_moments_are_those_of_the_exact_law(method: str, seed: int) -> None:
    """With adaptation on, through all stages of warm-up, from random starts."""
    draws = max(CASES[method].draws // 4, 5_000)
    # After 2,000 iterations a surrogate of noisy values is too poor in one of four runs: R-hat says so.
    warmup = 5_000 if facts(method).family == SURROGATE else 2_000
    idata = sample(noisy(log_gaussian), method=method, warmup=warmup, draws=draws, seed=seed)
    x = idata["posterior"]["x"].values
    variances = np.diag(CHOL @ CHOL.T)
    z = z_scores(np.concatenate([x, x**2], axis=2), np.concatenate([np.zeros(3), variances]))
    assert np.abs(z).max() < limit(z.size), z
    assert idata["posterior"].attrs["noisy"] == 1


def sample(target: Any, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(target, **(RUN | keywords))


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ABLE])
def test_methods_that_cannot_take_it_name_those_that_can(method: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        sample(noisy(log_gaussian), method=method)
    assert f"method={method!r} is not allowed for a noisy target" in str(caught.value)
    assert str(caught.value).endswith(f"use one of {', '.join(ABLE)}")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_estimate_that_is_none_ends_the_run(value: float) -> None:
    def log_estimate(x: np.ndarray, rng: np.random.Generator) -> float:
        return value if x[0] > 0.5 else log_gaussian(x)

    with pytest.raises(ArgumentError) as caught:
        sample(Target.from_python(log_estimate, 3, noisy=True), draws=2_000)
    assert f"log_density returned {value} at x=[" in str(caught.value)
    assert str(caught.value).endswith("a number, or -inf where the estimate is zero")


def test_an_estimate_may_be_zero() -> None:
    def log_estimate(x: np.ndarray, rng: np.random.Generator) -> float:
        return log_gaussian(x) + np.log(2.0) if rng.random() < 0.5 else -np.inf

    idata = sample(Target.from_python(log_estimate, 3, noisy=True), draws=500)
    assert np.all(np.isfinite(idata["sample_stats"]["lp"]))
    assert int(idata["adaptation"]["failures"].sum()) == 0
    with pytest.raises(InitializationError, match=r"First reason: the estimate of the density is zero"):
        sample(Target.from_python(lambda x, rng: -np.inf, 3, noisy=True))


def test_the_posterior_itself_gives_estimates_from_a_fixed_seed() -> None:
    x = np.zeros(3)
    first, second = stanadapt.Posterior(noisy(log_gaussian)), stanadapt.Posterior(noisy(log_gaussian))
    values = [first.log_density(x) for _ in range(3)]
    assert len(set(values)) == 3
    assert [second.log_density(x) for _ in range(3)] == values
    before = datasets(sample(second))["posterior"]["x"]
    second.log_density(x)
    np.testing.assert_array_equal(datasets(sample(second))["posterior"]["x"], before)


@pytest.mark.seeds(3, rate=0.01)
def test_too_much_noise_is_a_finding(seed: int) -> None:
    def log_estimate(x: np.ndarray, rng: np.random.Generator, s: float) -> float:
        return log_gaussian(x) + s * rng.standard_normal() - 0.5 * s * s

    kinds = []
    for s in (0.5, 4.0):
        target = Target.from_python(functools.partial(log_estimate, s=s), 3, noisy=True)
        idata = sample(target, method="am", warmup=3_000, draws=20_000, seed=seed)
        kinds.append({finding.kind for finding in stanadapt.diagnose(idata)})
    assert kinds[0] == set()
    assert {"still", "noise"} <= kinds[1]


def test_noise_of_one_chain_is_not_that_of_another() -> None:
    """Chains that start at one point with the same estimates would go the same way for long."""
    started: list[float] = []

    def log_estimate(x: np.ndarray, rng: np.random.Generator) -> float:
        started.append(rng.standard_normal())
        return 0.0

    sample(Target.from_python(log_estimate, 1, noisy=True), chains=4, warmup=0, draws=1, inits=[[0.0]] * 4)
    assert len(set(started)) == len(started) >= 8


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"noisy": 1}, "noisy=1 is not allowed"),
        ({"threads": "yes"}, "threads='yes' is not allowed"),
        ({"noisy": True, "gradient": lambda x: -x}, "gradient is not allowed with noisy=True"),
    ],
)
def test_what_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Target.from_python(lambda x, rng: 0.0, 2, **keywords)


def test_compiled_estimates_are_refused() -> None:
    compiled = gaussian().target._log_density
    with pytest.raises(ArgumentError, match=r"noisy=True is not allowed with a compiled log_density"):
        Target.from_python(compiled, 3, noisy=True)
