"""Categoricals of new data with the levels of an earlier fit: a level keeps the number that it had there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .labelled_data import as_pandas, is_categorical, is_table, is_text, plain_labels


class Recoded(NamedTuple):
    """Data with known levels."""

    data: Any
    unknown: dict[str, list[Any]]  # by name of a categorical, levels that the fit did not have


def with_known_levels(data: Any, known: Mapping[str, Sequence[Any]]) -> Recoded:
    """Number the levels of categoricals as an earlier fit did.

    Parameters
    ----------
    data
        What the user gave. Its categoricals may have fewer levels than those of the fit, or others, in any
        order. Columns of texts are taken for categoricals where the fit had one of their name.
    known
        The levels of the fit, by name of the categorical.

    Returns
    -------
    Recoded
        The same data; levels that are new have the numbers after those of the fit.
    """
    if is_table(data):
        data = as_pandas(data)
        given = {name: data[name] for name in known if name in data.columns}
    elif isinstance(data, Mapping):
        given = {name: data[name] for name in known if is_categorical(data.get(name))}
    else:
        return Recoded(data, {})
    columns, unknown = {}, {}
    for name, column in given.items():
        if is_categorical(column):
            held = getattr(column, "cat", column)
            columns[name], new = _recode(np.asarray(held.codes), plain_labels(held.categories), known[name])
        elif is_text(column):
            own, codes = np.unique(np.asarray(column, dtype=str), return_inverse=True)
            columns[name], new = _recode(codes, own.tolist(), known[name])
        else:
            continue
        if new:
            unknown[name] = new
    if not columns:  # it may be a Dataset of xarray, which is a Mapping
        return Recoded(data, {})
    if is_table(data):
        return Recoded(data.assign(**columns), unknown)
    return Recoded({**data, **columns}, unknown)


def _recode(codes: np.ndarray, own: Sequence[Any], known: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A categorical with the known levels and those of its own that are used beside; and the latter."""
    import pandas

    places = {_plain(label): i for i, label in enumerate(known)}
    new = []
    for label in map(_plain, (own[i] for i in np.unique(codes[codes >= 0]))):
        if label not in places:
            places[label] = len(places)
            new.append(label)
    moved = np.array([places.get(_plain(label), -1) for label in own] + [-1])  # a missing level stays missing
    return pandas.Categorical.from_codes(moved[codes], categories=pandas.Index(list(places))), new


def _plain(label: Any) -> Any:
    """A label as Python has it, since those of files are NumPy's."""
    return label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label
