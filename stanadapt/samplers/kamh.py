"""KAMH: a random walk whose covariance is that of the target near the current point.

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu and Gretton (2014), Kernel adaptive Metropolis-Hastings,
Algorithm 1. It is the comparator of Strathmann et al. (2015).

    paper     here                   shape   meaning
    x_t       state.x                (d,)    position on the unconstrained scale
    z         state.points_t         (d, n)  subsample of the history, as columns
    k         exp(-r²/sigma)         ()      kernel
    M_zx      pull                   (d, n)  2 [grad_x k(x, z_1), ..., grad_x k(x, z_n)]
    H         I - 1 1^T / n          (n, n)  centering
    gamma     settings.gamma         ()      scale of the isotropic part
    nu        state.step_size        ()      scale of the part that was learnt
    p_t       rate(t, schedule)      ()      probability of an update, t^-1/2

The proposal is N(x, gamma² I + nu² M H M^T). Its covariance depends on x, so both densities stand in the
acceptance probability. Far from all z the gradients vanish, and what is left is a random walk with gamma.

nu follows the acceptance rate, log nu² <- log nu² + p_t (accept_prob - target_accept), as in the authors'
published code.

Departures from the paper, all but the last off with `faithful=True`:
1. The first half of warm-up is an adaptive random walk (numerics/frame.py), whose second half is learnt from.
2. The kernel lives in coordinates in which the points have covariance I: one gamma and one width do not fit
   parameters of unlike scales. There gamma is 0.75 / sqrt(d), a third of the best scale of a random walk.
3. Whenever iterations are 1.25 times as many, the coordinates and sigma are learnt anew, and the history
   starts again.
4. nu starts at 2.38 / sqrt(d). gamma² = 0.1, when faithful, is that of the authors' demonstrations.
5. The subsample is kept by a reservoir: a uniform sample of the history at any time, but not a fresh one.
   sigma, where it is not set, is the median squared distance of the points.

Cost of an iteration: one log density, and O(n d² + d³) for the covariances at both ends and their Cholesky
factors. Memory: one (d, d) array a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics.cholesky import factorise, solve_lower
from ..numerics.frame import (
    Frame,
    all_into_frame,
    frame_of,
    into_frame,
    learn_walk,
    out_of_frame,
    plain_frame,
    walk_size_after,
)
from ..numerics.history import History, all_equal, empty_history, rate, remembered
from ..numerics.linear import add_times, dot
from ..numerics.metropolis import accept_probability
from ..numerics.score_matching import median_sigma
from ..target import log_density
from ..trace import NOTHING, Info
from . import refitting
from .base import BOTH_SIDES, SURROGATE, Facts, Stage
from .loop import swept
from .refitting import first_walk_size, size_or_default, walked
from .settings import POSITIVE, PROBABILITY, SCALE, Limit


class Settings(NamedTuple):
    subsample: Annotated[
        int | None, Limit(2, refitting.LARGEST), "n: points that are learnt from; None: 300, or what there is"
    ] = None
    sigma: Annotated[
        float | None, SCALE, "squared width of the kernel; None: the median squared distance"
    ] = None
    gamma: Annotated[
        float | None, SCALE, "isotropic part; None: 0.75 / sqrt(d), or sqrt(0.1) when faithful"
    ] = None
    initial_step_size: Annotated[float | None, POSITIVE, "of the walk, or nu when faithful; None: found"] = (
        None
    )
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that nu is adapted to"] = 0.234
    step_rate: Annotated[float, Limit(0.0, 10.0), "gain of the adaptation of nu; 0 leaves it as it is"] = 1.0
    schedule: Annotated[float, Limit(0.0, 1.0), "an update has the probability t^-schedule"] = 0.5
    vanishing: Annotated[bool, "whether adaptation goes on after warm-up, ever more rarely"] = False
    faithful: Annotated[bool, "follow the paper to the letter, without our departures"] = False


FACTS = Facts(
    family=SURROGATE,
    needs="densities",
    learns=("step size", "covariance near the chain"),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
    capacity="subsample",
    faithful=True,
    vanishing=True,
    refits=True,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float  # nu
    walk_size: float
    n: float  # iterations since the coordinates were learnt
    frame: Frame
    points_t: np.ndarray  # in the frame
    sigma: float
    history: History
    fits: int
    skipped: int  # updates that were due with all points equal


enter, until_refit = refitting.enter, refitting.until_refit


def n_matrices(settings: Any) -> int:
    """The frame."""
    return 1


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    return refitting.stages(settings, warmup, settings.subsample)


@kernel
def start(target: Any, settings: Any, x: Any, rng: Any) -> Any:
    """The state at `x` (d,): nothing learnt."""
    logp = log_density(target, x)
    walk = first_walk_size(target, settings, x, logp, rng)
    nu = 2.38 / np.sqrt(x.size)
    if settings.faithful and settings.initial_step_size > 0.0:
        nu = settings.initial_step_size
    history = empty_history(size_or_default(settings.subsample), x.size)
    return State(x.copy(), logp, nu, walk, 0.0, plain_frame(x), np.empty((x.size, 0)), np.nan, history, 0, 0)


@kernel
def chol_near(points_t: Any, sigma: Any, gamma: Any, nu: Any, q: Any) -> Any:
    """The transposed Cholesky factor of gamma² I + nu² M H M^T at `q` (d,), and half its log determinant."""
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
def proposed(target: Any, settings: Any, state: Any, rng: Any) -> Any:
    """A proposal y (d,), its log density and its acceptance probability."""
    d, frame = state.x.size, state.frame
    gamma = settings.gamma
    if np.isnan(gamma):
        gamma = np.sqrt(0.1) if settings.faithful else 0.75 / np.sqrt(d)
    q, z = into_frame(frame, state.x), np.empty(d)
    chol_t, half_log_det = chol_near(state.points_t, state.sigma, gamma, state.step_size, q)
    for i in range(d):
        z[i] = rng.standard_normal()
    there = q.copy()
    add_times(there, chol_t, z)
    y = out_of_frame(frame, there)
    logp_y = log_density(target, y)
    if np.isnan(half_log_det) or logp_y == -np.inf:
        return y, logp_y, 0.0
    chol_t_y, half_log_det_y = chol_near(state.points_t, state.sigma, gamma, state.step_size, there)
    back = q - there
    solve_lower(chol_t_y, back)
    log_back = -half_log_det_y - 0.5 * dot(back, back)
    log_forth = -half_log_det - 0.5 * dot(z, z)
    return y, logp_y, accept_probability(logp_y - state.logp + log_back - log_forth)


@kernel
def step(target: Any, settings: Any, state: Any, rng: Any, adapting: Any) -> Any:
    """One iteration of Algorithm 1."""
    x, logp, nu, walk_size, n, frame, points_t, sigma, history, fits, skipped = state

    walk = points_t.size == 0 and not settings.faithful
    if walk:
        y, logp_y, accept_prob = walked(target, x, logp, walk_size, frame, rng)
    else:
        y, logp_y, accept_prob = proposed(target, settings, state, rng)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        history = remembered(history, x, rng)
        n += 1.0
        if walk:
            walk_size, frame = walk_size_after(walk_size, n, accept_prob), learn_walk(frame, n, x)
        else:
            gain = settings.step_rate * rate(n, settings.schedule)
            nu *= np.exp(0.5 * gain * (accept_prob - settings.target_accept))
    state = State(x, logp, nu, walk_size, n, frame, points_t, sigma, history, fits, skipped)
    info = Info(accept_prob, accepted, nu, 1, NOTHING)
    return state, info


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    """A new subsample; and, from time to time, new coordinates and a new sigma."""
    frame, sigma = state.frame, state.sigma
    state, points, anew = refitting.due(state, settings, rng)
    if points is None:
        return state
    if all_equal(points):
        return state._replace(skipped=state.skipped + 1)
    if anew and not settings.faithful:
        frame = frame_of(points, frame)
    q = all_into_frame(frame, points)
    if anew:
        sigma = median_sigma(q) if np.isnan(settings.sigma) else settings.sigma
        state = refitting.rebuilt(state, settings)._replace(n=0.0)
    points_t = np.ascontiguousarray(q.T)
    return state._replace(frame=frame, sigma=float(sigma), points_t=points_t, fits=state.fits + 1)


sweep = swept(step)


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
