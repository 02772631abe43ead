"""What scores say of a law of transport_pairs.py: which location, which head, whether there is an offset.

A draw is an accident, but its score is exact. If x_i has the normal prior N(C p + c, e^(2 eta)), the score is

    s_i = -(x_i - C p - c) e^(-2 eta) + f_i(x_i)                                            (beta > 0)

with f_i from the likelihood, which is linear in x_i where that is normal. In a program that is not centred
the likelihood depends on C p + e^-eta x_i instead (eta = -u), and

    s_i = -x_i + e^-eta (a - b C p - b e^-eta x_i).                                         (beta < 0)

So the regression of s_i on these terms leaves nothing if head and location are the right ones, and leaves
much if one of them is wrong, whatever the draws are and however few. The share of the variance that it leaves
is the law's `unexplained` share. Where the likelihood is not normal, f_i has x_i² too, and what is left is
compared.

A coordinate that is itself a location or a head of others has their terms in its score, and in its basis.
"""

from __future__ import annotations

import numpy as np

from .transport_pairs import Draws, Pair, locations_of, roots_of, scale_of_parts

LEAST_SHARE = 1e-8  # smaller shares of the variance are rounding
_CURVED = 45  # draws from which on the basis has x_i²
_SPARE = 4  # draws at least that a basis leaves
_MOST = 160  # the newest draws that are looked at
_FARTHEST = 30.0  # distance of a log scale from its median beyond which a draw has no say


def unexplained(
    draws: Draws, law: Pair, pairs: list[Pair], *, offset: bool = True, candidates: np.ndarray | None = None
) -> np.ndarray:
    """The logarithm of the share of the scores' variance that the law leaves, for each member (m,).

    Parameters
    ----------
    draws
        In the coordinates of the program.
    law
        Its heads, betas and locations are tried; its numbers are not needed, but for C without `offset`.
    pairs
        The other ones, in which members may be locations or heads.
    offset
        Whether the place of the prior may have an offset, and C any value.
    candidates
        Values (draws, k), each column of which is tried as the location of every member, beside the law's.

    Returns
    -------
    ndarray
        (m,), or (m, k) with candidates; zeros where there are too few draws to tell.
    """
    m = len(law.members)
    points, scores = draws.points[-_MOST:], draws.scores[-_MOST:]
    tried = None if candidates is None else candidates[-_MOST:]
    eta = _log_scales(points, law)  # (1 or m, n)
    near = (np.abs(eta) < _FARTHEST).all(axis=0)
    points, scores, eta = points[near], scores[near], eta[:, near]
    tried = None if tried is None else tried[near]
    up, n = law.beta > 0.0, len(points)
    inverse = np.exp(-2.0 * eta if up else -eta)
    weight = 1.0 / np.sqrt(1.0 + inverse) if up else np.ones_like(inverse)
    x, s = points[:, law.members].T, scores[:, law.members].T
    terms = [np.ones_like(x), x] + ([x * x] if n >= _CURVED else [])
    located, place = law.is_located, np.broadcast_to(locations_of(points, law), x.shape)
    if not up:
        terms += [inverse * inverse * x, np.broadcast_to(inverse, x.shape)]
        terms += [inverse * place] if located else []
    elif offset:
        terms += [inverse * x, np.broadcast_to(inverse, x.shape)] + ([inverse * place] if located else [])
    else:
        terms += [inverse * (x - law.slope * place)]
    basis = np.stack([term * weight for term in terms], axis=2)  # (m, n, terms)
    basis = np.concatenate([basis, _terms_of_others(points, scores, law.members, pairs, weight)], axis=2)
    if n < basis.shape[2] + (tried is not None) + _SPARE:
        return np.zeros(m if tried is None else (m, tried.shape[1]))
    size = np.linalg.norm(basis, axis=1, keepdims=True)
    q = np.linalg.qr(basis / np.where(size > 0.0, size, 1.0))[0]
    target = s * weight
    mean = (target * weight).sum(axis=1, keepdims=True) / np.square(weight).sum(axis=-1, keepdims=True)
    total = np.square(target - mean * weight).sum(axis=1)
    rest = target - (q @ (q.transpose(0, 2, 1) @ target[:, :, None]))[:, :, 0]
    rest = rest - (q @ (q.transpose(0, 2, 1) @ rest[:, :, None]))[:, :, 0]
    left = np.square(rest).sum(axis=1)
    if tried is None:
        return np.asarray(np.log(np.maximum(left / total, LEAST_SHARE)))
    columns = (inverse * weight)[:, :, None] * tried  # (1 or m, n, k)
    columns = columns / np.linalg.norm(columns, axis=1, keepdims=True)
    along = (rest[:, None, :] @ columns)[:, 0, :]
    inside = np.square(columns).sum(axis=1) - np.square(q.transpose(0, 2, 1) @ columns).sum(axis=1)
    explained = np.where(inside > 1e-9, np.square(along) / np.maximum(inside, 1e-9), 0.0)
    return np.asarray(np.log(np.maximum((left[:, None] - explained) / total[:, None], LEAST_SHARE)))


def _log_scales(points: np.ndarray, law: Pair) -> np.ndarray:
    """eta of draws (n, d), less its median: (1 or m, n)."""
    eta = law.beta * points[:, law.heads].T
    if law.second >= 0:
        eta = eta + law.beta_2 * points[:, law.second]
    return np.asarray(eta - np.median(eta, axis=1, keepdims=True))


def _terms_of_others(
    points: np.ndarray, scores: np.ndarray, members: np.ndarray, pairs: list[Pair], weight: np.ndarray
) -> np.ndarray:
    """What the scores of members have of other pairs whose locations or heads they are: (m, n, terms)."""
    m, n = len(members), len(points)
    row_of = {int(i): row for row, i in enumerate(members)}
    found = []
    for pair in pairs:
        if not roots_of(pair) & set(row_of):
            continue
        count = len(pair.members)
        x, s = points[:, pair.members].T, scores[:, pair.members].T
        inverse = np.exp(
            np.clip((-2.0 if pair.beta > 0.0 else -1.0) * _log_scales(points, pair), -50.0, 50.0)
        )
        if pair.beta > 0.0:
            away = x - pair.slope * locations_of(points, pair) - pair.offset
            at_location, at_head = [inverse * away], [inverse * away * away]
        else:
            at_location, at_head = [inverse * x], [s * x, x * x]
        ruled = [(pair.locations, at_location), (pair.heads, at_head), (np.array([pair.second]), at_head)]
        if pair.part_head >= 0:
            scaled = at_location[0] * scale_of_parts(points, pair)
            along = scaled * points[:, pair.parts].T
            ruled += [(pair.parts, [scaled]), (np.array([pair.part_head]), [along])]
        for rulers, parts in ruled:
            rows = np.array([row_of.get(int(i), -1) for i in np.broadcast_to(rulers, (count,))])
            if not (rows >= 0).any():
                continue
            for part in parts:
                term = np.zeros((m, n))
                np.add.at(term, rows[rows >= 0], np.broadcast_to(part, (count, n))[rows >= 0])
                found.append(term * weight)
    return np.stack(found, axis=2) if found else np.empty((m, n, 0))
