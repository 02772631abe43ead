"""What the parts of kernel_hmc.py share: how their chains are run, and what they hand over."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import stanadapt
from stanadapt import samplers
from stanadapt.numerics.frame import plain_frame
from stanadapt.numerics.score_matching import RadialFunction, choose, fit_lite, fit_lite_without, median_sigma
from stanadapt.numerics.surrogate import GAUSSIAN, Surrogate
from stanadapt.result.container import datasets
from stanadapt.trace import Trace, empty_trace


class Found(NamedTuple):
    """What a part has measured; `curves` is what its figure shows beside."""

    rows: pd.DataFrame  # one a repeat
    curves: dict[str, Any]


class Chain(NamedTuple):
    """A chain on a target whose density is estimated."""

    label: str
    method: str
    settings: dict[str, Any]
    warmup: int
    draws: int
    repeat: int
    seed: int
    thin: int = 1
    adapting: bool = False  # whether the iterations to look at are those of warm-up


class Result(NamedTuple):
    row: dict[str, Any]
    draws: np.ndarray  # (n, d)


def gathered(
    workers: ProcessPoolExecutor, measure: Callable[[Any], Any], jobs: Sequence[Any], name: str
) -> list[Any]:
    """What `measure` gives for all jobs; one that failed leaves a line that says why."""
    futures = [workers.submit(measure, job) for job in jobs]
    results = []
    for job, future in zip(jobs, tqdm(futures, name, disable=None, leave=False), strict=True):
        try:
            results.append(future.result())
        except stanadapt.StanAdaptError as error:
            print(f"{name}: {job} failed: {error}")
    return results


def with_error(values: pd.Series, digits: int) -> str:
    """The mean, and its standard error in brackets."""
    error = f" ({values.sem():.{digits}f})" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def there(name: str) -> bool:
    if name not in samplers.METHODS:
        print(f"{name} is skipped: it is not among this stanadapt's methods")
    return name in samplers.METHODS


def sized(
    methods: Sequence[tuple[str, str, dict[str, Any]]], given: argparse.Namespace
) -> list[tuple[str, str, dict[str, Any]]]:
    """Those that this stanadapt has; with small subsamples where runs are to be quick."""
    chosen = [method for method in methods if there(method[1])]
    if not given.quick:
        return chosen
    small = {"subsample": 100}
    return [
        (label, name, settings | {k: small[k] for k in small if k in settings})
        for label, name, settings in chosen
    ]


def fixed_steps(low: float, high: float) -> dict[str, float]:
    """Settings of KMC for step sizes that are uniform on (low, high) and not adapted."""
    return {"initial_step_size": high, "step_low": low / high, "step_rate": 0.0}


def run_chain(chain: Chain, target: stanadapt.Target, start: np.ndarray) -> Result:
    """A chain that learns from its own history."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what a finding would say
        groups = datasets(
            stanadapt.sample(
                target,
                method=chain.method,
                settings=chain.settings,
                warmup=chain.warmup,
                draws=chain.draws,
                thin=chain.thin,
                chains=1,
                seed=chain.seed + chain.repeat,
                inits=start[None],
                save_warmup=chain.adapting,
                progress=False,
            )
        )
    prefix = "warmup_" if chain.adapting else ""
    posterior, stats = groups[f"{prefix}posterior"], groups[f"{prefix}sample_stats"]
    row = {
        "method": chain.label,
        "repeat": chain.repeat,
        "acceptance": float(stats["acceptance_rate"].mean()),
        "seconds": float(groups["adaptation"]["seconds_total"].sum()),
    }
    (draws,) = (values.values[0] for values in posterior.data_vars.values())
    return Result(row, draws)


def frozen(
    target: Any,
    method: str,
    settings: dict[str, Any],
    x: np.ndarray,
    iterations: int,
    rng: np.random.Generator,
    tuning: int = 0,
    **learnt: Any,
) -> Trace:
    """A chain from `x` (d,) on a native target, with what is put into its state as learnt.

    Only its scale adapts, and only over `tuning` iterations before.
    """
    sampler = samplers.sampler(method)
    resolved = samplers.resolve(sampler, settings)
    state = sampler.start(target, resolved, x, rng)._replace(**learnt)
    if tuning:
        state = sampler.sweep(target, resolved, state, rng, True, empty_trace(tuning, x.size))
    trace = empty_trace(iterations, x.size)
    sampler.sweep(target, resolved, state, rng, False, trace)
    return trace


def learnt_from(points: np.ndarray, tuning: int) -> Surrogate:
    """KMC lite's surrogate of `points` (n, d), its kernel chosen by cross-validation on the first `tuning`.

    Choosing on 1,000 takes half a minute; chosen on fewer points, a kernel is wider than is best for all.
    """

    def fit(
        points: np.ndarray, parts: Sequence[np.ndarray], sigma: float, regularisation: float
    ) -> list[Surrogate]:
        return fit_lite_without(points, parts, RadialFunction(GAUSSIAN, sigma), regularisation)

    sigma, regularisation = choose(points[:tuning], fit, (median_sigma(points), 0.01))
    return fit_lite(points, RadialFunction(GAUSSIAN, sigma), regularisation).surrogate


def run_on_surrogate(
    chain: Chain, target: stanadapt.Target, start: np.ndarray, surrogate: Surrogate
) -> Result:
    """A chain of KMC lite along a surrogate that stays as it is; all iterations are looked at."""
    model = target.for_chain(0, np.random.SeedSequence([chain.seed, chain.repeat]))
    rng, began = np.random.default_rng([chain.seed, chain.repeat]), time.perf_counter()
    learnt = {"surrogate": surrogate, "frame": plain_frame(np.zeros(start.size))}
    iterations = chain.warmup if chain.adapting else chain.draws
    trace = frozen(model.target(), chain.method, chain.settings, start, iterations, rng, **learnt)
    model.raise_pending()
    row = {"method": chain.label, "repeat": chain.repeat, "acceptance": trace.accept_prob.mean()}
    return Result(row | {"seconds": time.perf_counter() - began}, trace.x)
