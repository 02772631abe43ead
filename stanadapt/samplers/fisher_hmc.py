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
    n        n                        ()      steps of a trajectory
    alpha_*  settings.target_accept   ()      acceptance rate that h is adapted to; h is T at most

One iteration draws p, follows the dynamics for n steps of h (1 + jitter u), u uniform on (-1, 1), and accepts
their end with probability min(1, e^-dH).

Why these choices:
1. Where A is right every direction of a Gaussian oscillates with period 2 pi, and a trajectory of length T
   has correlation cos(T) with its start. T somewhat beyond pi/2 makes means more precise than those of
   independent draws, and variances almost as precise: cos(1.9) = -0.32, and its square is 0.10.
2. The integrator (numerics/splitting.py) goes that far in one step of two gradients with nine tenths accepted
   or more up to some tens of dimensions, where leapfrog takes three or four.
3. The number of steps is T/h, rounded at random, which keeps trajectories from coming back to their start.
   Where it is more than two, scales differ from place to place, A is a compromise, and there are directions
   slower than 1: then there are (T/2h)^stretch times as many steps. Where it is more than three, rejections
   gather where curvature is largest and the chain stands still there, so `careful_accept` is aimed at.
4. The first metric is that of the Hessian where the climb from the start has ended, from 2 d gradients, up to
   d = 200. With it the first draws are already of the typical set's shape.
5. Warm-up has windows of 15, 15, 30, 40, 60, 96 iterations and from then on 1.6 times the one before. At the
   end of each the metric is solved for anew from the draws and scores of the last two. Where that changes no
   variance by half, and the chain was in the same place in both, the next window is the last: most posteriors
   need 160 iterations. `warmup` is the most there are.

Cost of an iteration: 2 n gradients, 2 n + 2 products with A or a root of it: d² each, or d k for rank k.
Memory: three (d, d) arrays a chain up to d = 200 or where `metric` is "dense", none beyond.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics.linear import dot
from ..numerics.metric import (
    Metric,
    as_matrix,
    compressed,
    distance,
    drift,
    from_hessian,
    momentum_into,
    relearnt,
    velocity_into,
)
from ..numerics.metropolis import accept_probability
from ..numerics.splitting import split_steps
from ..numerics.step_size import DualAveraging, averaged, dual_averaging, settled_step
from ..target import hessian, log_density_gradient
from ..trace import record
from .base import PROBABILITY, SCALE, Limit, Stage

AUTO, DENSE, LOW_RANK = 0, 1, 2  # indices of CHOICES['metric']
LARGEST_DENSE = 200  # dimension up to which "auto" learns all of A


class Settings(NamedTuple):
    trajectory: float = 1.9
    stretch: float = 0.5
    jitter: float = 0.1
    target_accept: float = 0.8
    careful_accept: float = 0.9
    max_steps: int = 64
    metric: str | int = "auto"
    curvature: bool = True


CHOICES = {"metric": ("auto", "dense", "low_rank")}
LIMITS = {
    "trajectory": SCALE,
    "stretch": Limit(0.0, 2.0),
    "jitter": Limit(0.0, 0.99),
    "target_accept": PROBABILITY,
    "careful_accept": PROBABILITY,
    "max_steps": Limit(1, 100_000),
}
NEEDS_GRADIENT, NEEDS_HESSIAN = True, False
WARMUP, DRAWS = 600, 2_000


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float
    search: DualAveraging
    most: int  # steps of a trajectory
    metric: Metric
    hessian: np.ndarray  # (d, d) at the start, until it has been used; else (0, 0)
    points: np.ndarray  # (room, d) of the last two windows
    scores: np.ndarray  # (room, d) there
    seen: int  # rows of them in use
    before: int  # those of the window before
    steady: bool  # whether the last two windows have told nothing new


def n_matrices() -> int:
    return 3


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage(f"window_{i}", length) for i, length in enumerate(windows(warmup), 1)]


def windows(warmup: int) -> list[int]:
    """Lengths of the windows; the last has half as much again as its own at most."""
    lengths: list[int] = []
    first = [15, 15, 30, 40, 60, 96]
    left = warmup
    while left:
        length = first[len(lengths)] if len(lengths) < len(first) else int(1.6 * lengths[-1])
        length = left if left < 1.5 * length else length
        lengths.append(length)
        left -= length
    return lengths


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
    metric = Metric(
        np.eye(d if dense else 0), np.eye(d if dense else 0), np.ones(d), np.empty((0, d)), np.empty(0)
    )
    search = DualAveraging(0.0, 0.0, 0.0, 0.0)
    room = np.empty((64, d))
    return State(x.copy(), logp, score, 1.0, search, FEW, metric, curvature, room, room.copy(), 0, 0, False)


ENOUGH, CHANGE, DRIFT = 60, 1.5, 3.0  # draws, factor of a variance, and multiple of what is expected
SHORT = 3.0  # times the step size in a trajectory's length, from which steps count as short
FEW = 4  # steps of a trajectory before the first window; each has twice as many as the one before at most


def enter(stage: str, state: State, settings: Settings) -> State:
    """The metric of what the last two windows saw, and a new search for the step size."""
    metric, n, steady = state.metric, state.seen, False
    found = from_hessian(state.hessian) if len(state.hessian) else None
    if n:
        found = relearnt(metric, state.points[:n], state.scores[:n])
    if n >= ENOUGH and found is not None and len(found.chol_t):
        steady = (
            distance(metric, found) < np.log(CHANGE) and drift(found, state.points[:n], state.before) < DRIFT
        )
    if found is not None:
        metric = compressed(found) if settings.metric == AUTO and len(found.chol_t) else found
    last = n - state.before
    state.points[:last] = state.points[state.before : n]
    state.scores[:last] = state.scores[state.before : n]
    return state._replace(
        search=dual_averaging(state.step_size),
        most=min(2 * state.most, settings.max_steps),
        metric=metric,
        hessian=np.empty((0, 0)),
        seen=last,
        before=last,
        steady=steady,
    )


def settled(state: State) -> bool:
    """Whether warm-up may end with the window that has just ended; its metric was found to be settled."""
    return state.steady


@kernel
def step(target: Any, settings: Any, state: Any, rng: Any, adapting: Any) -> Any:
    """One trajectory. Returns the next state, acceptance probability, whether accepted, gradients."""
    x, logp, score, step_size, search, most, metric, curvature, points, scores, seen, before, steady = state
    d = x.size
    if not adapting and search.t > 0.0:
        step_size = settled_step(search, settings.trajectory)

    z, momentum = np.empty(d), np.empty(d)
    for i in range(d):
        z[i] = rng.standard_normal()
    momentum_into(momentum, metric, z)
    energy = -logp + 0.5 * dot(z, z)
    h = step_size * (1.0 + settings.jitter * (2.0 * rng.random() - 1.0))
    n = settings.trajectory / step_size
    if n > 2.0:
        n *= (0.5 * n) ** settings.stretch
    n = max(1, int(min(n, most) + rng.random()))
    y, score_y = x.copy(), score.copy()
    logp_y, taken = split_steps(target, metric, y, momentum, score_y, h, n)
    accept_prob = 0.0
    if logp_y > -np.inf:
        velocity = z
        velocity_into(velocity, metric, momentum)
        accept_prob = accept_probability(energy - (-logp_y + 0.5 * dot(momentum, velocity)))

    if rng.random() < accept_prob:
        x, logp, score, accepted = y, logp_y, score_y, True
    else:
        accepted = False
    if adapting:
        aim = settings.target_accept
        if SHORT * step_size < settings.trajectory:
            aim = max(aim, settings.careful_accept)
        search, step_size = averaged(search, accept_prob, aim, settings.trajectory)
        if seen == len(points):
            points, scores = with_room(points), with_room(scores)
        for i in range(d):
            points[seen, i] = x[i]
            scores[seen, i] = score[i]
        seen += 1
    state = State(
        x, logp, score, step_size, search, most, metric, curvature, points, scores, seen, before, steady
    )
    return state, accept_prob, accepted, taken


@kernel
def with_room(rows: Any) -> Any:
    """The same rows, and room for as many more."""
    more = np.empty((2 * len(rows), rows.shape[1]))
    for i in range(len(rows)):  # a slice takes seconds to compile
        for j in range(rows.shape[1]):
            more[i, j] = rows[i, j]
    return more


@kernel
def sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, accept_prob, accepted, taken = step(target, settings, state, rng, adapting)
        record(trace, i, state.x, state.logp, accept_prob, accepted, state.step_size, taken)
    return state


def history(state: State) -> dict[str, float]:
    return {"metric_rank": float(len(state.metric.variances) or len(state.metric.inverse_mass))}


def learnt(state: State) -> dict[str, Any]:
    return {"preconditioner": as_matrix(state.metric)}
