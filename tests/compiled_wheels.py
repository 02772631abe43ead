"""Wheels that bring the machine code of all methods, so that a first run compiles nothing.

    python tests/compiled_wheels.py WHEEL [PYTHON ...]     by default the Python that runs this

For each Python it installs the wheel in a new environment, compiles all methods there for each level of
processors (stanadapt/compiler/level_codegen.py), and packs the files into a copy of the wheel, beside it.
The name of the copy says the version of Python and the system, so that pip takes it where it fits and the
other wheel elsewhere. The machine code serves one version of numba, the newest that pip finds; with another
one a first run compiles as from a checkout. At the end each new wheel is installed in an environment of its
own, where fits must compile nothing.

A processor compiles for its own level and those under it. Only wheels for Linux on x86-64 are built.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEM = "manylinux_2_17_x86_64"  # what numba needs, too
LEVELS = "from stanadapt.compiler.level_codegen import processor_levels; print(*processor_levels())"
METHODS = "from stanadapt.method_names import METHODS; print(*METHODS)"
VERSION = "import sys; print('cp%d%d' % sys.version_info[:2])"


def build_for(wheel: Path, python: str, folder: Path) -> Path:
    """A copy of `wheel` with machine code for this Python, beside it; `folder` is to work in."""
    command = environment(folder / "venv", python, wheel)
    levels = output([command, "-c", LEVELS]).split()
    if not levels:
        sys.exit("this processor is below x86-64-v3, so it can compile for no level of processors")
    run([command, "-m", "pip", "install", "--quiet", "wheel"])
    run([command, "-m", "wheel", "unpack", "--dest", folder, wheel])
    (unpacked,) = (path for path in folder.iterdir() if path.name.startswith("stanadapt-"))
    for level in levels:
        cache = folder / level
        compiling = {"XDG_CACHE_HOME": str(cache), "NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
        run([command.with_name("stanadapt"), "compile", "--all", "--no-progress"], changed=compiling)
        shutil.copytree(
            cache / "stanadapt" / "kernels",
            unpacked / "stanadapt" / "compiled",
            ignore=shutil.ignore_patterns("*.turn"),
            dirs_exist_ok=True,
        )
    tag = output([command, "-c", VERSION])
    (about,) = unpacked.glob("*.dist-info/WHEEL")
    text = about.read_text("utf-8").replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    about.write_text(text.replace("Tag: py3-none-any", f"Tag: {tag}-{tag}-{SYSTEM}"), "utf-8")
    run([command, "-m", "wheel", "pack", "--dest-dir", wheel.parent, unpacked])
    return next(wheel.parent.glob(f"*-{tag}-{tag}-{SYSTEM}.whl"))


def try_wheel(wheel: Path, python: str, folder: Path) -> None:
    """Fits by all methods with a new wheel, from an empty cache, which must compile nothing."""
    command, cache = environment(folder / "venv", python, wheel), folder / "cache"
    model = Path(__file__).parents[1] / "models" / "eight_schools" / "eight_schools"
    for method in output([command, "-c", METHODS]).split():
        fit = [f"{model}.stan", "--data", f"{model}.json", "--method", method, "--seed", "1", "--no-progress"]
        out = folder / f"{method}.nc"
        run(
            [command.with_name("stanadapt"), "sample", *fit, "--out", out],
            changed={"XDG_CACHE_HOME": str(cache)},
        )
    compiled = [path.name for path in cache.rglob("*.code")]
    if compiled:
        sys.exit(f"first runs with {wheel.name} compiled {len(compiled)} kernels: {', '.join(compiled)}")


def environment(folder: Path, python: str, wheel: Path) -> Path:
    """The Python of a new environment in which `wheel` is installed."""
    run([python, "-m", "venv", folder])
    run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel])
    return folder / "bin" / "python"


def run(command: list[str | Path], folder: Path = Path("/"), changed: dict[str, str] | None = None) -> None:
    """Run a command in a folder, with some variables of the environment changed.

    Where it fails, this process ends with its exit status.
    """
    print("$", *command, flush=True)
    status = subprocess.run(command, env=os.environ | (changed or {}), cwd=folder, check=False).returncode
    if status:
        sys.exit(status)


def output(command: list[str | Path]) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=True).stdout.strip()


def can_build() -> bool:
    """Whether this machine can build them."""
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def main(wheel: Path, pythons: list[str]) -> None:
    if not can_build():
        sys.exit("wheels with machine code are built on Linux on x86-64 only")
    for python in pythons:
        with tempfile.TemporaryDirectory() as name:
            made = build_for(wheel, python, Path(name) / "build")
            try_wheel(made, python, Path(name) / "try")
        print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB, compiles nothing")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), sys.argv[2:] or [sys.executable])
