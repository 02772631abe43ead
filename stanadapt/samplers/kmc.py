"""What kmc_lite and kmc_finite share: the trajectory, the walk beside it, and the choice of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..jit import kernel
from ..numerics import score_matching
from ..numerics.frame import WALK_ACCEPT, into_frame, learn_walk, out_of_frame, walk_size_after
from ..numerics.history import rate, restarted
from ..numerics.linear import dot
from ..numerics.metropolis import accept_probability
from ..numerics.surrogate import KERNELS, Surrogate, surrogate_leapfrog
from ..numerics.walk import first_scale, propose_walk
from ..target import log_density
from .base import NOT_NEGATIVE, POSITIVE, PROBABILITY, Limit, Stage, check_subsample

POINTS = 300  # default size of the subsample, and of the basis
FIRST = 50  # iterations before a faithful run learns for the first time
_TUNING_POINTS = 200  # most points that the kernel is tuned on
_HOPELESS = 0.1  # acceptance rate below which even long trajectories are worth less than short ones

CHOICES: dict[str, tuple[str, ...]] = {"kernel": KERNELS}
LIMITS = {
    "shape": Limit(0.01, 1e6),
    "sigma": POSITIVE,
    "regularisation": POSITIVE,
    "n_leapfrog_min": Limit(1, 100_000),
    "n_leapfrog_max": Limit(1, 100_000),
    "step_low": Limit(0.0, 1.0, True),
    "initial_step_size": NOT_NEGATIVE,
    "walk_share": Limit(0.0, 0.99),
    "target_accept": PROBABILITY,
    "schedule": Limit(0.0, 1.0),
}
SIZE = Limit(2, 20_000)  # of the subsample or the basis: its square is held


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
    skipped: int  # fits that were due with all points equal


def n_matrices() -> int:
    return 1


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """A walk first, unless faithful; then the surrogate.

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
    quarter = 0 if settings.faithful else warmup // 4
    check_subsample(getattr(settings, "subsample", np.nan), quarter or warmup, warmup)
    return [Stage("approach", quarter), Stage("walk", quarter), Stage("surrogate", warmup - 2 * quarter)]


@kernel
def size_or_default(size: Any) -> Any:
    """The size of the subsample or the basis that was set, or the default."""
    return POINTS if np.isnan(size) else int(size)


@kernel
def first_steps(target: Any, settings: Any, x: Any, logp: Any, rng: Any) -> Any:
    """Step sizes: what was set; 0.1 when faithful; else for the walk what halving finds."""
    size = settings.initial_step_size
    if size == 0.0:
        size = 0.1 if settings.faithful else first_scale(target, x, logp, WALK_ACCEPT, rng)
    return Steps(size, size, 0.0, 0.0, 1.0)


@kernel
def walks(settings: Any, surrogate: Any, rng: Any) -> Any:
    """Whether this iteration is one of the walk.

    A faithful run has none: before it has learnt, its trajectories along a gradient of zero are a walk.
    """
    if settings.faithful:
        return False
    if surrogate.weights.size == 0:
        return True
    return settings.walk_share > 0.0 and rng.random() < settings.walk_share


@kernel
def walked(target: Any, x: Any, logp: Any, steps: Any, frame: Any, rng: Any) -> Any:
    """A proposal y (d,) of the walk, its log density and its acceptance probability."""
    y, z = np.empty_like(x), np.empty_like(x)
    propose_walk(x, frame.chol_t, steps.walk * np.sqrt(frame.scale), rng, y, z)
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(logp_y - logp)


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
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(energy - (-logp_y + 0.5 * dot(momentum, momentum)))


@kernel
def after_walk(settings: Any, steps: Any, frame: Any, surrogate: Any, x: Any, accept_prob: Any) -> Any:
    """Steps and frame after an iteration of the walk that ended at `x` (d,)."""
    n = steps.n_walk + 1.0
    walk = walk_size_after(steps.walk, n, accept_prob)
    flow = steps.flow
    if surrogate.weights.size == 0:
        frame, flow = learn_walk(frame, n, x), walk
    return Steps(flow, walk, steps.n_flow, n, steps.acceptance), frame


@kernel
def after_flow(settings: Any, steps: Any, d: Any, accept_prob: Any) -> Any:
    """Steps after a trajectory in dimension `d`."""
    n = steps.n_flow + 1.0
    gain = rate(n, settings.schedule)
    flow = steps.flow * np.exp(gain * (accept_prob - settings.target_accept))
    acceptance = steps.acceptance + max(gain, 0.02) * (accept_prob - steps.acceptance)
    if not settings.faithful and acceptance > _HOPELESS:
        flow = max(flow, d**-0.25)
    return Steps(flow, steps.walk, n, steps.n_walk, acceptance)


def enter(stage: str, state: Any, settings: Any) -> Any:
    """The approach is forgotten. At the end of the walk all is learnt from it."""
    history = state.history
    if stage == "walk":
        history = restarted(history)
    if stage == "surrogate":
        first = history.t + (FIRST if settings.faithful else 0)
        history = history._replace(next_fit=first, next_rebuild=first)
    return state._replace(history=history)


def until_refit(state: Any) -> int:
    """Iterations until `refit` is due."""
    return max(0, state.history.next_fit - state.history.t)


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
    sigma, regularisation = score_matching.choose(q, fit, (sigma, regularisation), fixed=fixed)
    return learnt._replace(sigma=float(sigma), regularisation=float(regularisation))


def rebuilt(state: Any, settings: Any) -> Any:
    """After all was learnt anew: the next time is when iterations have doubled; the history starts again."""
    history = state.history._replace(next_rebuild=3 * max(state.history.t, 1) // 2 + 1)
    if settings.faithful:
        return state._replace(history=history)
    flow = state.steps.flow if state.learnt.fits else 1.0
    steps = state.steps._replace(flow=flow, n_flow=0.0, acceptance=1.0)
    return state._replace(history=restarted(history), steps=steps)


def described(state: Any) -> dict[str, float]:
    """For the history over warm-up."""
    learnt = state.learnt
    return {
        "step_size": state.steps.flow,
        "fits": float(learnt.fits),
        "sigma": learnt.sigma,
        "regularisation": learnt.regularisation,
    }


def reported(state: Any, size: int) -> dict[str, Any]:
    """What was learnt, with room for `size` centers; NaN where there are fewer."""
    surrogate, frame = state.surrogate, state.frame
    n, d = surrogate.weights.size, state.x.size
    centers, weights = np.full((size, d), np.nan), np.full(size, np.nan)
    centers[:n], weights[:n] = surrogate.centers_t.T, surrogate.weights
    counts = {name: np.array(getattr(state.learnt, name)) for name in ("fits", "repaired", "skipped")}
    return counts | {
        "sigma": np.array(state.learnt.sigma),
        "regularisation": np.array(state.learnt.regularisation),
        "centers": centers,
        "weights": weights,
        "mean": frame.center.copy(),
        "preconditioner": frame.scale * frame.chol_t.T @ frame.chol_t,
    }
