"""Finding effects (effects.py): which coordinates are effects of which factor, and who has which role.

The effects of a group are tied to each other by their prior and by the data, and to no other group of their
factor. As a block of the negative Hessian, those of group j have H_j = (C C^T)^-1 + D_j where the program is
centred, and I + C^T D_j C where it is not. So each guess at the roles of coordinates says how H_j changes
when one of them moves, with D_j known from where they are. Guesses are tried until one of them says it
exactly. What people write has few forms: log scales that are a variable or scalars, and Stan's numbers of a
correlation matrix, or one correlation between -1 and 1. Where no guess is right, there is no such law, and
some tens of gradients are lost.

effects_fit.py finds the numbers of the law then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse.csgraph import connected_components

from ..bend import bend_rows
from ..composition import points_in_z, rows_into_x
from ..effects_table import (
    LARGEST,
    LEAST_EFFECTS,
    LEAST_GROUPS,
    LEAST_ROTATED,
    Effects,
    effects_rows,
    log_of_scales,
    slope_of_log,
)
from ..field_table import latents_and_heads, moved_beside_latents
from ..map_table import no_transport
from .coefficient_widths import ScaleOfEffects, coefficient_widths
from .effects_fit import (
    MOVE,
    OF_LOG_SCALE,
    RATES,
    GroupingFactor,
    Roles,
    are_stiff,
    blocks_at,
    blocks_at_all,
    changes_in_part,
    fit_effects,
    share_at,
    without_change,
)
from .head_bends import MOST_TO_MODE, climb, head_bends
from .probes import NOISE, Coupling, Evaluate, ScaledDensity, columns_among, two_columns

MOST_CANDIDATES = 40  # coordinates beside the effects
# Another variable may be a latent field if it has more entries than this share of the groups, and than these.
LATENT, FEW = 0.5, 15
MOST_GUESSES = 400
_CHANGES = 1e-5  # a candidate changes a block by more than this, beside its diagonal
_WRONG = 1e-3  # share of a change that a guess may leave unexplained
_MOSTLY = 0.3  # of a change of the data's precision, that one share for all effects of a group may leave
_NOT_ROUND = 1e-4  # a bound may be off by this share from a number with two digits
POWERS = 1.0, 0.5, -0.5  # of e, of log scales, log variances and log precisions
TURNS = 1.0, 0.5  # tanh(y) of Stan's correlation matrices, and 2 / (1 + e^-y) - 1 = tanh(y / 2) of a scalar
_LOOKS, _OFF = 5, 0.5  # that judge a law, and what scores in z may be off there, in root mean square
_REACH = 0.5  # of heads in a look
# Beside a field effects may be elsewhere than where it has been learned. A law that is so far off, in z, is
# fitted once more.
_OFF_MIDDLE = 0.1
# Change of what data tell, beside a common factor, that turns axes too much: 0.01 to 0.13 where data are
# counts or binary or have Student errors, 0.25 and more in processes.
_TURNS = 0.15
_FAR = 3.0  # spreads of draws, from which on heads are not where the law has been fitted


def may_have_effects(density: ScaledDensity, x: np.ndarray, variables: np.ndarray) -> bool:
    """Whether the largest variable may hold effects: by columns of the negative Hessian at `x` (d,).

    Each of its coordinates is tied to few others of the variable then, in contrast to a series.
    """
    counts = np.bincount(variables)
    own = np.flatnonzero(variables == counts.argmax())
    logp, here = density(x)
    if counts.max() < LEAST_GROUPS or not np.isfinite(logp):
        return False
    for place, column in two_columns(density, x, own, here):
        tied = np.abs(column[own]) > NOISE * abs(column[own[place]])
        if not np.isfinite(column).all() or np.count_nonzero(tied) > LARGEST:
            return False
    return True


def find_effects(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    coupling: Coupling,
    variables: np.ndarray,
    *,
    rotated: bool = False,
    beside: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of a map with the law of effects, and the scales (d,) of all coordinates in it; None if there
    are no such effects.

    `x` (d,) is in units, as `density` is; `density_in` gives the density in the coordinates of a map.
    `variables` (d,) are the numbers of the variables that coordinates belong to. Some may be `rotated`.

    The rows of a field may be in the map already, `beside` which effects are looked for: they come after
    those of effects. The law of effects is then given the latents of the field.
    """
    field = no_transport() if beside is None else beside
    latents, heads = latents_and_heads(field)
    own = factors_of(coupling, variables, LEAST_ROTATED if rotated else LEAST_EFFECTS, latents)
    if not own and beside is not None:  # there may be few effects; scales of several series look like these
        own = factors_of(coupling, variables, LEAST_GROUPS, np.union1d(latents, heads))
    known = _find_factors(density, x, own, latents, variables)
    if own and known is None and not rotated:
        divided = factors_of(coupling, variables, LEAST_EFFECTS, latents, columns=True)
        if [one.shape for one in divided] != [one.shape for one in own]:
            known = _find_factors(density, x, divided, latents, variables)
    if known is None:
        return None
    factors, others = known
    if rotated and _do_axes_change(density, x * density.unit, factors):
        return None
    seen = density, density_in, x * density.unit
    alone = [without_change(factors[0]), *factors[1:]] if changes_in_part(factors[0]) else factors
    found = _fit(*seen, alone, others, field, rotated)
    if found is None or alone is factors:
        return found
    better = _fit(*seen, factors, others, field, rotated)  # not exact, so that it may be refused
    return found if better is None else better


def _fit(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    factors: list[GroupingFactor],
    apart: np.ndarray,
    field: np.ndarray,
    rotated: bool,
) -> tuple[np.ndarray, np.ndarray] | None:
    """What `find_effects` returns, for `factors` beside the coordinates `apart` (k,), from `x` (d,)."""
    latents = latents_and_heads(field)[0]
    standard = np.concatenate([latents, *(factor.own.ravel() for factor in factors)])
    others, last = np.setdiff1d(np.arange(x.size), standard), False
    while True:
        found = fit_effects(density, x, factors, latents, rotated=rotated)
        if found is None:
            return None
        laws, x = found
        rows = np.concatenate((effects_rows(laws, 0), field))
        z = points_in_z(rows, x[None])[0]
        inner, middle, top = climb_beside(density, density_in(rows), z, standard)
        done = last or not (
            np.abs((middle - z) / density.unit)[others].max() > _FAR
            or (len(field) and _root_mean_square(inner(middle)[1][standard]) > _OFF_MIDDLE)
        )
        judged = _judge(density, inner, middle, top, laws, field, standard, apart) if done else None
        density.gradients += inner.gradients
        if done:
            return judged
        last = True  # once more, where the heads are
        x = point_in_x(rows, middle)


def climb_beside(
    density: ScaledDensity, evaluate: Evaluate, x: np.ndarray, own: np.ndarray
) -> tuple[ScaledDensity, np.ndarray, float]:
    """The density in the coordinates of a law, its mode (d,) where those of the law, `own` (n,), are 0, from
    the others at `x` (d,), and the log density there.
    """
    inner, others = ScaledDensity(evaluate, np.ones(x.size)), np.setdiff1d(np.arange(x.size), own)
    z = x.copy()
    z[own] = 0.0
    return inner, *climb(inner, z, others, np.diag(density.unit[others]), MOST_TO_MODE)


def point_in_x(rows: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The point x (d,) that a map makes of `z` (d,)."""
    points = z[None].copy()
    rows_into_x(rows, points, np.zeros(1))
    return np.asarray(points[0])


def factors_of(
    coupling: Coupling,
    variables: np.ndarray,
    least: int = LEAST_EFFECTS,
    latents: np.ndarray | None = None,
    *,
    columns: bool = False,
) -> list[np.ndarray]:
    """The effects (J, K) of the groups of each factor, the largest factor first.

    There are none if all factors together have fewer effects than `least`. Variables that have `latents` of a
    field are left out. With `columns` those of a matrix may be effects of one factor.

    The effects of a factor are one variable, or several of one size.
    """
    found: list[np.ndarray] = []
    counts = np.bincount(variables)
    if latents is not None:
        counts[variables[latents]] = 0
    single: list[np.ndarray] = []  # variables in which no coordinate is tied to another one
    for number in np.flatnonzero(counts >= LEAST_GROUPS):
        own = np.flatnonzero(variables == number)
        groups = _groups_of(coupling, own)
        if groups is None:
            continue
        if groups.shape[1] > 1:
            found.append(groups)
        else:
            single.append(own)
    if columns:
        apart = [_columns_beside(coupling, own, single) for own in single]
        scales = {len(one) for one in apart if len(one) > 1}  # there are as many of these as columns
        single = [own for one in apart for own in one if len(own) not in scales]
    while single:
        together = [single.pop(0)]
        for own in single[:]:
            if len(own) == len(together[0]) and _are_partners(coupling, together[0], own):
                together.append(own)
                single = [one for one in single if one is not own]
        if len(together) <= LARGEST:
            found.append(np.column_stack(together))
    found.sort(key=lambda own: -own.size)
    return found if sum(own.size for own in found) >= least else []


def _groups_of(coupling: Coupling, own: np.ndarray) -> np.ndarray | None:
    """The effects (J, K) of a variable with the coordinates `own` (n,), whose groups are not tied."""
    part_of = connected_components(coupling.pattern[own][:, own], directed=False)[1]
    sizes = np.bincount(part_of)
    k = int(sizes.max())
    if k > LARGEST or len(own) % k or len(own) < LEAST_GROUPS * k:
        return None
    places = np.arange(len(own))
    for layout in (places.reshape(-1, k), places.reshape(k, -1).T):  # an array of vectors, or a matrix
        group = np.empty(len(own), np.int64)
        group[layout] = np.arange(len(layout))[:, None]
        lowest, highest = np.full(len(sizes), len(own)), np.full(len(sizes), -1)
        np.minimum.at(lowest, part_of, group)
        np.maximum.at(highest, part_of, group)
        if np.array_equal(lowest, highest):
            return np.asarray(own[layout])
    return None


def _columns_beside(coupling: Coupling, own: np.ndarray, single: list[np.ndarray]) -> list[np.ndarray]:
    """The columns of a matrix with the coordinates `own` (n,), if each is tied to one of the `single`
    variables as effects of one factor are, such as those of testlets to a person's; else all of them as one.
    """
    for one in single:
        if len(own) > len(one) and len(own) % len(one) == 0:
            for columns in (own.reshape(-1, len(one)), own.reshape(len(one), -1).T):
                if all(_are_partners(coupling, one, column) for column in columns):
                    return list(columns)
    return [own]


def _are_partners(coupling: Coupling, first: np.ndarray, second: np.ndarray) -> bool:
    """Whether coordinates of two variables of one size are tied where they have one index, and only there."""
    between = coupling.pattern[first][:, second].tocoo()
    return bool(between.nnz and np.array_equal(between.row, between.col))


def _find_factors(
    density: ScaledDensity,
    x: np.ndarray,
    own: list[np.ndarray],
    latents: np.ndarray,
    variables: np.ndarray,
) -> tuple[list[GroupingFactor], np.ndarray] | None:
    """The factors `own` around `x` (d,), in units, with their roles, and all coordinates beside effects and
    `latents`; None if these are too many, or nothing says their roles.
    """
    if not own:
        return None
    known = _find_roles_among(density, x, own, latents, variables)
    effects = own[:1] + [one for one in own[1:] if not _may_be_heads(one, own[0].shape[1])]
    if known is None and len(effects) < len(own):
        known = _find_roles_among(density, x, effects, latents, variables)
    return known


def _may_be_heads(own: np.ndarray, k: int) -> bool:
    """Whether what passes for effects `own` (J, m) may be scales or correlations of `k` effects."""
    return own.size // own.shape[1] in (k, k * (k - 1) // 2)


def _find_roles_among(
    density: ScaledDensity,
    x: np.ndarray,
    own: list[np.ndarray],
    latents: np.ndarray,
    variables: np.ndarray,
) -> tuple[list[GroupingFactor], np.ndarray] | None:
    """What `_find_factors` returns, where no others than `own` are factors."""
    others = np.setdiff1d(np.arange(x.size), np.concatenate([latents, *(one.ravel() for one in own)]))
    if not 0 < len(others) <= MOST_CANDIDATES:
        return None
    if np.bincount(variables[others]).max() > max(LATENT * len(own[0]), FEW):
        return None
    factors = _find_roles(density, x * density.unit, own, others, variables)
    return None if factors is None else (factors, others)


def _find_roles(
    density: ScaledDensity, x: np.ndarray, own: list[np.ndarray], others: np.ndarray, variables: np.ndarray
) -> list[GroupingFactor] | None:
    """The factors with their roles, those that have some; None if the largest has none.

    Where programs are not centred, D changes with the scales of all effects but where these are 0. There the
    scale of errors, with a unit, could pass for that of effects in a centred program. So such are last.
    """
    roles: dict[int, GroupingFactor] = {}
    for centred, has_units in ((True, False), (False, False), (True, True)):
        start = x.copy()
        left = {number: one for number, one in enumerate(own) if number not in roles}
        if not centred:
            start[np.concatenate([one.ravel() for one in left.values()])] = 0.0
        roles |= _find_roles_at(density, start, left, others, variables, centred, has_units)
        if len(roles) == len(own):
            break
    return [roles[number] for number in sorted(roles)] if 0 in roles else None


def _find_roles_at(
    density: ScaledDensity,
    x: np.ndarray,
    own: dict[int, np.ndarray],
    others: np.ndarray,
    variables: np.ndarray,
    centred: bool,
    has_units: bool,
) -> dict[int, GroupingFactor]:
    """The factors `own`, by their numbers, for which a guess is right; the coordinates at `x` (d,) move."""
    ends = [(k, sign) for k in others for sign in (-1.0, 1.0)]
    points = np.tile(x, (len(ends), 1))
    for point, (k, sign) in zip(points, ends, strict=True):
        point[k] += sign * MOVE
    found = {}
    for number, one in own.items():
        here = blocks_at(density, one, x)
        if not np.isfinite(here).all():
            continue
        size = np.sqrt(np.abs(np.diagonal(here, axis1=1, axis2=2)))
        size = size[:, :, None] * size[:, None, :] + 1e-300
        moved: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        blocks = blocks_at_all(density, one, points)
        for (k, _), point, block in zip(ends, points, blocks, strict=True):
            if not np.abs(block - here).max() <= _CHANGES * size.max():
                moved.setdefault(int(k), []).append((point, block))
        guesses = _guesses(np.array(sorted(moved), np.int64), variables, here.shape[1], centred, has_units)
        guess = _right_guess(x, here, size, moved, guesses, has_units)
        if guess is not None:
            found[number] = GroupingFactor(one, *guess)
    return found


def _right_guess(
    x: np.ndarray,
    here: np.ndarray,
    size: np.ndarray,
    moved: dict[int, list[tuple[np.ndarray, np.ndarray]]],
    guesses: Iterator[Roles],
    has_units: bool,
) -> tuple[Roles, np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """The guess that is right, the coordinates with which the data's precision changes, their rates, whether
    these are of scales with an upper bound, and the shares (J,) of it that change.

    `here` (J, K, K) are the blocks at `x` (d,), and `size` their size; `moved` has other points and blocks.
    Where each group has as many data as any other, a scale of effects and that of errors, over the root of a
    number, can change places. If both have units, the one with the larger unit is that of the effects.
    """

    held = np.zeros(len(here), bool)

    def log_ratio(end: np.ndarray, k: int, bounded: bool) -> float:
        """Of the scale `k` at the end of a move."""
        return float(np.diff(log_of_scales(bounded, np.array([x[k], end[k]])))[0])

    def explains(roles: Roles, data: np.ndarray, k: int, rate: float = 0.0, bounded: bool = False) -> bool:
        """Whether a guess says how blocks change when `k` moves: as scales of effects do, or with a rate, but
        for those that are held.
        """
        for end, block in moved[k]:
            factor = np.exp(rate * log_ratio(end, k, bounded))
            left = ((roles.blocks(end, factor * data) - block) / size)[~held]
            change = ((block - here) / size)[~held]
            if not np.linalg.norm(left) <= _WRONG * np.linalg.norm(change):
                return False
        return True

    right: list[Roles] = []
    for guess in guesses:
        has_unit = has_units or (guess.bounded and guess.centred)
        roles = _with_units(guess, x, here, moved) if has_unit else guess
        if roles is None:
            continue
        data = roles.data(x, here)
        if all(k in moved and explains(roles, data, int(k)) for k in (*roles.scales, *roles.angles)):
            right.append(roles)
            if not (roles.bounded or has_unit):
                break
    if not right:
        return None
    roles = max(right, key=lambda one: float(one.log_units.sum()))
    data, heads = roles.data(x, here), {*roles.scales, *roles.angles}
    forms = [
        (k, rate, bounded) for k in moved if k not in heads for rate in RATES for bounded in (False, True)
    ]

    def find_rates() -> dict[int, tuple[float, bool]]:
        return {
            k: (rate, bounded) for k, rate, bounded in forms[::-1] if explains(roles, data, k, rate, bounded)
        }

    known = find_rates()
    if not known and are_stiff(here).any():
        held = are_stiff(here)
        known = find_rates()
    alike = np.ones(here.shape[1])
    changes = [(k, rate * alike, bounded) for k, (rate, bounded) in known.items()]
    shares = np.where(held, 0.0, 1.0)
    if not held.any() and all(rate != OF_LOG_SCALE for rate, _ in known.values()):
        of_errors = [
            (k, bounded, [(log_ratio(end, k, bounded), roles.data(end, block)) for end, block in moved[k]])
            for k, rate, bounded in forms
            if rate == OF_LOG_SCALE
        ]
        told = [(k, _effects_told_by(data, ends), bounded) for k, bounded, ends in of_errors]
        apart = [(k, OF_LOG_SCALE * effects, bounded) for k, effects, bounded in told if effects is not None]
        changes += apart
        for k, bounded, ends in of_errors if not apart else []:
            part = _share(roles.root(x), data, ends)
            if part is not None:
                changes = [(k, OF_LOG_SCALE * alike, bounded)]
                shares = share_at(-float(log_of_scales(bounded, x[[k]])[0]), part)
                break
    changing = np.array([k for k, _, _ in changes], np.int64)
    rates = np.array([rates for _, rates, _ in changes]).reshape(len(changes), len(alike))
    return roles, changing, rates, np.array([bounded for _, _, bounded in changes], bool), shares


def _effects_told_by(data: np.ndarray, ends: list[tuple[float, np.ndarray]]) -> np.ndarray | None:
    """1 for the effects (K,) that data with errors of one scale tell, and 0 for those that others tell, where
    there are some of both; else None. Such are effects in two outcomes, with errors of their own.

    `ends` are log ratios of the scale, and the data's precision there, which is `data` (J, K, K) elsewhere.
    """
    found = None
    for log_ratio, there in ends:
        log_f = OF_LOG_SCALE * log_ratio
        sizes, those = (np.abs(np.diagonal(one, axis1=1, axis2=2)).sum(axis=0) for one in (data, there))
        if not (np.all(sizes > 0.0) and np.all(those > 0.0)):
            return None
        found = np.where(np.log(those / sizes) / log_f > 0.5, 1.0, 0.0)
        roots = np.exp(0.5 * log_f * found)
        left = roots[:, None] * data * roots - there
        if not np.linalg.norm(left) <= _WRONG * np.linalg.norm(there - data):
            return None
    return found if found is not None and 0.0 < found.mean() < 1.0 else None


def _share(root: np.ndarray, data: np.ndarray, ends: list[tuple[float, np.ndarray]]) -> np.ndarray | None:
    """The shares (J,) of the data's precision that change with a scale of errors; None if it is none.

    Where effects are in several likelihoods, of measurements and of events say, D = A / sigma² + B. Then A is
    the same from either end of a move, and the shares are those of A in D, in the prior's scales of effects,
    whose covariance has the `root` (K, K). `data` and `ends` as `_effects_told_by` has them.
    """
    parts = []
    for log_ratio, there in ends:
        parts.append(root.T @ (there - data) @ root / np.expm1(OF_LOG_SCALE * log_ratio))
    if len(parts) < 2 or not np.linalg.norm(parts[1] - parts[0]) <= _WRONG * np.linalg.norm(parts[0]):
        return None
    changing, whole = parts[0], root.T @ data @ root
    sizes = (np.trace(one, axis1=1, axis2=2) for one in (changing, whole))
    shares = np.array(
        [np.clip(part / of, 0.0, 1.0) if of > 0.0 else 1.0 for part, of in zip(*sizes, strict=True)]
    )
    left = changing - shares[:, None, None] * whole
    return None if np.linalg.norm(left) > _MOSTLY * np.linalg.norm(changing) else shares


def _with_units(
    roles: Roles, x: np.ndarray, here: np.ndarray, moved: dict[int, list[tuple[np.ndarray, np.ndarray]]]
) -> Roles | None:
    """A guess with the units of its scales, by which the prior's part of the blocks changes.

    Such a unit is an upper bound, or a number that a scale is multiplied with, such as the one that makes up
    for a sum of effects that is 0. None if bounds are no round numbers, as what people write is.
    """
    units, prior = np.ones(len(roles.scales)), roles.prior(x)
    for i, k in enumerate(roles.scales):
        for end, block in moved.get(int(k), [])[:1]:
            change = np.mean((block - here)[:, i, i]) / (roles.prior(end) - prior)[i, i]
            units[i] = change**-0.5 if change > 0.0 else np.nan
    if not np.isfinite(units).all():
        return None
    if roles.bounded:
        round_ones = np.array([float(f"{unit:.1e}") for unit in units])
        if np.abs(units / round_ones - 1.0).max() > _NOT_ROUND:
            return None
        units = round_ones
    return roles._replace(log_units=np.log(units))


def _guesses(
    candidates: np.ndarray, variables: np.ndarray, k: int, centred: bool, has_units: bool
) -> Iterator[Roles]:
    """The guesses at the roles of coordinates that change blocks.

    Scales with upper bounds have them as units, where programs are centred; or all scales have some if it
    `has_units`. These are not known yet.
    """
    whole = [candidates[variables[candidates] == number] for number in np.unique(variables[candidates])]
    whole = [own for own in whole if len(own) == np.count_nonzero(variables == variables[own[0]])]
    scalars = [own[0] for own in whole if len(own) == 1]
    n_angles = k * (k - 1) // 2
    runs = np.lib.stride_tricks.sliding_window_view(candidates, k) if len(candidates) >= k else candidates[:0]
    of_scales = [own for own in runs if len(set(variables[own])) == 1 and own[-1] - own[0] == k - 1]
    of_scales += [np.array(chosen) for chosen in itertools.permutations(scalars, k)]
    of_scales += [np.append(one, own) for one in scalars for own in whole if k > 2 and len(own) == k - 1]
    of_angles = [own for own in whole if len(own) == n_angles] + [np.zeros(0, np.int64)]
    rows, columns = np.tril_indices(k, -1)
    by_columns = np.lexsort((rows, columns))  # Stan's correlation matrices have their numbers in this order
    orders = [np.arange(n_angles)]
    if n_angles > 1:
        orders.append(np.argsort(by_columns))
    bounds = (False,) if has_units else (False, True)
    guesses = itertools.product(bounds, POWERS, of_scales, of_angles, TURNS, orders)
    none = np.zeros(k)
    for bounded, power, scales, angles, turn, order in itertools.islice(guesses, MOST_GUESSES):
        if np.intersect1d(scales, angles).size:
            continue
        if not len(angles):
            if turn == TURNS[0] and order is orders[0]:
                yield Roles(scales, angles, turn, power, centred, bounded, none)
        else:
            yield Roles(scales, angles[order], turn, power, centred, bounded, none)


def _do_axes_change(density: ScaledDensity, x: np.ndarray, factors: list[GroupingFactor]) -> bool:
    """Whether what data tell of single effects changes much with coordinates whose role is not known, beside
    a factor that is common to all of them.

    Axes of effects are then not the same everywhere: those of a process turn with its length scale. The scale
    of errors turns none. Nor does anything turn the axis of a sum that is held at 0, far stiffer than all
    others.
    """
    known = [(factor.own.ravel(), factor.roles.scales, factor.changing) for factor in factors]
    rest = np.setdiff1d(np.arange(x.size), np.concatenate([np.concatenate(one) for one in known]))
    for factor in (factor for factor in factors if factor.own.shape[1] == 1):
        size, prior = blocks_at(density, factor.own, x), factor.roles.prior(x)
        weak = ~are_stiff(size)
        here = ((size - prior) / size).ravel()[weak]
        for k in rest:
            for sign in (-1.0, 1.0):
                there = x.copy()
                there[k] += sign * density.unit[k]
                moved = ((blocks_at(density, factor.own, there) - prior) / size).ravel()[weak]
                common = (moved @ here) / (here @ here)
                if not np.sqrt(np.mean(np.square(moved - common * here))) < _TURNS:
                    return True
    return False


def _judge(
    density: ScaledDensity,
    inner: ScaledDensity,
    z: np.ndarray,
    top: float,
    laws: list[Effects],
    field: np.ndarray,
    standard: np.ndarray,
    apart: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of the law, with bends of its heads and widths of coefficients, and the scales (d,) of all
    coordinates, if the law makes effects standard normal; the arguments are those of `judge_law`.

    The coordinates `standard` (m,) are effects, and latents of a `field` that is in the map already. It does
    not know coefficients, which compete with the level of a series. So their widths are left as they are.
    Coefficients are among the coordinates `apart` (k,): those that might have been effects may be turned.
    """
    own = np.concatenate([law.own.ravel() for law in laws])
    heads = np.setdiff1d(np.concatenate([law.heads for law in laws]), moved_beside_latents(field))
    judged = judge_law(density, inner, z, top, own, heads, latents=np.setdiff1d(standard, own))
    if judged is None:
        return None
    bends, scale, hessian = judged
    widths = no_transport()
    if not len(field):
        others = np.setdiff1d(np.arange(z.size), own)
        coefficients = np.setdiff1d(apart, heads)
        scales = {
            int(k): law.power * slope_of_log(law.bounded, z[k])
            for law in laws
            for k in law.heads[: law.own.shape[1]]
        }
        of_effects = [ScaleOfEffects(*one) for one in sorted(scales.items())]
        widths = coefficient_widths(inner, z, density.unit, hessian, others, coefficients, of_effects)
    gradients = density.gradients + inner.gradients
    x = point_in_x(field, z)
    rows = effects_rows([law._replace(middle=x[law.heads]) for law in laws], gradients)
    return np.concatenate((rows, field, bends, widths)), scale


def judge_law(
    density: ScaledDensity,
    inner: ScaledDensity,
    z: np.ndarray,
    top: float,
    own: np.ndarray,
    heads: np.ndarray,
    *,
    latents: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The rows of the bends of `heads` (h,), log scales and the like, the scales (d,) of all coordinates, and
    the negative Hessian (k, k) of those that have no law, if this one makes the coordinates `own` (n,)
    standard normal; else None.

    `inner` is the density in the coordinates of the law, and has its mode with `own` at 0, `top`, at `z`.
    `latents` (m,) have a law of their own there, and are at 0, too.
    """
    latents = np.zeros(0, np.int64) if latents is None else latents
    others = np.setdiff1d(np.arange(z.size), np.concatenate((own, latents)))
    scale = density.unit.copy()
    scale[own] = scale[latents] = 1.0
    unit, columns = density.unit[others], columns_among(inner, z, density.unit, others)
    curved = np.diag(columns) > 0.0
    scale[others[curved]] = np.sqrt(unit[curved] / np.diag(columns)[curved])
    rng = np.random.default_rng(6)  # no random numbers of the chain
    if not how_far_off_normal(inner, z, scale, rng, own, latents) < _OFF:
        return None
    hessian = np.where(curved[:, None], columns / unit[:, None], np.nan)
    hessian = 0.5 * (hessian + hessian.T)
    bends = head_bends(inner, z, top, others, hessian, heads)
    for bend, deviation in bends:
        scale[bend.place] = deviation
    return bend_rows([bend for bend, _ in bends], apart=True), scale, hessian


def how_far_off_normal(
    inner: ScaledDensity,
    z: np.ndarray,
    scale: np.ndarray,
    rng: np.random.Generator,
    own: np.ndarray,
    latents: np.ndarray,
    judged: np.ndarray | None = None,
) -> float:
    """How far scores of the coordinates `judged` (k,), or `own` (n,), are off those of a standard normal law,
    in root mean square: the median of some looks around `z` (d,).

    In each `own` and `latents` (m,) are standard normal, and all others are near: they move by as much as
    their `scale` (d,), but not far.
    """
    judged = own if judged is None else judged
    others = np.setdiff1d(np.arange(z.size), np.concatenate((own, latents)))
    off = []
    for _ in range(_LOOKS):
        there = z.copy()
        there[own] = rng.standard_normal(len(own))
        there[others] += rng.standard_normal(len(others)) * np.minimum(scale[others], _REACH)
        there[latents] = rng.standard_normal(len(latents))
        logp, score = inner(there)
        left = score[judged] + there[judged]
        off.append(_root_mean_square(left) if np.isfinite(logp) else np.inf)
    return float(np.median(off))


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
