"""The fits of `sample_many`: data sets, or pairs of a model and data, by keys; and the seed of each."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..model.labelled_data import is_table

_FORMS = (
    "a mapping of keys to data, or an iterable of (key, data) tuples or of data; data are a mapping, a path "
    "to a JSON file, JSON text, or None"
)
_PAIR_FORMS = (
    "with model=None a mapping of keys to (model, data), or an iterable of (key, (model, data)) tuples"
)
_KEYS = "a string, an integer, or a tuple of such"
_DATA = (Mapping, str, os.PathLike, type(None))


class Entry(NamedTuple):
    """One fit that is asked for."""

    key: Any
    text: str  # of the key, the same in every process and on every machine
    model: Any
    data: Any

    def seed(self, seed: int) -> int:
        """The seed of this fit in a run with the seed `seed`: by its key alone, not by order or number.

        Of 100,000 keys about one pair has the same of the 2**32 seeds. That does no harm, since their data
        differ.
        """
        words = np.frombuffer(hashlib.sha256(self.text.encode()).digest(), "<u4")
        return int(np.random.SeedSequence([seed, *map(int, words)]).generate_state(1)[0])


def key_text(key: Any) -> str:
    """The canonical text of a key, which is JSON: `"a"`, `3`, `["a", 3]`.

    Raises
    ------
    ArgumentError
        It is no key. Floats and dates are refused: equal ones may have different texts.
    """
    return json.dumps(_plain_key(key, key))


def _plain_key(key: Any, whole: Any) -> Any:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, tuple) and key:
        return [_plain_key(part, whole) for part in key]
    raise ArgumentError(
        f"the key {check.quote(whole)} is not allowed: a key must be {_KEYS}; str(key) is one"
    )


def count(datasets: Any) -> int | None:
    """How many fits there are, where that can be told without looking at them."""
    return len(datasets) if isinstance(datasets, Sized) else None


def entries(model: Any, datasets: Any) -> Iterator[Entry]:
    """The fits, one at a time as the iterator is asked; `datasets` as a whole is checked at once.

    The iterator raises an ArgumentError at an item whose form differs from the first one's, at an invalid
    key, and at a key that comes twice.

    Raises
    ------
    ArgumentError
        `datasets` is of no form that is allowed, or seems to be a single data set.
    """
    allowed = _PAIR_FORMS if model is None else _FORMS
    if isinstance(datasets, str | bytes | os.PathLike) or not isinstance(datasets, Iterable):
        raise check.refusal("datasets", datasets, allowed)
    if hasattr(datasets, "columns") or hasattr(datasets, "dtype"):  # a table or an array is iterable too
        raise check.refusal("datasets", datasets, allowed)
    if isinstance(datasets, Mapping):
        _check_mapping(model, datasets)
    return _entries(model, datasets)


def _check_mapping(model: Any, datasets: Mapping[Any, Any]) -> None:
    """Refuse a single data set, whose values are numbers. Only the first value is looked at."""
    for key, value in datasets.items():
        if model is None and not _is_pair(value):
            raise check.refusal(f"datasets[{key!r}]", value, f"(model, data): {_PAIR_FORMS}")
        if model is not None and not (isinstance(value, _DATA) or is_table(value)):
            raise ArgumentError(
                f"datasets seems to be a single data set: datasets[{key!r}] is {check.quote(value)}, where "
                "data are expected. Use stanadapt.sample for one data set, or [data]"
            )
        return


def _entries(model: Any, datasets: Any) -> Iterator[Entry]:
    seen: set[bytes] = set()
    with_keys = isinstance(datasets, Mapping)
    for number, item in enumerate(datasets.items() if with_keys else datasets):
        if not with_keys and number == 0:
            with_keys = isinstance(item, tuple)
        key, value = _key_and_value(model, number, item, with_keys)
        text = key_text(key)
        digest = hashlib.sha256(text.encode()).digest()[:16]
        if digest in seen:
            raise ArgumentError(f"datasets: the key {check.quote(key)} comes twice; each fit needs its own")
        seen.add(digest)
        yield Entry(key, text, *(value if model is None else (model, value)))


def _key_and_value(model: Any, number: int, item: Any, with_keys: bool) -> tuple[Any, Any]:
    """Key and data, or pair of model and data, of an item."""
    if with_keys:
        if not (isinstance(item, tuple) and len(item) == 2):
            raise _wrong_item(model, number, item)
        if model is None and not _is_pair(item[1]):
            raise _wrong_item(model, number, item)
        return item
    if model is None or not (isinstance(item, _DATA) or is_table(item)):
        raise _wrong_item(model, number, item)
    return number, item


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _wrong_item(model: Any, number: int, item: Any) -> ArgumentError:
    allowed = _PAIR_FORMS if model is None else f"{_FORMS}; and all of its items must be of the same form"
    what = f"item {number} of datasets, {check.quote(item)}"
    return ArgumentError(f"{what}, is not allowed: datasets must be {allowed}")
