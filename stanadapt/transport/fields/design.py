"""The design: the heads at which modes of the latents are found, so that a law can be fitted to them.

It has points around the middle, and follows the ridges along which heads have long tails. A law that is
fitted to it is then tried at heads that walks visit, and the design gets more points where it is off most.
A trial takes one gradient: with z = 0 the score of the latents in z is how far their mode is off.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from .. import field as fields
from ..field import Field
from ..field_table import field_rows
from .head_coordinates import HeadCoordinates
from .laplace import HeadPosterior, LatentMode, mode_at
from .level import Level, find_level
from .precision import Precision

AXIS = 1.25, 2.5  # the design on either side of each axis, in standard deviations of the heads,
PAIR = 1.25, 2.5  # and between each pair of axes
# Each head alone, in its own standard deviations. The log of a scale that data know well may have a shoulder
# that falls by e^-1 in one unit, which is many of these.
TAIL = 2.5, 4.0, 6.0, 9.0, 13.0, 18.0, 25.0, 35.0, 49.0, 68.0
DEEP, _ENOUGH, _LEAST_GAIN = 10.0, 1.2, 1.15  # until the log density has fallen by this, or nearly
_LAST_STAR = 0.6  # but no star begins after this share of the gradients
_STAR = 1.25  # in a tail the other heads vary by this, in the standard deviations that they have there,
_OFF = 0.7  # and their middle is looked for again if it was off by so many,
_MOST_OFF = 3.0  # and moves by at most so many
_NARROWER, _WIDER = 0.3, 2.0  # limits of the change of these standard deviations from star to star

_WALKERS, STEPS = 8, 40  # of a walk over the heads; its steps are half, one or two standard deviations long
STEP_SIZES = 0.5, 1.0, 2.0
_FLATTER = 4.0  # walks see the density of the heads to the power 1 / _FLATTER
LOWEST = 7.0  # the log density of the heads where a walk begins, beside the largest one,
_TOO_LOW = -2.0 * LOWEST  # and, by a law that is off, where no mode is looked for
_WRONG = 0.5  # a law is off where the mode of all latents is off by this length in z
_NEAR = 3.0  # up to this length the density of the heads can be corrected without finding the mode
_LOOKS = 20  # that tell whether a law is near
_DRAWS = 8  # that tell the standard deviations of the latents at a mode
# Points that are added before the law is fitted anew, modes that are looked for, and how far these are from
# each other, in standard deviations of the heads.
_MOST_ADDED, _MOST_TRIED, _APART = 24, 48, 0.5
# No walker goes on after this share of the gradients. A mode takes up to 0.04, and what is found is not used
# once all are spent.
_LAST_STEP = 0.9


class RidgePoint(NamedTuple):
    """Where the other heads are, given one head, and how far each of them varies, given all others."""

    theta: np.ndarray  # (m,)
    widths: np.ndarray  # (m,) standard deviations; that of the given head means nothing
    height: float  # the log density of the heads, beside the largest one


class Design:
    """Heads, in units, and the modes of the latents there; and the ridge along each head's tails."""

    def __init__(self, precision: Precision, place: HeadPosterior) -> None:
        """With the place of the heads alone."""
        self.precision, self.place = precision, place
        self._thetas, self._modes = place.theta[None], [place.mode]
        self._deviations: list[np.ndarray] = []  # of the first modes, which have been asked for
        self.axes = np.zeros(
            (len(place.theta),) * 2
        )  # of bumps of a dense law, in units; 0 before there are any
        self.ridges: list[list[RidgePoint]] = [[] for _ in place.theta]

    @cached_property
    def level(self) -> Level:
        """The variable with a soft constraint on its sum, and what is left of this beside the law."""
        return find_level(self.precision, self.place.mode.factor)

    def points(self) -> tuple[np.ndarray, list[LatentMode]]:
        """The heads (p, m) and the modes; the first is the place of the heads."""
        return self._thetas, self._modes

    def deviations(self) -> np.ndarray:
        """The standard deviations (p, n) of the latents at the modes, about: from a few draws."""
        n, known = len(self.precision.latents), len(self._deviations)
        normal = np.random.default_rng(2).standard_normal((n, _DRAWS))  # no random numbers of the chain
        self._deviations += [_deviations_at(mode, normal) for mode in self._modes[known:]]
        return np.array(self._deviations)

    def middle(self) -> RidgePoint:
        """The point of all ridges in the middle."""
        precision = np.linalg.inv(self.place.covariance())
        return RidgePoint(self.place.theta, 1.0 / np.sqrt(np.diag(precision)), 0.0)

    def add(self, theta: np.ndarray, near: LatentMode) -> LatentMode | None:
        """The mode at `theta` (m,), which the design has from now on; None if there is none.

        The search begins at the mode `near`.
        """
        mode = mode_at(self.precision, theta, near.x, near.factor)
        if mode is not None:
            self.keep(theta, mode)
        return mode

    def nearest(self, theta: np.ndarray) -> LatentMode:
        """The mode at the nearest heads."""
        away = np.linalg.solve(self.place.root, (self._thetas - theta).T)
        return self._modes[int(np.square(away).sum(axis=0).argmin())]

    def keep(self, theta: np.ndarray, mode: LatentMode) -> None:
        """Add a mode that is known."""
        self._thetas = np.concatenate((self._thetas, theta[None]))
        self._modes.append(mode)


def _deviations_at(mode: LatentMode, normal: np.ndarray) -> np.ndarray:
    """The standard deviations of the latents (n,) at a mode, about: from draws that are `normal` (n, k)."""
    factor = mode.factor
    whole = factor.lower @ (np.sqrt(factor.pivots)[:, None] * normal)
    return np.asarray(np.sqrt(np.square(factor.solver.solve(whole)).mean(axis=1)))


def find_design(precision: Precision, place: HeadPosterior, *, tails: bool = True) -> Design:
    """The design around the place of the heads and, with `tails`, along their tails."""
    design = Design(precision, place)
    m, axes = len(place.theta), np.eye(len(place.theta))
    lines = [sign * axis for axis in axes for sign in (-1.0, 1.0)]
    for a in range(0 if precision.dense else m):
        for b in range(a):
            lines += [axes[a] + axes[b], axes[a] - axes[b], axes[b] - axes[a], -axes[a] - axes[b]]
    for line in lines:
        near = place.mode
        for reach in AXIS if np.count_nonzero(line) == 1 else PAIR:
            near = design.add(place.theta + place.root @ (reach * line), near) or near
    if tails:
        follow_tails(design)
    return design


def follow_tails(design: Design) -> None:
    """Add the tails of all heads to a design.

    The tail whose density has fallen least goes on first. If each went to its end in turn, those of normal
    heads could take all gradients that stars may take, and the long tail of another head would not be seen.
    """
    tails = [_Tail(design, a, sign) for a in range(len(design.place.theta)) for sign in (-1.0, 1.0)]
    going = list(tails)
    while going and design.precision.density.spent <= _LAST_STAR:
        tail = max(going, key=lambda one: one.height)
        if not tail.go_on():
            going.remove(tail)
    for tail in tails:
        for theta, mode in tail.points:
            design.keep(theta, mode)
        design.ridges[tail.head] += tail.ridge


def how_far_off(design: Design, law: Field) -> float:
    """How far the mode of the latents is off in z, at the median of heads around their place."""
    place, rng = design.place, np.random.default_rng(5)  # no random numbers of the chain
    look = _Look(design.precision, law, design.level)
    moves = rng.standard_normal((_LOOKS, len(place.theta)))
    return float(np.median(look(place.theta + moves @ place.root.T).off))


class _Tail:
    """A tail of a head: the ridge along which its marginal density falls.

    In a long tail, such as that of the logarithm of a scale that may be 0, the other heads do not go on
    along the straight line that is right in the middle. So at each reach a star of points tells where they
    are and how far they vary there.
    """

    def __init__(self, design: Design, head: int, sign: float) -> None:
        """Of a head, on one side, before the first star."""
        place, cov = design.place, design.place.covariance()
        self.head, self.height = head, 0.0  # the log density at the end, beside that in the middle
        self.points: list[tuple[np.ndarray, LatentMode]] = []
        self.ridge: list[RidgePoint] = []
        self._precision, self._place, self._sign = design.precision, place, sign
        self._spread = float(np.sqrt(cov[head, head]))
        self._slope = cov[:, head] / cov[head, head]  # of the other heads along the ridge
        self._widths = design.middle().widths.copy()
        self._theta, self._near, self._reach, self._wanted = place.theta, place.mode, 0.0, iter(TAIL)

    def go_on(self) -> bool:
        """Add the next star; False where the tail has ended."""
        wanted, fallen, a = next(self._wanted, 0.0), -self.height, self.head
        # A normal tail falls with the square of the reach.
        reach = min(wanted, self._reach * np.sqrt(_ENOUGH * DEEP / fallen)) if fallen > 0.0 else wanted
        if not wanted or reach < _LEAST_GAIN * self._reach:
            return False
        ahead = self._place.theta[a] + self._sign * reach * self._spread - self._theta[a]
        guess = self._theta + ahead * self._slope
        for _ in range(2):
            star = self._star(guess)
            if star is None:
                return False
            self._near, guess, off = star
            if off < _OFF:
                break
        self.height = self._near.logp - self._place.mode.logp
        self.ridge.append(RidgePoint(guess, self._widths.copy(), self.height))
        self._slope = (guess - self._theta) / ahead
        self._theta, self._reach = guess, reach
        return True

    def _star(self, guess: np.ndarray) -> tuple[LatentMode, np.ndarray, float] | None:
        """The highest mode of a star around heads (m,), where their middle is, and how far it was off."""
        mode = self._add(guess, self._near)
        if mode is None:
            return None
        moved, best, off = guess.copy(), mode, 0.0
        for b in range(len(guess)):
            if b == self.head:
                continue
            step = np.zeros(len(guess))
            step[b] = _STAR * self._widths[b]
            sides = self._add(guess - step, mode), self._add(guess + step, mode)
            if sides[0] is None or sides[1] is None:
                return None
            best = max((best, sides[0], sides[1]), key=lambda one: one.logp)
            tilt = 0.5 * (sides[1].logp - sides[0].logp) / _STAR
            curvature = (2.0 * mode.logp - sides[0].logp - sides[1].logp) / _STAR**2
            narrowing = 1.0 / np.sqrt(np.clip(curvature, _WIDER**-2, _NARROWER**-2))
            change = float(np.clip(tilt * narrowing**2, -_MOST_OFF, _MOST_OFF))
            moved[b] += change * self._widths[b]
            self._widths[b] *= narrowing
            off = max(off, abs(change))
        return best, moved, off

    def _add(self, theta: np.ndarray, near: LatentMode) -> LatentMode | None:
        """The mode at heads (m,), which belongs to the tail from now on."""
        mode = mode_at(self._precision, theta, near.x, near.factor)
        if mode is not None:
            self.points.append((theta, mode))
        return mode


class Wrong(NamedTuple):
    """Heads where a law is off."""

    off: float  # how far the mode of the latents is off in z
    theta: np.ndarray  # (m,)
    w: np.ndarray  # (m,) the same in the coordinates of a walk
    x: np.ndarray  # (d,) the point with z = 0


def widen_design(design: Design, law: Field, coordinates: HeadCoordinates, rng: np.random.Generator) -> int:
    """Add points where `law` is off most, among heads that walks visit; returns how many were added.

    Where a scale goes to 0, latents are known the better the smaller it is. So a law that is a little off at
    most heads is far off there.
    """
    density, place = design.precision.density, design.place
    tried, added = np.zeros((0, place.theta.size)), 0
    for wrong in sorted(_walk(design, law, coordinates, rng), key=lambda one: -one.off):
        if added == _MOST_ADDED or len(tried) == _MOST_TRIED or density.spent > _LAST_STEP:
            break
        if np.any(np.linalg.norm(tried - wrong.w, axis=1) < _APART):
            continue
        tried = np.vstack((tried, wrong.w))
        mode = mode_at(design.precision, wrong.theta, wrong.x, design.nearest(wrong.theta).factor)
        if mode is not None and mode.logp > place.mode.logp - DEEP:
            design.keep(wrong.theta, mode)
            added += 1
    return added


def _walk(design: Design, law: Field, coordinates: HeadCoordinates, rng: np.random.Generator) -> list[Wrong]:
    """Where `law` is off, among heads that walks visit or try."""
    place, (thetas, modes) = design.place, design.points()
    heights = np.array([mode.logp for mode in modes]) - place.mode.logp
    look = _Look(design.precision, law, design.level)
    top = look(place.theta[None]).logp[0]
    first = rng.choice(np.flatnonzero(heights > -LOWEST), _WALKERS)
    w = np.array([coordinates.into_w(thetas[k]) for k in first])
    height = heights[first] + coordinates.into_heads(w)[1]
    found: list[Wrong] = []
    for _ in range(STEPS):
        if design.precision.density.spent > _LAST_STEP:
            break
        there = w + rng.choice(STEP_SIZES, (_WALKERS, 1)) * rng.standard_normal(w.shape)
        theta, log_det = coordinates.into_heads(there)
        seen = look(theta)
        reached = seen.logp - top + 0.5 * np.square(np.minimum(seen.off, _NEAR))
        for k in np.flatnonzero((seen.off > _WRONG) & (reached > _TOO_LOW)):
            found.append(Wrong(float(seen.off[k]), theta[k], there[k], seen.x[k]))
        goes = np.log(rng.uniform(size=_WALKERS)) < (reached + log_det - height) / _FLATTER
        w[goes], height[goes] = there[goes], (reached + log_det)[goes]
    return found


class _Seen(NamedTuple):
    """What a look at k heads tells of each."""

    logp: np.ndarray  # (k,) the log density of the heads by a law
    off: np.ndarray  # (k,) how far the mode of the latents is off in z
    x: np.ndarray  # (k, d) the points with z = 0, in units


class _Look:
    """A look at heads with one gradient each, by means of a law."""

    def __init__(self, precision: Precision, law: Field, level: Level) -> None:
        """In the coordinates z of the law, which has no background: its directions are those of `level`."""
        self._precision, self._rows = precision, field_rows(law, 0)
        self._background = level.directions[: 0 if len(level.numbers) else None]

    def __call__(self, thetas: np.ndarray) -> _Seen:
        """At heads (k, m)."""
        precision, density = self._precision, self._precision.density
        z = np.zeros((len(thetas), density.unit.size))
        z[:, precision.heads] = thetas * density.unit[precision.heads]
        x, kept = z.copy(), np.empty((len(z), fields.n_kept(self._rows)))
        log_det = np.empty(len(z))
        fields.into_x_at_all(self._rows, z, x, kept, log_det)
        logp, scores = density.at_all(x / density.unit)
        scores /= density.unit
        fields.pull_back_at_all(self._rows, z, x, scores, kept)
        of_latents = scores[:, precision.latents]
        left = of_latents - (of_latents @ self._background.T) @ self._background
        logp, off = logp + log_det, np.linalg.norm(left, axis=1)
        known = np.isfinite(logp + off)
        return _Seen(np.where(known, logp, -np.inf), np.where(known, off, np.inf), x / density.unit)
