"""Evaluate the quantities of a model at given draws, in parallel.

Random numbers depend on the seed, the place of the chain and the place of the draw alone: not on the number
of workers, nor on the parts that the draws are cut into.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError, EvaluationError, warn
from ..model.backends.contract import CheckedWriter
from ..model.posterior import Posterior
from ..run.progress import Tally
from .saved_draws import ParameterDraws, SavedDraws

_SPAWN_KEY = 2**31 + 5  # of the random numbers; those of chains that sample have smaller keys
_PARTS = 100  # that the draws are cut into, unless these are many:
_MOST_ROWS = 2_000  # draws of a part
_CLOSE = 1e-6  # relative; Stan itself allows constrained values that were rounded in text 1e-8


class Generated(NamedTuple):
    """The values of a model at m chains of n draws."""

    values: np.ndarray  # (m, n, c) parameters, transformed parameters and generated quantities
    failed: np.ndarray  # (m, n) where quantities failed, whose values are NaN


class _Part(NamedTuple):
    chain: int
    rows: slice


def generate(
    posterior: Posterior, draws: ParameterDraws, saved: SavedDraws, seed: int, workers: int, progress: bool
) -> Generated:
    """Evaluate all quantities at the draws; warn where some fail.

    Raises
    ------
    ArgumentError
        Draws are outside the support of the model's parameters.
    EvaluationError
        Quantities fail at every draw.
    """
    m, n, _ = draws.flat.shape
    made = Generated(np.empty((m, n, posterior.n_values)), np.zeros((m, n), np.bool_))
    refused = np.zeros((m, n), np.bool_)
    seeds = [chain_seed(seed, chain) for chain in range(m)]
    waiting: queue.SimpleQueue[_Part] = queue.SimpleQueue()
    parts = list(_parts(m, n))
    for part in parts:
        waiting.put(part)
    stopped = threading.Event()
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work(model: Any) -> None:
        writers: dict[int, CheckedWriter] = {}
        while not stopped.is_set():
            try:
                chain, rows = waiting.get_nowait()
            except queue.Empty:
                return
            if chain not in writers:
                writers[chain] = model.checked_writer(seeds[chain])
            x = None if draws.x is None else draws.x[chain, rows]
            places = np.arange(rows.start, rows.stop)
            given, out = draws.flat[chain, rows], made.values[chain, rows]
            failed, outside = _evaluate(model, writers[chain], given, x, places, out)
            made.failed[chain, rows], refused[chain, rows] = failed, outside
            done.put(None)

    model = posterior.model
    count = min(workers, len(parts)) if model.thread_safe else 1
    models = [model.for_chain(i, np.random.SeedSequence(seed)) for i in range(count)]
    with Tally("generate_quantities", len(parts), progress) as tally:
        _run(work, models, done, len(parts), stopped, tally)
    if refused.any():
        raise _outside(posterior, draws, saved, refused)
    _tell_failures(posterior, draws, saved, made, seeds)
    return made


def chain_seed(seed: int, chain: int) -> int:
    """The seed of the quantities of a chain, by its place."""
    spawned = np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY, chain))
    return int(spawned.generate_state(1, np.uint64)[0])


def _parts(m: int, n: int) -> Iterator[_Part]:
    """Parts of the draws; all but the last one of each chain are of one length."""
    size = max(1, min(_MOST_ROWS, -(-m * n // _PARTS)))
    for chain in range(m):
        for first in range(0, n, size):
            yield _Part(chain, slice(first, min(first + size, n)))


def _run(
    work: Any,
    models: list[Any],
    done: queue.SimpleQueue[None],
    parts: int,
    stopped: threading.Event,
    tally: Tally,
) -> None:
    """Run the work with each model in a thread of its own; a signal stops it after the present parts."""
    with ThreadPoolExecutor(len(models)) as pool:
        try:
            futures = [pool.submit(work, model) for model in models]
            counted = 0
            while counted < parts and not any(future.done() and future.exception() for future in futures):
                try:
                    done.get(timeout=0.1)
                except queue.Empty:
                    continue
                counted += 1
                tally.count()
            for future in futures:
                future.result()
        finally:
            stopped.set()


def _evaluate(
    model: Any,
    write: CheckedWriter,
    flat: np.ndarray,
    x: np.ndarray | None,
    places: np.ndarray,
    out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Write the values at parameters `flat` (k, p) to `out` (k, c): which rows failed, and which are outside.

    Unconstrained points `x` that were kept are used where the model makes the same parameters of them. Points
    that are found from the parameters must give them back as well. The parameters in `out` are those that
    were given, not those that rounding makes of them.
    """
    p = flat.shape[1]
    is_kept = x is not None
    x = model.unconstrain_rows(flat) if x is None else x
    failed = write(x, out, places)
    outside = _is_other(x, out[:, :p], flat, failed)
    if is_kept and outside.any():
        rest, points = np.empty((int(outside.sum()), out.shape[1])), model.unconstrain_rows(flat[outside])
        again = write(points, rest, places[outside])
        other = _is_other(points, rest[:, :p], flat[outside], again)
        out[outside], failed[outside] = rest, again
        outside[outside] = other
    out[:, :p] = flat
    return failed, outside


def _is_other(x: np.ndarray, values: np.ndarray, given: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """Which points `x` (k, d) are none, or have other parameters `values` than those given, up to rounding.

    Where quantities failed, a backend may give no parameters either, and says nothing about these.
    """
    same = (values == given) | (np.abs(values - given) <= _CLOSE * (1.0 + np.abs(given)))
    is_silent = failed & np.isnan(values).all(axis=1)
    return np.asarray(np.isnan(x).any(axis=1) | ~(same.all(axis=1) | is_silent))


def _outside(
    posterior: Posterior, draws: ParameterDraws, saved: SavedDraws, refused: np.ndarray
) -> ArgumentError:
    """The error for draws that the model does not take."""
    place, where = _first(refused, saved)
    reason = "the model gives other values back for them"
    try:
        posterior.model.unconstrain_flat(draws.flat[place])
    except RuntimeError as error:
        reason = check.one_line(error)
    if not np.isfinite(draws.flat[place]).all():
        reason = "it has values that are not finite"
    return ArgumentError(
        f"result has {refused.sum()} of {refused.size} draws that the model does not take as values of its "
        f"parameters, the first at {where}: {reason}. Either they are draws of other parameters, or they "
        "were rounded: to a boundary, for which keep_unconstrained=True helps, or in text (CmdStan: "
        "sig_figs=18)"
    )


def _first(marked: np.ndarray, saved: SavedDraws) -> tuple[tuple[int, int], str]:
    """The first draw that is marked: its place, and in words."""
    chain, draw = (int(i) for i in np.argwhere(marked)[0])
    return (chain, draw), f"chain {saved.chains[chain]}, draw {saved.draws[draw]}"


def _tell_failures(
    posterior: Posterior, draws: ParameterDraws, saved: SavedDraws, made: Generated, seeds: list[int]
) -> None:
    """Warn of draws at which quantities failed, and of NaN that the program itself computes."""
    count = int(made.failed.sum())
    if count:
        (chain, draw), where = _first(made.failed, saved)
        point = draws.x[chain, draw] if draws.x is not None else None
        if point is None:
            point = posterior.model.unconstrain_rows(draws.flat[chain, draw : draw + 1])[0]
        reason = posterior.model.refusal(point, seeds[chain], draw) or "the model gives no reason"
        if count == made.failed.size:
            raise EvaluationError(f"the model's quantities fail at every draw; at {where}: {reason}")
        warn(
            f"the model's quantities fail at {count} of {made.failed.size} draws, where they are NaN; the "
            f"first is {where}: {reason}"
        )
    is_nan = np.isnan(made.values)
    if not is_nan.any():
        return
    computed = []
    for name, variable in (posterior.transformed_parameters | posterior.generated_quantities).items():
        entries = variable.take(is_nan).reshape(*made.failed.shape, -1).any(axis=-1)
        if rows := int((entries & ~made.failed).sum()):
            computed.append(f"{name} at {rows} draws")
    if computed:
        some = ", ".join(computed[:5]) + (", ..." if len(computed) > 5 else "")
        warn(f"the program computes NaN, or leaves values unset: {some}")
