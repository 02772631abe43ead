"""Settings of methods: how a sampler's file declares them, and how the values of a user are checked.

A setting is a field of the NamedTuple `Settings`, and its annotation describes it completely:

    damping: Annotated[float, POSITIVE, "lambda: damping of the first estimate"] = 10.0

It has the type, the allowed values (a `Limit` or a `Choice`; nothing for a bool), and one line for users. A
default of None, of type `float | None` or `int | None`, means that the method finds the value at run time.

Settings that some methods share are written once, in the `Settings` of the file that these methods share.
`with_settings_of` appends them to a method's own.

Kernels know neither names nor None. They get the index of a choice, NaN for None, and `UNSET` for None in
place of an integer.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import check
from .base import Method

UNSET = 0  # kernels get it for an integer that is None; it is never an allowed value


class Limit(NamedTuple):
    """The allowed range of a number."""

    low: float
    high: float
    open_low: bool = False


class Choice(NamedTuple):
    """The allowed names of a setting that takes one of several names."""

    names: tuple[str, ...]


POSITIVE = Limit(0.0, float("inf"), True)
PROBABILITY = Limit(0.0, 1.0, True)
NOT_NEGATIVE = Limit(0.0, float("inf"))
SCALE = Limit(1e-100, 1e100)  # its square does not overflow


class Setting(NamedTuple):
    """What a sampler's file declares about one setting."""

    name: str
    default: Any
    kind: type  # bool, int, float or str
    optional: bool  # whether None is allowed
    allowed: Limit | Choice | None
    meaning: str

    @property
    def range(self) -> str:
        """The allowed values, in words."""
        if isinstance(self.allowed, Choice):
            return ", ".join(self.allowed.names)
        if self.allowed is None:
            return "true, false"
        low, high, open_low = self.allowed
        words = (
            f"{'integer' if self.kind is int else 'number'} {'above' if open_low else 'of at least'} {low:g}"
        )
        words += "" if high == float("inf") else f", at most {high:g}"
        return f"{words}, or none" if self.optional else words


def with_settings_of(shared: types.ModuleType) -> Callable[[type], Any]:
    """A decorator that appends the settings of a file which methods share to a method's own `Settings`."""

    def extend(own: Any) -> Any:
        fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for each in (own, shared.Settings):
            fields |= typing.get_type_hints(each, include_extras=True)
            defaults |= each._field_defaults
        names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__annotations__": fields}
        return types.new_class(own.__name__, (NamedTuple,), {}, lambda body: body.update(names | defaults))

    return extend


def settings_of(method: Method) -> dict[str, Setting]:
    """The settings of a method by name, in the order of its file."""
    return _read_settings(method.Settings)


@functools.cache
def _read_settings(settings: Any) -> dict[str, Setting]:
    hints = typing.get_type_hints(settings, include_extras=True)
    found = {name: _setting(name, hints[name], settings._field_defaults[name]) for name in settings._fields}
    for name, setting in found.items():
        getattr(settings, name).__doc__ = setting.meaning  # which help() shows
    return found


def _setting(name: str, hint: Any, default: Any) -> Setting:
    """The setting that an annotation describes."""
    kinds, *said = typing.get_args(hint)
    members = typing.get_args(kinds) or (kinds,)
    kind = next(member for member in (bool, int, float, str) if member in members)
    allowed = next((entry for entry in said if isinstance(entry, Limit | Choice)), None)
    if isinstance(allowed, Choice):
        kind = str
    meaning = next(entry for entry in said if isinstance(entry, str))
    return Setting(name, default, kind, type(None) in members, allowed, meaning)


def resolve(method: Method, given: Any) -> Any:
    """The method's Settings; every value is checked and has the form that kernels take.

    `given` is None, a mapping of some of the settings, or a `Settings` of the method.

    Raises
    ------
    ArgumentError
        A name is unknown, or a value is not allowed.
    """
    settings = settings_of(method)
    if given is None:
        given = {}
    elif isinstance(given, method.Settings):
        given = given._asdict()
    elif not isinstance(given, Mapping):
        raise check.refusal("settings", given, f"a dict or {method.Settings.__module__}.Settings")
    for name in given:
        check.choice("setting", name, settings)
    values = {name: _check_value(each, given.get(name, each.default)) for name, each in settings.items()}
    return method.Settings(**values)


def _check_value(setting: Setting, value: Any) -> Any:
    """The value in the form that kernels take. Raises ArgumentError if it is not allowed."""
    shown, allowed = f"settings[{setting.name!r}]", setting.allowed
    if isinstance(allowed, Choice):
        return allowed.names.index(check.choice(shown, value, allowed.names))
    if allowed is None:
        return check.boolean(shown, value)
    if value is None and setting.optional:
        return UNSET if setting.kind is int else np.nan
    low, high, open_low = allowed
    orelse = ", or None" if setting.optional else ""
    if setting.kind is int:
        most = check.LARGEST_COUNT if high == float("inf") else int(high)
        return check.integer(shown, value, int(low), most, orelse=orelse)
    return check.number(shown, value, low, high, open_low=open_low, orelse=orelse)


def user_values(method: Method, settings: Any) -> dict[str, Any]:
    """Resolved settings as a user writes them, with the names of choices and with None."""
    return {name: _user_value(each, getattr(settings, name)) for name, each in settings_of(method).items()}


def _user_value(setting: Setting, value: Any) -> Any:
    """One resolved value as a user writes it."""
    if isinstance(setting.allowed, Choice):
        return setting.allowed.names[value]
    if setting.optional and (value == UNSET if setting.kind is int else math.isnan(value)):
        return None
    return value


def uses_gradient(method: Method, settings: Any) -> bool:
    """Whether the method calls the gradient, with these resolved settings."""
    facts, given = method.FACTS, user_values(method, settings)
    is_free = bool(facts.gradient_free) and all(given[name] == value for name, value in facts.gradient_free)
    return facts.gradient and not is_free


def parse(setting: Setting, text: str) -> Any:
    """The value that a text stands for. If there is none it is the text itself, which `resolve` refuses."""
    if setting.optional and text.lower() == "none":
        return None
    if setting.kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words.get(text.lower(), text)
    try:
        return setting.kind(text)
    except ValueError:
        return text
