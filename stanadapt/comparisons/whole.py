"""Budgets of methods whose chains run as a whole: how many draws fit into a budget.

Such chains cannot stop in between without losing their draws. So a short trial of the same chains measures
the cost of warm-up and of a draw; it does not count, and its draws are discarded. The trial has the same
seeds and thus the same warm-up as the run, so of the gradients only the average cost of a draw is an
estimate.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..diagnostics.convergence import FEWEST
from ..errors import ChainError
from ..model.posterior import Posterior
from ..run.preparation.prepare import prepare
from ..run.progress import tell
from ..run.request import Request
from ..run.workers.board import Board
from ..run.workers.turns import Work, run
from .budget import Budget

_TRIAL = 100  # draws of each chain in the first trial
_SHARE = 0.1  # a trial measures the pace if it takes this share of the time
_GRACE = 2.0  # seconds for the process of a chain to start


class SpentError(ChainError):
    """The budget was spent before the first draw."""


class _Cost(NamedTuple):
    """The cost of all chains: gradients of warm-up and of the draws, and seconds of both together."""

    warmup: int
    draws: int
    seconds: float


def draws_within(budget: Budget, request: Request, posterior: Posterior, most: int) -> int:
    """Return how many draws of each chain, at most `most`, fit into a budget; a multiple of `thin`.

    Raises
    ------
    SpentError
        Warm-up takes the whole budget.
    """
    if request.progress:
        tell(f"stanadapt: a trial of {request.method}, to see how many draws fit into {budget}")
    n = min(_TRIAL, most)
    while True:
        cost = _try(n, budget, request, posterior)
        if budget.gradients is not None:
            left, of_a_draw = float(budget.gradients - cost.warmup), cost.draws / n
            if left < FEWEST * of_a_draw:
                raise SpentError(f"its warm-up takes {cost.warmup} of the {budget}")
            break
        assert budget.seconds is not None
        pace = cost.seconds / max(cost.warmup + cost.draws, 1)
        left, of_a_draw = budget.seconds - pace * cost.warmup, pace * cost.draws / n
        if left < FEWEST * of_a_draw:
            raise SpentError(f"its warm-up takes all of the {budget}")
        if cost.seconds >= _SHARE * budget.seconds or n == most:
            break
        # The pace is a guess while the trial is short, so the next one has at most ten times as many draws.
        n = min(most, 10 * n, n + int(2 * _SHARE * left / of_a_draw))
    fitting = int(min(left / of_a_draw, most))
    return max(fitting // request.thin, FEWEST) * request.thin


def seconds_of_chains(seconds: Sequence[float], workers: int) -> float:
    """Compute when the last chain ends if each begins as soon as one of the workers is free."""
    free = [0.0] * max(1, min(workers, len(seconds)))
    for each in seconds:
        heapq.heapreplace(free, free[0] + float(each))
    return max(free)


def _try(n: int, budget: Budget, request: Request, posterior: Posterior) -> _Cost:
    """Run the chains for `n` draws each."""
    prepared = prepare(request._replace(draws=n, thin=1, save_warmup=True, until=None), posterior)
    late = time.perf_counter() + _GRACE * request.chains + (budget.seconds or float("inf"))

    def look(board: Board) -> None:
        if time.perf_counter() > late:
            board.stop()

    drawn = run(prepared.turns, Work(posterior, prepared.job, prepared.inits, look=look))
    if drawn.is_short:
        if drawn.ended_by:
            raise KeyboardInterrupt
        raise SpentError(f"its warm-up takes all of the {budget}")
    counts: list[Any] = [(chain.evaluations_warmup, chain.evaluations) for chain in drawn.chains]
    warmup, draws = (sum(count) for count in zip(*counts, strict=True))
    seconds = seconds_of_chains([chain.seconds_total for chain in drawn.chains], request.workers)
    return _Cost(warmup, draws, seconds)
