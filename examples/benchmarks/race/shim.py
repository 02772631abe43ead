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

from stanadapt.cache import cache_folder

SOURCE = Path(__file__).with_name("shim.c")


@functools.cache
def library() -> Path:
    """The compiled shim. Raises RuntimeError where there is no C compiler, or it fails."""
    beside = Path(stanli.__file__).with_name("_bin") / "libstanli.so"
    return built(
        "gcc", SOURCE, ["-std=gnu11", f'-DSTANLI="{beside}"', "-ldl", "-lpthread"], [stanli.build_id()]
    )


def built(compiler: str, source: Path, flags: list[str], key: list[str]) -> Path:
    """A shared library in stanadapt's cache, compiled if it is not there yet."""
    command = shutil.which(compiler)
    if command is None:
        raise RuntimeError(f"there is no {compiler}, which {source.name} needs")
    digest = hashlib.sha256(source.read_bytes() + "\0".join([*flags, *key]).encode()).hexdigest()[:16]
    path = cache_folder("race") / f"{source.stem}-{digest}_model.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        arguments = [command, "-O2", "-shared", "-fPIC", str(source), "-o", str(whole), *flags]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{compiler} cannot compile {source.name}: {done.stderr.strip()}")
        whole.replace(path)  # another process may have put the same file there meanwhile
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
    """Time of one gradient by stanli: the median over random points of the fastest of three blocks."""
    rng = np.random.default_rng(seed)
    score = np.empty(model.param_unc_num())

    def seconds(n: int) -> float:
        return functions().shim_seconds(model.model, x.ctypes.data, score.ctypes.data, n) / n

    found: list[float] = []
    for _ in range(100):
        x = rng.uniform(-1.0, 1.0, len(score))
        once = seconds(2)
        if once >= 0.0:  # else it is outside of the support
            n = max(1, int(0.003 / once))
            found.append(min(seconds(n) for _ in range(3)))
        if len(found) == 5:
            break
    return float(np.median(found)) if found else float("nan")
