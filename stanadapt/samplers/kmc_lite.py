"""KMC lite: Hamiltonian Monte Carlo along a surrogate that is learnt from the chain, without any gradient.

Strathmann, Sejdinovic, Livingstone, Szabo and Gretton (2015), Algorithm 1 with Proposition 1. Trajectories
follow the gradient of f(x) = sum_i alpha_i k(z_i, x), an exponential family with the kernel k that score
matching fits to a subsample z of the history; their ends are accepted by the target's own log density, which
may be an estimate. Far from all z the gradient of f vanishes, and what is left is a random walk.

    paper     here                             shape   meaning
    x_t       state.x                          (d,)    position on the unconstrained scale
    log pi^   state.logp                       ()      log density at x, or the estimate kept for it
    z         surrogate.centers_t              (d, n)  subsample of the history, as columns
    alpha     surrogate.weights                (n,)    weights: numerics/score_matching.py
    sigma     learnt.sigma                     ()      squared width of the kernel
    lambda    learnt.regularisation            ()      regularisation
    n         settings.subsample               ()      size of the subsample; 300 by default
    a_t       rate(t, settings.schedule)       ()      probability of an update, t^-1/2
    p'        momentum                         (d,)    drawn from N(0, I) for every trajectory
    epsilon   state.steps.flow                  ()      longest step size; uniform on (step_low, 1) times it
    L         settings.n_leapfrog_min, _max    ()      leapfrog steps, uniform on the range

The step size follows the acceptance rate, log epsilon <- log epsilon + a_t (accept_prob - target_accept), as
in the authors' published code.

Departures from the paper, all but the last off with `faithful=True`:
1. The first half of warm-up is an adaptive random walk (numerics/frame.py), whose second half is learnt from.
   A surrogate learnt from the way to the typical set is wrong there, and its trajectories do not leave it.
2. The kernel lives in coordinates in which the points have covariance I: one width and momenta N(0, I) do not
   fit parameters of unlike scales.
3. Whenever iterations are 1.25 times as many, all is learnt anew, coordinates and kernel included, and the
   history starts again. It is not learnt from between then and the time when it fills the subsample.
4. The step size is not adapted to less than d^-1/4 / 2 in these coordinates, unless acceptance falls below
   0.1: rejections are then the surrogate's errors and not the integrator's, and do not go away. It starts
   at 1 (0.1 when faithful), and step_low is 0.5 (0.1 when faithful).
5. One iteration in ten is a step of the walk, which goes on learning and moves where the surrogate is wrong;
   one in two while less than a tenth of the trajectories is accepted.
6. The subsample is kept by a reservoir: a uniform sample of the history at any time, but not a fresh one.
   sigma and lambda, where they are not set, are chosen by cross-validation whenever all is learnt anew, or
   would be; folds are runs of the chain.

Cost of an iteration: one log density, O(d n L) for the trajectory, O(d²) into the coordinates and back. A
refit: O(n³ + d n²), or O(d n r) an iteration of the solver with solver="low_rank", r the rank of the kernel
matrix. Memory: n² numbers while refitting, and two (d, d) arrays a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics import score_matching
from ..numerics.frame import Frame, all_into_frame, frame_of, plain_frame
from ..numerics.history import History, all_equal, empty_history
from ..numerics.surrogate import Surrogate, no_surrogate
from ..target import log_density
from ..trace import NOTHING, Info
from . import kmc, refitting
from .base import BOTH_SIDES, SURROGATE, Facts, Stage
from .kmc import first_steps, iterated
from .loop import swept
from .refitting import size_or_default
from .settings import POSITIVE, PROBABILITY, SCALE, Choice, Limit

SOLVERS = Choice(("cholesky", "low_rank"))


class Settings(NamedTuple):
    subsample: Annotated[
        int | None, Limit(2, refitting.LARGEST), "n: points that are learnt from; None: 300, or what there is"
    ] = None
    kernel: Annotated[str | int, kmc.KERNEL, "k, whose sums are the surrogate"] = "gaussian"
    shape: Annotated[float, Limit(0.01, 1e6), "of the rational quadratic kernel"] = 1.0
    sigma: Annotated[float | None, SCALE, "squared width of the kernel; None: chosen by cross-validation"] = (
        None
    )
    regularisation: Annotated[float | None, SCALE, "lambda; None: chosen by cross-validation"] = None
    solver: Annotated[str | int, SOLVERS, "how the weights are solved for"] = "cholesky"
    n_leapfrog_min: Annotated[int, Limit(1, 100_000), "fewest leapfrog steps of a trajectory"] = 1
    n_leapfrog_max: Annotated[int, Limit(1, 100_000), "most leapfrog steps of a trajectory"] = 10
    step_low: Annotated[
        float | None, PROBABILITY, "shortest step, as a share; None: 0.5, or 0.1 when faithful"
    ] = None
    initial_step_size: Annotated[
        float | None, POSITIVE, "at the start; None: found, or 0.1 when faithful"
    ] = None
    walk_share: Annotated[
        float, Limit(0.0, 0.99), "share of iterations that are a walk; none when faithful"
    ] = 0.1
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size is adapted to"] = 0.7
    step_rate: Annotated[
        float, Limit(0.0, 10.0), "gain of the adaptation of the step size; 0 leaves it as it is"
    ] = 1.0
    schedule: Annotated[float, Limit(0.0, 1.0), "an update has the probability t^-schedule"] = 0.5
    vanishing: Annotated[bool, "whether adaptation goes on after warm-up, ever more rarely"] = False
    faithful: Annotated[bool, "follow the paper to the letter, without our departures"] = False


FACTS = Facts(
    family=SURROGATE,
    needs="densities",
    learns=("step size", "model of the log density"),
    warmup=20_000,
    draws=10_000,
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
    steps: kmc.Steps
    walk_frame: Frame
    frame: Frame
    surrogate: Surrogate
    history: History
    learnt: kmc.Learnt


enter, until_refit = refitting.enter, refitting.until_refit


def n_matrices(settings: Any) -> int:
    """The frame, and that of the walk."""
    return 2


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    return kmc.stages(settings, warmup, settings.subsample)


@kernel
def start(target: Any, settings: Any, x: Any, rng: Any) -> Any:
    """The state at `x` (d,): nothing learnt."""
    logp = log_density(target, x)
    steps = first_steps(target, settings, x, logp, rng)
    surrogate = no_surrogate(settings.kernel, x.size)
    history = empty_history(size_or_default(settings.subsample), x.size)
    learnt = kmc.Learnt(np.nan, np.nan, 0, 0, 0)
    return State(x.copy(), logp, steps, plain_frame(x), plain_frame(x), surrogate, history, learnt)


@kernel
def step(target: Any, settings: Any, state: Any, rng: Any, adapting: Any) -> Any:
    """One iteration."""
    x, logp, steps, walk_frame, frame, surrogate, history, learnt = state
    x, logp, steps, walk_frame, history, accept_prob, accepted = iterated(
        target, settings, x, logp, steps, walk_frame, frame, surrogate, history, rng, adapting
    )
    state = State(x, logp, steps, walk_frame, frame, surrogate, history, learnt)
    info = Info(accept_prob, accepted, steps.flow, 1, NOTHING)
    return state, info


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    """Steps 1 to 4 of Algorithm 1; and, from time to time, new coordinates and a new kernel."""
    frame, learnt = state.frame, state.learnt
    state, points, anew = refitting.due(state, settings, rng)
    if points is None:
        return state
    if all_equal(points):
        return kmc.skipped(state)
    if anew and not settings.faithful:
        frame = frame_of(points, frame if learnt.fits else state.walk_frame)
    q = all_into_frame(frame, points)
    if anew:
        learnt = kmc.tuned(settings, q, learnt, lambda *at: _fit(settings, *at).surrogate, rng)
        state = kmc.rebuilt(state, settings)._replace(learnt=learnt)
    try:
        fit = _fit(settings, q, learnt.sigma, learnt.regularisation)
    except ValueError:
        return kmc.skipped(state)
    return kmc.fitted(state, fit)._replace(frame=frame)


def _fit(settings: Any, q: np.ndarray, sigma: float, regularisation: float) -> score_matching.Fit:
    solve = score_matching.fit_lite_low_rank if settings.solver else score_matching.fit_lite
    return solve(q, kmc.kernel_of(settings, sigma), regularisation)


sweep = swept(step)


def history(state: State) -> dict[str, float]:
    return kmc.described(state)


def learnt(state: State) -> dict[str, Any]:
    return kmc.reported(state, len(state.history.points), "centers")
