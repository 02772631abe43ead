"""A run that begins with what an earlier one has learnt: its metric, step sizes, coordinates, and draws.

`Warm` holds what is known about the earlier chains, from any source. This file makes an `Init` of it for
each chain: the starting point, and the `Handover` that the method takes over, as it does from a pilot.

The earlier posterior may be another one: there are more data, or a prior has changed. So each chain looks at
some earlier draws, and learns from their scores under the new posterior before its first iteration. For a
Gaussian with covariance A the scores are s = -A^-1 (x - mu), wherever the points x come from: the metric of
the new posterior is exact after d + 1 of them, even if they are draws of another one. They take the place of
the first windows of warm-up (samplers/fisher_hmc.py). Then warm-up goes on, and ends where two windows agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ... import samplers
from ...errors import ArgumentError
from ...model.posterior import Posterior
from ...samplers.base import METRIC, STEP_SIZE, Handover
from ...transport.composition import transport_draws
from ...transport.map_table import no_transport
from ..inits import Init
from ..job import Job
from ..warmup import LOOKS, what_it_takes
from ..warmup import PILOT as PILOT_METHOD

WEIGHT = 100  # iterations that what was learnt counts for, in the recursions that go on from it
PILOT = 90  # iterations of Fisher HMC that check a metric before the methods that have a pilot
SHARE = 5  # of the usual warm-up, one in so many iterations are left
_POOLED = 2_000  # earlier draws that a covariance is taken of, where no metric was learnt
_SPAWN_KEY = 2**31 + 1  # of the random numbers that pick draws; seeds of chains have smaller keys


class Warm(NamedTuple):
    """What m earlier chains with n draws each have learnt, from any source."""

    method: str  # whose step sizes and metrics these are
    names: tuple[str, ...] | None  # of the d unconstrained parameters, if they are known
    draws: Mapping[str, np.ndarray]  # parameter -> constrained draws (m, n, ...), or some of them
    x: np.ndarray | None  # (m, n, d) unconstrained draws, where they were kept
    metric: np.ndarray | None  # (m, d, d), or the diagonals (m, d); None: the covariance of the draws
    has_scale: bool  # whether the metric is like the covariance; else it is so up to a factor
    step_size: np.ndarray  # (m,) NaN where it is not known
    transport: tuple[np.ndarray, ...]  # of each chain the coordinates (r, 16) that its metric is in
    source: str  # in words for the new result


def check_method(method: str, settings: Any) -> None:
    """Refuse a method that cannot begin with what an earlier run has learnt.

    Raises
    ------
    ArgumentError
        The message has the methods that can.
    """
    if not what_it_takes(samplers.facts(method)):
        able = [name for name in samplers.METHODS if what_it_takes(samplers.facts(name))]
        raise ArgumentError(
            f"warm is not allowed with method={method!r}, which can take over neither a metric nor a step "
            f"size: use one of {', '.join(able)}, or pass the earlier result as inits"
        )
    if getattr(settings, "faithful", False):
        raise ArgumentError(
            "warm is not allowed with faithful=True: no paper begins with what an earlier run has learnt; "
            "leave one of them out"
        )


def shorten(method: str, warmup: int | None, settings: Any, given: Any) -> tuple[int, Any]:
    """The length of a warm-up that begins warm, and the method's resolved settings for it.

    By default it is shorter than usual, if the method does not end its warm-up by itself. A method that may
    have a pilot has one, which checks what was learnt; `given` has the user's settings, which come first.

    Raises
    ------
    ArgumentError
        The method cannot begin with what an earlier run has learnt, see `check_method`.
    """
    check_method(method, settings)
    facts = samplers.facts(method)
    if warmup is None:
        warmup = facts.warmup if facts.settles else facts.warmup // SHARE
    chosen = not isinstance(given, Mapping | None) or "pilot" in (given or {})
    if facts.takes_pilot and not chosen:
        settings = settings._replace(pilot=min(PILOT, warmup))
    return warmup, settings


def check_parameters(warm: Warm, posterior: Posterior) -> None:
    """Refuse parameters that the model does not have, and other shapes. Raises ArgumentError."""
    wanted, given = posterior.parameters, warm.draws
    for name in wanted:
        if name not in given:
            raise ArgumentError(
                f"warm lacks the parameter {name} of the model; its parameters are those of another program"
            )
        if (shape := given[name].shape[2:]) != wanted[name].shape:
            raise ArgumentError(
                f"warm has the parameter {name} with shape {shape}, and the model declares "
                f"{wanted[name].shape}: a metric for other parameters is of no use"
            )
    if warm.names is None:
        if warm.metric is not None and warm.metric.shape[1] != posterior.dim:
            raise ArgumentError(
                f"warm has a metric for {warm.metric.shape[1]} unconstrained parameters, and the model has "
                f"{posterior.dim}"
            )
        return
    if list(warm.names) != (names := list(posterior.unconstrained_names)):
        other = next((name for name in warm.names if name not in names), None)
        lacking = next((name for name in names if name not in warm.names), None)
        said = f"has {other}, which the model has not" if other else f"lacks {lacking}"
        if not (other or lacking):
            said = "has them in another order"
        raise ArgumentError(
            f"warm has {len(warm.names)} unconstrained parameters, and the model {len(names)}: warm {said}"
        )


def plan_starts(warm: Warm, posterior: Posterior, chains: int, radius: float, seed: int) -> list[Init]:
    """A start for each chain: an earlier draw, of earlier chains in turn, and none twice if there are enough.

    Chains that begin in the same earlier chain do so in different parts of it. Where a draw is outside the
    new posterior's support, or has no finite density, the chain starts as it would without `warm`.
    """
    m, n = _sizes(warm)
    rows = []
    for chain in range(chains):
        source, part, parts = chain % m, chain // m, -(-(chains - chain % m) // m)
        first, last = n * part // parts, max(n * (part + 1) // parts, n * part // parts + 1)
        rows.append((source, int(_rng(seed, chain).integers(first, last))))
    points = _unconstrain(warm, posterior, rows)
    inside = np.isfinite(points).all(axis=1)
    return [
        Init(radius, point=point if fine else None, may_fail=bool(fine))
        for point, fine in zip(points, inside, strict=True)
    ]


def hand_over(warm: Warm, inits: list[Init], posterior: Posterior, job: Job) -> list[Init]:
    """The same starts with what each chain's method takes over.

    Chain i goes on from what the earlier chain i has learnt, or i modulo m where there were m of them.
    """
    method = samplers.sampler(job.method)
    facts = method.FACTS
    if what_it_takes(facts) == STEP_SIZE and _owner(warm, job.method) != job.method:
        return inits
    if samplers.user_values(method, job.settings).get("transport") == "off" and any(map(len, warm.transport)):
        warm = warm._replace(transport=(no_transport(),) * len(warm.transport), metric=None)
    m, n = _sizes(warm)
    looked = _rng(job.seed).choice(m * n, size=min(m * n, LOOKS[-1]), replace=False)
    points = _finite(_unconstrain(warm, posterior, [divmod(int(i), n) for i in looked]))
    pooled = np.empty((0, posterior.dim))
    if what_it_takes(facts) == METRIC and (warm.metric is None or not warm.has_scale):
        every = -(-m * n // _POOLED)
        pooled = _finite(_unconstrain(warm, posterior, [divmod(i, n) for i in range(0, m * n, every)]))
    handed = []
    for chain, init in enumerate(inits):
        source = chain % m
        transport = warm.transport[source]
        z = _in_coordinates(transport, points)
        handover = Handover(
            z=np.empty(0),
            mean=z.mean(axis=0) if len(z) else np.zeros(posterior.dim),
            cov=_metric(warm, source, _in_coordinates(transport, pooled)),
            n=WEIGHT,
            transport=transport,
            step_size=_step_size(warm, source, job.method),
            method=_owner(warm, job.method),
            points=np.roll(points, -LOOKS[0] * chain, axis=0),
        )
        handed.append(init._replace(warm=handover))
    return handed


def describe(warm: Warm, method: str, inits: list[Init]) -> dict[str, str]:
    """The attributes of the new result that tell about the warm start."""
    handed = [init.warm for init in inits if init.warm is not None]
    taken = ["starts"] if any(init.may_fail for init in inits) else []
    if what_it_takes(samplers.facts(method)) == METRIC:
        taken.append("metric")
        taken += ["coordinates"] if any(len(each.transport) for each in handed) else []
    if any(each.method == method and each.step_size > 0.0 for each in handed):
        taken.append("step size")
    return {"warm": f"{', '.join(taken) or 'nothing'} of {warm.source}"}


def _owner(warm: Warm, method: str) -> str:
    """The method whose step size a run of `method` takes over: of the earlier one, or made of that."""
    begins = PILOT_METHOD if samplers.facts(method).takes_pilot else method
    theirs, ours = samplers.facts(warm.method), samplers.facts(begins)
    # The step sizes of other methods follow from a leapfrog step under a metric.
    is_told = theirs.leapfrogs == 1.0 and warm.metric is not None and ours.leapfrogs > 0.0
    return begins if is_told else warm.method


def _step_size(warm: Warm, source: int, method: str) -> float:
    """The step size of an earlier chain, for the method that `_owner` says.

    That of NUTS is one of leapfrog under its metric. A method whose steps do the work of several leapfrog
    steps goes as far in one. Without a metric a step is as short as the direction of the smallest variance
    needs it.
    """
    size, owner = float(warm.step_size[source]), _owner(warm, method)
    if owner == warm.method or warm.metric is None:
        return size
    facts, metric = samplers.facts(owner), warm.metric[source]
    size *= facts.leapfrogs
    if what_it_takes(facts) == METRIC:
        return size
    smallest = np.linalg.eigvalsh(metric)[0] if metric.ndim == 2 else metric.min()
    return float(size * np.sqrt(smallest)) if smallest > 0.0 else np.nan


def _sizes(warm: Warm) -> tuple[int, int]:
    """The numbers of earlier chains and of the draws of each."""
    shape = next(iter(warm.draws.values())).shape
    return shape[0], shape[1]


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY, *key)))


def _unconstrain(warm: Warm, posterior: Posterior, rows: list[tuple[int, int]]) -> np.ndarray:
    """Draws, given by chain and place, as unconstrained points (k, d); NaN for those outside the support."""
    if warm.x is not None:
        return np.array([warm.x[row] for row in rows]).reshape(len(rows), posterior.dim)
    points = np.full((len(rows), posterior.dim), np.nan)
    flat = np.empty(len(posterior.names))
    for point, row in zip(points, rows, strict=True):
        for name, variable in posterior.parameters.items():
            flat[variable.columns] = warm.draws[name][row]
        try:
            point[:] = posterior.model.unconstrain_flat(flat)
        except RuntimeError:  # outside of the support, or rounded to its boundary
            continue
    return points


def _finite(points: np.ndarray) -> np.ndarray:
    return np.asarray(points[np.isfinite(points).all(axis=1)])


def _in_coordinates(transport: np.ndarray, points: np.ndarray) -> np.ndarray:
    return transport_draws(transport, points, np.zeros_like(points))[0]


def _metric(warm: Warm, source: int, pooled: np.ndarray) -> np.ndarray:
    """The metric (d, d) of an earlier chain, or its diagonal (d,); of the draws (k, d) where it has none."""
    if warm.metric is None:
        return _covariance(pooled)
    metric: np.ndarray = warm.metric[source]
    if warm.has_scale or len(pooled) < 3:
        return metric
    ratio = np.var(pooled, axis=0) / (np.diag(metric) if metric.ndim == 2 else metric)
    ratio = ratio[np.isfinite(ratio) & (ratio > 0.0)]
    return np.asarray(metric * (np.exp(np.log(ratio).mean()) if ratio.size else 1.0))


def _covariance(points: np.ndarray) -> np.ndarray:
    """The covariance of points (k, d); its diagonal where they are few, and ones where they tell nothing."""
    k, d = points.shape
    variances = np.var(points, axis=0) if k > 2 else np.zeros(d)
    if not np.all(variances > 0.0):
        return np.ones(d)
    return np.atleast_2d(np.cov(points.T)) if k > 2 * d else variances
