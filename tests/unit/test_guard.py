"""A model whose evaluations take long: none begins once the run is to end, and nothing is lost or changed."""

from __future__ import annotations

import numpy as np
import pytest

import stanadapt
from stanadapt import samplers
from stanadapt.result.stores.encoding import decode, encode
from stanadapt.run import guard
from stanadapt.run.chain import KernelChain
from stanadapt.run.draws import ChainResult, stacks
from stanadapt.run.inits import Init
from stanadapt.run.job import Job
from stanadapt.run.workers.board import Board

DIM = 3


class Counted:
    """A Gaussian that counts its evaluations and has the run stopped in one of them."""

    def __init__(self, stop_at: int = 0) -> None:
        self.calls, self.stop_at, self.board = 0, stop_at, Board.for_chains(1)
        target = stanadapt.Target.from_python(self.log_density, DIM, self.gradient, threads=True)
        self.posterior = stanadapt.Posterior(target)

    def log_density(self, x: np.ndarray) -> float:
        return -0.5 * float(x @ x) - 0.25 * float(x[0] ** 4)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.calls == self.stop_at:
            self.board.stop()
        return -x - np.array([x[0] ** 3, 0.0, 0.0])


@pytest.fixture(autouse=True)
def _every_model_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_SLOW_SECONDS", 0.0)


def job(method: str) -> Job:
    settings = samplers.resolve(samplers.sampler(method), {})
    return Job(method, settings, 120, 30, 2, 1, 3, True, True)


def run(method: str, stops: list[int]) -> tuple[ChainResult, list[int]]:
    """A chain that is stopped after so many evaluations, taken up again, and so on, and each cost."""
    what, value, taken = job(method), None, []
    first = Counted()
    draws, warmup = stacks(what, first.posterior, 1)
    assert warmup is not None
    rows = draws.chain(0), warmup.chain(0)
    for stop in [*stops, 0]:
        model = Counted(stop)
        chain = KernelChain(model.posterior, what, 0, Init(2.0), model.board, *rows, value=value)
        for _ in chain.blocks():
            if model.board.is_stopped:
                break
        taken.append(model.calls)
        value = decode(encode(chain.value))
        assert (value.rows, value.warmup_rows) == (rows[0].n, rows[1].n)
    return chain.result(), taken


@pytest.mark.parametrize("method", ["fisher_hmc", "fisher_mala", "hmc"])
def test_no_evaluation_follows_the_stop_and_the_draws_are_the_same(method: str) -> None:
    whole, (total,) = run(method, [])
    # In the search for a start, at its end, in the first iterations, later in warm-up, and among the draws.
    stops = [1, 37, total // 4, total // 3, total - 5]
    parts, taken = run(method, stops)
    for stop, count in zip(stops, taken, strict=False):
        assert count <= stop  # it may have come to its end before
    assert taken[:2] == stops[:2]
    np.testing.assert_array_equal(parts.draws.values, whole.draws.values)
    np.testing.assert_array_equal(parts.warmup.values, whole.warmup.values)
    assert parts.failures == whole.failures == 0
    assert parts.evaluations == whole.evaluations
