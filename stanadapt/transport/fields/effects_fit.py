"""The numbers of the law of effects (effects.py), once it is known who has which role.

All of them are read off the negative Hessian H at the mode of the effects, given the rest. Its blocks of the
largest factor take few probes, and each effect of the others one column. In effects, not in the coordinates
of a program that is not centred, H is the prior's precision P, which the roles tell, plus what the data say.
A centred prior may have a mean that depends on other coordinates: its part of a score is the one that changes
with the scales of the effects.

Factors follow each other, the largest first. For the next one the effects before it are integrated out, which
leaves the Schur complement of H. So each factor has the precision Q_j of its groups, and the derivative T of
its conditional mean by all that comes later. Then D_j = Q_j - P, the stored slopes are Q_j (A - T), and the
stored pulls are such that the mean at this point is the mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..effects_table import Effects, are_told_apart, log_of_scales, root_at
from .probes import ScaledDensity, axes

MOVE = 0.7  # of scales and of candidates for a role, in the program's own coordinates
_STEP = 0.5  # of a scale, for the rate at which the precision of a later factor changes with it
MOST_COLUMNS = 400  # effects of all factors but the largest, and coefficients
MOST_NUMBERS = 100_000  # of the data in the law: beyond that it costs more than it brings
# A coefficient with a smaller effect on the score, in scales, is none; columns of effects are not as exact.
_FAINT, _FAINT_TIE = 1e-6, 1e-4
_SLOW = 0.02  # a smaller rate is none
_STIFF = 100.0  # a group or an axis is stiff if its curvature is so many times the median of all
_FULL = 0.25  # a column of E with a larger share of entries is kept whole
# Of the precision of data: log scales, log variances and log precisions of errors.
OF_LOG_SCALE = -2.0
RATES = OF_LOG_SCALE, -1.0, 1.0
_EXACT = 1e-6  # one step of Newton's method comes so near to the mode where the log density is quadratic
_HESSIANS, _STEPS, _NEAR = 4, 8, 1e-3  # on the way to the mode; its distance from there, in deviations


class Roles(NamedTuple):
    """A guess at the roles of coordinates for one factor."""

    scales: np.ndarray  # (K,) coordinates of log scales
    angles: np.ndarray  # (K (K - 1) / 2,) those of correlations, row by row; or (0,)
    turn: float
    power: float
    centred: bool
    bounded: bool  # whether scales have an upper bound
    log_units: np.ndarray  # (K,) log c, 0 where programs are not centred, since the data's precision has it

    def root(self, x: np.ndarray) -> np.ndarray:
        """C (K, K) at `x` (d,)."""
        log_scales = self.log_units + self.power * log_of_scales(self.bounded, x[self.scales])
        return root_at(log_scales, self.turn * x[self.angles])

    def prior(self, x: np.ndarray) -> np.ndarray:
        """The precision (K, K) of effects in the prior: (C C^T)^-1, or I."""
        return self.prior_of_effects(x) if self.centred else np.eye(len(self.scales))

    def prior_of_effects(self, x: np.ndarray) -> np.ndarray:
        """(C C^T)^-1 (K, K) at `x` (d,)."""
        inverse = np.linalg.inv(self.root(x))
        return np.asarray(inverse.T @ inverse)

    def data(self, x: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        """D (J, K, K), from blocks of the negative Hessian at `x` (d,)."""
        rest = blocks - self.prior(x)
        if self.centred:
            return np.asarray(rest)
        inverse = np.linalg.inv(self.root(x))
        return np.asarray(inverse.T @ rest @ inverse)

    def blocks(self, x: np.ndarray, data: np.ndarray) -> np.ndarray:
        """The blocks (J, K, K) of the negative Hessian at `x` (d,), from D."""
        if self.centred:
            return np.asarray(self.prior(x) + data)
        root = self.root(x)
        return np.asarray(self.prior(x) + root.T @ data @ root)


class GroupingFactor(NamedTuple):
    """The effects of a factor, and what is known of them."""

    own: np.ndarray  # (J, K)
    roles: Roles
    changing: np.ndarray  # (r,) coordinates with which the precision of the data changes
    rates: np.ndarray  # (r, K), of each effect
    changing_bounded: np.ndarray  # (r,) whether these are of scales with an upper bound
    shares: np.ndarray  # (J,) of it that change, if v is 0; 0 for the axis of a sum that is held near 0


def share_at(log_scale: float, shares: np.ndarray) -> np.ndarray:
    """The shares (J,) of the data's precision that change with a scale of errors, from those if it is 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / (1.0 + (1.0 / shares - 1.0) * np.exp(-OF_LOG_SCALE * log_scale)))


def changes_in_part(factor: GroupingFactor) -> bool:
    """Whether a share of the data's precision changes that is neither nothing nor all of it."""
    return bool(((factor.shares > 0.0) & (factor.shares < 1.0)).any())


def without_change(factor: GroupingFactor) -> GroupingFactor:
    """The factor with a precision of the data that changes with nothing."""
    groups, k = factor.own.shape
    return factor._replace(
        changing=np.zeros(0, np.int64),
        rates=np.zeros((0, k)),
        changing_bounded=np.zeros(0, bool),
        shares=np.ones(groups),
    )


def are_stiff(blocks: np.ndarray) -> np.ndarray:
    """Whether the curvature of each group (J,) is far larger than that of most, by `blocks` (J, K, K)."""
    size = np.trace(blocks, axis1=1, axis2=2)
    return np.asarray(size > _STIFF * np.median(size))


def blocks_at(density: ScaledDensity, own: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The blocks (J, K, K) of the negative Hessian of effects `own` (J, K) at `x` (d,), in the program's own
    coordinates; NaN without scores.
    """
    return np.asarray(blocks_at_all(density, own, x[None])[0])


def blocks_at_all(density: ScaledDensity, own: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The same at each of the points (p, d): (p, J, K, K).

    An axis that is far stiffer than the others may be tied to them a little beside its own curvature, but
    not beside theirs. So theirs are looked at without it.
    """
    found = _blocks_at_all(density, own, points)
    stiff = are_stiff(found[0])
    if own.shape[1] == 1 and stiff.any():
        found[:, ~stiff] = _blocks_at_all(density, own[~stiff], points)
    return found


def _blocks_at_all(density: ScaledDensity, own: np.ndarray, points: np.ndarray) -> np.ndarray:
    (n, d), k = points.shape, own.shape[1]
    directions = np.zeros((k, d))
    directions[np.arange(k), own] = 1.0
    at = np.repeat(points / density.unit, k, axis=0)
    columns = density.curvatures(at, np.tile(directions, (n, 1)))[:, own].reshape(n, k, *own.shape)
    unit = density.unit[own]
    blocks = np.moveaxis(columns, 1, -1) / (unit[:, :, None] * unit[:, None, :])
    return np.asarray(0.5 * (blocks + blocks.swapaxes(2, 3)))


def fit_effects(
    density: ScaledDensity,
    x: np.ndarray,
    factors: Sequence[GroupingFactor],
    latents: np.ndarray,
    *,
    rotated: bool,
) -> tuple[list[Effects], np.ndarray] | None:
    """The law of each factor, around the mode of the effects with all else as at `x` (d,), and the mode.

    The `latents` (l,) of a field are among the coefficients on which effects depend. The effects of some
    factor may be `rotated`, so that other laws do not know them.
    """
    space = _EffectSpace(density, factors, x, latents)
    if len(space.given) > MOST_COLUMNS:
        return None
    mode = space.find_mode(x)
    if mode is None:
        return None
    of_groups = len(factors) == 2 and all(_is_of_groups(factor) for factor in factors) and not rotated
    of_groups = of_groups and not len(latents)
    if of_groups and space.quadratic and space.tied:
        return None  # the second law would be about right; scores tell groups the exact law of two levels
    if not space.quadratic:
        space.leave_out_intercepts()
    found = space.hessian(mode, whole=True)
    means = [space.means(mode, number) for number in range(len(factors))]
    if found is None or any(one is None for one in means):
        return None
    laws = space.laws(mode, found, [one for one in means if one is not None])
    if laws is None or sum(law.slopes.size + law.tied.size for law in laws) > MOST_NUMBERS:
        return None
    return laws, mode


def _is_of_groups(factor: GroupingFactor) -> bool:
    """Whether group.py has the law of this factor, too, where data are normal."""
    return factor.own.shape[1] == 1 and not factor.roles.bounded and not factor.changing_bounded.any()


class _Hessian(NamedTuple):
    """The negative Hessian in effects: r are those of all factors but the first, and g the coefficients."""

    first: np.ndarray  # (J, K, K) the blocks of the first factor
    cross: np.ndarray  # (J K, r + p) of the first factor and the others
    others: np.ndarray  # (r, r + p)

    def has_ties(self) -> bool:
        """Whether effects of the first factor and of others are tied to each other."""
        own = np.sqrt(np.diagonal(self.first, axis1=1, axis2=2).ravel())
        rest = np.sqrt(np.abs(np.diagonal(self.others)))
        ties = np.abs(self.cross[:, : len(self.others)])
        return bool((ties > _FAINT_TIE * own[:, None] * rest).any())


class _Law(NamedTuple):
    """The effects of a factor, given all that comes later."""

    precision: np.ndarray  # (J, K, K) Q
    change: np.ndarray  # (J K, r + p) T


class _EffectSpace:
    """The density in effects, where programs have them or other coordinates, with their heads fixed."""

    def __init__(
        self, density: ScaledDensity, factors: Sequence[GroupingFactor], x: np.ndarray, latents: np.ndarray
    ) -> None:
        self.density, self.factors, self.unit = density, [*factors], density.unit
        self.latents = latents
        self.roots = [factor.roles.root(x) for factor in factors]
        self.inverses = [np.linalg.inv(root) for root in self.roots]
        self.priors = [factor.roles.prior_of_effects(x) for factor in factors]
        self.later = [factor.own.ravel() for factor in factors[1:]]
        self.rest = np.concatenate([np.zeros(0, np.int64), *self.later])
        begins = np.cumsum([0, *(len(own) for own in self.later)])
        self.parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(begins)]
        self.quadratic = False  # whether one step of Newton's method led to the mode
        self.tied = False  # whether effects of different factors are tied
        self._note_coefficients()

    def _note_coefficients(self) -> None:
        """Find out which coordinates have no other role."""
        roles = [(f.own.ravel(), f.roles.scales, f.roles.angles, f.changing) for f in self.factors]
        known = np.concatenate([np.concatenate(one) for one in roles]).astype(np.int64)
        self.coefficients = np.setdiff1d(np.arange(self.unit.size), known)
        self.given = np.concatenate((self.rest, self.coefficients))

    def leave_out_intercepts(self) -> None:
        """Take back that the precision of data changes with coordinates like the intercept of log rates.

        It does at fixed effects. At their mode it does not, since they make up for an intercept.
        """
        for number, factor in enumerate(self.factors):
            kept = (factor.rates == OF_LOG_SCALE).any(axis=1)
            columns = (factor.changing, factor.rates, factor.changing_bounded)
            changing, rates, bounded = (one[kept] for one in columns)
            self.factors[number] = factor._replace(changing=changing, rates=rates, changing_bounded=bounded)
        self._note_coefficients()

    def effects(self, x: np.ndarray, number: int) -> np.ndarray:
        """The effects (J, K) of a factor at `x` (d,)."""
        own = x[self.factors[number].own]
        return np.asarray(own if self.factors[number].roles.centred else own @ self.roots[number].T)

    def _rows(self, values: np.ndarray, number: int) -> np.ndarray:
        """Derivatives (J, K, ...) by the program's own coordinates of a factor as those by its effects."""
        if self.factors[number].roles.centred:
            return values
        return np.asarray(np.einsum("ba,jb...->ja...", self.inverses[number], values))

    def _columns(self, values: np.ndarray) -> np.ndarray:
        """Derivatives (..., r + p) by all other effects and coefficients, the same way."""
        values, lead = values.copy(), values.shape[:-1]
        for number, part in enumerate(self.parts, start=1):
            own = values[..., part].reshape(-1, *self.factors[number].own.shape)
            turned = self._rows(np.moveaxis(own, 0, -1), number)
            values[..., part] = np.moveaxis(turned, -1, 0).reshape(*lead, own[0].size)
        return values

    def score(self, x: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The log density at `x` (d,) and the scores (J, K) in the effects of each factor."""
        logp, score = self.density(x / self.unit)
        score = score / self.unit
        return logp, [self._rows(score[factor.own], i) for i, factor in enumerate(self.factors)]

    def hessian(self, x: np.ndarray, *, whole: bool = False) -> _Hessian | None:
        """The negative Hessian at `x` (d,), with coefficients or without; None without scores."""
        first = self._rows(blocks_at(self.density, self.factors[0].own, x), 0)
        first = self._rows(first.swapaxes(1, 2), 0).swapaxes(1, 2)
        found = self.columns(x, self.given if whole else self.rest, one_sided=len(self.rest))
        if found is None or not (np.isfinite(first).all() and np.isfinite(found).all()):
            return None
        first = self.priors[0] + _positive_part(first - self.priors[0])
        rows = [
            self._columns(self._rows(found[factor.own], number)).reshape(factor.own.size, found.shape[1])
            for number, factor in enumerate(self.factors)
        ]
        return _Hessian(first, rows[0], np.concatenate((rows[0][:0], *rows[1:])))

    def columns(self, x: np.ndarray, coordinates: np.ndarray, *, one_sided: int = 0) -> np.ndarray | None:
        """Columns (d, c) of the negative Hessian at `x` (d,), in the program's own coordinates; None without
        scores. So many of the first are one-sided differences, which take half of the gradients.
        """
        scaled, parts = x / self.unit, []
        here = self.density(scaled)[1] if one_sided else None
        for some, score in ((coordinates[:one_sided], here), (coordinates[one_sided:], None)):
            found = self.density.curvatures(scaled, axes(x.size, some), score)
            parts.append((found / self.unit / self.unit[some][:, None]).T)
        both = np.concatenate(parts, axis=1)
        return None if np.isnan(both).any() else both

    def find_mode(self, x: np.ndarray) -> np.ndarray | None:
        """The mode of the effects, all else as at `x` (d,), by Newton's method with few Hessians."""
        x, n, first = x.copy(), sum(factor.own.size for factor in self.factors), np.inf
        logp, score = self.score(x)
        for _ in range(_HESSIANS):
            matrix, last = self.hessian(x), np.inf
            if matrix is None:
                return None
            self.tied |= matrix.has_ties()
            inverse = _Inverse(matrix)
            for step in range(_STEPS):
                move = inverse.solve(np.concatenate([one.ravel() for one in score]))
                gain = sum(np.sum(s * m) for s, m in zip(score, self._split(move), strict=True))
                far = float(np.sqrt(max(gain, 0.0) / n))
                if first == np.inf:
                    first = far
                elif step == 1:
                    self.quadratic |= far < _EXACT * first
                if far < _NEAR:
                    return x
                if far > 0.5 * last:
                    break
                last = far
                for _ in range(5):
                    ahead = self._step(x, move)
                    at_ahead, score_ahead = self.score(ahead)
                    if at_ahead > logp - 1e-6 * abs(logp):
                        break
                    move = 0.5 * move
                else:
                    return None
                x, logp, score = ahead, at_ahead, score_ahead
        return x if last < 0.1 else None

    def _split(self, values: np.ndarray) -> list[np.ndarray]:
        """Numbers of all effects (n,) as arrays (J, K) of each factor."""
        begins = np.cumsum([factor.own.size for factor in self.factors])[:-1]
        parts = np.split(values, begins)
        return [one.reshape(factor.own.shape) for one, factor in zip(parts, self.factors, strict=True)]

    def _step(self, x: np.ndarray, move: np.ndarray) -> np.ndarray:
        """`x` (d,) with effects moved by `move` (n,)."""
        x = x.copy()
        for number, (factor, own) in enumerate(zip(self.factors, self._split(move), strict=True)):
            x[factor.own] += own if factor.roles.centred else own @ self.inverses[number].T
        return x

    def means(self, x: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        """How far effects (J, K) of a factor are from their prior means at `x` (d,), and A (J, K, r + p)."""
        factor = self.factors[number]
        slopes = np.zeros((*factor.own.shape, len(self.given)))
        if not factor.roles.centred:
            return self.effects(x, number), slopes
        # Scales that are smaller change what the prior says alone.
        narrower = x.copy()
        narrower[factor.roles.scales] -= MOVE / factor.roles.power
        gain = np.linalg.inv(factor.roles.prior_of_effects(narrower) - self.priors[number])
        (_, here), (_, there) = self.score(x), self.score(narrower)
        away = -(there[number] - here[number]) @ gain
        end = self.parts[number - 1].stop if number else 0
        later = np.arange(end, len(self.given))
        if end < len(self.rest) and not self._mean_depends(x, narrower, factor, self.rest[end:]):
            later = later[later >= len(self.rest)]
        if len(self.latents) and not self._mean_depends(x, narrower, factor, self.latents):
            later = later[~np.isin(self.given[later], self.latents)]
        at_x, at_narrower = (self.columns(point, self.given[later]) for point in (x, narrower))
        if at_x is None or at_narrower is None or not np.isfinite(away).all():
            return None
        slopes[:, :, later] = -np.einsum("jac,ab->jbc", (at_narrower - at_x)[factor.own], gain)
        return away, self._columns(slopes)

    def _mean_depends(
        self, x: np.ndarray, narrower: np.ndarray, factor: GroupingFactor, rest: np.ndarray
    ) -> bool:
        """Whether the prior means of a factor depend on the coordinates `rest`, effects of later ones say."""
        axis = np.zeros(x.size)
        axis[rest] = np.random.default_rng(2).choice([-1.0, 1.0], len(rest))
        both = [self.density.curvature(point / self.unit, axis) for point in (x, narrower)]
        if both[0] is None or both[1] is None:
            return False
        change = np.abs((both[1] - both[0])[factor.own])
        return bool(change.max() > 1e-4 * np.abs(both[0]).max())

    def laws(
        self, x: np.ndarray, matrix: _Hessian, means: list[tuple[np.ndarray, np.ndarray]]
    ) -> list[Effects] | None:
        """The law of each factor around the mode `x` (d,)."""
        slopes = [one[1].reshape(one[0].size, len(self.given)) for one in means]
        data = matrix._replace(
            first=matrix.first - self.priors[0],
            cross=matrix.cross + _times(self.priors[0], slopes[0]),
            others=matrix.others - self._prior_of_others(self.priors, slopes),
        )
        known = self._eliminate(data, slopes, self.priors, 1.0)
        if not all(np.isfinite(law.precision).all() and np.isfinite(law.change).all() for law in known):
            return None
        later = [self.effects(x, number + 1).ravel() for number in range(len(self.later))]
        values = np.concatenate((*later, x[self.coefficients]))
        laws = []
        for number, (factor, law, mean) in enumerate(zip(self.factors, known, means, strict=True)):
            changing, rates, bounded = factor.changing, factor.rates, factor.changing_bounded
            powers, shares = np.zeros(len(changing)), np.zeros((len(changing), len(factor.own)))
            if number:
                changing, bounded, powers, shares = self._shares(x, data, slopes, number)
                rates = np.zeros((len(changing), factor.own.shape[1]))
            elif np.any(factor.shares < 1.0) and len(changing) == 1:  # of several they could exceed 1
                log_scale = float(log_of_scales(bounded, x[changing])[0])
                powers, shares = -rates[:, 0], share_at(log_scale, factor.shares)[None]
                rates = np.zeros_like(rates)
            alone = self._effects(x, number, law, *mean, values)
            alone = alone._replace(changing=changing, rates=rates, changing_bounded=bounded)
            alone.precision[:, are_told_apart(rates)] = 0.0
            middles = log_of_scales(bounded, x[changing])
            laws.append(alone._replace(middles=middles, powers=powers, shares=shares))
        return laws

    def _prior_of_others(self, priors: list[np.ndarray], slopes: list[np.ndarray]) -> np.ndarray:
        """What priors say of the negative Hessian (r, r + p)."""
        r, total = len(self.rest), np.zeros((len(self.rest), len(self.given)))
        for number, (prior, by) in enumerate(zip(priors, slopes, strict=True)):
            one = -by
            if number:
                part = self.parts[number - 1]
                one = one.copy()
                one[:, part] += np.eye(part.stop - part.start)
            total += one[:, :r].T @ _times(prior, one)
        return total

    def _eliminate(
        self, data: _Hessian, slopes: list[np.ndarray], priors: list[np.ndarray], factor: float
    ) -> list[_Law]:
        """The law of each factor given later ones, the effects before it integrated out."""
        r = len(self.rest)
        first = priors[0] + factor * data.first
        cross = factor * data.cross - _times(priors[0], slopes[0])
        change = -_solve(first, cross)
        found = [_Law(first, change)]
        left = self._prior_of_others(priors, slopes) + factor * data.others + cross[:, :r].T @ change
        for number, part in enumerate(self.parts, start=1):
            groups, k = self.factors[number].own.shape
            own = 0.5 * (left[part, part] + left[part, part].T)
            blocks = own.reshape(groups, k, groups, k)[np.arange(groups), :, np.arange(groups), :]
            change = np.zeros((groups * k, left.shape[1]))
            change[:, part.stop :] = -cho_solve(cho_factor(own), left[part, part.stop :])
            found.append(_Law(blocks, change))
            left = left + left[:, part] @ change
        return found

    def _shares(
        self, x: np.ndarray, data: _Hessian, slopes: list[np.ndarray], number: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """With which coordinates the precision of a later factor changes, whether these are of scales with an
        upper bound, their powers, and shares (r, J).

        Scales of earlier factors, and the error of data, are parts of the variance of what the data say.
        """
        first, before = self.factors[0], [factor.roles for factor in self.factors[:number]]
        powers = {int(k): (2.0 * roles.power, roles.bounded) for roles in before for k in roles.scales}
        changing = zip(first.changing, first.rates, first.changing_bounded, strict=True)
        powers |= {int(k): (-float(rate.mean()), bool(bounded)) for k, rate, bounded in changing}
        size, shares = np.diagonal(np.linalg.inv(self.priors[number])), {}
        for k, (power, bounded) in powers.items():
            logs, ends = [], log_of_scales(bounded, x[k] + np.array([-_STEP, 0.0, _STEP]))
            for sign in (-1.0, 1.0):
                moved = x.copy()
                moved[k] += sign * _STEP
                priors = [factor.roles.prior_of_effects(moved) for factor in self.factors]
                away = ends[1 + int(sign)] - ends[1]
                factor = float(np.exp(away * first.rates[first.changing == k].mean(axis=1).sum()))
                share = float(np.median(share_at(ends[1], first.shares)))
                factor = share * factor + (1.0 - share)
                precision = self._eliminate(data, slopes, priors, factor)[number].precision
                rest = np.diagonal(precision - priors[number], axis1=1, axis2=2) @ size
                logs.append(np.log(np.maximum(rest, 1e-12)))
            share = np.clip((logs[0] - logs[1]) / ((ends[2] - ends[0]) * power), 0.0, 1.0)
            if share.max() > _SLOW:
                shares[k] = share
        found = np.array([*shares.values()]).reshape(len(shares), len(self.factors[number].own))
        found /= np.maximum(found.sum(axis=0), 1.0)
        known = np.array([powers[k] for k in shares]).reshape(len(shares), 2)
        return np.array([*shares], np.int64), known[:, 1] > 0.0, known[:, 0], found

    def _effects(
        self,
        x: np.ndarray,
        number: int,
        law: _Law,
        away: np.ndarray,
        means: np.ndarray,
        values: np.ndarray,
    ) -> Effects:
        """The numbers of the law of a factor whose data have a precision that does not change.

        `values` (r + p,) are those of what is given.
        """
        factor, prior = self.factors[number], self.priors[number]
        roles, own = factor.roles, factor.own
        precision = _positive_part(law.precision - prior)
        whole = prior + precision
        slopes = np.einsum("jab,jbc->jac", whole, means - law.change.reshape(means.shape))
        scale = np.sqrt(np.diagonal(np.linalg.inv(prior)))  # of effects, in the prior
        units = self.unit[self.given].copy()
        for later, part in enumerate(self.parts, start=1):
            sizes = np.sqrt(np.diagonal(np.linalg.inv(self.priors[later])))
            units[part] = np.tile(sizes, (part.stop - part.start) // len(sizes))
        by_mean = np.abs(means / scale[:, None]).max(axis=(0, 1), initial=0.0) * units > _FAINT
        sizes = np.abs(slopes) * scale[:, None] * units
        is_effect = (np.arange(len(units)) < len(self.rest)) | np.isin(self.given, self.latents)
        entries = sizes.max(axis=1) > np.where(is_effect, _FAINT_TIE, _FAINT)
        kept = by_mean | (entries.any(axis=0) & ~is_effect) | (entries.mean(axis=0) > _FULL)
        group, column = np.nonzero(entries & is_effect & ~kept)
        slopes = np.where((entries | kept)[:, None, :], slopes, 0.0)
        pulls = np.einsum("jab,jb->ja", whole, away) + slopes @ values
        return Effects(
            heads=np.concatenate((roles.scales, roles.angles)).astype(np.int64),
            coefficients=self.given[kept],
            own=own,
            precision=precision,
            pulls=pulls,
            slopes=slopes[:, :, kept],
            ties=np.column_stack((self.given[column], group)),
            tied=slopes[group, :, column],
            offsets=(self.effects(x, number) - away - means @ values)
            if roles.centred
            else np.zeros(own.shape),
            means=means[:, :, kept],
            centred=roles.centred,
            changing=np.zeros(0, np.int64),
            rates=np.zeros((0, own.shape[1])),
            middles=np.zeros(0),
            powers=np.zeros(0),
            shares=np.zeros((0, len(own))),
            changing_bounded=np.zeros(0, bool),
            log_units=roles.log_units,
            bounded=roles.bounded,
            middle=x[np.concatenate((roles.scales, roles.angles)).astype(np.int64)],
            turn=roles.turn,
            power=roles.power,
        )


class _Inverse:
    """The inverse of the negative Hessian in all effects."""

    def __init__(self, matrix: _Hessian) -> None:
        self._first, self._cross = matrix.first, matrix.cross[:, : len(matrix.others)]
        self._carried = _solve(matrix.first, self._cross)
        self._rest = None
        if len(matrix.others):
            rest = matrix.others[:, : len(matrix.others)] - self._cross.T @ self._carried
            self._rest = cho_factor(0.5 * (rest + rest.T))

    def solve(self, v: np.ndarray) -> np.ndarray:
        """The product (n,) with `v` (n,)."""
        n = len(self._cross)
        first = _solve(self._first, v[:n, None])[:, 0]
        if self._rest is None:
            return first
        rest = cho_solve(self._rest, v[n:] - self._cross.T @ first)
        return np.concatenate((first - self._carried @ rest, rest))


def _positive_part(blocks: np.ndarray) -> np.ndarray:
    """Symmetric blocks (J, K, K) with 0 in place of their negative eigenvalues."""
    values, vectors = np.linalg.eigh(blocks)
    return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2))


def _times(blocks: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The product of a block (K, K), the same for all groups, with each group's rows of `v` (J K, m)."""
    k = len(blocks)
    return np.asarray(blocks @ v.reshape(len(v) // k, k, -1)).reshape(v.shape)


def _solve(blocks: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The solutions (J K, m) of equations with blocks (J, K, K) and `v` (J K, m)."""
    return np.asarray(np.linalg.solve(blocks, v.reshape(*blocks.shape[:2], -1))).reshape(v.shape)
