"""Fisher HMC: Hamiltonian Monte Carlo whose metric makes draws and scores agree.

This method is our own. Titsias (2023) learns the preconditioner of MALA from the scores that the chain sees,
and his Section 7 names HMC as the open step. This method learns the metric of HMC, from the equation that
relates the draws and the scores of a Gaussian (numerics/metric.py).

    symbol   here                     shape   meaning
    x        state.x                  (d,)    position on the unconstrained scale
    s(x)     state.score              (d,)    gradient of the log density at x
    A        state.metric             (d, d)  inverse mass matrix, dense or diagonal plus low rank
    p        momentum                 (d,)    drawn from N(0, A^-1) for every trajectory
    h        state.step_size          ()      length of a step, which takes two gradients
    T        settings.trajectory      ()      length of a trajectory where the target is a Gaussian
    n        n                        ()      steps of a trajectory, settings.max_steps at most
    alpha_*  settings.target_accept   ()      acceptance rate that h is adapted to; h is T at most
             settings.metric                  "dense", "low_rank", or "auto": dense up to d = 100, compressed
                                              to low rank where that is cheaper; beyond, by evidence
             settings.curvature               whether the first metric comes from the Hessian
    T(z)     settings.transport               whether coordinates are learned ("auto") or z is x ("off")

One iteration draws p, takes n steps of h (1 + jitter u) with u uniform on (-1, 1), and accepts the end with
probability min(1, e^-dH). The reasons for these choices:

1. If A is right, a Gaussian oscillates in every direction with the period 2 pi, and the end of a trajectory
   of length T has the correlation cos(T) with its start. If T is somewhat more than pi/2, means are more
   precise than with independent draws, and variances almost as precise: cos(1.9) = -0.32, squared 0.10.
2. The integrator (numerics/splitting.py) needs one step of two gradients for this length, and nine tenths of
   the trajectories are accepted up to some tens of dimensions. Leapfrog needs three or four steps.
3. The number of steps is T/h, rounded at random, so that trajectories do not return to their start. If it is
   more than two, scales differ from place to place, A is a compromise, and some directions have a longer
   period: then there are (T/2h)^stretch times as many steps in the mean, with twice this exponent beyond
   T/2h = 3, and their number is drawn between T/h and the largest. After warm-up h is taken times
   (d/16)^(1/4) here if d > 16, since steps become shorter in many dimensions whatever the scales are. If T/h
   is more than three, most rejections happen where the curvature is largest. The chain could get stuck
   there, so h aims at `careful_accept`. If kinks of the density are the reason, they happen everywhere alike:
   h aims at `kinks_accept`, and trajectories are not made longer (numerics/kinks.py).
4. The first metric comes from the Hessian at the start, where the climb has ended (2 d gradients), up to
   d = 100. In more dimensions it does so only if the Hessian is far from a diagonal, and draws choose the
   form of A (metric_choice.py).
5. If draws and scores show heavy tails, the scales of a hierarchy or locations that are quadratic in others,
   the chain moves in coordinates z where the posterior is nearly normal (transport/). The x of this file is
   then z. Results are in x.
6. If trajectories are long, the chain looks for a latent field, whose many coordinates are tied to their
   neighbours by a few: a time series, say (numerics/field_search.py). It then moves in coordinates in which
   these are nearly independent, also where the chain has not been yet (transport/field.py).
7. Warm-up has windows of 15, 15, 30, 40, 60 and 96 iterations; each later one has 1.6 times as many as the
   one before. After each window the chain learns a new metric from the draws and scores of the last two
   (windowed.py). If no variance changes by a factor of 1.5, and the chain was in the same place in both
   windows, the next window is the last. Most posteriors need 160 iterations, and `warmup` is the largest
   number.
8. A chain may begin with the metric, coordinates and step size of an earlier run, see
   run/preparation/warm_start.py. The draws of that run and their scores take the place of the Hessian and of
   the first windows: most posteriors need 60 to 100 iterations.
9. With settings.pooled, all chains wait for each other at the end of a window, and learn one metric and one
   map from the draws of all of them. Windows are shorter then, of 15, 15, 20 and 30 iterations at first: most
   posteriors need 50 iterations of each chain. Errors of metric and map are the same in all chains, so that
   R-hat does not show them. Draws depend on the number of chains, too. A field is looked for once for all.
10. Where the posterior is narrow, steps that are right elsewhere have no chance, and the chain would stand
   still. So a trajectory along which H rises by more than 3 is tried again with a shorter step
   (numerics/second_try.py). In warm-up it is not: what draws of short moves teach is worse.

Cost of an iteration: 2 n gradients, and 2 n + 2 products with A or a root of it: d² each, or d k for rank k.
In the coordinates of a field a gradient takes O(e) more for e entries of its factor, about d for a series.
The search takes d gradients and, where a field is found, some thousands.
Memory: three (d, d) arrays a chain with metric="dense", or up to d = 2,000 if "auto" chooses it; else none.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Integer, Real, Target, Vector
from ..numerics.energy import HARMLESS_SHARE
from ..numerics.metric import Metric, as_matrix, diagonal
from ..numerics.metric_choice import begins_dense
from ..numerics.second_try import HOPELESS, try_again
from ..numerics.splitting import ACCEPTED, ENERGY, room
from ..numerics.step_size import DualAveraging, average_step_size, final_step_size
from ..numerics.trajectory import trajectory
from ..numerics.windows import Windows, empty_windows, put, with_room
from ..target import hessian, log_density_gradient
from ..trace import Info, Trace, record
from ..transport.map_table import no_transport
from . import windowed
from .base import ALWAYS, HAMILTONIAN, TOO_LOW, TRAJECTORY_COLUMNS, Facts, move_with_score
from .settings import PROBABILITY, SCALE, Choice, Limit
from .windowed import AUTO, DENSE

LARGEST_SHOWN = 1_000  # up to this dimension results have all of A

METRICS, TRANSPORTS = Choice(("auto", "dense", "low_rank")), Choice(("auto", "off"))
OFF = 1  # index of the second


class Settings(NamedTuple):
    trajectory: Annotated[float, SCALE, "T: length of a trajectory where the target is a Gaussian"] = 1.9
    stretch: Annotated[float, Limit(0.0, 2.0), "exponent by which short steps prolong trajectories"] = 0.5
    jitter: Annotated[float, Limit(0.0, 0.99), "share by which step sizes vary at random"] = 0.1
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.8
    careful_accept: Annotated[float, PROBABILITY, "the same for trajectories of more than three steps"] = 0.9
    kinks_accept: Annotated[float, PROBABILITY, "the same for these where the gradient jumps"] = 0.75
    max_steps: Annotated[int, Limit(1, 100_000), "largest number of steps of a trajectory"] = 256
    metric: Annotated[str | int, METRICS, "form of A; auto: dense to d = 100, then by evidence"] = "auto"
    curvature: Annotated[bool, "whether the first metric comes from the Hessian"] = True
    transport: Annotated[str | int, TRANSPORTS, "whether to learn coordinates where they help"] = "auto"
    second_tries: Annotated[bool, "whether trajectories without a chance are tried again"] = True
    pooled: Annotated[bool, "whether several chains learn from the draws of all of them"] = False


FACTS = Facts(
    module=__name__,
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
    leapfrogs=2.0,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float
    search: DualAveraging
    most: int  # largest number of steps of a trajectory
    lost: int  # number of trajectories in a row, up to now, that met a point without a log density
    metric: Metric
    windows: Windows
    hessian: np.ndarray  # (d, d) at the window's first point, or (0, 0); its first entry is NaN before that
    steady: bool  # whether the last two windows agree
    transport: np.ndarray  # the map of the coordinates z that x, logp and score are in, see transport/
    groups: np.ndarray  # (d,) the variables that coordinates belong to; (0,) with transport="off"
    searches: int  # how often the chain has looked for a latent field,
    field_gradients: float  # and the gradients that this took
    refused: np.ndarray  # (k,) int64, questions on laws that have been answered, see numerics/windows.py
    step_before: float  # step size when the field was found, or 0
    kinks: bool  # whether kinks are why steps are short,
    kink_gradients: float  # and the gradients that looks for them took


def n_matrices(settings: Any) -> int:
    return 3 if settings.metric == DENSE else 0


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,): A = I, and the Hessian if the settings ask for it."""
    d = x.size
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    dense = settings.metric == DENSE or (settings.metric == AUTO and begins_dense(target, settings, x, rng))
    curvature = np.empty((d, d) if dense and settings.curvature else (0, 0))
    if len(curvature) > 0 and not hessian(target, x, curvature):
        curvature = np.empty((0, 0))
    k = d if dense else 0
    metric = Metric(np.eye(k), np.eye(k), np.ones(d), np.empty((0, d)), np.empty(0))
    search = DualAveraging(0.0, 0.0, 0.0, 0.0)
    windows = empty_windows(d)
    groups = np.zeros(0 if settings.transport == OFF else d, np.int64)
    learnt = (False, no_transport(), groups, 0, 0.0, np.zeros(0, np.int64), 0.0, False, 0.0)
    return State(x.copy(), logp, score, 1.0, search, FEW, 0, metric, windows, curvature, *learnt)


SHORT = 3.0  # steps are short if a trajectory is longer than so many of them
LOST = 10  # the step size learns nothing from trajectories that meet a wall, unless so many in a row do
FEW = 4  # largest number of steps in the first window; each window at most doubles it

stages, enter, is_settled = windowed.stages, windowed.enter, windowed.is_settled
warm_stages, warm_settings = windowed.warm_stages, windowed.warm_settings
hand_over, take_over, look = windowed.hand_over, windowed.take_over, windowed.look
learn_together, take_lesson = windowed.learn_together, windowed.take_lesson
explore, explore_together = windowed.explore, windowed.explore_together


@kernel(counted=False)
def step(
    target: Target,
    settings: Any,
    state: State,
    logp: Real,
    step_size: Real,
    adapting: Flag,
    room: Any,
    rng: Generator,
) -> tuple[Real, Info, Flag]:
    """One trajectory from the state's point, or two. If an end is accepted, it replaces point and score.

    `logp` and `step_size` are arguments, because the state is built once for a sweep and does not follow
    them. While `adapting`, scales may still be wrong, and trajectories are longer. Returns the log density,
    the Info, and whether the trajectory met a point without a log density.
    """
    x, score, d = state.x, state.score, 1 if adapting else state.x.size
    logp, info, met = trajectory(
        target, settings, state.metric, x, score, logp, step_size, state.most, d, room, rng
    )
    energy, rise, diverging = info.own
    if adapting or not settings.second_tries or info.accepted or rise <= HOPELESS:
        return logp, info, met
    logp, more = try_again(target, state.metric, x, score, logp, energy, rise, room, rng)
    accepted = room.drawn[ACCEPTED] > 0.0
    if accepted:
        energy = room.drawn[ENERGY]
    own = (energy, rise, diverging)
    return logp, Info(info.accept_prob, accepted, step_size, info.n_steps + more, own), met


@kernel
def sweep(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag, trace: Trace) -> State:
    """Run one iteration for every row of `trace`. The loop in loop.py would build this state every time."""
    x, logp, score, step_size, search, most, lost, metric, windows, curvature, steady = state[:11]
    moves = state[11:]
    n = trace.logp.size
    if len(curvature) > 0 and np.isnan(curvature[0, 0]) and not hessian(target, x, curvature):
        curvature = np.empty((0, 0))
    if adapting:
        windows = with_room(windows, n)
    elif search.t > 0.0:
        step_size = final_step_size(search, settings.trajectory)
    x, score = x.copy(), score.copy()
    state = State(x, logp, score, step_size, search, most, lost, metric, windows, curvature, steady, *moves)
    logp, step_size, search, lost = _iterate(target, settings, state, room(x.size), rng, adapting, trace)
    if adapting:
        windows = Windows(windows.points, windows.scores, windows.seen + n, windows.before)
    return State(x, logp, score, step_size, search, most, lost, metric, windows, curvature, steady, *moves)


@kernel(counted=False)
def _iterate(
    target: Target, settings: Any, state: State, room: Any, rng: Generator, adapting: Flag, trace: Trace
) -> tuple[Real, Real, DualAveraging, Integer]:
    """The loop of `sweep`. Returns the numbers of the state that it changes; arrays change in place."""
    logp, h, search, lost = state.logp, state.step_size, state.search, state.lost
    for i in range(trace.logp.size):
        logp, info, met = step(target, settings, state, logp, h, adapting, room, rng)
        lost = lost + 1 if met else 0
        if adapting and not 0 < lost < LOST:
            aim = settings.target_accept
            if SHORT * h < settings.trajectory:
                aim = settings.kinks_accept if state.kinks else max(aim, settings.careful_accept)
            search, h = average_step_size(search, info.accept_prob, aim, settings.trajectory)
        if adapting:
            put(state.windows, state.windows.seen + i, target.transport, state.x, state.score)
        record(trace, i, state.x, logp, Info(info.accept_prob, info.accepted, h, info.n_steps, info.own))
    return logp, h, search, lost


move = move_with_score


def history(state: State) -> dict[str, float]:
    return {"metric_rank": float(len(state.metric.variances) or len(state.metric.inverse_mass))}


def learnt(state: State) -> dict[str, Any]:
    """A in z, or only its diagonal if d is too large to show a matrix; kinks; and what all looks took."""
    of_looks = np.array(state.field_gradients + state.kink_gradients)
    taken = {"field_gradients": of_looks, "kinks": np.array(state.kinks)}
    if state.x.size <= LARGEST_SHOWN:
        return taken | {"preconditioner": as_matrix(state.metric)}
    return taken | {"preconditioner_diagonal": diagonal(state.metric)}
