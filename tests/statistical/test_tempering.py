"""Parallel tempering draws from the right law: on every rung, through exchanges, and where there are modes.

Chains begin with exact draws on all rungs, which only works where the laws of all rungs are known: the
posterior and both references are normal here, so each rung's law is, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stanadapt
from broken import edited_sampler, edited_source
from cases import partly_thorough, resolve
from moments import limit, z_scores
from stanadapt import Target
from stanadapt.numerics import tempering
from stanadapt.numerics.mixtures import NORMAL, mixture, root_of_covariance
from stanadapt.numerics.replicas import empty_notes, no_counts, replicas_at
from stanadapt.result.container import datasets
from stanadapt.run.inits import Init
from stanadapt.run.job import Job
from stanadapt.run.preparation.known_modes import hand_over
from stanadapt.samplers import tempering_rounds
from stanadapt.trace import empty_trace

LEVEL = 0.001  # family-wise, over all projections of all rungs
D, REPLICATES, SCANS = 3, 2_500, 4
STEPS = {"fisher_hmc": 1.2, "hmc": 0.9, "mala": 1.2, "arwmh": 1.2}  # step sizes, by kernel
BETAS = np.array([0.0, 0.3, 0.6, 1.0]), np.array([0.0, 0.4, 1.0])
MEAN = np.array([1.0, -0.5, 0.0])
COV = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.3], [0.0, -0.3, 0.5]])
BROAD_SCALE, FITTED_MEAN, FITTED_COV = 2.5, np.array([0.5, 0.0, 0.3]), np.diag([1.5, 1.0, 1.0])


def normal_target() -> Any:
    precision = np.linalg.inv(COV)
    return Target.from_python(
        lambda x: float(-0.5 * (x - MEAN) @ precision @ (x - MEAN)), D, lambda x: -precision @ (x - MEAN)
    )


def laws(weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and covariance of each rung: products of normal densities."""
    parts = [
        (np.zeros(D), BROAD_SCALE**2 * np.eye(D)),
        (FITTED_MEAN, FITTED_COV),
        (MEAN, COV),
    ]
    found = []
    for row in weights:
        precision = sum(w * np.linalg.inv(cov) for w, (_, cov) in zip(row, parts, strict=True))
        pull = sum(w * np.linalg.inv(cov) @ mean for w, (mean, cov) in zip(row, parts, strict=True))
        cov = np.linalg.inv(precision)
        found.append((cov @ pull, cov))
    return found


def frozen_state(sampler: Any, settings: Any, target: Any, weights: np.ndarray) -> Any:
    rng = np.random.default_rng(0)
    state = sampler.start(target, settings, np.zeros(D), rng)
    k = len(weights)
    root = root_of_covariance(FITTED_COV)
    state = state._replace(
        replicas=type(state.replicas)(*replicas_at(np.zeros((k, D)))),
        counts=type(state.counts)(*no_counts(k, 1)),
        notes=type(state.notes)(*empty_notes(k, D, 5)),
        weights=weights,
        cold=len(BETAS[0]) - 1,
        broad=mixture(np.zeros(1), np.zeros((1, D)), np.full((1, 1, D), 1.0 / BROAD_SCALE), NORMAL),
        fitted=mixture(np.zeros(1), FITTED_MEAN[None], root[None], NORMAL),
        searches=np.zeros((k, 4)),
        constants=np.zeros(k - 1),
        frozen=True,
    )
    return tempering_rounds.with_first_metrics(state, root)


def rung_p_values(
    sampler: Any, seed: int, kernel: str = "fisher_hmc", step_size: float = 1.2
) -> tuple[np.ndarray, float]:
    """P-values of all coordinates of all rungs after some scans from exact draws; share of exchanges."""
    settings = resolve("tempered", {"kernel": kernel})[1]
    weights = tempering.path_weights(*BETAS)
    model = normal_target()  # the target holds addresses of its functions
    target, rng = model.target(), np.random.default_rng(seed)
    state, known = frozen_state(sampler, settings, target, weights), laws(weights)
    state = state._replace(step_sizes=np.full(len(weights), step_size))
    roots = [np.linalg.cholesky(cov) for _, cov in known]
    ends, swapped = np.empty((REPLICATES, len(weights), D)), 0.0
    trace = empty_trace(SCANS, D, 6)
    for row in range(REPLICATES):
        parity = row % 2
        exact = np.array(
            [mean + root @ rng.standard_normal(D) for (mean, _), root in zip(known, roots, strict=True)]
        )
        at = state._replace(
            replicas=type(state.replicas)(*replicas_at(exact)),
            counts=type(state.counts)(*no_counts(len(weights), 1, parity)),
        )
        end = sampler.sweep(target, settings, tempering_rounds.evaluate_all(target, at), rng, False, trace)
        ends[row] = end.replicas.points
        swapped += np.mean(end.replicas.names != np.arange(len(weights))) / REPLICATES
    found = []
    for j, (mean, cov) in enumerate(known):
        white = np.linalg.solve(np.linalg.cholesky(cov), (ends[:, j] - mean).T)
        found += [
            stats.kstest(column, "norm").pvalue for column in (*white, np.sum(white, axis=0) / np.sqrt(D))
        ]
    # Pairs of neighbours are independent of each other.
    for j in range(len(weights) - 1):
        found.append(stats.pearsonr(ends[:, j, 0], ends[:, j + 1, 0]).pvalue)
    return np.array(found), swapped


@pytest.mark.seeds(1, rate=LEVEL)
@pytest.mark.parametrize("kernel", partly_thorough(STEPS, ("fisher_hmc",)))
def test_scans_leave_the_laws_of_all_rungs_invariant(kernel: str, seed: int) -> None:
    p_values, swapped = rung_p_values(resolve("tempered", {})[0], seed, kernel, STEPS[kernel])
    assert swapped > 0.5
    assert p_values.min() > LEVEL / p_values.size


@pytest.mark.seeds(1, rate=0.001)
def test_trajectories_of_stiff_warm_rungs_are_short_unless_the_posterior_needs_long_ones(seed: int) -> None:
    sampler, settings = resolve("tempered", {})
    model, rng, weights = normal_target(), np.random.default_rng(seed), tempering.path_weights(*BETAS)
    target = model.target()
    state = frozen_state(sampler, settings, target, weights)._replace(most=32)
    warm = np.flatnonzero((weights[:, tempering.POSTERIOR] > 0.0) & (weights[:, tempering.POSTERIOR] < 1.0))
    steps, trace = list[float](), empty_trace(20, D, 6)
    for cold_size in (1.9, 0.05):
        sizes = np.full(len(weights), cold_size)
        sizes[warm] = 0.05
        at = tempering_rounds.evaluate_all(target, state._replace(step_sizes=sizes))
        sampler.sweep(target, settings, at, rng, False, trace)
        steps.append(float(trace.n_steps.mean()))
    short, long = steps
    assert short < 2 * (8 * len(warm) + 2) + 2  # two gradients a step, and a draw from each reference
    assert long > 2 * 30 * len(warm)


OTHERWISE_BROKEN = {
    "a Langevin step whose last push has the wrong sign": (
        "mala",
        "numerics/splitting.py",
        "        momentum[i] += 0.5 * h * score[i]",
        "        momentum[i] -= 0.5 * h * score[i]",
    ),
    "a walk that leaves densities of a refused point behind": (
        "arwmh",
        "numerics/rung_kernels.py",
        "rung.heights[0], rung.heights[1], rung.heights[2] = broad, fitted, posterior",
        "pass",
    ),
    "a walk with a part of the log ratio": (
        "arwmh",
        "numerics/rung_kernels.py",
        "accept_prob = accept_probability(logp_y - logp)",
        "accept_prob = accept_probability(0.7 * (logp_y - logp))",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHERWISE_BROKEN)
def test_a_broken_kernel_is_seen(name: str, tmp_path: Path) -> None:
    kernel, file, text, other = OTHERWISE_BROKEN[name]
    edits: dict[str, dict[str, str]] = {file: {text: other}}
    edits.setdefault("numerics/rung_kernels.py", {})  # which imports the other file
    sampler = edited_sampler("tempered", edits, tmp_path)
    p_values, _ = rung_p_values(sampler, 1, kernel, STEPS[kernel])
    assert p_values.min() < LEVEL / p_values.size


BROKEN = {
    "exchanges that look at one side": (
        "numerics/replicas.py",
        "ratio = step_up(weights, j, heights[j]) - step_up(weights, j, heights[j + 1])",
        "ratio = step_up(weights, j, heights[j])",
    ),
    "exchanges that leave the densities behind": (
        "numerics/replicas.py",
        "            for part in range(3):\n                heights[j, part], heights[j + 1, part] =",
        "            for part in range(2):\n                heights[j, part], heights[j + 1, part] =",
    ),
    "trajectories along the posterior on every rung": (
        "samplers/tempered.py",
        "Rung(target, state.broad, state.fitted, weights[j], *places)",
        "Rung(target, state.broad, state.fitted, weights[cold], *places)",
    ),
    "draws of the other reference": (
        "samplers/tempered.py",
        "state.broad if weights[j, BROAD] > 0.0 else state.fitted",
        "state.fitted",
    ),
}


def test_each_text_to_break_is_there_once() -> None:
    for file, text, other in (*BROKEN.values(), *(fault[1:] for fault in OTHERWISE_BROKEN.values())):
        assert other in edited_source(file, {text: other})


@pytest.mark.thorough  # each compiles all of it again
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_scan_is_seen(name: str, tmp_path: Path) -> None:
    file, text, other = BROKEN[name]
    sampler = edited_sampler("tempered", {file: {text: other}}, tmp_path)
    p_values, _ = rung_p_values(sampler, 1)
    assert p_values.min() < LEVEL / p_values.size


TWO = """
parameters { vector[2] x; }
model {
  target += log_mix(0.3, normal_lpdf(x | -10, 1), normal_lpdf(x | 10, 0.3));
}
"""
SPIKE = (
    "parameters { vector[4] x; } model { target += log_mix(0.5, normal_lpdf(x|0,1), normal_lpdf(x|0,0.01)); }"
)
CORNERS = (
    "parameters { vector[50] x; } model { target += log_mix(0.75, normal_lpdf(x|-2,1), normal_lpdf(x|2,1)); }"
)
MODES = {
    "two normals far from each other": (TWO, lambda x: x[..., 0] > 0.0, 0.7),
    "a spike of half the mass": (SPIKE, lambda x: np.square(x).sum(axis=-1) < 0.01, 0.5),
    "two corners in fifty dimensions": (CORNERS, lambda x: x.mean(axis=-1) < 0.0, 0.75),
}


@pytest.mark.seeds(1, rate=0.01)
def test_a_walk_without_gradients_finds_both_modes_and_their_weights(seed: int) -> None:
    """Nothing climbs: replicas of the broad leg find them. The fitted reference knows one mode."""
    settings = dict(stanadapt.samplers.facts("tempered").gradient_free)
    result = stanadapt.sample(
        TWO, method="tempered", settings=settings, draws=2_000, seed=seed, progress=False
    )
    groups = datasets(result)
    at_right = (groups["posterior"]["x"].values[..., :1] > 0.0).astype(float)
    assert np.abs(z_scores(at_right, np.array([0.7]))).max() < limit(1)
    attrs = groups["posterior"].attrs
    assert abs(attrs["log_evidence"]) < 4.0 * attrs["log_evidence_error"] + 0.02


@pytest.mark.seeds(1, rate=0.01)
@pytest.mark.parametrize("name", partly_thorough(MODES, {*MODES} - {"two corners in fifty dimensions"}))
def test_weights_of_modes_and_the_evidence(name: str, seed: int) -> None:
    """Within 4 standard errors; the evidence, which is 1, within 0.02 more. A chain has ten round trips.

    In one of eight runs on the spike, replicas of the broad leg come to it too seldom in some chain, and a
    finding says that the legs disagree; weights are right all the same.
    """
    program, at_mode, weight = MODES[name]
    result = stanadapt.sample(program, method="tempered", seed=seed, progress=False)
    groups = datasets(result)
    shares = at_mode(groups["posterior"]["x"].values).mean(axis=1)
    group = groups["tempering"]
    error = max(group["mode_weight_error"].mean().item() / np.sqrt(4), 0.005)
    assert abs(shares.mean() - weight) < 4.0 * error
    assert group["round_trips"].sum("leg").min() >= 10
    attrs = groups["posterior"].attrs
    assert abs(attrs["log_evidence"]) < 4.0 * attrs["log_evidence_error"] + 0.02
    assert {finding.kind for finding in stanadapt.diagnose(result)} <= {"ess_bulk", "ess_tail"} | (
        {"legs"} if program is SPIKE else set()
    )


# `make test` has the evidence of modes above.
@pytest.mark.thorough
@pytest.mark.seeds(1, rate=0.01)
def test_the_evidence_of_thousands_of_observations(seed: int) -> None:
    """The log evidence is about -11,500, and rungs differ by more than the logs of the smallest numbers."""
    y = np.random.default_rng([seed, 1]).normal(1.0, 2.0, 4_000)
    program = """
        data { int n; vector[n] y; }
        parameters { real mu; }
        model { mu ~ std_normal(); y ~ normal(mu, 1); }
    """
    n = len(y)
    squares = np.sum(y**2) - np.sum(y) ** 2 / (n + 1)
    truth = -0.5 * (n * np.log(2.0 * np.pi) + np.log(n + 1) + squares)
    data = {"n": n, "y": y.tolist()}
    result = stanadapt.sample(program, data, method="tempered", seed=seed, progress=False)
    attrs = datasets(result)["posterior"].attrs
    assert abs(attrs["log_evidence"] - truth) < 4.0 * attrs["log_evidence_error"] + 0.002
    assert attrs["log_evidence_error"] < 0.01
    assert not stanadapt.diagnose(result)


HIDDEN = """
data { matrix[8, 10] m; vector[8] s; }
parameters { vector[10] x; }
model {
  vector[8] l;
  for (k in 1:8) l[k] = normal_lpdf(x | m[k]', s[k]);
  target += log_sum_exp(l);
}
"""


def searched_modes(seeds: range, chains: int) -> list[bool]:
    """Whether the search before a run finds the narrowest of eight modes, which lies behind others."""
    rng = np.random.default_rng(9)
    means, scales = rng.uniform(-10.0, 10.0, (8, 10)), np.ones(8)
    scales[2] = 0.5
    posterior = stanadapt.Posterior(HIDDEN, {"m": means.tolist(), "s": scales.tolist()})
    settings, found = resolve("tempered", {})[1], []
    for seed in seeds:
        job = Job("tempered", settings, 1_000, 1_000, 1, chains, seed, False, False)
        starts, _ = hand_over(job, posterior, [Init(2.0)] * chains, False)
        assert all(start.modes is starts[0].modes for start in starts)
        modes = np.asarray(starts[0].modes)
        found.append(bool(np.linalg.norm(modes - means[2], axis=1).min() < 1.0))
    return found


# `make test` has the searches of unit/test_strange_points.py, and modes far away in test_findings.py.
@pytest.mark.thorough
@pytest.mark.seeds(1, rate=0.015)
def test_the_search_before_a_run_finds_a_narrow_mode_behind_others(seed: int) -> None:
    """78 of 96 searches with the evaluations of four chains do; none of 16 if it climbs from usual points."""
    assert sum(searched_modes(range(8 * seed, 8 * seed + 8), 4)) >= 4
