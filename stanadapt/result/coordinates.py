"""The coordinates that chains have learnt, in words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ..check import join_names
from ..model.variables import variable_of

_FEW = 3  # names in a list
_LATENT, _HEAD = 1, 2  # roles of coordinates in a field, see transport/field.py
_HALF = 0.5  # weight of the data below which a coordinate is sampled as in a program that is not centred


def coordinates_text(learnt: Sequence[Mapping[str, np.ndarray]], names: Sequence[str]) -> str:
    """Which variables move with which, which are bent or ridges, and which are a latent field, by chains.

    The text is empty where no chain has learnt coordinates.
    Chains that have learnt the same are not told one by one.
    """
    told = Counter("; ".join(_chain(chain, names)) for chain in learnt if "scale_head" in chain)
    del told[""]
    if not told:
        return ""
    if len(told) == 1 and told.total() == len(learnt):
        return next(iter(told))
    return " | ".join(f"{count} of {len(learnt)} chains: {text}" for text, count in told.most_common())


def _chain(learnt: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """One sentence for each variable and what rules it."""
    variables = [variable_of(name) for name in names]
    sizes, moved = Counter(variables), np.flatnonzero(learnt["scale_head"] >= 0)
    locations: dict[str, set[int]] = {}
    parts: dict[str, set[str]] = {}
    for i in moved:
        locations.setdefault(variables[i], set()).add(int(learnt["scale_location"][i]))
        part = int(learnt["scale_part"][i]) if "scale_part" in learnt else -1
        if part >= 0:
            parts.setdefault(variables[i], set()).add(f"{variables[part]} times its scale")
    weights: dict[tuple[str, str, str], list[float]] = {}
    for i in moved:
        head, own = int(learnt["scale_head"][i]), variables[i]
        alike = sizes[variables[head]] == sizes[own] > 1 and own != variables[head]
        ruler = variables[head] if alike else names[head]  # where alike, each coordinate has its own head
        place = " + ".join(filter(None, [_place(locations[own], names, variables), *parts.get(own, ())]))
        weights.setdefault((own, ruler, place), []).append(float(learnt["data_weight"][i]))
    sentences, errors = [], learnt.get("data_error", np.full(len(names), -1))
    of_errors = {variables[i]: names[int(errors[i])] for i in moved if errors[i] >= 0}
    for (own, ruler, place), found in weights.items():
        few = sum(weight < _HALF for weight in found)
        at = f" around {place}" if place else ""
        at += f", whose data have the error {of_errors[own]}" if own in of_errors else ""
        sentences.append(
            f"{own} with the scale of {ruler}{at}: {few} of {len(found)} as in a program that is not centred"
        )
    sentences += _of_error_scales(learnt, names)
    for side, place in ((-1.0, "left"), (1.0, "right")):
        bent = [name for name, bend in zip(names, learnt["bend"], strict=True) if np.sign(bend) == side]
        if bent:
            sentences.append(f"the long {place} tail of {_list(bent)} made normal")
    powers = learnt.get("direction_power", np.zeros(len(names)))
    directions = [name for name, power in zip(names, powers, strict=True) if power > 0.0]
    if directions:
        sentences.append(f"{_list(_with_counts(Counter(map(variable_of, directions))))} as directions")
    return [*sentences, *_ridges(learnt, names), *_field(learnt, names)]


def _of_error_scales(learnt: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """Which variables have standard deviations in proportion to the scale of an error."""
    scale = learnt.get("error_scale", np.full(len(names), -1))
    own: dict[str, dict[str, None]] = {}
    for name, v in zip(names, scale.tolist(), strict=True):
        if v >= 0:
            own.setdefault(names[v], {})[variable_of(name)] = None
    return [f"{_list(list(moved))} on the scale of {v}" for v, moved in own.items()]


def _ridges(learnt: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """What moves the coordinates whose locations are of second order in others."""
    terms = learnt.get("ridge_terms", np.zeros(len(names), np.int64))
    own: dict[str, list[str]] = {}
    places = [int(i) for i in np.flatnonzero(terms)]
    for i in places:
        parents = names[int(learnt["ridge_parent"][i])], names[int(learnt["ridge_partner"][i])]
        place = f"the square of {parents[0]}" if parents[0] == parents[1] else " times ".join(parents)
        more = f" and {terms[i] - 1} more terms" if terms[i] > 1 else ""
        own.setdefault(f"{place}{more}", []).append(names[i])
    found = [f"{_list(children)} around {place}" for place, children in own.items()]
    if len(found) > _FEW:
        variables = Counter(variable_of(names[i]) for i in places)
        listed = _list(_with_counts(variables))
        found = [f"{listed} around squares and products of other parameters, like {found[0]}"]
    return found


def _field(learnt: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """The latents of a field by their variables, the largest first, and its heads; nothing without one."""
    role = learnt.get("field_role", np.zeros(len(names)))
    heads = [name for name, own in zip(names, role, strict=True) if own == _HEAD]
    weights = learnt.get("field_weights", np.zeros(len(names), np.int64))
    if weights.any():
        those, beside = (_list(_with_counts(_variables(names, weights == kind))) for kind in (1, 2))
        more = f", beside the coefficients {beside}" if beside else ""
        return [f"{those}: weights{more}, with scales and errors that depend on {_list(heads)}"]
    effects = learnt.get("field_effects", np.zeros(len(names), np.int64))
    told = _effects(effects, learnt.get("field_entries", effects), names)
    latents = _variables(names, (np.asarray(role) == _LATENT) & (effects == 0))
    if told and not latents:
        return [f"{'; '.join(told)}, with scales and correlations {_list(heads)}"]
    if not latents:
        return []
    field = f"a latent field of {_list(_with_counts(latents))}"
    if told:
        return [f"{'; '.join(told)}; {field}, whose laws depend on {_list(heads)}"]
    depends = f" whose law depends on {join_names(heads)}" if heads else ""
    given: dict[str, list[str]] = {}
    for name, root in zip(names, learnt.get("field_root", np.full(len(names), -1)).tolist(), strict=True):
        if root >= 0:
            given.setdefault(names[root], []).append(name)
    laws = "; ".join(f"{join_names(own)} given {root}" for root, own in given.items())
    return [f"{field}{depends}{f' ({laws})' if laws else ''}"]


def _effects(effects: np.ndarray, entries: np.ndarray, names: Sequence[str]) -> list[str]:
    """The variables that have so many `effects` (d,) of each group, the larger groups first.

    Those that the data tie have `entries` (d,) too.
    """
    tied, told = (effects == 1) & (entries > 0), []
    for k in sorted(set(effects[(effects > 0) & ~tied].tolist()), reverse=True):
        own = _list(_with_counts(_variables(names, (effects == k) & ~tied)))
        told.append(f"{own}: {k} {'effects' if k > 1 else 'effect'} of each group")
    if tied.any():
        told.append(
            f"{_list(_with_counts(_variables(names, tied)))}: effects of one scale, which the data tie"
        )
    return told


def _variables(names: Sequence[str], chosen: np.ndarray) -> Counter[str]:
    """The variables of the coordinates that are `chosen` (d,), with the numbers of their entries."""
    return Counter(itertools.compress(map(variable_of, names), chosen))


def _with_counts(variables: Counter[str]) -> list[str]:
    """Variables with the numbers of their entries, the largest first; one entry is told by the name alone."""
    return [f"{n:,} {name}" if n > 1 else name for name, n in variables.most_common()]


def _list(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} others" if len(names) > _FEW else "")


def _place(locations: set[int], names: Sequence[str], variables: Sequence[str]) -> str:
    """The centre of a variable's coordinates: one coordinate, or for each its own of another variable."""
    found = sorted(k for k in locations if k >= 0)
    return names[found[0]] if len(found) == 1 else " and ".join(sorted({variables[k] for k in found}))
