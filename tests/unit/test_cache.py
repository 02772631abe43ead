"""Where kernels are cached, and when they are compiled anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stanadapt import cache, jit


def test_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_home() == tmp_path / "stanadapt"


def test_cache_moves_where_the_home_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    home = cache.cache_home()
    assert home.is_dir()
    assert home.is_relative_to(tmp_path)


def test_every_file_that_a_kernel_rests_on_is_hashed() -> None:
    names = {path.name for path in jit._kernel_sources()}
    assert {"jit.py", "target.py", "trace.py", "linear.py", "langevin.py", "fisher_mala.py"} <= names
    assert not {"api.py", "cli.py", "build.py", "posterior.py"} & names


def test_a_changed_source_gives_another_folder(tmp_path: Path) -> None:
    """The same package with one comment more in shared maths: its kernels live elsewhere."""
    import shutil

    package = Path(jit.__file__).parent
    shutil.copytree(package, tmp_path / "stanadapt", ignore=shutil.ignore_patterns("__pycache__"))
    script = "import stanadapt.jit; print(stanadapt.jit.__file__, stanadapt.jit.cache_folder().name)"

    def folder() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout.split()

    file, before = folder()
    assert Path(file).is_relative_to(tmp_path)
    assert folder()[1] == before
    with (tmp_path / "stanadapt" / "numerics" / "linear.py").open("a") as source:
        source.write("# another line\n")
    assert folder()[1] != before
