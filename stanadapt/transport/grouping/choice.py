"""Which groups a map has after a window of warm-up.

`choose_groups` decides this for group.py, from the draws and scores of the last two windows and from the
groups in use: it drops some of them, fits the others again, and adds new ones. It minimises F, the divergence
of groups.py. At the end of a window it takes these steps, in this order:

1. *Judge.* The draws of the window that has just ended are younger than the map. A group stays if F is
   smaller with it than without it in these draws, or if it explains the scores of its members wholly.
2. *Refit.* A group that stays is fitted to all draws if this makes enough of a difference. Otherwise it keeps
   its numbers, so that the map comes to rest and warm-up can end. A group loses a second scale parameter or
   an offset if the scores do not ask for it.
3. *Explain.* Laws that explain the scores of their members wholly are taken (exact_laws.py). The next steps
   are for coordinates without such a law: their likelihood is not normal, for example.
4. *Detect* the group and the scale parameter that promise the largest decrease of F (detection.py).
5. *Locate* the group (places.py). Where the scores clearly prefer one location, they decide; elsewhere F
   decides, and to choose among k coordinates for each of m members, F in n draws must decrease by m log k / n
   more.
6. *Fit* the numbers of the law (fit.py).
7. *Guard.* The law is fitted to the older half of the draws. On the newer half it must beat both no map and a
   map that is linear in scale parameter and location, by a margin.

Groups that explain the scores of all variables that may have one, and of their data, are kept as they are:
the next windows only ask if they still do.

Groups are undone from the last one of the map to its first. A group is judged and fitted in draws in which
the other groups are undone, except those that move its scale parameters and locations: its law holds for the
coordinates of the program.
"""

from __future__ import annotations

import contextlib

import numpy as np

from ..training import Training
from .detection import LEAST_GAIN, NEED, detect, may_be_parents, slope_gains
from .exact_laws import (
    WORTH,
    has_exact_data,
    is_exact,
    needs_no_more,
    needs_offset,
    question_of_more,
    simplify,
    with_exact_groups,
    with_likelihood,
    with_slope,
)
from .fit import fit_law
from .groups import (
    Group,
    ScoredDraws,
    all_but,
    decrease_of,
    divergence,
    group_rows,
    groups_of,
    order_groups,
    others_of,
    plain_divergence,
    pull_draws,
    root_divergence,
)
from .places import (
    BETAS,
    NOWHERE,
    Place,
    likeliest_place,
    part_of,
    possible_places,
    residual_share,
    single_places,
)

PROMISE = 1.0  # a place with an offset is tried if F is expected to decrease by more than this
OFFSET_GAIN = 0.1  # an offset must decrease F by this for each coordinate
MARGIN = 0.3  # a group must decrease F by this on the newer half of the draws
LEAD = 0.5  # a location must decrease F by so much more than no location, or than another one
SETTLED = 0.02  # a group stays as it is if a new fit decreases F by less than this for each coordinate
_ROUNDS = 4  # number of new groups that a window may bring
_JUDGES = 15  # fewest draws of a window that judge a group


def choose_groups(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows of the groups that a map has next, learned from draws and from `rows`, those in use."""
    with contextlib.suppress(np.linalg.LinAlgError):
        return _choose_groups(rows, training)
    return rows


def exact_groups(training: Training) -> np.ndarray:
    """The rows of groups that explain scores wholly, and of no other groups, for a chain without a map."""
    draws = ScoredDraws(training.points, training.scores, known={})
    draws = with_likelihood(draws, [], training.variables, training.refused)
    groups = with_exact_groups([], draws, training.variables, training.new, training.refused)
    return group_rows(order_groups(groups) or [], training.points)


def _choose_groups(moves: np.ndarray, training: Training) -> np.ndarray:
    variables, new, room, refused = training.variables, training.new, training.room, training.refused
    old = groups_of(moves)
    draws = ScoredDraws(training.points, training.scores, known={})
    draws = with_likelihood(draws, old, variables, refused)
    if question_of_more(moves) in refused:
        if needs_no_more(old, draws, variables):
            return moves
        refused.remove(question_of_more(moves))
    groups = _judge(old, draws.part(slice(training.before, None)), draws)
    for k in range(len(groups)):
        pulled = pull_draws(draws, others_of(groups, groups[k]))
        others = all_but(groups, groups[k])
        if groups[k].error >= 0 and not has_exact_data(groups[k], others, draws):
            groups[k] = groups[k]._replace(error=-1)
        groups[k] = simplify(groups[k], groups, draws, pulled)
        if not has_exact_data(groups[k], others, draws):
            groups[k] = _refit(groups[k], pulled)
        if new and room and not is_exact(groups[k], others, draws):
            groups[k] = _with_other_locations(groups[k], groups, draws, variables)
            groups[k] = _with_second_scale(groups[k], groups, draws, pulled, variables)
    groups = order_groups(with_exact_groups(groups, draws, variables, new, refused)) or groups
    if new:
        groups = _with_scaled_parts(groups, draws)
    in_vain: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS if new and room else 0):
        pulled = pull_draws(draws, groups)
        found = detect(pulled, groups, variables, in_vain)
        if found is None:
            break
        members, scales, sign, name, promise = found
        numbers = 0.0, 0.0, np.zeros(0), np.zeros(0)
        law = Group(members, scales, sign * BETAS[0], -1, 0.0, NOWHERE, *numbers)
        nowhere = Place(NOWHERE, pulled, 0.0)
        places = [nowhere, *single_places(draws, pulled, groups, variables, law)]
        places = possible_places(places, law, groups, draws, variables)
        group = _choose(places, law, promise, groups, draws)
        if group is None:
            in_vain.add(name)
        else:
            groups = order_groups([*groups, group]) or groups
    unchanged = len(groups) == len(old) and all(a is b for a, b in zip(groups, old, strict=True))
    moves = moves if unchanged else group_rows(groups, draws.points)
    if needs_no_more(groups, draws, variables):
        refused.add(question_of_more(moves))
    return moves


def _judge(groups: list[Group], draws: ScoredDraws, whole: ScoredDraws) -> list[Group]:
    """The groups that decrease F in the last window, `draws`, or explain the scores of `whole` wholly."""
    kept = list(groups)
    if len(draws.points) < _JUDGES:
        return kept
    for group in groups:
        others = all_but(kept, group)
        if is_exact(group, others, whole):  # the quicker question, since later steps ask it again
            continue
        if not decrease_of(pull_draws(draws, others_of(kept, group)), group) > 0.0:
            kept = others
    return kept


def _with_scaled_parts(groups: list[Group], draws: ScoredDraws) -> list[Group]:
    """The groups, and a new one for coordinates x_q that are in locations p + e^(b v) x_q and not moved yet.

    The group with these locations takes its own terms out of the scores of x_q. What is left are the terms of
    a program that is not centred, where the data depend on p + e^(b v) x_q.
    """
    for group in groups:
        members = np.unique(group.parts)
        moved = {int(i) for other in groups for i in other.members}
        if group.part_scale < 0 or moved.intersection(map(int, members)):
            continue
        located, none = float(group.locations[0] >= 0), np.zeros(0)
        numbers = -group.part_beta, -1, 0.0, group.locations, -located, 0.0, none, none
        law = Group(members, np.array([group.part_scale]), *numbers)
        pulled = pull_draws(draws, others_of([*groups, law], law))
        law = fit_law(pulled, law, free=False)
        older, newer = (plain_divergence(half, law) - divergence(half, law) for half in pulled.halves())
        if older > 0.0 and newer > 0.0:
            groups = order_groups([*groups, law]) or groups
    return groups


def _refit(group: Group, draws: ScoredDraws) -> Group:
    """The group, fitted to all draws if this makes enough of a difference, else as it is."""
    best, least = group, divergence(draws, group) - SETTLED * len(group.members)
    offset = group.offset != 0.0
    free = offset or not float(group.slope).is_integer()
    for size in BETAS:
        beta = float(np.sign(group.beta) * size)
        fit = fit_law(draws, group._replace(beta=beta), free=free, offset=offset)
        value = divergence(draws, fit) + (0.0 if beta == group.beta else 3.0 / len(draws.points))
        if value < least:
            best, least = fit, value
    return best


def _with_offset(group: Group, groups: list[Group], raw: ScoredDraws, draws: ScoredDraws) -> Group:
    """The group with an offset of its prior mean, if its law can have one and the scores and both halves of
    the draws ask for it; else the group as it is.
    """
    if group.beta < 0.0 or group.offset != 0.0 or not needs_offset(group, groups, raw):
        return group
    least = LEAD + OFFSET_GAIN * len(group.members)
    shifted = fit_law(draws, group, offset=True)
    if not divergence(draws, group) - divergence(draws, shifted) > least:
        return group
    older, newer = draws.halves()
    gain = divergence(newer, fit_law(older, group)) - divergence(newer, fit_law(older, group, offset=True))
    return shifted if gain > least else group


def _choose(
    places: list[Place], law: Group, promise: float, groups: list[Group], raw: ScoredDraws
) -> Group | None:
    """The law and location of a new group; None where the newer half of the draws does not support it.

    The derivative of F promises a decrease by `promise`. If this is much, but no place decreases F, places
    with an offset are tried.
    """
    found = _choose_place(places, law, offset=False)
    if found is None and promise > PROMISE and law.beta > 0.0:
        shifted = [place for place in places if needs_offset(place.of(law), groups, raw)]
        found = _choose_place(shifted, law, offset=True) if shifted else None
    if found is None:
        return None
    return _with_offset(with_slope(found[0], groups, raw, found[1]), groups, raw, found[1])


def _choose_place(places: list[Place], law: Group, *, offset: bool) -> tuple[Group, ScoredDraws] | None:
    """The law and location of a new group, and the draws that it is fitted to; None as in `_choose`."""
    chosen, gain = None, -np.inf
    for place in places:
        whole = place.of(law)
        some = part_of(whole)
        scale = len(whole.members) / len(some.members)
        group = fit_law(place.draws, some, offset=offset)
        decrease = (
            scale * (plain_divergence(place.draws, group) - divergence(place.draws, group)) - place.cost
        )
        if chosen is None or decrease - gain > LEAD:
            chosen, gain = (whole, group, scale, place), decrease
    assert chosen is not None
    law, group, scale, place = chosen
    draws, margin = place.draws, MARGIN + place.cost
    if not (
        scale * decrease_of(draws, group) > margin and _is_supported(draws, group, offset, margin / scale)
    ):
        return None
    best = fit_law(draws, law, offset=offset)
    gain = decrease_of(draws, best)
    for size in BETAS[1:]:
        group = fit_law(draws, best._replace(beta=float(np.sign(law.beta) * size)), offset=offset)
        if (decrease := decrease_of(draws, group)) > gain + 1.0 / len(draws.points):
            best, gain = group, decrease
    return (best, draws) if _is_supported(draws, best, offset, margin) else None


def _is_supported(draws: ScoredDraws, group: Group, offset: bool, margin: float) -> bool:
    """Whether the law, fitted to the older half of the draws, decreases F by `margin` on the newer half."""
    older, newer = draws.halves()
    return decrease_of(newer, fit_law(older, group, offset=offset), older) > margin


def _with_second_scale(
    group: Group, groups: list[Group], raw: ScoredDraws, draws: ScoredDraws, variables: np.ndarray
) -> Group:
    """The group with a second scale parameter that all members share, if the draws and scores ask for it."""
    if group.second >= 0 or group.error >= 0:
        return group
    taken = {int(i) for other in groups for i in (*other.members, *other.scales)}
    scales = np.array([i for i in np.flatnonzero(may_be_parents(variables)) if i not in taken], np.int64)
    if not scales.size:
        return group
    numbers = np.zeros(len(group.members), np.int64)
    undone = pull_draws(draws, [group])
    gain, derivative = slope_gains(undone.points, undone.scores, group.members, numbers, scales)
    k = int(gain[:, 0].argmax())
    if gain[k, 0] < max(NEED / len(draws.points), LEAST_GAIN) or np.sign(-derivative[k, 0]) != np.sign(
        group.beta
    ):
        return group
    older, newer = draws.halves()
    best, gained = group, MARGIN
    others = all_but(groups, group)
    least = residual_share(group, others, raw) - WORTH
    for size in BETAS:
        law = group._replace(second=int(scales[k]), beta_2=float(np.sign(group.beta) * size))
        if residual_share(law, others, raw) > least:
            continue
        offset = group.offset != 0.0
        trial = fit_law(older, law, offset=offset)
        alone = divergence(newer, fit_law(older, group, offset=offset)) + root_divergence(
            newer, [law.second], 0.0
        )
        if (decrease := alone - divergence(newer, trial)) > gained:
            best, gained = fit_law(draws, law, offset=offset), decrease
    return best


def _with_other_locations(
    group: Group, groups: list[Group], draws: ScoredDraws, variables: np.ndarray
) -> Group:
    """The group with another location, or with one for each member, if the draws ask for it.

    The first draws may show the wrong location: where two hierarchies move together, the mean of either one
    fits them.
    """
    rest = all_but(groups, group)
    offset = group.offset != 0.0
    of_parts = group.parts, group.part_scale, group.part_beta
    present = Place(group.locations, pull_draws(draws, others_of(groups, group)), 0.0, *of_parts)
    places = [present, *likeliest_place(draws, rest, variables, group)]
    places = possible_places(places, group, rest, draws, variables)
    if len(places) == 1:
        return group if places[0] is present else fit_law(places[0].draws, places[0].of(group))
    best, gain = group, _newer_decrease(present, group, offset)
    for place in places[1:]:
        law = place.of(group)
        again = group.are_apart and set(variables[place.locations]) == set(variables[group.locations])
        lead = SETTLED * len(group.members) if again else LEAD + place.cost
        if (decrease := _newer_decrease(place, law, offset)) > gain + lead:
            best, gain = fit_law(place.draws, law, offset=offset), decrease
    return best


def _newer_decrease(place: Place, law: Group, offset: bool) -> float:
    """The decrease of F on the newer half of the draws, under the law fitted to the older half."""
    older, newer = place.draws.halves()
    return plain_divergence(newer, law) - divergence(newer, fit_law(older, law, offset=offset))
