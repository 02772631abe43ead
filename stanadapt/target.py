"""A log density as compiled code sees it: C function addresses, a context pointer and a dimension.

The signatures are BridgeStan's C ABI, so a Stan model passes straight through. Addresses are integers rather
than function objects, which keeps the compiled kernels the same for every model: nothing is recompiled when
the model changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import kernel


class Failures(NamedTuple):
    """Evaluations that gave no log density (and gradient), in one chain; -inf is a log density."""

    total: np.ndarray  # (1,) int64: how many
    first: np.ndarray  # (d,) the first such point, so that its message can be asked for later


class NativeTarget(NamedTuple):
    """What a kernel needs to evaluate a log density."""

    log_density: int  # address of bs_log_density, or of one with its signature
    log_density_gradient: int  # address of bs_log_density_gradient, likewise
    context: int  # their first argument: the bs_model pointer
    dim: int
    failures: Failures


def native_target(log_density_address: int, gradient_address: int, context: int, dim: int) -> NativeTarget:
    """A `NativeTarget` with failure counts of its own; every chain gets one."""
    failures = Failures(np.zeros(1, np.int64), np.zeros(dim))
    return NativeTarget(log_density_address, gradient_address, context, dim, failures)


@intrinsic  # type: ignore[untyped-decorator]
def _call(typing_context: Any, address: Any, context: Any, x: Any, score: Any) -> Any:
    """Call a density at `address`; returns its value, or NaN where it reports an error.

    A zero `score` pointer means that the function takes no gradient argument.
    """
    word, flag, real = ir.IntType(64), ir.IntType(1), ir.DoubleType()

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, model, point, gradient = arguments
        propto_jacobian = [flag(1), flag(1)]
        no_message = word(0)  # the model then allocates none, so a rejected point leaks nothing
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


@kernel
def log_density(target: Any, x: Any) -> Any:
    """Log density at `x` (d,); -inf, and counted as a failure, where it has an error, NaN or +inf."""
    value = _call(
        np.uint64(target.log_density), np.uint64(target.context), np.uint64(x.ctypes.data), np.uint64(0)
    )
    if np.isfinite(value) or value == -np.inf:
        return value
    return _failed(target, x)


@kernel
def log_density_gradient(target: Any, x: Any, score: Any) -> Any:
    """Log density at `x` (d,), its gradient written to `score` (d,).

    It is -inf outside the support, where `score` means nothing. It is also -inf, and counted as a failure,
    where the model has an error, or a value or gradient that is not finite.
    """
    value = _call(
        np.uint64(target.log_density_gradient),
        np.uint64(target.context),
        np.uint64(x.ctypes.data),
        np.uint64(score.ctypes.data),
    )
    # The sum is finite unless an entry is not, or unless finite entries overflow: then look at each.
    if np.isfinite(value) and (np.isfinite(np.sum(score)) or np.all(np.isfinite(score))):
        return value
    if value == -np.inf:
        return value
    return _failed(target, x)


@kernel
def _failed(target: Any, x: Any) -> Any:
    if target.failures.total[0] == 0:
        target.failures.first[:] = x
    target.failures.total[0] += 1
    return -np.inf
