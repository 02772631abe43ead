"""Networks with one hidden layer, small enough to train at every iteration of a chain.

A network is nu(z) = W2 max(0, W1 z + b1) + b2, and its weights are one flat array. A batch is a matrix of
shape (features, batch). The loops run along the batch, so that the compiler vectorises them in any dimension.
Loops stand where NumPy has a word for whole arrays: numba takes a tenth of a second to compile each of those.

Adam is Algorithm 1 of Kingma and Ba (2014), Adam: a method for stochastic optimization.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from ..jit import intrinsic, kernel
from ..kinds import Integer, Matrix, Real, Vector

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma and Ba's


class Shape(NamedTuple):
    """The number of units in each layer of a network with one hidden layer."""

    n_in: int
    n_hidden: int
    n_out: int


class Adam(NamedTuple):
    """The state of the optimiser, which its steps change in place: running moments of a gradient."""

    first: np.ndarray
    second: np.ndarray
    t: np.ndarray  # (1,) number of steps


def n_weights(shape: Shape) -> int:
    """The number of weights of a network."""
    return (shape.n_in + 1) * shape.n_hidden + (shape.n_hidden + 1) * shape.n_out


@intrinsic
def _matrix_at(typing_context: Any, numbers: Any, first: Any, rows: Any, columns: Any) -> Any:
    """A view (rows, columns) of `numbers` (n,) from the index `first` on. numba takes long for `reshape`."""
    kind = types.Array(numbers.dtype, 2, "C", readonly=not numbers.mutable)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils  # here, since a process that compiles nothing needs none of it
        from numba.core.imputils import impl_ret_borrowed
        from numba.np.arrayobj import populate_array

        whole = context.make_array(signature.args[0])(context, builder, arguments[0])
        made = context.make_array(kind)(context, builder)
        _, at, n, m = arguments
        size = whole.itemsize
        shape, strides = cgutils.pack_array(builder, [n, m]), [builder.mul(m, size), size]
        data = builder.gep(whole.data, [at])
        populate_array(made, data, shape, cgutils.pack_array(builder, strides), size, whole.meminfo)
        return impl_ret_borrowed(context, builder, kind, made._getvalue())

    return kind(numbers, types.intp, types.intp, types.intp), generate


@kernel(ordered=True)
def layers(shape: Shape, weights: Vector) -> tuple[Matrix, Vector, Matrix, Vector]:
    """Views W1 (h, n), b1 (h,), W2 (m, h), b2 (m,) of the flat weights."""
    n, h, m = shape.n_in, shape.n_hidden, shape.n_out
    a, b = h * n, h * n + h
    c = b + m * h
    return _matrix_at(weights, 0, h, n), weights[a:b], _matrix_at(weights, b, m, h), weights[c:]


def first_weights(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """The uniform weights of Glorot and Bengio (2010), with biases of zero."""
    weights = np.zeros(n_weights(shape))
    last = (shape.n_in + 1) * shape.n_hidden
    for begin, rows, columns in ((0, shape.n_hidden, shape.n_in), (last, shape.n_out, shape.n_hidden)):
        bound = np.sqrt(6.0 / (rows + columns))
        weights[begin : begin + rows * columns] = rng.uniform(-bound, bound, rows * columns)
    return weights


def silence(shape: Shape, weights: np.ndarray) -> np.ndarray:
    """Set the last layer of `weights` to zero, in place, so that the output is 0. Returns `weights`."""
    weights[shape.n_hidden * (shape.n_in + 1) :] = 0.0
    return weights


def fresh_adam(n: int) -> Adam:
    """The optimiser of `n` weights before its first step."""
    return Adam(np.zeros(n), np.zeros(n), np.zeros(1, np.int64))


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


@kernel(ordered=True, counted=False)
def fill(numbers: Vector, value: Real) -> None:
    """Write `value` to all of `numbers` (n,)."""
    for i in range(numbers.size):
        numbers[i] = value


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
def clip(gradient: Vector, threshold: Real) -> Real:
    """Shorten `gradient`, in place, to the norm `threshold` if it is longer. Returns the norm that it had."""
    norm = np.sqrt(dot_in_eights(gradient, gradient))
    if norm > threshold:
        for i in range(gradient.size):
            gradient[i] *= threshold / norm
    return norm


@kernel(ordered=True)
def descend(weights: Vector, gradient: Vector, adam: Adam, rate: Real) -> None:
    """One step of Adam downhill, in place."""
    first, second = adam.first, adam.second
    adam.t[0] += 1
    t = adam.t[0]
    short_1, short_2 = 1.0 - _BETA_1**t, 1.0 - _BETA_2**t
    for i in range(weights.size):
        first[i] += (1.0 - _BETA_1) * (gradient[i] - first[i])
        second[i] += (1.0 - _BETA_2) * (gradient[i] * gradient[i] - second[i])
        weights[i] -= rate * (first[i] / short_1) / (np.sqrt(second[i] / short_2) + _EPSILON)


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
) -> None:
    """One pass over the columns of `z` in the given order, in mini-batches."""
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
        descend(weights, gradient, adam, rate)


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
    if not (targets.any() or weights[shape.n_hidden * (shape.n_in + 1) :].any()):
        return weights  # outputs and targets are zero: no step would change a weight
    best, least = weights.copy(), np.inf
    for _ in range(epochs):
        regression_epoch(shape, weights, adam, z_t, targets_t, used, 128, 1e-3)
        error = squared_error(shape, weights, held_z, held_targets)
        if error < least:
            best, least = weights.copy(), error
        if least < good_enough:
            break
        rng.shuffle(used)
    return best
