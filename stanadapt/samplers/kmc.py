"""What kmc_lite and kmc_finite share: trajectories, a walk between them, the choice of sigma and lambda."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..jit import kernel
from ..kinds import ChainState, Flag, Generator, Integer, Real, Target, Vector
from ..numerics import score_matching
from ..numerics.frame import Frame, adapt_walk_size, learn_walk, unwhiten, whiten
from ..numerics.history import History, rate, remember
from ..numerics.linear import dot
from ..numerics.metropolis import accept_probability
from ..numerics.surrogate import RADIAL_FUNCTIONS, Surrogate, surrogate_leapfrog
from ..target import log_density
from . import refitting
from .base import BOTH_SIDES, SURROGATE, Facts, Stage
from .refitting import first_walk_size, walk_proposal
from .settings import POSITIVE, PROBABILITY, SCALE, UNSET, Choice, Limit

_TUNING_POINTS = 500  # most points in the choice of sigma and lambda; the result depends on this number
_HOPELESS = 0.1  # with a lower acceptance rate long trajectories are no better than short ones

RADIAL_FUNCTION = Choice(RADIAL_FUNCTIONS)


class Settings(NamedTuple):
    """The settings that both methods have, behind their own."""

    kernel: Annotated[str | int, RADIAL_FUNCTION, "radial function k of the surrogate"] = "gaussian"
    shape: Annotated[float, Limit(0.01, 1e6), "shape of the rational quadratic k"] = 1.0
    sigma: Annotated[float | None, SCALE, "squared width of k; None: by cross-validation"] = None
    regularisation: Annotated[float | None, SCALE, "lambda; None: by cross-validation"] = None
    n_leapfrog_min: Annotated[int, Limit(1, 100_000), "smallest number of leapfrog steps"] = 1
    n_leapfrog_max: Annotated[int, Limit(1, 100_000), "largest number of leapfrog steps"] = 10
    step_low: Annotated[
        float | None, PROBABILITY, "least share of epsilon; None: 0.5, or 0.1 if faithful"
    ] = None
    initial_step_size: Annotated[float | None, POSITIVE, "first step; None: search; 0.1 if faithful"] = None
    walk_share: Annotated[float, Limit(0.0, 0.99), "share of random-walk iterations; 0 if faithful"] = 0.1
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.7
    step_rate: Annotated[float, Limit(0.0, 10.0), "gain of the step size; 0: no adaptation"] = 1.0
    schedule: Annotated[float, Limit(0.0, 1.0), "iteration t refits with probability t^-schedule"] = 0.5
    vanishing: Annotated[bool, "adapt after warm-up too, more and more rarely"] = False
    faithful: Annotated[bool, "follow the paper, without our departures"] = False


FACTS = Facts(
    module=__name__,
    family=SURROGATE,
    needs="densities",
    learns=("step size", "model of the log density"),
    warmup=20_000,
    draws=10_000,
    gradient=False,
    acceptance=BOTH_SIDES,
)


class Steps(NamedTuple):
    """The step sizes of trajectories and walk, and the numbers that adapt them."""

    flow: float  # step size of the trajectories
    walk: float  # step size of the walk
    n_flow: float  # number of trajectories since everything was learned anew
    n_walk: float  # number of steps of the walk
    acceptance: float  # running mean of the acceptance of trajectories


class Learnt(NamedTuple):
    """What the method chose and counted when it learned the surrogate."""

    sigma: float  # NaN before the first choice
    regularisation: float
    fits: int
    repaired: int  # number of singular systems that needed more regularisation
    skipped: int  # fits left out because all points were equal, or the system had no solution


def stages(settings: Any, warmup: int, subsample: int = UNSET) -> list[Stage]:
    """The stages of refitting.py; `subsample` is the setting if the method has it.

    Raises
    ------
    ArgumentError
        The range of the number of leapfrog steps is empty, or the history cannot fill the subsample.
    """
    if settings.n_leapfrog_min > settings.n_leapfrog_max:
        raise ArgumentError(
            f"settings['n_leapfrog_min']={settings.n_leapfrog_min} is not allowed: it must be at most "
            f"n_leapfrog_max={settings.n_leapfrog_max}"
        )
    return refitting.stages(settings, warmup, subsample)


def first_steps(target: Target, settings: Any, x: Vector, logp: Real, rng: Generator) -> Steps:
    """The first step sizes. A faithful run begins with trajectories, of step size 0.1 if nothing was set."""
    walk = first_walk_size(target, settings, x, logp, rng)
    flow = walk
    if settings.faithful and flow == 0.0:
        flow = 0.1
    return Steps(flow, walk, 0.0, 0.0, 1.0)


@kernel
def is_walk(settings: Any, surrogate: Surrogate, steps: Steps, rng: Generator) -> Flag:
    """Whether this iteration is a step of the walk.

    A share of the iterations is, and at least half of them while hardly any trajectory is accepted. A
    faithful run has no such steps: before it learns, the gradient of its surrogate is zero, and its
    trajectories are a random walk.
    """
    if settings.faithful:
        return False
    if surrogate.weights.size == 0:
        return True
    share = settings.walk_share
    if share == 0.0:
        return False
    if steps.acceptance < _HOPELESS:
        share = max(share, 0.5)
    return rng.random() < share


@kernel
def trajectory_proposal(
    target: Target,
    settings: Any,
    x: Vector,
    logp: Real,
    steps: Steps,
    frame: Frame,
    surrogate: Surrogate,
    rng: Generator,
) -> tuple[Vector, Real, Real]:
    """The end y (d,) of a trajectory from `x` (d,), its log density, and its acceptance probability.

    The trajectory follows the surrogate. Equation (3), the probability, uses the target's log densities.
    """
    momentum = np.empty(x.size)
    for i in range(x.size):
        momentum[i] = rng.standard_normal()
    epsilon, n_leapfrog, low = steps.flow, settings.n_leapfrog_min, settings.step_low
    if np.isnan(low):
        low = 0.1 if settings.faithful else 0.5
    if low < 1.0:
        epsilon *= low + (1.0 - low) * rng.random()
    if n_leapfrog < settings.n_leapfrog_max:
        n_leapfrog += int(rng.random() * (settings.n_leapfrog_max - n_leapfrog + 1))
    energy = -logp + 0.5 * dot(momentum, momentum)
    q = whiten(frame, x)
    surrogate_leapfrog(surrogate, q, momentum, epsilon, n_leapfrog)
    y = unwhiten(frame, q)
    total = 0.0
    for i in range(y.size):
        total += y[i]
    if not np.isfinite(total):  # no point at which to call a user's function
        return y, -np.inf, 0.0
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(energy - (-logp_y + 0.5 * dot(momentum, momentum)))


@kernel
def adapt_to_walk(steps: Steps, surrogate: Surrogate, accept_prob: Real) -> Steps:
    """The step sizes after an iteration of the walk."""
    n = steps.n_walk + 1.0
    walk = adapt_walk_size(steps.walk, n, accept_prob)
    flow = walk if surrogate.weights.size == 0 else steps.flow
    return Steps(flow, walk, steps.n_flow, n, steps.acceptance)


@kernel
def adapt_to_trajectory(settings: Any, steps: Steps, d: Integer, accept_prob: Real) -> Steps:
    """The step sizes after a trajectory in dimension `d`."""
    n = steps.n_flow + 1.0
    weight = rate(n, settings.schedule)
    gain = settings.step_rate * weight
    flow = steps.flow * np.exp(gain * (accept_prob - settings.target_accept))
    acceptance = steps.acceptance + max(weight, 0.02) * (accept_prob - steps.acceptance)
    if gain > 0.0 and acceptance > _HOPELESS and not settings.faithful:
        flow = max(flow, 0.5 * d**-0.25)
    return Steps(flow, steps.walk, n, steps.n_walk, acceptance)


@kernel
def iterate(
    target: Target,
    settings: Any,
    x: Vector,
    logp: Real,
    steps: Steps,
    walk_frame: Frame,
    frame: Frame,
    surrogate: Surrogate,
    history: History,
    rng: Generator,
    adapting: Flag,
) -> tuple[Vector, Real, Steps, Frame, History, Real, Flag]:
    """Steps 5 and 6 of Algorithm 1, and the adaptation of every iteration.

    Returns the new x, logp, steps, walk_frame and history, the acceptance probability, and whether the
    proposal was accepted.
    """
    walk = is_walk(settings, surrogate, steps, rng)
    if walk:
        y, logp_y, accept_prob = walk_proposal(target, x, logp, steps.walk, walk_frame, rng)
    else:
        y, logp_y, accept_prob = trajectory_proposal(target, settings, x, logp, steps, frame, surrogate, rng)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        history = remember(history, x, rng)
        if not settings.faithful:
            walk_frame = learn_walk(walk_frame, history.t, x)
        if walk:
            steps = adapt_to_walk(steps, surrogate, accept_prob)
        else:
            steps = adapt_to_trajectory(settings, steps, x.size, accept_prob)
    return x, logp, steps, walk_frame, history, accept_prob, accepted


def radial_function(settings: Any, sigma: float) -> score_matching.RadialFunction:
    """The k of the settings with this sigma."""
    return score_matching.RadialFunction(int(settings.kernel), sigma, settings.shape)


def tune(
    settings: Any,
    q: np.ndarray,
    learnt: Learnt,
    fit: score_matching.FitWithout,
    rng: np.random.Generator,
) -> Learnt:
    """Set sigma and lambda: to the settings, or by cross-validation on points `q` (n, d).

    The search starts from the last choice. The first search starts from the median squared distance and
    lambda = 0.001.
    """
    if len(q) > _TUNING_POINTS:
        q = q[np.sort(rng.choice(len(q), _TUNING_POINTS, replace=False))]
    fixed = not np.isnan(settings.sigma), not np.isnan(settings.regularisation)
    sigma, regularisation = learnt.sigma, learnt.regularisation
    if np.isnan(sigma):
        sigma, regularisation = score_matching.median_sigma(q), 1e-3
    sigma = settings.sigma if fixed[0] else sigma
    regularisation = settings.regularisation if fixed[1] else regularisation
    evaluations = 15 if learnt.fits else 40
    sigma, regularisation = score_matching.choose(
        q, fit, (sigma, regularisation), fixed=fixed, evaluations=evaluations
    )
    return learnt._replace(sigma=float(sigma), regularisation=float(regularisation))


def record_fit(state: ChainState, fit: score_matching.SurrogateFit) -> Any:
    """Take the surrogate of a new fit."""
    learnt = state.learnt
    learnt = learnt._replace(fits=learnt.fits + 1, repaired=learnt.repaired + fit.repaired)
    return state._replace(surrogate=fit.surrogate, learnt=learnt)


def count_skip(state: ChainState) -> Any:
    """Keep the surrogate, because there is nothing to learn from or no solution."""
    return state._replace(learnt=state.learnt._replace(skipped=state.learnt.skipped + 1))


def schedule_rebuild(state: ChainState, settings: Any) -> Any:
    """As in refitting.py; also start the adaptation of the trajectories' step size anew."""
    if not settings.faithful:
        first = 1.0 if np.isnan(settings.initial_step_size) else settings.initial_step_size
        flow = state.steps.flow if state.learnt.fits else first
        state = state._replace(steps=state.steps._replace(flow=flow, n_flow=0.0, acceptance=1.0))
    return refitting.schedule_rebuild(state, settings)


def warmup_history(state: ChainState) -> dict[str, float]:
    """The numbers that warm-up records."""
    learnt = state.learnt
    return {
        "step_size": state.steps.flow,
        "warmup_fits": float(learnt.fits),
        "warmup_sigma": learnt.sigma,
        "warmup_regularisation": learnt.regularisation,
    }


def surrogate_arrays(state: ChainState, size: int, centers_name: str) -> dict[str, Any]:
    """What a chain has learned. Centers or frequencies get rows of NaN, up to `size` rows."""
    surrogate, frame = state.surrogate, state.frame
    n, d = surrogate.weights.size, state.x.size
    centers, weights = np.full((size, d), np.nan), np.full(size, np.nan)
    centers[:n], weights[:n] = surrogate.centers_t.T, surrogate.weights
    counts: dict[str, Any] = {
        name: np.array(getattr(state.learnt, name)) for name in ("fits", "repaired", "skipped")
    }
    return counts | {
        "sigma": np.array(state.learnt.sigma),
        "regularisation": np.array(state.learnt.regularisation),
        centers_name: centers,
        "weights": weights,
        "mean": frame.center.copy(),
        "preconditioner": frame.scale * frame.chol_t.T @ frame.chol_t,
    }
