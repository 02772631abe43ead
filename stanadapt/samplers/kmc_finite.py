"""KMC finite: Hamiltonian Monte Carlo along random features fitted to all of the chain, without gradients.

Strathmann, Sejdinovic, Livingstone, Szabo and Gretton (2015), Algorithm 1 with Proposition 2. Trajectories
follow the gradient of the surrogate f(x) = theta . phi(x) with random Fourier features phi, which score
matching fits to the history. The acceptance probability uses the target's own log density, which may be an
estimate. An update adds the points since the last one, at a cost that does not grow with the history.

    paper       here                             shape   meaning
    x_t         state.x                          (d,)    position on the unconstrained scale
    log pi^     state.logp                       ()      log density at x, or its estimate
    omega, u    state.sums.omega, .u             (m, d), (m,)  the features cos(omega_j . x + u_j)
    theta       surrogate.weights                (m,)    weights: numerics/score_matching.py
    b, C        state.sums.b, .c                 (m,), (m, m)  running sums over the history
    lambda      learnt.regularisation            ()      regularisation
    sigma       learnt.sigma                     ()      squared width of the k that the features belong to
    m           settings.basis                   ()      number of features; 300 by default
    a_t         rate(t, settings.schedule)       ()      probability of an update, t^-1/2
    p'          momentum                         (d,)    drawn from N(0, I) for every trajectory
    epsilon     state.steps.flow                 ()      largest step size; uniform on (step_low, 1) times it
    L           settings.n_leapfrog_min, _max    ()      leapfrog steps, uniform on the range

Far from the history f oscillates: start in the bulk of the target, or use kmc_lite. The step size and the
walk between the trajectories work as in kmc_lite.py.

Departures from the paper: 1 to 5 are the same as in kmc_lite.py, off with `faithful=True`.
6. An update adds all points since the last one, not only the newest. When everything is learned anew, the
   sums start with a uniform sample of the history, of up to 1,000 points. Where sigma and lambda are not set,
   cross-validation then chooses them; its folds are runs of the chain. A faithful run in which both are set
   never learns everything anew.

Cost of an iteration: one log density, O(d m L) for the trajectory, O(d²) for the coordinates. An update:
O(d m²) a point by rank-one updates, or O(m³) for many points. Memory: two (m, m) and two (d, d) arrays a
chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics.frame import Frame, estimate_frame, plain_frame, whiten_points
from ..numerics.history import History, all_equal, empty_history, sample_history, schedule_fit
from ..numerics.score_matching import (
    Basis,
    Sums,
    draw_basis,
    empty_sums,
    fit_finite,
    fit_finite_without,
    fourier_basis,
    take_in,
)
from ..numerics.surrogate import FOURIER, Surrogate, empty_surrogate
from ..target import log_density
from ..trace import NOTHING, Info
from . import kmc, refitting
from .base import Stage, move_with_density
from .kmc import first_steps, iterate
from .loop import make_sweep
from .settings import Limit, with_settings_of


@with_settings_of(kmc)
class Settings(NamedTuple):
    basis: Annotated[int, Limit(2, refitting.LARGEST), "m: number of random features"] = 300


FACTS = kmc.FACTS._replace(module=__name__, capacity="basis")


class State(NamedTuple):
    x: np.ndarray
    logp: float
    steps: kmc.Steps
    walk_frame: Frame
    frame: Frame
    surrogate: Surrogate
    history: History
    learnt: kmc.Learnt
    sums: Sums
    pending: np.ndarray  # (n, d) points that are not in the sums yet
    n_pending: int


enter = refitting.enter
_RESERVOIR = 1_000  # points that are kept for the time when everything is learned anew
_PENDING = 256  # largest number of pending points


def n_matrices(settings: Any) -> int:
    """The factors of the frame and of the walk's frame."""
    return 2


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    return kmc.stages(settings, warmup)


def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), before anything is learned."""
    d, m = x.size, settings.basis
    logp = log_density(target, x)
    steps = first_steps(target, settings, x, logp, rng)
    sums = Sums(
        np.zeros((m, d)),
        np.zeros(m),
        0.0,
        0,
        np.zeros(m),
        np.zeros((m, m)),
        np.zeros(m),
        np.zeros((m, m)),
        False,
    )
    learnt = kmc.Learnt(np.nan, np.nan, 0, 0, 0)
    history = empty_history(_RESERVOIR, d)
    pending = np.empty((_PENDING, d))
    surrogate = empty_surrogate(FOURIER, d)
    return State(
        x.copy(), logp, steps, plain_frame(x), plain_frame(x), surrogate, history, learnt, sums, pending, 0
    )


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, steps, walk_frame, frame, surrogate, history, learnt, sums, pending, n_pending = state
    x, logp, steps, walk_frame, history, accept_prob, accepted = iterate(
        target, settings, x, logp, steps, walk_frame, frame, surrogate, history, rng, adapting
    )
    if adapting and surrogate.weights.size > 0:
        for i in range(x.size):
            pending[n_pending, i] = x[i]
        n_pending += 1
    state = State(x, logp, steps, walk_frame, frame, surrogate, history, learnt, sums, pending, n_pending)
    info = Info(accept_prob, accepted, steps.flow, 1, NOTHING)
    return state, info


def until_refit(state: State) -> int:
    """The number of iterations before `refit`, which is due for an update or when `pending` is full."""
    return min(refitting.until_refit(state), _PENDING - state.n_pending)


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    """Steps 1 to 4 of Algorithm 1; from time to time with new coordinates and features."""
    history, learnt = state.history, state.learnt
    if learnt.fits:
        waiting = whiten_points(state.frame, state.pending[: state.n_pending])
        state = state._replace(sums=take_in(state.sums, waiting), n_pending=0)
    if history.t < history.next_fit:
        return state
    state = state._replace(history=schedule_fit(history, settings.schedule, rng))
    if history.t >= history.next_rebuild:
        state = _rebuild(state, settings, sample_history(history), rng)
    if not state.sums.t:
        return state
    try:
        sums, fit = fit_finite(state.sums)
    except ValueError:
        return kmc.count_skip(state)
    return kmc.record_fit(state, fit)._replace(sums=sums)


def _rebuild(state: State, settings: Any, points: np.ndarray, rng: np.random.Generator) -> Any:
    """Learn new coordinates, sigma, lambda and features, with sums over `points` (n, d)."""
    learnt = state.learnt
    fixed = settings.faithful and not (np.isnan(settings.sigma) or np.isnan(settings.regularisation))
    if learnt.fits and fixed:
        return refitting.schedule_rebuild(state, settings)
    if all_equal(points):
        return kmc.count_skip(state)
    frame = state.frame
    if not settings.faithful:
        frame = estimate_frame(points, frame if learnt.fits else state.walk_frame)
    q = whiten_points(frame, points)
    draws = draw_basis(settings.basis, q.shape[1], settings.shape, rng)

    def basis(sigma: float) -> Basis:
        return fourier_basis(kmc.radial_function(settings, sigma), draws)

    def fit(
        q: np.ndarray, parts: Sequence[np.ndarray], sigma: float, regularisation: float
    ) -> Sequence[Surrogate]:
        return fit_finite_without(q, parts, basis(sigma), regularisation)

    learnt = kmc.tune(settings, q, learnt, fit, rng)
    state = kmc.schedule_rebuild(state, settings)
    own = take_in(empty_sums(basis(learnt.sigma), learnt.regularisation), q)
    return state._replace(frame=frame, learnt=learnt, sums=own, n_pending=0)


sweep = make_sweep(step)
move = move_with_density


def history(state: State) -> dict[str, float]:
    return kmc.warmup_history(state)


def learnt(state: State) -> dict[str, Any]:
    return kmc.surrogate_arrays(state, state.sums.u.size, "frequencies")
