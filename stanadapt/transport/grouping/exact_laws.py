"""Which laws explain the scores of their members wholly, and which numbers these laws have.

`with_exact_groups` finds such laws for choice.py from draws and scores, adds their groups to the map, and
puts them in the place of groups that explain less. `simplify` and `with_slope` correct the numbers of groups.
If both the prior of a group and the likelihood are normal, some law leaves nothing of the group's scores
(scores.py). A few draws then tell scale parameters, locations, C and c with certainty, wherever the draws
are. Nothing else is as clear. F comes from a few hundred draws, and some of these may lie in a neck and close
to each other. Then F can be smaller with a second scale parameter, or with an offset of 0.001, that keeps
chains out of the rest of the neck.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator

import numpy as np

from .detection import FEW, may_be_parents
from .fit import fit_law, law_with_data
from .groups import Group, ScoredDraws, all_but, order_groups, others_of, parents_of, pull_draws
from .places import (
    BETAS,
    CLEAR,
    EXACT,
    FEWEST,
    MOST_PARENTS,
    NOWHERE,
    Place,
    few_of,
    part_of,
    possible_places,
    residual_share,
    single_places,
)
from .scores import (
    data_terms,
    likelihood_of,
    location_in_likelihood,
    places,
    residual_shares,
    residual_shares_alone,
)

WORTH = 0.3  # a second scale or an offset must decrease the mean log of the unexplained share by this
NEAR = 1e-3  # members whose C and c differ by less than this have the same C and c
_DIGITS = 4  # decimals of C and c
CERTAIN = 90  # fewest draws in which such a law is looked for although F shows nothing
TOLD = 40  # fewest draws in which the terms of a shared likelihood are tried
REMEMBERED = 60  # with so many draws and more an answer is final
MOST_SHARED = 12  # coordinates of a variable that may all stand in the likelihood of members of others
MOST_PARTNERS = 2  # of each member
_SCREENED = 80  # newest draws that rule out most laws: what is wholly explained is so in any of them
SPREAD = 0.1  # a log scale must have a larger standard deviation than this


def with_exact_groups(
    groups: list[Group], draws: ScoredDraws, variables: np.ndarray, new: bool, refused: set[int]
) -> list[Group]:
    """The groups, and those that explain the scores of their members wholly, even if F does not decrease yet.

    Where a scale is seldom small, draws in its neck come late or never, but the scores show the law before.
    Such a group takes the place of a group with the same members that leaves something of their scores. Other
    ones are added if `new`. Whether a law is exact does not depend on the draws, so that a question that is
    among the `refused` is not asked again, see `_question`.
    """
    if not variables.max():
        return groups
    sizes, done, count = np.bincount(variables), set[int](), -1
    while len(done) > count:  # a new group explains scores of its locations, too
        count = len(done)
        for g in np.flatnonzero(sizes >= FEWEST):
            members = np.flatnonzero(variables == g)
            present = [group for group in groups if np.isin(members, group.members).any()]
            if g in done or any(len(group.members) != len(members) for group in present):
                continue
            others = [group for group in groups if not any(group is one for one in present)]
            if not (present or new):
                continue
            if present and residual_share(present[0], others, draws) < EXACT:
                continue
            parents = np.setdiff1d(_spread_scales(draws, others, variables), members)[:MOST_PARENTS]
            question = _question(draws, others, [members], parents)
            if question in refused:
                continue
            group = _exact_group(draws, others, variables, members, parents)
            if group is None and len(draws.points) >= REMEMBERED:
                refused.add(question)
            if group is not None and order_groups([*others, group]):
                groups = [*others, group]
                done.add(int(g))
    return groups


def _exact_group(
    draws: ScoredDraws,
    groups: list[Group],
    variables: np.ndarray,
    members: np.ndarray,
    parents: np.ndarray,
) -> Group | None:
    """The law of `members` that explains their scores wholly; None where there is none.

    All members share one of the `parents` as their scale parameter, or each has its own.
    """
    if not _is_left(draws, groups, members):
        return None
    law = _exact_own_scales(draws, groups, variables, members, parents)
    if law is not None or not parents.size:
        return law
    return _shared_scale(draws, groups, variables, members, parents)


def _is_left(draws: ScoredDraws, groups: list[Group], members: np.ndarray) -> bool:
    """Whether something is left of the members' scores without a law."""
    return bool(residual_shares_alone(draws, few_of(members), groups).max() >= EXACT + CLEAR)


def _shared_scale(
    draws: ScoredDraws,
    groups: list[Group],
    variables: np.ndarray,
    members: np.ndarray,
    parents: np.ndarray,
    *,
    plain: bool = False,
) -> Group | None:
    """The law that explains the scores wholly with one of the `parents` as the scale of all members.

    With `plain`, it is a law of some of the members, and not all laws are tried.
    """
    some = few_of(members)
    own = np.isin(np.arange(len(variables)), members)
    small = np.bincount(variables)[variables] <= len(members)
    columns = draws.points[:, ~own & small]
    none = np.zeros(0)
    nested = bool((small & ~own & ~may_be_parents(variables)).any()) and not plain
    for beta, base in _trials(parents, nested)[: 2 if plain else None]:
        if base is not None:  # a location that is not centred itself
            scales = np.exp(draws.points[:, parents])
            parts = draws.points[:, small & ~own & ~may_be_parents(variables)]
            columns = (scales[:, :, None] * parts[:, None, :]).reshape(len(scales), -1)
        location = NOWHERE if base is None else np.array([base])
        shares = _worst_shares(draws, groups, some, parents, columns, beta, location)
        if not shares.min() < EXACT:
            continue
        scale = parents[[int(shares.argmin())]]
        law = Group(members, scale, beta, -1, 0.0, NOWHERE, 0.0, 0.0, none, none)
        law = part_of(law) if plain else law
        pulled = pull_draws(draws, groups)
        if draws.likelihood is not None and beta < 0.0:
            law = law.at(np.array([location_in_likelihood(draws, law, groups)]))
            return _with_exact_place(law, groups, draws, pulled)
        places = [Place(NOWHERE, pulled, 0.0), *single_places(draws, pulled, groups, variables, law)]
        for place in possible_places(places, law, groups, draws, variables):
            if is_exact(place.of(law), groups, draws):
                return _with_exact_place(place.of(law), groups, draws, place.draws)
    return None


def _worst_shares(
    draws: ScoredDraws,
    groups: list[Group],
    members: np.ndarray,
    parents: np.ndarray,
    columns: np.ndarray,
    beta: float,
    location: np.ndarray,
) -> np.ndarray:
    """What laws with each of the `parents` (k,) as scale parameter leave of their worst member's scores (k,).

    One of the `columns`, if there are any, may be the location. Few laws explain the first member wholly, and
    only these are tried with the others: the worst of the rest is the first member here.
    """
    worst, left, none = np.full(len(parents), -np.inf), np.arange(len(parents)), np.zeros(0)
    draws, columns = draws.part(slice(-_SCREENED, None)), columns[-_SCREENED:]
    for some in (members[:1], members[1:]):
        if not (left.size and some.size):
            break
        pairs = np.tile(some, len(left)), np.repeat(parents[left], len(some))
        law = Group(*pairs, beta, -1, 0.0, location, 0.0, 0.0, none, none)
        shares = (
            residual_shares(draws, law, groups, candidates=columns).min(axis=1)
            if columns.shape[1]
            else residual_shares(draws, law, groups)
        )
        worst[left] = np.maximum(worst[left], shares.reshape(len(left), -1).max(axis=1))
        left = np.flatnonzero(worst < EXACT)
    return worst


def _exact_own_scales(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, members: np.ndarray, parents: np.ndarray
) -> Group | None:
    """The law that explains the scores wholly with one scale parameter for each member; None if none does.

    The scale parameters are the coordinates of another variable. One of the `parents` may be a second one.
    """
    every, sizes, none = -(-len(members) // FEWEST), np.bincount(variables), np.zeros(0)
    moved = {int(i) for group in groups for i in group.members}
    for h in np.flatnonzero(sizes == len(members)):
        scales = np.flatnonzero(variables == h)
        if h == variables[members[0]] or moved.intersection(map(int, scales)) or len(scales) <= FEW:
            continue
        for beta, second in itertools.product((1.0, -1.0), (-1, *map(int, parents))):
            law = Group(
                members, scales, beta, second, beta if second >= 0 else 0.0, NOWHERE, 0.0, 0.0, none, none
            )
            some = law._replace(members=members[::every], scales=scales[::every])
            if residual_shares(draws, some, groups).max() < EXACT and is_exact(law, groups, draws):
                return _with_exact_place(
                    law, groups, draws, pull_draws(draws, others_of([*groups, law], law))
                )
    return None


def _trials(parents: np.ndarray, nested: bool) -> list[tuple[float, int | None]]:
    """Pairs to try: beta, and p of a location p + e^(b v) x_q, -1 for no p; None for other locations."""
    found: list[tuple[float, int | None]] = [(sign * size, None) for size in BETAS for sign in (1.0, -1.0)]
    if nested:
        found += [(sign, int(base)) for sign in (1.0, -1.0) for base in (-1, *parents)]
    return found


def with_likelihood(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, refused: set[int]
) -> ScoredDraws:
    """The draws, with a likelihood if some law explains scores wholly with its terms.

    The draws stay as they are if a law explains scores wholly without these terms, or if there are few draws.
    What is among the `refused` is not asked again, see `_question`.
    """
    members = [np.flatnonzero(variables == g) for g in np.flatnonzero(np.bincount(variables) >= FEWEST)]
    if len(draws.points) < TOLD or not variables.max() or not members:
        return draws
    small = np.flatnonzero(may_be_parents(variables))
    shared = _shared_by_members(variables, small[: 2 * MOST_PARENTS], len(draws.points))

    def trials_with(errors: list[int]) -> Iterator[tuple[ScoredDraws, int]]:
        for (others, partners), error in itertools.product(shared, errors):
            likelihood = likelihood_of(draws.points, error, others, partners)
            yield draws._replace(likelihood=likelihood, known={}), error

    for trial, error in trials_with([group.error for group in groups if group.error >= 0][:1]):
        if _explains_one_of(groups, trial, variables, error):
            return trial
    if _explains_one_of(groups, draws, variables, -1):
        return draws
    spread = _spread_scales(draws, groups, variables)
    nothing_more = _question(draws, groups, [small, *members], spread)
    if nothing_more in refused:
        return draws
    asked = [
        (some, others)
        for some in members
        for others in [[group for group in groups if not np.isin(group.members, some).any()]]
        if _is_left(draws, others, some)
    ]

    def has_law(trial: ScoredDraws, error: int) -> bool:
        question = _question(trial, groups, [some for some, _ in asked], spread)
        if question in refused:
            return False
        for some, others in asked:
            parents = np.setdiff1d(spread, [*some, error])[:MOST_PARENTS]
            if (
                parents.size
                and _shared_scale(trial, others, variables, some, parents, plain=True) is not None
            ):
                return True
        if len(draws.points) >= REMEMBERED:
            refused.add(question)
        return False

    if has_law(draws, -1):
        return draws
    trials = list(trials_with([-1, *map(int, small[:MOST_PARENTS])]))
    for trial, error in trials:  # the quicker question first
        if _explains_one_of(groups, trial, variables, error):
            return trial
    for trial, error in trials:
        if has_law(trial, error):
            return trial
    if len(draws.points) >= REMEMBERED:
        refused.add(nothing_more)
    return draws


def _shared_by_members(
    variables: np.ndarray, small: np.ndarray, n: int
) -> list[tuple[np.ndarray, tuple[np.ndarray, ...]]]:
    """What the mean of members' data may depend on, the simplest first: parameters, and partners of members.

    That is the coordinates `small`; then also those of variables that are not large, as in two crossed
    effects; or of each variable of the same size the coordinate with the same index, as in slopes beside
    intercepts. All take terms, so that there is nothing more where `n` draws are too few.
    """
    sizes, others, partners = np.bincount(variables), small, []
    for g in np.argsort(sizes, kind="stable"):
        own = np.flatnonzero(variables == g)
        if FEW < sizes[g] <= MOST_SHARED and 3 * (len(others) + len(own)) <= n:
            others = np.concatenate((others, own))
    for size in np.unique(sizes[sizes >= FEWEST]):
        alike = [np.flatnonzero(variables == g) for g in np.flatnonzero(sizes == size)]
        for apart in range(1, len(alike)):  # the partners of each variable, and of none its own
            partner = np.full(len(variables), -1)
            for k, own in enumerate(alike):
                partner[own] = alike[(k + apart) % len(alike)]
            partners.append(partner)
    found: list[tuple[np.ndarray, tuple[np.ndarray, ...]]] = [(small, ())]
    if len(others) > len(small):
        found.append((others, ()))
    if partners and len(partners) <= MOST_PARTNERS:
        found.append((small, tuple(partners)))
    return found


def _question(draws: ScoredDraws, groups: list[Group], members: list[np.ndarray], scales: np.ndarray) -> int:
    """A number for the question whether one of the `scales` gives any of the `members` an exact law.

    The answer may depend on the laws of other groups, too, and on the likelihood. The number is the same in
    every process, so that a run that is taken up again goes on as it would have.
    """
    more = draws.likelihood
    numbers = [np.array([len(members), len(scales), len(groups)]), scales, *members]
    if more is not None:
        numbers += [np.array([float((more.precision == 1.0).all())]), more.parameters, *more.partners]
    for group in groups:
        numbers += [group.members, group.scales, group.locations, group.parts]
        numbers.append(np.array([group.beta, group.second, group.beta_2, group.part_scale, group.part_beta]))
    return zlib.crc32(b"|".join(np.asarray(values, np.float64).tobytes() for values in numbers))


def question_of_more(rows: np.ndarray) -> int:
    """A number for the question whether a map with these rows of groups may need other groups."""
    return zlib.crc32(rows.tobytes())


def needs_no_more(groups: list[Group], draws: ScoredDraws, variables: np.ndarray) -> bool:
    """Whether groups explain the scores of all variables that may have one, wholly and with their data."""
    moved = np.concatenate([np.zeros(0, np.int64), *(group.members for group in groups)])
    left = np.delete(variables, moved)
    if not groups or (np.bincount(variables)[left] >= FEWEST).any():
        return False
    beside = ((group, all_but(groups, group)) for group in groups)
    return all(is_exact(*pair, draws) and has_exact_data(*pair, draws) for pair in beside)


def _explains_one_of(groups: list[Group], draws: ScoredDraws, variables: np.ndarray, error: int) -> bool:
    """Whether a group with members of a large variable explains the scores of its members wholly.

    The log scale `error` of the likelihood is no scale parameter: its precision would take the place of the
    law's, and any location would do.
    """
    large = np.bincount(variables)[variables] >= FEWEST
    return any(
        residual_share(part_of(group), all_but(groups, group), draws) < EXACT
        for group in groups
        if large[group.members].any() and (error < 0 or error not in (*group.scales, group.second))
    )


def _spread_scales(draws: ScoredDraws, groups: list[Group], variables: np.ndarray) -> np.ndarray:
    """The coordinates of `spread_scales` that no group moves."""
    moved = [group.members for group in groups]
    return np.setdiff1d(spread_scales(draws.points, variables), np.concatenate([np.zeros(0), *moved]))


def spread_scales(points: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """The coordinates of small variables that vary enough in draws (n, d) to be worth a law as its scale."""
    small = np.flatnonzero(may_be_parents(variables))
    return np.asarray(small[points[:, small].std(axis=0) > SPREAD], np.int64)


def is_exact(law: Group, others: list[Group], draws: ScoredDraws) -> bool:
    """Whether the law leaves nothing of its members' scores, while something is left without the law."""
    if not residual_share(law, others, draws) < EXACT:
        return False
    return bool(residual_shares_alone(draws, law.members, others).mean() - CLEAR > EXACT)


def simplify(group: Group, groups: list[Group], draws: ScoredDraws, pulled: ScoredDraws) -> Group:
    """The group without a second scale parameter or an offset that the scores do not ask for any more."""
    others = all_but(groups, group)
    if group.second >= 0:
        alone = [
            group._replace(scales=np.array([scale]), beta=beta, second=-1, beta_2=0.0)
            for scale, beta in ((int(group.scales[0]), group.beta), (group.second, group.beta_2))
            if len(group.scales) == 1
        ] or [group._replace(second=-1, beta_2=0.0)]
        alone += [law._replace(beta=2.0 * law.beta) for law in alone if abs(law.beta) == BETAS[1]]
        shares = [residual_share(law, others, draws) for law in alone]
        if min(shares) < residual_share(group, others, draws) + WORTH:
            group = fit_law(pulled, alone[int(np.argmin(shares))], offset=group.offset != 0.0)
    if group.offset != 0.0 and not needs_offset(group, others, draws):
        group = fit_law(pulled, group._replace(offset=0.0))
    return with_slope(group, others, draws, pulled)


def needs_offset(law: Group, others: list[Group], draws: ScoredDraws) -> bool:
    """Whether the scores ask for an offset of the prior mean."""
    slope = law.slope if law.slope != 0.0 or not law.is_located else 1.0
    plain = residual_shares(draws, law._replace(slope=slope), others, offset=False).mean()
    return bool(plain - residual_share(law, others, draws) > WORTH)


def with_slope(group: Group, others: list[Group], draws: ScoredDraws, pulled: ScoredDraws) -> Group:
    """The group with the C and c that the scores show; else with C = 1, if they allow it and beta > 0."""
    exact = _with_exact_place(group, others, draws, pulled)
    if exact is not None:
        return exact
    if not group.is_located or group.beta < 0.0:
        return group
    whole = group._replace(slope=1.0, offset=0.0)
    least = residual_share(group, others, draws)
    if group.slope == 1.0 or residual_shares(draws, whole, others, offset=False).mean() > least + WORTH:
        return group
    return fit_law(pulled, whole, free=False)


def _with_exact_place(
    group: Group, others: list[Group], draws: ScoredDraws, pulled: ScoredDraws
) -> Group | None:
    """The group with the C and c that the scores of all its members agree on; None where they do not.

    If the scores tell thresholds and y, too, the group has these.
    """
    if residual_share(group, others, draws) > EXACT:
        return None
    if draws.likelihood is not None and group.beta < 0.0 and not group.is_located:
        located = group.at(np.array([location_in_likelihood(draws, group, others)]))
        group = located if order_groups([*others, located]) else group
    slopes, offsets = places(draws, group, others)
    if not (np.ptp(slopes) < NEAR and np.ptp(offsets) < NEAR):
        return None
    slope, offset = _plain(slopes), _plain(offsets)
    same = (slope, offset) == (group.slope, group.offset) and len(group.thresholds) > 0
    placed = group._replace(slope=slope, offset=offset)
    precision, weighted = data_terms(draws, group, others)
    if not (_has_own_data(group, others) and np.isfinite(precision + weighted).all()):
        return group if same else fit_law(pulled, placed, free=False)
    if draws.likelihood is not None and group.part_scale < 0 and group.second < 0:
        placed = placed._replace(error=draws.likelihood.error, middle=draws.likelihood.middle)
    exact = law_with_data(pulled, placed, precision, weighted)
    near = (same and exact.error == group.error) and all(
        np.allclose(one, other, rtol=NEAR, atol=NEAR)
        for one, other in ((_plain_thresholds(exact), _plain_thresholds(group)), (exact.data, group.data))
    )
    return group if near else exact


def _plain_thresholds(group: Group) -> np.ndarray:
    """The thresholds (m,), where the log scale of an unknown error is 0."""
    return group.thresholds + (group.error_beta * group.middle if group.error >= 0 else 0.0)


def has_exact_data(group: Group, others: list[Group], draws: ScoredDraws) -> bool:
    """Whether a law explains the scores wholly and these also tell its thresholds and y.

    The scores do not tell them if members are locations or scales of others, because these others then take
    the place of data.
    """
    return _has_own_data(group, others) and not residual_share(group, others, draws) > EXACT


def _has_own_data(group: Group, others: list[Group]) -> bool:
    """Whether no other group depends on a member, so that nothing takes the place of its data."""
    members = set(map(int, group.members))
    return not any(members & parents_of(other) for other in others)


def _plain(values: np.ndarray) -> float:
    """The median of values that are almost equal, rounded so that no rounding error is left."""
    return float(np.round(np.median(values), _DIGITS)) + 0.0  # no -0
