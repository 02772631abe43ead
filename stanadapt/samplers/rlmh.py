"""Reinforcement learning Metropolis-Hastings: the mean of the proposal is a policy, learned from rewards.

Wang, Chen, Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC, Algorithm 1 with the proposal
of Equation (6), the policy of Appendix B.3 and the deterministic policy gradient of Algorithm 2.

    paper        here                         shape   meaning
    x_n          state.x                      (d,)    position on the unconstrained scale
    Sigma, xbar  policy.space                 (d, d)  covariance and mean of the warm start, root and inverse
                 u, u_y                       (d,)    Sigma^-1/2 (x - xbar) at x and at the proposal
    phi(x)       a, a_y                       (d,)    mean of the proposal from x, in the coordinates u
    q(y | x)     exp(-|u_y - a|_1 / s)                Laplace proposal, s = state.step_size (1 in the paper)
    nu_theta     policy.learner.nets.actor    (p,)    network with one hidden layer; inside of C phi = nu
    Q            policy.learner.nets.critic   (q,)    network: value of states [u, u_y] and actions [a, a_y]
    c            settings.radius              ()      C is the ball |u| <= c; outside of C phi(x) = x
    r_n          reward                       ()      2 log|x - y| + log alpha
    tau          settings.threshold           ()      largest norm of the policy gradient
    alpha_n      settings.actor_rate          ()      alpha_0; alpha_n is alpha_0 (1 + n / horizon)^-decay

Warm-up has three parts: an adaptive walk; pre-training of the actor towards phi(x) = 2 xbar - x at points of
the walk; and episodes, in which the policy moves the chain and learns at every iteration.

Departures from the paper, 2 to 7 off with `faithful=True`:
1. The networks see u instead of x: on a posterior with a scale of 10^4 the paper's pre-training does not end.
   Sigma^1/2 is D C^1/2 with standard deviations D and correlations C, which is exact even for very different
   scales. Adam takes the gradient steps, as in the authors' code. They are bounded, as Theorem 2 requires.
   Ten updates are made at a time. If acceptance collapses in an episode, the best policy so far takes over.
2. The policy follows the gradient of the mean reward itself, see policy.py, with steps thousands of times as
   long as the paper's. The critic is the baseline V(u); `discount`, `smoothing` and `buffer` are not used.
3. Pre-training aims at phi(u) = -sqrt(1 - 2 s²) u, which with Gaussian noise of this variance would be
   reversible for a Gaussian. s is the best of a few values. The paper has s = 1, and acceptance with it
   vanishes as d grows. Pre-training ends at a mean squared error of 0.01 a coordinate, the paper's at 1.
4. The reward is the distance in u, where all coordinates have the same weight, and its log alpha is at least
   -10.
5. One iteration in ten is a step of the walk, which leaves places that no policy proposes to leave.
6. The frozen policy comes from the best episode, not from the last.
7. Every second iteration of the warm start is a step of another walk, which aims at the same acceptance in
   all directions, see `coerce`: the covariance of few states loses some directions.

Cost of an iteration: one log density, two products with a (d, d) matrix and two actions, O(d h). Learning
takes 4 us at d = 10, or 80 us when faithful. Memory: four (d, d) arrays a chain, and when faithful 4 d
numbers for each iteration of learning.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Real, Target, Vector
from ..numerics.actor_critic import action
from ..numerics.frame import WALK_ACCEPT, Frame, adapt_walk_size, learn_walk, plain_frame
from ..numerics.history import History, empty_history, remember
from ..numerics.metropolis import accept_probability
from ..numerics.networks import Shape
from ..numerics.walk import coerce, propose_walk
from ..target import log_density
from ..trace import NOTHING, Info
from . import policy as shared
from . import policy_stages
from .base import POLICY, Facts, move_with_density
from .loop import make_policy_sweep
from .policy import Policy, Space
from .policy_stages import PRETRAINING
from .settings import NOT_NEGATIVE, POSITIVE, with_settings_of


@with_settings_of(policy_stages)
class Settings(NamedTuple):
    warm_start: Annotated[int, NOT_NEGATIVE, "iterations of the walk; at most a third of warm-up"] = 10_000
    pretrain: Annotated[str | int, PRETRAINING, "policy that pre-training aims at"] = "reflection"
    scale: Annotated[float | None, POSITIVE, "s; None: search, or 1 if faithful"] = None


FACTS = Facts(
    module=__name__,
    family=POLICY,
    needs="densities",
    learns=("step size", "policy"),
    warmup=30_000,
    draws=20_000,
    gradient=False,
    dims=policy_stages.DIMS,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float  # first the walk's, later the scale of the policy's proposals
    walk_size: float
    frame: Frame  # of the walk
    coerced_size: float
    coerced_root_t: np.ndarray  # (d, d) of the other walk in the warm start, transposed; not triangular
    history: History
    policy: Policy


stages, caution = policy_stages.stages, policy_stages.caution
enter, until_refit = policy_stages.enter, policy_stages.until_refit


def n_matrices(settings: Any) -> int:
    """The roots of two walks, and root and inverse root of the policy's coordinates."""
    return 4


def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), with a walk and no policy."""
    logp = log_density(target, x)
    history = empty_history(policy_stages.KEPT, x.size)
    one = np.eye(x.size)
    return State(x.copy(), logp, 1.0, 1.0, plain_frame(x), 1.0, one, history, shared.empty_policy())


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    return policy_stages.refit(state, settings, rng, begin)


def begin(state: State, settings: Any, points: np.ndarray, space: Space, rng: np.random.Generator) -> State:
    """Begin the search for a scale, or pre-train the policy at `points` (n, d), in the coordinates u."""
    if state.policy.phase == shared.SCALE:
        policy, scale = policy_stages.begin_search(state.policy, space), shared.SCALES[0]
    else:
        scale = policy_stages.best_scale(state.policy.record) if np.isnan(settings.scale) else settings.scale
        aims = slope(settings, scale) * points
        policy = policy_stages.make_policy(settings, space, points, aims, scale, rng)
    frame, walk_size = policy_stages.walk_frame(space), 2.38 / np.sqrt(state.x.size)
    return state._replace(policy=policy, frame=frame, walk_size=walk_size, step_size=float(scale))


@kernel(ordered=True)
def slope(settings: Any, scale: Real) -> Any:
    """The factor c of the linear policy phi(u) = c u that pre-training aims at."""
    if settings.pretrain == policy_stages.IDENTITY:
        return 1.0
    if settings.faithful:
        return -1.0
    return -np.sqrt(max(0.0, 1.0 - 2.0 * scale * scale))


@kernel(ordered=True)
def proposal_mean(settings: Any, phase: Any, shape: Shape, actor: Vector, scale: Real, u: Vector) -> Any:
    """phi(u) (d,), the mean of the proposal, in the coordinates u."""
    if phase == shared.SCALE:
        factor, a = slope(settings, scale), np.empty(u.size)
        for i in range(u.size):
            a[i] = factor * u[i]
        return a
    a = np.empty(u.size)
    action(shape, actor, settings.radius, u, a)
    return a


@kernel(ordered=True)
def draw_proposal(
    target: Target,
    settings: Any,
    phase: Any,
    space: Space,
    shape: Shape,
    actor: Vector,
    scale: Real,
    x: Vector,
    logp: Real,
    rng: Generator,
) -> Any:
    """A proposal y (d,) of the policy, its log density, the log acceptance ratio, and u, u_y, a, a_y."""
    d = x.size
    u, u_y = shared.into_space(space, x), np.empty(d)
    a = proposal_mean(settings, phase, shape, actor, scale, u)
    for i in range(d):
        side = 1.0 if rng.random() < 0.5 else -1.0
        u_y[i] = a[i] + scale * side * rng.standard_exponential()
    y = shared.out_of_space(space, u_y)
    a_y = proposal_mean(settings, phase, shape, actor, scale, u_y)
    forth, back = 0.0, 0.0
    for i in range(d):
        forth += abs(u_y[i] - a[i])
        back += abs(u[i] - a_y[i])
    logp_y = log_density(target, y)
    return y, logp_y, logp_y - logp + (forth - back) / scale, u, u_y, a, a_y


@kernel(ordered=True)
def reward_slopes(u: Vector, u_y: Vector, a: Vector, a_y: Vector, scale: Real, log_ratio: Real) -> Any:
    """d log q(y | x) / da, and the derivatives of the reward in a and a_y, (d,) each."""
    log_q_slope, slope, slope_y = np.empty(u.size), np.empty(u.size), np.empty(u.size)
    binds = 1.0 if shared.LEAST < log_ratio < 0.0 else 0.0
    for i in range(u.size):
        log_q_slope[i] = np.sign(u_y[i] - a[i]) / scale
        slope[i] = -binds * log_q_slope[i]
        slope_y[i] = binds * (np.sign(u[i] - a_y[i]) / scale)
    return log_q_slope, slope, slope_y


@kernel(ordered=True)
def jump_reward(settings: Any, x: Vector, y: Vector, u: Vector, u_y: Vector, log_ratio: Real) -> Real:
    """The reward: 2 log|x - y| + log alpha."""
    total, least = 0.0, -np.inf if settings.faithful else shared.LEAST
    for i in range(x.size):
        away = x[i] - y[i] if settings.faithful else u[i] - u_y[i]
        total += away * away
    return np.log(total) + min(0.0, max(log_ratio, least))


@kernel
def step(
    target: Target, settings: Any, moving: Any, policy: Policy, rng: Generator, adapting: Flag
) -> tuple[Any, Info]:
    """One iteration of Algorithm 1; `moving` are the fields of the state before the policy."""
    x, logp, step_size, walk_size, frame, coerced_size, coerced_root_t, history = moving

    acts, actor, scale = shared.choose_actor(
        settings,
        policy.phase,
        policy.learner.nets.actor,
        policy.record,
        policy.guard,
        step_size,
        rng,
        adapting,
    )
    warm = adapting and policy.phase == shared.APPROACH
    coerces = warm and history.t % 2 == 1 and not settings.faithful
    z = np.empty(x.size)
    if acts:
        learning = adapting and policy.phase == shared.EPISODES
        y, logp_y, log_ratio, u, u_y, a, a_y = draw_proposal(
            target, settings, policy.phase, policy.space, policy.learner.actor_is, actor, scale, x, logp, rng
        )
        accept_prob = accept_probability(log_ratio)
        if learning:
            reward = jump_reward(settings, x, y, u, u_y, log_ratio)
            slopes = reward_slopes(u, u_y, a, a_y, scale, log_ratio)
            shared.update_policy(settings, policy, scale, u, u_y, a, a_y, reward, accept_prob, slopes)
        elif adapting:
            step_size = shared.search_scale(policy.record, scale, accept_prob)
    else:
        y, size, root_t = np.empty(x.size), walk_size * np.sqrt(frame.scale), frame.chol_t
        if coerces:
            size, root_t = coerced_size, coerced_root_t
        propose_walk(x, root_t, size, rng, y, z)
        logp_y = log_density(target, y)
        accept_prob = accept_probability(logp_y - logp)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if warm:
        history = remember(history, x, rng)
        t = history.t
        if coerces:
            coerce(coerced_root_t, z, min(1.0, x.size * t**-0.5), accept_prob, WALK_ACCEPT)
            coerced_size = adapt_walk_size(coerced_size, t, accept_prob)
        else:
            walk_size = adapt_walk_size(walk_size, t, accept_prob)
        step_size, frame = walk_size, learn_walk(frame, t, x)
    moving = x, logp, step_size, walk_size, frame, coerced_size, coerced_root_t, history
    return moving, Info(accept_prob, accepted, step_size, 1, NOTHING)


sweep, scans = make_policy_sweep(step, State)
move = move_with_density


history, learnt = policy_stages.history, policy_stages.learnt
