"""How many draws of a method whose chains run as a whole fit into a budget.

Such chains cannot be stopped in between without losing their draws. So a short trial of the same chains tells
what warm-up and a draw cost; its draws are thrown away, and it does not count. Its warm-up is that of the
run, seed for seed, and so of gradients only the average of a draw is estimated.
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

_TRIAL = 100  # draws of each chain, at first
_SHARE = 0.1  # of the time, that a trial should take to be a measure of the pace
_GRACE = 2.0  # seconds a chain, for its process to begin


class SpentError(ChainError):
    """The budget was gone before there was a draw."""


class _Cost(NamedTuple):
    """Of all chains: gradients of warm-up and of the draws, and seconds of both together."""

    warmup: int
    draws: int
    seconds: float


def draws_within(budget: Budget, request: Request, posterior: Posterior, most: int) -> int:
    """The draws of each chain, at most `most`, that bring a run to its budget; a multiple of `thin`.

    Raises
    ------
    SpentError
        Warm-up takes all of it.
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
        # As long as the clock sees little, the pace is a guess: at most ten times as many.
        n = min(most, 10 * n, n + int(2 * _SHARE * left / of_a_draw))
    fitting = int(min(left / of_a_draw, most))
    return max(fitting // request.thin, FEWEST) * request.thin


def seconds_of_chains(seconds: Sequence[float], workers: int) -> float:
    """When the last chain ends, if each begins as soon as one of the workers is free."""
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
