"""Whether the gradient of a log density jumps: kinks, as of a double exponential law or an absolute value.

A step that crosses a kink makes an error of energy in proportion to its length h, wherever this happens; on a
smooth density the error falls with h² or faster, and most of it comes from where the curvature is largest.
With kinks steps are short everywhere, though no scale differs from place to place, and the chain gets stuck
nowhere. It needs neither longer trajectories nor a high acceptance rate then: with errors of energy in
proportion to h a rate of 0.9 takes steps that are three times as short as one of 0.7.

Kinks are looked for on a line through two draws, which is cut in pieces. The slopes at the ends of a piece
and their derivatives there tell how much of the slope's change is smooth. The rest belongs to jumps. One of
them is found where the change is largest as its piece is halved again and again; a narrow bend of a smooth
density is resolved by this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..target import ProgramGradient

LINES = 2  # through pairs of draws
SHARE = 0.05  # of the gradients of the last window, that a look in vain may take
SHORT = 3.0  # a chain looks for kinks if a trajectory of length T has at least so many steps
_PIECES = 16
_BESIDE = 1e-6  # the step of derivatives, as a share of the line
_ROUGH = 0.1  # there are no kinks that matter if less than this share of the changes is left for jumps
# A change that has not fallen in the last halvings, in each of which a smooth one falls to a half, is a jump.
# In the neck of a funnel a smooth change may be very large and still fall.
_HALVINGS, _LAST, _LEFT = 14, 4, 0.5
# The standard deviation of the error of energy that a step h makes where the slope jumps by J, over h J: a
# leapfrog step crosses it anywhere, which gives 1 / sqrt(12), and h is two of them.
_ERROR = 0.5 / np.sqrt(12.0)
# Kinks are why steps are short if they give the energy at least this standard deviation along a trajectory.
# Nine tenths of the ends are accepted with 0.25.
_MATTERS = 0.06
IN_VAIN = 2 * (_PIECES + 1)  # gradients of a look where there is no kink


def has_kinks(target: Any, points: np.ndarray, step_size: float, length: float) -> tuple[bool, int]:
    """Whether kinks are why steps are short, on lines through some of the draws `points` (n, d), in x.

    Trajectories have this `length` T, in standard deviations, and two draws are sqrt(2) apart in the mean.
    Returns the number of gradients too. `target` may have a map; kinks are looked for in the program's own
    coordinates.
    """
    far = np.sqrt(2.0)
    density, n, variances, gradients = ProgramGradient(target), len(points), [], 0
    for first in range(LINES):
        line = _Line(density, points[first * n // LINES], points[((first + 1) * n - 1) // LINES])
        variances.append(line.squares_of_jumps() * length / far * (_ERROR * step_size / far) ** 2)
        gradients += line.gradients
        if not variances[-1]:
            return False, gradients
    return bool(np.sqrt(np.mean(variances)) >= _MATTERS), gradients


class _Line:
    """The line from `begin` to `end` (d,), and how many gradients were taken on it."""

    def __init__(self, density: ProgramGradient, begin: np.ndarray, end: np.ndarray) -> None:
        self._density, self._begin, self._along, self.gradients = density, begin, end - begin, 0

    def slope(self, place: float) -> float:
        """The slope of the density along the line, 0 at its begin, 1 at its end; NaN if there is none."""
        score = np.empty(self._begin.size)
        self.gradients += 1
        known = np.isfinite(self._density(self._begin + place * self._along, score))
        return float(score @ self._along) if known else np.nan

    def squares_of_jumps(self) -> float:
        """The sum of the squares of the slope's jumps; 0 if there are none, or a density is missing."""
        places = np.linspace(0.0, 1.0, _PIECES + 1)
        slopes = np.array([self.slope(place) for place in places])
        if not np.isfinite(slopes).all():
            return 0.0
        ahead = np.where(places < 1.0, _BESIDE, -_BESIDE)
        bends = np.array([self.slope(place) for place in places + ahead]) - slopes
        smooth = 0.5 * (bends[1:] / ahead[1:] + bends[:-1] / ahead[:-1]) / _PIECES
        changes = np.diff(slopes)
        rest = np.abs(changes - smooth)
        if not rest.sum() > _ROUGH * np.abs(changes).sum():
            return 0.0
        k = int(rest.argmax())
        jump = self._jump(places[k : k + 2], slopes[k : k + 2])
        return float((rest * np.minimum(rest, jump)).sum())

    def _jump(self, places: np.ndarray, slopes: np.ndarray) -> float:
        """The jump of the slope between two places, or 0: where halves that change most lead to."""
        (low, high), (from_, to), changes = places, slopes, []
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            slope = self.slope(middle)
            if abs(slope - from_) > abs(to - slope):
                high, to = middle, slope
            else:
                low, from_ = middle, slope
            changes.append(abs(to - from_))
        return float(changes[-1]) if changes[-1] > _LEFT * changes[-1 - _LAST] else 0.0
