"""What the statistical suites need to know of each method. A new method adds a line to CASES."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from broken import taken_over
from exact import Exact
from stanadapt import samplers
from stanadapt.run.warmup import warm_up
from stanadapt.samplers import METHODS
from stanadapt.trace import empty_trace

# Not here: the funnel and the banana. Langevin and random-walk chains with one step size are not
# geometrically ergodic there: they miss the far tails for long and then stay in them, and no MCSE tells.
# fisher_mala does the same on `hierarchical`, and has the finding `sticky_tails` (test_findings.py).
EASY = ("correlated_gaussian", "linear_regression", "eight_schools", "hierarchical")
SKEWED = (*EASY, "logistic_regression")
UNLIKE_SCALES = ("correlated_gaussian", "linear_regression", "eight_schools", "logistic_regression")


class Case(NamedTuple):
    """How a method is tested."""

    models: tuple[str, ...]  # of models/, whose moments it must get right from a random start
    settings: tuple[dict[str, Any], ...] = ({},)  # variants that must leave the target invariant
    draws: int = 20_000


CASES = {
    "rwm": Case(EASY[:3], draws=60_000),
    "am": Case(UNLIKE_SCALES, draws=40_000),
    "arwmh": Case(UNLIKE_SCALES, ({}, {"beta": 0.6}), draws=40_000),
    "gad_rwm": Case(UNLIKE_SCALES, ({}, {"faithful": True}), draws=40_000),
    "mala": Case(EASY[:3], draws=40_000),
    "ada_mala": Case(SKEWED),
    "amala": Case(SKEWED, ({}, {"faithful": True})),
    "fisher_hmc": Case(
        SKEWED,
        (
            {},
            {"metric": "low_rank"},
            {"metric": "dense"},
            {"jitter": 0.0, "trajectory": 3.0},
            {"target_accept": 0.9999, "max_steps": 5},
        ),
        draws=2_000,
    ),
    "fisher_mala": Case(
        UNLIKE_SCALES,
        ({}, {"signal": "score"}, {"signal": "increment"}, {"faithful": True}),
    ),
    "gad_mala_fast": Case(UNLIKE_SCALES, ({}, {"faithful": True})),
    "gad_mala_exact": Case(UNLIKE_SCALES, ({}, {"faithful": True})),
    "mmala": Case(UNLIKE_SCALES),
    "hmc": Case(
        ("correlated_gaussian", "linear_regression", "hierarchical"),
        ({}, {"n_leapfrog": 1}, {"n_leapfrog": 5, "jitter": 0.3}),
    ),
    "kamh": Case(UNLIKE_SCALES, ({}, {"faithful": True}), draws=40_000),
    "kmc_lite": Case(UNLIKE_SCALES, ({}, {"faithful": True}, {"kernel": "rational_quadratic"}), draws=10_000),
    "kmc_finite": Case(
        UNLIKE_SCALES, ({}, {"faithful": True}, {"kernel": "rational_quadratic"}), draws=10_000
    ),
    "rlmh": Case(UNLIKE_SCALES, ({}, {"faithful": True, "warm_start": 1_500}), draws=40_000),
    "rlmh_mala": Case(UNLIKE_SCALES, ({}, {"faithful": True, "warm_start": 1_500})),
    # One rung is that of the posterior alone; exchanges are tested in test_tempering.py.
    "tempered": Case(SKEWED, ({"rungs": 1},), draws=2_000),
    "nuts": Case(SKEWED, draws=5_000),
}


# One of each kind: a walk, Langevin steps, trajectories, Hessians, an engine. They meet all models, and all
# that depends on how a model is called. The others meet some of it, and all in `make thorough`.
IN_FULL = ("rwm", "fisher_mala", "fisher_hmc", "mmala", "nuts")

# And with a surrogate, a policy and replicas. What is the same code for all methods meets one of each of
# these in `make test`: files, columns, limits of settings, short warm-ups, log densities that fail.
OF_EACH_KIND = (*IN_FULL, "kmc_lite", "rlmh", "tempered")


def methods() -> list[str]:
    """Every method there is; one without a case must fail, so this does not ask CASES."""
    return list(METHODS)


def partly_thorough(names: Iterable[str], kept: Container[str]) -> list[Any]:
    """The names as parameters of a test, of which `make test` runs those that are kept."""
    return [pytest.param(name, marks=() if name in kept else pytest.mark.thorough) for name in names]


def thorough(*values: Any) -> Any:
    """Values of a parameter of a test that `make thorough` runs, and `make test` does not."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def kernel_methods() -> list[str]:
    """Those with kernels of ours. An engine has none to freeze, place or compile; see test_nuts.py."""
    return [name for name in METHODS if not samplers.is_engine(samplers.sampler(name))]


def learnt_state(sampler: Any, settings: Any, exact: Exact, rng: np.random.Generator) -> Any:
    """The state after a short warm-up from an exact draw, with a preconditioner that is not the identity."""
    target = exact.target.target()
    x = exact.draw(1, rng)[0]
    return warm_up(sampler, settings, target, x, rng, 3_000).finish()


def p_values_after(
    sampler: Any,
    settings: Any,
    exact: Exact,
    *,
    n: int,
    steps: int,
    seed: int,
    estimate: Callable[[np.ndarray, np.random.Generator], float] | None = None,
    learner: Any = None,
    change: Callable[[Any], Any] | None = None,
    fewest: float = 0.1,
) -> np.ndarray:
    """Kolmogorov-Smirnov p-values of the law of `n` exact draws after `steps` frozen steps each.

    One p-value for each known projection of the law. They are uniform if the kernel leaves it invariant. Of a
    noisy target, `estimate` draws what a chain in its stationary law keeps at a point. The state is learnt by
    `learner` in place of `sampler` if that can only be run frozen; both are of one method. Then `change` may
    spoil it.

    A kernel that moves nothing leaves every law invariant, so the share of iterations that move the chain has
    to be `fewest` at least.
    """
    rng = np.random.default_rng(seed)
    target = exact.target.target()
    state = learnt_state(learner or sampler, settings, exact, rng)
    if change is not None:
        state = change(state)
    if learner is not None:
        state = taken_over(state)
    trace = empty_trace(steps, exact.target.dim)
    end, moves = np.empty((n, exact.target.dim)), 0
    for i, x in enumerate(exact.draw(n, rng)):
        logp = None if estimate is None else estimate(x, rng)
        at = sampler.move(target, settings, state, x, logp)
        sampler.sweep(target, settings, at, rng, False, trace)
        end[i] = trace.x[-1]
        moves += np.any(np.diff(trace.x, axis=0, prepend=x[None]) != 0.0, axis=1).sum()
    assert moves >= fewest * n * steps, f"{moves} of {n * steps} iterations moved the chain"
    uniforms = exact.probabilities(end)
    return np.array([stats.kstest(column, "uniform").pvalue for column in uniforms.T])


# A surrogate of fewer points or features proposes worse, and the kernel must be as exact with it.
SMALL = {"kmc_lite": {"subsample": 100}, "kmc_finite": {"basis": 100}}


def resolve_small(method: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """As `resolve`, with the surrogate that is cheap to run where settings do not say how large it is."""
    return resolve(method, SMALL.get(method, {}) | settings)


def resolve(method: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """A method's module and its resolved settings."""
    sampler = samplers.sampler(method)
    return sampler, samplers.resolve(sampler, settings)
