"""Learning ridges from draws and scores: which coordinates and parents, and the numbers of locations.

A draw is random, but its score is exact. If x_j is normal around c(x) given all other coordinates, its score
is

    s_j = -(x_j - c(x)) / sigma²,

a polynomial of second order that is linear in x_j. So a regression of s_j on 1, x_j and the terms of c gives
c, wherever the draws are and however few. The terms are chosen one after another, those first that explain
most of what is left (orthogonal matching pursuit: Pati, Rezaiifar and Krishnaprasad, 1993): coordinates,
their squares, and products of two. The coefficient of a term, over minus that of x_j, is its coefficient in
c. Two cases differ:

Exact. The regression leaves nothing of s_j. Chance does not do that, so 15 draws are enough, which may come
from a chain that is on its way. Then c is right everywhere, and z_j is a normal variable that is independent
of all other coordinates.

Not exact: the noise is not normal, or c is not of second order. Terms are chosen and fitted on the older half
of the draws and judged on the newer half, by the divergence

    F = (log |V(z)| + log |V(s_z)|) / 2,

with the covariance matrices of x_j and the parents, and of their scores, and kept if it leaves little of F.
F is 0 for a normal law, and no linear map changes it: the metric learns what is linear. (It is not quite 0 if
other coordinates correlate with these, but this part is the same with and without the ridge.)

A coordinate is looked at only if a single term of second order explains much of what x_j, or all coordinates
if there are draws enough, leave of its score. That takes O(n d²) for n draws of d coordinates and their
squares. Products of two, d²/2 of them, are tried for at most `LARGEST_PAIRED` coordinates.

When a ridge is found, it is undone in the draws and their scores, and the search goes on. So a chain of
ridges, in which a parent is a child itself, is found from its last child on.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from .shape import orthonormal
from .training import Training

EARLIEST = 15  # fewest draws that show an exact ridge,
LEAST = 45  # and any other
# A ridge is exact if it leaves less than this share of the variance of scores, and less than that share of
# what is left without its terms of second order. Rounding leaves less; but draws that lie close to each other
# make every smooth score nearly linear, and what is left of it nearly of second order. Where draws are wider
# than those that it was fitted to, errors of rounding are larger: then it is fitted again, or stays.
EXACT, BRINGS, STAYS = 1e-14, 1e-10, 1e-8
# In the draws, terms of second order must move a coordinate by this share of the variance of its noise. An
# exact ridge may be found on the way to places where they move it more.
BENT, EXACTLY_BENT = 0.02, 1e-3
MARGIN = 0.3  # a ridge that is not exact must decrease F by this on the newer half of the draws, and on all
# It must leave no more than this, or than this share of F. If it leaves more, c is far from second order;
# steps that suit the middle would then be too long where the ridge turns, and draws would lack its ends in
# silence.
LEFT, LEFT_SHARE = 0.6, 1.0 / 6.0
STILL = 1.5  # a ridge in use may leave more by this factor
SETTLED = 0.02  # it keeps its numbers if another fit decreases F by less than this
LARGEST_PAIRED = 40  # products of two parents are tried for at most so many coordinates
MOST_TERMS = 10  # that are chosen,
MOST_ROWS = 40  # and that a ridge has; linear terms may be many
SHARE = 0.2  # of a score without its linear part, that a term explains of a coordinate to be looked at
MOST_SUSPECTS = 32  # coordinates that are looked at; if one of them is a child of a ridge, more
# The likeliest pairs of parents are tried; if one leaves less than this share of a score, it may leave
# nothing.
MOST_PAIRS, PAIR = 6, 1e-9
MOST_DRAWS = 160  # many coordinates are searched by the newest draws alone
MOST_ATOMS = 150  # scores are regressed on all terms, if there are no more of them
BEYOND = 1.0  # standard deviations between the farthest draw of a parent and its reach
_SPARE = 4  # a regression needs so many draws more than it has terms
_JUDGES = 15  # fewest draws of a window that judge a ridge
_DEPENDENT = 1e-10  # a column depends on others if they leave less than this share of its square


class Ridge(NamedTuple):
    """The location of a coordinate: a sum of t terms, those of second order first."""

    child: int
    firsts: np.ndarray  # (t,) int64, the parents a
    seconds: np.ndarray  # (t,) int64, the parents b; -1 for terms that are linear in a
    strengths: np.ndarray  # (t,) q
    centers: np.ndarray  # (t, 2) m_a and m_b
    reaches: np.ndarray  # (t, 2) r_a and r_b; infinite in an exact ridge

    @property
    def is_exact(self) -> bool:
        return bool(np.isinf(self.reaches).all())

    @property
    def parents(self) -> np.ndarray:
        """The parents in terms of second order."""
        bent = self.seconds >= 0
        return np.unique(np.concatenate((self.firsts[bent], self.seconds[bent])))

    def terms(self) -> set[tuple[int, int]]:
        return set(zip(self.firsts.tolist(), self.seconds.tolist(), strict=True))


class RidgeDraws(NamedTuple):
    """Draws and scores (n, d), in which some ridges may be undone."""

    points: np.ndarray
    scores: np.ndarray

    def part(self, rows: slice) -> RidgeDraws:
        return RidgeDraws(self.points[rows], self.scores[rows])


class Atoms(NamedTuple):
    """The terms that may be in a location: first those that are linear, then those of second order."""

    firsts: np.ndarray  # (m,) int64
    seconds: np.ndarray  # (m,) int64, -1 for linear terms
    columns: np.ndarray  # (n, m) less their means
    sizes: np.ndarray  # (m,) squared lengths of the columns
    centers: np.ndarray  # (d,)
    scales: np.ndarray  # (d,)

    @property
    def n_linear(self) -> int:
        return int(np.count_nonzero(self.seconds < 0))


class Found(NamedTuple):
    """What a search has found."""

    ridges: list[Ridge]  # the first one to be moved first
    suspects: list[int]  # coordinates without an exact ridge that may have another
    draws: RidgeDraws  # with the ridges undone


@np.errstate(all="ignore")
def learn_exact_ridges(ridges: list[Ridge], training: Training) -> Found:
    """The ridges that explain scores wholly; `ridges` are those in use."""
    draws = _that_differ(RidgeDraws(training.points, training.scores))
    if len(draws.points) < EARLIEST:
        return Found(ridges, [], draws)
    kept: list[Ridge] = []
    for ridge in reversed(ridges):
        if _left_share(ridge, draws) <= (10.0 * EXACT if training.new else STAYS):
            kept.append(ridge)
            draws = undo(draws, ridge)
    suspects: list[int] = []
    if training.new:
        found, suspects, draws = _search(draws, training, kept, exact=True)
        kept += found
    return Found(kept[::-1], suspects, draws)


@np.errstate(all="ignore")
def learn_ridges(ridges: list[Ridge], training: Training) -> list[Ridge]:
    """All ridges of draws and scores, the first one to be moved first; `ridges` are those in use."""
    draws = RidgeDraws(training.points, training.scores)
    if len(draws.points) < LEAST:
        return ridges
    kept: list[Ridge] = []
    for ridge in reversed(ridges):
        found = None if _is_taken(ridge, training.taken) else _judge(ridge, draws, training.before)
        if found is not None:
            kept.append(found)
            draws = undo(draws, found)
    if training.new:
        kept += _search(draws, training, kept, exact=False).ridges
    return kept[::-1]


def _is_taken(ridge: Ridge, taken: np.ndarray) -> bool:
    return bool(np.isin(np.concatenate(([ridge.child], ridge.firsts, ridge.seconds)), taken).any())


@np.errstate(all="ignore")
def may_be_ridges(found: Found) -> bool:
    """Whether one of the suspects has a ridge that is not exact, in draws in which no other law is undone."""
    draws = found.draws
    if len(draws.points) < LEAST:
        return False
    free = _that_vary(draws)
    trials = Trials(draws, free)
    return any(trials.ridge(draws, child, free) is not None for child in found.suspects)


def _that_differ(draws: RidgeDraws) -> RidgeDraws:
    """The draws without those at which the chain stood still: a regression on few points leaves nothing."""
    moved = np.append(True, (np.diff(draws.points, axis=0) != 0.0).any(axis=1))
    return draws if moved.all() else RidgeDraws(draws.points[moved], draws.scores[moved])


def _that_vary(draws: RidgeDraws) -> np.ndarray:
    """Whether coordinates and their scores (d,) vary."""
    return np.asarray((draws.points.std(axis=0) > 0.0) & (draws.scores.std(axis=0) > 0.0))


def _search(draws: RidgeDraws, training: Training, kept: list[Ridge], *, exact: bool) -> Found:
    """New ridges, the last one to be moved first.

    A coordinate that has a ridge already, or that another law moves, gets none, and is no parent.
    """
    free = _that_vary(draws)
    free[training.taken] = False
    free[[ridge.child for ridge in kept]] = False
    found: list[Ridge] = []
    while True:
        atoms, before = make_atoms(draws, np.flatnonzero(free)), len(found)
        seen, trials = find_suspects(draws, atoms), Trials(draws, free)
        for child in seen.wholly if exact else seen.likely:
            if exact:
                ridge = _exact_ridge(draws, child, atoms, free, seen.pairs.get(child))
            else:
                ridge = trials.ridge(draws, child, free)
            if ridge is not None:
                found.append(ridge)
                draws = undo(draws, ridge)
                free[child] = False
        if len(found) == before:
            return Found(found, seen.likely, draws)


def make_atoms(draws: RidgeDraws, parents: np.ndarray) -> Atoms:
    """The terms of all `parents`: linear, squares, and products of two where parents are few.

    Before means are taken off, columns are in units of the draws' means and standard deviations.
    """
    p, d = len(parents), draws.points.shape[1]
    centers, scales = np.zeros(d), np.ones(d)
    x = draws.points[:, parents]
    centers[parents], scales[parents] = x.mean(axis=0), x.std(axis=0)
    u = (x - centers[parents]) / scales[parents]
    a, b = np.triu_indices(p) if p <= LARGEST_PAIRED else (np.arange(p),) * 2
    columns = np.concatenate((u, u[:, a] * u[:, b]), axis=1)
    columns -= columns.mean(axis=0)
    return Atoms(
        np.concatenate((parents, parents[a])),
        np.concatenate((np.full(p, -1), parents[b])),
        columns,
        np.square(columns).sum(axis=0),
        centers,
        scales,
    )


def _is_regular(atoms: Atoms) -> bool:
    """Whether there are draws enough for a regression on all linear terms."""
    return len(atoms.columns) >= 2 * atoms.n_linear + 20


class Suspects(NamedTuple):
    """Coordinates that may be children of ridges."""

    wholly: list[int]  # a regression leaves nothing of their scores, or may do so
    pairs: dict[int, tuple[int, int]]  # the parents by which they are explained, where these are known
    likely: list[int]  # one term explains more of the score than by chance; the likeliest first


def find_suspects(draws: RidgeDraws, atoms: Atoms) -> Suspects:
    """The coordinates that may be children of ridges.

    If draws are enough, linear terms of all coordinates are taken from scores and terms first, and the share
    that a term explains is that of the score. If not, x_j and s_j span a plane, which has c in it, and the
    share is the squared cosine of its angle with a term, less its linear part.
    """
    p = atoms.n_linear
    free = atoms.firsts[:p]
    if p < 2:
        return Suspects([], {}, [])
    if p > LARGEST_PAIRED and len(draws.points) > MOST_DRAWS:
        draws = draws.part(slice(-MOST_DRAWS, None))
        atoms = make_atoms(draws, free)
    n, is_regular = len(draws.points), _is_regular(atoms)
    u, columns, sizes = atoms.columns[:, :p], atoms.columns[:, p:], atoms.sizes[p:]
    scores = draws.scores[:, free] - draws.scores[:, free].mean(axis=0)
    totals = np.square(scores).sum(axis=0)
    firsts, seconds = atoms.firsts[p:], atoms.seconds[p:]
    wholly = np.zeros(p, bool)
    is_told = is_regular and p + len(sizes) <= min(MOST_ATOMS, n - 2 - _SPARE)
    if is_regular:
        basis = orthonormal(u)
        scores, columns = scores - basis @ (basis.T @ scores), columns - basis @ (basis.T @ columns)
        if is_told:
            basis = orthonormal(columns)
            rest = scores - basis @ (basis.T @ scores)
            wholly = np.square(rest).sum(axis=0) <= EXACT * totals
        shares = np.square(scores.T @ columns) / np.square(scores).sum(axis=0)[:, None]
    else:
        unit = u / np.sqrt(atoms.sizes[:p])
        for own in (firsts, seconds):
            direction = unit[:, np.searchsorted(free, own)]
            columns = columns - direction * (direction * columns).sum(axis=0)
        scores = scores - unit * (unit * scores).sum(axis=0)
        scores /= np.linalg.norm(scores, axis=0)
        shares = np.square(scores.T @ columns)
        shares += np.square(unit.T @ columns)
    left = np.square(columns).sum(axis=0)
    shares *= np.where(left > _DEPENDENT * sizes, 1.0 / left, 0.0)
    for own in (firsts, seconds):
        shares[np.searchsorted(free, own), np.arange(len(own))] = 0.0
    best = np.nan_to_num(shares.max(axis=1))
    chance = 1.0 - np.exp(-(2.0 * np.log(shares.size) + 4.0) / n)  # the most of so many shares
    order = [k for k in np.argsort(-best, kind="stable")[:MOST_SUSPECTS] if best[k] > SHARE]
    likely = [int(free[k]) for k in order if best[k] > chance]
    if is_told:
        return Suspects([int(k) for k in free[wholly]], {}, likely)
    if is_regular or not order:
        return Suspects(likely, {}, likely)  # their linear parts are known, so that a term tells much
    places = np.argsort(-shares[order], axis=1, kind="stable")[:, :MOST_PAIRS]
    children = np.repeat(free[order], places.shape[1])
    left = _left_by_pairs(draws, children, firsts[places.ravel()], seconds[places.ravel()])
    pairs = {
        int(children[k]): (int(firsts[places.flat[k]]), int(seconds[places.flat[k]]))
        for k in np.flatnonzero(left < PAIR)[::-1]
    }
    return Suspects(list(pairs), pairs, likely)


def _left_by_pairs(
    draws: RidgeDraws, children: np.ndarray, firsts: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """The share (k,) of scores that a second-order polynomial of two parents leaves, after that of x_j."""
    x = draws.points - draws.points.mean(axis=0)
    x = (x / x.std(axis=0)).T
    own, a, b, s = x[children], x[firsts], x[seconds], draws.scores.T[children]
    terms = np.stack((own, a, a * a, b, a * b, b * b), axis=2)
    terms[firsts == seconds, :, 3:] = 0.0
    s = s - s.mean(axis=1, keepdims=True)
    s = s - own * (own * s).mean(axis=1, keepdims=True)
    basis = np.linalg.qr(terms - terms.mean(axis=1, keepdims=True))[0]
    left = s - (basis @ (basis.transpose(0, 2, 1) @ s[:, :, None]))[:, :, 0]
    return np.asarray(np.square(left).sum(axis=1) / np.square(s).sum(axis=1))


def pursue(
    draws: RidgeDraws, child: int, atoms: Atoms, free: np.ndarray, *, exact: bool
) -> np.ndarray | None:
    """The places (t,) in `atoms` of the terms of the location of `child`, in the order of the choice.

    If draws are enough, all linear terms are among them from the start. With `exact` the result is None if
    the terms do not explain the score wholly.
    """
    n, is_regular = len(draws.points), _is_regular(atoms)
    pair = np.stack((draws.points[:, child], draws.scores[:, child]))
    pair -= pair.mean(axis=1, keepdims=True)
    total = pair[1] @ pair[1]
    columns, sizes = atoms.columns, atoms.sizes
    usable = (atoms.firsts != child) & (atoms.seconds != child) & free[atoms.firsts]
    usable &= free[atoms.seconds] | (atoms.seconds < 0)
    chosen: list[int] = []
    if is_regular:
        chosen = [int(k) for k in np.flatnonzero(usable & (atoms.seconds < 0))]
        usable[: atoms.n_linear] = False
    started = len(chosen)
    basis = orthonormal(columns[:, chosen]).T if started else np.empty((0, n))
    rest = sizes - np.square(basis @ columns).sum(axis=0)
    pair -= (pair @ basis.T) @ basis
    least = _DEPENDENT * sizes
    while True:
        x, s = pair
        square = x @ x
        s = s - x * ((x @ s) / square)
        left_of_s = s @ s
        if left_of_s <= EXACT * total:
            return np.array(chosen, np.int64)
        if len(chosen) - started >= min(MOST_TERMS, (n - started) // 2 - _SPARE):
            break
        along_x = np.square(x @ columns) / square
        along_s = np.square(s @ columns) / left_of_s
        left = rest - along_x if is_regular else rest
        along = along_s if is_regular else along_s + along_x
        gain = np.where(usable & (left > least), along / left, 0.0)
        best = int(gain.argmax())
        if not exact and not gain[best] * n > 2.0 * np.log(len(gain)) + 6.0:
            break
        column = columns[:, best]
        direction = column - (basis @ column) @ basis
        direction /= np.sqrt(direction @ direction)
        rest = rest - np.square(direction @ columns)
        pair -= (pair @ direction)[:, None] * direction
        basis = np.concatenate((basis, direction[None]))
        usable[best] = False
        chosen.append(best)
    return None if exact else np.array(chosen, np.int64)


def _regress(draws: RidgeDraws, child: int, columns: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Coefficients (1 + t,) of x_j and of columns (n, t) in the score; what is left of it; and its total."""
    own = draws.points[:, child]
    basis = np.concatenate(((own - own.mean())[:, None], columns - columns.mean(axis=0)), axis=1)
    sizes = np.linalg.norm(basis, axis=0)
    y = draws.scores[:, child] - draws.scores[:, child].mean()
    found = np.linalg.lstsq(basis / sizes, y, rcond=None)[0]
    rest = y - basis @ (found / sizes)
    return found / sizes, float(rest @ rest), float(y @ y)


def _exact_ridge(
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
    if len(draws.points) < len(chosen) + 2 + _SPARE:
        return None
    coefficients, rest, total = _regress(draws, child, atoms.columns[:, chosen])
    _, without, _ = _regress(draws, child, atoms.columns[:, chosen[~bent]])
    if not (0 < bent.sum() <= len(bent) <= MOST_ROWS and rest <= EXACT * total and rest <= BRINGS * without):
        return None
    ridge = _make(draws, child, atoms, chosen, coefficients, exact=True)
    return ridge if _is_bent(draws, ridge, coefficients[0]) else None


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


def _is_bent(draws: RidgeDraws, ridge: Ridge, slope: float) -> bool:
    """Whether the terms of second order move the coordinate, whose score has a `slope` in it, much enough."""
    bent, least = _bent_part(ridge), EXACTLY_BENT if ridge.is_exact else BENT
    return slope < 0.0 and bool(-slope * location_of(draws.points, bent)[0].var() > least)


def _bent_part(ridge: Ridge) -> Ridge:
    return _some(ridge, ridge.seconds >= 0)


def _some(ridge: Ridge, kept: np.ndarray) -> Ridge:
    return Ridge(ridge.child, *(values[kept] for values in ridge[1:]))


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


def _left_share(ridge: Ridge, draws: RidgeDraws) -> float:
    """The share of the child's score that is left after a regression on its distance from the location."""
    away = draws.points[:, ridge.child] - location_of(draws.points, ridge)[0]
    s = draws.scores[:, ridge.child]
    away, s = away - away.mean(), s - s.mean()
    rest = s - away * (away @ s) / (away @ away)
    return float(rest @ rest / (s @ s))


class Trials:
    """Fits of ridges that are not exact, to the older half of the draws and to all."""

    def __init__(self, draws: RidgeDraws, free: np.ndarray) -> None:
        """Terms are those of the coordinates that are `free`; later draws may have fewer of them."""
        self._half = slice(0, len(draws.points) // 2)
        self._rest = slice(len(draws.points) // 2, None)
        self._first = draws, np.flatnonzero(free)

    @functools.cached_property
    def _older(self) -> Atoms:
        draws, free = self._first
        return make_atoms(draws.part(self._half), free)

    @functools.cached_property
    def _all(self) -> Atoms:
        return make_atoms(*self._first)

    def ridge(self, draws: RidgeDraws, child: int, free: np.ndarray) -> Ridge | None:
        """The ridge of `child` that decreases F on draws that it was not fitted to, if there is one."""
        trial = _fit(draws.part(self._half), child, self._older, free)
        if trial is None or not _is_good(draws.part(self._rest), trial, MARGIN, 1.0):
            return None
        ridge = _fit(draws, child, self._all, free)
        if ridge is None or not _bent_part(ridge).terms() & _bent_part(trial).terms():
            return None
        return ridge if _gain(draws, ridge) > MARGIN else None


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
    of = np.unique(np.concatenate((atoms.firsts[bent], atoms.seconds[bent])))
    chosen = np.union1d(bent, np.flatnonzero((atoms.seconds < 0) & np.isin(atoms.firsts, of)))
    if len(draws.points) < len(chosen) + 2 + _SPARE:
        return None
    by_scores, rest, total = _regress(draws, child, atoms.columns[:, chosen])
    if rest <= EXACT * total and by_scores[0] < 0.0:
        ridge = _make(draws, child, atoms, chosen, by_scores, exact=True)
        return ridge if _is_bent(draws, ridge, by_scores[0]) else None
    by_draws = np.linalg.lstsq(atoms.columns[:, chosen], draws.points[:, child], rcond=None)[0]
    found = [
        _make(draws, child, atoms, chosen, coefficients, exact=False)
        for coefficients in (by_scores, np.concatenate(([-1.0], by_draws)))
    ]
    gains = [_gain(draws, ridge) for ridge in found]
    ridge = found[int(np.argmax(gains))]
    return ridge if by_scores[0] < 0.0 and _is_bent(draws, ridge, by_scores[0]) else None


def _judge(ridge: Ridge, draws: RidgeDraws, before: int) -> Ridge | None:
    """A ridge in use, with better numbers if there are any; None if draws are better off without it."""
    newest = draws.part(slice(before, None))
    if ridge.is_exact and _left_share(ridge, draws) <= STAYS:
        return ridge
    if len(newest.points) >= _JUDGES and not _is_good(newest, ridge, 0.0, STILL):
        return None
    parents = np.unique(np.concatenate((ridge.firsts, ridge.seconds[ridge.seconds >= 0])))
    atoms, terms = make_atoms(draws, parents), ridge.terms()
    named = zip(atoms.firsts.tolist(), atoms.seconds.tolist(), strict=True)
    again = _with_numbers(draws, ridge.child, atoms, np.flatnonzero([one in terms for one in named]))
    if again is None:
        return ridge
    return again if _gain(draws, again) - _gain(draws, ridge) > SETTLED else ridge


def _is_good(draws: RidgeDraws, ridge: Ridge, margin: float, factor: float) -> bool:
    """Whether a ridge decreases F by more than `margin`, and leaves little of it."""
    before, after = _before_and_after(draws, ridge)
    return bool(before - after > margin and after < factor * max(LEFT, LEFT_SHARE * before))


def _gain(draws: RidgeDraws, ridge: Ridge) -> float:
    """The decrease of F by a ridge."""
    before, after = _before_and_after(draws, ridge)
    return before - after if np.isfinite(before - after) else -np.inf


def _before_and_after(draws: RidgeDraws, ridge: Ridge) -> tuple[float, float]:
    """F with the linear terms of a ridge alone, and with all of it."""
    parents = ridge.parents
    own = np.append(parents, ridge.child)
    points, scores = draws.points[:, own], draws.scores[:, own]
    pairs = np.empty((2, 2, len(own), len(points)))  # without and with the terms of second order
    for pair, part in zip(pairs, (_some(ridge, ridge.seconds < 0), ridge), strict=True):
        value, slopes = location_of(draws.points, part)
        pair[:] = points.T, scores.T
        pair[0, -1] -= value
        for row, parent in zip(pair[1], parents.tolist(), strict=False):
            if parent in slopes:
                row += slopes[parent] * pair[1, -1]
    pairs -= pairs.mean(axis=3, keepdims=True)
    covs = pairs @ pairs.transpose(0, 1, 3, 2) / (len(points) - 1)
    before, after = 0.5 * np.linalg.slogdet(covs)[1].sum(axis=1)
    return float(before), float(after)


def undo(draws: RidgeDraws, ridge: Ridge) -> RidgeDraws:
    """The draws with a ridge undone, and their scores."""
    points, scores = draws.points.copy(), draws.scores.copy()
    value, slopes = location_of(draws.points, ridge)
    points[:, ridge.child] -= value
    for parent, slope in slopes.items():
        scores[:, parent] += slope * scores[:, ridge.child]
    return RidgeDraws(points, scores)


def location_of(points: np.ndarray, ridge: Ridge) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """c (n,) at points (n, d), and its derivatives (n,) in the parents."""
    linear = ridge.seconds < 0
    value = (points[:, ridge.firsts[linear]] - ridge.centers[linear, 0]) @ ridge.strengths[linear]
    slopes = {int(a): np.zeros(len(points)) for a in ridge.firsts}
    slopes |= {int(b): np.zeros(len(points)) for b in ridge.seconds if b >= 0}
    for a, strength in zip(ridge.firsts[linear].tolist(), ridge.strengths[linear].tolist(), strict=True):
        slopes[a] += strength
    for a, b, strength, (center_a, center_b), (r_a, r_b) in zip(*_bent_part(ridge)[1:], strict=True):
        u, v = points[:, a] - center_a, points[:, b] - center_b
        if np.isinf(r_a):
            value += strength * u * v
            at_a, at_b = v, u
        else:
            plus, minus = u / r_a + v / r_b, u / r_a - v / r_b
            value += 0.25 * strength * r_a * r_b * (huber(plus) - huber(minus))
            rise, fall = np.clip(plus, -2.0, 2.0), np.clip(minus, -2.0, 2.0)
            at_a, at_b = 0.5 * r_b * (rise - fall), 0.5 * r_a * (rise + fall)
        slopes[int(a)] += strength * at_a
        slopes[int(b)] += strength * at_b
    return value, slopes


def huber(t: np.ndarray) -> np.ndarray:
    """t² up to |t| = 2, and then the straight line with the slope there."""
    return np.asarray(np.where(np.abs(t) <= 2.0, np.square(t), 4.0 * np.abs(t) - 4.0))
