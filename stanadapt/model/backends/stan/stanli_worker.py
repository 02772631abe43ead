"""One chain of stanli's NUTS in a process of its own.

    python -m stanadapt.model.backends.stan.stanli_worker FOLDER PARENT

stanli 0.24 runs a single chain in the thread that calls it, and only the main thread has the autodiff stack
that many programs need: in any other thread they crash the process. It cannot be stopped there either.

The folder holds program.mir, data.json, inits.npy and request.json, the arguments of `stanli.Model.sample`.
The draws are written to it, or the text of an error; and meanwhile to `progress` the iterations done. PARENT
is the process that started this one, which ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ....child_processes import end_with_parent
from .division import checked_divisions

_ITERATION = re.compile(r"Iteration:\s*(\d+) /")
_SECONDS = re.compile(r"([\d.]+) seconds \((Warm-up|Sampling)\)")


class _Listener(io.TextIOBase):
    """Hears the lines that stanli prints of its progress and of the time that it took."""

    def __init__(self, progress: Path) -> None:
        self.iterations = np.memmap(progress, dtype=np.int64, mode="r+", shape=(1,))
        self.seconds: dict[str, float] = {}

    def write(self, text: str) -> int:
        for found in _ITERATION.finditer(text):
            self.iterations[0] = int(found[1])
        self.seconds |= {found[2]: float(found[1]) for found in _SECONDS.finditer(text)}
        return len(text)


def _forget_output(folder: Path) -> None:
    """Drop what the program has printed so far, when it was opened: its first opening has logged this."""
    with contextlib.suppress(OSError, AttributeError):  # no file, or a system without this function
        ctypes.CDLL(None).fflush(None)
        os.ftruncate(1, 0)
    (folder / "opened").touch()


def run(folder: Path) -> None:
    """Read the request, draw, and write what came of it."""
    import stanli

    request: dict[str, Any] = json.loads((folder / "request.json").read_text("utf-8"))
    listener = _Listener(folder / "progress")
    try:
        # Python's lines only: what the Stan program prints goes past it.
        with contextlib.redirect_stdout(listener), checked_divisions():
            model = stanli.Model(
                mir=(folder / "program.mir").read_text("utf-8"),
                data=(folder / "data.json").read_text("utf-8"),
                seed=request["seed"],
            )
            _forget_output(folder)
            fit = model.sample(chains=1, parallel_chains=1, inits=np.load(folder / "inits.npy"), **request)
    except RuntimeError as error:
        (folder / "error").write_text(str(error), "utf-8")
        return
    np.save(folder / "values.npy", fit.draws()[0])
    np.save(folder / "stats.npy", fit.sampler_stats[0])
    np.save(folder / "metric.npy", fit.inv_metric[0])
    found = {
        "names": fit.names,
        "columns": stanli.SAMPLER_COLUMNS,
        "step_size": float(fit.step_size[0]),
        "seconds": listener.seconds,
    }
    (folder / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    end_with_parent(int(sys.argv[2]), folder)
    run(folder)
