"""The methods of a comparison, each with its settings and its own seed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import check, samplers
from ..errors import ArgumentError
from ..run.preparation import auto

_OPTIONS = ("method", "settings", "warmup")


class Entrant(NamedTuple):
    """A method that takes part: a row of the table."""

    label: str
    method: str
    settings: Any = None
    warmup: int | None = None  # None: the method's default

    @property
    def is_engine(self) -> bool:
        """Whether its chains run as a whole, without a stop in between."""
        return self.method != auto.NAME and samplers.facts(self.method).whole_chains

    @property
    def most_draws(self) -> int:
        """The default number of draws of the method; the largest of all methods for `auto`."""
        names = list(samplers.METHODS) if self.method == auto.NAME else [self.method]
        return max(samplers.facts(name).draws for name in names)

    def seed(self, seed: int, repeat: int) -> int:
        """Compute the seed of a repeat from these numbers and the label alone.

        So the draws of a method stay the same if others join, and no two methods share random numbers.
        """
        words = np.random.SeedSequence(seed, spawn_key=(repeat, zlib.crc32(self.label.encode())))
        return int(words.generate_state(1)[0])


def read_methods(given: Any) -> list[Entrant]:
    """Read the argument `methods`: a list of names, or a mapping from labels to options.

    Raises
    ------
    ArgumentError
        It is neither, it is empty, a label comes twice, or a method, setting or option is unknown.
    """
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        entrants = [_read(label, options) for label, options in given.items()]
    elif isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
        entrants = [_read(name, {}) for name in given]
    else:
        allowed = "a list of methods, or a dict of options by label"
        raise check.refusal("methods", given, allowed)
    if not entrants:
        raise check.refusal("methods", given, "at least one method")
    labels = [entrant.label for entrant in entrants]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise ArgumentError(f"methods names {', '.join(sorted(twice))} twice; a dict gives them labels")
    return entrants


def _read(label: Any, options: Any) -> Entrant:
    if not isinstance(label, str) or not label.strip():
        raise check.refusal("a label of methods", label, "a text that is not empty")
    what = f"methods[{label!r}]"
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise check.refusal(what, options, f"a dict with some of {', '.join(_OPTIONS)}")
    for name in given:
        check.choice(f"an option of {what}", name, _OPTIONS)
    method, settings, warmup = given.get("method", label), given.get("settings"), given.get("warmup")
    auto.check_method(method, settings)
    if method != auto.NAME:
        samplers.resolve(samplers.sampler(method), settings)
    if warmup is not None:
        warmup = check.integer(f"{what}['warmup']", warmup, 0, check.LARGEST_COUNT)
    return Entrant(label, method, settings, warmup)
