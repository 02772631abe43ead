"""Learning the fields of several series: how gradients are shared out, and what some tell of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..field_table import field_of, join_fields
from .design import Design, how_far_off
from .learned_law import Learned
from .probes import ScaledDensity
from .several import MANY_PARTS, Part
from .worth import is_worth_more

# So many of many series tell whether all are worth their gradients, and whether there are enough: not if none
# of them has a field. A search for the place of the heads ends after half of its gradients.
_TRIED, _RAN_OUT = 3, 0.5
# Share of the gradients that many series have in equal parts. What is left is for those that need more, and
# for looks at heads that all share.
_EQUAL = 0.8
# Units of coordinates outside of all parts are known from few draws, so that they count where they are off by
# this factor: beside a share of voters errors of 0.01 are, and most scales and means are not.
_FAR = 10.0
# How far a law is off, at the median, in z, if gradients were too few for it; else it is 0.07 to 0.25.
_POOR = 0.35

# Learns the field of a part around a point (k,), whose variables have numbers (k,), in at most so many
# gradients, if it is worth it. The search for the place of the heads begins with the reach of a root, if one
# is known.
LearnPart = Callable[
    [Part, np.ndarray, np.ndarray, float, Callable[[Design], bool], np.ndarray | None], Learned | None
]


def learn_several(
    density: ScaledDensity,
    parts: Sequence[Part],
    x: np.ndarray,
    variables: np.ndarray,
    cheap: float,
    most: float,
    learn_part: LearnPart,
) -> Learned | None:
    """The fields of several series around `x` (d,), in units, in at most so many gradients.

    Those for which gradients were too few are learned at the end, with what others have left. Many series
    have none if the first ones have none, or are not worth what all would take. They are not asked
    whether they are if all together are as `cheap` as a search may be.
    """
    last = density.gradients + most
    density.allow(last)
    are_many = len(parts) >= MANY_PARTS
    each = (_EQUAL if are_many else 1.0) * most / len(parts)
    learning = _Learning(x, variables, cheap / len(parts), learn_part)
    found: list[Learned | None] = []
    again = []
    for k, part in enumerate(parts):
        is_first = are_many and k < _TRIED
        found.append(learning(part, each, is_judged=is_first))
        if (found[k] is None and (is_first or part.density.spent > _RAN_OUT)) or (
            are_many and learning.is_poor(found[k])
        ):
            again.append(k)
        if is_first and len(again) == _TRIED:
            return None
    more = _EQUAL * (last - density.gradients) / max(len(again), 1)
    if more > each:
        for k in again:
            found[k] = learning(parts[k], more) or found[k]
    learned = [
        (part.places, own)
        for part, own in zip(parts, found, strict=True)
        if own is not None and len(own.rows)
    ]
    return _join(learned, density.unit) if learned else None


class _Learning:
    """Of one series after the other."""

    def __init__(self, x: np.ndarray, variables: np.ndarray, cheap: float, learn_part: LearnPart) -> None:
        """Around `x` (d,), in units. Series that take at most `cheap` gradients each are worth them."""
        self._x, self._variables, self._cheap, self._learn_part = x, variables, cheap, learn_part
        # In the program's units, by the variables of the heads.
        self._roots: dict[tuple[int, ...], np.ndarray] = {}
        self._design: Design | None = None  # of the last part that has one

    def __call__(self, part: Part, most: float, *, is_judged: bool = False) -> Learned | None:
        """The field of a part, in at most so many gradients; if it is judged, only if it is worth them."""
        unit = part.density.unit[part.heads][:, None]
        key = tuple(self._variables[part.places[part.heads]].tolist())

        def is_worth(design: Design) -> bool:
            self._design = design
            if np.array_equal(design.precision.heads, part.heads):
                self._roots[key] = design.place.root * unit
            return not is_judged or part.density.gradients <= self._cheap or is_worth_more(design)

        # Series of one kind have heads that vary alike.
        root = self._roots[key] / unit if key in self._roots else None
        of_part = self._x[part.places], self._variables[part.places]
        return self._learn_part(part, *of_part, most, is_worth, root)

    def is_poor(self, found: Learned | None) -> bool:
        """Whether the law that was `found` for the last part is off."""
        if found is None or not len(found.rows) or self._design is None:
            return False
        return how_far_off(self._design, field_of(found.rows)) > _POOR


def _join(learned: list[tuple[np.ndarray, Learned]], unit: np.ndarray) -> Learned:
    """What was learned of the coordinates of each part, as one; others begin with their `unit` (d,) if it is
    far from 1.
    """
    d = unit.size
    times = np.bincount(np.concatenate([places for places, _ in learned]), minlength=d)
    is_far = np.abs(np.log(unit)) > np.log(_FAR)
    log_scale, directions, variances = np.zeros(d), [], []
    for places, own in learned:
        log_scale[places] += np.log(own.scale)
        for direction, variance in zip(own.directions, own.variances, strict=True):
            if not direction[times[places] > 1].any():  # those of two parts need not be orthogonal
                directions.append(np.zeros(d))
                directions[-1][places] = direction
                variances.append(variance)
    return Learned(
        join_fields([own.rows for _, own in learned], [places for places, _ in learned]),
        np.exp(np.where((times == 0) & is_far, np.log(unit), log_scale / np.maximum(times, 1))),
        np.array(directions).reshape(len(variances), d),
        np.array(variances),
    )
