"""Which of several samples of one law disagree with the others, beyond chance.

Each sample comes as its estimates (estimates.py), and is taken to have converged. First comes the largest
group in which no two samples differ: a sample that is wrong is outvoted, however many draws it has. Then each
sample is held against the group's others together, which tells smaller differences; while one of the group
differs, the one that differs most leaves it. Where there are two groups of the same size, nobody can say who
is right, and they are held against each other.

One probability of error is shared by all comparisons that are made (Bonferroni), and so holds for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from .estimates import Contrast, Estimates, combine, contrast

ERROR_RATE = 0.001  # that any sample is named where all are right


class SampleVerdict(NamedTuple):
    """Of one sample."""

    against: tuple[str, ...]  # the samples that it was held against
    other: Estimates  # what these say together
    contrast: Contrast
    differs: np.ndarray  # (k, s) beyond chance


class Agreement(NamedTuple):
    """What was found."""

    group: tuple[str, ...]  # samples that agree
    is_unique: bool  # whether there is no other group of the same size
    verdicts: dict[str, SampleVerdict]  # by sample, where there was something to hold it against
    level: float  # of the p-value of a single comparison


def compare_with(reference: Estimates, samples: Mapping[str, Estimates], rate: float) -> Agreement:
    """Hold samples against what is known."""
    level = rate / max(sum(_count(each, reference) for each in samples.values()), 1)
    verdicts = {name: _judge((), each, reference, level) for name, each in samples.items()}
    group = tuple(name for name, verdict in verdicts.items() if not verdict.differs.any())
    return Agreement(group, True, verdicts, level)


def compare_samples(samples: Mapping[str, Estimates], rate: float) -> Agreement:
    """Hold samples against each other."""
    names = list(samples)
    if len(names) < 2:
        return Agreement(tuple(names), True, {}, rate)
    pairs = list(combinations(names, 2))
    of_pairs = sum(_count(samples[one], samples[other]) for one, other in pairs)
    of_all = sum(_count(each, each) for each in samples.values())
    level = rate / max(of_pairs + of_all, 1)
    friends: dict[str, set[str]] = {name: set() for name in names}
    for one, other in pairs:
        if not (contrast(samples[one], samples[other]).p_value < level).any():
            friends[one].add(other)
            friends[other].add(one)
    groups = _largest_groups(names, friends)
    group, is_unique = list(groups[0]), len(groups) == 1
    while len(group) > 2:
        verdicts = {name: _verdict(name, group, samples, level) for name in group}
        worst = min(group, key=lambda name: verdicts[name].contrast.p_value.min())
        if not verdicts[worst].differs.any():
            break
        group.remove(worst)
    verdicts = {name: _verdict(name, group, samples, level) for name in names if set(group) != {name}}
    return Agreement(tuple(group), is_unique, verdicts, level)


def _verdict(
    name: str, group: Sequence[str], samples: Mapping[str, Estimates], level: float
) -> SampleVerdict:
    """A sample against the others of the group."""
    others = tuple(other for other in group if other != name)
    return _judge(others, samples[name], combine([samples[other] for other in others]), level)


def _judge(against: tuple[str, ...], one: Estimates, other: Estimates, level: float) -> SampleVerdict:
    found = contrast(one, other)
    return SampleVerdict(against, other, found, found.p_value < level)


def _count(one: Estimates, other: Estimates) -> int:
    """Comparisons that two samples allow."""
    return int((np.isfinite(one.value) & np.isfinite(other.value)).sum())


def _largest_groups(names: Sequence[str], friends: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The largest sets in which all are friends of each other, by Bron and Kerbosch (1973), Algorithm 457."""
    found: list[set[str]] = []

    def extend(group: set[str], candidates: set[str], done: set[str]) -> None:
        if not candidates and not done:
            found.append(group)
            return
        pivot = max(candidates | done, key=lambda name: len(friends[name] & candidates))
        for name in candidates - friends[pivot]:
            extend(group | {name}, candidates & friends[name], done & friends[name])
            candidates = candidates - {name}
            done = done | {name}

    extend(set(), set(names), set())
    most = max(map(len, found))
    groups = [tuple(name for name in names if name in group) for group in found if len(group) == most]
    return sorted(groups, key=lambda group: [names.index(name) for name in group])
