"""stanadapt.replay speaks of broken kernels and of adaptation that goes on, and not of sound runs.

A test of three runs is of three seeds; the rate is three times that of a run. examples/benchmarks/replay.py
measures the rates too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stanadapt
from broken import GOES_ON_ADAPTING, NEVER_LESS, SLIGHTLY_BROKEN, edited_sampler, offered
from cases import thorough
from exact import POSITIVE, without_jacobian
from stanadapt.diagnostics.replay import Replay, replay_draws
from stanadapt.result.container import datasets
from stanadapt.result.record import RunRecord

MODELS = Path(__file__).parents[2] / "models"
HEAVY = "parameters { vector[5] x; } model { x ~ student_t(3, 0, 1); }"
FUNNEL = "parameters { real v; vector[4] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
SEEDS = 2

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def shipped(name: str) -> stanadapt.Posterior:
    folder = MODELS / name
    return stanadapt.Posterior(folder / f"{name}.stan", json.loads((folder / f"{name}.json").read_text()))


def replays(posterior: stanadapt.Posterior, method: str, seed: int, settings: Any = None) -> list[Replay]:
    """Of runs at the method's defaults."""
    found = []
    for own in range(SEEDS * seed, SEEDS * (seed + 1)):
        run = {"method": method, "settings": settings, "seed": own, "progress": False}
        found.append(stanadapt.replay(stanadapt.sample(posterior, **run), posterior, progress=False))
    return found


@pytest.mark.seeds(0, rate=SEEDS * 0.001)  # the error rate of `replay` itself
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("fisher_hmc", "eight_schools"),
        thorough("fisher_hmc", FUNNEL),
        thorough("fisher_hmc", HEAVY),
        thorough("fisher_mala", "correlated_gaussian"),
        thorough("fisher_mala", HEAVY),
        thorough("arwmh", "eight_schools"),
        thorough("hmc", "correlated_gaussian"),
        thorough("nuts", "eight_schools"),
    ],
)
def test_nothing_is_said_of_sound_runs(method: str, target: str, seed: int) -> None:
    posterior = stanadapt.Posterior(target) if "{" in target else shipped(target)
    assert [each.finding for each in replays(posterior, method, seed)] == [None] * SEEDS


@pytest.mark.seeds(0, rate=0.01)
@pytest.mark.parametrize(
    ("what", "target"),
    [
        ("rwm with nine tenths of the log ratio", "eight_schools"),
        pytest.param("arwmh whose walk drifts by a twentieth", "eight_schools", marks=pytest.mark.thorough),
    ],
)
def test_a_slightly_broken_kernel_is_found(what: str, target: str, tmp_path: Path, seed: int) -> None:
    """And it is seen that the frozen kernel keeps the law: it is the kernel, and not its adaptation."""
    method, file, text, other = SLIGHTLY_BROKEN[what]
    with offered(edited_sampler(method, {file: {text: other}}, tmp_path)) as broken:
        found = replays(shipped(target), broken, seed)
    assert all(each.finding is not None for each in found)
    assert all(set(_failed(each)) == {"reference kernel"} for each in found)
    assert any("then the kernel itself is wrong" in str(each) for each in found)


@pytest.mark.seeds(0, rate=0.01)
def test_adaptation_that_goes_on_is_found(tmp_path: Path, seed: int) -> None:
    """A random walk whose covariance is that of about its last 50 points; `diagnose` has nothing to say."""
    posterior = shipped("correlated_gaussian")
    with offered(edited_sampler("am", GOES_ON_ADAPTING, tmp_path)) as broken:
        found = replays(posterior, broken, seed, NEVER_LESS | {"learning_rate": 0.02})
        run = stanadapt.sample(
            posterior,
            method=broken,
            settings=NEVER_LESS | {"learning_rate": 0.02},
            seed=SEEDS * seed,
            progress=False,
        )
    assert stanadapt.diagnose(run) == []
    assert all(set(_failed(each)) == {"reference kernel", "frozen kernel"} for each in found)
    assert all("Both kernels change it: adaptation has touched the draws" in str(each) for each in found)


@pytest.mark.seeds(1, rate=0.01)
def test_a_jacobian_that_was_forgotten_is_found(seed: int) -> None:
    """Draws of the density without it, held against the program."""
    run = stanadapt.sample(
        without_jacobian().target, method="fisher_mala", seed=seed, keep_unconstrained=True, progress=False
    )
    draws = datasets(run)["unconstrained_posterior"]["x"].values
    found = replay_draws(stanadapt.Posterior(POSITIVE), RunRecord.of(run).job(), None, draws, seed)
    assert found.finding is not None
    assert found.finding.kind == "replay"
    assert found.p_value < 1e-10


def _failed(found: Replay) -> set[str]:
    return set(found.tests[found.tests["p_corrected"] < found.error_rate]["check"])
