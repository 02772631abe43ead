"""Finding rotations (rotation.py): variables whose coordinates are all tied, and their axes.

In the coordinates of such a variable the negative Hessian is a full block. Its eigenvectors are the axes. If
the variable holds effects of one scale, they are so at all scales, and the search for effects goes on along
them (effects_search.py). In any other case what it took, two gradients for each coordinate, is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse

from ..effects_table import LEAST_ROTATED
from ..rotation import Rotation
from .effects_fit import MOVE
from .probes import NOISE, Coupling, ScaledDensity, axes, two_columns

MOST = 200  # coordinates of a variable that is turned
_TIED = 0.8  # share of a variable's coordinates to which each of them is tied
_MOST_SCALES = 10  # coordinates that may be a scale
_CHANGES = 1e-5  # share of a curvature by which a scale changes it, at least
_SAME, _ALL_SAME = 1e-3, 1e-6  # entries that differ by less are the same; and if there are no other ties


def find_rotations(
    density: ScaledDensity, x: np.ndarray, variables: np.ndarray, *, with_scale: bool = False
) -> list[Rotation]:
    """The rotations of variables whose coordinates are all tied, at `x` (d,), in units; or of those alone
    that are seen to have a scale, which takes fewer gradients.
    """
    counts = np.bincount(variables)
    logp, here = density(x)
    if not np.isfinite(logp):
        return []
    found = []
    for number in np.flatnonzero((counts >= LEAST_ROTATED) & (counts <= MOST)):
        own = np.flatnonzero(variables == number)
        is_turned = _are_tied(density, x, own, here)
        if is_turned and with_scale:
            is_turned = _have_scale(density, x, own, variables)
        if is_turned:
            block = _block(density, x, own)
            if block is None:
                return []
            found.append(Rotation(own, np.linalg.eigh(block)[1]))
    return found


def _have_scale(density: ScaledDensity, x: np.ndarray, own: np.ndarray, variables: np.ndarray) -> bool:
    """Whether a coordinate of a small variable changes the curvature of one of the coordinates `own` (n,),
    and none of its ties.
    """
    counts = np.bincount(variables)
    direction = axes(x.size, own[:1])
    here = density.curvatures(x, direction)[0, own]
    for k in np.flatnonzero(counts[variables] < LEAST_ROTATED)[:_MOST_SCALES]:
        moved = x.copy()
        moved[k] += MOVE / density.unit[k]
        change = np.abs(density.curvatures(moved, direction)[0, own] - here)
        if change[0] > _CHANGES * abs(here[0]) and (change[1:] < _SAME * change[0]).all():
            return True
    return False


def without_ties(coupling: Coupling, rotations: Sequence[Rotation]) -> Coupling:
    """A coupling along axes, where those of a rotation are not tied but for rounding errors."""
    pattern = coupling.pattern.tolil()
    wide = coupling.wide.copy()
    for own, _ in rotations:
        pattern[np.ix_(own, own)] = np.eye(len(own), dtype=bool)
        wide[own] = False
    return coupling._replace(pattern=sparse.csc_matrix(pattern), wide=wide)


def _are_tied(density: ScaledDensity, x: np.ndarray, own: np.ndarray, here: np.ndarray) -> bool:
    """Whether two of the coordinates `own` (n,) are tied to nearly all others; `here` (d,) is the score.

    A soft constraint on their sum ties all by the same entry. It does not count beside the ties of a series
    or a map, which have laws that know of it. Effects have no others, and their law knows nothing of it.
    """
    ties, entries = [], []
    for place, column in two_columns(density, x, own, here):
        others = np.delete(column[own], place)
        ties.append(np.abs(others) > NOISE * abs(column[own[place]]))
        if not ties[-1].mean() >= _TIED:
            return False
        # In the program's own coordinates, where those of a sum are the same.
        entries.append(np.delete(column[own] / density.unit[own], place) / density.unit[own[place]])
    levels = [np.median(one) for one in entries]
    if abs(levels[0] - levels[1]) < _SAME * abs(levels[0]):
        far = [np.abs(one / level - 1.0) for one, level in zip(entries, levels, strict=True)]
        if not all(one.max() < _ALL_SAME for one in far):
            ties = [one & ~(away < _SAME) for one, away in zip(ties, far, strict=True)]
    return all(one.mean() >= _TIED for one in ties)


def _block(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> np.ndarray | None:
    """The block (n, n) of the negative Hessian, in the program's own coordinates; None without scores."""
    columns = density.curvatures(x, axes(x.size, own))[:, own]
    if not np.isfinite(columns).all():
        return None
    block = columns / np.outer(density.unit[own], density.unit[own])
    return np.asarray(0.5 * (block + block.T))
