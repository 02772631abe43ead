"""How kernels are compiled late, without needless work, and called from Python by their addresses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core import event
from numba.core.codegen import JITCPUCodegen
from numba.core.compiler_machinery import PassManager
from numba.core.runtime import rtsys

from kernels import counted_arrays
from stanadapt import jit
from stanadapt.compiler import lean_compiler, level_codegen
from stanadapt.kinds import Flag, Integer, Real


@jit.kernel(late=True)
def add_late(x: Any, rows: Any) -> Real:
    return x.sum() + rows[0]


@jit.kernel(ordered=True, counted=False, late=True)
def split_late(x: Any, k: Any) -> tuple[Real, Integer]:
    return x[k], k + 1


@jit.kernel(late=True)
def lie_late(x: Any) -> Flag:
    return x[0]


@jit.kernel
def call_late(x: Any, n: Any) -> Real:
    if n == 0:
        return 0.0
    first, k = split_late(x, n - 1)
    return add_late(x, (first, k))


@jit.kernel
def believe(x: Any) -> Flag:
    return lie_late(x)


@jit.kernel
def weigh(x: Any, matrix: Any, pair: Any, number: Any, count: Any, flag: Any, word: Any, out: Any) -> Real:
    total = number * count if flag else 0.0
    for i in range(x.size):
        total += x[i] * pair[0][i] + pair[1][0]
        out[i] = x[i]
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            total += (i + 1) * matrix[i, j]
    return total + np.float64(word >> np.uint64(60))


@jit.kernel
def double_word(z: Any) -> Any:
    return z * np.uint64(2)


@jit.kernel
def is_large(x: Any) -> Flag:
    return x > 1.0


@jit.kernel
def refuse(x: Any) -> Real:
    if x < 0.0:
        raise ValueError("x is negative")
    return x


def test_a_late_kernel_is_compiled_when_it_is_called() -> None:
    x = np.arange(4.0)
    assert call_late(x, 0) == 0.0
    assert not add_late.core.overloads
    assert not split_late.core.overloads
    assert call_late(x, 3) == x.sum() + x[2]
    assert len(add_late.core.overloads) == 1
    assert call_late(x, 3) == x.sum() + x[2]
    assert add_late(x, (1.0, 2)) == x.sum() + 1.0


def test_a_late_kernel_returns_what_its_annotation_says(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemError):
        believe(np.ones(2))
    assert "not what its annotation says" in capfd.readouterr().err


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("step", [1, 2])
def test_python_calls_kernels_as_a_wrapper_would(order: Any, step: int) -> None:
    rng = np.random.default_rng(1)
    x, matrix = rng.normal(size=6)[::step], np.asarray(rng.normal(size=(3, 4)), order=order)[::step]
    out, pair = np.zeros(x.size), (rng.normal(size=6)[::step], (0.5, True))
    for flag in (True, False):
        arguments = (x, matrix, pair, 0.25, 3, flag, np.uint64(2**63 + 5))
        expected = weigh.py_func(*arguments, np.zeros(x.size))
        assert weigh(*arguments, out) == pytest.approx(expected, rel=1e-12)
        assert weigh.entry(*arguments, out) == weigh(*arguments, out)
        np.testing.assert_array_equal(out, x)
    assert all(call is not None for call in weigh._direct_calls.values())


def test_results_have_python_types() -> None:
    assert is_large(2.0) is True
    assert is_large(0.5) is False
    assert double_word(np.uint64(2**62)) == 2**63
    assert double_word.entry(np.uint64(2**62)) == 2**63


class Small(NamedTuple):
    flag: bool
    x: np.ndarray
    other: bool
    n: int


class Large(NamedTuple):
    small: Small
    pair: tuple[float, float]
    last: bool


@jit.kernel
def rearrange(large: Any, matrix: Any, rng: Any) -> Any:
    """Parts of the arguments, views of them, and new arrays."""
    flag, x, _, n = large.small
    for _ in range(3):
        part = large.small.x
        part[0] += 1.0
    made = np.zeros((2, 3))
    made[1, 2] = rng.random()
    small = Small(not flag, x, flag, n + 1)
    return (
        Large(small, (large.pair[1], made[1, 2]), flag),
        (x[1:], matrix.T, made, made[1]),
        np.empty(0),
        n > 3,
    )


def test_results_are_tuples_of_arrays() -> None:
    """As a compiled wrapper would return them, with the same random numbers."""
    answers = []
    for call in (rearrange, rearrange.entry):
        rng, x, matrix = np.random.default_rng(1), np.arange(4.0), np.ones((2, 3))
        large = Large(Small(True, x, False, 4), (0.5, 0.25), True)
        answer = call(large, matrix, rng)
        assert type(answer[0]) is Large
        assert type(answer[0].small) is Small
        assert answer[0].small.x is x
        assert [type(part) for part in (answer[0].last, answer[0].small.n, answer[0].pair[0])] == [
            bool,
            int,
            float,
        ]
        answer[1][0][0] = 7.0
        assert x[1] == 7.0
        answer[1][2][1, 0] = 8.0
        assert answer[1][3][0] == 8.0
        answers.append((answer, rng.random()))
    assert all(call is not None for call in rearrange._direct_calls.values())
    assert repr(answers[0]) == repr(answers[1])


def test_arrays_that_python_has_taken_over_are_freed() -> None:
    """And those that it holds are not."""
    with counted_arrays():
        large = Large(Small(True, np.arange(4.0), False, 4), (0.5, 0.25), True)
        arguments = large, np.ones((2, 3)), np.random.default_rng(1)
        rearrange(*arguments)
        before = rtsys.get_allocation_stats()
        held = rearrange(*arguments)
        now = rtsys.get_allocation_stats()
        assert now.mi_alloc - before.mi_alloc == 2
        assert now.mi_free == before.mi_free
        del held
        after = rtsys.get_allocation_stats()
        assert after.mi_alloc - after.mi_free == before.mi_alloc - before.mi_free


def test_an_exception_of_a_kernel_is_raised() -> None:
    assert refuse(2.0) == 2.0
    with pytest.raises(ValueError, match="x is negative"):
        refuse(-1.0)


@jit.kernel(counted=False)
def add_small(x: Any, y: Any) -> Real:
    return x[0] + y


def test_a_small_kernel_is_called_by_its_address_until_it_is_called_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jit, "_MANY_CALLS", 3)
    x = np.array([2.0])
    for i in range(5):
        assert add_small(x, 1.0 * i) == 2.0 + i
        assert bool(add_small.entry.entry.signatures) == (i > 2)


def test_a_kernel_that_runs_seldom_gives_the_same() -> None:
    def total(x: Any) -> Any:
        out = 0.0
        for i in range(x.size):
            out += x[i] * x[i]
        return out

    x = np.random.default_rng(1).standard_normal(1_001)
    assert jit.kernel(ordered=True, seldom=True)(total)(x) == pytest.approx(float(x @ x))


def test_numba_is_as_before_after_a_kernel_is_compiled() -> None:
    before = PassManager._runPass, event.start_event, event.install_timer

    @jit.kernel
    def triple(x: Any) -> Any:
        return 3.0 * x

    assert triple(2.0) == 6.0
    assert (PassManager._runPass, event.start_event, event.install_timer) == before
    assert type(triple.targetctx.codegen()) is JITCPUCodegen
    assert triple.targetctx.cached_internal_func is not lean_compiler._internal_functions


FEATURES = ["avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"]
WIDE = [f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")]


@pytest.mark.parametrize(
    ("features", "level"),
    [
        (FEATURES, "x86-64-v3"),
        (FEATURES + WIDE, "x86-64-v4"),
        (FEATURES[1:] + WIDE, None),  # LLVM would use what the processor has not
        (FEATURES[:-1], None),
        (FEATURES + WIDE[1:], "x86-64-v3"),
        ([], None),
    ],
)
def test_the_level_is_the_highest_whose_instructions_are_all_there(
    features: list[str], level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dict.fromkeys(features, True) | {"sse4a": False}
    monkeypatch.setattr(level_codegen.llvm, "get_host_cpu_features", lambda: found)
    assert level_codegen.processor_level() == level


def test_kernels_are_compiled_for_a_level_where_the_processor_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CPU_NAME", "CPU_FEATURES"):  # the tests themselves may run for another processor
        monkeypatch.setattr(level_codegen.config, name, None)
    level = level_codegen.processor_level()
    _, name, features = level_codegen.LevelCodegen("test").magic_tuple()
    assert (name, features) == (level, "") if level else name == level_codegen.processor()


def test_a_processor_that_is_named_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_codegen.config, "CPU_NAME", "generic")
    monkeypatch.setattr(level_codegen.config, "CPU_FEATURES", "")
    assert level_codegen.LevelCodegen("test").magic_tuple()[1:] == ("generic", "")
