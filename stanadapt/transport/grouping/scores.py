"""How much of the scores of a group a law explains, and which numbers the scores give that law.

exact_laws.py and places.py compare laws by it: which scale parameter is right, which location, and whether
there is an offset. A draw is random, but its score is exact. If x_i has the normal prior N(C p + c,
e^(2 eta)), the score is

    s_i = -(x_i - C p - c) e^(-2 eta) + f_i(x_i)                                            (beta > 0)

where the likelihood gives f_i, which is linear in x_i if the likelihood is normal. In a program that is not
centred the likelihood depends on C p + e^-eta x_i instead (eta = -u), and

    s_i = -x_i + e^-eta (a - b C p - b e^-eta x_i),                                         (beta < 0)

where a and b come from the data. So the regression of s_i on these terms leaves nothing if scale parameter
and location are the right ones, and leaves much if one of them is wrong, whatever the draws are and however
few. The share of the variance of s_i that the regression leaves is the unexplained share of the law. If the
likelihood is not normal, every law leaves something, and the one that leaves least is the best; x_i² is among
the terms for this case.

A coordinate may itself be a location or a scale parameter of others. Its score then has their terms, and
these join the regression. Members may also share a normal likelihood with parameters b_k, y ~ N(x_i + sum_k
h_k b_k, e^(2 v)). Then the b_k join the regression, and the precision e^(-2 v) of the error multiplies all
terms of the likelihood (`likelihood_of`). In a program that is not centred C p is among these parameters: it
is the b_k for which the ratio of coefficients is the same for all members (`location_in_likelihood`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..shape import quantile
from .groups import Group, Likelihood, ScoredDraws, locations_of, parents_of, scale_of_parts
from .regressions import ScoreRegressions

_CURVED = 45  # fewest draws with which x_i² is one of the terms
MOST_DRAWS = 160  # only so many draws are looked at, the newest ones
_SAME = 1e-3  # ratios of coefficients that differ by less, relatively, are the same
_LEAST_SLOPE = 1e-2  # a location has no smaller ratio than this
_SCALES_OF_PARTNERS = 4  # so many parameters may be the log scale of partners
_FARTHEST = 30.0  # draws with a log scale farther from its median than this are left out


def residual_shares(
    draws: ScoredDraws,
    law: Group,
    groups: list[Group],
    *,
    offset: bool = True,
    candidates: np.ndarray | None = None,
) -> np.ndarray:
    """The logarithm of the share of the scores' variance that the law leaves, for each member (m,).

    Parameters
    ----------
    draws
        In the coordinates of the program.
    law
        Its scale parameters, betas and locations are tried. C is used only without `offset`; its other
        numbers are not used.
    groups
        The other groups, which may have the members as locations or scale parameters.
    offset
        Whether the prior mean may have an offset, and C any value.
    candidates
        Values (draws, k). Each column is tried as the location of every member, beside the law's.

    Returns
    -------
    ndarray
        (m,), or (m, k) with candidates; zeros where there are too few draws to tell.
    """
    if candidates is not None:
        return shares_with(draws, law, groups, offset=offset)(candidates)
    if draws.known is not None:
        return _known_shares(draws, draws.known, law, groups, offset)
    return _left_of_newest(draws, law, groups, offset)[0].share()


def shares_with(
    draws: ScoredDraws, law: Group, groups: list[Group], *, offset: bool = True
) -> Callable[[np.ndarray], np.ndarray]:
    """`residual_shares` as a function of candidates: the regressions under the law are made once for all."""
    left, factor, near = _left_of_newest(draws, law, groups, offset)
    return lambda candidates: left.share_with(candidates[-MOST_DRAWS:][near], factor)


def _left_of_newest(
    draws: ScoredDraws, law: Group, groups: list[Group], offset: bool
) -> tuple[ScoreRegressions, np.ndarray, np.ndarray]:
    """`_left_by` for those of the newest draws whose log scales are near, and which these are."""
    newest = draws.part(slice(-MOST_DRAWS, None))
    eta = _log_scales(newest.points, law)  # (1 or m, n)
    near = (np.abs(eta) < _FARTHEST).all(axis=0)
    return *_left_by(newest.part(near), law, groups, eta[:, near], offset), near


def _known_shares(
    draws: ScoredDraws, known: dict[Any, Any], law: Group, groups: list[Group], offset: bool
) -> np.ndarray:
    """`residual_shares`, from what is known of these draws if the same was asked before."""
    key = offset, _key(law, numbers=not offset), *(_key(group, numbers=True) for group in groups)
    if key not in known:
        newest = draws.points[-MOST_DRAWS:]
        if offset and (np.abs(_log_scales(newest, law)) < _FARTHEST).all():  # no draw is left out or moved
            known[key] = _left_by_near(draws, law, groups).share()
        else:
            known[key] = residual_shares(draws._replace(known=None), law, groups, offset=offset)
    shares: np.ndarray = known[key]
    return shares


def _key(group: Group, *, numbers: bool) -> tuple[Any, ...]:
    """What regressions take from a group; C and c if `numbers`."""
    law = group.members.tobytes(), group.scales.tobytes(), group.beta, group.second, group.beta_2
    place = group.locations.tobytes(), group.parts.tobytes(), group.part_scale, group.part_beta
    return *law, *place, *((group.slope, group.offset) if numbers else ())


def places(draws: ScoredDraws, law: Group, groups: list[Group]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers C and c (m,) that the scores give each member of a law, NaN where they do not tell.

    They are the coefficients of the location and of 1, divided by minus the coefficient of x_i. Without a
    location C is 0, and where beta is negative c is 0.
    """
    left = _left_by_near(draws, law, groups)
    nothing, first = np.zeros(len(law.members)), left.first
    if not left.tells(0):
        return nothing + np.nan, nothing + np.nan
    slope = left.ratio(first, first + 2) if law.is_located else nothing
    if law.beta > 0.0:
        return slope, left.ratio(first, first + 1)
    return slope * np.exp(-_medians(draws.points[-MOST_DRAWS:], law)[:, 0]), nothing


def data_terms(draws: ScoredDraws, law: Group, groups: list[Group]) -> tuple[np.ndarray, np.ndarray]:
    """1 / sigma² and y / sigma² (m,) of each member's data N(y, sigma²), NaN where the scores do not tell.

    If the law explains the scores wholly, these are the coefficients of the terms x_i and 1 that do not come
    from the prior. A shared likelihood gives sigma at the median of its error, and y at the means of its
    other parameters.
    """
    left = _left_by_near(draws, law, groups)
    if not left.tells(0):
        return np.full(len(law.members), np.nan), np.full(len(law.members), np.nan)
    found, more = left.coefficients, draws.likelihood
    newest, first = draws.points[-MOST_DRAWS:], left.first
    shared = first + (3 if law.is_located else 2)  # the first term of the shared likelihood
    if law.beta > 0.0:
        precision, weighted = -found[:, 1], found[:, 0]
        if more is not None:
            precision = precision - found[:, shared + 1]
            weighted = weighted + found[:, shared] + _at_means(found[:, shared + 2 :], newest, law, more)
        return precision, weighted
    unit, weighted = np.exp(_medians(newest, law)[:, 0]), found[:, first + 1]
    if more is not None:
        weighted = weighted + _at_means(found[:, shared:], newest, law, more)
    return -found[:, first] * unit * unit, weighted * unit


def _at_means(coefficients: np.ndarray, points: np.ndarray, law: Group, more: Likelihood) -> np.ndarray:
    """The sum (m,) of the first coefficients (m, k) times the means of `_shared_values`."""
    total = np.zeros(len(law.members))
    for k, values in enumerate(_shared_values(points, law, more)):
        total += coefficients[:, k] * values.mean(axis=1)
    return total


def _shared_values(points: np.ndarray, law: Group, more: Likelihood) -> list[np.ndarray]:
    """What the mean of the data of the members depends on beside them, each (1 or m, n).

    Where beta is negative, a location of the law is no such value, since it is among the law's own terms.
    """
    parameters = _parameters_beside(law, more)
    if law.beta < 0.0:
        parameters = [k for k in parameters if k not in law.locations]
    found = [points[None, :, k] for k in parameters]
    for partner in more.partners:
        own = partner[law.members]
        if (own < 0).any():
            continue
        values = points[:, own].T
        found.append(values)
        for k in more.parameters[:_SCALES_OF_PARTNERS]:
            u = points[:, k] - quantile(np.sort(points[:, k]), 0.5)
            found.append(values * np.exp(np.clip(u, -_FARTHEST, _FARTHEST)))
    return found


def _parameters_beside(law: Group, more: Likelihood) -> list[int]:
    """The parameters of a likelihood without the members of a law."""
    return [int(k) for k in more.parameters if k not in law.members]


def location_in_likelihood(draws: ScoredDraws, law: Group, groups: list[Group]) -> int:
    """The parameter of the likelihood that is the location of a law with beta < 0; -1 where there is none.

    `law` has no location. C p has the same factor in every observation of a member; other parameters do not.
    """
    assert draws.likelihood is not None
    left = _left_by_near(draws, law, groups)
    if not left.tells(0):
        return -1
    parameters = _parameters_beside(law, draws.likelihood)
    ratios = np.array([left.ratio(left.first, left.first + 2 + k) for k in range(len(parameters))])
    ratios *= np.exp(-_medians(draws.points[-MOST_DRAWS:], law)[:, 0])
    spread = np.ptp(ratios, axis=1) / np.maximum(np.abs(ratios).min(axis=1), _LEAST_SLOPE)
    found = [k for k in np.flatnonzero(spread < _SAME) if parameters[k] not in law.scales]
    nearest = min(found, key=lambda k: abs(abs(ratios[k].mean()) - 1.0), default=-1)
    return int(parameters[nearest]) if nearest >= 0 else -1


def _left_by_near(draws: ScoredDraws, law: Group, groups: list[Group]) -> ScoreRegressions:
    """The regressions of the newest draws under a law; log scales that are too far are moved to the limit.

    Of draws that keep what is known, these are kept until others are asked for.
    """
    key = _key(law, numbers=False), *(_key(group, numbers=True) for group in groups)
    if draws.known is not None and draws.known.get("left", ((),))[0] == key:
        kept: ScoreRegressions = draws.known["left"][1]
        return kept
    newest = draws.part(slice(-MOST_DRAWS, None))
    eta = np.clip(_log_scales(newest.points, law), -_FARTHEST, _FARTHEST)
    left = _left_by(newest, law, groups, eta, offset=True)[0]
    if draws.known is not None:
        draws.known["left"] = key, left
    return left


def _left_by(
    draws: ScoredDraws, law: Group, groups: list[Group], eta: np.ndarray, offset: bool
) -> tuple[ScoreRegressions, np.ndarray]:
    """The regressions under a law, and the factor (1 or m, n) that its location has in the scores.

    The terms of the law come first: those with x_i, with 1 and with the location.
    """
    points, likelihood = draws.points, draws.likelihood
    up = law.beta > 0.0
    inverse = np.exp(-2.0 * eta if up else -eta)
    weight = 1.0 / np.sqrt(1.0 + inverse) if up else np.ones_like(inverse)
    x, place = points[:, law.members].T, locations_of(points, law)
    factor, more = inverse, []
    if likelihood is not None and up:
        more = [likelihood.precision[None, :], likelihood.precision * x]
        more += [likelihood.precision * values for values in _shared_values(points, law, likelihood)]
    elif likelihood is not None:
        factor = inverse * likelihood.precision
        more = [factor * values for values in _shared_values(points, law, likelihood)]
    located = [factor * place] if law.is_located else []
    if not up:
        terms = [factor * inverse * x, factor, *located]
    elif offset:
        terms = [factor * x, factor, *located]
    else:
        terms = [factor * (x - law.slope * place)]
    return _regress(draws, law.members, groups, weight, [*terms, *more]), factor


def _regress(
    draws: ScoredDraws, members: np.ndarray, groups: list[Group], weight: np.ndarray, terms: list[np.ndarray]
) -> ScoreRegressions:
    """Regress the members' scores on 1, x_i, x_i² if draws are many, the law's `terms` and others' terms."""
    points, scores = draws.points, draws.scores
    x, own = np.ascontiguousarray(points[:, members].T), np.ascontiguousarray(scores[:, members].T)
    terms = terms + _terms_of_others(points, scores, members, groups)
    return ScoreRegressions(x, own, weight, terms, curved=len(points) >= _CURVED)


def residual_shares_alone(draws: ScoredDraws, members: np.ndarray, groups: list[Group]) -> np.ndarray:
    """The logarithm of the share of the members' scores (m,) that is left without a law for them."""
    known = {} if draws.known is None else draws.known
    key = members.tobytes(), *(_key(group, numbers=True) for group in groups)
    if key not in known:
        newest = draws.part(slice(-MOST_DRAWS, None))
        known[key] = _regress(newest, members, groups, np.ones((1, len(newest.points))), []).share()
    shares: np.ndarray = known[key]
    return shares


def likelihood_of(
    points: np.ndarray, error: int, others: np.ndarray, partners: tuple[np.ndarray, ...]
) -> Likelihood:
    """A normal likelihood with the log scale `error`, -1 for a known one; the rest as `Likelihood` has it."""
    precision, middle = np.ones(len(points)), 0.0
    if error >= 0:
        middle = float(quantile(np.sort(points[:, error]), 0.5))
        precision = np.exp(np.clip(-2.0 * (points[:, error] - middle), -_FARTHEST, _FARTHEST))
    return Likelihood(precision, others[others != error], partners, error, middle)


def _log_scales(points: np.ndarray, law: Group) -> np.ndarray:
    """eta of draws (n, d) minus its median: (1 or m, n)."""
    return np.asarray(_plain_log_scales(points, law) - _medians(points, law))


def _plain_log_scales(points: np.ndarray, law: Group) -> np.ndarray:
    eta = law.beta * points[:, law.scales].T
    return np.asarray(eta + law.beta_2 * points[:, law.second] if law.second >= 0 else eta)


def _medians(points: np.ndarray, law: Group) -> np.ndarray:
    ordered = np.sort(_plain_log_scales(points, law).T, axis=0)
    return np.asarray(quantile(ordered, 0.5))[:, None]


def _terms_of_others(
    points: np.ndarray, scores: np.ndarray, members: np.ndarray, groups: list[Group]
) -> list[np.ndarray]:
    """The terms (m, n) that other groups add to the members' scores.

    Groups add terms to the scores of their locations and scale parameters.
    """
    if not groups:
        return []
    own, row_of = np.unique(members, return_inverse=True)
    found = []
    for group in groups:
        if not parents_of(group) & set(map(int, own)):
            continue
        x, s = points[:, group.members].T, scores[:, group.members].T
        power = -2.0 if group.beta > 0.0 else -1.0
        inverse = np.exp(np.clip(power * _log_scales(points, group), -50.0, 50.0))
        if group.beta > 0.0:
            away = x - group.slope * locations_of(points, group) - group.offset
            at_location, at_scale = [inverse * away], [inverse * away * away]
        else:
            at_location, at_scale = [inverse * x], [s * x, x * x]
        ruled = [
            (group.locations, at_location),
            (group.scales, at_scale),
            (np.array([group.second]), at_scale),
        ]
        if group.part_scale >= 0:
            scaled = at_location[0] * scale_of_parts(points, group)
            along = scaled * points[:, group.parts].T
            ruled += [(group.parts, [scaled]), (np.array([group.part_scale]), [along])]
        for parents, parts in ruled:
            parents = np.broadcast_to(parents, (len(x),))
            met = np.isin(parents, own)
            if not met.any():
                continue
            for part in parts:
                term = np.zeros((len(own), len(points)))
                np.add.at(term, np.searchsorted(own, parents[met]), part[met])
                found.append(term[row_of])
    return found
