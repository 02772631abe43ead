"""The law of the heads: all but one of them, given that one, the root.

Where the scale of the noise is small, a series itself tells its own scale, and that scale varies less than
elsewhere. So in the tail of one head the others may be several times as narrow as in the middle, or
elsewhere than on a straight line, and a metric, which is the same everywhere, is too wide there. The ridges
of the design (design.py) tell where the other heads are, given one of them, and how far they vary. Where
that changes, they become the latents of a second field, whose only head is the root. So they do where the
root has a long tail: others may change a little less than what counts, but the tail needs its bend. Heads
that have nothing in common with the root, which stays as it is along their ridges as they do along its own,
may have another root among them, as the scales of two series do: the one along whose ridge others of them
change, or that has a long tail.

The ridge of the root tells its own law, too: the density on the ridge times the widths of the others. It may
have a long tail, or a shoulder, that a chain has not seen yet and comes to once in a thousand draws. A bend
(../bend.py) that is fitted to this law makes it normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ..bend import Bend, bend_rows, left_by_bends
from ..field import Field
from ..field_table import field_rows, in_one_chain
from ..map_table import no_transport
from ..shape import hermite
from .design import Design, RidgePoint
from .head_coordinates import HeadCoordinates
from .laplace import HeadPosterior
from .law_fit import Regressions, fit_regressions

LOWEST = 7.0  # the log density of the heads down to which their law counts, beside the largest one
_WIDTHS = 1.5  # a width changes if it does by this factor,
_BENT = 1.0  # and a location leaves its line if it does by so many widths
_FEWEST = 4  # points of a ridge, beside the middle
# A head with a tail of so many standard deviations has a law as a root, though no other head changes with it:
# the density of a normal law is e^-40 there.
_LONG = 9.0
_CURVE = 60  # points of a curve through a ridge,
_BEYOND, _FLAT = 10.0, 6  # and how far it goes on beyond a short ridge, in spreads of the root; points there
_GRID, _FAR = 60, 4.0  # points of the root's law, and how far they reach, as a normal law does
_EACH = 4  # of these points one tells which bend is the best
_CELLS = 4_000  # of the integral of that law
# Of the bends that are tried: how far their knots are from the middle, and their widths, in spreads, and
# their strengths. Narrower ones may fit better, but trajectories break there.
_KNOTS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
_WIDE, _STRENGTHS = np.array([0.8, 1.1, 1.6, 2.5, 4.0]), np.array([0.3, 0.6, 1.2, 2.4, 4.0, 8.0, 16.0])
# The root gets a bend if its log density is not normal by this, in the mean over such points,
_NOT_NORMAL = 0.3
_BETTER = 0.5  # and if a bend leaves at most this share of it


class HeadLaw(NamedTuple):
    """The law of some heads, which may have either part."""

    root: int  # its coordinate
    others: Field | None  # of all these heads but the root, given the root
    bend: Bend | None  # of the root
    spread: float  # the standard deviation of the root in the coordinate that the bend gives


def head_rows(laws: Sequence[HeadLaw]) -> list[np.ndarray]:
    """The rows of a map that follow those of the field of the latents."""
    fields = [field_rows(law.others, 0) for law in laws if law.others is not None]
    bends = [law.bend for law in laws if law.bend is not None]
    return in_one_chain(fields) + ([bend_rows(bends, apart=True)] if bends else [])


def spreads_of(laws: Sequence[HeadLaw]) -> dict[int, float]:
    """The standard deviations of the heads that have a law, in its coordinates."""
    spreads = {law.root: law.spread for law in laws}
    for law in laws:
        if law.others is not None:
            spreads |= dict.fromkeys(law.others.own.tolist(), 1.0)
    return spreads


def head_coordinates(
    place: HeadPosterior, heads: np.ndarray, unit: np.ndarray, laws: Sequence[HeadLaw]
) -> HeadCoordinates:
    """Coordinates in which the posterior of the `heads` (m,), with units `unit` (m,), is nearly normal."""
    rows, spreads = np.concatenate((no_transport(), *head_rows(laws))), spreads_of(laws)
    if not np.all(np.isfinite(rows)):
        rows, spreads = no_transport(), {}
    return HeadCoordinates(place, heads, unit, rows, spreads)


def learn_head_laws(design: Design, heads: np.ndarray, unit: np.ndarray) -> list[HeadLaw]:
    """The laws of the `heads` (m,), where one metric does not fit them; `unit` (m,) are their units."""
    ridges, place = [[design.middle(), *ridge] for ridge in design.ridges], design.place
    cov = place.covariance()
    laws = [
        _law_of(ridges[root], root, others, cov, heads, unit) for root, others in _groups(ridges, place.root)
    ]
    return [law for law in laws if law is not None]


def _law_of(
    points: list[RidgePoint],
    root: int,
    others: np.ndarray,
    cov: np.ndarray,
    heads: np.ndarray,
    unit: np.ndarray,
) -> HeadLaw | None:
    """The law of the heads number `root` and `others` (n,), from the ridge of the root, if it can be fitted.

    `cov` (m, m) is the covariance of all heads.
    """
    at = np.array([point.theta[root] for point in points]) * unit[root]
    if len(set(at)) < len(at) or not np.isfinite([point.height for point in points]).all():
        return None
    spread = float(np.sqrt(cov[root, root]) * unit[root])
    of_others = None
    if len(others):
        group = np.sort(np.append(others, root))
        own = group != root
        precision = np.linalg.inv(cov[np.ix_(group, group)])[np.ix_(own, own)]
        data = _regressions(_between(points, root, spread / unit[root]), precision, root, others, unit)
        of_others = fit_regressions(data, heads[[root]], heads[others], np.array([spread]))
    widths = np.array([point.widths for point in points])[:, others]
    log_density = np.array([point.height for point in points]) + np.log(widths / widths[0]).sum(axis=1)
    bent = fit_bend(at, log_density, int(heads[root]), spread)
    if bent is None and of_others is None:
        return None
    return HeadLaw(int(heads[root]), of_others, *(bent or (None, spread)))


def _groups(ridges: list[list[RidgePoint]], root_of_cov: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The roots, each with the other heads (n,) of its law; `root_of_cov` (m, m) is C, where C C^T is the
    covariance of the heads.
    """
    root = _choose_root(ridges, root_of_cov, np.arange(len(ridges)))
    if root is None:
        return []
    others, found = np.delete(np.arange(len(ridges)), root), []
    apart = [b for b in others.tolist() if not len(_changing(ridges[b], b, np.array([root])))]
    same = np.setdiff1d(apart, _changing(ridges[root], root, others))
    while (second := _choose_root(ridges, root_of_cov, same)) is not None:
        changing = _changing(ridges[second], second, np.setdiff1d(same, second))
        found.append((second, changing))
        same, others = (np.setdiff1d(one, [second, *changing]) for one in (same, others))
    return [(root, others), *found]


def _choose_root(ridges: list[list[RidgePoint]], root_of_cov: np.ndarray, among: np.ndarray) -> int | None:
    """The head of those `among` (k,) with the longest tail, if this is long or others change along it."""
    best, longest, least = None, 0.0, 0.0 if len(ridges) == 1 else _LONG
    for a in among:
        points, others = ridges[a], np.setdiff1d(among, a)
        at = np.array([point.theta[a] for point in points])
        reach = float(np.abs(at - at[0]).max() / np.linalg.norm(root_of_cov[a]))
        if len(points) > _FEWEST and reach > longest and (reach > least or len(_changing(points, a, others))):
            best, longest = int(a), reach
    return best


def _changing(points: list[RidgePoint], root: int, others: np.ndarray) -> np.ndarray:
    """Those of the `others` (n,) whose widths change along a ridge, or that leave a straight line there."""
    near = [point for point in points if point.height > -LOWEST]
    thetas, widths = np.array([point.theta for point in near]), np.array([point.widths for point in near])
    at = np.column_stack((np.ones(len(near)), thetas[:, root]))

    def changes(b: int) -> bool:
        if np.abs(np.log(widths[:, b] / widths[0, b])).max() > np.log(_WIDTHS):
            return True
        line = np.linalg.lstsq(at / widths[:, b, None], thetas[:, b] / widths[:, b], rcond=None)[0]
        return bool(np.abs((thetas[:, b] - at @ line) / widths[:, b]).max() > _BENT)

    return np.array([b for b in others if changes(b)], np.int64)


def _between(points: list[RidgePoint], root: int, spread: float) -> list[RidgePoint]:
    """The first point of a ridge, and many on a curve through all, which keeps to their range.

    A law that is fitted to few points swings between them. Beyond the ends of a short ridge nothing is
    known, and a chain may be there when it comes from far out. So the curve goes on without a change to
    `_BEYOND` spreads of the root from the middle, lest widths go to 0.
    """
    from scipy.interpolate import PchipInterpolator  # here: the import takes a fifth of a second

    order = np.argsort([point.theta[root] for point in points])
    rows = [np.concatenate((points[i].theta, np.log(points[i].widths), [points[i].height])) for i in order]
    at = np.array(rows)[:, root]
    curve = PchipInterpolator(at, np.array(rows))(np.linspace(at[0], at[-1], _CURVE))
    m, middle, parts = len(points[0].theta), points[0].theta[root], [curve]
    for end, side in ((curve[[0]], -1.0), (curve[[-1]], 1.0)):
        last = middle + side * _BEYOND * spread
        if side * (last - end[0, root]) > 0.0:
            parts.append(np.repeat(end, _FLAT, axis=0))
            parts[-1][:, root] = np.linspace(end[0, root], last, _FLAT + 1)[1:]
    curve = np.concatenate(parts)
    return [points[0], *(RidgePoint(row[:m], np.exp(row[m : 2 * m]), row[2 * m]) for row in curve)]


def _regressions(
    points: list[RidgePoint], precision: np.ndarray, root: int, others: np.ndarray, unit: np.ndarray
) -> Regressions:
    """The regressions of the other heads on later ones, at the points of a ridge.

    `precision` (n, n) is theirs given the root, in the middle. Their partial correlations are taken to be the
    same at all points, since a ridge tells widths alone.
    """
    n, sizes = len(others), np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision / np.outer(sizes, sizes))
    widths = np.array([point.widths for point in points])[:, others] * unit[others]
    columns, later = np.triu_indices(n, 1)  # the entries below the diagonal, column by column
    entries = (lower / np.diag(lower))[later, columns] * widths[:, columns] / widths[:, later]
    thetas = np.array([point.theta for point in points]) * unit
    spread = np.sqrt(np.diag(np.linalg.inv(lower @ lower.T)))
    return Regressions(
        thetas[:, [root]],
        np.array([point.height for point in points]),
        thetas[:, others],
        np.log(widths / np.diag(lower)),
        entries,
        np.concatenate(([0], np.cumsum(np.arange(n - 1, -1, -1)))).astype(np.int64),
        later.astype(np.int64),
        widths * spread,
    )


def fit_bend(at: np.ndarray, log_density: np.ndarray, place: int, spread: float) -> tuple[Bend, float] | None:
    """The bend that makes the law of a coordinate normal, and the standard deviation that it leaves.

    The law has the log densities (p,) at the points `at` (p,), of which the first is in the middle. None if
    it is nearly normal, or if no bend makes it so.
    """
    order = np.argsort(at)
    ends, middle = at[order[[0, -1]]], at[0]
    at, log_density = at[order], log_density[order]
    gradient = np.gradient(log_density, at, edge_order=2)
    slopes = gradient[[0, -1]]
    if not (slopes[0] > 0.0 > slopes[1]):  # the law has no end there
        return None

    def law(x: np.ndarray) -> np.ndarray:
        slope = np.where(x < ends[0], slopes[0], slopes[1])
        inside = np.clip(x, *ends)
        return np.asarray(hermite(at, log_density, gradient, inside) + slope * (x - inside))

    grid = np.linspace(ends[0] - _FAR / slopes[0], ends[1] - _FAR / slopes[1], _CELLS)
    shares = np.cumsum(np.exp(law(grid) - log_density.max()))
    x = np.interp(ndtr(np.linspace(-_FAR, _FAR, _GRID)), shares / shares[-1], grid)
    log_law, side = law(x), 1.0 if x[-1] - middle > middle - x[0] else -1.0

    def left_by(every: int, *bends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What bends leave on some of the points, and the coefficients of the square, see `left_by_bends`."""
        points = np.ascontiguousarray(x[::every]), np.ascontiguousarray(log_law[::every])
        left: tuple[np.ndarray, np.ndarray] = left_by_bends(*points, *bends, side, 1.0)
        return left

    without = left_by(1, np.array([middle]), np.zeros(1), np.array([spread]))[0][0]
    if without < _NOT_NORMAL**2:
        return None
    axes = np.meshgrid(middle + side * spread * _KNOTS, _STRENGTHS, spread * _WIDE, indexing="ij")
    knots, strengths, widths = (axis.ravel() for axis in axes)
    of_few, _ = left_by(_EACH, knots, strengths, widths)
    best = int(np.where(np.isnan(of_few), np.inf, of_few).argmin())
    (left,), (square,) = left_by(1, knots[[best]], strengths[[best]], widths[[best]])
    if not (left < _BETTER**2 * without and square < 0.0):
        return None
    bend = Bend(place, float(knots[best]), float(strengths[best]), float(widths[best]), side, 1.0)
    return bend, float(np.sqrt(-0.5 / square))
