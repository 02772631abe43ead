"""Fisher HMC: Hamiltonian Monte Carlo whose metric makes draws and scores agree.

Our own. It carries the idea of Titsias (2023), to learn the preconditioner from the scores that the chain
sees, to trajectories, which his Section 7 names as the open step, and to both sides of the equation that the
draws and scores of a Gaussian fulfil (numerics/metric.py).

    symbol   here                     shape   meaning
    x        state.x                  (d,)    position on the unconstrained scale
    s(x)     state.score              (d,)    gradient of the log density at x
    A        state.metric             (d, d)  inverse mass matrix, dense or diagonal plus low rank
    p        momentum                 (d,)    drawn from N(0, A^-1) for every trajectory
    h        state.step_size          ()      length of a step, which takes two gradients
    T        settings.trajectory      ()      length of a trajectory where the target is a Gaussian
    n        n                        ()      steps of a trajectory, settings.max_steps at most
    alpha_*  settings.target_accept   ()      acceptance rate that h is adapted to; h is T at most
             settings.metric                  "dense", "low_rank", or "auto": dense up to d = 500, compressed
                                              to low rank where products are cheaper then
             settings.curvature               whether the first metric is the Hessian's

One iteration draws p, follows the dynamics for n steps of h (1 + jitter u), u uniform on (-1, 1), and accepts
their end with probability min(1, e^-dH). Why these choices:

1. Where A is right every direction of a Gaussian oscillates with period 2 pi, and a trajectory of length T
   has correlation cos(T) with its start. T somewhat beyond pi/2 makes means more precise than those of
   independent draws, and variances almost as precise: cos(1.9) = -0.32, and its square is 0.10.
2. The integrator (numerics/splitting.py) goes that far in one step of two gradients, with nine tenths
   accepted up to some tens of dimensions. Leapfrog takes three or four.
3. The number of steps is T/h, rounded at random, which keeps trajectories from coming back to their start.
   Where it is more than two, scales differ from place to place, A is a compromise, and there are directions
   slower than 1: then there are (T/2h)^stretch times as many steps. Where it is more than three, rejections
   gather where curvature is largest, and `careful_accept` is aimed at lest the chain stand still there.
4. The first metric is the Hessian's where the climb from the start has ended (2 d gradients, up to d = 500).
5. Warm-up has windows of 15, 15, 30, 40, 60, 96 iterations and from then on 1.6 times the one before. At the
   end of each the metric is solved for anew from the draws and scores of the last two. Where that changes no
   variance by half, and the chain was in the same place in both, the next window is the last: most posteriors
   need 160 iterations. `warmup` is the most there are.

Cost of an iteration: 2 n gradients, 2 n + 2 products with A or a root of it: d² each, or d k for rank k.
Memory: three (d, d) arrays a chain up to d = 500 or where `metric` is "dense", else none.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics.energy import HARMLESS_SHARE, diverges, energy_of
from ..numerics.linear import dot, with_room
from ..numerics.metric import (
    Metric,
    as_matrix,
    compressed,
    diagonal,
    distance,
    drift,
    from_hessian,
    momentum_into,
    relearnt,
    velocity_into,
)
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.splitting import split_steps
from ..numerics.step_size import DualAveraging, averaged, dual_averaging, settled_step
from ..target import hessian, log_density_gradient
from ..trace import Info, record
from .base import ALWAYS, HAMILTONIAN, TOO_LOW, TRAJECTORY_COLUMNS, Facts, Handover, Stage, growing_windows
from .settings import PROBABILITY, SCALE, Choice, Limit

LARGEST_DENSE = 500  # dimension up to which "auto" learns all of A
LARGEST_SHOWN = 1_000  # and up to which results have A, if it is of low rank


METRICS = Choice(("auto", "dense", "low_rank"))
AUTO, DENSE = 0, 1  # indices of the first two


class Settings(NamedTuple):
    trajectory: Annotated[float, SCALE, "T: length of a trajectory where the target is a Gaussian"] = 1.9
    stretch: Annotated[float, Limit(0.0, 2.0), "power by which trajectories grow where steps are short"] = 0.5
    jitter: Annotated[float, Limit(0.0, 0.99), "step sizes vary by up to this share of them"] = 0.1
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size is adapted to"] = 0.8
    careful_accept: Annotated[float, PROBABILITY, "the same where trajectories have over three steps"] = 0.9
    max_steps: Annotated[int, Limit(1, 100_000), "steps of a trajectory at most"] = 64
    metric: Annotated[
        str | int, METRICS, "form of A; auto: dense up to d = 500, compressed where it pays"
    ] = "auto"
    curvature: Annotated[bool, "whether the first metric is the Hessian's"] = True


FACTS = Facts(
    family=HAMILTONIAN,
    needs="gradients",
    learns=("step size", "metric"),
    warmup=600,
    draws=2_000,
    gradient=True,
    acceptance=TOO_LOW,
    climbs=ALWAYS,
    columns=TRAJECTORY_COLUMNS,
    harmless_divergences=HARMLESS_SHARE,
    settles=True,
)


class Windows(NamedTuple):
    """What the window so far and the one before have seen."""

    points: np.ndarray  # (room, d)
    scores: np.ndarray  # (room, d) there
    seen: int  # rows in use
    before: int  # of them, those of the window before


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float
    search: DualAveraging
    most: int  # steps of a trajectory
    lost: int  # trajectories in a row that ended where there is no log density
    metric: Metric
    windows: Windows
    hessian: np.ndarray  # (d, d) at the start, until it has been used; else (0, 0)
    steady: bool  # whether the last two windows have told nothing new


def n_matrices(settings: Any) -> int:
    return 3 if settings.metric == DENSE else 0


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage(f"window_{i}", length) for i, length in enumerate(growing_windows(warmup), 1)]


@kernel
def start(target: Any, settings: Any, x: Any, rng: Any) -> Any:
    """The state at `x` (d,): A = I, and the Hessian if it is wanted."""
    d = x.size
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    dense = settings.metric == DENSE or (settings.metric == AUTO and d <= LARGEST_DENSE)
    curvature = np.empty((d, d) if dense and settings.curvature else (0, 0))
    if len(curvature) > 0 and not hessian(target, x, curvature):
        curvature = np.empty((0, 0))
    k = d if dense else 0
    metric = Metric(np.eye(k), np.eye(k), np.ones(d), np.empty((0, d)), np.empty(0))
    windows = Windows(np.empty((64, d)), np.empty((64, d)), 0, 0)
    search = DualAveraging(0.0, 0.0, 0.0, 0.0)
    return State(x.copy(), logp, score, 1.0, search, FEW, 0, metric, windows, curvature, False)


ENOUGH, CHANGE, DRIFT = 60, 1.5, 3.0  # draws, factor of a variance, and multiple of what is expected
SHORT = 3.0  # times the step size in a trajectory's length, from which steps count as short
LOST = 10  # in a row: a wall in the bulk of the target says nothing of the step size, so many in a row do
FEW = 4  # steps of a trajectory before the first window; each has twice as many as the one before at most


def enter(stage: str, state: State, settings: Settings) -> State:
    """The metric of what the last two windows saw, and a new search for the step size."""
    metric, (points, scores, n, before), steady = state.metric, state.windows, False
    found = from_hessian(state.hessian) if len(state.hessian) else None
    if n:
        found = relearnt(metric, points[:n], scores[:n])
    if n >= ENOUGH and found is not None and len(found.chol_t):
        steady = distance(metric, found) < np.log(CHANGE) and drift(found, points[:n], before) < DRIFT
    if found is not None:
        metric = compressed(found) if settings.metric == AUTO and len(found.chol_t) else found
    last = n - before
    points[:last], scores[:last] = points[before:n], scores[before:n]
    return state._replace(
        search=dual_averaging(state.step_size),
        most=min(2 * state.most, settings.max_steps),
        metric=metric,
        windows=Windows(points, scores, last, last),
        hessian=np.empty((0, 0)),
        steady=steady,
    )


def settled(state: State) -> bool:
    """Whether warm-up may end with the window that has just ended."""
    return state.steady


class Point(NamedTuple):
    """What of the state a step changes."""

    x: np.ndarray
    logp: float
    score: np.ndarray


@kernel
def step(target: Any, settings: Any, metric: Any, point: Any, step_size: Any, most: Any, rng: Any) -> Any:
    """One trajectory. Returns the next point, its Info, and whether it met a point without a log density."""
    x, logp, score = point
    d = x.size
    z, momentum, y, score_y = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    for i in range(d):
        z[i] = rng.standard_normal()
        y[i] = x[i]
        score_y[i] = score[i]
    momentum_into(momentum, metric, z)
    energy = energy_of(logp, 0.5 * dot(z, z))
    h = step_size * (1.0 + settings.jitter * (2.0 * rng.random() - 1.0))
    n = settings.trajectory / step_size
    if n > 2.0:
        n *= (0.5 * n) ** settings.stretch
    n = max(1, int(min(n, most) + rng.random()))
    logp_y, taken = split_steps(target, metric, y, momentum, score_y, h, n)
    energy_y, met = np.inf, logp_y == -np.inf
    if not met:
        velocity_into(z, metric, momentum)
        energy_y = energy_of(logp_y, 0.5 * dot(momentum, z))
    rise = energy_y - energy
    accept_prob, diverging = accept_probability_if_finite(-rise), diverges(rise)
    accepted = rng.random() < accept_prob
    if accepted:
        point, energy = Point(y, logp_y, score_y), energy_y
    return point, Info(accept_prob, accepted, step_size, taken, (energy, rise, diverging)), met


@kernel
def sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`: a loop of its own, since packing the state costs as much as
    a gradient of a small model."""
    x, logp, score, step_size, search, most, lost, metric, windows, curvature, steady = state
    point, (points, scores, seen, before) = Point(x, logp, score), windows
    if not adapting and search.t > 0.0:
        step_size = settled_step(search, settings.trajectory)
    for i in range(trace.logp.size):
        point, info, met = step(target, settings, metric, point, step_size, most, rng)
        lost = lost + 1 if met else 0
        if adapting and not 0 < lost < LOST:
            aim = settings.target_accept
            if SHORT * step_size < settings.trajectory:
                aim = max(aim, settings.careful_accept)
            search, step_size = averaged(search, info.accept_prob, aim, settings.trajectory)
        if adapting:
            if seen == len(points):
                points, scores = with_room(points), with_room(scores)
            for j in range(point.x.size):
                points[seen, j] = point.x[j]
                scores[seen, j] = point.score[j]
            seen += 1
        info = Info(info.accept_prob, info.accepted, step_size, info.n_steps, info.own)
        record(trace, i, point.x, point.logp, info)
    x, logp, score = point
    windows = Windows(points, scores, seen, before)
    return State(x, logp, score, step_size, search, most, lost, metric, windows, curvature, steady)


def hand_over(state: State, settings: Settings, n: int) -> Handover:
    """What a pilot of `n` iterations hands over: its last point, and the metric that its windows tell."""
    state = enter("handover", state, settings)
    mean = state.windows.points[: state.windows.seen].mean(axis=0)
    return Handover(state.x.copy(), mean, as_matrix(state.metric), n)


def history(state: State) -> dict[str, float]:
    return {"metric_rank": float(len(state.metric.variances) or len(state.metric.inverse_mass))}


def learnt(state: State) -> dict[str, Any]:
    """A; of one that could not be held as a matrix, its diagonal."""
    if len(state.metric.chol_t) or state.x.size <= LARGEST_SHOWN:
        return {"preconditioner": as_matrix(state.metric)}
    return {"preconditioner_diagonal": diagonal(state.metric)}
