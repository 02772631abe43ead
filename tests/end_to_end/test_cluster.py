"""Chains on a Dask cluster: the draws of this process, whatever happens to the workers."""

from __future__ import annotations

import math
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import thorough
from dask_workers import clients_of_two_workers
from stanadapt.errors import ArgumentError, FindingsWarning, InitializationError
from stanadapt.result.container import attributes, datasets

distributed = pytest.importorskip("distributed", reason="distributed is not installed")

PROGRAM = """
data { int n; vector[n] y; }
parameters { real mu; real<lower=0> tau; }
model { mu ~ normal(1, 2); tau ~ exponential(1); y ~ normal(mu, tau); }
generated quantities { real z = normal_rng(mu, tau); }
"""
DATA = {"n": 5, "y": [0.3, 1.2, -0.4, 2.2, 0.9]}
RUN: dict[str, Any] = {"method": "fisher_hmc", "seed": 4, "progress": False, "chains": 3}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    yield from clients_of_two_workers()


def sample(model: Any = PROGRAM, data: Any = DATA, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


def assert_same(one: Any, other: Any) -> None:
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group in set(ones) - {"adaptation"}:
        assert set(ones[group]) == set(others[group])
        for name in ones[group]:
            np.testing.assert_array_equal(ones[group][name], others[group][name], err_msg=name)
    for name in ("start", "warmup_iterations", "preconditioner"):
        if name in ones["adaptation"]:
            np.testing.assert_array_equal(ones["adaptation"][name], others["adaptation"][name])


@pytest.mark.parametrize("method", ["fisher_hmc", "rwm", "nuts"])
def test_draws_are_those_of_this_process(method: str, client: Any) -> None:
    run = {"method": method, "draws": 400, "warmup": 300, "save_warmup": True, "keep_unconstrained": True}
    assert_same(sample(**run), sample(cluster=client, **run))


def test_chains_that_learn_together_find_the_same_field(client: Any) -> None:
    """The search is in this process, between two windows of the workers."""
    program = """
data { int n; vector[n] y; }
parameters { real log_s; vector[n] h; }
model { log_s ~ std_normal(); h[1] ~ std_normal(); h[2:n] ~ normal(h[1:n-1], exp(log_s)); y ~ normal(h, 1); }
"""
    data = {"n": 30, "y": np.random.default_rng(3).normal(size=30)}
    run = {"draws": 100, "settings": {"pooled": True}}
    here, there = sample(program, data, **run), sample(program, data, cluster=client, **run)
    assert_same(here, there)
    for result in (here, there):
        assert (datasets(result)["adaptation"]["field_role"].values > 0).any(axis=1).all()


def test_an_address_is_enough(client: Any) -> None:
    assert_same(sample(draws=100), sample(draws=100, cluster=client.scheduler.address))


def test_python_functions_travel(client: Any) -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, lambda x: -x)
    run = {"method": "mala", "draws": 60, "warmup": 60}
    assert_same(sample(target, None, workers=1, **run), sample(target, None, cluster=client, **run))


def test_goals_are_about_all_chains(client: Any) -> None:
    here, there = sample(until="ess 900"), sample(until="ess 900", cluster=client)
    assert_same(here, there)
    assert attributes(here)["until_reason"] == attributes(there)["until_reason"]


@pytest.mark.parametrize("pooled", [thorough(False), True], ids=["apart", "pooled"])
def test_workers_that_die_cost_no_draws(pooled: bool, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are killed when the first segment has come back, and their copies of the model are lost.

    Dask starts others, and segments again. Segments end at 500 rows, however long these take, so that no
    chain is done by then.
    """
    from stanadapt.run.workers import segments

    killed: list[int] = []
    take, asked = segments.SegmentTeam._take, segments.Segment

    def kill(team: Any, piece: Any) -> None:
        take(team, piece)
        if not killed:
            killed.extend(client.run(os.getpid).values())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    def short(chain: int, init: Any, value: Any, goal: int, seconds: float) -> Any:
        rows = 0 if value is None else value.rows
        return asked(chain, init, value, min(goal, rows + 500), math.inf)

    monkeypatch.setattr(segments.SegmentTeam, "_take", kill)
    monkeypatch.setattr(segments, "Segment", short)
    run = {"draws": 2_000, "settings": {"pooled": pooled}}
    there = sample(cluster=client, **run)
    assert len(killed) == 2
    assert_same(sample(**run), there)


def test_a_large_model_travels_without_a_word(client: Any) -> None:
    ballast = np.random.default_rng(1).bytes(12_000_000)
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x) + 0.0 * len(ballast), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FindingsWarning)
        stanadapt.sample(target, cluster=client, draws=20, warmup=20, **(RUN | {"method": "rwm"}))


def test_a_run_goes_on_at_another_place(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped on the cluster, as by Ctrl-C, and goes on here; then more is drawn on the cluster."""
    from stanadapt.run.workers import segments

    take, asked = segments.SegmentTeam._take, segments.Segment

    def stop(team: Any, piece: Any) -> None:
        take(team, piece)
        if all(value is not None and value.rows for value in team.work.values):
            team.work.board.stop()

    def short(chain: int, init: Any, value: Any, goal: int, seconds: float) -> Any:
        """Segments end well before the run does, however fast the machine is."""
        rows = 0 if value is None else value.rows
        return asked(chain, init, value, min(goal, rows + 10_000), seconds)

    with monkeypatch.context() as patch:
        patch.setattr(segments.SegmentTeam, "_take", stop)
        patch.setattr(segments, "Segment", short)
        some = sample(draws=40_000, cluster=client, store=tmp_path / "run")
    assert 0 < datasets(some)["posterior"].sizes["draw"] < 40_000
    whole = stanadapt.resume(tmp_path / "run", progress=False)
    assert_same(sample(draws=40_000), whole)
    longer = stanadapt.extend(whole, 5_000, progress=False, cluster=client)
    assert_same(sample(draws=45_000), longer)


def test_errors_arrive_as_they_are(client: Any) -> None:
    inits = np.array([[0.0, 0.0], [0.0, np.nan_to_num(np.inf)], [0.0, 0.0]])
    with pytest.raises(InitializationError, match="chain 1"):
        sample(inits=inits, cluster=client)


@pytest.mark.usefixtures("never_runs")
@pytest.mark.parametrize("given", [3, "tcp://127.0.0.1:1"])
def test_what_is_no_cluster_is_refused(given: Any) -> None:
    import dask

    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, pytest.raises(ArgumentError, match="cluster="):
        sample(cluster=given)


@pytest.mark.usefixtures("never_runs")
def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ArgumentError, match=r"stanadapt\[dask\]"):
        sample(cluster="tcp://127.0.0.1:1")
