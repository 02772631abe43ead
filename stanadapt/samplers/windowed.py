"""The warm-up of Fisher HMC in windows: what it learns between them, and what it hands over and takes over.

A run may take over what an earlier run has learned. It then begins with the metric of that run. Draws of the
earlier posterior, with their scores under the new posterior, take the place of the first windows. If metric
and draws agree with what the chain itself sees, its third window is the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..numerics.field_search import (
    MOST_SEARCHES,
    NO_MORE,
    draw_in,
    metric_of_field,
    possible_effects,
    search_field,
    seeks_effects,
    seeks_field,
)
from ..numerics.kinks import IN_VAIN, SHARE, SHORT, has_kinks
from ..numerics.metric import Metric, as_matrix, diagonal
from ..numerics.metric_choice import metric_of
from ..numerics.splitting import trajectory_steps
from ..numerics.step_size import dual_averaging
from ..numerics.windows import (
    NOTHING_REFUSED,
    Lesson,
    empty_windows,
    first_window,
    has_news,
    is_borne_out,
    joint_windows,
    learn_windows,
    next_window,
)
from ..transport.composition import change_coordinates, transport_draws
from ..transport.map_table import no_transport
from .base import Handover, Stage

LAST = "last_window"
# Trajectories of more steps than this must be needed: the next window has fewer, or not more, where no
# coordinate of a draw correlates by more than these with the draw before.
MANY, SLOW = 64, (0.5, 0.6)
FIRST_STEP = 1.0  # in the coordinates of a field, where the posterior is nearly a standard normal law
AUTO, DENSE = 0, 1  # indices of the setting `metric`
COLD, WARM = (15, 15, 30, 40, 60, 96), (30, 30, 40, 60, 96)  # the first windows of a warm-up
POOLED = (15, 15, 20, 30)  # of chains that learn together: each window has the draws of all of them


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """The windows of a run that takes nothing over."""
    return _windows(growing_windows(warmup, POOLED if settings.pooled else COLD))


def warm_stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """The windows after `take_over`."""
    return _windows(growing_windows(warmup, WARM))


def warm_settings(settings: Any) -> Any:
    """The settings for `start` before `take_over`, which needs no Hessian."""
    return settings._replace(curvature=False)


def _windows(lengths: list[int]) -> list[Stage]:
    *first, last = lengths or [0]
    return [*(Stage(f"window_{i}", length) for i, length in enumerate(first, 1)), Stage(LAST, last)]


def growing_windows(warmup: int, first: Sequence[int] = COLD) -> list[int]:
    """The lengths of the windows of a warm-up: the first ones, then 1.6 times the last.

    If less than half of the next window is left at the end, it joins the last window.
    """
    left = warmup
    lengths: list[int] = []
    while left:
        length = first[len(lengths)] if len(lengths) < len(first) else int(1.6 * lengths[-1])
        lengths.append(left if left < 1.5 * length else length)
        left -= lengths[-1]
    return lengths


def take_over(state: Any, handover: Handover, settings: Any) -> Any:
    """Begin with the metric, the coordinates and, if it is known, the step size of an earlier chain."""
    known = handover.step_size > 0.0
    step_size = min(handover.step_size, settings.trajectory) if known else state.step_size
    return state._replace(
        step_size=step_size,
        search=dual_averaging(step_size),
        most=settings.max_steps if known else state.most,
        metric=metric_of(handover.cov, dense=settings.metric == DENSE, compressing=settings.metric == AUTO),
        hessian=np.empty((0, 0)),
        transport=handover.transport,
    )


def look(state: Any, points: np.ndarray, scores: np.ndarray, settings: Any) -> tuple[Any, bool]:
    """Use earlier draws and their new scores (k, d), in x, as the window before the first one.

    Returns the state, and whether they support what was taken over, so that no more of them are needed.
    """
    state = state._replace(windows=first_window(points, scores))
    seen = state.windows, state.transport, state.metric, state.groups
    return state, is_borne_out(*seen, settings.metric == AUTO)


def enter(stage: str, state: Any, settings: Any) -> Any:
    """Learn the metric from the last two windows, and start a new search for the step size."""
    return take_lesson(_learn(stage, state, settings), state, settings)


def _learn(stage: str, state: Any, settings: Any) -> Lesson:
    seen = state.windows, state.transport, state.metric, state.hessian, state.groups
    compressing, new = settings.metric == AUTO, stage != LAST
    asking = settings.curvature and new
    pace = _pace(state, settings) if asking else 0.0
    shrunk = state.step_size / state.step_before if state.step_before > 0.0 else 1.0
    return learn_windows(
        *seen, compressing=compressing, new=new, gradients=pace, refused=state.refused, shrunk=shrunk
    )


def take_lesson(lesson: Lesson, state: Any, settings: Any, target: Any = None) -> Any:
    """The state at the beginning of a window, with what has been learned; a new field asks for the target."""
    state = state._replace(kinks=state.kinks or lesson.kinks)
    taken = state._replace(
        search=dual_averaging(state.step_size),
        most=_next_most(state, settings),
        metric=lesson.metric,
        windows=next_window(state.windows),
        hessian=np.full((state.x.size,) * 2, np.nan) if lesson.wanted else np.empty((0, 0)),
        steady=lesson.steady,
        searches=state.searches + lesson.searches,
        field_gradients=state.field_gradients + lesson.field_gradients,
        kink_gradients=state.kink_gradients + lesson.kink_gradients,
        refused=lesson.refused,
    )
    if lesson.has_new_field:
        return _draw_in(target, _move_to_field(taken, lesson.transport))
    x, logp, score = change_coordinates(state.transport, lesson.transport, state.x, state.logp, state.score)
    return taken._replace(x=x, logp=logp, score=score, transport=lesson.transport)


def learn_together(stage: str, states: Sequence[Any], settings: Any) -> Lesson | None:
    """What chains learn from the windows of all of them; None if these may be the last.

    `stage` is the next one. The states have one map, and after the first window one metric. The first state
    alone may have a Hessian, and where few draws leave a metric near the one before, this is its own.
    """
    state = states[0]._replace(windows=joint_windows([state.windows for state in states]))
    return None if is_settled(state) else _learn(stage, state, settings)


def explore_together(target: Any, stage: str, states: Sequence[Any], lesson: Lesson, settings: Any) -> Lesson:
    """Look for kinks and a latent field, as `explore` does, once for all chains about to take a lesson.

    The search begins at the state with the median log density, because the highest one may stand in the neck
    of a funnel; and another search at the state above. All chains move to the field, or none does. The first
    search is earlier than that of a chain alone, so that a field which is given up is looked for again.
    """
    windows = joint_windows([state.windows for state in states])
    points, scores = windows.points[windows.before :], windows.scores[windows.before :]
    looked = _look_for_kinks(target, states[0]._replace(windows=windows), settings)
    lesson = lesson._replace(
        kinks=looked.kinks, kink_gradients=looked.kink_gradients - states[0].kink_gradients
    )
    paces = [_next_pace(state._replace(kinks=looked.kinks), settings) for state in states]
    state = states[0]._replace(transport=lesson.transport)
    pace = float(np.mean(paces))
    if stage == LAST or not _seeks(state, len(points), pace, windows.before):
        return lesson
    heights = [_in_x(state)[1] for state in states]
    rank = (len(states) // 2 + state.searches) % len(states)
    begin = states[int(np.argsort(heights, kind="stable")[rank])]
    found = _search(target, begin, points, scores, pace, settings)
    lesson = lesson._replace(searches=found.searches, field_gradients=found.gradients)
    if found.metric is None or not all(_is_finite(_move_to_field(state, found.rows)) for state in states):
        return lesson
    return lesson._replace(
        transport=found.rows, metric=found.metric, steady=False, wanted=False, has_new_field=True
    )


def explore(target: Any, stage: str, state: Any, settings: Any) -> Any:
    """Look for kinks and for a latent field, if trajectories are long, and move to the field's coordinates.

    numerics/kinks.py and numerics/field_search.py say when, and what it costs. This comes before other laws
    are learned, which takes longer, and which a field makes needless.
    """
    if settings.pooled:
        return state
    state = _look_for_kinks(target, state, settings)
    if stage == LAST:
        return state
    windows, pace = state.windows, _next_pace(state, settings)
    points = windows.points[windows.before : windows.seen]
    scores, n = windows.scores[windows.before : windows.seen], len(points)
    members = None if _seeks(state, n, pace, windows.before) else possible_effects(state.groups)
    if members is not None:  # no field, but effects alone
        before = state.transport, state.field_gradients
        if not seeks_effects(state.x.size, *before, members, n, pace):
            return state
    found = _search(target, state, points, scores, pace, settings, members)
    state = state._replace(
        searches=state.searches + found.searches, field_gradients=state.field_gradients + found.gradients
    )
    if found.metric is None:
        return state
    # A field that is given up later is not looked for again.
    moved = _move_to_field(state, found.rows)._replace(metric=found.metric, searches=NO_MORE)
    return _draw_in(target, moved) if _is_finite(moved) else state


def _look_for_kinks(target: Any, state: Any, settings: Any) -> Any:
    """The state, which knows whether kinks are why its steps are short."""
    windows, h, length = state.windows, state.step_size, settings.trajectory
    points = windows.points[windows.before : windows.seen]
    if state.kinks or SHORT * h > length or SHARE * len(points) * _pace(state, settings) < IN_VAIN:
        return state
    found, gradients = has_kinks(target, points, h, length)
    return state._replace(kinks=found, kink_gradients=state.kink_gradients + gradients)


def _seeks(state: Any, draws: int, pace: float, before: int) -> bool:
    seen = state.searches, state.field_gradients, draws, pace
    return len(state.groups) > 0 and seeks_field(state.x.size, state.transport, *seen, before=before)


class _Search(NamedTuple):
    """What a search for a field has come to."""

    searches: int  # how many it counts for
    gradients: float  # that it took
    rows: np.ndarray  # of a map
    metric: Metric | None  # to begin with; None where there is no field


def _search(
    target: Any,
    state: Any,
    points: np.ndarray,
    scores: np.ndarray,
    pace: float,
    settings: Any,
    members: np.ndarray | None = None,
) -> _Search:
    """Look for a field from a state's point, or for effects alone among `members`.

    Draws and scores (n, d) are in x; `pace` is gradients a draw.
    """
    seen = _in_x(state)[0], points, scores, state.groups, pace, members
    found, gradients = search_field(target, *seen, last=state.searches >= MOST_SEARCHES - 1)
    if found is None:
        return _Search(1 if members is None else 0, float(gradients), no_transport(), None)
    if not len(found.rows):
        return _Search(NO_MORE, float(gradients), found.rows, None)
    metric = metric_of_field(found, dense=settings.metric == DENSE, compressing=settings.metric == AUTO)
    return _Search(1, float(gradients), found.rows, metric)


def _in_x(state: Any) -> tuple[np.ndarray, float, np.ndarray]:
    """Point, log density and score of a state in the program's own coordinates."""
    x, logp, score = change_coordinates(state.transport, no_transport(), state.x, state.logp, state.score)
    return x, logp, score


def _move_to_field(state: Any, rows: np.ndarray) -> Any:
    """The state in the coordinates of a field that has just been found.

    Its windows were in coordinates where the chain may hardly have moved, so they are left behind.
    """
    z, logp, score = change_coordinates(no_transport(), rows, *_in_x(state))
    return state._replace(
        x=z,
        logp=logp,
        score=score,
        step_size=FIRST_STEP,
        step_before=state.step_size,
        search=dual_averaging(FIRST_STEP),
        windows=empty_windows(z.size),
        hessian=np.empty((0, 0)),
        steady=False,
        transport=rows,
        refused=NOTHING_REFUSED,
    )


def _draw_in(target: Any, state: Any) -> Any:
    """The state in the coordinates of a field just found, at a nearer point if its own one is far out."""
    found = draw_in(target, state.transport, np.sqrt(diagonal(state.metric)), state.x)
    if found is None:
        return state
    x, logp, score = found
    nearer = state._replace(x=x, logp=logp, score=score)
    return nearer if _is_finite(nearer) else state


def _is_finite(state: Any) -> bool:
    return bool(np.isfinite(state.logp) and np.isfinite(state.x).all() and np.isfinite(state.score).all())


def _next_most(state: Any, settings: Any) -> int:
    """The largest number of steps of a trajectory in the next window.

    Each window doubles it. But beyond `MANY` steps longer trajectories must be needed: where steps are short
    for another reason than scales that differ, draws are nearly independent already. Where kinks are this
    reason, this holds for all trajectories that are longer than those of a Gaussian.
    """
    more: int = min(2 * state.most, settings.max_steps)
    last = state.windows.points[state.windows.before : state.windows.seen]
    enough = min(MANY, int(np.ceil(settings.trajectory / state.step_size))) if state.kinks else MANY
    if state.most < enough or not len(last):
        return more
    fewer = max(state.most // 2, enough)
    longest, shortest = (trajectory_steps(settings, state.step_size, most) for most in (more, fewer))
    if longest == shortest:
        return more
    slowest, (n, d) = _slowest(last), last.shape
    if state.kinks:  # less what the largest of d may be by chance; and of draws that are not the one before
        slowest = 1.0 - (1.0 - slowest + np.sqrt(2.0 * np.log(d) / n)) / settings.kinks_accept
    else:
        slowest -= 1.0 / np.sqrt(n)  # an error, as the largest of many
    if slowest > SLOW[1]:
        return more
    return int(state.most) if slowest > SLOW[0] else fewer


def _slowest(points: np.ndarray) -> float:
    """The largest correlation of a coordinate with itself one draw later, of draws (n, d)."""
    away = points - points.mean(axis=0)
    squares = np.square(away).sum(axis=0)
    moves = squares > 0.0
    products = (away[1:] * away[:-1]).sum(axis=0)
    return float((products[moves] / squares[moves]).max(initial=-1.0))


def _pace(state: Any, settings: Any) -> float:
    """The mean number of gradients that a trajectory takes."""
    return 2.0 * float(trajectory_steps(settings, state.step_size, state.most))


def _next_pace(state: Any, settings: Any) -> float:
    """The same in the window that follows."""
    return _pace(state._replace(most=_next_most(state, settings)), settings)


def is_settled(state: Any) -> bool:
    """Whether the window that has just ended may be the last: it and the one before brought nothing new."""
    return state.steady and not has_news(state.windows, state.transport, state.groups, state.refused)


def hand_over(state: Any, settings: Any, n: int) -> Handover:
    """What a pilot of `n` iterations hands over: its last point, and mean and metric of its last windows."""
    state = enter("handover", state, settings)
    n_seen = state.windows.seen
    z, _ = transport_draws(state.transport, state.windows.points[:n_seen], state.windows.scores[:n_seen])
    return Handover(state.x, z.mean(axis=0), as_matrix(state.metric), n, state.transport)
