"""A log density as compiled code sees it: C function addresses, a context pointer and a dimension.

The C functions have the signatures of BridgeStan's C ABI, so that kernels call a Stan model directly.
Addresses are integers rather than function objects. So the compiled kernels are the same for every model, and
nothing is compiled again for another model.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .jit import intrinsic, kernel
from .kinds import Flag, Matrix, Real, Vector
from .transport.composition import into_x, into_x_keeping, n_kept, pull_back_kept
from .transport.map_table import COLUMNS

_POINTER = ctypes.POINTER(ctypes.c_double)
_HEAD = (ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, _POINTER, _POINTER)
# int f(void *context, bool, bool, const double *x, double *value, char **message)
LOG_DENSITY = ctypes.CFUNCTYPE(*_HEAD, ctypes.c_void_p)
# int g(void *context, bool, bool, const double *x, double *value, double *gradient, char **message)
LOG_DENSITY_GRADIENT = ctypes.CFUNCTYPE(*_HEAD, _POINTER, ctypes.c_void_p)


class Failures(NamedTuple):
    """The failures of one chain: evaluations without a log density or gradient. -inf is not a failure."""

    total: np.ndarray  # (1,) int64: their number
    first: np.ndarray  # (d,) the point of the first one, where its error message can be asked for later


class NativeTarget(NamedTuple):
    """What a kernel needs to evaluate a log density."""

    log_density: int  # address of bs_log_density, or of a function with its signature
    log_density_gradient: int  # the same for bs_log_density_gradient
    context: int  # their first argument: the bs_model pointer
    dim: int
    failures: Failures
    transport: np.ndarray  # map of the coordinates that kernels see, see transport/; no rows if they are x


def native_target(log_density_address: int, gradient_address: int, context: int, dim: int) -> NativeTarget:
    """A `NativeTarget` with its own count of failures, for one chain."""
    failures = Failures(np.zeros(1, np.int64), np.zeros(dim))
    return NativeTarget(log_density_address, gradient_address, context, dim, failures, np.empty((0, COLUMNS)))


@intrinsic
def _call(typing_context: Any, address: Any, context: Any, x: Any, score: Any) -> Any:
    """Call the density at `address`. Returns its value, or NaN if it reports an error.

    A zero `score` pointer means that the function takes no gradient argument.
    """
    word, flag, real = ir.IntType(64), ir.IntType(1), ir.DoubleType()

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, model, point, gradient = arguments
        propto_jacobian = [flag(1), flag(1)]
        no_message = word(0)  # then the model allocates no message, and a rejected point leaks no memory
        value = cgutils.alloca_once_value(builder, real(np.nan))
        where = builder.ptrtoint(value, word)
        head = [model, *propto_jacobian, point, where]
        short = ir.FunctionType(ir.IntType(32), [word, flag, flag, word, word, word])
        long = ir.FunctionType(ir.IntType(32), [word, flag, flag, word, word, word, word])
        code = cgutils.alloca_once(builder, ir.IntType(32))
        wanted = builder.icmp_unsigned("!=", gradient, word(0))
        with builder.if_else(wanted) as (with_gradient, without):
            with with_gradient:
                function = builder.inttoptr(at, long.as_pointer())
                builder.store(builder.call(function, [*head, gradient, no_message]), code)
            with without:
                function = builder.inttoptr(at, short.as_pointer())
                builder.store(builder.call(function, [*head, no_message]), code)
        fine = builder.icmp_signed("==", builder.load(code), ir.IntType(32)(0))
        return builder.select(fine, builder.load(value), real(np.nan))

    return types.float64(types.uintp, types.uintp, types.uintp, types.uintp), generate


@intrinsic
def _address(typing_context: Any, array: Any) -> Any:
    """The address of an array's first number; its `ctypes.data` would count a reference."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(held.data, ir.IntType(64))

    return types.uint64(array), generate


@kernel(counted=False)
def log_density(target: NativeTarget, z: Vector) -> Real:
    """Log density at `z` (d,) in the target's coordinates.

    An error, NaN or +inf is counted as a failure and gives -inf. If x overflows at `z`, the result is -inf
    too, but this is not counted.
    """
    if len(target.transport) == 0:
        return _density(target, z)
    return _moved_density(target, z)


@kernel(late=True)
def _moved_density(target: NativeTarget, z: Vector) -> Real:
    x = np.empty_like(z)
    log_det = into_x(target.transport, z, x)
    return -np.inf if log_det == np.inf else _density(target, x) + log_det


@kernel(counted=False)
def _density(target: NativeTarget, x: Vector) -> Real:
    value = _call(np.uint64(target.log_density), np.uint64(target.context), _address(x), np.uint64(0))
    if np.isfinite(value) or value == -np.inf:
        return value
    return _count_failure(target.failures, x)


@kernel(counted=False)
def log_density_gradient(target: NativeTarget, z: Vector, score: Vector) -> Real:
    """Log density at `z` (d,) in the target's coordinates; its gradient is written to `score` (d,).

    Outside of the support the log density is -inf, and `score` is meaningless. An error of the model, or a
    value or gradient that is not finite, is counted as a failure and gives -inf too.
    """
    if len(target.transport) == 0:
        return _density_gradient(target, z, score)
    return _moved_density_gradient(target, z, score)


@kernel
def log_density_gradients(target: NativeTarget, z: Matrix, scores: Matrix, log_densities: Vector) -> None:
    """Write the log densities (n,) and scores (n, d) at the points `z` (n, d)."""
    for k in range(len(z)):
        log_densities[k] = log_density_gradient(target, z[k], scores[k])


class ProgramGradient:
    """The log density and gradient of a target without a map, called from Python; no failure is counted.

    `log_density_gradient` takes 40 to 70 microseconds to lay out a target for machine code, and many
    gradients take less.
    """

    def __init__(self, target: NativeTarget) -> None:
        self._function, self._context = LOG_DENSITY_GRADIENT(target.log_density_gradient), target.context
        self._x, self._value, self._score = np.empty(target.dim), np.empty(1), np.empty(target.dim)
        # Pointers take longer to make than an array takes to be copied.
        self._places = [array.ctypes.data_as(_POINTER) for array in (self._x, self._value, self._score)]

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        """The log density at `x` (d,), whose gradient goes to `score` (d,); -inf where there is none."""
        self._x[:] = x
        code, value = self._function(self._context, True, True, *self._places, None), float(self._value[0])
        score[:] = self._score
        return value if code == 0 and np.isfinite(value) and np.isfinite(score).all() else -np.inf

    def at_all(self, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The log densities (n,) at points (n, d), whose gradients are written."""
        return np.array([self(x, score) for x, score in zip(points, scores, strict=True)])


@kernel(late=True)
def _moved_density_gradient(target: NativeTarget, z: Vector, score: Vector) -> Real:
    x, kept = np.empty_like(z), np.empty(n_kept(target.transport, z.size))
    log_det = into_x_keeping(target.transport, z, x, kept)
    if log_det == np.inf:
        return -np.inf
    logp = _density_gradient(target, x, score)
    if logp == -np.inf:
        return logp
    pull_back_kept(target.transport, z, x, score, kept)
    return logp + log_det


@kernel(counted=False)
def _density_gradient(target: NativeTarget, x: Vector, score: Vector) -> Real:
    value = _call(
        np.uint64(target.log_density_gradient), np.uint64(target.context), _address(x), _address(score)
    )
    if np.isfinite(value) and _all_finite(score):
        return value
    if value == -np.inf:
        return value
    return _count_failure(target.failures, x)


@kernel(counted=False)
def _all_finite(v: Vector) -> Flag:
    """Whether all entries are finite. If the sum is finite, they are; if not, it may have overflowed."""
    total = 0.0
    for i in range(v.size):
        total += v[i]
    if np.isfinite(total):
        return True
    finite = True
    for i in range(v.size):
        finite = finite and np.isfinite(v[i])
    return finite


_DIFFERENCE = np.finfo(float).eps ** (1 / 3)  # relative step that balances truncation and rounding


@kernel
def hessian_vector(target: NativeTarget, x: Vector, u: Vector, out: Vector) -> Flag:
    """Write H(x) u to `out` (d,), with the Hessian H of the log density; `u` (d,) must not be zero.

    It is a central difference of two gradients along u. Returns whether both were finite.
    """
    size, length = 1.0, 0.0
    for i in range(x.size):
        size, length = max(size, abs(x[i])), max(length, abs(u[i]))
    h = _DIFFERENCE * size / length
    behind = np.empty_like(x)
    if log_density_gradient(target, x + h * u, out) == -np.inf:
        return False
    if log_density_gradient(target, x - h * u, behind) == -np.inf:
        return False
    for i in range(x.size):
        out[i] = (out[i] - behind[i]) / (2.0 * h)
    return True


@kernel
def hessian(target: NativeTarget, x: Vector, out: Matrix) -> Flag:
    """Write the Hessian of the log density at `x` (d,) to `out` (d, d).

    It is computed by central differences of 2 d gradients, and made symmetric. Returns whether all were
    finite.
    """
    d = x.size
    near, behind = x.copy(), np.empty(d)
    for i in range(d):
        ahead = out[i]
        h = _DIFFERENCE * max(1.0, abs(x[i]))
        near[i] = x[i] + h
        if log_density_gradient(target, near, ahead) == -np.inf:
            return False
        up = near[i]
        near[i] = x[i] - h
        if log_density_gradient(target, near, behind) == -np.inf:
            return False
        width = up - near[i]
        for j in range(d):
            ahead[j] = (ahead[j] - behind[j]) / width
        near[i] = x[i]
    for i in range(d):
        for j in range(i):
            out[i, j] = out[j, i] = 0.5 * (out[i, j] + out[j, i])
    return True


@kernel(counted=False)
def _count_failure(failures: Failures, x: Vector) -> Real:
    """Count a failure at `x` (d,). Returns -inf."""
    if failures.total[0] == 0:
        for i in range(x.size):
            failures.first[i] = x[i]
    failures.total[0] += 1
    return -np.inf
