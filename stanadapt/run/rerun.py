"""Run kernels from the draws of earlier chains: their frozen kernels, and a plain reference kernel.

The new draws depend on the seed alone: not on threads, blocks or time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import numpy as np

from ..model.backends.contract import Model
from ..model.posterior import Posterior
from ..numerics.reference import reference_steps
from ..samplers import Sampler, advance, sampler
from ..target import log_density
from ..trace import empty_trace
from ..transport.composition import points_in_z
from .chain import Chain, KernelChain
from .draws import ChainResult, stacks
from .inits import Init
from .interrupts import interrupts
from .job import Job
from .progress import Progress
from .together import are_warm, learn_together, teach
from .workers.board import Board
from .workers.failures import raise_first
from .workers.turns import Blocks, blocks_of, chain_blas, make_chains, take_turns, watch

_FROZEN_KEY, _REFERENCE_KEY = 2**31 + 1, 2**31 + 2  # keys of random numbers; those of chains are smaller
_BLOCK_SECONDS = 0.05
_TUNED_ON = 50  # draws on which the reference kernel tunes its step
_TUNED_FOR = 0.8  # least acceptance of a step: short steps tell as much, and corners reject long ones
_HALVINGS = 40


class Frozen(NamedTuple):
    """A chain as it is after its warm-up."""

    state: Any  # the sampler's State, in the chain's coordinates
    transport: np.ndarray  # the map of these coordinates


class Moves(NamedTuple):
    """Where the frozen kernel has led from k starts of each of C chains."""

    ends: np.ndarray  # (C, k, d)
    moved: float  # share of the iterations whose proposal was accepted
    evaluations: float  # mean number of evaluations of the density, or its gradient, in an iteration


class ReferenceSteps(NamedTuple):
    """Two proposals of the reference kernel from each of m draws of each of C chains."""

    proposals: np.ndarray  # (C, m, 2, d)
    logp: np.ndarray  # (C, m, 3) at the draw and at the proposals
    accept: np.ndarray  # (C, m, 2) their acceptance probabilities
    step: float  # length of a step


class Yardstick(NamedTuple):
    """The scales of the target that the reference kernel uses; see numerics/reference.py."""

    scale: np.ndarray  # (d,)
    root: np.ndarray  # (d, d), or (0, 0)


def warm_up_again(
    posterior: Posterior, job: Job, inits: list[Init], indices: Sequence[int], workers: int, progress: bool
) -> tuple[list[Frozen], list[ChainResult]]:
    """Repeat the warm-up of the chains `indices`. Returns them after it, and their results, one draw each.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        A signal came meanwhile.
    InitializationError
        A chain found no starting point.
    """
    job = job._replace(draws=job.thin, save_warmup=False, keep_unconstrained=False)
    board = Board.for_chains(job.chains)
    draws, _ = stacks(job, posterior, job.chains)
    all_of_them = range(job.chains) if learn_together(job) else indices
    rooms, nothing = [draws.chain(k) for k in all_of_them], [None] * len(all_of_them)
    starts = {i: inits[i] for i in all_of_them}
    made = make_chains(posterior, job, starts, board, rooms, list(nothing), list(nothing))
    chains = cast(list[KernelChain], made)
    values = [chain.value for chain in chains]
    while learn_together(job) and not are_warm(values):
        for chain in chains:
            chain.goal = 0
        _work(posterior, blocks_of(cast(list[Chain], chains)), board, job, workers, progress)
        with chain_blas(job, posterior.model):
            teach(job, values, posterior.model)
    chains = [chain for chain in chains if chain.index in indices]
    for chain in chains:
        chain.goal = chain.draws.rows
    _work(posterior, blocks_of(cast(list[Chain], chains)), board, job, workers, progress)
    frozen = [Frozen(chain.value.state, chain.value.transport) for chain in chains]
    return frozen, [chain.result() for chain in chains]


def run_on(
    posterior: Posterior,
    job: Job,
    frozen: Sequence[Frozen],
    starts: np.ndarray,
    iterations: int,
    seed: int,
    workers: int,
    progress: bool,
) -> Moves:
    """Run each chain's frozen kernel for `iterations` iterations from each of its `starts` (C, k, d)."""
    method = cast(Sampler, sampler(job.method))
    ends, moves, evaluations = np.empty_like(starts), np.zeros(len(starts)), np.zeros(len(starts))
    job = job._replace(chains=len(starts), warmup=0, draws=starts.shape[1] * iterations)
    board = Board.for_chains(len(starts))

    def chain(i: int) -> Iterator[None]:
        seeds = np.random.SeedSequence(seed, spawn_key=(_FROZEN_KEY, i))
        rng, model = np.random.default_rng(seeds), posterior.model.for_chain(i, seeds.spawn(1)[0])
        state, transport = frozen[i]
        target = model.target()._replace(transport=transport)
        trace = empty_trace(iterations, posterior.dim, len(method.FACTS.columns))
        began = time.perf_counter()
        for k, z in enumerate(points_in_z(transport, starts[i])):
            at = method.move(target, job.settings, state, z, None)
            advance(method, target, job.settings, at, rng, False, trace)
            model.raise_pending()
            ends[i, k] = trace.x[-1]
            moves[i] += trace.accepted.mean()
            evaluations[i] += trace.n_steps.mean()
            if time.perf_counter() - began >= _BLOCK_SECONDS:
                board.post(i, (k + 1) * iterations, 1.0, trace.accept_prob.mean(), trace.step_size[-1], 0.0)
                yield
                began = time.perf_counter()

    _work(posterior, deque((i, chain(i)) for i in range(len(starts))), board, job, workers, progress)
    count = starts.shape[0] * starts.shape[1]
    return Moves(ends, float(moves.sum()) / count, float(evaluations.sum()) / count)


def step_from(
    posterior: Posterior,
    job: Job,
    points: np.ndarray,
    yardstick: Yardstick,
    seed: int,
    workers: int,
    progress: bool,
) -> ReferenceSteps:
    """Two proposals of the reference kernel from every one of the draws (C, m, d)."""
    chains, m, d = points.shape
    job = job._replace(chains=chains, warmup=0, draws=m)
    out = np.empty((chains, m, 2, d)), np.empty((chains, m, 3)), np.empty((chains, m, 2))
    board = Board.for_chains(chains)
    step = _tune(posterior, points, yardstick, seed)

    def chain(i: int) -> Iterator[None]:
        seeds = np.random.SeedSequence(seed, spawn_key=(_REFERENCE_KEY, i))
        rng, model = np.random.default_rng(seeds), posterior.model.for_chain(i, seeds.spawn(1)[0])
        first, size = 0, 1
        while first < m:
            rows, began = slice(first, first + size), time.perf_counter()
            _step(model, points[i, rows], yardstick, step, rng, *(array[i, rows] for array in out))
            spent, first = time.perf_counter() - began, min(m, first + size)
            board.post(i, first, 1.0, out[2][i, rows].mean(), step, 0.0)
            yield
            size = int(np.clip(size * _BLOCK_SECONDS / max(spent, 1e-9), 1, 10 * size))

    _work(posterior, deque((i, chain(i)) for i in range(chains)), board, job, workers, progress)
    return ReferenceSteps(*out, step)


def _step(
    model: Model,
    points: np.ndarray,
    yardstick: Yardstick,
    step: float,
    rng: np.random.Generator,
    *out: np.ndarray,
) -> None:
    target, (scale, root) = model.target(), yardstick
    reference_steps(target, np.ascontiguousarray(points), scale, root, step, model.has_gradient, rng, *out)
    model.raise_pending()


def _tune(posterior: Posterior, points: np.ndarray, yardstick: Yardstick, seed: int) -> float:
    """The longest of the steps 1, 2^-½, 1/2, ... whose proposals are accepted often enough."""
    flat = points.reshape(-1, points.shape[2])
    some = flat[np.linspace(0, len(flat) - 1, min(_TUNED_ON, len(flat))).astype(int)]
    n, d = some.shape
    room = np.empty((n, 2, d)), np.empty((n, 3)), np.empty((n, 2))
    step = 1.0
    for k in range(_HALVINGS):
        step = 2.0 ** (-k / 2)
        seeds = np.random.SeedSequence(seed, spawn_key=(_REFERENCE_KEY,))
        _step(posterior.model, some, yardstick, step, np.random.default_rng(seeds), *room)
        if room[2].mean() >= _TUNED_FOR:
            break
    return step


def log_densities(posterior: Posterior, points: np.ndarray) -> np.ndarray:
    """Log densities (...) at points (..., d)."""
    target, flat = posterior.model.target(), points.reshape(-1, posterior.dim)
    logp = np.array([log_density(target, x) for x in flat])
    posterior.model.raise_pending()
    return logp.reshape(points.shape[:-1])


def _work(
    posterior: Posterior, waiting: Blocks, board: Board, job: Job, workers: int, progress: bool
) -> None:
    """Run all blocks in threads, or in one thread if the model is not safe for several.

    After a signal the threads stop at the end of their blocks, and the exception of the signal is raised.
    """
    workers = min(workers, len(waiting)) if posterior.model.thread_safe else 1
    pool = ThreadPoolExecutor(workers, thread_name_prefix="stanadapt")
    with interrupts(board) as caught, chain_blas(job, posterior.model), Progress(job, progress) as look:
        try:
            futures = [pool.submit(take_turns, waiting, board) for _ in range(workers)]
            watch(futures, board, look)
        except BaseException:
            board.stop()
            raise
        finally:
            pool.shutdown(wait=False)
    caught.raise_again()
    raise_first([failure for future in futures if (failure := future.result())], in_processes=False)
