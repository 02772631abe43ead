"""Small runs in folders, for tests of what happens to them: how to make one, and whether two are the same.

    python stores.py kill|full FOLDER FIRST STEP

ends a run at its FIRST change of a file in the folder, and others at every STEP-th after that: by SIGKILL, or
by a disk that is full from then on. Each is loaded, resumed and compared; a line says how many there were.

    python stores.py extend FOLDER FIRST STEP

kills extensions of a run in the same way. Each is loaded and resumed, and extended where it had not begun.

    python stores.py flip|cut FOLDER FIRST STEP

takes a run that is over and one that is not, and damages them at the FIRST byte of all their files one after
another, and at every STEP-th after that: another bit, or the end of the file. What is read then is right, or
refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from stanadapt.errors import FindingsWarning, StoreError
from stanadapt.result.container import attributes, datasets
from stanadapt.result.stores import store as stores
from stanadapt.run import chain

PROGRAM = """
data { int n; vector[n] y; }
parameters { vector<lower=0>[2] s; }
model { s ~ exponential(1); y ~ normal(s[1], s[2]); }
generated quantities { real z = normal_rng(s[1], s[2]); }
"""
DATA = {"n": 5, "y": [0.3, 1.2, -0.4, 2.2, 0.9]}
RUN: dict[str, Any] = {
    "method": "rwm",
    "seed": 4,
    "progress": False,
    "chains": 2,
    "warmup": 20,
    "draws": 40,
    "save_warmup": True,
    "workers": 1,
}
TIMES = ("seconds", "seconds_warmup", "seconds_total")
ROWS = 16  # of a block, the fewest
MORE = 30  # draws of an extension
OFTEN = 13  # blocks of a chain, of one iteration each, between checkpoints


def sample(model: Any = PROGRAM, data: Any = DATA, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


def resume(folder: Any, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.resume(folder, progress=False, **keywords)


def extend(folder: Any, draws: int, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.extend(folder, draws, progress=False, **keywords)


@contextlib.contextmanager
def short_intervals() -> Iterator[None]:
    """Blocks of one iteration, checkpoints after every few of them, and small blocks on the disk."""
    calls: dict[int, int] = {}

    def is_due(_: Any, index: int) -> bool:
        calls[index] = calls.get(index, 0) + 1
        return calls[index] % OFTEN == 0

    was = chain._BLOCK_SECONDS, stores.BLOCK_BYTES, stores.Store.is_due
    chain._BLOCK_SECONDS, stores.BLOCK_BYTES = 0.0, 1
    stores.Store.is_due = is_due  # type: ignore[method-assign]
    try:
        yield
    finally:
        chain._BLOCK_SECONDS, stores.BLOCK_BYTES = was[:2]
        stores.Store.is_due = was[2]  # type: ignore[method-assign]


def assert_same(one: Any, other: Any) -> None:
    """Two results are equal in every group, variable, dimension and label, bit for bit; times may differ."""
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group, mine in ones.items():
        theirs = others[group]
        assert set(mine.variables) == set(theirs.variables), group
        assert dict(mine.sizes) == dict(theirs.sizes), group
        for name in set(mine.variables) - set(TIMES):
            assert mine[name].dims == theirs[name].dims, (group, name)
            assert_equal(mine[name].values, theirs[name].values, f"{group}/{name}")


def assert_part(part: Any, whole: Any) -> int:
    """A partial result has nothing but the beginning of the whole one; how many draws it has."""
    ours, theirs = datasets(part), datasets(whole)
    for group in set(ours) - {"adaptation"}:
        chains = ours[group]["chain"].values if "chain" in ours[group].dims else None
        for name in ours[group].variables:
            expected = theirs[group][name]
            if chains is not None and "chain" in expected.dims:
                expected = expected.sel(chain=chains)
            if "draw" in expected.dims:
                expected = expected.isel(draw=slice(ours[group].sizes["draw"]))
            assert ours[group][name].dims == expected.dims
            assert_equal(ours[group][name].values, expected.values, f"{group}/{name}")
    return int(ours["posterior"].sizes["draw"])


def assert_equal(one: np.ndarray, other: np.ndarray, name: str) -> None:
    assert one.dtype == other.dtype, name
    if one.dtype == object:
        assert list(map(str, one.ravel())) == list(map(str, other.ravel())), name
    else:
        np.testing.assert_array_equal(one, other, err_msg=name)


def fail_at(folder: Path, count: int, act: Callable[[], None]) -> None:
    """Call `act` before the `count`-th change of what is in the folder, and before all later ones."""
    left = count

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            path = arguments[0] if arguments else ""
            changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
        if changes and isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(folder)):
            left -= 1
            if left <= 0:
                act()

    sys.addaudithook(look)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def in_fork(act: Callable[[], None]) -> int:
    """What a process is like after `act`: 0, 1 after an exception, or minus the signal that has ended it."""
    child = os.fork()
    if child == 0:
        try:
            act()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_with_faults(kind: str, folder: Path, first: int, step: int) -> int:
    """See the head of this file; the number of faults that there were."""
    expected = folder.with_name("expected.npz")
    np.savez(expected, **_arrays(sample()))  # compiles, too, what the forks have then; its threads are gone
    number = 0
    while True:
        place = folder / str(number)
        status = in_fork(lambda place=place, n=first + number * step: _run(kind, place, n))  # type: ignore[misc]
        if kind == "kill" and status != -signal.SIGKILL:
            assert status == 0, status
            return number
        if kind == "full" and status == 2:
            return number
        assert kind == "kill" or status == 0, status
        assert in_fork(lambda place=place: _check(place, expected)) == 0, first + number * step  # type: ignore[misc]
        number += 1


def extend_with_kills(folder: Path, first: int, step: int) -> int:
    """See the head of this file; the number of kills that there were."""
    before, after = _arrays(sample()), _arrays(sample(draws=40 + MORE))
    with short_intervals():
        sample(store=folder / "whole")
    number = 0
    while True:
        place = Path(shutil.copytree(folder / "whole", folder / str(number)))
        status = in_fork(lambda place=place, n=first + number * step: _extend(place, n))  # type: ignore[misc]
        if status != -signal.SIGKILL:
            assert status == 0, status
            return number
        seen = in_fork(lambda place=place: _check_extended(place, before, after))  # type: ignore[misc]
        assert seen == 0, first + number * step
        number += 1


def _extend(place: Path, count: int) -> None:
    with short_intervals():
        fail_at(place, count, kill)
        extend(place, MORE)


def _check_extended(place: Path, before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> None:
    """A run whose extension was killed has its own draws, and those of a longer one when it goes on."""
    with short_intervals():
        part = datasets(stanadapt.load(place))["posterior"]
        n = part.sizes["draw"]
        for name in part.data_vars:
            np.testing.assert_array_equal(part[name].values, after[f"posterior {name}"][:, :n])
        assert n >= 40
        for expected in (before, after):
            found = _arrays(resume(place))
            if expected is before and len(found["posterior draw"]) == 40 + MORE:
                continue  # the folder knew already how long it is to be
            if expected is after and len(found["posterior draw"]) == 40:
                found = _arrays(extend(place, MORE))
            for held in (found, _arrays(stanadapt.load(place))):
                assert set(held) == set(expected), set(held) ^ set(expected)
                for name in held:
                    np.testing.assert_array_equal(held[name], expected[name], err_msg=name)


def _arrays(result: Any) -> dict[str, np.ndarray]:
    groups = datasets(result).items()
    return {
        f"{group} {name}": held[name].values
        for group, held in groups
        for name in held.variables
        if name not in TIMES and held[name].dtype != object
    }


def _run(kind: str, place: Path, count: int) -> None:
    with short_intervals():
        if kind == "kill":
            fail_at(place, count, kill)
            sample(store=place)
            return
        full = True

        def act() -> None:
            if full:
                refuse()

        fail_at(place, count, act)
        with warnings.catch_warnings():
            warnings.simplefilter("error", stanadapt.errors.StanAdaptWarning)
            warnings.simplefilter("ignore", FindingsWarning)
            try:
                sample(store=place)
            except (StoreError, stanadapt.errors.StanAdaptWarning) as error:
                if "No space left" not in str(error):
                    raise
                return
        os._exit(2)


def _check(place: Path, expected: Path) -> None:
    with np.load(expected, allow_pickle=False) as held, short_intervals():
        if not (place / "run.json").exists():
            whole = sample(store=place)
        else:
            part = datasets(stanadapt.load(place))["posterior"]
            for name in part.data_vars:
                chains, n = part["chain"].values, part.sizes["draw"]
                np.testing.assert_array_equal(part[name].values, held[f"posterior {name}"][chains, :n])
            whole = resume(place)
        found = _arrays(whole)
        assert set(found) == set(held.files), set(found) ^ set(held.files)
        for name in found:
            np.testing.assert_array_equal(found[name], held[name], err_msg=name)
        again = _arrays(stanadapt.load(place))
        assert set(again) == set(found)
        for name in found:
            np.testing.assert_array_equal(again[name], found[name], err_msg=name)


@contextlib.contextmanager
def stopped_at(keeping: int) -> Iterator[None]:
    """The run fails when it has written so many checkpoints."""
    was, left = stores.Store.keep, keeping

    def keep(self: Any, *arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise RuntimeError("stopped")
        left -= 1
        was(self, *arguments)

    stores.Store.keep = keep  # type: ignore[method-assign]
    try:
        yield
    except RuntimeError as error:
        if str(error) != "stopped":
            raise
    finally:
        stores.Store.keep = was  # type: ignore[method-assign]


def sample_part(folder: Path, keeping: int = 4, **keywords: Any) -> None:
    """A run in a folder that has failed on its way."""
    with short_intervals(), stopped_at(keeping):
        sample(store=folder, **keywords)
    assert (folder / "run.json").exists()
    assert not (folder / "end.json").exists()


class Damage:
    """Damages files of a run in a folder, one at a time, and sees what becomes of it."""

    def __init__(self, folder: Path, whole: Any) -> None:
        self.folder, self.whole = folder, whole
        self.files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        self.attributes = attributes(stanadapt.load(folder))
        self.refused = self.right = 0

    def flip(self, file: Path, byte: int, bit: int) -> None:
        data = bytearray((self.folder / file).read_bytes())
        data[byte] ^= 1 << bit
        self.check(file, bytes(data))

    def cut(self, file: Path, byte: int) -> None:
        self.check(file, (self.folder / file).read_bytes()[:byte])

    def remove(self, file: Path) -> None:
        self.check(file, None)

    def check(self, file: Path, data: bytes | None) -> None:
        """With these bytes in the file: reading and resuming give what is right, or a StoreError."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            shutil.copytree(self.folder, folder)
            (folder / file).unlink()
            if data is not None:
                (folder / file).write_bytes(data)
            self._count(lambda: self._read(folder))
            with short_intervals(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._count(lambda: assert_same(stanadapt.resume(folder, progress=False), self.whole))

    def _read(self, folder: Path) -> None:
        part = stanadapt.load(folder)
        assert_part(part, self.whole)
        found = attributes(part)
        if "partial" not in found:
            assert_same(part, self.whole)
            assert found == self.attributes
        else:
            assert found["interrupted_note"].startswith("interrupted: ")

    def _count(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StoreError:
            self.refused += 1
        else:
            self.right += 1


def damage(kind: str, folder: Path, first: int, step: int) -> str:
    """See the head of this file."""
    whole = sample()
    with short_intervals():
        sample(store=folder / "whole")
    sample_part(folder / "part")
    lines = []
    for name in ("whole", "part"):
        place = Damage(folder / name, whole)
        sizes = [(file, (folder / name / file).stat().st_size) for file in place.files]
        bytes_ = [(file, byte) for file, size in sizes for byte in range(size)]
        for number, (file, byte) in enumerate(bytes_[first::step]):
            try:
                place.flip(file, byte, number % 8) if kind == "flip" else place.cut(file, byte)
            except Exception as error:
                error.add_note(f"{name}: {file}, byte {byte}")
                raise
        files = len(place.files)
        lines.append(f"{name}: {files} files, {place.right} times right, {place.refused} times refused")
    return "\n".join(lines)


if __name__ == "__main__":
    where, first, step = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if sys.argv[1] == "extend":
        print(extend_with_kills(where, first, step))
    else:
        act = run_with_faults if sys.argv[1] in ("kill", "full") else damage
        print(act(sys.argv[1], where, first, step))
