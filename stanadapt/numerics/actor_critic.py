"""Deep deterministic policy gradient with networks small enough to train at every iteration of a chain.

Lillicrap et al. (2015), Continuous control with deep reinforcement learning, Algorithm 1, in the form of
Algorithm 2 of Wang, Chen, Kanagawa and Oates (2024). Adam is Algorithm 1 of Kingma and Ba (2014).

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

Loops stand where NumPy has a word for whole arrays: numba takes a tenth of a second to compile each of those.

A network is nu(z) = W2 max(0, W1 z + b1) + b2, and its weights are one flat array. A batch is a matrix of
shape (features, batch). The loops run along the batch, so that the compiler vectorises them in any dimension.

The policy acts as a(u) = (1 - g) nu(u) + g base(u), where g = g(u) goes smoothly from 0 to 1 as u leaves the
ball of radius `radius`; base(u) is u if an action has d numbers, and 0 otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Integer, Matrix, Real, Vector

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma and Ba's


class Shape(NamedTuple):
    """The number of units in each layer of a network with one hidden layer."""

    n_in: int
    n_hidden: int
    n_out: int


class Adam(NamedTuple):
    """The state of the optimiser: running moments of a gradient."""

    first: np.ndarray
    second: np.ndarray
    t: int


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
    n: int  # number of rows written so far


def n_weights(shape: Shape) -> int:
    """The number of weights of a network."""
    return (shape.n_in + 1) * shape.n_hidden + (shape.n_hidden + 1) * shape.n_out


def critic_shape(d: int, hidden: int, k: int) -> Shape:
    """The shape of Q(s, a), for states of 2 d numbers and actions of 2 k."""
    return Shape(2 * d + 2 * k, hidden, 1)


@kernel(ordered=True, counted=False)
def overwrite(weights: Vector, by: Vector) -> None:
    """Write `by` (n,) to `weights` (n,). An assignment to weights[:] takes two seconds more to compile."""
    for i in range(by.size):
        weights[i] = by[i]


@kernel(ordered=True, counted=False)
def overwrite_rows(out: Matrix, rows: Matrix) -> None:
    """Write rows (k, n) to `out` (k, n)."""
    for i in range(len(rows)):
        overwrite(out[i], rows[i])


def first_weights(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """The uniform weights of Glorot and Bengio (2010), with biases of zero."""
    weights = np.zeros(n_weights(shape))
    for w in layers.py_func(shape, weights)[::2]:
        bound = np.sqrt(6.0 / sum(w.shape))
        w[:] = rng.uniform(-bound, bound, w.shape)
    return weights


def silence(shape: Shape, weights: np.ndarray) -> np.ndarray:
    """Set the last layer of `weights` to zero, in place, so that the output is 0. Returns `weights`."""
    weights[shape.n_hidden * (shape.n_in + 1) :] = 0.0
    return weights


def fresh_adam(n: int) -> Adam:
    """The optimiser of `n` weights before its first step."""
    return Adam(np.zeros(n), np.zeros(n), 0)


def make_networks(actor: np.ndarray, critic: np.ndarray) -> Networks:
    """Networks with copies of themselves as targets, before the first step."""
    return Networks(
        actor, actor.copy(), fresh_adam(actor.size), critic, critic.copy(), fresh_adam(critic.size)
    )


def empty_replay(rows: int, d: int, k: int) -> ReplayBuffer:
    """A replay buffer with room for `rows` transitions."""
    return ReplayBuffer(np.zeros((rows, 2 * d)), np.zeros((rows, 2 * k)), np.zeros(rows), 0)


@kernel(ordered=True)
def dot_in_eights(u: Vector, v: Vector) -> Real:
    """u . v in eight partial sums: fast even though the compiler may not reorder sums."""
    n = u.size - u.size % 8
    a, b, c, e, f, g, h, k = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(0, n, 8):
        a += u[i] * v[i]
        b += u[i + 1] * v[i + 1]
        c += u[i + 2] * v[i + 2]
        e += u[i + 3] * v[i + 3]
        f += u[i + 4] * v[i + 4]
        g += u[i + 5] * v[i + 5]
        h += u[i + 6] * v[i + 6]
        k += u[i + 7] * v[i + 7]
    total = ((a + f) + (b + g)) + ((c + h) + (e + k))
    for i in range(n, u.size):
        total += u[i] * v[i]
    return total


@kernel(ordered=True)
def layers(shape: Shape, weights: Vector) -> tuple[Matrix, Vector, Matrix, Vector]:
    """Views W1 (h, n), b1 (h,), W2 (m, h), b2 (m,) of the flat weights."""
    n, h, m = shape.n_in, shape.n_hidden, shape.n_out
    a, b = h * n, h * n + h
    c = b + m * h
    return weights[:a].reshape(h, n), weights[a:b], weights[b:c].reshape(m, h), weights[c:]


@kernel(ordered=True, counted=False)
def fill(numbers: Vector, value: Real) -> None:
    """Write `value` to all of `numbers` (n,)."""
    for i in range(numbers.size):
        numbers[i] = value


@kernel(ordered=True)
def transposed_copy(w: Matrix) -> Matrix:
    """w.T as an array of its own. For the other order of memory numba would compile `add_product` again."""
    out = np.empty((w.shape[1], w.shape[0]))
    for j in range(w.shape[0]):
        for i in range(w.shape[1]):
            out[i, j] = w[j, i]
    return out


@kernel(ordered=True)
def add_product(out: Matrix, w: Matrix, z: Matrix) -> None:
    """out += w @ z for `out` (m, B), `w` (m, n) and `z` (n, B), four rows of z in a pass."""
    n, columns = z.shape
    whole = n - n % 4
    for j in range(len(out)):
        row = out[j]
        for i in range(0, whole, 4):
            a, b, c, e = w[j, i], w[j, i + 1], w[j, i + 2], w[j, i + 3]
            z_0, z_1, z_2, z_3 = z[i], z[i + 1], z[i + 2], z[i + 3]
            for k in range(columns):
                total = row[k] + a * z_0[k]
                total += b * z_1[k]
                total += c * z_2[k]
                row[k] = total + e * z_3[k]
        for i in range(whole, n):
            a, z_0 = w[j, i], z[i]
            for k in range(columns):
                row[k] += a * z_0[k]


@kernel(ordered=True)
def forward(shape: Shape, weights: Vector, z: Matrix, hidden: Matrix, out: Matrix) -> None:
    """Write the hidden layer (h, B) and the output (m, B) for inputs `z` (n, B)."""
    w1, b1, w2, b2 = layers(shape, weights)
    for j in range(len(hidden)):
        fill(hidden[j], b1[j])
    add_product(hidden, w1, z)
    for j in range(len(hidden)):
        row = hidden[j]
        for k in range(row.size):
            row[k] = max(0.0, row[k])
    for j in range(len(out)):
        fill(out[j], b2[j])
    add_product(out, w2, hidden)


@kernel(ordered=True)
def backward(
    shape: Shape, weights: Vector, z: Matrix, hidden: Matrix, d_out: Matrix, gradient: Vector
) -> Matrix:
    """Add the gradient of sum(d_out * out) with respect to the weights to `gradient` (p,).

    Returns the gradient with respect to the hidden layer (h, B).
    """
    _, _, w2, _ = layers(shape, weights)
    g_w1, g_b1, g_w2, g_b2 = layers(shape, gradient)
    d_hidden, ones = np.zeros(hidden.shape), np.empty(hidden.shape[1])
    fill(ones, 1.0)
    for j in range(len(d_out)):
        for i in range(len(hidden)):
            g_w2[j, i] += dot_in_eights(d_out[j], hidden[i])
        g_b2[j] += dot_in_eights(d_out[j], ones)
    add_product(d_hidden, transposed_copy(w2), d_out)
    for i in range(len(hidden)):
        row, active = d_hidden[i], hidden[i]
        for k in range(row.size):
            if active[k] == 0.0:
                row[k] = 0.0
        for j in range(len(z)):
            g_w1[i, j] += dot_in_eights(row, z[j])
        g_b1[i] += dot_in_eights(row, ones)
    return d_hidden


@kernel(ordered=True)
def input_gradient(shape: Shape, weights: Vector, d_hidden: Matrix) -> Matrix:
    """The gradient with respect to the inputs (n, B), from the result of `backward`."""
    w1, _, _, _ = layers(shape, weights)
    d_z = np.zeros((shape.n_in, d_hidden.shape[1]))
    add_product(d_z, transposed_copy(w1), d_hidden)
    return d_z


@kernel(ordered=True)
def clip(gradient: Vector, threshold: Real) -> Real:
    """Shorten `gradient`, in place, to the norm `threshold` if it is longer. Returns the norm that it had."""
    norm = np.sqrt(dot_in_eights(gradient, gradient))
    if norm > threshold:
        for i in range(gradient.size):
            gradient[i] *= threshold / norm
    return norm


@kernel(ordered=True)
def descend(weights: Vector, gradient: Vector, adam: Adam, rate: Real) -> Adam:
    """One step of Adam downhill, in place. Returns the moments afterwards."""
    first, second, t = adam
    t += 1
    short_1, short_2 = 1.0 - _BETA_1**t, 1.0 - _BETA_2**t
    for i in range(weights.size):
        first[i] += (1.0 - _BETA_1) * (gradient[i] - first[i])
        second[i] += (1.0 - _BETA_2) * (gradient[i] * gradient[i] - second[i])
        weights[i] -= rate * (first[i] / short_1) / (np.sqrt(second[i] / short_2) + _EPSILON)
    return Adam(first, second, t)


@kernel(ordered=True)
def squared_error(shape: Shape, weights: Vector, z: Matrix, targets: Matrix) -> Real:
    """Mean over columns of the squared distance of the outputs for `z` (n, B) from `targets` (m, B)."""
    hidden, out = np.empty((shape.n_hidden, z.shape[1])), np.empty(targets.shape)
    forward(shape, weights, z, hidden, out)
    total = 0.0
    for j in range(len(out)):
        away = out[j]
        for i in range(away.size):
            away[i] -= targets[j, i]
        total += dot_in_eights(away, away)
    return total / z.shape[1]


@kernel(ordered=True)
def regression_epoch(
    shape: Shape,
    weights: Vector,
    adam: Adam,
    z: Matrix,
    targets: Matrix,
    order: Vector,
    size: Integer,
    rate: Real,
) -> Adam:
    """One pass over the columns of `z` in the given order, in mini-batches. Returns the optimiser."""
    gradient = np.empty(weights.size)
    for first in range(0, order.size, size):
        n = min(size, order.size - first)
        batch = np.empty((shape.n_in, n))
        for j in range(shape.n_in):
            for i in range(n):
                batch[j, i] = z[j, order[first + i]]
        hidden, d_out = np.empty((shape.n_hidden, n)), np.empty((shape.n_out, n))
        forward(shape, weights, batch, hidden, d_out)
        for j in range(shape.n_out):
            for i in range(n):
                d_out[j, i] = 2.0 / n * (d_out[j, i] - targets[j, order[first + i]])
        fill(gradient, 0.0)
        backward(shape, weights, batch, hidden, d_out, gradient)
        adam = descend(weights, gradient, adam, rate)
    return adam


def regress(
    shape: Shape,
    weights: np.ndarray,
    z: np.ndarray,
    targets: np.ndarray,
    rng: np.random.Generator,
    *,
    epochs: int,
    good_enough: float,
) -> np.ndarray:
    """The weights of a network trained on outputs `targets` (B, m) for inputs `z` (B, n).

    Adam takes steps of 0.001 on mini-batches of 128 points. Three tenths of the points are held out, and the
    function returns the weights with the smallest mean squared error on them. The training ends early when
    this error is below `good_enough`.
    """
    shuffled = rng.permutation(len(z))
    held, used = np.split(shuffled, [max(1, int(0.3 * len(z)))])
    z_t, targets_t = np.ascontiguousarray(z.T), np.ascontiguousarray(targets.T)
    held_z, held_targets = np.ascontiguousarray(z_t[:, held]), np.ascontiguousarray(targets_t[:, held])
    weights, adam = weights.copy(), fresh_adam(weights.size)
    best, least = weights.copy(), np.inf
    for _ in range(epochs):
        adam = regression_epoch(shape, weights, adam, z_t, targets_t, used, 128, 1e-3)
        error = squared_error(shape, weights, held_z, held_targets)
        if error < least:
            best, least = weights.copy(), error
        if least < good_enough:
            break
        rng.shuffle(used)
    return best


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


@kernel(ordered=True)
def store(memory: ReplayBuffer, u: Vector, y: Vector, a: Vector, a_y: Vector, reward: Real) -> ReplayBuffer:
    """Write one more transition, over the oldest if there is no room. Returns the buffer."""
    states, all_actions, rewards, n = memory
    row, d, k = n % len(rewards), u.size, a.size
    for i in range(d):
        states[row, i], states[row, d + i] = u[i], y[i]
    for j in range(k):
        all_actions[row, j], all_actions[row, k + j] = a[j], a_y[j]
    rewards[row] = reward
    return ReplayBuffer(states, all_actions, rewards, n + 1)


@kernel(ordered=True)
def mini_batch(memory: ReplayBuffer, size: Integer, rng: Generator) -> tuple[Matrix, Matrix, Vector, Matrix]:
    """`size` random transitions: states (2d, B), actions (2k, B), rewards (B,), next states (2d, B)."""
    rows = len(memory.rewards)
    kept = min(memory.n, rows)
    oldest = memory.n - kept
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
) -> tuple[Adam, Real]:
    """One step of the critic down the Bellman error of a mini-batch. Returns its optimiser and the loss."""
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
    return descend(nets.critic, gradient, nets.critic_adam, rates.critic), dot_in_eights(away, away) / size


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
) -> tuple[Networks, Flag]:
    """One iteration of Algorithm 2 after its first line, in place.

    Returns the networks, and whether loss and gradient are finite. If they are not, the actor stays the same.
    """
    s, a, r, after = mini_batch(memory, rates.batch, rng)
    critic_adam, loss = critic_step(actor_is, critic_is, nets, rates, s, a, r, after)
    nets = Networks(
        nets.actor, nets.actor_target, nets.actor_adam, nets.critic, nets.critic_target, critic_adam
    )
    gradient = np.empty_like(nets.actor)
    policy_gradient(actor_is, critic_is, nets, rates.radius, s, gradient)
    norm = clip(gradient, rates.threshold)
    if not (np.isfinite(loss) and np.isfinite(norm)):
        return nets, False
    for i in range(gradient.size):
        gradient[i] = -gradient[i]  # uphill
    actor_adam = descend(nets.actor, gradient, nets.actor_adam, rates.actor)
    follow(nets.critic_target, nets.critic, rates.smoothing)
    follow(nets.actor_target, nets.actor, rates.smoothing)
    nets = Networks(nets.actor, nets.actor_target, actor_adam, nets.critic, nets.critic_target, critic_adam)
    return nets, True


@kernel(ordered=True)
def value(shape: Shape, weights: Vector, u: Vector) -> Real:
    """The output of a network with one output unit, for one input `u` (n,)."""
    w1, b1, w2, b2 = layers(shape, weights)
    total = b2[0]
    for i in range(b1.size):
        total += w2[0, i] * max(0.0, b1[i] + dot_in_eights(w1[i], u))
    return total


@kernel(ordered=True)
def add_gradient(shape: Shape, weights: Vector, u: Vector, d_out: Vector, gradient: Vector) -> None:
    """Add the gradient of d_out . output with respect to the weights, for one input `u` (n,)."""
    w1, b1, w2, _ = layers(shape, weights)
    g_w1, g_b1, g_w2, g_b2 = layers(shape, gradient)
    for j in range(d_out.size):
        g_b2[j] += d_out[j]
    for i in range(b1.size):
        z = b1[i] + dot_in_eights(w1[i], u)
        if z <= 0.0:
            continue
        slope = 0.0
        for j in range(d_out.size):
            slope += d_out[j] * w2[j, i]
            g_w2[j, i] += d_out[j] * z
        g_b1[i] += slope
        row = g_w1[i]
        for k in range(u.size):
            row[k] += slope * u[k]


@kernel(ordered=True)
def follow(behind: Vector, ahead: Vector, tau: Real) -> None:
    """behind <- tau ahead + (1 - tau) behind."""
    for i in range(behind.size):
        behind[i] += tau * (ahead[i] - behind[i])
