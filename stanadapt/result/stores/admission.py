"""Checks of a store before Zarr opens it: only the descriptions that blocks.py writes are allowed.

Zarr finds codecs by the names in a description. Some of its installed codecs execute what they read, such as
pickles, and format 2 allows them as filters. So this file first reads the descriptions as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...check import quote
from ...errors import StoreError

METADATA = "zarr.json"
_FORMAT_2 = (".zgroup", ".zarray", ".zattrs", ".zmetadata")
_GROUP = {"zarr_format", "node_type", "attributes", "consolidated_metadata"}
_ARRAY = {
    "zarr_format",
    "node_type",
    "attributes",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "codecs",
    "fill_value",
    "storage_transformers",
    "dimension_names",
}
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"bool", "float16", "float32", "float64", "complex64", "complex128"}
_TEXT = "string"
_CHUNKS_BELOW = 2  # levels of folders below a result's folder, within the folders of its arrays


def check_files(folder: Path, arrays: tuple[Path, ...]) -> None:
    """Refuse links and devices in the folder of a run; the chunks below `arrays` are not looked at.

    A link could lead the reader to another file. A chunk behind a link lacks the checksum that it needs.

    Raises
    ------
    StoreError
        It names the file.
    """
    for entry in _entries(folder, arrays, _CHUNKS_BELOW):
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            if not os.path.lexists(entry.path):  # the running process has replaced it meanwhile
                continue
            raise StoreError(
                f"{entry.path} is a link or a device, which a store does not have: it is not read"
            )
        if entry.name in _FORMAT_2:
            raise StoreError(f"{entry.path} is of Zarr's format 2, and a store has format 3: it is not read")


def check_tree(folder: Path) -> None:
    """Refuse the arrays of a result unless all of them are as blocks.py describes them. Raises StoreError."""
    _check_group(folder)
    for group in _folders(folder):
        check_group(group)


def check_group(folder: Path) -> None:
    """The same of one group of arrays. Raises StoreError."""
    _check_group(folder)
    for array in _folders(folder):
        check_array(array)


def check_array(folder: Path) -> None:
    """Refuse what is no array of format 3 with the codecs that blocks.py writes. Raises StoreError."""
    found = _description(folder, "array", _ARRAY)
    kind, codecs = found.get("data_type"), found.get("codecs")
    if not isinstance(kind, str) or kind not in _NUMBERS | {_TEXT}:
        raise _damage_error(folder, "data_type", kind)
    if not _are_ours(codecs, "vlen-utf8" if kind == _TEXT else "bytes"):
        raise _damage_error(folder, "codecs", codecs)
    if found.get("storage_transformers", []) != []:
        raise _damage_error(folder, "storage_transformers", found["storage_transformers"])
    for name, ours in (("chunk_grid", "regular"), ("chunk_key_encoding", "default")):
        held = found.get(name)
        if not isinstance(held, dict) or held.get("name") != ours:
            raise _damage_error(folder, name, held)


def _check_group(folder: Path) -> None:
    """Refuse what is no group of format 3 with a description of its own alone."""
    found = _description(folder, "group", _GROUP)
    # Zarr would take the descriptions of arrays from there.
    if found.get("consolidated_metadata") is not None:
        raise _damage_error(folder, "consolidated_metadata", found["consolidated_metadata"])


def _are_ours(codecs: Any, first: str) -> bool:
    """Whether codecs are one for numbers or texts, and a checksum."""
    if not isinstance(codecs, list) or not all(isinstance(codec, dict) for codec in codecs):
        return False
    settings = [codec.get("configuration", {}) for codec in codecs]
    return (
        [codec.get("name") for codec in codecs] == [first, "crc32c"]
        and settings[0] in ({}, {"endian": "little"}, {"endian": "big"})
        and settings[1] == {}
        and all(set(codec) <= {"name", "configuration"} for codec in codecs)
    )


def _description(folder: Path, node: str, allowed: set[str]) -> dict[str, Any]:
    """What describes a group or an array. Raises StoreError."""
    path = folder / METADATA
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: it is damaged or missing ({type(error).__name__}: {error})") from error
    if not isinstance(found, dict) or (found.get("zarr_format"), found.get("node_type")) != (3, node):
        raise StoreError(f"{path}: it is damaged: it does not describe a Zarr {node} of format 3")
    if strange := sorted(set(found) - allowed):
        raise _damage_error(folder, strange[0], found[strange[0]])
    return found


def _damage_error(folder: Path, name: str, value: Any) -> StoreError:
    return StoreError(
        f"{folder / METADATA} names {name}={quote(value)}, which no store has: it is damaged, or made by "
        "another program, and is not opened"
    )


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _entries(folder: Path, arrays: tuple[Path, ...], deepest: int) -> Iterator[os.DirEntry[str]]:
    """All that is in a folder, but for the chunks of arrays, `deepest` folders below one of `arrays`."""
    waiting: list[tuple[Path, float]] = [(folder, float("inf"))]
    while waiting:
        place, left = waiting.pop()
        if place in arrays:
            left = deepest
        try:
            with os.scandir(place) as entries:
                held = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreError(f"{place} cannot be read: {error}") from error
        for entry in held:
            yield entry
            if left and entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), left - 1))
