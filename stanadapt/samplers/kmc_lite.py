"""KMC lite: Hamiltonian Monte Carlo along a surrogate learned from the chain, without gradients.

Strathmann, Sejdinovic, Livingstone, Szabo and Gretton (2015), Algorithm 1 with Proposition 1. Trajectories
follow the gradient of the surrogate f(x) = sum_i alpha_i k(z_i, x), which score matching fits to a subsample
z of the history. The acceptance probability uses the target's own log density, which may be an estimate. Far
from all z the gradient of f vanishes, and a random walk is left.

    paper     here                             shape   meaning
    x_t       state.x                          (d,)    position on the unconstrained scale
    log pi^   state.logp                       ()      log density at x, or its estimate
    z         surrogate.centers_t              (d, n)  subsample of the history, as columns
    alpha     surrogate.weights                (n,)    weights: numerics/score_matching.py
    sigma     learnt.sigma                     ()      squared width of k
    lambda    learnt.regularisation            ()      regularisation
    n         settings.subsample               ()      size of the subsample; 300 by default
    a_t       rate(t, settings.schedule)       ()      probability of an update, t^-1/2
    p'        momentum                         (d,)    drawn from N(0, I) for every trajectory
    epsilon   state.steps.flow                 ()      largest step size; uniform on (step_low, 1) times it
    L         settings.n_leapfrog_min, _max    ()      leapfrog steps, uniform on the range

The step size follows the acceptance rate as in the authors' published code: log epsilon <- log epsilon +
a_t (accept_prob - target_accept).

Departures from the paper, all but the last off with `faithful=True`:
1. The first half of warm-up is an adaptive random walk (numerics/frame.py). The method then learns from the
   second half of this walk. A surrogate learned from the way to the typical set would be wrong in the typical
   set, and its trajectories would not leave that way.
2. k acts on coordinates in which the points have covariance I, because one sigma and momenta N(0, I) do not
   fit parameters of different scales.
3. Each time the number of iterations has grown by a factor of 1.25, everything is learned anew, including
   coordinates, sigma and lambda, and the history starts again. There is no refit before it has filled the
   subsample again.
4. The step size stays above d^-1/4 / 2 in these coordinates, unless acceptance falls below 0.1: at smaller
   steps, errors of the surrogate cause the rejections, and shorter steps do not cure these. The step size
   starts at 1 (0.1 when faithful), and step_low is 0.5 (0.1 when faithful).
5. One iteration in ten is a step of the walk, which goes on learning and moves where the surrogate is wrong.
   One iteration in two is such a step while less than a tenth of the trajectories is accepted.
6. A reservoir keeps the subsample. At any time it is a uniform sample of the history, but not a new one.
   Where sigma and lambda are not set, cross-validation chooses them each time everything is learned anew; in
   a faithful run, at the same times. Its folds are runs of the chain.

Cost of an iteration: one log density, O(d n L) for the trajectory, O(d²) for the coordinates. A refit:
O(n³ + d n²), or with solver="low_rank" O(d n r) for each of its iterations, with the rank r of the matrix of
k. Memory: n² numbers while refitting, and two (d, d) arrays a chain.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics import score_matching
from ..numerics.frame import Frame, estimate_frame, plain_frame, whiten_points
from ..numerics.history import History, all_equal, empty_history
from ..numerics.surrogate import Surrogate, empty_surrogate
from ..target import log_density
from ..trace import NOTHING, Info
from . import kmc, refitting
from .base import Stage, move_with_density
from .kmc import first_steps, iterate
from .loop import make_sweep
from .refitting import subsample_size
from .settings import Choice, Limit, with_settings_of

SOLVERS = Choice(("cholesky", "low_rank"))


@with_settings_of(kmc)
class Settings(NamedTuple):
    subsample: Annotated[
        int | None, Limit(2, refitting.LARGEST), "n: points to learn from; None: 300, or all if fewer"
    ] = None
    solver: Annotated[str | int, SOLVERS, "solver of the linear system"] = "cholesky"


FACTS = kmc.FACTS._replace(module=__name__, capacity="subsample")


class State(NamedTuple):
    x: np.ndarray
    logp: float
    steps: kmc.Steps
    walk_frame: Frame
    frame: Frame
    surrogate: Surrogate
    history: History
    learnt: kmc.Learnt


enter, until_refit = refitting.enter, refitting.until_refit


def n_matrices(settings: Any) -> int:
    """The factors of the frame and of the walk's frame."""
    return 2


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    return kmc.stages(settings, warmup, settings.subsample)


def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), before anything is learned."""
    logp = log_density(target, x)
    steps = first_steps(target, settings, x, logp, rng)
    surrogate = empty_surrogate(settings.kernel, x.size)
    history = empty_history(subsample_size(settings.subsample), x.size)
    learnt = kmc.Learnt(np.nan, np.nan, 0, 0, 0)
    return State(x.copy(), logp, steps, plain_frame(x), plain_frame(x), surrogate, history, learnt)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, steps, walk_frame, frame, surrogate, history, learnt = state
    x, logp, steps, walk_frame, history, accept_prob, accepted = iterate(
        target, settings, x, logp, steps, walk_frame, frame, surrogate, history, rng, adapting
    )
    state = State(x, logp, steps, walk_frame, frame, surrogate, history, learnt)
    info = Info(accept_prob, accepted, steps.flow, 1, NOTHING)
    return state, info


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    """Steps 1 to 4 of Algorithm 1; from time to time with new coordinates, sigma and lambda."""
    frame, learnt = state.frame, state.learnt
    state, points, anew = refitting.begin_refit(state, settings, rng)
    if points is None:
        return state
    if all_equal(points):
        return kmc.count_skip(state)
    if anew and not settings.faithful:
        frame = estimate_frame(points, frame if learnt.fits else state.walk_frame)
    q = whiten_points(frame, points)
    if anew:
        learnt = kmc.tune(settings, q, learnt, functools.partial(_fit_without, settings), rng)
        state = kmc.schedule_rebuild(state, settings)._replace(learnt=learnt)
    try:
        fit = _fit(settings, q, learnt.sigma, learnt.regularisation)
    except ValueError:
        return kmc.count_skip(state)
    return kmc.record_fit(state, fit)._replace(frame=frame)


def _fit(settings: Any, q: np.ndarray, sigma: float, regularisation: float) -> score_matching.SurrogateFit:
    """Fit the surrogate to `q` (n, d) with the solver of the settings."""
    solve = score_matching.fit_lite_low_rank if settings.solver else score_matching.fit_lite
    return solve(q, kmc.radial_function(settings, sigma), regularisation)


def _fit_without(
    settings: Any, q: np.ndarray, parts: Sequence[np.ndarray], sigma: float, regularisation: float
) -> Sequence[Surrogate]:
    """Fit surrogates to what is left of `q` (n, d) without each of the `parts` (n,)."""
    if settings.solver:
        fit_each = score_matching.without_each(lambda *at: _fit(settings, *at).surrogate)
        return fit_each(q, parts, sigma, regularisation)
    k = kmc.radial_function(settings, sigma)
    return score_matching.fit_lite_without(q, parts, k, regularisation)


sweep = make_sweep(step)
move = move_with_density


def history(state: State) -> dict[str, float]:
    return kmc.warmup_history(state)


def learnt(state: State) -> dict[str, Any]:
    return kmc.surrogate_arrays(state, len(state.history.points), "centers")
