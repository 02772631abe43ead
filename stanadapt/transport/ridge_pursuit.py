"""The terms of a ridge, chosen one after another: the compiled loop of orthogonal matching pursuit.

ridge_learning.py says what is pursued, and ridge_fit.py calls it for each coordinate that may have a ridge. A
choice takes O(m n) for m terms in n draws, so that in NumPy most of the time would go to the calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from .triangular import dot


@kernel
def choose_terms(
    terms: Any,
    basis: Any,
    pair: Any,
    left: Any,
    least: Any,
    usable: Any,
    chosen: Any,
    total: Any,
    share: Any,
    whole_plane: Any,
    until_nothing: Any,
) -> Any:
    """Choose terms that explain a score, each time the one that explains most of what is left.

    Parameters
    ----------
    terms
        (m, n) their values in n draws, less their means.
    basis
        (k, n) orthonormal rows that are taken from all values already.
    pair
        (2, n) the coordinate and its score without their parts in the basis; changes in place.
    left
        (m,) squared lengths of the terms without their parts in the basis; changes in place.
    least
        (m,) squared lengths below which a term depends on those in the basis.
    usable
        (m,) which terms may be chosen; changes in place.
    chosen
        (most,) takes the places of the terms.
    total
        The squared length of the whole score.
    share
        The search ends where less than this share of it is left.
    whole_plane
        Whether what a term explains of the coordinate counts, too, which may then have its linear part.
    until_nothing
        Whether terms are chosen until nothing is left; else they end where the next one could be chance.

    Returns
    -------
    int, bool
        How many are chosen, and whether they leave less than `share`.
    """
    m, n = terms.shape
    k, most = len(basis), chosen.size
    directions = np.empty((most, n))
    s, along_x, count = np.empty(n), np.empty(m), 0
    while True:
        x = pair[0]
        square = dot(x, x)
        slope = dot(x, pair[1]) / square
        for t in range(n):
            s[t] = pair[1, t] - x[t] * slope
        left_of_s = dot(s, s)
        if left_of_s <= share * total:
            return count, True
        if count >= most:
            return count, False
        best, gain = 0, 0.0
        for j in range(m):
            if not usable[j]:
                continue
            along_x[j] = dot(x, terms[j]) ** 2 / square
            along = dot(s, terms[j]) ** 2 / left_of_s
            rest = left[j]
            if whole_plane:
                along += along_x[j]
            else:
                rest -= along_x[j]
            if rest > least[j] and along / rest > gain:
                best, gain = j, along / rest
        if not until_nothing and not gain * n > 2.0 * np.log(m) + 6.0:
            return count, False
        direction, column = directions[count], terms[best]
        for t in range(n):
            direction[t] = column[t]
        for i in range(k):
            a = dot(basis[i], column)
            for t in range(n):
                direction[t] -= a * basis[i, t]
        for i in range(count):
            a = dot(directions[i], column)
            for t in range(n):
                direction[t] -= a * directions[i, t]
        size = np.sqrt(dot(direction, direction))
        for t in range(n):
            direction[t] /= size
        for j in range(m):
            left[j] -= dot(direction, terms[j]) ** 2
        for i in range(2):
            a = dot(pair[i], direction)
            for t in range(n):
                pair[i, t] -= a * direction[t]
        usable[best] = False
        chosen[count] = best
        count += 1
