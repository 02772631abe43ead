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

This file has the search. ridge_terms.py has ridges and their terms, ridge_fit.py fits and judges one, and
ridge_pursuit.py has the loop that chooses terms.
"""

from __future__ import annotations

import functools
import zlib
from typing import NamedTuple

import numpy as np

from .ridge_fit import (
    DEPENDENT,
    EXACT,
    SPARE,
    STAYS,
    Trials,
    exact_ridge,
    is_overdetermined,
    judge,
    left_share,
)
from .ridge_terms import LARGEST_PAIRED, Atoms, Ridge, RidgeDraws, make_atoms, undo
from .shape import orthonormal
from .training import Training

EARLIEST = 15  # fewest draws that show an exact ridge,
LEAST = 45  # and any other
SHARE = 0.2  # of a score without its linear part, that a term explains of a coordinate to be looked at
MOST_SUSPECTS = 32  # coordinates that are looked at; if one of them is a child of a ridge, more
# The likeliest pairs of parents are tried; if one leaves less than this share of a score, it may leave
# nothing.
MOST_PAIRS, PAIR = 6, 1e-9
MOST_DRAWS = 160  # many coordinates are searched by the newest draws alone
_TOGETHER = 64  # coordinates that are looked at together, so that shares stay in the processor's cache
MOST_ATOMS = 150  # scores are regressed on all terms, if there are no more of them
# Whether scores are explained wholly does not depend on the draws. If a regression on all terms leaves more
# than this share of each score, no coordinate has an exact ridge, and later windows need not ask again.
CLEARLY_LEFT = 1e-6
NONE_EXACT = zlib.crc32(b"exact ridges")  # the number of this question among those that are refused


class RidgeSearch:
    """Draws in which ridges are looked for, and what is worked out of them when it is first asked for."""

    def __init__(self, draws: RidgeDraws, free: np.ndarray) -> None:
        """Coordinates that are not `free` (d,) get no ridge, and are no parents."""
        self.draws, self.free = draws, free
        self._ridges: dict[int, Ridge | None] = {}

    @functools.cached_property
    def atoms(self) -> Atoms:
        return make_atoms(self.draws, np.flatnonzero(self.free))

    @functools.cached_property
    def suspects(self) -> Suspects:
        return find_suspects(self.draws, self.atoms)

    @functools.cached_property
    def trials(self) -> Trials:
        return Trials(self.draws, self.free, self.atoms)

    def ridge(self, child: int) -> Ridge | None:
        """The ridge of `child` that is not exact, if there is one."""
        if child not in self._ridges:
            self._ridges[child] = self.trials.ridge(self.draws, child, self.free)
        return self._ridges[child]

    def is_of(self, draws: RidgeDraws, free: np.ndarray) -> bool:
        """Whether it searches these draws, with the same coordinates free."""
        pairs = zip((*self.draws, self.free), (*draws, free), strict=True)
        return all(one is other or np.array_equal(one, other) for one, other in pairs)


class Found(NamedTuple):
    """What a search has found."""

    ridges: list[Ridge]  # the first one to be moved first
    search: RidgeSearch | None  # for others, in draws in which these are undone; None if none is wanted


@np.errstate(all="ignore")
def learn_exact_ridges(ridges: list[Ridge], training: Training) -> Found:
    """The ridges that explain scores wholly; `ridges` are those in use."""
    draws = _that_differ(RidgeDraws(training.points, training.scores))
    if len(draws.points) < EARLIEST:
        return Found(ridges, None)
    kept: list[Ridge] = []
    for ridge in reversed(ridges):
        if left_share(ridge, draws) <= (10.0 * EXACT if training.new else STAYS):
            kept.append(ridge)
            draws = undo(draws, ridge)
    if not training.new:
        return Found(kept[::-1], None)
    search = RidgeSearch(draws, _free(draws, training, kept))
    if NONE_EXACT in training.refused:
        return Found(kept[::-1], search)
    found, last = _find_ridges(search, exact=True)
    if not (kept or found) and search.free.all() and search.suspects.none_exact:
        training.refused.add(NONE_EXACT)
    return Found((kept + found)[::-1], last)


@np.errstate(all="ignore")
def learn_ridges(ridges: list[Ridge], training: Training, begun: RidgeSearch | None = None) -> list[Ridge]:
    """All ridges of draws and scores, the first one to be moved first; `ridges` are those in use.

    `begun` is a search that may be at the same draws.
    """
    draws = RidgeDraws(training.points, training.scores)
    if len(draws.points) < LEAST:
        return ridges
    kept: list[Ridge] = []
    for ridge in reversed(ridges):
        found = None if _is_taken(ridge, training.taken) else judge(ridge, draws, training.before)
        if found is not None:
            kept.append(found)
            draws = undo(draws, found)
    if training.new and training.room_for_ridges:
        free = _free(draws, training, kept)
        search = begun if begun is not None and begun.is_of(draws, free) else RidgeSearch(draws, free)
        kept += _find_ridges(search, exact=False)[0]
    return kept[::-1]


def _is_taken(ridge: Ridge, taken: np.ndarray) -> bool:
    return bool(np.isin(np.concatenate(([ridge.child], ridge.firsts, ridge.seconds)), taken).any())


@np.errstate(all="ignore")
def may_be_ridges(search: RidgeSearch) -> bool:
    """Whether one of the suspects has a ridge that is not exact, in draws in which no other law is undone."""
    if len(search.draws.points) < LEAST:
        return False
    return any(search.ridge(child) is not None for child in search.suspects.likely)


def _that_differ(draws: RidgeDraws) -> RidgeDraws:
    """The draws without those at which the chain stood still: a regression on few points leaves nothing."""
    moved = (draws.points[1:] != draws.points[:-1]).any(axis=1)
    if moved.all():
        return draws
    kept = np.append(True, moved)
    return RidgeDraws(draws.points[kept], draws.scores[kept])


def _that_vary(draws: RidgeDraws) -> np.ndarray:
    """Whether coordinates and their scores (d,) vary."""
    points, scores = draws
    return np.asarray((points != points[0]).any(axis=0) & (scores != scores[0]).any(axis=0))


def _free(draws: RidgeDraws, training: Training, kept: list[Ridge]) -> np.ndarray:
    """The coordinates (d,) that have no ridge yet, and that no other law moves."""
    free = _that_vary(draws)
    free[training.taken] = False
    free[[ridge.child for ridge in kept]] = False
    return free


def _find_ridges(search: RidgeSearch, *, exact: bool) -> tuple[list[Ridge], RidgeSearch]:
    """New ridges, the last one to be moved first, and a search of the draws in which they are undone."""
    found: list[Ridge] = []
    while True:
        draws, free, before = search.draws, search.free.copy(), len(found)
        seen = search.suspects
        for child in seen.wholly if exact else seen.likely:
            if exact:
                ridge = exact_ridge(draws, child, search.atoms, free, seen.pairs.get(child))
            elif draws is search.draws:
                ridge = search.ridge(child)
            else:
                ridge = search.trials.ridge(draws, child, free)
            if ridge is not None:
                found.append(ridge)
                draws = undo(draws, ridge)
                free[child] = False
        if len(found) == before:
            return found, search
        search = RidgeSearch(draws, free)


class Suspects(NamedTuple):
    """Coordinates that may be children of ridges."""

    wholly: list[int]  # a regression leaves nothing of their scores, or may do so
    pairs: dict[int, tuple[int, int]]  # the parents by which they are explained, where these are known
    likely: list[int]  # one term explains more of the score than by chance; the likeliest first
    none_exact: bool = False  # whether it is certain that no score is explained wholly


class _Shares(NamedTuple):
    """Which share of each score every term of second order explains."""

    planes: list[np.ndarray]  # (n, p) each: orthonormal columns for each score, the whole of which counts
    columns: np.ndarray  # (n, terms), of length 1, or 0 where a term is none
    parents: list[np.ndarray]  # (terms,) each: the coordinates in a term, which explains none of their scores

    def of(self, children: np.ndarray) -> np.ndarray:
        """The shares (k, terms) for the coordinates `children` (k,)."""
        shares = np.zeros((len(children), self.columns.shape[1]), self.columns.dtype)
        for plane in self.planes:
            shares += np.square(plane.T[children] @ self.columns)
        for parents in self.parents:
            shares[children[:, None] == parents] = 0.0
        return np.asarray(shares)


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
    n, is_regular = len(draws.points), is_overdetermined(atoms)
    u, columns, sizes = atoms.columns[:, :p], atoms.columns[:, p:], atoms.sizes[p:]
    scores = draws.scores[:, free] - draws.scores[:, free].mean(axis=0)
    totals = np.square(scores).sum(axis=0)
    firsts, seconds = atoms.firsts[p:], atoms.seconds[p:]
    wholly, none_exact = np.zeros(p, bool), False
    is_told = is_regular and p + len(sizes) <= min(MOST_ATOMS, n - 2 - SPARE)
    if is_regular:
        basis = orthonormal(u)
        scores, columns = scores - basis @ (basis.T @ scores), columns - basis @ (basis.T @ columns)
        if is_told:
            basis = orthonormal(columns)
            rest = np.square(scores - basis @ (basis.T @ scores)).sum(axis=0)
            wholly = rest <= EXACT * totals
            none_exact = bool((rest > CLEARLY_LEFT * totals).all())
        planes = [scores / np.linalg.norm(scores, axis=0)]
    else:
        unit = u / np.sqrt(atoms.sizes[:p])
        for own in (firsts, seconds):
            direction = unit[:, np.searchsorted(free, own)]
            columns = columns - direction * (direction * columns).sum(axis=0)
        scores = scores - unit * (unit * scores).sum(axis=0)
        planes = [scores / np.linalg.norm(scores, axis=0), unit]
    left = np.square(columns).sum(axis=0)
    columns = columns * np.where(left > DEPENDENT * sizes, 1.0 / np.sqrt(left), 0.0)
    if p > LARGEST_PAIRED:  # half as many digits do for a search among many
        planes, columns = [plane.astype(np.float32) for plane in planes], columns.astype(np.float32)
    shares = _Shares(planes, columns, [np.searchsorted(free, own) for own in (firsts, seconds)])
    blocks = np.split(np.arange(p), range(_TOGETHER, p, _TOGETHER))
    best = np.concatenate([shares.of(block).max(axis=1) for block in blocks])
    best[np.isnan(best)] = 0.0
    chance = 1.0 - np.exp(-(2.0 * np.log(p * len(sizes)) + 4.0) / n)  # the most of so many shares
    order = [k for k in np.argsort(-best, kind="stable")[:MOST_SUSPECTS] if best[k] > SHARE]
    likely = [int(free[k]) for k in order if best[k] > chance]
    if is_told:
        return Suspects([int(k) for k in free[wholly]], {}, likely, none_exact)
    if is_regular or not order:
        return Suspects(likely, {}, likely)  # their linear parts are known, so that a term tells much
    places = np.argsort(-shares.of(np.array(order)), axis=1, kind="stable")[:, :MOST_PAIRS]
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
