"""KAMH: a random walk with the covariance of the target near the current point.

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu and Gretton (2014), Kernel adaptive Metropolis-Hastings,
Algorithm 1. Strathmann et al. (2015) compare with it.

    paper     here                   shape   meaning
    x_t       state.x                (d,)    position on the unconstrained scale
    z         state.points_t         (d, n)  subsample of the history, as columns
    k         exp(-r²/sigma)         ()      kernel
    M_zx      pull                   (d, n)  2 [grad_x k(x, z_1), ..., grad_x k(x, z_n)]
    H         I - 1 1^T / n          (n, n)  centering
    gamma     settings.gamma         ()      scale of the isotropic part
    nu        state.step_size        ()      scale of the learned part
    p_t       rate(t, schedule)      ()      probability of an update, t^-1/2

The proposal is N(x, gamma² I + nu² M H M^T). Its covariance depends on x, so the acceptance probability has
the ratio of the proposal's densities. Far from all z the gradients vanish, and the proposal is a random walk
with scale gamma.

nu follows the acceptance rate, log nu² <- log nu² + p_t (accept_prob - target_accept), as in the authors'
published code.

Departures from the paper, all but the last off with `faithful=True`:
1. The first half of warm-up is an adaptive random walk (numerics/frame.py). The method then learns from the
   second half of this walk.
2. k acts on coordinates in which the points have covariance I, because one gamma and one sigma do not fit
   parameters of different scales. There gamma is 0.75 / sqrt(d), a third of the best scale of a random walk.
3. Each time the number of iterations has grown by a factor of 1.25, the coordinates and sigma are learned
   anew, and the history starts again.
4. nu starts at 2.38 / sqrt(d). A faithful run takes gamma² = 0.1 from the authors' demonstrations.
5. A reservoir keeps the subsample. At any time it is a uniform sample of the history, but not a new one.
   Where sigma is not set, it is the median squared distance of the points.

Cost of an iteration: one log density, and O(n d² + d³) for the covariances at both ends and their Cholesky
factors. Memory: one (d, d) array a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import factorise, solve_lower
from ..numerics.frame import (
    Frame,
    adapt_walk_size,
    estimate_frame,
    learn_walk,
    plain_frame,
    unwhiten,
    whiten,
    whiten_points,
)
from ..numerics.history import History, all_equal, empty_history, rate, remember
from ..numerics.linear import add_times, dot
from ..numerics.metropolis import accept_probability
from ..numerics.score_matching import median_sigma
from ..target import log_density
from ..trace import NOTHING, Info
from . import refitting
from .base import BOTH_SIDES, SURROGATE, Facts, Stage, move_with_density
from .loop import make_sweep
from .refitting import first_walk_size, subsample_size, walk_proposal
from .settings import POSITIVE, PROBABILITY, SCALE, Limit


class Settings(NamedTuple):
    subsample: Annotated[
        int | None, Limit(2, refitting.LARGEST), "n: points to learn from; None: 300, or all if fewer"
    ] = None
    sigma: Annotated[float | None, SCALE, "squared width of k; None: median squared distance"] = None
    gamma: Annotated[
        float | None, SCALE, "isotropic scale; None: 0.75 / sqrt(d), or sqrt(0.1) if faithful"
    ] = None
    initial_step_size: Annotated[float | None, POSITIVE, "first scale of the walk, or nu if faithful"] = None
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that nu aims at"] = 0.234
    step_rate: Annotated[float, Limit(0.0, 10.0), "gain of nu; 0: no adaptation"] = 1.0
    schedule: Annotated[float, Limit(0.0, 1.0), "iteration t refits with probability t^-schedule"] = 0.5
    vanishing: Annotated[bool, "adapt after warm-up too, more and more rarely"] = False
    faithful: Annotated[bool, "follow the paper, without our departures"] = False


FACTS = Facts(
    module=__name__,
    family=SURROGATE,
    needs="densities",
    learns=("step size", "covariance near the chain"),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
    capacity="subsample",
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float  # nu
    walk_size: float
    n: float  # number of iterations since the coordinates were learned
    frame: Frame
    points_t: np.ndarray  # (d, n) in the coordinates of the frame
    sigma: float
    history: History
    fits: int
    skipped: int  # number of updates left out because all points were equal


enter, until_refit = refitting.enter, refitting.until_refit


def n_matrices(settings: Any) -> int:
    """The factor of the frame."""
    return 1


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    return refitting.stages(settings, warmup, settings.subsample)


def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), before anything is learned."""
    logp = log_density(target, x)
    walk = first_walk_size(target, settings, x, logp, rng)
    nu = 2.38 / np.sqrt(x.size)
    if settings.faithful and settings.initial_step_size > 0.0:
        nu = settings.initial_step_size
    history = empty_history(subsample_size(settings.subsample), x.size)
    return State(x.copy(), logp, nu, walk, 0.0, plain_frame(x), np.empty((x.size, 0)), np.nan, history, 0, 0)


@kernel
def chol_near(points_t: Matrix, sigma: Real, gamma: Real, nu: Real, q: Vector) -> Any:
    """The factor L^T of gamma² I + nu² M H M^T = L L^T at `q` (d,), and log|L|, NaN if there is none."""
    d, n = points_t.shape
    pull = np.empty((d, n))
    k = np.zeros(n)
    for i in range(d):
        row, away = points_t[i], pull[i]
        for j in range(n):
            away[j] = row[j] - q[i]
            k[j] += away[j] * away[j]
    for j in range(n):
        k[j] = 4.0 / sigma * np.exp(-k[j] / sigma)
    mean = np.empty(d)
    for i in range(d):
        away, total = pull[i], 0.0
        for j in range(n):
            away[j] *= k[j]
            total += away[j]
        mean[i] = total / max(n, 1)
    cov, chol_t = np.empty((d, d)), np.empty((d, d))
    for i in range(d):
        for j in range(i, d):
            cov[i, j] = nu * nu * (dot(pull[i], pull[j]) - n * mean[i] * mean[j])
        cov[i, i] += gamma * gamma
    if not factorise(cov, 0.0, chol_t):
        return chol_t, np.nan
    half_log_det = 0.0
    for i in range(d):
        half_log_det += np.log(chol_t[i, i])
    return chol_t, half_log_det


@kernel
def draw_proposal(target: Target, settings: Any, state: State, rng: Generator) -> Any:
    """A proposal y (d,), its log density and its acceptance probability."""
    d, frame = state.x.size, state.frame
    gamma = settings.gamma
    if np.isnan(gamma):
        gamma = np.sqrt(0.1) if settings.faithful else 0.75 / np.sqrt(d)
    q, z = whiten(frame, state.x), np.empty(d)
    chol_t, half_log_det = chol_near(state.points_t, state.sigma, gamma, state.step_size, q)
    for i in range(d):
        z[i] = rng.standard_normal()
    there = q.copy()
    add_times(there, chol_t, z)
    y = unwhiten(frame, there)
    logp_y = log_density(target, y)
    if np.isnan(half_log_det) or logp_y == -np.inf:
        return y, logp_y, 0.0
    chol_t_y, half_log_det_y = chol_near(state.points_t, state.sigma, gamma, state.step_size, there)
    back = np.empty(d)
    for i in range(d):
        back[i] = q[i] - there[i]
    solve_lower(chol_t_y, back)
    log_back = -half_log_det_y - 0.5 * dot(back, back)
    log_forth = -half_log_det - 0.5 * dot(z, z)
    return y, logp_y, accept_probability(logp_y - state.logp + log_back - log_forth)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 1."""
    x, logp, nu, walk_size, n, frame, points_t, sigma, history, fits, skipped = state

    walk = points_t.size == 0 and not settings.faithful
    if walk:
        y, logp_y, accept_prob = walk_proposal(target, x, logp, walk_size, frame, rng)
    else:
        y, logp_y, accept_prob = draw_proposal(target, settings, state, rng)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        history = remember(history, x, rng)
        n += 1.0
        if walk:
            walk_size, frame = adapt_walk_size(walk_size, n, accept_prob), learn_walk(frame, n, x)
        else:
            gain = settings.step_rate * rate(n, settings.schedule)
            nu *= np.exp(0.5 * gain * (accept_prob - settings.target_accept))
    state = State(x, logp, nu, walk_size, n, frame, points_t, sigma, history, fits, skipped)
    info = Info(accept_prob, accepted, nu, 1, NOTHING)
    return state, info


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    """Take a new subsample, and from time to time learn new coordinates and a new sigma."""
    frame, sigma = state.frame, state.sigma
    state, points, anew = refitting.begin_refit(state, settings, rng)
    if points is None:
        return state
    if all_equal(points):
        return state._replace(skipped=state.skipped + 1)
    if anew and not settings.faithful:
        frame = estimate_frame(points, frame)
    q = whiten_points(frame, points)
    if anew:
        sigma = median_sigma(q) if np.isnan(settings.sigma) else settings.sigma
        state = refitting.schedule_rebuild(state, settings)._replace(n=0.0)
    points_t = np.ascontiguousarray(q.T)
    return state._replace(frame=frame, sigma=float(sigma), points_t=points_t, fits=state.fits + 1)


sweep = make_sweep(step)
move = move_with_density


def history(state: State) -> dict[str, float]:
    return {"warmup_fits": float(state.fits), "warmup_sigma": state.sigma}


def learnt(state: State) -> dict[str, Any]:
    n, d = state.points_t.shape[1], state.x.size
    centers = np.full((len(state.history.points), d), np.nan)
    centers[:n] = state.points_t.T
    return {
        "sigma": np.array(state.sigma),
        "fits": np.array(state.fits),
        "skipped": np.array(state.skipped),
        "centers": centers,
        "mean": state.frame.center.copy(),
        "preconditioner": state.frame.scale * state.frame.chol_t.T @ state.frame.chol_t,
    }
