"""Python callables in worker processes: the same draws, and failures that say where and why."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest

import stanadapt
from cases import thorough
from stanadapt import Target
from stanadapt.errors import ArgumentError, ChainError, FindingsWarning, InitializationError
from stanadapt.result.container import datasets
from stanadapt.run.workers.failures import ChainFailure, raise_first
from stanadapt.run.workers.processes import Processes

RUN = {"method": "rwm", "chains": 3, "warmup": 60, "draws": 40, "seed": 3, "progress": False}
KEPT = {"save_warmup": True, "keep_unconstrained": True}


def log_density(x):
    return -0.5 * float(x @ x)


def estimate(x, rng):
    return log_density(x) + rng.normal() - 0.5


def sample(target, **keywords):
    """A short run without any warning but the findings that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(target, **(RUN | keywords))


def assert_same(one, other):
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group in set(ones) - {"adaptation"}:
        for name in ones[group]:
            np.testing.assert_array_equal(ones[group][name], others[group][name], err_msg=name)


@pytest.mark.parametrize("noisy", [thorough(False), True])
def test_draws_do_not_depend_on_workers(noisy):
    """A chain's random numbers are its own, those of the estimate too."""
    calls = []

    def counted(*arguments):
        calls.append(1)
        return (estimate if noisy else log_density)(*arguments)

    apart = sample(Target.from_python(counted, 2, noisy=noisy), workers=2, **KEPT)
    assert not calls
    one_after_another = sample(Target.from_python(counted, 2, noisy=noisy), workers=1, **KEPT)
    assert len(calls) >= 3 * 100
    in_threads = sample(Target.from_python(counted, 2, noisy=noisy, threads=True), workers=3, **KEPT)
    assert_same(apart, one_after_another)
    assert_same(apart, in_threads)


def test_one_chain_stays_in_this_process():
    calls = []

    def counted(x):
        calls.append(1)
        return log_density(x)

    sample(Target.from_python(counted, 2), chains=1, workers=4)
    assert calls


def test_what_cannot_be_sent_is_refused_before_anything_runs(monkeypatch):
    lock = threading.Lock()

    def locked(x):
        with lock:
            return log_density(x)

    with monkeypatch.context() as patched:
        patched.setattr(Processes, "team", lambda *_: pytest.fail("sampling began"))
        with pytest.raises(
            ArgumentError, match=r"cannot be sent.*cannot pickle.*lock.*threads=True.*workers=1"
        ):
            sample(Target.from_python(locked, 2), workers=2)
    assert sample(Target.from_python(locked, 2), workers=1)["posterior"]["x"].shape == (3, 40, 2)
    in_threads = Target.from_python(locked, 2, threads=True)
    assert sample(in_threads, workers=2)["posterior"]["x"].shape == (3, 40, 2)


class TwoArgumentsError(Exception):
    """Pickle cannot make it again: it calls the class with the message alone."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


class HoldingError(Exception):
    """It holds what cannot be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


@pytest.mark.timeout(60)
def test_every_failure_comes_back_with_its_traceback(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def helper(x):
        raise TwoArgumentsError("nothing", x[0])

    def failing(x):
        # Opening either end waits for the other: both chains are here before one of them fails.
        with open(fifo, "w" if x[0] == 0.0 else "r"):
            return helper(x)

    with pytest.raises(TwoArgumentsError, match=r"^nothing at 0.0") as caught:
        sample(Target.from_python(failing, 1), chains=2, workers=2, inits=np.array([[0.0], [1.0]]))
    first, second = caught.value.__notes__
    assert first.startswith(
        "It was raised in chain 0, in a worker process:\nTraceback (most recent call last)"
    )
    assert second.startswith("Chain 1 failed as well:\nTraceback (most recent call last)")
    for note, place in ((first, 0.0), (second, 1.0)):
        assert ", in failing\n" in note
        assert f"line {helper.__code__.co_firstlineno + 1}, in helper\n    raise TwoArgumentsError(" in note
        assert note.endswith(f"TwoArgumentsError: nothing at {place}")
        assert "stanadapt/chain.py" not in note  # nothing of what led to the user's function


def raised(error):
    """The error with the traceback that it has when it was raised, as a Failure."""
    try:
        Target.from_python(lambda x: throw(error), 1).log_density(np.zeros(1))
    except BaseException as caught:
        return ChainFailure.of(2, caught)
    raise AssertionError


def throw(error):
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ZeroDivisionError("by zero"), ZeroDivisionError, "by zero"),
        (TwoArgumentsError("this", "there"), TwoArgumentsError, "this at there"),
        (HoldingError("with a lock"), HoldingError, "with a lock"),
        (KeyError("a"), KeyError, "'a'"),
        (FileNotFoundError(2, "No such file", "data.csv"), FileNotFoundError, "No such file: 'data.csv'"),
        (ValueError(threading.Lock()), ChainError, "chain 2: ValueError: <unlocked _thread.lock"),
        (SystemExit(3), SystemExit, "3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exceptions_travel_with_type_message_and_traceback(error, kind, message):
    failure = raised(error).pack().unpack()
    with pytest.raises(kind) as caught:
        raise_first([failure], in_processes=True)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    (note,) = caught.value.__notes__
    assert note.startswith("It was raised in chain 2, in a worker process:\nTraceback")
    assert ", in throw\n    raise error\n" in note


def test_errors_of_ours_need_no_traceback():
    def failed(chain):
        try:
            raise InitializationError(f"chain {chain}: no start")
        except InitializationError as error:
            return ChainFailure.of(chain, error).pack().unpack()

    with pytest.raises(InitializationError) as caught:
        raise_first([failed(1), failed(0)], in_processes=True)
    assert str(caught.value) == "chain 0: no start"
    assert caught.value.__notes__ == ["Chain 1 failed as well: chain 1: no start"]
