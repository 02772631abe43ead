"""What parallel tempering learns between its rounds: references, metrics, and the path. See tempered.py.

The chain's state is that of tempered.py; nothing here changes it in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kinds import Target
from ..numerics import tempering
from ..numerics.metric import Metric, learn_metric
from ..numerics.metric_choice import learn_diagonal
from ..numerics.mixtures import log_parts
from ..numerics.replicas import copy_for_sweep, empty_notes, no_counts, replicas_at, weight_errors
from ..numerics.step_size import dual_averaging
from ..numerics.tempering import POSTERIOR, Rung, evaluate_at
from ..transport.composition import into_x
from .base import Handover, Stage
from .tempering_references import (
    LARGEST_DENSE,
    begin_references,
    covariance_of,
    diagonal_of,
    first_reference,
    learn_references,
    shrunk_covariance,
)

_ROWS, _FEW_ROWS = 200, 60  # W, and beyond LARGEST_DENSE


OUTCOME_DIMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("weights", ("rung", "factor")),
    ("refusal_rate", ("neighbours",)),
    ("barrier", ("leg",)),
    ("round_trips", ("leg",)),
    ("log_integral_of_leg", ("leg",)),
    ("log_integral_error_of_leg", ("leg",)),
    ("mode", ("component", "unconstrained")),
    ("mode_scale", ("component", "unconstrained")),
    ("mode_weight", ("component",)),
    ("mode_weight_error", ("component",)),
)


def n_matrices(settings: Any) -> int:
    """Two for each rung, as far as their number is known before the run."""
    return 2 * int(settings.rungs or settings.most_rungs)


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """Rounds that double, the first of about a dozen scans."""
    count = max(1, int(np.log2(warmup / 12.0 + 1.0))) if warmup else 0
    lengths = [warmup * 2**i // (2**count - 1) for i in range(count - 1)]
    lengths = [*lengths, warmup - sum(lengths)] if count else []
    return [Stage(f"round_{i}", length) for i, length in enumerate(lengths, 1)]


def rows_of(d: int) -> int:
    """How many points of each rung are noted for its metric."""
    return _ROWS if d <= LARGEST_DENSE else _FEW_ROWS


def evaluate_rung(target: Target, state: Any, j: int) -> Rung:
    """Evaluate the replica on rung `j`, in place. Returns the rung, with all parts."""
    d, replicas = state.x.size, state.replicas
    work = np.empty(3), np.zeros((3, d)), np.empty(d), np.empty(d)
    rung = Rung(target, state.broad, state.fitted, state.weights[j], *work, state.sloped)
    evaluate_at(rung, replicas.points[j])
    replicas.heights[j], replicas.slopes[j] = rung.heights, rung.slopes
    return rung


def _metrics(inverse_mass: np.ndarray, chol_t: np.ndarray, scale: np.ndarray) -> Metric:
    """The metrics of all rungs together."""
    d = scale.shape[1]
    return Metric(inverse_mass, chol_t, scale, np.empty((0, d)), np.empty(0))


def evaluate_all(target: Target, state: Any) -> Any:
    """The state with the densities of all replicas; one on a rung where it has none moves to `state.x`."""
    replicas = state.replicas
    for j in range(len(state.weights)):
        rung = evaluate_rung(target, state, j)
        if rung.heights[POSTERIOR] == -np.inf and state.weights[j, POSTERIOR] > 0.0:
            replicas.points[j] = state.x
            evaluate_rung(target, state, j)
    logp = float(replicas.heights[state.cold, POSTERIOR])
    return state._replace(x=replicas.points[state.cold].copy(), logp=logp)


def take_over(state: Any, handover: Handover, settings: Any) -> Any:
    """Begin around the pilot's last draws, with its metric, and with the modes that are known."""
    fitted = first_reference(np.asarray(handover.cov), np.asarray(handover.mean), settings)
    return with_first_metrics(state._replace(fitted=fitted, known=handover.modes), fitted.roots[0])


def with_first_metrics(state: Any, root: np.ndarray) -> Any:
    """The state with the metrics that rungs would have, if the posterior were normal with this root.

    Products of normal densities add their inverse covariances.
    """
    d = state.x.size
    own = root[0] ** 2 if d > LARGEST_DENSE or root.shape[0] == 1 else root.T @ root
    broad = state.broad.roots[0, 0] ** 2
    metrics = []
    for a, b, beta in state.weights:
        precision = (b + beta) * own
        if precision.ndim == 1 and d <= LARGEST_DENSE:
            precision = np.diag(precision)
        metrics.append(precision + (a * broad if precision.ndim == 1 else np.diag(a * broad)))
    return _with_metrics(state, metrics)


def _with_metrics(state: Any, precisions: list[np.ndarray]) -> Any:
    """The state with metrics whose inverses are these (d, d), or (d,)."""
    d, k = state.x.size, len(precisions)
    if d > LARGEST_DENSE:
        none = np.empty((k, 0, 0))
        return state._replace(metrics=_metrics(none, none, np.array(precisions) ** -0.5))
    inverse_mass, chol_t = np.empty((k, d, d)), np.empty((k, d, d))
    for j, precision in enumerate(precisions):
        factor = np.linalg.cholesky(0.5 * (precision + precision.T))
        chol_t[j], inverse_mass[j] = factor.T, np.linalg.inv(precision)
    return state._replace(metrics=_metrics(inverse_mass, chol_t, np.ones((k, d))))


def move(target: Any, settings: Any, state: Any, x: np.ndarray, logp: float | None) -> Any:
    """The state with the posterior's replica at `x` (d,), in z; the other replicas stay where they are."""
    replicas, counts = copy_for_sweep(state.replicas, state.counts, False)
    replicas.points[state.cold] = x
    state = state._replace(x=x.copy(), replicas=replicas, counts=counts)
    rung = evaluate_rung(target, state, state.cold)
    return state._replace(logp=float(rung.heights[POSTERIOR]))


def explore(target: Any, stage: str, state: Any, settings: Any) -> Any:
    """What is learnt between rounds, with the density at hand."""
    if stage == "round_1":
        home = state.fitted
        state = begin_references(target, state, settings)
        counts = no_counts(len(state.weights), len(state.fitted.means))
        return evaluate_all(target, with_first_metrics(state._replace(counts=counts), home.roots[0]))
    state = _learn_metrics(state)
    state = learn_references(target, state, settings)
    state = _learn_path(state, settings)
    k = len(state.weights)
    return evaluate_all(target, state)._replace(
        searches=np.array([dual_averaging(step_size) for step_size in state.step_sizes]),
        most=min(2 * state.most, settings.max_steps),
        counts=no_counts(k, len(state.fitted.means), int(state.counts.clock[2]) % 2),
        notes=empty_notes(k, state.x.size, rows_of(state.x.size)),
    )


def _learn_metrics(state: Any) -> Any:
    """New metrics, from draws and scores of each rung in the round that has ended.

    A draw counts from the middle of its component, so that the distance between modes is in no metric.
    """
    notes, n, d = state.notes, int(state.notes.clock[0]), state.x.size
    inverse_mass, chol_t, scale = (array.copy() for array in state.metrics[:3])
    if n < 3:
        return state
    for j in range(len(state.weights)):
        if state.weights[j, POSTERIOR] == 0.0:
            continue
        points, scores = notes.points[j, :n], notes.scores[j, :n]
        points = points - state.fitted.means[log_parts(state.fitted, points).argmax(axis=1)]
        if not state.sloped:
            covariance = shrunk_covariance(inverse_mass[j] if d <= LARGEST_DENSE else scale[j] ** 2, points)
            if d > LARGEST_DENSE:
                scale[j] = np.sqrt(covariance)
            else:
                inverse_mass[j] = covariance
                chol_t[j] = np.linalg.cholesky(np.linalg.inv(covariance)).T
            continue
        if d > LARGEST_DENSE:
            found = learn_diagonal(points, scores)
            if found is not None and np.isfinite(found.scale).all() and (found.scale > 0.0).all():
                scale[j] = found.scale
            continue
        present = Metric(inverse_mass[j], chol_t[j], scale[j], np.empty((0, d)), np.empty(0))
        found = learn_metric(present, points, scores)
        if found is not None:
            inverse_mass[j], chol_t[j] = found.inverse_mass, found.chol_t
    return state._replace(metrics=_metrics(inverse_mass, chol_t, scale))


def _learn_path(state: Any, settings: Any) -> Any:
    """A schedule with equal rates of refusals, and as many rungs as it needs."""
    counts, cold = state.counts, state.cold
    k = len(state.weights)
    if k == 1:
        return state
    rates = counts.refused / np.maximum(counts.tried, 1.0)
    constants = np.nan_to_num(tempering.log_ratios(state.constants, counts.log_sums), posinf=0.0, neginf=0.0)
    broad, fitted = tempering.betas_of(state.weights, cold)
    sides = ((broad, rates[:cold]), (fitted, rates[cold:][::-1]))
    numbers = [len(betas) - 1 for betas, _ in sides]
    if not settings.rungs:
        lambdas = [tempering.barrier(own) for _, own in sides]
        numbers = tempering.count_rungs(lambdas, settings.most_rungs - 1)
    legs = [
        tempering.spread_betas(betas, own, n) if len(own) else betas
        for (betas, own), n in zip(sides, numbers, strict=True)
    ]
    weights = tempering.path_weights(*legs)
    where = _nearest_rungs(state.weights, cold, weights, len(legs[0]) - 1)
    return _onto_path(state, weights, len(legs[0]) - 1, where, constants)


def _nearest_rungs(before: np.ndarray, cold_before: int, after: np.ndarray, cold: int) -> np.ndarray:
    """For each new rung, the old one of the same leg with the next beta."""
    found = np.empty(len(after), np.int64)
    for j, weights in enumerate(after):
        leg = np.arange(cold_before + 1) if j <= cold else np.arange(cold_before, len(before))
        if j == cold:
            leg = np.array([cold_before])
        found[j] = leg[np.argmin(np.abs(before[leg, POSTERIOR] - weights[POSTERIOR]))]
    return found


def _onto_path(state: Any, weights: np.ndarray, cold: int, where: np.ndarray, constants: np.ndarray) -> Any:
    """The state on other rungs, each with the replica and the metric of the old rung `where` says.

    The log integral of a rung is interpolated, for the constants.
    """
    integrals = np.concatenate(([0.0], np.cumsum(constants)))
    before, cold_before = state.weights[:, POSTERIOR], state.cold
    new = np.empty(len(weights))
    new[: cold + 1] = np.interp(
        weights[: cold + 1, POSTERIOR], before[: cold_before + 1], integrals[: cold_before + 1]
    )
    new[cold:] = np.interp(
        weights[cold:, POSTERIOR][::-1], before[cold_before:][::-1], integrals[cold_before:][::-1]
    )[::-1]
    return state._replace(
        replicas=replicas_at(state.replicas.points[where].copy()),
        weights=weights,
        cold=cold,
        metrics=_metrics(*(array[where] for array in state.metrics[:3])),
        step_sizes=state.step_sizes[where].copy(),
        constants=np.diff(new),
    )


def outcome(state: Any, settings: Any, transport: np.ndarray) -> dict[str, np.ndarray]:
    """What the draws have shown of the path, of the integral of the density, and of the modes."""
    counts, cold, n = state.counts, state.cold, int(state.counts.clock[0])
    if not state.frozen or n == 0:
        return {}
    batches = max(1, -(-n // int(counts.clock[1])))
    rates = counts.refused / np.maximum(counts.tried, 1.0)
    legs = [
        tempering.leg_evidence(state.constants, counts.log_sums[:batches], slice(0, cold), 1.0),
        tempering.leg_evidence(state.constants, counts.log_sums[:batches], slice(cold, None), -1.0),
    ]
    both = tempering.combine_legs(*legs)
    visits = counts.visits[:batches]
    lengths = visits.sum(axis=1)
    shares = visits.sum(axis=0) / n
    errors = np.sqrt([tempering.long_run_variance(row) / batches for row in (visits / lengths.mean()).T])
    errors = np.fmax(errors, weight_errors(counts))
    modes = np.empty_like(state.fitted.means)
    scales = np.empty_like(modes)
    for m, z in enumerate(state.fitted.means):
        into_x(transport, z, modes[m])
        into_x(transport, z + np.sqrt(diagonal_of(covariance_of(state.fitted.roots[m]))), scales[m])
        scales[m] -= modes[m]
    return {
        "weights": state.weights,
        "refusal_rate": rates,
        "barrier": np.array([tempering.barrier(rates[:cold]), tempering.barrier(rates[cold:])]),
        "round_trips": counts.trips.astype(float),
        "log_integral_of_leg": np.array([leg.log_integral for leg in legs]),
        "log_integral_error_of_leg": np.array([leg.standard_error for leg in legs]),
        "log_integral": np.array(both.log_integral),
        "log_integral_error": np.array(both.standard_error),
        "mode": modes,
        "mode_scale": np.abs(scales),
        "mode_weight": shares,
        "mode_weight_error": errors,
    }


def history(state: Any) -> dict[str, float]:
    """The number of rungs and the barriers of both legs, in the present round."""
    rates = state.counts.refused / np.maximum(state.counts.tried, 1.0)
    return {
        "rungs": float(len(state.weights)),
        "barrier_broad": tempering.barrier(rates[: state.cold]),
        "barrier_fitted": tempering.barrier(rates[state.cold :]),
    }


def learnt(state: Any) -> dict[str, Any]:
    """The metric of the posterior's rung, in z; and what the search for modes took."""
    taken, metrics = {"search_gradients": np.array(state.gradients)}, state.metrics
    if metrics.inverse_mass.size:
        return taken | {"preconditioner": metrics.inverse_mass[state.cold].copy()}
    return taken | {"preconditioner_diagonal": metrics.scale[state.cold] ** 2}
