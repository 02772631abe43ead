"""Files of results: whole or not there, without a crash, and read without executing anything."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from click.testing import CliRunner

import stanadapt
from cases import thorough
from kernels import copy_kernels
from stanadapt import check, cli
from stanadapt.errors import OutputError
from stanadapt.result import files
from stanadapt.result.container import container, datasets, has_datatree

ESCAPE = "a\x1b[31mred\x07\u202e\x9b\r\nb"
ESCAPED = "a\\x1b[31mred\\x07\\u202e\\x9b\\r\\nb"


def result(name: str = "theta", labels: Any = (0, 1), **attrs: Any) -> Any:
    draws = np.random.default_rng(1).normal(size=(2, 50, 2))
    posterior = xarray.Dataset(
        {name: (("chain", "draw", "k"), draws)},
        coords={"chain": [0, 1], "draw": np.arange(50), "k": list(labels)},
        attrs=attrs,
    )
    return container({"posterior": posterior}, attrs)


FULL = """
import os, resource, sys
sys.path[:0] = {places!r}
from test_files import result
from stanadapt.errors import OutputError
from stanadapt.result import files

made = result()
files.write(made, sys.argv[1] + ".whole")
size = os.path.getsize(sys.argv[1] + ".whole")
sys.dont_write_bytecode = True  # or modules that are imported later would be cut off for all other processes
for share in sys.argv[2:]:
    child = os.fork()
    if child:
        print(share, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        continue
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(float(share) * size),) * 2)
    try:
        files.write(made, sys.argv[1])
    except OutputError as error:
        print(error, flush=True)
        sys.exit(1)
    sys.exit(0)
"""


def test_a_disk_that_fills_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """At the beginning of a file, in its middle and at its end, each in a process that has forked."""
    shares = ["0.01", "0.3", "0.7", "0.99"]
    script = FULL.format(places=list(map(str, Path(__file__).parents[:2])))
    command = [sys.executable, "-u", "-W", "ignore", "-c", script, tmp_path / "fit.nc", *shares]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[1::2] == [f"{share} 1" for share in shares]
    assert all("cannot be written: [Errno 27]" in line for line in said[::2])
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc.whole"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = result(labels=["a", "ü"], seed=1, method="rwm")
    files.write(made, tmp_path / "fit.nc")
    read = files.read(tmp_path / "fit.nc")
    assert datasets(read)["posterior"].identical(datasets(made)["posterior"])
    assert dict(read.attrs) == {"seed": 1, "method": "rwm"}


def test_damaged_numbers_are_refused(tmp_path: Path) -> None:
    """Whatever bit of theirs has changed: each array of numbers has a checksum."""
    made = result()
    files.write(made, tmp_path / "fit.nc")
    data = (tmp_path / "fit.nc").read_bytes()
    numbers = datasets(made)["posterior"]["theta"].values.tobytes()
    start = data.index(numbers)
    for bit in np.random.default_rng(3).integers(0, 8 * len(numbers), 50):
        changed = bytearray(data)
        changed[start + bit // 8] ^= 1 << bit % 8
        (tmp_path / "fit.nc").write_bytes(changed)
        with pytest.raises(OutputError, match="it is damaged, since it does not have the checksums"):
            files.read(tmp_path / "fit.nc")


def test_a_flipped_bit_anywhere_changes_no_number(tmp_path: Path) -> None:
    """Texts, such as attributes, have no checksums."""
    made = result(labels=["a", "b"], seed=1)
    files.write(made, tmp_path / "fit.nc")
    data = (tmp_path / "fit.nc").read_bytes()
    expected = datasets(made)["posterior"]
    for bit in np.random.default_rng(4).integers(0, 8 * len(data), 60):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "fit.nc").write_bytes(changed)
        try:
            found = datasets(files.read(tmp_path / "fit.nc"))["posterior"]
        except OutputError:
            continue
        for name in ("theta", "chain", "draw"):
            np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=f"bit {bit}")


def test_what_has_no_numbers_is_written(tmp_path: Path) -> None:
    """Scalars, empty arrays and texts cannot have checksums."""
    made = result()
    extra = xarray.Dataset({"one": 5.0, "none": (("a", "b"), np.empty((0, 3))), "text": ("c", ["x", "y"])})
    made = container({**datasets(made), "constant_data": extra})
    files.write(made, tmp_path / "fit.nc")
    files.write(files.read(tmp_path / "fit.nc"), tmp_path / "fit.nc")
    assert datasets(files.read(tmp_path / "fit.nc"))["constant_data"].identical(extra)


@pytest.mark.parametrize("kind", ["link", "external", "virtual"])
def test_other_files_are_not_read(kind: str, tmp_path: Path) -> None:
    """Those that a file from somebody else names: whoever passes the result on would pass them on too."""
    secret = np.arange(200.0)
    (tmp_path / "secret").write_bytes(secret.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["secret"] = secret
    files.write(result(), tmp_path / "fit.nc")
    with h5py.File(tmp_path / "fit.nc", "r+") as file:
        group = file["posterior"]
        if kind == "link":
            group["more"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/secret")
        elif kind == "external":
            group.create_dataset("more", (200,), float, external=[(str(tmp_path / "secret"), 0, 1600)])
        else:
            layout = h5py.VirtualLayout((200,), float)
            layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "secret", (200,))
            group.create_virtual_dataset("more", layout)
    with pytest.raises(OutputError, match=r"/posterior/more (is a link|has its numbers).* not read"):
        files.read(tmp_path / "fit.nc")


# A DataTree holds no name with a slash in the first place.
@pytest.mark.parametrize("name", ["", ".", "..", "a\0b", *(() if has_datatree() else ("a/b",))])
def test_names_that_netcdf_cannot_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputError, match="cannot be written as netCDF"):
        files.write(result(name), tmp_path / "fit.nc")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = files.rescue_result(result(name), "fit.nc")
    if "\0" not in name:  # at which an entry of an archive ends
        assert name in datasets(files.read(path))["posterior"]


def test_rescued_results_keep_words_and_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = xarray.Dataset({"first_failure": ("chain", np.array(["", "x < 0"], dtype=object))})
    groups = datasets(result()) | {"adaptation": words}
    made = container(groups, {"seed": np.int64(3), "method": "rwm"})
    read = files.read(files.rescue_result(made, "fit/odd.nc"))
    assert read.attrs["method"] == "rwm"
    assert list(datasets(read)["adaptation"]["first_failure"].values) == ["", "x < 0"]
    np.testing.assert_array_equal(datasets(read)["posterior"]["theta"], groups["posterior"]["theta"])


def test_draws_go_to_the_current_folder_where_there_are_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.chdir(tmp_path)
    path = files.rescue({"posterior": {"x": np.zeros((1, 2))}}, {})
    assert path.is_relative_to(tmp_path)
    monkeypatch.chdir("/proc")
    with pytest.raises(OutputError, match="cannot be rescued"):
        files.rescue({"posterior": {"x": np.zeros((1, 2))}}, {})


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_reading_executes_nothing(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "sprung")
    np.savez(tmp_path / "draws.npz", **{"posterior/x": np.array([trap], dtype=object), "attributes": "{}"})
    (tmp_path / "fit.nc").write_bytes(pickle.dumps(trap))
    (tmp_path / "renamed.nc").write_bytes((tmp_path / "draws.npz").read_bytes())
    for name in ("draws.npz", "fit.nc", "renamed.nc"):
        with pytest.raises(OutputError, match="cannot be read"):
            files.read(tmp_path / name)
    assert not trap.path.exists()


@pytest.mark.parametrize("name", ["theta", ESCAPE])
def test_names_from_files_do_not_command_terminals(name: str, tmp_path: Path) -> None:
    note = f"interrupted: {ESCAPE}"
    files.write(result(name, [ESCAPE, "other"], interrupted_note=note), tmp_path / "fit.nc")
    for arguments in (["summary"], ["diagnose"], ["summary", "--var", "unknown"]):
        command, *options = arguments
        said = CliRunner().invoke(cli.main, [command, str(tmp_path / "fit.nc"), *options])
        assert not isinstance(said.exception, ValueError)
        for character in "\x1b\x07\u202e\x9b\r":
            assert character not in said.output
    table = CliRunner().invoke(cli.main, ["summary", str(tmp_path / "fit.nc")]).output
    assert f"{check.printable(name)}[{ESCAPED}]" in table
    assert len(table.splitlines()) == 3
    assert ESCAPED in CliRunner().invoke(cli.main, ["diagnose", str(tmp_path / "fit.nc")]).output


def test_printable() -> None:
    assert check.printable("ä β 名 \ud800\x7f") == "ä β 名 \\ud800\\x7f"
    assert check.printable("two\nlines\t", "\n") == "two\nlines\\t"


NORMAL = "parameters { real x; } model { x ~ std_normal(); }"
RUN = {"method": "rwm", "seed": 1, "warmup": 50, "draws": 50, "chains": 2, "progress": False}
HOMELESS = """
import json, os, pwd, shutil, sys

def unknown(_):
    raise KeyError("uid not found")

pwd.getpwuid = unknown
import stanadapt
from stanadapt.compiler.kernel_folder import cache_folder
shutil.copytree(sys.argv[1], cache_folder(), dirs_exist_ok=True)  # to compile it takes half a minute
idata = stanadapt.sample(sys.argv[2], **json.loads(sys.argv[3]))
from stanadapt.result.container import datasets
print(datasets(idata)["posterior"].sizes["draw"], len(stanadapt.diagnose(idata)) > 0)
"""


@pytest.mark.parametrize("home", [thorough(None), "/proc/nowhere"])
def test_a_user_without_a_home_or_a_name(home: str | None, tmp_path: Path) -> None:
    """As in containers; arviz 0.23 cannot be imported there by itself."""
    environment = dict(os.environ)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(name, None)
    if home is not None:
        environment["HOME"] = home
    stanadapt.diagnose(stanadapt.sample(NORMAL, **RUN))  # compiles what is copied
    copy_kernels(tmp_path)
    command = [sys.executable, "-c", HOMELESS, str(tmp_path), NORMAL, json.dumps(RUN)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "50 True\n", done.stderr
    assert done.stderr.count("the cache of compiled code is not used") == 1


def test_what_arviz_needs_is_tried_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ImportError("arviz is broken")

    evaluated = []
    target = stanadapt.Target.from_python(lambda x: evaluated.append(1) or -float(x @ x), 1)
    monkeypatch.setattr("stanadapt.result.build.container", fail)
    with pytest.raises(ImportError, match="broken"):
        stanadapt.sample(target, method="rwm", chains=1, progress=False)
    assert not evaluated


def test_variables_that_clash_are_refused_before_the_run() -> None:
    evaluated = []
    target = stanadapt.Target.from_python(
        lambda x: evaluated.append(1) or -float(x @ x), 3, names=["x.1", "x.2", "x_dim_0"]
    )
    with pytest.raises(stanadapt.errors.ModelError, match="x_dim_0 has the name of a dimension of x"):
        stanadapt.sample(target, method="rwm", chains=1, progress=False)
    assert not evaluated
