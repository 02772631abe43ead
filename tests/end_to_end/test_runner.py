"""Chains in threads and in processes give the same draws, and fail in words."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import stanadapt
from stanadapt.errors import ChainError, FindingsWarning, InitializationError, StanAdaptWarning
from stanadapt.result.container import datasets

RUN = {"method": "mala", "chains": 3, "warmup": 60, "draws": 40, "seed": 7, "progress": False}


def sample(model, data=None, **keywords):
    """A short run, without the findings that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


def in_processes(model, data=None, **keywords):
    """Likewise in two processes, with the one warning that says so."""
    with pytest.warns(StanAdaptWarning) as caught:
        idata = sample(model, data, workers=2, **keywords)
    assert [str(warning.message) for warning in caught if "run in processes" in str(warning.message)]
    assert len(caught) == 1
    return idata


def assert_same_draws(one, other, leave_out=()):
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group in set(ones) - {"adaptation"}:
        assert set(ones[group]) == set(others[group])
        for name in set(ones[group]) - set(leave_out):
            np.testing.assert_array_equal(ones[group][name], others[group][name], err_msg=name)
    for name in ("start", "step_size", "acceptance_rate"):
        np.testing.assert_array_equal(ones["adaptation"][name], others["adaptation"][name])


def test_threads_where_the_library_allows_them(gaussian_libraries):
    idata = sample(gaussian_libraries["threads"], {"who": 1}, workers=2)
    assert set(idata["posterior"]["process"].values.ravel()) == {os.getpid()}


def test_processes_where_the_library_allows_no_threads(gaussian_libraries):
    idata = in_processes(gaussian_libraries["processes"], {"who": 1})
    processes = set(idata["posterior"]["process"].values.ravel())
    assert len(processes) in (1, 2)  # one, where it is done before the other has started
    assert os.getpid() not in processes


def test_one_worker_needs_no_processes_and_no_warning(gaussian_libraries):
    with warnings.catch_warnings():
        warnings.simplefilter("error", StanAdaptWarning)
        warnings.simplefilter("ignore", FindingsWarning)
        idata = stanadapt.sample(gaussian_libraries["processes"], {"who": 1}, workers=1, **RUN)
    assert set(idata["posterior"]["process"].values.ravel()) == {os.getpid()}


def test_draws_do_not_depend_on_processes(gaussian_libraries):
    wanted = {"save_warmup": True, "keep_unconstrained": True}
    one = sample(gaussian_libraries["processes"], {"who": 1}, workers=1, **wanted)
    two = in_processes(gaussian_libraries["processes"], {"who": 1}, **wanted)
    assert_same_draws(one, two, leave_out=["process"])


@pytest.mark.parametrize("keywords", [{"workers": 2}, {"workers": 5}, {"progress": True}])
def test_draws_do_not_depend_on_threads_or_progress(keywords, gaussian_libraries):
    library = gaussian_libraries["threads"]
    assert_same_draws(sample(library, workers=1), sample(library, **keywords))


def test_draws_depend_on_the_seed(gaussian_libraries):
    library = gaussian_libraries["threads"]
    one, other = sample(library), sample(library, seed=8)
    assert not np.any(one["posterior"]["u"].values == other["posterior"]["u"].values)
    assert not np.any(one["sample_stats"]["lp"].values[:, -1] == other["sample_stats"]["lp"].values[:, -1])


def test_chains_of_a_run_differ(gaussian_libraries):
    u = sample(gaussian_libraries["threads"])["posterior"]["u"].values
    assert len(np.unique(u)) == u.size


def test_failures_are_counted_in_processes(gaussian_libraries):
    in_threads = sample(gaussian_libraries["threads"], {"reject": 1})["adaptation"]
    apart = in_processes(gaussian_libraries["processes"], {"reject": 1})["adaptation"]
    assert int(apart["failures"].sum()) > 0
    np.testing.assert_array_equal(apart["failures"], in_threads["failures"])
    assert set(apart["first_failure"].values) <= {"x is above one", ""}


@pytest.mark.timeout(60)
def test_crash_of_a_worker_is_an_error(gaussian_libraries):
    with pytest.warns(StanAdaptWarning), pytest.raises(ChainError, match=r"a worker process died.*SIGABRT"):
        stanadapt.sample(gaussian_libraries["processes"], {"crash": 1}, workers=2, **RUN)


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")
def test_errors_of_chains_arrive_as_they_are(kind, gaussian_libraries):
    inits = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    with pytest.raises(InitializationError, match=r"chain 1.*its starting point.*x is above one"):
        stanadapt.sample(gaussian_libraries[kind], {"reject": 1}, workers=2, inits=inits, **RUN)


@pytest.mark.timeout(60)
def test_script_needs_no_main_guard(gaussian_libraries, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\n"
        "import os, stanadapt\n"
        f"idata = stanadapt.sample({str(gaussian_libraries['processes'])!r}, {{'who': 1}}, method='mala',\n"
        "    chains=2, warmup=20, draws=20, seed=1, workers=2, progress=False)\n"
        "print('in this process:', os.getpid() in idata['posterior']['process'].values)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ended.stdout == "started\nin this process: False\n"


def test_one_chain_with_more_workers_stays_in_this_process(gaussian_libraries):
    idata = sample(gaussian_libraries["processes"], {"who": 1}, chains=1, workers=4)
    assert set(idata["posterior"]["process"].values.ravel()) == {os.getpid()}


@pytest.mark.parametrize("in_draws", [0, 3])
def test_failures_in_warm_up_are_counted_apart(in_draws):
    """rwm calls the density once an iteration, after some calls for the start."""
    calls = []

    def log_density(x):
        calls.append(x)
        since_warmup = len(calls) - (before + RUN["warmup"])
        failed = -20 <= since_warmup < -10 or 10 <= since_warmup < 10 + in_draws
        return np.nan if failed else -0.5 * float(x @ x)

    run = {"method": "rwm", "chains": 1, "workers": 1}
    before = 10**9  # so that no call fails
    target = stanadapt.Target.from_python(log_density, 2)
    idata = sample(target, **run)
    before = len(calls) - RUN["warmup"] - RUN["draws"]
    assert int(idata["adaptation"]["failures"].sum() + idata["adaptation"]["failures_warmup"].sum()) == 0
    calls.clear()
    adaptation = sample(target, **run)["adaptation"]
    assert adaptation["failures_warmup"].values.tolist() == [10]
    assert adaptation["failures"].values.tolist() == [in_draws]
