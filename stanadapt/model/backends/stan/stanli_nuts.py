"""Stan's NUTS in stanli: every chain in a process of its own, see stanli_worker.py for why."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import stanli

from ....child_processes import blocked_signals
from ...includes import ProgramText
from ...printing import log_lines, no_prints
from ..contract import ChainPlan, StanDraws
from .native import NativeModel, demangle, strings_for_non_finite, without_notes
from .stanli import compile_program, without_generated

WORKER = (sys.executable, "-P", "-m", "stanadapt.model.backends.stan.stanli_worker")
_CHAIN_FAILED = re.compile(r"^1 of 1 chains failed; first: (chain 1: )?")
_LOOK_SECONDS = 0.05  # how often a running chain is looked at
_REPORTS = 50  # of its progress
PRINTED, OPENED = "printed", "opened"  # files: what the program prints, and that the worker has opened it


class StanliProgram:
    """See `backends.contract.StanProgram`.

    Generated quantities are left out where the program can be had without them: stanli loses all of a draw
    when they fail, and their random numbers would change the draws that follow.
    """

    def __init__(self, intermediate: str, data: str) -> None:
        """The program in stanli's intermediate form, and data as JSON text."""
        self.intermediate = intermediate
        self.data = data
        self.library = f"stanli {stanli.__version__}"

    @classmethod
    def of_model(cls, model: NativeModel) -> StanliProgram:
        """The program of a model that stanli has open."""
        data = json.loads(model.model.data)
        whole = data.pop("__stanli")["mir"]
        names = model.model.param_names()
        # stanli cannot unconstrain parameters with names of C++, so what is left out could not be computed.
        foreign = any(name != demangle(name) for name in names)
        return cls(whole if foreign else model.spare or whole, json.dumps(data))

    @classmethod
    def of_code(cls, code: str, data: str) -> StanliProgram:
        """A program that another backend has open. ModelError or RuntimeError where stanli cannot open it."""
        program = cls(
            without_generated(code) or compile_program(ProgramText(code)), strings_for_non_finite(data)
        )
        program._density(1)
        return program

    def has_random_data(self) -> bool:
        """Whether `transformed data` draw random numbers, seen from outside: by the seed of the density."""
        return self._density(1) != self._density(2)

    def nuts(
        self, x: np.ndarray, plan: ChainPlan, *, metric: str, target_accept: float, max_tree_depth: int
    ) -> StanDraws:
        request = {
            "seed": plan.seed,
            "warmup": plan.warmup,
            "samples": plan.draws,
            "save_warmup": plan.save_warmup,
            "metric": f"{metric}_e",
            "delta": target_accept,
            "max_depth": max_tree_depth,
            "refresh": max(1, (plan.warmup + plan.draws) // _REPORTS),
        }
        with tempfile.TemporaryDirectory(prefix="stanadapt-") as name:
            folder = Path(name)
            (folder / "program.mir").write_text(self.intermediate, "utf-8")
            (folder / "data.json").write_text(self.data, "utf-8")
            (folder / "request.json").write_text(json.dumps(request), "utf-8")
            np.save(folder / "inits.npy", x)
            _work(folder, plan)
            return _read_draws(folder)

    def _density(self, seed: int) -> tuple[int, float]:
        """The dimension, and the log density at a point."""
        with no_prints(), without_notes():
            model = stanli.bridgestan_model(
                mir=self.intermediate, data=self.data, seed=seed, capture_stan_prints=False
            )
        d = model.param_unc_num()
        try:
            with no_prints():
                return d, float(model.log_density(np.full(d, 0.1)))
        except RuntimeError:  # the point is outside of the support
            return d, -np.inf


def _work(folder: Path, plan: ChainPlan) -> None:
    """Have the worker draw, and stop it when the run is stopped. Raises RuntimeError where it fails."""
    progress = np.memmap(folder / "progress", dtype=np.int64, mode="w+", shape=(1,))
    paths = os.pathsep.join(path for path in sys.path if path)  # what can be imported here can be there
    said = folder / "said"
    printed = folder / PRINTED
    with said.open("wb") as stderr, printed.open("ab") as stdout, blocked_signals():
        process = subprocess.Popen(
            [*WORKER, str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": paths},
        )
    heard = 0
    try:
        while process.poll() is None:
            heard = _pass_on(folder, heard)
            if plan.stopped():
                raise RuntimeError("it was stopped")
            plan.tell(int(progress[0]))
            try:
                process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()
        process.wait()
        _pass_on(folder, heard)
    if (folder / "error").exists():
        raise RuntimeError(_CHAIN_FAILED.sub("", (folder / "error").read_text("utf-8")))
    if not (folder / "found.json").exists():
        last = said.read_text("utf-8", errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"its process died with exit status {process.returncode}{last and f': {last}'}")


def _pass_on(folder: Path, heard: int) -> int:
    """Log what the program has printed since the first `heard` bytes; returns their number by now.

    Until the worker has opened the program, these are the lines that were logged when it was opened here.
    """
    if not (folder / OPENED).exists():
        return 0
    with (folder / PRINTED).open("rb") as file:
        file.seek(heard)
        text = file.read().rpartition(b"\n")[0]
    if not text:
        return heard
    log_lines(text.decode("utf-8", errors="replace"))
    return heard + len(text) + 1


def _read_draws(folder: Path) -> StanDraws:
    """The draws that the worker has written."""
    found = json.loads((folder / "found.json").read_text("utf-8"))
    seconds = found["seconds"]
    return StanDraws(
        [_flat(name) for name in found["names"]],
        np.load(folder / "values.npy"),
        dict(zip(found["columns"], np.load(folder / "stats.npy").T, strict=True)),
        found["step_size"],
        np.load(folder / "metric.npy"),
        (seconds["Warm-up"], seconds["Sampling"]) if len(seconds) == 2 else None,
    )


def _flat(name: str) -> str:
    """`theta[1,2]` as `theta.1.2`."""
    base, bracket, index = name.partition("[")
    return demangle(base + bracket.replace("[", ".") + index.rstrip("]").replace(",", "."))
