"""Fisher HMC as the pilot of another method's warm-up."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import resolve
from exact import gaussian
from stanadapt import samplers
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.numerics.cholesky import transposed_factor
from stanadapt.numerics.langevin import gaussian_step_size
from stanadapt.numerics.walk import gaussian_scale
from stanadapt.result.container import datasets
from stanadapt.samplers import Handover, fisher_hmc
from stanadapt.transport.map_table import no_transport

METHODS = ["gad_rwm", "ada_mala", "amala", "fisher_mala", "gad_mala_fast", "gad_mala_exact", "mmala"]
EXACT = gaussian()
COV = np.array([[4.0, 1.9, 0.0], [1.9, 1.0, 0.02], [0.0, 0.02, 0.05]])
SCALES = np.logspace(-3, 3, 26)


def gaussian_target(cov: np.ndarray, **keywords: Any) -> Any:
    precision = np.linalg.inv(cov)
    return stanadapt.Target.from_python(
        lambda x: -0.5 * float(x @ precision @ x), len(cov), lambda x: -precision @ x, **keywords
    )


def draw(target: Any, method: str, n: int, **keywords: Any) -> Any:
    run = {"chains": 2, "warmup": 400, "draws": 100, "seed": 5, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        return stanadapt.sample(target, method=method, **(run | {"settings": {"pilot": n}} | keywords))


def pilots_handover(n: int, d: int = 3) -> Handover:
    x = np.linspace(-1.0, 1.0, d)
    return Handover(x, x + 0.1, COV[:d, :d], n, no_transport())


def handed(method: str, n: int, **settings: Any) -> tuple[Any, Handover]:
    """A method's state where it has taken over."""
    sampler, resolved = resolve(method, {"pilot": n, **settings})
    handover = pilots_handover(n)
    state = sampler.start(EXACT.target.target(), resolved, handover.z, np.random.default_rng(1))
    return sampler.take_over(state, handover, resolved), handover


def test_methods_that_have_a_pilot() -> None:
    """Parallel tempering takes coordinates and places from its pilot, and no preconditioner for proposals."""
    others = {"tempered"}
    assert {name for name in samplers.METHODS if samplers.facts(name).takes_pilot} == set(METHODS) | others
    with_setting = [name for name in samplers.METHODS if "pilot" in samplers.sampler(name).Settings._fields]
    assert set(with_setting) == set(METHODS) | others


@pytest.mark.parametrize("method", METHODS)
def test_proposals_start_as_the_best_for_the_pilots_covariance(method: str) -> None:
    if method == "mmala":
        return
    state, found = handed(method, 200)
    s = gaussian_scale(3) if method == "gad_rwm" else gaussian_step_size(3)
    root_t = state.root_t if "root_t" in state._fields else state.chol_t
    a = root_t.T @ root_t
    if "tr" in state._fields:
        assert state.tr == pytest.approx(np.trace(a))
        a *= state.step_size**2 / (state.tr / 3)
    elif "step_size" in state._fields:
        a *= state.step_size**2
    np.testing.assert_allclose(a, s**2 * found.cov, rtol=1e-12, atol=1e-15)
    if "rotated" in state._fields:
        np.testing.assert_allclose(state.rotated, root_t @ state.score)


@pytest.mark.parametrize("method", ["fisher_mala", "ada_mala", "amala"])
def test_a_step_size_that_was_set_stays(method: str) -> None:
    state, _ = handed(method, 200, initial_step_size=0.123)
    assert state.step_size == 0.123


@pytest.mark.parametrize(("signal", "size"), [("score", 1.0), ("increment", None)])
def test_fisher_mala_counts_the_pilot_as_signals(signal: str, size: float | None) -> None:
    """Signals at the pilot's own Gaussian bring A^-1 the covariance that the pilot's share of it has."""
    n, rng = 500, np.random.default_rng(2)
    state, found = handed("fisher_mala", n, signal=signal)
    precision, chol, s = np.linalg.inv(found.cov), np.linalg.cholesky(found.cov), gaussian_step_size(3)
    x = rng.standard_normal((200_000, 3)) @ chol.T
    y = x - 0.5 * s**2 * x + s * rng.standard_normal(x.shape) @ chol.T
    signals = (x if size else y - x) @ precision
    share = np.linalg.inv(state.root_t.T @ state.root_t) / n
    np.testing.assert_allclose(chol.T @ share @ chol, chol.T @ np.cov(signals.T) @ chol, atol=0.03)


def test_ada_mala_goes_on_from_the_pilots_mean_and_covariance() -> None:
    state, found = handed("ada_mala", 300)
    np.testing.assert_array_equal(state.mean, found.mean)
    np.testing.assert_allclose(state.scale * state.chol_t.T @ state.chol_t, found.cov, atol=1e-15)
    assert state.n == 300


@pytest.fixture
def handovers(monkeypatch: pytest.MonkeyPatch) -> list[Handover]:
    """What pilots hand over, as they do."""
    seen, hand_over = [], fisher_hmc.hand_over

    def noted(*arguments: Any) -> Handover:
        seen.append(hand_over(*arguments))
        return seen[-1]

    monkeypatch.setattr(fisher_hmc, "hand_over", noted)
    return seen


@pytest.mark.parametrize("method", METHODS[:-1])
def test_warm_up_of_a_pilot_alone_leaves_its_metric(method: str, handovers: list[Handover]) -> None:
    idata = draw(EXACT.target, method, 90, warmup=90, draws=3, chains=1)
    learnt = datasets(idata)["adaptation"]["preconditioner"].values[0]
    ratio = learnt / handovers[0].cov
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-9)


def test_pilot_finds_the_covariance(handovers: list[Handover]) -> None:
    """From the last window too: what it learns from there has not been used by its own chain."""
    draw(EXACT.target, "ada_mala", 60, warmup=60, draws=3, chains=8)
    cov = np.cov(EXACT.draw(100_000, np.random.default_rng(1)).T)
    assert len(handovers) == 8
    for found in handovers:
        np.testing.assert_allclose(np.linalg.eigvals(np.linalg.solve(cov, found.cov)), 1.0, atol=0.1)
        assert found.n == 60


@pytest.mark.parametrize("method", METHODS[:-1])
def test_short_warm_up_on_unlike_scales_needs_the_pilot(method: str) -> None:
    """Standard deviations from 0.001 to 1000; mmala has the curvature from its first iteration on."""
    program = stanadapt.Posterior(
        "data { vector[26] s; } parameters { vector[26] x; } model { x ~ normal(0, s); }", {"s": SCALES}
    )
    settings = {"epochs": 1} if method == "amala" else {}  # more are of too few states each to learn from
    sds = []
    for n in (0, 150):
        given = {"settings": settings | {"pilot": n}, "warmup": 250, "draws": 3_000, "chains": 1}
        sds.append(draw(program, method, n, **given)["posterior"]["x"].values[0].std(axis=0) / SCALES)
    without, piloted = sds
    assert np.any((without < 0.1) | (without > 10.0))
    assert np.all((piloted > 0.4) & (piloted < 1.7)), piloted


@pytest.mark.parametrize("method", METHODS)
def test_one_dimension(method: str) -> None:
    idata = draw(gaussian_target(np.array([[9.0]]), threads=True), method, 100, warmup=200, draws=500)
    assert 2.0 < idata["posterior"]["x"].values.std() < 4.0


def test_draws_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def x(**keywords: Any) -> np.ndarray:
        idata = draw(EXACT.target, "fisher_mala", 100, warmup=150, chains=3, **keywords)
        return np.asarray(idata["posterior"]["x"].values)

    one = x(workers=1)
    np.testing.assert_array_equal(x(workers=2), one)
    np.testing.assert_array_equal(x(save_warmup=True, thin=1), one)
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 1e-5)
    np.testing.assert_array_equal(x(workers=2), one)


def test_processes_draw_the_same() -> None:
    draws = []
    for threads in (False, True):
        target = gaussian_target(COV, threads=threads)
        idata = draw(target, "fisher_mala", 60, warmup=80, draws=20, workers=2, save_warmup=True)
        draws.append(idata["posterior"]["x"].values)
        assert datasets(idata)["warmup_posterior"].sizes["draw"] == 80
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("method", ["fisher_mala", "gad_mala_fast"])
def test_history_has_the_stages_of_the_pilot(method: str) -> None:
    """Whose fields are NaN where the other runs; a step size is what each of them means by it."""
    idata = draw(EXACT.target, method, 200, warmup=300, save_warmup=True)
    groups = datasets(idata)
    adaptation = groups["adaptation"]
    stages = list(dict.fromkeys(adaptation["stage"].values))
    last = "fisher" if method == "fisher_mala" else "speed"
    assert stages == [*[f"pilot_window_{i}" for i in range(1, len(stages) - 1)], "pilot_last_window", last]
    piloted = adaptation["stage"].values != last
    assert adaptation["iteration"].values[piloted].max() == 200
    assert adaptation["iteration"].values[-1] == 300
    np.testing.assert_array_equal(np.isnan(adaptation["preconditioner_trace"]).values, [piloted] * 2)
    np.testing.assert_array_equal(np.isnan(adaptation["metric_rank"]).values, [~piloted] * 2)
    assert np.all(np.isfinite(adaptation["acceptance_rate"]))
    assert groups["warmup_posterior"].sizes["draw"] == 300
    assert np.all(groups["warmup_sample_stats"]["n_steps"].values[:, :200] % 2 == 0)
    assert np.all(groups["warmup_sample_stats"]["n_steps"].values[:, 200:] == 1)
    assert ("step_size" in groups["sample_stats"]) == (method == "fisher_mala")


def test_a_run_without_it_is_what_it_was() -> None:
    plain = draw(EXACT.target, "fisher_mala", 0)
    none = draw(EXACT.target, "fisher_mala", 0, settings={})
    np.testing.assert_array_equal(plain["posterior"]["x"].values, none["posterior"]["x"].values)
    assert "metric_rank" not in datasets(plain)["adaptation"]


def test_a_run_without_it_compiles_nothing_of_it() -> None:
    code = (
        "import stanadapt\n"
        "run = dict(warmup=60, draws=3, chains=1, seed=1, progress=False)\n"
        "stanadapt.sample('parameters { real x; } model { x ~ std_normal(); }', **run)\n"
        "from stanadapt.samplers import fisher_hmc\n"
        "assert not fisher_hmc.sweep.signatures\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("method", METHODS)
def test_longer_than_warm_up_or_faithful(method: str) -> None:
    with pytest.raises(ArgumentError, match=r"pilot'\]=500 is not allowed with warmup=400"):
        draw(EXACT.target, method, 500)
    with pytest.raises(ArgumentError, match=r"pilot'\]=50 is not allowed with faithful=True"):
        draw(EXACT.target, method, 50, settings={"pilot": 50, "faithful": True})


def test_place_without_a_hessian_is_not_where_mmala_starts(handovers: list[Handover]) -> None:
    """The support ends at 0, so close to it differences of the gradient leave it."""
    target = stanadapt.Target.from_python(
        lambda x: -x[0] if x[0] > 0.0 else -np.inf, 1, lambda x: -np.ones(1), threads=True
    )
    idata = draw(target, "mmala", 30, warmup=60, draws=200, inits=np.ones((2, 1)))
    assert np.all(np.isfinite(idata["posterior"]["x"]))


def test_factor_of_what_is_no_covariance() -> None:
    np.testing.assert_allclose(transposed_factor(COV), np.linalg.cholesky(COV).T)
    apart = np.outer([1e-9, 1.0, 1e9], [1e-9, 1.0, 1e9]) * (np.eye(3) + 0.5)
    np.testing.assert_allclose(transposed_factor(apart).T @ transposed_factor(apart), apart)
    singular = np.ones((2, 2)) * 4.0
    singular[0, 1] = singular[1, 0] = 4.0 + 1e-9
    np.testing.assert_allclose(transposed_factor(singular), 2.0 * np.eye(2))
