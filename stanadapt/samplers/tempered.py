"""Parallel tempering along a path that is learnt, with trajectories of Fisher HMC on every rung.

For posteriors with several modes, which a single chain does not leave. A chain here is a set of replicas, one
on each rung of a path from a broad reference to the posterior and on to a fitted reference. Neighbours are
exchanged, so that draws of the references, which are independent, travel to the posterior.

Syed, Bouchard-Côté, Deligiannidis and Doucet (2022), Non-reversible parallel tempering: a scalable highly
parallel MCMC scheme, J. R. Stat. Soc. B 84, Algorithms 1 and 4; references on two legs, one of them fitted:
Surjanovic, Syed, Bouchard-Côté and Campbell (2022), Parallel tempering with a variational reference.

    paper       here                     shape     meaning
    pi_beta     weights                  (K, 3)    exponents of both references and of the posterior, by rung
    pi_0, pi_1  cold                     ()        the rung of the posterior; the references are at both ends
    x^j         replicas.points          (K, d)    where the replica on rung j is
    r^(j, j+1)  counts.refused / tried    (K - 1,)  rate at which exchanges between neighbours are refused
    Lambda      barrier                  (2,)      the sum of these rates on a leg
    N           settings.rungs           ()        number of rungs; by default about 2 Lambda + 1 on each leg
    c_j         constants                (K - 1,)  log ratio of the integrals of neighbours, to begin with

A scan moves every replica by one trajectory (numerics/trajectory.py), and one on a reference's rung to a new
draw of it. Then pairs of neighbours are exchanged: (0, 1), (2, 3), ... after even scans, (1, 2), (3, 4),
... after odd ones. This is what makes replicas keep their direction ("non-reversible").

Warm-up is in rounds, each twice as long as the one before. Between rounds the chain learns
  - the schedule, from the rates of refusals (numerics/tempering.py), and the number of rungs,
  - the metric of each rung from its draws and scores, relative to the middle of the mode that a draw is at,
  - the fitted reference: weights, middles and scales of its components, from draws of the posterior's rung.
    Draws that components explain least are the starts of climbs to modes that are not known yet.
Before the run a search looks for modes, which all chains begin with. The pilot learns the coordinates z.

Departures from the papers:
1. References are Student t laws or mixtures of them, not normal. On each leg is the posterior once.
2. Ratios of integrals are Bennett's, not means of one side (numerics/tempering.py).
3. A leg has as many rungs as its barrier asks for.

With another `kernel` replicas move otherwise (numerics/rung_kernels.py), or without gradients. Results have
of every iteration the replica that is on the posterior's rung, `replica`; whether it has come there from a
reference since it was there before, `restarted`; and the rung that replica 0 is on, `rung`.

Cost of an iteration: a trajectory on every rung, 2 K gradients where all is learnt, O(K M d²) with M modes.
Memory: two (d, d) arrays a rung, up to d = 100.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target
from ..numerics import tempering
from ..numerics.energy import HARMLESS_SHARE
from ..numerics.metric import Metric
from ..numerics.mixtures import Mixture, component_of, draw_mixture, mixture
from ..numerics.networks import overwrite, overwrite_rows
from ..numerics.replicas import (
    Notes,
    Replicas,
    ScanCounts,
    come_from,
    copy_for_sweep,
    count_terms,
    count_visit,
    empty_notes,
    exchange,
    no_counts,
    note_points,
    note_strange,
    open_batch,
    replicas_at,
    rung_of,
)
from ..numerics.rung_kernels import (
    KERNELS,
    WALK,
    ScanRoom,
    end_searches,
    most_steps,
    move_on_rung,
    scan_room,
    search_step_size,
)
from ..numerics.step_size import dual_averaging
from ..numerics.tempering import BROAD, POSTERIOR, Rung, evaluate_at, height_of_rung, slope_of_rung
from ..trace import Info, Trace, record
from . import tempering_references, tempering_rounds
from .base import ALWAYS, HAMILTONIAN, TRAJECTORY_COLUMNS, Facts
from .settings import NOT_NEGATIVE, PROBABILITY, SCALE, Choice, Limit


class Settings(NamedTuple):
    kernel: Annotated[str, Choice(KERNELS), "how replicas move on their rungs"] = "fisher_hmc"
    rungs: Annotated[int | None, Limit(1, 500), "rungs of the path in all; none: by the barrier"] = None
    most_rungs: Annotated[int, Limit(3, 500), "most rungs, where their number is learnt"] = 65
    search: Annotated[int, Limit(0, 10_000_000), "evaluations a chain of the search for modes"] = 40_000
    heat: Annotated[float, Limit(1.0, 1e6), "scale of the broad reference, as a multiple of all modes'"] = 3.0
    reach: Annotated[float, SCALE, "least scale of the broad reference, by coordinate"] = 10.0
    degrees: Annotated[float, Limit(2.5, 1e12), "degrees of freedom of the fitted reference"] = 30.0
    trajectory: Annotated[float, SCALE, "T: length of a trajectory where the target is a Gaussian"] = 1.9
    stretch: Annotated[float, Limit(0.0, 2.0), "exponent by which short steps prolong trajectories"] = 0.5
    jitter: Annotated[float, Limit(0.0, 0.99), "share by which step sizes vary at random"] = 0.1
    n_leapfrog: Annotated[int, Limit(1, 100_000), "steps of a trajectory with the kernel hmc"] = 10
    target_accept: Annotated[
        float | None, PROBABILITY, "acceptance rate that step sizes aim at; None: the best of the kernel"
    ] = None
    max_steps: Annotated[int, Limit(1, 100_000), "largest number of steps of a trajectory, or a walk"] = 32
    pilot: Annotated[int, NOT_NEGATIVE, "first iterations, of Fisher HMC; by default a quarter at most"] = 200


FACTS = Facts(
    module=__name__,
    family=HAMILTONIAN,
    needs="gradients, on every rung",
    learns=("path", "references", "metrics", "step sizes"),
    warmup=600,
    draws=1_000,
    gradient=True,
    gradient_free=(("kernel", "arwmh"), ("pilot", 0), ("search", 0)),
    climbs=ALWAYS,
    columns=(*TRAJECTORY_COLUMNS, ("replica", np.int32), ("restarted", np.bool_), ("rung", np.int32)),
    harmless_divergences=HARMLESS_SHARE,
    leapfrogs=2.0,
    outcomes="tempering",
    dims=tempering_rounds.OUTCOME_DIMS,
)


class State(NamedTuple):
    x: np.ndarray  # (d,) where the posterior's replica is
    logp: float
    replicas: Replicas
    counts: ScanCounts
    step_sizes: np.ndarray  # (K,)
    searches: np.ndarray  # (K, 4) for the step sizes
    frozen: bool
    weights: np.ndarray  # (K, 3) from here on, sweeps change nothing
    cold: int
    broad: Mixture
    fitted: Mixture
    metrics: Metric  # of all rungs: its matrices are (K, d, d), or (K, 0, 0) where metrics are diagonal
    most: int  # largest number of steps of a trajectory
    constants: np.ndarray  # (K - 1,)
    notes: Notes
    known: np.ndarray  # (k, d) modes that were found before the run, until the first round
    seed: int  # of random numbers in plain Python
    gradients: float  # that the search for modes has taken
    sloped: bool  # whether the kernel needs gradients


FIRST_RUNGS = 6  # of each leg, without the posterior's

n_matrices, stages, move = tempering_rounds.n_matrices, tempering_rounds.stages, tempering_rounds.move
take_over, explore, history = tempering_rounds.take_over, tempering_rounds.explore, tempering_rounds.history
learnt, outcome = tempering_rounds.learnt, tempering_rounds.outcome
count_evaluations, find_modes = tempering_references.count_evaluations, tempering_references.find_modes


def start(target: Target, settings: Any, x: np.ndarray, rng: Generator) -> State:
    """The state at `x` (d,): all replicas are there, and both references are around it."""
    d = x.size
    unit = np.eye(d) if d <= tempering_references.LARGEST_DENSE else np.ones((1, d))
    n = (settings.rungs - 1) // 2 if settings.rungs else FIRST_RUNGS
    rest = settings.rungs - 1 - n if settings.rungs else n
    weights = tempering.path_weights(tempering.first_betas(n), tempering.first_betas(rest))
    k = len(weights)
    state = State(
        x=x.copy(),
        logp=-np.inf,
        replicas=replicas_at(np.repeat(x[None], k, axis=0)),
        weights=weights,
        cold=n,
        broad=mixture(np.zeros(1), x[None], np.full((1, 1, d), 0.5), tempering_references.BROAD_DEGREES),
        fitted=mixture(np.zeros(1), x[None], unit[None], settings.degrees),
        metrics=Metric(
            np.empty((k, 0, 0)), np.empty((k, 0, 0)), np.ones((k, d)), np.empty((0, d)), np.empty(0)
        ),
        step_sizes=np.ones(k),
        searches=np.array([dual_averaging(1.0)] * k),
        most=4,
        constants=np.zeros(k - 1),
        counts=no_counts(k, 1),
        notes=empty_notes(k, d, tempering_rounds.rows_of(d)),
        frozen=False,
        known=np.empty((0, d)),
        seed=int(rng.integers(2**31)),
        gradients=0.0,
        sloped=settings.kernel != WALK,
    )
    found: State = tempering_rounds.evaluate_all(target, tempering_rounds.with_first_metrics(state, unit))
    return found


@kernel(counted=False, copied=False)
def step(target: Target, settings: Any, state: State, adapting: Flag, work: ScanRoom, rng: Generator) -> Info:
    """One scan: every replica moves, then neighbours are exchanged. All arrays of the state change in place.

    Returns the report on the posterior's rung, with the evaluations on all rungs.
    """
    weights, replicas, counts, cold = state.weights, state.replicas, state.counts, state.cold
    d, taken, info = state.x.size, 0, Info(1.0, True, 1.0, 0, (0.0, 0.0, 0.0))
    metrics, places = state.metrics, (work.heights, work.slopes, work.away, work.white, state.sloped)
    for j in range(len(weights)):
        rung = Rung(target, state.broad, state.fitted, weights[j], *places)
        accepted, failed = True, target.failures.total[0]
        if weights[j, POSTERIOR] == 0.0:
            draw_mixture(state.broad if weights[j, BROAD] > 0.0 else state.fitted, replicas.points[j], rng)
            evaluate_at(rung, replicas.points[j])
            taken += 1
        else:
            matrices = metrics.inverse_mass[j], metrics.chol_t[j], metrics.scale[j]
            metric = Metric(*matrices, metrics.directions, metrics.variances)
            slope_of_rung(weights[j], replicas.slopes[j], work.score)
            height, point = height_of_rung(weights[j], replicas.heights[j]), replicas.points[j]
            longer, here = 1 if adapting else d, (point, work.score, height, state.step_sizes[j])
            most = most_steps(settings, state.most, state.step_sizes[cold], j == cold)
            own = move_on_rung(rung, settings, metric, *here, most, longer, work.room, rng, work.report)
            taken, accepted = taken + own.n_steps, own.accepted
            if adapting:
                before, rate = state.step_sizes[j], own.accept_prob
                state.step_sizes[j] = search_step_size(
                    settings, state.searches[j], before, rate, work.longest
                )
            if j == cold:
                info, failed = own, target.failures.total[0]
        target.failures.total[0] = failed  # far out, on the other rungs, a density may overflow
        if accepted:
            overwrite(replicas.heights[j], work.heights)
            overwrite_rows(replicas.slopes[j], work.slopes)
    batch = open_batch(counts)
    count_terms(weights, state.constants, replicas.heights, counts, batch)
    exchange(weights, replicas, counts, rng)
    restarted = come_from(weights, cold, replicas, counts)
    mode = component_of(state.fitted, replicas.points[cold], work.away, work.white)
    count_visit(counts, batch, mode, replicas.names[cold], restarted)
    if adapting:
        note_strange(state.notes, state.fitted, cold, replicas, work.away, work.white)
        note_points(state.notes, counts.clock[0] - 1, weights, replicas)
    reported: Any = info.own
    name, rung_of_0 = 1.0 * replicas.names[cold], 1.0 * rung_of(replicas, 0)
    columns = (reported[0], reported[1], reported[2], name, restarted, rung_of_0)
    return Info(info.accept_prob, info.accepted, state.step_sizes[cold], taken, columns)


@kernel
def scans(
    target: Target, settings: Any, state: State, work: ScanRoom, rng: Generator, adapting: Flag, trace: Trace
) -> None:
    """Run one scan for every row of `trace`. All arrays of the state change in place."""
    for i in range(trace.logp.size):
        info = step(target, settings, state, adapting, work, rng)
        overwrite(state.x, state.replicas.points[state.cold])
        record(trace, i, state.x, state.replicas.heights[state.cold, POSTERIOR], info)


def sweep(target: Target, settings: Any, state: State, rng: Generator, adapting: bool, trace: Trace) -> State:
    """Run one scan for every row of `trace`."""
    begins = not adapting and not state.frozen
    replicas, counts = copy_for_sweep(state.replicas, state.counts, begins)
    searches, step_sizes = state.searches.copy(), state.step_sizes.copy()
    if begins:
        end_searches(settings, searches, step_sizes)
    state = state._replace(x=state.x.copy(), replicas=replicas, counts=counts, frozen=not adapting)
    state = state._replace(searches=searches, step_sizes=step_sizes)
    scans(target, settings, state, scan_room(settings, state.x.size), rng, adapting, trace)
    return state._replace(logp=float(replicas.heights[state.cold, POSTERIOR]))
