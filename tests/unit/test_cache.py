"""Where kernels are cached, and when they are compiled anew."""

from __future__ import annotations

import fcntl
import os
import pwd
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from numba.core.runtime import rtsys

from cases import thorough
from kernels import counted_arrays
from stanadapt import cache, jit
from stanadapt.compiler import kernel_files
from stanadapt.compiler.kernel_folder import kernel_sources
from stanadapt.compiler.level_codegen import level_codegen
from stanadapt.errors import StanAdaptWarning


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, without a cache that this process may have there already."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv(cache._SHARED, "")  # so that it is restored
    return folder


def test_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = cache.cache_folder("kernels")
    assert folder == tmp_path / "caches" / "stanadapt" / "kernels"
    for made in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_cache_beside_the_script_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the standard for XDG_CACHE_HOME has it of relative paths."""
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cache.cache_folder() == tmp_path / ".cache" / "stanadapt"


def assert_temporary(temporary: Path, reason: str) -> None:
    with pytest.warns(StanAdaptWarning, match=reason) as told:
        folder = cache.cache_folder("kernels")
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert folder.is_relative_to(temporary)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.cache_folder("kernels") == folder


def test_a_home_that_cannot_be_written(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_temporary(temporary, "file")


def test_no_home_at_all(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert_temporary(temporary, "no home")


@pytest.mark.parametrize("loose", ["stanadapt", "stanadapt/kernels"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_cache_that_others_can_write_is_refused(
    loose: str, mode: int, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / loose).mkdir(parents=True, mode=0o700)
    (tmp_path / "stanadapt").chmod(0o700)
    (tmp_path / loose).chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert_temporary(temporary, "others than its owner can write")


def test_the_cache_of_another_user_is_refused(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stanadapt").mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: temporary.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        cache.private_folder(tmp_path / "stanadapt")


def test_a_planted_temporary_folder_is_not_used(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = temporary / "planted"
    planted.mkdir()
    planted.chmod(0o777)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv(cache._SHARED, str(planted))
    assert_temporary(temporary, "file")
    assert list(planted.iterdir()) == []


def test_a_temporary_cache_serves_children_and_goes_with_its_process(tmp_path: Path) -> None:
    script = """
import subprocess, sys
from stanadapt.cache import cache_folder
print(cache_folder("kernels"), flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print(cache_folder("kernels").is_dir())
"""
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "XDG_CACHE_HOME": "/dev/null/nowhere", "TMPDIR": str(tmp_path)}
    environment.pop(cache._SHARED, None)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, env=environment, check=True
    )
    parents, childs, kept = done.stdout.splitlines()
    assert parents == childs
    assert kept == "True"
    assert not Path(parents).parent.exists()
    assert done.stderr.count("Warning") == 1


KERNEL = """
from stanadapt.jit import kernel

@kernel
def twice(x):
    return 2 * x

assert twice(21) == 42
print(sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))
"""


def run_kernel(folder: Path, script: str = KERNEL, **options: object) -> subprocess.CompletedProcess[str]:
    """Run small kernels with a cache in `folder`; they print hits and misses."""
    (folder / "script.py").write_text(script)
    return subprocess.run(
        [sys.executable, folder / "script.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        **options,  # type: ignore[call-overload]
    )


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    """One bit of it in the middle, which in machine code nothing else would notice."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.fixture(scope="module")
def kernel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose cache holds a small kernel, which is found there."""
    folder = tmp_path_factory.mktemp("kernel")
    assert run_kernel(folder).stdout == "0 1\n"
    assert run_kernel(folder).stdout == "1 0\n"
    return folder


@pytest.mark.parametrize(
    "damage",
    [truncate, flip, thorough(lambda _: b""), thorough(lambda data: bytes(len(data)))],
    ids=["truncated", "flipped", "empty", "zeros"],
)
def test_a_damaged_file_is_compiled_again_and_replaced(damage: object, kernel_folder: Path) -> None:
    assert callable(damage)
    (file,) = (kernel_folder / "stanadapt").rglob("script.twice-*.code")
    file.write_bytes(damage(file.read_bytes()))
    again = run_kernel(kernel_folder)
    assert (again.stdout, again.stderr) == ("0 1\n", "")
    assert run_kernel(kernel_folder).stdout == "1 0\n"


CALLS = """
from stanadapt.jit import kernel

@kernel
def inner(x):
    return 2 * x

@kernel
def outer(x):
    return inner(x) + inner(1)

assert outer(20) == 42
for each in (outer, inner):
    stats = each.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), len(each.signatures))
library = next(iter(outer.overloads.values())).library
print(sum("inner" in f.name and not f.is_declaration for f in library._final_module.functions))
"""


def test_a_kernel_that_another_one_calls_is_compiled_once(tmp_path: Path) -> None:
    """For a literal too, and not into its caller, which finds it again if its own file has gone."""
    compiled = run_kernel(tmp_path, CALLS)
    assert compiled.stdout.split("\n")[:4] == ["0 1 1", "0 1 1", "0", ""], compiled.stderr
    assert run_kernel(tmp_path, CALLS).stdout.split("\n")[:2] == ["1 0 1", "1 0 1"]
    for file in (tmp_path / "stanadapt").rglob("script.inner-*.code"):
        file.unlink()
    assert run_kernel(tmp_path, CALLS).stdout.split("\n")[:2] == ["1 0 1", "0 1 1"]


INTERNAL = """
import numpy as np
from numba.core import event
from stanadapt.jit import kernel

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__module__)

    def on_end(self, event):
        pass

compiled = []
event.register("numba:compile", Listener())

@kernel
def rows(n, rng):
    out, whole = np.zeros((n, 2)), np.zeros(n, np.int64)
    whole[0] = 7
    for i in range(n):
        out[i, 0] = rng.standard_normal() + whole[i]
    return out

print(sum(name.startswith("numba.") for name in compiled))
found = rows(3, np.random.default_rng(1))
np.testing.assert_array_equal(found[:, 0], np.random.default_rng(1).standard_normal(3) + [7, 0, 0])
print(sum(name.startswith("numba.") for name in compiled), "__main__" in compiled)
"""


def test_functions_of_numba_are_kept_for_kernels(tmp_path: Path) -> None:
    """A kernel that is compiled again finds those that it calls, for each tuple of types its own."""
    first = run_kernel(tmp_path, INTERNAL)
    count, own = first.stdout.split("\n")[1].split()
    assert int(count) > 5, first.stderr
    assert own == "True"
    for file in (tmp_path / "stanadapt").rglob("script.rows-*.code"):
        file.unlink()
    again = run_kernel(tmp_path, INTERNAL)
    assert again.stdout.split("\n")[1] == "0 True", again.stderr


def test_functions_of_numba_that_differ_in_what_they_hold_are_told_apart() -> None:
    from numba import types
    from numba.np.arrayobj import ol_np_empty

    from stanadapt.compiler.internal_functions import _text_of_function

    kinds = types.DType(types.float64), types.DType(types.int64), types.DType(types.float64)
    texts = [_text_of_function(ol_np_empty(types.int64, kind)) for kind in kinds]
    assert texts[0] == texts[2] != texts[1]
    assert _text_of_function(test_functions_of_numba_are_kept_for_kernels) is None  # no function of numba


NAMESAKES = """
from first_settings import Settings as First
from other_settings import Settings as Other
from stanadapt.jit import kernel

@kernel
def step(settings):
    return settings.step

@kernel
def twice(settings):
    return 2.0 * step(settings)

settings = First(step=1.0, decay=3.0), Other(decay=3.0, step=1.0)
print(*map(step, settings), *map(twice, settings))
for each in (step, twice):
    print(sum(each.stats.cache_hits.values()), sum(each.stats.cache_misses.values()))
"""


def test_named_tuples_of_one_name_have_kernels_of_their_own(tmp_path: Path) -> None:
    """The name and the types of the fields are the same, the order of the fields is not."""
    for name, fields in (("first", "step: float; decay: float"), ("other", "decay: float; step: float")):
        source = f"from typing import NamedTuple\nclass Settings(NamedTuple): {fields}\n"
        (tmp_path / f"{name}_settings.py").write_text(source)
    first = run_kernel(tmp_path, NAMESAKES)
    assert first.stdout == "1.0 1.0 2.0 2.0\n0 2\n0 2\n", first.stderr
    assert run_kernel(tmp_path, NAMESAKES).stdout == "1.0 1.0 2.0 2.0\n2 0\n2 0\n"


def test_a_kernel_that_another_process_compiles_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one here is an open file with the lock, which it gives up while this one waits."""
    monkeypatch.setattr(kernel_files, "_files", lambda: tmp_path)

    def thrice(x):
        return 3 * x

    made = jit.kernel(thrice)
    code = tmp_path / made._cache._name((numba.int64,), level_codegen())
    with code.with_suffix(".turn").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        pauses = []

        def give_up(seconds: float) -> None:
            pauses.append(seconds)
            fcntl.flock(other, fcntl.LOCK_UN)

        monkeypatch.setattr(kernel_files.time, "sleep", give_up)
        assert made(14) == 42
        assert pauses == [kernel_files._PAUSE]
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is free again


def test_a_kernel_that_is_loaded_is_not_being_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress says "compiling" of what takes long, not of what is on the disk."""
    monkeypatch.setattr(kernel_files, "_files", lambda: tmp_path)
    load, take_turn, told = kernel_files.load, kernel_files.take_turn, []

    def tell_load(*arguments: Any) -> Any:
        told.append(("load", jit.is_compiling()))
        return load(*arguments)

    def tell_turn(path: Path) -> Any:
        told.append(("turn", jit.is_compiling()))
        return take_turn(path)

    monkeypatch.setattr(kernel_files, "load", tell_load)
    monkeypatch.setattr(kernel_files, "take_turn", tell_turn)

    def fourfold(x):
        return 4 * x

    assert not jit.is_compiling()
    assert jit.kernel(fourfold)(21) == 84
    assert told == [("load", False), ("turn", True), ("load", True)]
    told.clear()
    assert jit.kernel(fourfold)(21) == 84
    assert told == [("load", False)]
    assert not jit.is_compiling()


def test_a_process_that_does_not_get_on_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "_LONGEST_WAIT", 0.0)
    with (tmp_path / "one.turn").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert kernel_files.take_turn(tmp_path / "one.turn") is None


def test_a_full_disk_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))

    # Without bytecode, which would be cut off, and stay so for all other processes.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = run_kernel(tmp_path, preexec_fn=fill)
    assert done.stdout == "0 1\n", done.stderr
    assert done.stderr.count("cannot be kept") == 1
    assert not [path for path in tmp_path.rglob("*.code*") if path.is_file()]


def test_kernels_are_compiled_without_any_cache(tmp_path: Path) -> None:
    """Neither in the home nor among temporary files, and not beside the sources, where numba would go."""
    script = tmp_path / "script.py"
    script.write_text("import tempfile; tempfile.tempdir = '/dev/null/nowhere'\n" + KERNEL)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": "/dev/null/nowhere", cache._SHARED: ""},
    )
    assert done.stdout == "0 1\n", done.stderr
    assert done.stderr.count("cannot be kept") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_every_file_that_a_kernel_rests_on_is_hashed() -> None:
    names = {path.name for path in kernel_sources()}
    assert {"jit.py", "target.py", "trace.py", "linear.py", "langevin.py", "fisher_mala.py"} <= names
    assert not {"api.py", "sampling.py", "build.py", "posterior.py"} & names


def test_a_changed_source_gives_another_folder(tmp_path: Path) -> None:
    """The same package with one comment more in shared maths: its kernels live elsewhere."""
    package = Path(jit.__file__).parent
    shutil.copytree(package, tmp_path / "stanadapt", ignore=shutil.ignore_patterns("__pycache__"))
    script = "from stanadapt.compiler import kernel_folder as it; print(it.__file__, it.cache_folder().name)"

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


def test_a_kernel_that_does_not_count_references() -> None:
    """Nor can it make arrays; kernels that it calls can."""

    def total(numbers):
        return numbers[0].sum() + numbers[1].sum()

    def doubled(v):
        return np.concatenate((v, v)).sum()

    inner = jit.kernel(doubled)

    def through(v):
        return inner(v)

    pair = np.ones(3), np.ones(2)
    with mock.patch.object(jit, "_with_own_cache", lambda compiled, *_, **__: compiled):
        uncounted, calls, makes = (jit.kernel(counted=False)(each) for each in (total, through, doubled))
        assert uncounted(pair) == 5.0  # a cached entry would hold a copy from an earlier run
        assert calls(pair[0]) == 6.0
        assert "call void @NRT_incref" not in uncounted.inspect_llvm(uncounted.signatures[0])
        with pytest.raises(TypingError):
            makes(pair[0])


@pytest.mark.parametrize("copied", [False, True])
def test_arrays_live_as_long_as_something_holds_them(copied: bool) -> None:
    """Kernels count no references to their arguments, but to what they take from them and give back."""

    def accept(state, y, accepted):
        x, total = state
        if accepted:
            x, total = y, total + y.sum()
        y = y + x  # another array than the argument
        return (x, total), y

    def repeat(state, y, n):
        for i in range(n):
            state, y = step(state, y, i % 3 > 0)
        return state, y

    def either(state, y, first):
        return state[0] if first else y

    x, y = np.ones(3), np.full(3, 2.0)
    step: Any = accept
    (end, total), last = repeat((x, 0.0), y, 9)
    with mock.patch.object(jit, "_with_own_cache", lambda compiled, *_, **__: compiled):
        step = jit.kernel(accept)
        step.copied = copied
        loop, choose = jit.kernel(repeat), jit.kernel(either)
    held = sys.getrefcount(x), sys.getrefcount(y)
    with counted_arrays():
        before = rtsys.get_allocation_stats()
        found = loop((x, 0.0), y, 9)
        np.testing.assert_array_equal(found[0][0], end)
        np.testing.assert_array_equal(found[1], last)
        assert found[0][1] == total
        np.testing.assert_array_equal(choose((x, 0.0), y, True), x)
        np.testing.assert_array_equal(choose((x, 0.0), y, False), y)
        del found
        after = rtsys.get_allocation_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free > 0
    assert (sys.getrefcount(x), sys.getrefcount(y)) == held
    assert ("call i32 @stanadapt.accept" in loop.inspect_llvm(loop.signatures[0])) is not copied
