"""Runs of `tempered` that stop, are kept or extended, or end at a goal: path and evidence go along."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
import stores
from stanadapt.errors import FindingsWarning
from stanadapt.result.container import attributes, datasets

TWO = """
parameters { real x; }
model { target += log_mix(0.3, normal_lpdf(x | -6, 1), normal_lpdf(x | 6, 0.5)); }
"""
SHORT: dict[str, Any] = {"method": "tempered", "warmup": 120, "draws": 40, "settings": {"search": 500}}
WALK: dict[str, Any] = {"settings": dict(stanadapt.samplers.facts("tempered").gradient_free)}


@pytest.mark.parametrize("other", [{}, WALK], ids=["fisher_hmc", "arwmh"])
def test_a_run_in_a_folder_with_blocks_of_one_scan_is_the_same(other: Any, tmp_path: Path) -> None:
    with stores.short_intervals():
        kept = stores.sample(TWO, None, store=tmp_path / "run", **SHORT | other)
    plain = stores.sample(TWO, None, **SHORT | other)
    stores.assert_same(kept, plain)
    assert datasets(plain)["tempering"]["log_evidence"].sizes == {"chain": 2}


def test_an_extension_has_the_path_and_the_evidence_of_the_longer_run(tmp_path: Path) -> None:
    stores.sample(TWO, None, store=tmp_path / "run", **SHORT)
    extended = stores.extend(tmp_path / "run", 30)
    stores.assert_same(extended, stores.sample(TWO, None, **SHORT | {"draws": 70}))


@pytest.mark.parametrize("stops", [1, 3])
def test_a_run_that_was_stopped_goes_on(stops: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with stores.short_intervals(), stores.stopped_at(stops):
        stores.sample(TWO, None, store=folder, **SHORT)
    stores.assert_same(stores.resume(folder), stores.sample(TWO, None, **SHORT))


def test_draws_up_to_a_goal_are_the_first_of_a_longer_run() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        run = {"method": "tempered", "seed": 2, "progress": False, "warmup": 300, "chains": 2}
        some = stanadapt.sample(TWO, until="ess 200", workers=1, **run)
        longer = stanadapt.sample(TWO, draws=1_500, workers=2, **run)
    ones, others = (datasets(each)["posterior"]["x"].values for each in (some, longer))
    assert 100 <= ones.shape[1] < 1_500
    np.testing.assert_array_equal(ones, others[:, : ones.shape[1]])
    assert attributes(some)["until_reached"] == 1
    assert abs(attributes(some)["log_evidence"]) < 5.0 * attributes(some)["log_evidence_error"] + 0.02


def test_a_replay_leaves_out_the_kernel_whose_replicas_draws_do_not_tell() -> None:
    """With the replicas where they froze, the kernel would not leave the law of the draws as it is."""
    run = {"method": "tempered", "seed": 3, "progress": False, "warmup": 300, "draws": 400, "chains": 2}
    seen = stanadapt.replay(stanadapt.sample(TWO, **run), TWO, progress=False)
    assert seen.finding is None
    assert set(seen.tests["check"]) == {"reference kernel"}
    assert "replicas" in str(seen)


def test_all_chains_begin_with_the_modes_of_one_search() -> None:
    """What is found depends on the seed and the number of chains, and goes with a chain."""
    fit = stores.sample(TWO, None, **SHORT)
    modes = datasets(fit)["tempering"]["mode"].values[..., 0]  # (chain, component)
    for middle in (-6.0, 6.0):
        assert (np.nanmin(np.abs(modes - middle), axis=1) < 0.5).all()
    assert attributes(fit)["modes_found"] == 2
    each = 500 + 100  # of the setting, and of the dimension
    assert 0 < attributes(fit)["modes_search_evaluations"] < 2 * each + 1_000
    assert 0.0 < attributes(fit)["modes_narrowest_seen"] < 1.0  # in one dimension few points see much
    none = stores.sample(TWO, None, **SHORT | {"settings": {"search": 0}})
    assert "modes_found" not in attributes(none)
