"""What kmc_lite and kmc_finite share: the trajectory, the walk beside it, and the choice of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..jit import kernel
from ..numerics import score_matching
from ..numerics.frame import into_frame, learn_walk, out_of_frame, walk_size_after
from ..numerics.history import rate, remembered
from ..numerics.linear import dot
from ..numerics.metropolis import accept_probability
from ..numerics.surrogate import KERNELS, Surrogate, surrogate_leapfrog
from ..target import log_density
from . import refitting
from .base import Stage
from .refitting import first_walk_size, walked
from .settings import UNSET, Choice

_TUNING_POINTS = 500  # most points that the kernel is tuned on: what is best depends on their number
_HOPELESS = 0.1  # acceptance rate below which long trajectories are worth no more than short ones

KERNEL = Choice(KERNELS)


class Steps(NamedTuple):
    """How far iterations go, and how that is adapted."""

    flow: float  # step size of the trajectories
    walk: float  # of the walk
    n_flow: float  # trajectories since all was learnt anew
    n_walk: float  # steps of the walk
    acceptance: float  # of the trajectories of late


class Learnt(NamedTuple):
    """What stands between the history and the surrogate."""

    sigma: float  # NaN before the kernel is chosen
    regularisation: float
    fits: int
    repaired: int  # systems that were singular and had to be regularised further
    skipped: int  # fits that were due with all points equal, or whose system had no solution


def stages(settings: Any, warmup: int, subsample: int = UNSET) -> list[Stage]:
    """Those of refitting.py; `subsample` is the setting, where there is one.

    Raises
    ------
    ArgumentError
        The range of the number of leapfrog steps is empty, or the history will not fill the subsample.
    """
    if settings.n_leapfrog_min > settings.n_leapfrog_max:
        raise ArgumentError(
            f"settings['n_leapfrog_min']={settings.n_leapfrog_min} is not allowed: it must be at most "
            f"n_leapfrog_max={settings.n_leapfrog_max}"
        )
    return refitting.stages(settings, warmup, subsample)


@kernel
def first_steps(target: Any, settings: Any, x: Any, logp: Any, rng: Any) -> Any:
    """Step sizes at the start. A faithful run begins with trajectories, of 0.1 if nothing was set."""
    walk = first_walk_size(target, settings, x, logp, rng)
    flow = walk
    if settings.faithful and flow == 0.0:
        flow = 0.1
    return Steps(flow, walk, 0.0, 0.0, 1.0)


@kernel
def walks(settings: Any, surrogate: Any, steps: Any, rng: Any) -> Any:
    """Whether this iteration is one of the walk: a share of them, half while trajectories are hopeless.

    A faithful run has none: before it has learnt, its trajectories along a gradient of zero are a walk.
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
def flowed(
    target: Any, settings: Any, x: Any, logp: Any, steps: Any, frame: Any, surrogate: Any, rng: Any
) -> Any:
    """The end of a trajectory from `x` (d,) along the surrogate: y (d,), its log density, and the acceptance
    probability (3), in which stand the target's log densities and not the surrogate's."""
    momentum = np.empty_like(x)
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
    q = into_frame(frame, x)
    surrogate_leapfrog(surrogate, q, momentum, epsilon, n_leapfrog)
    y = out_of_frame(frame, q)
    if not np.isfinite(np.sum(y)):  # no point to ask a user's function about
        return y, -np.inf, 0.0
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(energy - (-logp_y + 0.5 * dot(momentum, momentum)))


@kernel
def after_walk(steps: Any, surrogate: Any, accept_prob: Any) -> Any:
    """Steps after an iteration of the walk."""
    n = steps.n_walk + 1.0
    walk = walk_size_after(steps.walk, n, accept_prob)
    flow = walk if surrogate.weights.size == 0 else steps.flow
    return Steps(flow, walk, steps.n_flow, n, steps.acceptance)


@kernel
def after_flow(settings: Any, steps: Any, d: Any, accept_prob: Any) -> Any:
    """Steps after a trajectory in dimension `d`."""
    n = steps.n_flow + 1.0
    weight = rate(n, settings.schedule)
    gain = settings.step_rate * weight
    flow = steps.flow * np.exp(gain * (accept_prob - settings.target_accept))
    acceptance = steps.acceptance + max(weight, 0.02) * (accept_prob - steps.acceptance)
    if gain > 0.0 and acceptance > _HOPELESS and not settings.faithful:
        flow = max(flow, 0.5 * d**-0.25)
    return Steps(flow, steps.walk, n, steps.n_walk, acceptance)


@kernel
def iterated(
    target: Any,
    settings: Any,
    x: Any,
    logp: Any,
    steps: Any,
    walk_frame: Any,
    frame: Any,
    surrogate: Any,
    history: Any,
    rng: Any,
    adapting: Any,
) -> Any:
    """Steps 5 and 6 of Algorithm 1, and what is adapted at every iteration.

    Returns x, logp, steps, walk_frame and history afterwards, the acceptance probability, whether accepted.
    """
    walk = walks(settings, surrogate, steps, rng)
    if walk:
        y, logp_y, accept_prob = walked(target, x, logp, steps.walk, walk_frame, rng)
    else:
        y, logp_y, accept_prob = flowed(target, settings, x, logp, steps, frame, surrogate, rng)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        history = remembered(history, x, rng)
        if not settings.faithful:
            walk_frame = learn_walk(walk_frame, history.t, x)
        if walk:
            steps = after_walk(steps, surrogate, accept_prob)
        else:
            steps = after_flow(settings, steps, x.size, accept_prob)
    return x, logp, steps, walk_frame, history, accept_prob, accepted


def kernel_of(settings: Any, sigma: float) -> score_matching.Kernel:
    return score_matching.Kernel(int(settings.kernel), sigma, settings.shape)


def tuned(
    settings: Any,
    q: np.ndarray,
    learnt: Learnt,
    fit: Callable[[np.ndarray, float, float], Surrogate],
    rng: np.random.Generator,
) -> Learnt:
    """With sigma and lambda as they were set, or chosen by cross-validation on points `q` (n, d).

    The search starts from the last choice; the first from the median squared distance, and lambda = 0.001.
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


def fitted(state: Any, fit: score_matching.Fit) -> Any:
    """With a new surrogate."""
    learnt = state.learnt
    learnt = learnt._replace(fits=learnt.fits + 1, repaired=learnt.repaired + fit.repaired)
    return state._replace(surrogate=fit.surrogate, learnt=learnt)


def skipped(state: Any) -> Any:
    """With the surrogate as it was: there is nothing to learn from, or no solution."""
    return state._replace(learnt=state.learnt._replace(skipped=state.learnt.skipped + 1))


def rebuilt(state: Any, settings: Any) -> Any:
    """The same as in refitting.py, and the trajectories' step size begins to be adapted anew."""
    if not settings.faithful:
        first = 1.0 if np.isnan(settings.initial_step_size) else settings.initial_step_size
        flow = state.steps.flow if state.learnt.fits else first
        state = state._replace(steps=state.steps._replace(flow=flow, n_flow=0.0, acceptance=1.0))
    return refitting.rebuilt(state, settings)


def described(state: Any) -> dict[str, float]:
    """For the history over warm-up."""
    learnt = state.learnt
    return {
        "step_size": state.steps.flow,
        "warmup_fits": float(learnt.fits),
        "warmup_sigma": learnt.sigma,
        "warmup_regularisation": learnt.regularisation,
    }


def reported(state: Any, size: int, centers_name: str) -> dict[str, Any]:
    """What was learnt, with room for `size` centers or frequencies; NaN where there are fewer."""
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
