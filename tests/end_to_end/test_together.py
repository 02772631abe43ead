"""Chains of Fisher HMC that learn together in warm-up, with the setting `pooled`."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import thorough
from programs import WALK
from stanadapt.result.container import attributes, datasets
from stanadapt.result.record import RunRecord
from stanadapt.result.stores.store import Store
from stanadapt.run import guard
from stanadapt.run.inits import Init
from stanadapt.run.rerun import warm_up_again
from stanadapt.samplers import windowed
from stanadapt.target import log_density_gradient

PROGRAM = """
parameters { vector[3] x; real s; vector[6] y; }
model { x ~ normal(0, {0.1, 1, 20}); s ~ normal(0, 1.5); y ~ normal(0, exp(s)); }
"""
Y = np.random.default_rng(3).normal(size=30)
FIELD: dict[str, Any] = {"program": WALK, "data": {"T": len(Y), "y": Y}}
POOLED = {"pooled": True}


def draw(program: Any = PROGRAM, **keywords: Any) -> Any:
    run = {"method": "fisher_hmc", "chains": 3, "draws": 40, "seed": 4, "progress": False, "settings": POOLED}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return stanadapt.sample(program, **(run | keywords))


def values(idata: Any) -> np.ndarray:
    posterior = datasets(idata)["posterior"]
    shape = posterior.sizes["chain"], posterior.sizes["draw"], -1
    return np.concatenate([posterior[name].values.reshape(shape) for name in posterior], axis=2)


@pytest.fixture(scope="module")
def whole() -> Any:
    return draw()


@pytest.fixture(scope="module")
def walk() -> Any:
    return draw(**FIELD)


def test_chains_have_one_metric_and_one_map_after_short_windows(whole: Any) -> None:
    adaptation = datasets(whole)["adaptation"]
    for name in ("preconditioner", "transport", "warmup_iterations"):
        found = adaptation[name].values
        np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    assert len(adaptation["transport"].values[0])  # the scale of y moves y
    apart = datasets(draw(settings={}))["adaptation"]
    # In 16 other seeds 0.16 to 0.63 of the mean of chains that learn apart.
    assert adaptation["warmup_iterations"].values[0] < apart["warmup_iterations"].values.mean()
    scale = np.sqrt(np.diag(adaptation["preconditioner"].values[0]))[:3]
    np.testing.assert_allclose(scale, [0.1, 1.0, 20.0], rtol=0.4)


def test_draws_depend_on_the_seed_and_the_number_of_chains(
    whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = values(whole)
    np.testing.assert_array_equal(values(draw(workers=1)), expected)
    assert not np.array_equal(values(draw(chains=2)), expected[:2])
    monkeypatch.setattr("stanadapt.run.chain._BLOCK_SECONDS", 1e-5)
    np.testing.assert_array_equal(values(draw(workers=2, save_warmup=True)), expected)


def test_a_field_is_looked_for_once_for_all_chains(walk: Any) -> None:
    adaptation = datasets(walk)["adaptation"]
    for name in ("preconditioner", "transport"):
        found = adaptation[name].values
        np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    roles = adaptation["field_role"].values
    assert (roles[:, 0] == 2).all()  # the scale of the steps is a head
    assert (roles[:, 1:] == 1).all()
    spent = adaptation["field_gradients"].values
    assert spent[0] > 0.0
    assert not spent[1:].any()
    apart = datasets(draw(settings={}, **FIELD))["adaptation"]["field_gradients"].values
    assert (apart > 0.0).sum() > 1
    np.testing.assert_array_equal(values(draw(workers=1, **FIELD)), values(walk))


def test_no_chain_moves_to_a_field_in_which_one_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    places = itertools.cycle([True, False])  # of the first chain, of the second one, and again
    monkeypatch.setattr(windowed, "_is_finite", lambda state: next(places))
    idata = draw(**FIELD)
    adaptation = datasets(idata)["adaptation"]
    assert adaptation["field_gradients"].values[0] > 0.0
    assert not adaptation.get("field_role", np.zeros(1)).any()
    assert np.isfinite(values(idata)).all()


def test_a_search_that_is_cut_off_is_made_again(
    walk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slow model, by Ctrl-C. What the search has come to by then is no lesson."""
    refused = []

    def interrupted(target: Any, x: np.ndarray, *given: Any, last: bool) -> tuple[None, int]:
        signal.raise_signal(signal.SIGINT)
        refused.append(log_density_gradient(target, x, np.empty_like(x)) == -np.inf)
        return None, 0

    with monkeypatch.context() as patch:
        patch.setattr(windowed, "search_field", interrupted)
        patch.setattr(guard, "is_slow", lambda seconds: True)
        with contextlib.suppress(KeyboardInterrupt):
            draw(store=tmp_path / "run", **FIELD)
    assert refused == [True]
    again = stanadapt.resume(tmp_path / "run", progress=False)
    np.testing.assert_array_equal(values(again), values(walk))


@pytest.mark.thorough
def test_processes_draw_the_same() -> None:
    draws = []
    for threads in (False, True):
        target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 3, lambda x: -x, threads=threads)
        draws.append(datasets(draw(target, workers=2, draws=20))["posterior"]["x"].values)
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize(
    ("model", "every"), [("walk", 13), thorough("whole", 7), thorough("whole", 1), thorough("walk", 1)]
)
def test_a_run_that_ends_between_two_checkpoints_is_resumed(
    model: str, every: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some chains have begun the next window, or moved to a field, and others have not."""
    whole, given = request.getfixturevalue(model), FIELD if model == "walk" else {}
    keep, left = Store.keep, [0]

    def keep_some(self: Store, *given: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the disk is full")
        keep(self, *given)

    for kept in range(2, 60, every):
        left[0] = kept
        with monkeypatch.context() as patch:
            patch.setattr(Store, "keep", keep_some)
            try:
                draw(store=tmp_path / f"{kept}", workers=2, **given)
            except OSError:
                pass
            else:
                break
        again = stanadapt.resume(tmp_path / f"{kept}", progress=False)
        np.testing.assert_array_equal(values(again), values(whole))
    assert kept > 9  # three chains pause twice in warm-up, and are kept before and after each lesson


@pytest.mark.parametrize("warmup", [0, 10, 40, 100])
def test_any_length_of_warmup(warmup: int) -> None:
    idata = draw(warmup=warmup, draws=10)
    taken = datasets(idata)["adaptation"]["warmup_iterations"].values
    assert (taken == taken[0]).all()
    assert min(warmup, 50) <= taken[0] <= warmup
    assert np.isfinite(values(idata)).all()


def test_the_warmup_is_repeated_for_a_replay(whole: Any) -> None:
    """Of all chains, also where one alone is asked for."""
    record = RunRecord.of(whole)
    posterior = stanadapt.Posterior(PROGRAM)
    found, _ = warm_up_again(posterior, record.job(), [Init(2.0)] * 3, [1], 1, False)
    steps = datasets(whole)["sample_stats"]["step_size"].values
    np.testing.assert_array_equal(found[0].transport, datasets(whole)["adaptation"]["transport"].values[1])
    assert len(found) == 1
    assert found[0].state.step_size == steps[1, -1]


def test_one_chain_learns_alone() -> None:
    alone = draw(chains=1)
    assert not json.loads(attributes(alone)["settings"])["pooled"]
    np.testing.assert_array_equal(values(alone), values(draw(chains=1, settings={})))
    warm = draw(warm=draw(settings={}))
    assert not json.loads(attributes(warm)["settings"])["pooled"]


def test_many_dimensions() -> None:
    """Where the metric has no dense form from the start, and one chain may ask for a Hessian."""
    program = (
        "parameters { vector[110] x; } model { x[1] ~ normal(0, 1); x[2 : 110] ~ normal(x[1 : 109], 0.3); }"
    )
    idata = draw(program, chains=2, draws=200)
    x = datasets(idata)["posterior"]["x"].values
    assert abs(x[..., 0].std() - 1.0) < 0.3
