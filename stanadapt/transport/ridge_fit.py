"""The terms and numbers of one ridge, and whether it is worth having: what ridge_learning.py calls for each
coordinate that may have one. That file says by which equations. `parts` are what `undone_parts` returns.
"""

from __future__ import annotations

import functools

import numpy as np

from .ridge_pursuit import choose_terms
from .ridge_terms import Atoms, Ridge, RidgeDraws, make_atoms, undone_parts
from .shape import orthonormal

# A ridge is exact if it leaves less than this share of the variance of scores, and less than that share of
# what is left without its terms of second order. Rounding leaves less; but draws that lie close to each other
# make every smooth score nearly linear, and what is left of it nearly of second order. Where draws are wider
# than those that it was fitted to, errors of rounding are larger: then it is fitted again, or stays.
EXACT, BRINGS, STAYS = 1e-14, 1e-10, 1e-8
# In the draws, terms of second order must move a coordinate by this share of the variance of its noise. An
# exact ridge may be found on the way to places where they move it more.
BENT, EXACTLY_BENT = 0.02, 1e-3
# A ridge that is not exact must decrease F by this on the newer half of the draws, and on all. A smaller
# gain is enough if the ridge holds outside: in this share of the draws, whose parents are farthest from
# their means, it must leave no more than that share of the score's variance. If not, chains would crawl in
# the tails.
MARGIN, LEAST_GAIN = 0.3, 0.12
OUTER, LEFT_OUTSIDE = 1.0 / 6.0, 0.1
# It must leave no more than this, or than this share of F. If it leaves more, c is far from second order;
# steps that suit the middle would then be too long where the ridge turns, and draws would lack its ends in
# silence.
LEFT, LEFT_SHARE = 0.6, 1.0 / 6.0
STILL = 1.5  # a ridge in use may leave more by this factor
SETTLED = 0.02  # it keeps its numbers if another fit decreases F by less than this
MOST_TERMS = 10  # that are chosen,
MOST_ROWS = 40  # and that a ridge has; linear terms may be many
BEYOND = 1.0  # standard deviations between the farthest draw of a parent and its reach
SPARE = 4  # a regression needs so many draws more than it has terms
_JUDGES = 15  # fewest draws of a window that judge a ridge
DEPENDENT = 1e-10  # a column depends on others if they leave less than this share of its square


def is_overdetermined(atoms: Atoms) -> bool:
    """Whether there are draws enough for a regression on all linear terms."""
    return len(atoms.columns) >= 2 * atoms.n_linear + 20


def pursue(
    draws: RidgeDraws, child: int, atoms: Atoms, free: np.ndarray, *, exact: bool
) -> np.ndarray | None:
    """The places (t,) in `atoms` of the terms of the location of `child`, in the order of the choice.

    If draws are enough, all linear terms are among them from the start. With `exact` the result is None if
    the terms do not explain the score wholly.
    """
    n, is_regular = len(draws.points), is_overdetermined(atoms)
    pair = np.stack((draws.points[:, child], draws.scores[:, child]))
    pair -= pair.mean(axis=1, keepdims=True)
    total = pair[1] @ pair[1]
    columns, sizes = atoms.columns, atoms.sizes
    usable = (atoms.firsts != child) & (atoms.seconds != child) & free[atoms.firsts]
    usable &= free[atoms.seconds] | (atoms.seconds < 0)
    started: list[int] = []
    if is_regular:
        started = np.flatnonzero(usable & (atoms.seconds < 0)).tolist()
        usable[: atoms.n_linear] = False
    basis = np.ascontiguousarray(orthonormal(columns[:, started]).T) if started else np.empty((0, n))
    left = sizes - np.square(basis @ columns).sum(axis=0)
    pair -= (pair @ basis.T) @ basis
    more = np.empty(max(min(MOST_TERMS, (n - len(started)) // 2 - SPARE), 0), np.int64)
    terms, least = np.ascontiguousarray(columns.T), DEPENDENT * sizes
    asked = float(total), EXACT, not is_regular, exact
    count, wholly = choose_terms(terms, basis, pair, left, least, usable, more, *asked)
    return None if exact and not wholly else np.array([*started, *more[:count].tolist()], np.int64)


def _regress(draws: RidgeDraws, child: int, columns: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Coefficients (1 + t,) of x_j and of columns (n, t) in the score; what is left of it; and its total."""
    own = draws.points[:, child]
    basis = np.concatenate(((own - own.mean())[:, None], columns - columns.mean(axis=0)), axis=1)
    sizes = np.linalg.norm(basis, axis=0)
    y = draws.scores[:, child] - draws.scores[:, child].mean()
    found = np.linalg.lstsq(basis / sizes, y, rcond=None)[0]
    rest = y - basis @ (found / sizes)
    return found / sizes, float(rest @ rest), float(y @ y)


def exact_ridge(
    draws: RidgeDraws, child: int, atoms: Atoms, free: np.ndarray, pair: tuple[int, int] | None
) -> Ridge | None:
    """The ridge of `child` that explains its score wholly, if there is one. A `pair` names its parents."""
    if pair is None:
        chosen = pursue(draws, child, atoms, free, exact=True)
    elif not free[list(pair)].all():
        return None
    else:
        of = np.array(pair)
        chosen = np.flatnonzero(np.isin(atoms.firsts, of) & np.isin(atoms.seconds, (-1, *pair)))
    if chosen is None or not (atoms.seconds[chosen] >= 0).any():
        return None
    chosen = _without_idle(draws, child, atoms, chosen)
    bent = atoms.seconds[chosen] >= 0
    if len(draws.points) < len(chosen) + 2 + SPARE:
        return None
    coefficients, rest, total = _regress(draws, child, atoms.columns[:, chosen])
    _, without, _ = _regress(draws, child, atoms.columns[:, chosen[~bent]])
    if not (0 < bent.sum() <= len(bent) <= MOST_ROWS and rest <= EXACT * total and rest <= BRINGS * without):
        return None
    ridge = _make(draws, child, atoms, chosen, coefficients, exact=True)
    return ridge if _is_bent(ridge, undone_parts(draws, ridge), coefficients[0]) else None


def _without_idle(draws: RidgeDraws, child: int, atoms: Atoms, chosen: np.ndarray) -> np.ndarray:
    """The terms without those that bring nothing to the score."""
    coefficients, _, total = _regress(draws, child, atoms.columns[:, chosen])
    own = draws.points[:, child] - draws.points[:, child].mean()
    basis = np.concatenate((own[:, None], atoms.columns[:, chosen]), axis=1)
    sizes = np.linalg.norm(basis, axis=0)
    try:
        inverse = np.linalg.inv(np.linalg.qr(basis / sizes, mode="r"))
    except np.linalg.LinAlgError:
        return chosen
    brought = np.square(coefficients * sizes) / np.square(inverse).sum(axis=1)
    return np.asarray(chosen[brought[1:] > EXACT * total])


def _is_bent(ridge: Ridge, parts: np.ndarray, slope: float) -> bool:
    """Whether the terms of second order move the coordinate, whose score has a `slope` in it, much enough."""
    least = EXACTLY_BENT if ridge.is_exact else BENT
    straight, bent = parts[:, 0, -1]
    return slope < 0.0 and bool(-slope * (straight - bent).var() > least)


def _make(
    draws: RidgeDraws, child: int, atoms: Atoms, chosen: np.ndarray, coefficients: np.ndarray, *, exact: bool
) -> Ridge:
    """The ridge of these terms, from their coefficients in the score."""
    firsts, seconds = atoms.firsts[chosen], atoms.seconds[chosen]
    linear = seconds < 0
    others = np.where(linear, firsts, seconds)
    units = atoms.scales[firsts] * np.where(linear, 1.0, atoms.scales[others])
    strengths = -coefficients[1:] / coefficients[0]
    order = np.lexsort((-np.abs(strengths), linear))
    centers = np.column_stack((atoms.centers[firsts], atoms.centers[others]))
    if exact:
        reaches = np.full(centers.shape, np.inf)
    else:
        far = np.abs(draws.points - atoms.centers).max(axis=0) + BEYOND * atoms.scales
        reaches = np.column_stack((far[firsts], far[others]))
    numbers = firsts, seconds, strengths / units, centers, reaches
    return Ridge(child, *(values[order] for values in numbers))


def left_share(ridge: Ridge, draws: RidgeDraws) -> float:
    """The share of the child's score that is left after a regression on its distance from the location."""
    rest, s = _left_of_score(undone_parts(draws, ridge)[1])
    return float(rest @ rest / (s @ s))


def _left_of_score(undone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a regression on the last coordinate leaves of its score (n,), and the whole score (n,).

    `undone` (2, k, n) are draws and scores.
    """
    z, s = undone[:, -1] - undone[:, -1].mean(axis=1, keepdims=True)
    return s - z * (z @ s) / (z @ z), s


class Trials:
    """Fits of ridges that are not exact, to the older half of the draws and to all."""

    def __init__(self, draws: RidgeDraws, free: np.ndarray, atoms: Atoms | None = None) -> None:
        """Terms are those of the coordinates that are `free`; later draws may have fewer of them.

        `atoms` are these terms in all draws, where they are known.
        """
        self._half = slice(0, len(draws.points) // 2)
        self._rest = slice(len(draws.points) // 2, None)
        self._first, self._known = (draws, np.flatnonzero(free)), atoms

    @functools.cached_property
    def _older(self) -> Atoms:
        draws, free = self._first
        return make_atoms(draws.part(self._half), free)

    @functools.cached_property
    def _all(self) -> Atoms:
        return make_atoms(*self._first) if self._known is None else self._known

    def ridge(self, draws: RidgeDraws, child: int, free: np.ndarray) -> Ridge | None:
        """The ridge of `child` that decreases F on draws that it was not fitted to, if there is one."""
        trial = _fit(draws.part(self._half), child, self._older, free)
        if trial is None:
            return None
        newer = undone_parts(draws.part(self._rest), trial)
        if not _is_good(newer, LEAST_GAIN, 1.0):
            return None
        ridge = _fit(draws, child, self._all, free)
        if ridge is None or not ridge.bent_terms() & trial.bent_terms():
            return None
        parts = undone_parts(draws, ridge)
        gain = min(_gain(newer), _gain(parts))
        return ridge if gain > MARGIN or (gain > LEAST_GAIN and _holds_outside(parts)) else None


def _fit(draws: RidgeDraws, child: int, atoms: Atoms, free: np.ndarray) -> Ridge | None:
    chosen = pursue(draws, child, atoms, free, exact=False)
    return None if chosen is None else _with_numbers(draws, child, atoms, chosen)


def _with_numbers(draws: RidgeDraws, child: int, atoms: Atoms, chosen: np.ndarray) -> Ridge | None:
    """The ridge of the terms of second order and of the linear terms of their parents.

    Its numbers are those of a regression of scores, or of draws where F is smaller with these.
    """
    bent = chosen[atoms.seconds[chosen] >= 0]
    if not len(bent):
        return None
    is_parent = np.zeros(len(atoms.centers), bool)
    is_parent[atoms.firsts[bent]] = is_parent[atoms.seconds[bent]] = True
    is_term = (atoms.seconds < 0) & is_parent[atoms.firsts]
    is_term[bent] = True
    chosen = np.flatnonzero(is_term)
    if len(draws.points) < len(chosen) + 2 + SPARE:
        return None
    by_scores, rest, total = _regress(draws, child, atoms.columns[:, chosen])
    if rest <= EXACT * total and by_scores[0] < 0.0:
        ridge = _make(draws, child, atoms, chosen, by_scores, exact=True)
        return ridge if _is_bent(ridge, undone_parts(draws, ridge), by_scores[0]) else None
    if not by_scores[0] < 0.0:
        return None
    by_draws = np.linalg.lstsq(atoms.columns[:, chosen], draws.points[:, child], rcond=None)[0]
    found = [
        _make(draws, child, atoms, chosen, coefficients, exact=False)
        for coefficients in (by_scores, np.concatenate(([-1.0], by_draws)))
    ]
    parts = [undone_parts(draws, ridge) for ridge in found]
    best = int(np.argmax([_gain(part) for part in parts]))
    return found[best] if _is_bent(found[best], parts[best], by_scores[0]) else None


def judge(ridge: Ridge, draws: RidgeDraws, before: int) -> Ridge | None:
    """A ridge in use, with better numbers if there are any; None if draws are better off without it."""
    newest = draws.part(slice(before, None))
    if ridge.is_exact and left_share(ridge, draws) <= STAYS:
        return ridge
    if len(newest.points) >= _JUDGES and not _is_good(undone_parts(newest, ridge), 0.0, STILL):
        return None
    parents = np.unique(np.concatenate((ridge.firsts, ridge.seconds[ridge.seconds >= 0])))
    atoms, terms = make_atoms(draws, parents), ridge.terms()
    named = zip(atoms.firsts.tolist(), atoms.seconds.tolist(), strict=True)
    again = _with_numbers(draws, ridge.child, atoms, np.flatnonzero([one in terms for one in named]))
    if again is None:
        return ridge
    more = _gain(undone_parts(draws, again)) - _gain(undone_parts(draws, ridge))
    return again if more > SETTLED else ridge


def _is_good(parts: np.ndarray, margin: float, factor: float) -> bool:
    """Whether a ridge decreases F by more than `margin`, and leaves little of it."""
    before, after = _before_and_after(parts)
    return bool(before - after > margin and after < factor * max(LEFT, LEFT_SHARE * before))


def _gain(parts: np.ndarray) -> float:
    """The decrease of F by a ridge."""
    before, after = _before_and_after(parts)
    return before - after if np.isfinite(before - after) else -np.inf


def _before_and_after(parts: np.ndarray) -> tuple[float, float]:
    """F with the linear terms of a ridge undone alone, and with all of it."""
    away = parts - parts.mean(axis=3, keepdims=True)
    covs = away @ away.transpose(0, 1, 3, 2) / (parts.shape[3] - 1)
    before, after = 0.5 * np.linalg.slogdet(covs)[1].sum(axis=1)
    return float(before), float(after)


def _holds_outside(parts: np.ndarray) -> bool:
    """Whether a ridge explains the score of its coordinate where its parents are farthest out, too."""
    rest, s = _left_of_score(parts[1])
    parents = parts[1, 0, :-1]
    away = np.abs(parents - parents.mean(axis=1, keepdims=True)) / parents.std(axis=1, keepdims=True)
    farthest = away.max(axis=0)
    outer = farthest >= np.quantile(farthest, 1.0 - OUTER)
    return bool(np.square(rest[outer]).mean() <= LEFT_OUTSIDE * s.var())
