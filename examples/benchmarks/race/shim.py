"""stanli's library as a BridgeStan library that counts gradients: shim.c, compiled when it is needed."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import bridgestan
import numpy as np
import stanli

SOURCE = Path(__file__).with_name("shim.c")


def compiler() -> str | None:
    """A C compiler, or None."""
    return shutil.which("gcc") or shutil.which("cc")


@functools.cache
def library() -> Path:
    """The compiled shim. Raises RuntimeError where there is no C compiler, or it fails."""
    command = compiler()
    if command is None:
        raise RuntimeError(
            "there is no C compiler (gcc or cc), which nutpie, walnutpie and blackjax need here"
        )
    beside = Path(stanli.__file__).with_name("_bin") / "libstanli.so"
    digest = hashlib.sha256(SOURCE.read_bytes() + str(beside).encode() + stanli.build_id().encode())
    path = Path(tempfile.gettempdir()) / f"stanadapt-peers-{digest.hexdigest()[:16]}_model.so"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        flags = ["-O2", "-std=gnu11", "-shared", "-fPIC", f'-DSTANLI="{beside}"']
        done = subprocess.run(
            [command, *flags, str(SOURCE), "-o", str(built), "-ldl", "-lpthread"],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{command} cannot compile {SOURCE.name}: {done.stderr.strip()}")
        built.replace(path)  # another process may have put the same file there meanwhile
    return path


@functools.cache
def functions() -> ctypes.CDLL:
    """The shim's own functions, of the library that is loaded in this process."""
    lib = ctypes.CDLL(str(library()))
    lib.shim_gradients.restype = ctypes.c_int64
    lib.shim_copies.argtypes = [ctypes.c_int]
    lib.shim_seconds.restype = ctypes.c_double
    lib.shim_seconds.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    return lib


def gradients() -> int:
    """Gradients that this process has evaluated through the shim so far."""
    return int(functions().shim_gradients())


def copies(n: int) -> None:
    """Models that are opened from now on can be called by `n` threads without waiting for each other."""
    functions().shim_copies(n)


def opened(data: str, threads: int = 1) -> bridgestan.StanModel:
    """A model whose program stands in its data, see `problems.Problem.bridgestan_data`."""
    copies(threads)
    return bridgestan.StanModel(library(), data, warn=False, capture_stan_prints=False)


def gradient_seconds(model: bridgestan.StanModel, seed: int = 0) -> float:
    """Median time of one gradient by stanli at random points, over blocks of some milliseconds."""
    rng = np.random.default_rng(seed)
    score = np.empty(model.param_unc_num())
    found: list[float] = []
    for _ in range(100):
        x = rng.uniform(-1.0, 1.0, len(score))
        once = functions().shim_seconds(model.model, x.ctypes.data, score.ctypes.data, 2) / 2
        if once < 0.0:
            continue  # outside of the support
        n = max(1, int(0.005 / once))
        found.append(functions().shim_seconds(model.model, x.ctypes.data, score.ctypes.data, n) / n)
        if len(found) == 9:
            break
    return float(np.median(found)) if found else float("nan")
