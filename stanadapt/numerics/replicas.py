"""Replicas on the rungs of a path: where they are, how they are exchanged, and what is counted.

The log densities and gradients of both references and of the posterior are kept for each replica
(tempering.py), so that an exchange needs no evaluation. What moves them is in rung_kernels.py.

A tour of a replica begins when it comes from a reference to the posterior, and ends when it does so again.
Since draws of references are independent, tours hardly depend on each other, however long a replica stays in
a mode and comes back to the posterior from there. They are what the errors of weights are estimated from:
Mykland, Tierney and Yu (1995), Regeneration in Markov chain samplers, J. Am. Stat. Assoc. 90.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Vector
from .metropolis import accept_probability
from .mixtures import Mixture, highest_normal
from .networks import overwrite
from .random_numbers import draw_uniform
from .tempering import BATCHES, POSTERIOR, log_add, log_logistic, slope_of_rung, step_up

STRANGE = 8  # points of a rung that are kept since known modes explain them least


class Replicas(NamedTuple):
    """The replicas, by the rungs that they are on."""

    points: np.ndarray  # (K, d)
    heights: np.ndarray  # (K, 3) log densities of both references and of the posterior there
    slopes: np.ndarray  # (K, 3, d) their gradients
    names: np.ndarray  # (K,) numbers of the replicas
    origins: np.ndarray  # (K,) the reference where it was since it was at the posterior: 1, 2, or 0 for none


class ScanCounts(NamedTuple):
    """What scans have shown since the round, or the draws, began."""

    refused: np.ndarray  # (K - 1,) sum of the probabilities
    tried: np.ndarray  # (K - 1,)
    log_sums: np.ndarray  # (B, K - 1, 2) logs of sums of both sides' logistic terms (tempering.py), by batch
    visits: np.ndarray  # (B, M) scans in which the posterior's replica was at a mode
    trips: np.ndarray  # (2,) replicas that came from either reference to the posterior
    clock: np.ndarray  # (3,) scans; scans of a batch; scans in all, whose parity says which pairs are next
    tours: np.ndarray  # (K, M) scans at each mode in the present tour of each replica, by its name
    squares: np.ndarray  # (3, M) of the tours that have ended, as `squares_of_tours` has them


class Notes(NamedTuple):
    """Points and scores by rung, from which metrics are learnt; where room ends, every second one goes.

    Beside them the strangest points of each rung, of all scans.
    """

    points: np.ndarray  # (K, W, d)
    scores: np.ndarray  # (K, W, d)
    clock: np.ndarray  # (2,) rows in use; scans from one to the next
    strange: np.ndarray  # (K, S, d) those that lie highest above the known modes
    excess: np.ndarray  # (K, S) how high, in nats up to a constant; -inf where there is none


def replicas_at(points: np.ndarray) -> Replicas:
    """Replicas at points (K, d) that have not been evaluated yet."""
    k, d = points.shape
    return Replicas(points, np.zeros((k, 3)), np.zeros((k, 3, d)), np.arange(k), np.zeros(k, np.int64))


def no_counts(k: int, modes: int, parity: int = 0) -> ScanCounts:
    """Nothing is counted for `k` rungs and so many modes; `parity` says which pairs are next."""
    clock = np.array([0, 1, parity], np.int64)
    sums, visits = np.full((BATCHES, k - 1, 2), -np.inf), np.zeros((BATCHES, modes))
    edges, trips = (np.zeros(k - 1), np.zeros(k - 1)), np.zeros(2, np.int64)
    return ScanCounts(*edges, sums, visits, trips, clock, np.zeros((k, modes)), np.zeros((3, modes)))


def empty_notes(k: int, d: int, rows: int) -> Notes:
    """Room for so many rows of each rung."""
    strange, excess = np.empty((k, STRANGE, d)), np.full((k, STRANGE), -np.inf)
    return Notes(np.empty((k, rows, d)), np.empty((k, rows, d)), np.array([0, 1], np.int64), strange, excess)


def copy_for_sweep(replicas: Replicas, counts: ScanCounts, anew: bool) -> tuple[Replicas, ScanCounts]:
    """Copies that a sweep may change; if `anew`, nothing is counted yet, and replicas come from nowhere."""
    copies = Replicas._make(array.copy() for array in replicas)
    if not anew:
        return copies, ScanCounts._make(array.copy() for array in counts)
    copies.origins[:] = 0
    k, modes = counts.tours.shape
    return copies, no_counts(k, modes, int(counts.clock[2]))


@kernel(ordered=True, counted=False)
def come_from(weights: Any, cold: Any, replicas: Replicas, counts: ScanCounts) -> Any:
    """Note where replicas have been after exchanges.

    Returns 1.0 if the posterior's replica has come from a reference since it was at the posterior before.
    """
    origins, last = replicas.origins, len(weights) - 1
    if last > 0:
        if weights[0, POSTERIOR] == 0.0:
            origins[0] = 1
        if weights[last, POSTERIOR] == 0.0:
            origins[last] = 2
    origin = origins[cold]
    if origin == 0:
        return 0.0
    counts.trips[origin - 1] += 1
    origins[cold] = 0
    return 1.0


@kernel(ordered=True, counted=False)
def rung_of(replicas: Replicas, name: Any) -> Any:
    """The rung that the replica `name` is on."""
    rung = 0
    while replicas.names[rung] != name:
        rung += 1
    return rung


@kernel(ordered=True, counted=False)
def exchange(weights: Any, replicas: Replicas, counts: ScanCounts, rng: Generator) -> None:
    """One round of exchanges, between the pairs whose turn it is; all arrays change in place."""
    points, heights, slopes, names, origins = replicas
    for j in range(counts.clock[2] % 2, len(weights) - 1, 2):
        ratio = step_up(weights, j, heights[j]) - step_up(weights, j, heights[j + 1])
        accept_prob = accept_probability(ratio)
        counts.refused[j] += 1.0 - accept_prob
        counts.tried[j] += 1.0
        if draw_uniform(rng) < accept_prob:
            names[j], names[j + 1] = names[j + 1], names[j]
            origins[j], origins[j + 1] = origins[j + 1], origins[j]
            for i in range(points.shape[1]):
                points[j, i], points[j + 1, i] = points[j + 1, i], points[j, i]
            for part in range(3):
                heights[j, part], heights[j + 1, part] = heights[j + 1, part], heights[j, part]
                for i in range(points.shape[1]):
                    above = slopes[j + 1, part, i]
                    slopes[j + 1, part, i] = slopes[j, part, i]
                    slopes[j, part, i] = above
    counts.clock[2] += 1


@kernel(ordered=True, counted=False)
def count_terms(weights: Any, constants: Vector, heights: Any, counts: ScanCounts, batch: Any) -> None:
    """Add the logistic terms of all neighbours to a batch, for the ratios of their integrals."""
    for j in range(len(constants)):
        sums = counts.log_sums[batch, j]
        sums[0] = log_add(sums[0], log_logistic(step_up(weights, j, heights[j]) - constants[j]))
        sums[1] = log_add(sums[1], log_logistic(constants[j] - step_up(weights, j, heights[j + 1])))


@kernel(ordered=True, counted=False)
def open_batch(counts: ScanCounts) -> Any:
    """The batch that the present scan belongs to. Where none is left, two of them become one."""
    scans, length = counts.clock[0], counts.clock[1]
    if scans == BATCHES * length:
        _merge_batches(counts)
        counts.clock[1] = length = 2 * length
    counts.clock[0] += 1
    return scans // length


@kernel(ordered=True, counted=False, copied=False, seldom=True)
def _merge_batches(counts: ScanCounts) -> None:
    half = BATCHES // 2
    for b in range(BATCHES):
        for j in range(counts.log_sums.shape[1]):
            for side in range(2):
                pair = -np.inf
                if b < half:
                    pair = log_add(counts.log_sums[2 * b, j, side], counts.log_sums[2 * b + 1, j, side])
                counts.log_sums[b, j, side] = pair
        for m in range(counts.visits.shape[1]):
            both = counts.visits[2 * b, m] + counts.visits[2 * b + 1, m] if b < half else 0.0
            counts.visits[b, m] = both


@kernel(ordered=True, counted=False)
def count_visit(counts: ScanCounts, batch: Any, mode: Any, name: Any, restarted: Any) -> None:
    """Count a scan in which the replica `name` was at a mode on the posterior's rung.

    If it is `restarted`, a tour of it has ended before.
    """
    tour, squares = counts.tours[name], counts.squares
    if restarted > 0.0:
        length = 0.0
        for m in range(tour.size):
            length += tour[m]
        for m in range(tour.size):
            squares[0, m] += tour[m] * tour[m]
            squares[1, m] += tour[m] * length
            squares[2, m] += length * length
            tour[m] = 0.0
    counts.visits[batch, mode] += 1.0
    tour[mode] += 1.0


def squares_of_tours(tours: np.ndarray) -> np.ndarray:
    """Sums (3, M) over tours (n, M) of v², v l and l²: v are scans at a mode, and l those at all modes."""
    lengths = tours.sum(axis=1, keepdims=True)
    sums = [tours**2, tours * lengths, np.broadcast_to(lengths**2, tours.shape)]
    return np.asarray(np.stack(sums).sum(axis=1))


def weight_errors(counts: ScanCounts) -> np.ndarray:
    """Standard errors (M,) of the shares of scans at each mode."""
    return share_errors(counts.squares + squares_of_tours(counts.tours), counts.visits.sum(axis=0))


def share_errors(squares: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """Standard errors (M,) of the shares of `visits` (M,), from sums (3, M) over tours (`squares_of_tours`).

    A share is a ratio of sums over tours. With p for it and n for all scans, its variance is the sum of
    (v - p l)² / n² over tours, and larger by 1 / (1 - sum l² / n²), since p is estimated from the same tours.
    Where there was one tour there is no estimate.
    """
    own, cross, lengths = squares
    n, shares = visits.sum(), visits / visits.sum()
    with np.errstate(all="ignore"):
        variances = (own - 2.0 * shares * cross + shares**2 * lengths) / (n**2 - lengths)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


@kernel(ordered=True, counted=False, copied=False, seldom=True)
def note_points(notes: Notes, scan: Any, weights: Any, replicas: Replicas) -> None:
    """Note where the replicas are after `scan`, and the scores of their rungs."""
    used, stride = notes.clock[0], notes.clock[1]
    if scan % stride != stride - 1:
        return
    if used == notes.points.shape[1]:
        for j in range(len(weights)):
            for row in range(used // 2):
                overwrite(notes.points[j, row], notes.points[j, 2 * row + 1])
                overwrite(notes.scores[j, row], notes.scores[j, 2 * row + 1])
        used //= 2
        notes.clock[1] = 2 * stride
        notes.clock[0] = used
        if scan % (2 * stride) != 2 * stride - 1:
            return
    for j in range(len(weights)):
        overwrite(notes.points[j, used], replicas.points[j])
        slope_of_rung(weights[j], replicas.slopes[j], notes.scores[j, used])
    notes.clock[0] = used + 1


@kernel(ordered=True, counted=False, copied=False, seldom=True)
def note_strange(
    notes: Notes, known: Mixture, cold: Any, replicas: Replicas, away: Vector, white: Vector
) -> None:
    """Keep the replicas between the broad reference and the posterior that known modes explain least.

    A warm rung reaches a narrow mode for a few scans only, at a point that tells nothing by its height. But
    the log density there is above what the normal laws of all known modes would have.
    """
    for j in range(1, cold):
        excess = replicas.heights[j, POSTERIOR] - highest_normal(known, replicas.points[j], away, white)
        least = 0
        for row in range(1, STRANGE):
            if notes.excess[j, row] < notes.excess[j, least]:
                least = row
        if excess > notes.excess[j, least]:
            notes.excess[j, least] = excess
            overwrite(notes.strange[j, least], replicas.points[j])
