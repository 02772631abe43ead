"""RLMH with gradients: Langevin proposals with a policy for the step size, learned from rewards.

Wang, Fisher, Kanagawa, Chen and Oates (2025), Harnessing the Power of Reinforcement Learning for Adaptive
MCMC: MALA with the position-dependent metric G(x) = epsilon(x)^-1 G_0, and the contrastive divergence lower
bound as reward. Policy, training and guard are the same as in rlmh, see policy.py.

    paper        here                       shape   meaning
    x_n          state.x                    (d,)    position on the unconstrained scale
    G_0^-1       policy.space               (d, d)  covariance of the warm start, with root and inverse
                 u, u_y                     (d,)    coordinates with covariance I; g, g_y: gradients there
    epsilon(x)   s²                         ()      y = u + (s²/2) g + s z, s = s_0 e^a, a = nu(u)
    s_0          state.step_size            ()      step size with acceptance `target_accept` where a = 0
    nu_theta     policy.learner.nets.actor  (p,)    network with one output
    r_n          reward                     ()      alpha (log p(y)/p(x) - log q(y | x)) + H(alpha)

H(alpha) = -alpha log alpha - (1 - alpha) log(1 - alpha). The reward is a lower bound of the entropy that a
transition gains, like the speed measure of Titsias and Dellaportas (2019).

Departures from the paper, 2 to 4 off with `faithful=True`:
1. s = s_0 e^a with |a| at most 3, where the paper has softplus(a). Both are positive, and a = 0 is the step
   size of the warm start. The reward is averaged over acceptance and rejection: it has alpha, not 0 or 1.
2. The policy follows the gradient of the mean reward itself, see policy.py; the paper's comes from a critic.
3. One iteration in ten has the step size of the warm start.
4. The frozen policy comes from the best episode, not from the last.
5. MALA with the running covariance of the chain learns G_0; the paper takes it from reference draws.

Cost of an iteration: one gradient, four products with a (d, d) matrix and two evaluations of the network.
Memory: three (d, d) arrays a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Real, Target, Vector
from ..numerics.actor_critic import action
from ..numerics.frame import Frame, adapt_walk_size, learn_walk, plain_frame
from ..numerics.history import History, empty_history, remember
from ..numerics.langevin import first_step_size, langevin_proposal
from ..numerics.linear import transposed_times
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.networks import Shape
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from . import policy as shared
from . import policy_stages
from .base import POLICY, UNLESS_FAITHFUL, Facts, move_with_score
from .loop import make_policy_sweep
from .policy import Policy, Space
from .settings import NOT_NEGATIVE, POSITIVE, PROBABILITY, with_settings_of

WIDEST = 3.0  # largest |a|


@with_settings_of(policy_stages)
class Settings(NamedTuple):
    warm_start: Annotated[int, NOT_NEGATIVE, "iterations of MALA; at most a third of warm-up"] = 5_000
    scale: Annotated[float | None, POSITIVE, "s_0; None: from the warm start"] = None
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the warm start aims at"] = 0.574
    initial_step_size: Annotated[float | None, POSITIVE, "first step; None: search; 0.1 if faithful"] = None


FACTS = Facts(
    module=__name__,
    family=POLICY,
    needs="gradients",
    learns=("step size", "policy"),
    warmup=20_000,
    draws=10_000,
    gradient=True,
    climbs=UNLESS_FAITHFUL,
    dims=policy_stages.DIMS,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float
    walk_size: float
    frame: Frame  # of the walk
    history: History
    policy: Policy


stages, caution = policy_stages.stages, policy_stages.caution
enter, until_refit = policy_stages.enter, policy_stages.until_refit


def n_matrices(settings: Any) -> int:
    """The factor of the frame, and root and inverse root of the policy's coordinates."""
    return 3


def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), with isotropic MALA and no policy."""
    score = np.empty(x.size)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    history = empty_history(policy_stages.KEPT, x.size)
    return State(x.copy(), logp, score, s, s, plain_frame(x), history, shared.empty_policy())


def refit(state: State, settings: Any, rng: np.random.Generator) -> Any:
    return policy_stages.refit(state, settings, rng, begin)


def begin(state: State, settings: Any, points: np.ndarray, space: Space, rng: np.random.Generator) -> State:
    """Set the coordinates; when the episodes begin, also make a network that gives a = 0."""
    policy, scale = policy_stages.begin_search(state.policy, space), state.walk_size
    if state.policy.phase == shared.EPISODES:
        scale = scale if np.isnan(settings.scale) else settings.scale
        policy = policy_stages.make_policy(settings, space, points, np.zeros((len(points), 1)), scale, rng)
    return state._replace(policy=policy, frame=policy_stages.walk_frame(space), step_size=float(scale))


@kernel(ordered=True)
def log_step(settings: Any, phase: Any, shape: Shape, actor: Vector, u: Vector) -> Real:
    """a(u) (1,), the log of s / s_0."""
    a = np.empty(1)
    a[0] = 0.0
    if phase == shared.EPISODES:
        action(shape, actor, settings.radius, u, a)
        a[0] = min(max(a[0], -WIDEST), WIDEST)
    return a


@kernel(ordered=True)
def log_proposal(u: Vector, g: Vector, s: Real, u_y: Vector) -> Real:
    """log q(u_y | u), and its derivative in log s."""
    d = u.size
    size, along = 0.0, 0.0
    for i in range(d):
        away = u_y[i] - u[i] - 0.5 * s * s * g[i]
        size += away * away
        along += away * g[i]
    size /= s * s
    return -0.5 * (size + d * np.log(2.0 * np.pi * s * s)), -d + along + size


@kernel(ordered=True)
def contrastive_reward(accept_prob: Real, log_ratio: Real, log_gain: Real) -> Any:
    """r, and its derivative in the log acceptance ratio; `log_gain` = log p(y)/p(x) - log q(y | x)."""
    if accept_prob == 0.0:  # alpha log p(y) has the limit 0 as p(y) goes to 0
        return 0.0, 0.0
    stay = max(1.0 - accept_prob, 1e-10)
    log_alpha = max(log_ratio, shared.LEAST) if log_ratio < 0.0 else 0.0
    log_stay = np.log(stay)
    reward = accept_prob * (log_gain - log_alpha + log_stay) - log_stay
    slope = accept_prob * (log_gain - log_alpha + log_stay) if log_ratio < 0.0 else 0.0
    return reward, slope


@kernel
def step(
    target: Target, settings: Any, moving: Any, policy: Policy, rng: Generator, adapting: Flag
) -> tuple[Any, Info]:
    """One iteration; `moving` are the fields of the state before the policy."""
    x, logp, score, step_size, walk_size, frame, history = moving

    acts, actor, s_0 = shared.choose_actor(
        settings,
        policy.phase,
        policy.learner.nets.actor,
        policy.record,
        policy.guard,
        step_size,
        rng,
        adapting,
    )
    d, space, score_y = x.size, policy.space, np.empty(x.size)
    phase, shape = policy.phase, policy.learner.actor_is
    if acts:
        u, g = shared.into_space(space, x), transposed_times(space.root_t, score)
        a = log_step(settings, phase, shape, actor, u)
        s = s_0 * np.exp(a[0])
        u_y = np.empty(d)
        for i in range(d):
            u_y[i] = u[i] + 0.5 * s * s * g[i] + s * rng.standard_normal()
        y = shared.out_of_space(space, u_y)
        logp_y, accept_prob = log_density_gradient(target, y, score_y), 0.0
        a_y = log_step(settings, phase, shape, actor, u_y)
        log_q, log_q_slope = log_proposal(u, g, s, u_y)
        log_ratio, slope_y = -np.inf, 0.0
        if logp_y > -np.inf:
            log_q_y, slope_y = log_proposal(
                u_y, transposed_times(space.root_t, score_y), s_0 * np.exp(a_y[0]), u
            )
            log_ratio = logp_y - logp + log_q_y - log_q
            accept_prob = accept_probability_if_finite(log_ratio)
        if adapting and policy.phase == shared.EPISODES:
            log_q_slope *= abs(a[0]) < WIDEST  # at the bound s does not depend on the weights
            slope_y *= abs(a_y[0]) < WIDEST
            reward, slope = contrastive_reward(accept_prob, log_ratio, logp_y - logp - log_q)
            slopes = np.empty(1), np.empty(1), np.empty(1)
            slopes[0][0], slopes[1][0] = log_q_slope, -(slope + accept_prob) * log_q_slope
            slopes[2][0] = slope * slope_y
            shared.update_policy(settings, policy, s_0, u, u_y, a, a_y, reward, accept_prob, slopes)
    else:
        y, rotated_y, s = np.empty(d), np.empty(d), walk_size * np.sqrt(frame.scale)
        rotated = transposed_times(frame.chol_t, score)
        logp_y, accept_prob = langevin_proposal(
            target, x, logp, score, rotated, frame.chol_t, s, rng, y, score_y, rotated_y
        )
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp, score = y, logp_y, score_y

    if adapting and policy.phase != shared.EPISODES:
        history = remember(history, x, rng)
        walk_size = adapt_walk_size(walk_size, history.t, accept_prob, settings.target_accept)
        step_size = walk_size
        if policy.phase == shared.APPROACH:
            frame = learn_walk(frame, history.t, x)
    moving = x, logp, score, step_size, walk_size, frame, history
    return moving, Info(accept_prob, accepted, step_size, 1, NOTHING)


sweep, scans = make_policy_sweep(step, State)
move = move_with_score


history, learnt = policy_stages.history, policy_stages.learnt
