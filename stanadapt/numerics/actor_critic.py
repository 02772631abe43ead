"""Deep deterministic policy gradient with small networks (numerics/networks.py).

Lillicrap et al. (2015), Continuous control with deep reinforcement learning, Algorithm 1, in the form of
Algorithm 2 of Wang, Chen, Kanagawa and Oates (2024).

    paper       here              shape       meaning
    theta       actor             (p,)        weights of nu
    w           critic            (q,)        weights of Q
    theta', w'  *_target          (p,), (q,)  target networks
    s_n         states            (N, 2d)     [u, u*], current and proposed point
    a_n         actions           (N, 2k)     [a(u), a(u*)]
    r_n         rewards           (N,)
    M           Rates.batch                   size of a mini-batch
    gamma       Rates.discount                discount factor
    tau         Rates.smoothing               taming factor of the target networks

The policy acts as a(u) = (1 - g) nu(u) + g base(u), where g = g(u) goes smoothly from 0 to 1 as u leaves the
ball of radius `radius`; base(u) is u if an action has d numbers, and 0 otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Integer, Matrix, Real, Vector
from .networks import (
    Adam,
    Shape,
    backward,
    clip,
    descend,
    dot_in_eights,
    fill,
    forward,
    fresh_adam,
    input_gradient,
    layers,
    overwrite_rows,
)


class Rates(NamedTuple):
    """Constants of the learning."""

    critic: float
    actor: float  # at this iteration
    threshold: float  # largest norm of the actor's gradient
    discount: float
    smoothing: float
    batch: int
    radius: float


class Networks(NamedTuple):
    """Actor and critic, their targets, and their optimisers."""

    actor: np.ndarray
    actor_target: np.ndarray
    actor_adam: Adam
    critic: np.ndarray
    critic_target: np.ndarray
    critic_adam: Adam


class ReplayBuffer(NamedTuple):
    """The latest transitions, in a ring: the state of row i + 1 follows the state of row i."""

    states: np.ndarray  # (N, 2d)
    actions: np.ndarray  # (N, 2k)
    rewards: np.ndarray  # (N,)
    written: np.ndarray  # (1,) number of rows written so far

    @property
    def n(self) -> int:
        """The number of rows written so far."""
        return int(self.written[0])


def critic_shape(d: int, hidden: int, k: int) -> Shape:
    """The shape of Q(s, a), for states of 2 d numbers and actions of 2 k."""
    return Shape(2 * d + 2 * k, hidden, 1)


def make_networks(actor: np.ndarray, critic: np.ndarray) -> Networks:
    """Networks with copies of themselves as targets, before the first step."""
    return Networks(
        actor, actor.copy(), fresh_adam(actor.size), critic, critic.copy(), fresh_adam(critic.size)
    )


def empty_replay(rows: int, d: int, k: int) -> ReplayBuffer:
    """A replay buffer with room for `rows` transitions."""
    written = np.zeros(1, np.int64)
    return ReplayBuffer(np.zeros((rows, 2 * d)), np.zeros((rows, 2 * k)), np.zeros(rows), written)


@kernel(ordered=True)
def exterior_weight(u: Vector, radius: Real) -> Real:
    """g: 0 for |u|² <= radius²/2, 1 for |u| >= radius, and smooth in between (Appendix B.3)."""
    return _transition(dot_in_eights(u, u) / (radius * radius))


@kernel(ordered=True)
def _transition(eta: Real) -> Real:
    """g as a function of eta = |u|² / radius²."""
    if eta <= 0.5:
        return 0.0
    if eta >= 1.0:
        return 1.0
    # 4 eta² - 6 eta + 2 is written in factors. Near its zeros they are exact, but the sum can have the wrong
    # sign.
    return 1.0 / (1.0 + np.exp((4.0 * eta - 3.0) / (2.0 * (2.0 * eta - 1.0) * (eta - 1.0))))


@kernel(ordered=True)
def action(shape: Shape, actor: Vector, radius: Real, u: Vector, a: Vector) -> None:
    """Write the action a(u) (k,) at one point `u` (d,)."""
    w1, b1, w2, b2 = layers(shape, actor)
    g = exterior_weight(u, radius)
    for j in range(a.size):
        a[j] = b2[j]
    for i in range(b1.size):
        z = b1[i] + dot_in_eights(w1[i], u)
        if z > 0.0:
            for j in range(a.size):
                a[j] += w2[j, i] * z
    for j in range(a.size):
        base = u[j] if a.size == u.size else 0.0
        a[j] += g * (base - a[j])


@kernel(ordered=True)
def actions(
    shape: Shape, actor: Vector, radius: Real, pairs: Matrix, hidden: Matrix, a: Matrix, keep: Vector
) -> Matrix:
    """Write the actions at both points of `pairs` (2d, B) to `a` (2k, B), and 1 - g to `keep` (2B,).

    It writes the hidden layer to `hidden` (h, 2B), for `backward`. Returns the inputs (d, 2B).
    """
    d, k, size = shape.n_in, shape.n_out, pairs.shape[1]
    z, out = np.empty((d, 2 * size)), np.empty((k, 2 * size))
    fill(keep, 0.0)
    for i in range(d):
        for half in range(2):
            for b in range(size):
                value = pairs[half * d + i, b]
                z[i, half * size + b] = value
                keep[half * size + b] += value * value
    for b in range(2 * size):
        eta = keep[b] / (radius * radius)
        keep[b] = 1.0 - _transition(eta)
    forward(shape, actor, z, hidden, out)
    for j in range(k):
        for half in range(2):
            for b in range(size):
                column = half * size + b
                base = z[j, column] if k == d else 0.0
                a[half * k + j, b] = out[j, column] + (1.0 - keep[column]) * (base - out[j, column])
    return z


def extend_replay(memory: ReplayBuffer, more: int, most: int) -> ReplayBuffer:
    """A buffer that can take `more` transitions before it overwrites any, but has at most `most` rows."""
    rows = len(memory.rewards)
    if memory.n + more <= rows or rows >= most:
        return memory
    size = min(most, 2 * rows + more)
    return memory._replace(
        states=np.resize(memory.states, (size, memory.states.shape[1])),
        actions=np.resize(memory.actions, (size, memory.actions.shape[1])),
        rewards=np.resize(memory.rewards, size),
    )


@kernel(ordered=True, late=True)
def store(memory: ReplayBuffer, u: Vector, y: Vector, a: Vector, a_y: Vector, reward: Real) -> None:
    """Write one more transition, over the oldest if there is no room."""
    states, all_actions, rewards, written = memory
    row, d, k = written[0] % len(rewards), u.size, a.size
    for i in range(d):
        states[row, i], states[row, d + i] = u[i], y[i]
    for j in range(k):
        all_actions[row, j], all_actions[row, k + j] = a[j], a_y[j]
    rewards[row] = reward
    written[0] += 1


@kernel(ordered=True)
def mini_batch(memory: ReplayBuffer, size: Integer, rng: Generator) -> tuple[Matrix, Matrix, Vector, Matrix]:
    """`size` random transitions: states (2d, B), actions (2k, B), rewards (B,), next states (2d, B)."""
    rows = len(memory.rewards)
    n = memory.written[0]
    kept = min(n, rows)
    oldest = n - kept
    s, after = np.empty((memory.states.shape[1], size)), np.empty((memory.states.shape[1], size))
    a, r = np.empty((memory.actions.shape[1], size)), np.empty(size)
    for b in range(size):
        i = oldest + int(rng.random() * (kept - 1))  # the last row has no successor yet
        row, following = i % rows, (i + 1) % rows
        for j in range(len(s)):
            s[j, b], after[j, b] = memory.states[row, j], memory.states[following, j]
        for j in range(len(a)):
            a[j, b] = memory.actions[row, j]
        r[b] = memory.rewards[row]
    return s, a, r, after


@kernel(ordered=True)
def critic_step(
    actor_is: Shape,
    critic_is: Shape,
    nets: Networks,
    rates: Rates,
    s: Matrix,
    a: Matrix,
    r: Vector,
    after: Matrix,
) -> Real:
    """One step of the critic down the Bellman error of a mini-batch. Returns the loss."""
    size = r.size
    both = np.empty((critic_is.n_in, size))
    hidden, q = np.empty((critic_is.n_hidden, size)), np.empty((1, size))
    hidden_a, keep = np.empty((actor_is.n_hidden, 2 * size)), np.empty(2 * size)
    n_s = len(s)
    overwrite_rows(both[:n_s], after)
    actions(actor_is, nets.actor_target, rates.radius, after, hidden_a, both[n_s:], keep)
    forward(critic_is, nets.critic_target, both, hidden, q)
    y = r + rates.discount * q[0]
    overwrite_rows(both[:n_s], s)
    overwrite_rows(both[n_s:], a)
    forward(critic_is, nets.critic, both, hidden, q)
    away = q[0] - y
    d_out = np.empty((1, size))
    for b in range(size):
        d_out[0, b] = 2.0 / size * away[b]
    gradient = np.zeros_like(nets.critic)
    backward(critic_is, nets.critic, both, hidden, d_out, gradient)
    descend(nets.critic, gradient, nets.critic_adam, rates.critic)
    return dot_in_eights(away, away) / size


@kernel(ordered=True)
def policy_gradient(
    actor_is: Shape, critic_is: Shape, nets: Networks, radius: Real, s: Matrix, gradient: Vector
) -> None:
    """Write the mean over states `s` (2d, B) of grad_theta pi(s) grad_a Q(s, a), at a = pi(s).

    Silver et al. (2014), Deterministic policy gradient algorithms, Theorem 1.
    """
    n_s, size = s.shape
    k = actor_is.n_out
    both = np.empty((critic_is.n_in, size))
    overwrite_rows(both[:n_s], s)
    hidden_a, keep = np.empty((actor_is.n_hidden, 2 * size)), np.empty(2 * size)
    z = actions(actor_is, nets.actor, radius, s, hidden_a, both[n_s:], keep)
    hidden, q = np.empty((critic_is.n_hidden, size)), np.empty((1, size))
    forward(critic_is, nets.critic, both, hidden, q)
    d_hidden = _hidden_slope(critic_is, nets.critic, hidden)
    d_both = input_gradient(critic_is, nets.critic, d_hidden)
    d_out = np.empty((k, 2 * size))
    for j in range(k):
        for half in range(2):
            for b in range(size):
                d_out[j, half * size + b] = d_both[n_s + half * k + j, b] * keep[half * size + b] / size
    fill(gradient, 0.0)
    backward(actor_is, nets.actor, z, hidden_a, d_out, gradient)


@kernel(ordered=True)
def _hidden_slope(shape: Shape, weights: Vector, hidden: Matrix) -> Matrix:
    """The gradient (h, B) of a scalar output with respect to the hidden layer before max(0, .)."""
    _, _, w2, _ = layers(shape, weights)
    d_hidden = np.zeros_like(hidden)
    for i in range(len(hidden)):
        for b in range(hidden.shape[1]):
            if hidden[i, b] > 0.0:
                d_hidden[i, b] = w2[0, i]
    return d_hidden


@kernel(ordered=True)
def learn(
    actor_is: Shape, critic_is: Shape, nets: Networks, memory: ReplayBuffer, rates: Rates, rng: Generator
) -> Flag:
    """One iteration of Algorithm 2 after its first line, in place.

    Returns whether loss and gradient are finite. If they are not, the actor stays the same.
    """
    s, a, r, after = mini_batch(memory, rates.batch, rng)
    loss = critic_step(actor_is, critic_is, nets, rates, s, a, r, after)
    gradient = np.empty_like(nets.actor)
    policy_gradient(actor_is, critic_is, nets, rates.radius, s, gradient)
    norm = clip(gradient, rates.threshold)
    if not (np.isfinite(loss) and np.isfinite(norm)):
        return False
    for i in range(gradient.size):
        gradient[i] = -gradient[i]  # uphill
    descend(nets.actor, gradient, nets.actor_adam, rates.actor)
    follow(nets.critic_target, nets.critic, rates.smoothing)
    follow(nets.actor_target, nets.actor, rates.smoothing)
    return True


@kernel(ordered=True)
def follow(behind: Vector, ahead: Vector, tau: Real) -> None:
    """behind <- tau ahead + (1 - tau) behind."""
    for i in range(behind.size):
        behind[i] += tau * (ahead[i] - behind[i])
