"""Kernels give what numba gives, however they use their arguments and the copies of other kernels."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from stanadapt import jit


class Inner(NamedTuple):
    rows: np.ndarray
    scale: float
    is_on: bool


class Outer(NamedTuple):
    x: np.ndarray
    inner: Inner
    pair: tuple[np.ndarray, np.ndarray]
    count: int
    nothing: None


@jit.kernel(ordered=True)
def take_parts(outer: Any, flag: Any, n: Any) -> Any:
    """Parts are named first in the branch or the loop that uses them, and one of them afterwards, too."""
    total = 0.0
    for i in range(n):
        if flag and i % 2 == 0:
            inner = outer.inner
            total += inner.rows[0, i] * inner.scale
        elif outer.inner.is_on:
            total += outer.pair[1][i] - outer.count
        else:
            first, second = outer.pair
            total += first[i] + second[i]
    return total + outer.inner.scale


@jit.kernel(ordered=True)
def change_arguments(x: Any, outer: Any, k: Any, more: Any = 2.5) -> Any:
    """Arguments that get further values are variables like others."""
    if k > 1:
        x = outer.x
        k = k - 1
    total = more
    for i in range(k):
        total += x[i]
        x = outer.pair[i % 2]
    return total


@jit.kernel(ordered=True, counted=False)
def use_inner(inner: Any, i: Any) -> Any:
    return inner.rows[1, i] if inner.is_on else -inner.scale


@jit.kernel(ordered=True, copied=False)
def use_outer(outer: Any, inner: Any, i: Any) -> Any:
    return use_inner(inner, i) + outer.x[i] * use_inner(outer.inner, 0)


@jit.kernel(ordered=True)
def hand_over(outer: Any, n: Any) -> Any:
    """Parts go to other kernels, alone, whole and in new tuples."""
    total = 0.0
    for i in range(n):
        changed = Outer(outer.pair[0], Inner(outer.inner.rows, 2.0, i > 1), outer.pair, i, outer.nothing)
        total += use_outer(outer, outer.inner, i) + use_outer(changed, changed.inner, i) + changed.count
    return total


@jit.kernel(ordered=True)
def choose(values: Any, which: Any) -> Any:
    """A tuple of equal types, with a place that is known in a run only."""
    return values[which] + values[0] * values[-1]


@jit.kernel
def give_back(outer: Any, flag: Any) -> Any:
    x = outer.x
    if flag:
        x = outer.pair[0]
    return x, outer.inner, outer.pair[1], outer.inner.is_on


def plain(kernel: Any) -> Any:
    """What numba itself makes of a kernel, and of the kernels that it calls."""
    function, names = kernel.py_func, kernel.py_func.__globals__
    called = {name: plain(names[name]) for name in function.__code__.co_names if name in KERNELS}
    scope = {**names, **called}
    copy = type(function)(function.__code__, scope, function.__name__, function.__defaults__)
    return numba.njit(error_model="numpy")(copy)


KERNELS = ("use_inner", "use_outer")


def outer(is_on: bool = True) -> Outer:
    rng = np.random.default_rng(1)
    inner = Inner(rng.normal(size=(2, 6)), 1.5, is_on)
    return Outer(rng.normal(size=6), inner, (rng.normal(size=6), rng.normal(size=6)), 3, None)


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (take_parts, (outer(True), True, 6)),
        (take_parts, (outer(True), False, 6)),
        (take_parts, (outer(False), True, 6)),
        (take_parts, (outer(False), False, 0)),
        (change_arguments, (np.arange(6.0), outer(), 1)),
        (change_arguments, (np.arange(6.0), outer(), 5)),
        (change_arguments, (np.arange(6.0), outer(), 5, 0.5)),
        (hand_over, (outer(True), 6)),
        (hand_over, (outer(False), 6)),
        (choose, ((1.0, 2.0, 4.0), 1)),
        (choose, ((False, True, True), 2)),
    ],
)
def test_kernels_give_what_numba_gives(kernel: Any, arguments: Any) -> None:
    expected = plain(kernel)(*arguments)
    assert kernel(*arguments) == expected
    assert kernel.entry(*arguments) == expected


@pytest.mark.parametrize("flag", [True, False])
def test_arguments_that_are_returned_are_the_same_arrays(flag: bool) -> None:
    given = outer()
    counts = [sys.getrefcount(array) for array in (given.x, *given.pair, given.inner.rows)]
    for call in (give_back, give_back.entry):
        for _ in range(100):
            x, inner, second, is_on = call(given, flag)
            assert np.shares_memory(x, given.pair[0] if flag else given.x)
            assert np.shares_memory(inner.rows, given.inner.rows)
            assert np.shares_memory(second, given.pair[1])
            assert (inner.scale, inner.is_on, is_on) == (1.5, True, True)
    del x, inner, second
    assert [sys.getrefcount(array) for array in (given.x, *given.pair, given.inner.rows)] == counts


@jit.kernel(counted=False)
def sum_of(x: Any) -> Any:
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return total


def test_the_code_that_is_copied_has_loops_as_they_are_written() -> None:
    """The kernels that get copies make vectors of them, as numba does here at once."""
    x = np.arange(6.0)
    ours, at_once = sum_of.compile((numba.typeof(x),)), numba.njit(fastmath=True)(sum_of.py_func)
    assert ours is not None
    assert at_once(x) == 15.0
    (copied,) = sum_of.overloads.values()
    text = str(llvm.parse_bitcode(copied.library._get_module_for_linking().as_bitcode()))
    assert "fadd" in text
    assert " x double>" not in text
    assert " x double>" in at_once.inspect_llvm(at_once.signatures[0])
