"""A script that loops over fits, and a signal at every place of it: it ends as it would have without us.

All places share a process that has imported, opened and compiled; each place is a fork of it, in which a
function of that place sends the signal. So no test waits for a moment to come, and none depends on speed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stanadapt
from stanadapt.result import files
from stanadapt.result.container import datasets

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="signals to processes are a POSIX thing"),
]

CODE = "parameters { vector[3] x; } model { x ~ std_normal(); }"

SCRIPT = """
import itertools, json, os, signal, sys, threading, warnings
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
import stanadapt
from stanadapt import api, many, runs
from stanadapt.run import chain, warmup
from stanadapt.run.preparation import compiling, prepare
from stanadapt.run.workers import threads

code, folder = sys.argv[1:]
fit = {"method": "fisher_mala", "warmup": 400, "draws": 400, "chains": 2, "progress": False, "seed": 1}

def send():
    os.kill(os.getpid(), number)

def at(holder, name, call=1):
    # A function sends the signal before it is called for the so-manyth time.
    whole, calls = getattr(holder, name), itertools.count(1)
    def sending(*arguments, **keywords):
        if next(calls) == call:
            send()
        return whole(*arguments, **keywords)
    setattr(holder, name, sending)

def compiling_place():
    # A step without an end, in the compiler's thread.
    endless = lambda: (send(), threading.Event().wait())
    prepare.job_steps = lambda *_: [compiling.Step("endless", "", endless)]

def sampling():
    # The first look of the waiting thread at a board where all chains draw; they would for minutes.
    fit.update(draws=10**8, thin=1000)
    whole = threads.watch
    sent = []
    def watching(futures, board, look):
        def looking(seen):
            if seen.rows[:-1, 1].all() and not sent:
                sent.append(send())
        whole(futures, board, looking)
    threads.watch = watching

def between():
    global after
    after = send

def after():
    pass

def loop(name, stored=True):
    for k in range(3):
        stanadapt.sample(code, store=f"{folder}/{name}-{k}" if stored else None, **fit)
        print("fit", k, flush=True)
        after()

def loop_without_stores(name):
    loop(name, stored=False)

def many_fits(workers):
    def run(name):
        given = dict.fromkeys("abc")
        for key, _ in stanadapt.sample_many(code, given, out=f"{folder}/{name}", workers=workers, **fit):
            print("fit", key, flush=True)
            if workers > 1:
                at(many.fits, "wait")
    return run

def catching(name):
    # An exception could be caught; the end of the process cannot.
    for k in range(3):
        try:
            stanadapt.sample(code, **fit)
        except BaseException as error:
            print(type(error).__name__, flush=True)

def handling(name):
    signal.signal(number, lambda *_: print("handled", flush=True))
    loop(name)

PLACES = {
    "opening": (lambda: at(api, "open_posterior"), loop),
    "checking": (lambda: at(api, "try_build"), loop),
    "compiling": (compiling_place, loop),
    "climbing": (lambda: at(chain.KernelChain, "_find_start"), loop),
    "warm-up": (lambda: at(warmup.WarmUp, "next_stage", 3), loop),
    "sampling": (sampling, loop),
    "sampling, no store": (sampling, loop_without_stores),
    "building": (lambda: at(runs, "build"), loop),
    "building, no store": (lambda: at(runs, "build"), loop_without_stores),
    "writing": (lambda: at(runs, "write_result"), loop),
    "diagnosing": (lambda: at(runs, "diagnose"), loop),
    "second fit": (lambda: at(runs, "build", 2), loop),
    "between fits": (between, loop),
    "many fits": (lambda: at(runs, "build", 2), many_fits(1)),
    "many fits in processes": (lambda: None, many_fits(2)),
    "caught": (sampling, catching),
    "handled": (lambda: at(runs, "build"), handling),
}
SIGNALS = {signal.SIGTERM: PLACES, signal.SIGHUP: ["sampling", "diagnosing"], signal.SIGINT: ["compiling"]}

stanadapt.sample(code, **fit)  # loads and compiles what the forks have then; its threads are gone
for number, names in SIGNALS.items():
    for place in names:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1), os.dup2(writer, 2), os.close(writer), os.close(reader)
            arrange, run = PLACES[place]
            arrange()
            run(f"{number:d} {place}")
            print("to the end", flush=True)
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([int(number), place, os.waitstatus_to_exitcode(status), said]), flush=True)
"""


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, str], tuple[int, str]]]:
    """The folder of results; and of each signal and place, the status and what was printed."""
    folder = tmp_path_factory.mktemp("fits")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, CODE, str(folder)], capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return folder, {(number, place): (status, said) for number, place, status, said in found}


def test_the_process_ends_as_by_the_signal(endings: Any) -> None:
    _, found = endings
    others = {place for _, place in found} - {"handled"}
    assert len(others) >= 10
    for (number, place), (status, said) in found.items():
        if place != "handled":
            assert status == -number, (place, said)
            assert "to the end" not in said, place


def test_no_fit_begins_after_the_signal(endings: Any) -> None:
    _, found = endings
    first = {"second fit": ["fit 0"], "between fits": ["fit 0"], "many fits": ["fit a"]}
    for (_, place), (_, said) in found.items():
        fits = [line for line in said.splitlines() if line.startswith("fit ")]
        if place == "handled":
            assert fits == ["fit 0", "fit 1", "fit 2"]
        elif place == "many fits in processes":
            assert len(fits) == 1
        else:
            assert fits == first.get(place, []), place
        assert "not diagnosed" not in said


def test_what_the_program_handles_is_its_own(endings: Any) -> None:
    _, found = endings
    status, said = found[signal.SIGTERM, "handled"]
    assert status == 0
    assert said.count("handled") == 1
    assert said.endswith("to the end\n")


def test_an_exception_that_the_script_catches_does_not_keep_it(endings: Any) -> None:
    _, found = endings
    assert found[signal.SIGTERM, "caught"][1].startswith("stanadapt: a signal ends the process")


def test_draws_so_far_are_in_the_stores(endings: Any) -> None:
    folder, found = endings
    for number in (signal.SIGTERM, signal.SIGHUP):
        store = folder / f"{number:d} sampling-0"
        assert f"the draws so far are in {store}" in found[number, "sampling"][1]
        posterior = datasets(stanadapt.load(store))["posterior"]
        assert 0 < posterior.sizes["draw"] < 100_000
        assert posterior.attrs["ended_by"] == number.name
    assert "the draws so far are lost" in found[signal.SIGTERM, "sampling, no store"][1]
    for place in (
        "building-0",
        "writing-0",
        "diagnosing-0",
        "second fit-0",
        "second fit-1",
        "between fits-0",
    ):
        posterior = datasets(stanadapt.load(folder / f"{signal.SIGTERM:d} {place}"))["posterior"]
        assert posterior.sizes["draw"] == 400, place
    for place in ("opening", "checking", "compiling"):  # nothing was drawn
        assert not list((folder / f"{signal.SIGTERM:d} {place}-0").glob("*.json")), place


def test_fits_that_were_done_are_in_the_folder(endings: Any) -> None:
    folder, _ = endings
    for place in ("many fits", "many fits in processes"):
        written = list((folder / f"{signal.SIGTERM:d} {place}").rglob("*.nc"))
        assert written, place
        for path in written:
            assert datasets(files.read(path))["posterior"].sizes["draw"] == 400


def test_ctrl_c_while_compiling_is_raised_at_once(endings: Any) -> None:
    _, found = endings
    status, said = found[signal.SIGINT, "compiling"]
    assert status == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
