"""When a chain looks for a latent field in warm-up, and whether it keeps the one that it has.

A field (transport/field.py) is learned from the density itself, at points where the chain has not been
(transport/fields/). So it helps the burn-in too: a chain whose scale parameters do not move yet gets
coordinates in which they do. The search costs some gradients, so a chain begins it only if its trajectories
are long, and if the gradients are few beside those that the chain has taken. Both are counts, so that draws
depend on the seed alone.

At the end of each later window the field is judged by draws of that window, which it was not fitted to. It is
given up if the best linear metric without it fits them clearly better than the best one with it, by the
Fisher divergence (metric_choice.py). Where it fits, the divergence is a hundred times smaller with it.

A chain with a wrong field may stand nearly still, and where it stands its draws fit any coordinates. So a
field is given up too if steps are still far shorter in its second window than they were before it was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..target import Failures, ProgramGradient, log_density_gradient, log_density_gradients
from ..transport.composition import transport_draws
from ..transport.effects_table import LARGEST, LEAST_EFFECTS, LEAST_GROUPS
from ..transport.field_table import latents_and_heads, middle_of_field, split, without_effects
from ..transport.map_table import have_scale_of_effects, no_transport
from .metric import Metric, learn_metric
from .metric_choice import EARLY, divergence, learn_diagonal, metric_of, unit_metric

if TYPE_CHECKING:
    from ..transport.fields.learned_law import Learned
    from ..transport.fields.probes import Evaluate

LEAST_SIZE = 9  # a head and eight latents; fewer coordinates need no field
LARGEST_SIZE = 5_000  # the look for neighbours holds a matrix of so many rows
LEAST_DRAWS = 30  # before a search: their spread tells the scales of the coordinates
LONG = 5.0  # a search pays if a trajectory takes at least so many gradients
# A look for neighbours takes at most this multiple of the gradients of the last two windows, or of the last
# one where effects alone are looked for.
SHARE = 2.0
SHARE_AGAIN = 2.0  # after a search in vain, it took at most this multiple of the gradients of the last window
DRAWS = 2_500.0  # a search in a dense block may take as many gradients as so many draws take without a field
MOST_SEARCHES = 2
# More of them are begun if all those in vain have taken at most this share of the gradients of the last
# window. A chain that has been on its way from far out for long has seen only places where no law holds.
CHEAP = 0.05
NO_MORE = 1_000  # searches: a chain that has had a field, or for which one has no use, begins no other
FAR = 12.0  # the square of a standard normal vector is no draw's if it exceeds its mean by so many deviations
FARTHEST = 3.0  # in standard deviations, for a coordinate of a point that is drawn in
POOR = 2.0  # a field is given up if the divergence is larger with it by this factor,
GOOD = 0.1  # but not if no more than this is left with it, where hardly anything could be better without
_JUDGES = 30  # fewest draws that judge a field
# Steps are far shorter with a field if they shrink by this. Where the metric is still to be learned in the
# coordinates of a good field, they have shrunk to 0.03 for a while; with wrong ones to 0.002 to 0.014.
_SHRUNK = 0.02
# Members that tell to how many others they are tied, steps of their differences, in units, and the least
# entry beside the diagonal.
_PROBES, _STEP, _TIE = 5, 1e-4, 1e-5


def seeks_field(
    d: int,
    transport: np.ndarray,
    searches: int,
    taken: float,
    draws: int,
    gradients: float,
    *,
    before: int = 0,
) -> bool:
    """Whether to look for a field, after so many draws with so many gradients each.

    The window `before` had draws, too. Earlier searches were in vain, and have `taken` so many gradients.
    """
    return (
        LEAST_SIZE <= d <= LARGEST_SIZE
        and (searches < MOST_SEARCHES or (searches < NO_MORE and taken <= CHEAP * draws * gradients))
        and not len(split(transport)[0])
        and draws >= LEAST_DRAWS
        and gradients >= LONG
        and d <= SHARE * (before + draws) * gradients
        and taken <= SHARE_AGAIN * draws * gradients
    )


def seeks_effects(
    d: int, transport: np.ndarray, taken: float, members: np.ndarray, draws: int, gradients: float
) -> bool:
    """Whether to look for correlated effects alone, after so many draws with so many gradients each.

    Trajectories may be short where a chain has not seen the tails, or where groups hide what ties effects. So
    a chain looks once if it has not looked for a field. `members` are the coordinates that may be effects.
    """
    return (
        len(members) >= LEAST_EFFECTS
        and draws >= LEAST_DRAWS
        and d <= min(LARGEST_SIZE, SHARE * draws * gradients)
        and not taken
        and not len(split(transport)[0])
    )


def possible_effects(variables: np.ndarray) -> np.ndarray:
    """The coordinates of variables that have an entry for each of some groups, by their numbers (d,)."""
    return np.flatnonzero(np.bincount(variables, minlength=1)[variables] >= LEAST_GROUPS)


def _are_tied_to_few(
    target: Any, x: np.ndarray, unit: np.ndarray, members: np.ndarray, variables: np.ndarray
) -> bool:
    """Whether `members` are tied to few others each, or to none, as effects are, by columns of the Hessian.

    Those of crossed factors are tied to all effects of the other one, but to few of their own `variables`.
    """
    here, ahead = np.empty(x.size), np.empty(x.size)
    if not np.isfinite(log_density_gradient(target, x, here)):
        return False
    few, most = 0, min(LARGEST, len(members) // LEAST_GROUPS)
    for j in members[:: max(len(members) // _PROBES, 1)][:_PROBES]:
        moved = x.copy()
        moved[j] += _STEP * unit[j]
        if np.isfinite(log_density_gradient(target, moved, ahead)):
            column = np.abs(ahead - here)[members] * unit[members]
            is_tied = column > _TIE * column.max()
            own = np.count_nonzero(is_tied & (variables[members] == variables[j]))
            few += bool((own if own > 1 else np.count_nonzero(is_tied)) <= most)
    return 2 * few > _PROBES


@np.errstate(all="ignore")
def search_field(
    target: Any,
    x: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    gradients: float,
    members: np.ndarray | None = None,
    *,
    last: bool,
) -> tuple[Learned | None, int]:
    """The field or the effects that are found from `x` (d,), or None, and the gradients that it took.

    `target` may have a map; `x`, draws and scores (n, d) are in the program's own coordinates. The spread of
    draws and scores gives the units. A draw takes so many `gradients` now; failures of the density are not
    the chain's. With `members`, those that may be correlated effects, these alone are looked for. The `last`
    search takes what an earlier one leaves, in the hope of better.
    """
    unit = np.sqrt(points.std(axis=0) / scores.std(axis=0))
    unit = np.where(np.isfinite(unit) & (unit > 0.0), unit, 1.0)
    from ..transport.fields import field_learning  # here, since few runs come to it

    def density_in(transport: np.ndarray) -> Evaluate:
        aside = _aside(target, transport, x.size)
        return _Mapped(aside) if len(transport) else ProgramGradient(aside)

    if members is not None:
        few = _are_tied_to_few(_aside(target, no_transport(), x.size), x, unit, members, variables)
        learn = field_learning.learn_effects if few else field_learning.learn_tied_effects
        found, taken = learn(density_in, x, unit, variables)
        return found, taken + _PROBES + 1
    most_dense = DRAWS * gradients
    return field_learning.learn_field(density_in, x, unit, variables, most_dense=most_dense, last=last)


@np.errstate(all="ignore")
def draw_in(
    target: Any, transport: np.ndarray, spread: np.ndarray, z: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """A point nearer than `z` (d,), its log density and its score in the coordinates of a field just found.

    A search may begin where the chain is on its way from far out. The law need not hold there, so that the
    chain would stand still, and give the field up. So if latents or heads are farther out, in their `spread`
    (d,), than a draw could be, they are drawn in to where draws are. The search knows where that is. None if
    `z` is not so far out.
    """
    middle, nearer = middle_of_field(transport, z.size), z.copy()
    for part in latents_and_heads(transport):
        away = (z[part] - middle[part]) / spread[part]
        square, size = float(away @ away), len(part)
        if square > size + FAR * np.sqrt(2.0 * size):
            # Where a law breaks down, a few latents may be far out alone.
            away = np.clip(np.sqrt(size / square) * away, -FARTHEST, FARTHEST)
            nearer[part] = middle[part] + away * spread[part]
    if np.array_equal(nearer, z):
        return None
    score = np.empty(z.size)
    return nearer, float(log_density_gradient(_aside(target, transport, z.size), nearer, score)), score


class _Mapped:
    """The density of a target that has a map, called from Python."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        return float(log_density_gradient(self._target, x, score))

    def at_all(self, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The log densities (n,) at points (n, d), whose scores are written, in one call."""
        found = np.empty(len(points))
        log_density_gradients(self._target, points, scores, found)
        return found


def _aside(target: Any, transport: np.ndarray, d: int) -> Any:
    """A target in the coordinates of a map, which counts its failures apart from those of the chain."""
    return target._replace(transport=transport, failures=Failures(np.zeros(1, np.int64), np.zeros(d)))


def metric_of_field(found: Learned, *, dense: bool, compressing: bool) -> Metric:
    """The metric with which a chain begins in the coordinates of a field."""
    none, d = np.empty((0, 0)), found.scale.size
    if d > EARLY and not dense:
        return Metric(none, none, found.scale, found.directions, found.variances)
    inner = np.eye(d) + found.directions.T @ ((found.variances - 1.0)[:, None] * found.directions)
    return metric_of(inner * np.outer(found.scale, found.scale), dense=dense, compressing=compressing)


def without_poor_field(
    transport: np.ndarray, points: np.ndarray, scores: np.ndarray, before: int, shrunk: float = 1.0
) -> np.ndarray:
    """The map, without its field if draws and scores in x (n, d) are better off without it; or without the
    effects that it has beside the field.

    The first `before` draws are from the window before, and judge nothing. With the field steps have `shrunk`
    to this ratio.
    """
    field, others = split(transport)
    points, scores = points[before:], scores[before:]
    if not len(field) or len(points) < _JUDGES:
        return transport
    without = np.asarray(others[~have_scale_of_effects(others)])
    if before and shrunk < _SHRUNK:
        return without
    z, score_z = transport_draws(field, points, scores)
    left = _divergence(z, score_z, low_rank=False)
    if left < GOOD:
        return transport
    alone = without_effects(field)
    if 0 < len(alone) < len(field):
        in_alone = transport_draws(alone, points, scores)
        with_effects = _divergence(z, score_z, low_rank=True)
        if with_effects > POOR * _divergence(*in_alone, low_rank=True):
            field, (z, score_z) = alone, in_alone
            transport, left = np.concatenate((alone, others)), _divergence(z, score_z, low_rank=False)
    most = POOR * min(_divergence(points, scores, low_rank) for low_rank in (False, True))
    poor = left > most and _divergence(z, score_z, low_rank=True) > most
    return without if poor else transport


def _divergence(points: np.ndarray, scores: np.ndarray, low_rank: bool) -> float:
    """The divergence of a diagonal or low-rank metric, fitted to the older half, on the newer half."""
    half = len(points) // 2
    older, newer = (points[:half], scores[:half]), (points[half:], scores[half:])
    learned = learn_metric(unit_metric(points.shape[1]), *older) if low_rank else learn_diagonal(*older)
    return divergence(learned, *newer)
