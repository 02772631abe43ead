"""More points for the design of a dense precision, which has bumps: its law is right near points alone.

In a wide gap, in the tail of a length scale say, the law may be far off, and a chain that comes there stands
still.
"""

from __future__ import annotations

import numpy as np

from .dense import change_axes, dense_precision
from .design import LOWEST, STEP_SIZES, STEPS, Design
from .laplace import mode_at

# A design has a point at most so far from each one that the walks visit, by the change of precision; so many
# are added before distances are measured anew; and bumps are so wide, in the distances that are left.
_SPACING, _MOST_ADDED, _BUMP = 0.25, 16, 2.5
_COARSER = 20.0  # where the density is smaller by a factor e, gaps may be wider by the share 1 / _COARSER
_WALKERS = 50
_FLATTER = 2.5  # walks see the density of the heads to the power 1 / _FLATTER,
_SEEN = 10.0  # and points are added where its logarithm, beside the largest one, is above minus this


def fill_design(design: Design, rng: np.random.Generator) -> int:
    """Add points to a dense design, each as far as possible from all that it has; returns how many.

    They are chosen among heads that walks visit. The walks see heights that are interpolated between the
    points of the design, which takes no gradients. A law that is far off where there are no points would
    keep them away from there.
    """
    place, (thetas, modes) = design.place, design.points()
    heights = np.array([mode.logp for mode in modes]) - place.mode.logp
    near = heights > -LOWEST
    precisions = [dense_precision(mode) for mode, chosen in zip(modes, near, strict=True) if chosen]
    axes = change_axes(precisions, thetas[near] - place.theta)
    seen, there = _visit_heads(np.linalg.solve(place.root, (thetas - place.theta).T).T, heights, rng)
    seen, shares = place.theta + seen @ place.root.T, np.exp(there / _COARSER)
    away = np.full(len(seen), np.inf)

    def leave_out(theta: np.ndarray) -> None:
        np.minimum(away, shares * np.linalg.norm((seen - theta) @ axes.T, axis=1), out=away)

    for theta in thetas:
        leave_out(theta)
    added = 0
    for _ in range(_MOST_ADDED):
        i = int(away.argmax())
        if away[i] < _SPACING:
            break
        nearest = design.nearest(seen[i])
        mode = mode_at(design.precision, seen[i], nearest.x, nearest.factor)
        leave_out(seen[i])
        if mode is not None and mode.logp > place.mode.logp - 2.0 * LOWEST:
            design.keep(seen[i], mode)
            added += 1
    design.axes = axes / (_BUMP * max(float(away.max()), _SPACING))
    return added


def _visit_heads(
    points: np.ndarray, heights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Heads (k, m) that walks from `points` (p, m) with known `heights` (p,) visit, and their heights (k,).

    They are in units of the heads' root. What a normal law leaves of the heights is interpolated.
    """
    from scipy.interpolate import RBFInterpolator  # here: the import takes a fifth of a second

    kept = np.unique(points, axis=0, return_index=True)[1]
    left = heights + 0.5 * np.square(points).sum(axis=1)
    rest = RBFInterpolator(points[kept], left[kept], kernel="linear", degree=0)

    def height(at: np.ndarray) -> np.ndarray:
        return np.asarray(rest(at) - 0.5 * np.square(at).sum(axis=1))

    here = points[rng.choice(np.flatnonzero(heights > -LOWEST), _WALKERS)]
    high, seen, heights_seen = height(here), [], []
    for _ in range(STEPS):
        sizes = rng.choice(STEP_SIZES, (_WALKERS, 1))
        there = here + sizes * rng.standard_normal(here.shape)
        reached = height(there)
        moves = np.log(rng.uniform(size=_WALKERS)) < (reached - high) / _FLATTER
        here[moves], high[moves] = there[moves], reached[moves]
        chosen = moves & (reached > -_SEEN)
        seen.append(there[chosen])
        heights_seen.append(reached[chosen])
    return np.concatenate(seen), np.concatenate(heights_seen)
