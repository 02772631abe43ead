"""Windows of warm-up: they keep a chain's points, from which coordinates and metric are learned.

At the end of a window both are learned anew, from draws and scores of this window and of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Matrix, Vector
from ..transport.composition import into_x, score_in_x, transport_draws
from ..transport.grouping.groups import same_law
from ..transport.learning import is_straight, learn_transport
from ..transport.shape import LEAST
from ..transport.tail import DOUBT, POWER_OF_DOUBT, may_have_tails
from .field_search import without_poor_field
from .linear import double_capacity
from .metric import Metric, compress, distance, drift, hessian_metric, learn_metric
from .metric_choice import EARLY, change, choose_metric, curvature_metric, is_same, learn_dense

# Two windows agree if they have ENOUGH draws, no variance changes by the factor CHANGE, and the drift
# stays below DRIFT.
ENOUGH, CHANGE, DRIFT = 60, 1.5, 3.0
_FIRST_ROWS = 64
NOTHING_REFUSED = np.zeros(0, np.int64)


class Windows(NamedTuple):
    """The points of the present window and of the one before, and their scores, in x."""

    points: np.ndarray  # (room, d)
    scores: np.ndarray  # (room, d)
    seen: int  # rows in use
    before: int  # how many of them belong to the window before


class Lesson(NamedTuple):
    """What is learned from two windows."""

    transport: np.ndarray
    metric: Metric
    steady: bool  # whether the two agree, so that the next window may be the last
    wanted: bool  # whether the next window should begin with the Hessian
    has_new_field: bool = False  # whether `transport` is a field just found: draws before it are left behind
    searches: int = 0  # looks for a field that all chains have had together,
    field_gradients: float = 0.0  # and the gradients that these took
    refused: np.ndarray = NOTHING_REFUSED  # (k,) questions that need not be asked again
    kinks: bool = False  # whether kinks are why steps are short,
    kink_gradients: float = 0.0  # and the gradients that the look for them took


@kernel
def empty_windows(d: Integer) -> Windows:
    """Empty windows, in dimension `d`."""
    return Windows(np.empty((_FIRST_ROWS, d)), np.empty((_FIRST_ROWS, d)), 0, 0)


@kernel
def with_room(windows: Windows, n: Integer) -> Windows:
    """The windows with room for `n` more rows."""
    points, scores = windows.points, windows.scores
    while len(points) < windows.seen + n:
        points, scores = double_capacity(points), double_capacity(scores)
    return Windows(points, scores, windows.seen, windows.before)


def first_window(points: np.ndarray, scores: np.ndarray) -> Windows:
    """Windows that have seen points and scores (k, d) before the first iteration."""
    k, d = points.shape
    windows = with_room(empty_windows(d), k)
    windows.points[:k], windows.scores[:k] = points, scores
    return Windows(windows.points, windows.scores, k, 0)


@kernel(counted=False)
def put(windows: Windows, row: Integer, transport: Matrix, z: Vector, score: Vector) -> None:
    """Write a point z (d,) and its score, both in the coordinates of `transport`, to a row, in x."""
    if len(transport) > 0:
        _put_in_x(windows.points[row], windows.scores[row], transport, z, score)
        return
    for j in range(z.size):
        windows.points[row, j] = z[j]
        windows.scores[row, j] = score[j]


@kernel(late=True)
def _put_in_x(point: Vector, its_score: Vector, transport: Matrix, z: Vector, score: Vector) -> None:
    into_x(transport, z, point)
    found = score_in_x(transport, z, point, score)
    for j in range(z.size):
        its_score[j] = found[j]


def next_window(windows: Windows) -> Windows:
    """The windows when the next one begins: the present one becomes the one before."""
    points, scores, seen, before = windows
    last = seen - before
    points[:last], scores[:last] = points[before:seen], scores[before:seen]
    return Windows(points, scores, last, last)


def joint_windows(all_windows: Sequence[Windows]) -> Windows:
    """The windows of several chains as those of one: first all windows before, then all present ones."""
    pieces = [(windows, slice(0, windows.before)) for windows in all_windows]
    pieces += [(windows, slice(windows.before, windows.seen)) for windows in all_windows]
    points = np.concatenate([windows.points[rows] for windows, rows in pieces])
    scores = np.concatenate([windows.scores[rows] for windows, rows in pieces])
    return Windows(points, scores, len(points), sum(windows.before for windows in all_windows))


def learn_windows(
    windows: Windows,
    transport: np.ndarray,
    metric: Metric,
    hessian: np.ndarray,
    groups: np.ndarray,
    *,
    compressing: bool,
    new: bool,
    gradients: float = 0.0,
    refused: np.ndarray = NOTHING_REFUSED,
    shrunk: float = 1.0,
) -> Lesson:
    """Coordinates and metric at the end of a window; without draws the Hessian's metric, if there is one.

    With `compressing`, a dense metric is compressed to low rank if that saves time. In many dimensions draws
    then choose the form too, see metric_choice.py; `gradients` is the number of gradients that a trajectory
    takes. Without `new`, the map moves only coordinates that it moved before. `refused` (k,) are questions
    that earlier windows have answered (transport/grouping/exact_laws.py). `shrunk` is the ratio of step sizes
    with and before a field.
    """
    (points, scores, n, before), steady = windows, False
    kept = without_poor_field(transport, points[:n], scores[:n], before, shrunk) if new else transport
    known = set(refused.tolist())
    learnt = learn_transport(kept, points[:n], scores[:n], groups, before, new=new, refused=known)
    refused = np.array(sorted(known), np.int64)
    z, score_z = transport_draws(learnt, points[:n], scores[:n])
    if z.shape[1] > EARLY:
        large = _learn_large(learnt, transport, metric, hessian, z, score_z, before, compressing, gradients)
        return large._replace(refused=refused)
    found = hessian_metric(hessian) if len(hessian) else None
    if n:
        found = learn_metric(metric, z, score_z)
    enough = before > 0 and n >= ENOUGH  # draws of an earlier run have no window before them
    if enough and found is not None and len(found.chol_t) and same_law(learnt, transport):
        steady = distance(metric, found) < np.log(CHANGE) and drift(found, z, before) < DRIFT
    if found is not None:
        metric = compress(found) if compressing and len(found.chol_t) else found
    return Lesson(learnt, metric, steady, False, refused=refused)


def _learn_large(
    learnt: np.ndarray,
    transport: np.ndarray,
    metric: Metric,
    hessian: np.ndarray,
    z: np.ndarray,
    score_z: np.ndarray,
    before: int,
    choosing: bool,
    gradients: float,
) -> Lesson:
    """The lesson in many dimensions, where a dense metric may not pay; draws and scores are in z."""
    same, wanted, n = same_law(learnt, transport), False, len(z)
    if n == 0:
        found = curvature_metric(hessian) if len(hessian) else None
    elif choosing:
        at_hand = hessian if same else hessian[:0]
        found, wanted = choose_metric(metric, at_hand, z, score_z, before, gradients=gradients)
    else:
        found = learn_dense(metric, z, score_z)
    if found is None:
        return Lesson(learnt, metric, False, wanted)
    steady = before > 0 and n >= ENOUGH and same and is_same(metric, found, z, before, np.log(CHANGE), DRIFT)
    return Lesson(learnt, found, steady, wanted)


def is_borne_out(
    windows: Windows, transport: np.ndarray, metric: Metric, groups: np.ndarray, compressing: bool
) -> bool:
    """Whether the points seen so far support the present coordinates and the present metric."""
    none = np.empty((0, 0))
    lesson = learn_windows(windows, transport, metric, none, groups, compressing=compressing, new=False)
    return same_law(lesson.transport, transport) and change(metric, lesson.metric) < np.log(CHANGE)


def has_news(windows: Windows, transport: np.ndarray, groups: np.ndarray, refused: np.ndarray) -> bool:
    """Whether the draws so far ask for other coordinates or laws than `transport` has, or leave a doubt.

    `refused` as in `learn_windows`.
    """
    points, scores = windows.points[: windows.seen], windows.scores[: windows.seen]
    known = set(refused.tolist())
    if len(groups) and len(points) >= LEAST:  # the quicker questions first
        z, score_z = transport_draws(transport, points, scores)
        if may_have_tails(z, score_z, DOUBT, POWER_OF_DOUBT):
            return True
        if is_straight(transport, points, scores, groups, known):
            return False
    seen = points, scores, groups, windows.before
    learned = learn_transport(transport, *seen, refused=known)
    return not same_law(learned, transport)
