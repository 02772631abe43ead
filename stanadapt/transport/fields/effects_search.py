"""Finding correlated effects (effects.py): which coordinates have which role, and what the data say.

The effects of a group are tied to each other by their prior and by the data, and to no other group's. As a
block of the negative Hessian, those of group j have H_j = (C C^T)^-1 + D_j where the program is centred, and
I + C^T D_j C where it is not. So each guess at the roles of coordinates says how H_j changes when one of them
moves, with D_j known from where they are. Guesses are tried until one of them says it exactly. What people
write has few forms: log scales that are a variable or scalars, and Stan's numbers of a correlation matrix,
or one correlation between -1 and 1. Where no guess is right, there is no such law, and some tens of gradients
are lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from ..effects import LARGEST, LEAST_EFFECTS, LEAST_GROUPS, Effects, effects_rows, root_at
from .laplace import find_mode
from .precision import Precision
from .probes import Coupling, Evaluate, ScaledDensity

MOST_CANDIDATES = 40  # coordinates beside the effects
MOST_GUESSES = 400
MOVE = 0.7  # of a candidate, in the program's own coordinates
_CHANGES = 1e-5  # a candidate changes a block by more than this, beside its diagonal
_WRONG = 1e-3  # share of a change that a guess may leave unexplained
POWERS = 1.0, 0.5, -0.5  # of e, of log scales, log variances and log precisions
TURNS = 1.0, 0.5  # tanh(y) of Stan's correlation matrices, and 2 / (1 + e^-y) - 1 = tanh(y / 2) of a scalar
_FAINT = 1e-6  # a coefficient with a smaller effect on the score, in scales, is none
_LOOKS, _OFF = 5, 0.5  # that judge a law, and what scores in z may be off there, in root mean square
_REACH = 0.5  # of heads in a look


class Roles(NamedTuple):
    """A guess."""

    scales: np.ndarray  # (K,) coordinates of log scales
    angles: np.ndarray  # (K (K - 1) / 2,) those of correlations, row by row; or (0,)
    turn: float
    power: float
    centred: bool

    def root(self, x: np.ndarray) -> np.ndarray:
        """C (K, K) at `x` (d,)."""
        return root_at(self.power * x[self.scales], self.turn * x[self.angles])

    def prior(self, x: np.ndarray) -> np.ndarray:
        """The precision (K, K) of effects in the prior: (C C^T)^-1, or I."""
        inverse = np.linalg.inv(self.root(x))
        return np.asarray(inverse.T @ inverse) if self.centred else np.eye(len(self.scales))

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


class _Blocks:
    """The blocks of the negative Hessian of groups, and what their scores say."""

    def __init__(self, density: ScaledDensity, coupling: Coupling, own: np.ndarray) -> None:
        """Of the coordinates `own` (J, K)."""
        self.density, self.own, self.unit = density, own, density.unit
        self.precision = Precision(density, coupling, np.setdiff1d(np.arange(self.unit.size), own))
        place = np.full(self.unit.size, -1)
        place[self.precision.latents] = np.arange(own.size)
        at = place[own]
        k = own.shape[1]
        self._rows = np.repeat(at, k, axis=1).ravel()
        self._columns = np.tile(at, (1, k)).ravel()

    def at(self, x: np.ndarray) -> np.ndarray:
        """The blocks (J, K, K) at `x` (d,), in the program's own coordinates; NaN without scores."""
        k, unit = self.own.shape[1], self.unit[self.own]
        self.precision.quadratic = False  # so that no score at x is needed
        matrix = self.precision.at(x / self.unit, x)
        if matrix is None:
            return np.full((len(unit), k, k), np.nan)
        found = np.asarray(matrix.tocsr()[self._rows, self._columns]).reshape(-1, k, k)
        return np.asarray(found / (unit[:, :, None] * unit[:, None, :]))

    def score(self, x: np.ndarray) -> np.ndarray:
        """The scores (J, K) at `x` (d,)."""
        logp, score = self.density(x / self.unit)
        found = (score / self.unit)[self.own]
        return found if np.isfinite(logp) else np.full(found.shape, np.nan)

    def column(self, x: np.ndarray, k: int) -> np.ndarray:
        """The negative Hessian (J, K) of effects and the coordinate `k`, at `x` (d,)."""
        axis = np.zeros(x.size)
        axis[k] = 1.0
        v = self.density.curvature(x / self.unit, axis)
        if v is None:
            return np.full(self.own.shape, np.nan)
        return np.asarray((v / self.unit / self.unit[k])[self.own])


def find_effects(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    coupling: Coupling,
    variables: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of a map with the law of effects, and the scales (d,) of all coordinates in it; None if there
    are no such effects.

    `x` (d,) is in units, as `density` is; `density_in` gives the density in the coordinates of a map.
    `variables` (d,) are the numbers of the variables that coordinates belong to.
    """
    own = _groups_of(coupling, variables)
    others = np.setdiff1d(np.arange(x.size), [] if own is None else own)
    if own is None or not 0 < len(others) <= MOST_CANDIDATES:
        return None
    blocks, there = _Blocks(density, coupling, own), x * density.unit
    if own.shape[1] == 1:
        find_mode(blocks.precision, x)
        if blocks.precision.quadratic:  # data are normal: scores tell groups this law
            return None
    for centred in (True, False):
        start = there.copy()
        if not centred:
            start[own] = 0.0  # D does not change with the scales there
        found = _find_roles(blocks, start, others, variables, centred)
        if found is None:
            continue
        law = _fit(blocks, start, others, *found)
        return None if law is None else _judge(density_in, law, there, others, density)
    return None


def _groups_of(coupling: Coupling, variables: np.ndarray) -> np.ndarray | None:
    """The effects (J, K) of each group; None if coordinates do not come in such groups.

    They are one variable, the largest one, or several of its size.
    """
    counts = np.bincount(variables)
    numbers = np.flatnonzero(counts == counts.max())
    whole = np.flatnonzero(np.isin(variables, numbers))
    if len(whole) < LEAST_EFFECTS or coupling.wide[whole].any():
        return None
    part_of = np.full(variables.size, -1)
    part_of[whole] = connected_components(coupling.pattern[whole][:, whole], directed=False)[1]
    sizes = np.bincount(part_of[whole])
    k = int(sizes.max())
    if k > LARGEST or len(whole) % k or len(whole) < LEAST_GROUPS * k or len(numbers) not in (1, k):
        return None
    layouts = [whole.reshape(k, -1).T]  # a variable for each effect, or a matrix with one row for each group
    if len(numbers) == 1:
        layouts.insert(0, whole.reshape(-1, k))
    for own in layouts:
        group = np.full(variables.size, -1)
        group[own] = np.arange(len(own))[:, None]
        lowest, highest = np.full(len(sizes), len(own)), np.full(len(sizes), -1)
        np.minimum.at(lowest, part_of[whole], group[whole])
        np.maximum.at(highest, part_of[whole], group[whole])
        if np.all(lowest[part_of[whole]] == highest[part_of[whole]]):
            return own
    return None


def _find_roles(
    blocks: _Blocks, x: np.ndarray, others: np.ndarray, variables: np.ndarray, centred: bool
) -> tuple[Roles, int] | None:
    """The right guess, and the coordinate of the log scale of the data's error, or -1."""
    here = blocks.at(x)
    if not np.isfinite(here).all():
        return None
    size = np.sqrt(np.abs(np.diagonal(here, axis1=1, axis2=2)))
    size = size[:, :, None] * size[:, None, :] + 1e-300
    moved: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for k in others:
        ends = []
        for sign in (-1.0, 1.0):
            end = x.copy()
            end[k] += sign * MOVE
            ends.append((end, blocks.at(end)))
        if any(np.abs(block - here).max() > _CHANGES * size.max() for _, block in ends):
            moved[int(k)] = ends

    def explains(roles: Roles, data: np.ndarray, k: int, rate: float = 0.0) -> bool:
        """Whether a guess says how blocks change when `k` moves: as scales of effects do, or with a rate."""
        for end, block in moved[k]:
            factor = np.exp(rate * (end[k] - x[k]))
            left = (roles.blocks(end, factor * data) - block) / size
            change = (block - here) / size
            if not np.linalg.norm(left) <= _WRONG * np.linalg.norm(change):
                return False
        return True

    for roles in _guesses(moved, variables, blocks.own.shape[1], centred):
        data = roles.data(x, here)
        heads = [int(k) for k in (*roles.scales, *roles.angles)]
        if all(explains(roles, data, k) for k in heads):
            noise = [k for k in moved if k not in heads and explains(roles, data, k, rate=-2.0)]
            return roles, noise[0] if noise else -1
    return None


def _guesses(moved: Mapping[int, object], variables: np.ndarray, k: int, centred: bool) -> Iterator[Roles]:
    """The guesses at the roles of coordinates that change blocks."""
    candidates = np.array(sorted(moved), np.int64)
    whole = [candidates[variables[candidates] == number] for number in np.unique(variables[candidates])]
    whole = [own for own in whole if len(own) == np.count_nonzero(variables == variables[own[0]])]
    scalars = [own[0] for own in whole if len(own) == 1]
    n_angles = k * (k - 1) // 2
    of_scales = [own for own in whole if len(own) == k]
    of_scales += [np.array(chosen) for chosen in itertools.permutations(scalars, k)]
    of_angles = [own for own in whole if len(own) == n_angles] + [np.zeros(0, np.int64)]
    rows, columns = np.tril_indices(k, -1)
    by_columns = np.lexsort((rows, columns))  # Stan's correlation matrices have their numbers in this order
    orders = [np.arange(n_angles)]
    if n_angles > 1:
        orders.append(np.argsort(by_columns))
    guesses = itertools.product(POWERS, of_scales, of_angles, TURNS, orders)
    for power, scales, angles, turn, order in itertools.islice(guesses, MOST_GUESSES):
        if np.intersect1d(scales, angles).size:
            continue
        if not len(angles):
            if turn == TURNS[0] and order is orders[0]:
                yield Roles(scales, angles, turn, power, centred)
        else:
            yield Roles(scales, angles[order], turn, power, centred)


def _fit(blocks: _Blocks, x: np.ndarray, others: np.ndarray, roles: Roles, noise: int) -> Effects | None:
    """The law around the mode of the effects, with all else as at `x` (d,)."""
    others = np.setdiff1d(others, np.concatenate((roles.scales, roles.angles, [noise])))
    mode = find_mode(blocks.precision, x / blocks.unit)
    return None if mode is None else _law_at(blocks, mode.x * blocks.unit, others, roles, noise)


def _law_at(blocks: _Blocks, x: np.ndarray, others: np.ndarray, roles: Roles, noise: int) -> Effects | None:
    """The law that blocks, scores and columns of the Hessian at `x` (d,) say."""
    own, root, prior = blocks.own, roles.root(x), roles.prior(x)
    inverse = np.linalg.inv(root)
    data, score = roles.data(x, blocks.at(x)), blocks.score(x)
    columns = [blocks.column(x, i) for i in others]
    if not (np.isfinite(data).all() and np.isfinite(score).all() and np.isfinite(columns).all()):
        return None
    groups, k = own.shape
    values, vectors = np.linalg.eigh(data)
    data = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)
    cross = np.array(columns).reshape(len(others), groups, k)
    if roles.centred:
        # Scales that are smaller change what the prior says alone.
        narrower = x.copy()
        narrower[roles.scales] -= MOVE / roles.power
        gain = np.linalg.inv(roles.prior(narrower) - prior)
        away = -(blocks.score(narrower) - score) @ gain
        means = np.array(
            [-(blocks.column(narrower, i) - one) @ gain for i, one in zip(others, cross, strict=True)]
        )
        means = means.reshape(len(others), groups, k)
        slopes = cross + means @ prior
        at_data = score + away @ prior + np.einsum("jab,jb->ja", data, x[own])
    else:
        away, means = x[own], np.zeros_like(cross)
        slopes = cross @ inverse
        at_data = (score + away) @ inverse + np.einsum("jab,jb->ja", data, away @ root.T)
    scale = np.sqrt(np.mean(np.square(inverse), axis=0))  # one over that of effects, in the prior
    counts = np.array(
        [
            (np.abs(mean * scale).max() + np.abs(slope / scale).max()) * blocks.unit[i] > _FAINT
            for i, mean, slope in zip(others, means, slopes, strict=True)
        ],
        bool,
    )
    others, means, slopes = others[counts], means[counts], slopes[counts]
    at_data = at_data + np.tensordot(x[others], slopes, 1)
    offsets = x[own] - away - np.tensordot(x[others], means, 1) if roles.centred else np.zeros(own.shape)
    if not np.isfinite(at_data).all():
        return None
    return Effects(
        heads=np.concatenate((roles.scales, roles.angles)).astype(np.int64),
        coefficients=others,
        own=own,
        precision=data,
        pulls=at_data - np.einsum("jab,jb->ja", data, offsets),
        slopes=np.moveaxis(slopes + np.einsum("jab,pjb->pja", data, means), 0, 2),
        offsets=offsets,
        means=np.moveaxis(means, 0, 2),
        centred=roles.centred,
        noise=noise,
        middle=float(x[noise]) if noise >= 0 else 0.0,
        turn=roles.turn,
        power=roles.power,
    )


def _judge(
    density_in: Callable[[np.ndarray], Evaluate],
    law: Effects,
    x: np.ndarray,
    others: np.ndarray,
    density: ScaledDensity,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of the law and the scales (d,) of all coordinates, if it makes effects standard normal."""
    rows = effects_rows(law, density.gradients)
    inner = ScaledDensity(density_in(rows), np.ones(x.size))
    z, scale = x.copy(), density.unit.copy()
    z[law.own], scale[law.own] = 0.0, 1.0
    for k in others:
        axis = np.zeros(x.size)
        axis[k] = density.unit[k]
        column = inner.curvature(z, axis)
        if column is not None and column[k] > 0.0:
            scale[k] = np.sqrt(density.unit[k] / column[k])
    rng, off = np.random.default_rng(6), []  # no random numbers of the chain
    for _ in range(_LOOKS):
        there = z.copy()
        there[law.own] = rng.standard_normal(law.own.shape)
        there[others] += rng.standard_normal(len(others)) * np.minimum(scale[others], _REACH)
        logp, score = inner(there)
        left = score[law.own] + there[law.own]
        off.append(float(np.sqrt(np.mean(np.square(left)))) if np.isfinite(logp) else np.inf)
    density.gradients += inner.gradients
    return (rows, scale) if np.median(off) < _OFF else None
