"""Learning a field: from a point to the rows of a map, and what it tells of the posterior beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..composition import change_coordinates
from ..effects_table import LEAST_GROUPS
from ..field import Field
from ..field_table import factors_in, field_rows, latents_and_heads
from ..map_table import no_transport
from .beside_effects import given_standard_effects
from .common_scale import find_common_scales
from .dense import changes, dense_coupling, head_strengths, ties_change
from .design import Design, find_design, follow_tails, how_far_off, widen_design
from .effects_search import factors_of
from .filling import fill_design
from .head_coordinates import HeadCoordinates
from .head_law import HeadLaw, head_coordinates, head_rows, learn_head_laws, spreads_of
from .heads import (
    DELTA,
    FAINT_HEAD,
    HEAD,
    MOST_HEADS,
    MOST_OF_ONE,
    STRONG_HEAD,
    choose_heads,
    strengths_of,
    without_all_locations,
    without_locations,
)
from .innovation_search import NO_HEADS, find_innovations, has_short_variable_alone
from .laplace import HeadPosterior, MissingEntriesError, find_place, how_far_from_normal
from .law_fit import fit_law
from .learned_law import Learned
from .other_laws import look_along_axes, look_for_effects, look_for_weights_or_axes, with_effects
from .precision import Precision
from .probes import FEW_NEIGHBOURS, LEAST_ALONE, MOST_PROBES, Coupling, Evaluate, ScaledDensity, couple
from .several import (
    SHORTEST,
    Part,
    StrengthsOfAll,
    Tied,
    are_all_series,
    are_followed,
    are_tied,
    cost_of_precision,
    find_parts,
    find_tied_parts,
    has_series,
    scales_of_few,
    series_alone,
    series_beside_others,
    strengths_of_all,
    without_short,
)
from .several_learning import learn_several

# A head changes the curvature of a dense precision by this; the second one where heads would be too many.
HEADS_DENSE = 0.05, 0.1
MOST_LOOKS = 3  # for neighbours, where more of them are seen on the way
MOST_ENTRIES = 40  # entries of the factor for each latent; beyond that the map costs more than it brings
# Around the middle a good law is off by 0.05 to 0.25 in z, and one that later rounds made good was off by 6.
# One that is as far off as this, as on a map with a sum to zero (11 to 25), would be given up after the next
# draws, so its tails are not worth their gradients.
HOPELESS = 9.0
# Latents given the heads are normal in the coordinates of a field. Those of series and maps with counts are
# off by 0.02 to 0.13 at the mode, and those that are products of others, as in an R2-D2 prior, by 1.1.
NOT_NORMAL = 0.5
# Gradients that a precision may take with 0 to 6 heads, so that those of a search suffice.
LARGEST_COST = MOST_PROBES, MOST_PROBES, 120, 60, 40, 30, 30
# A fifth head that is weak is worth no more than this.
COST_OF_FIVE = 20
# And with all coordinates that may be heads of series that data tie: there one precision tells which of them
# are locations.
LARGEST_WHOLE = 800
# Dense precisions, with approaches to their modes, that a search takes for 1, 2, 3 and 4 heads, about.
PRECISIONS = 60, 100, 200, 300
# Latents that are not tied to each other have the laws of groups and of the scale of errors. These know two
# scales, that of the latents and that of their data. So many of them have a field if there are so many heads,
# as where a regression has errors in its covariates: two scales of data, and the slope between them. Which of
# these are strong changes from place to place.
LEAST_UNTIED, HEADS_OF_UNTIED = 15, 3
MOST_ROUNDS, FEW_ADDED = 4, 4  # of rounds that widen the design; and the last one is the one that adds so few
LAST_ROUND = 0.75  # no round begins after this share of the gradients
MOST_GRADIENTS = 12_000  # of a search, beside the look for neighbours
LARGEST_SEVERAL = 60_000  # of several fields, where draws without them cost more
LARGEST_DENSE = 30_000  # of the precisions of a large dense block, where draws without a field cost more
# Of such a block, and of several small ones: the four of a process and of its log noise are not found in so
# many gradients.
MOST_HEADS_LARGE = 2


# A precision of the latents, a point (d,) to begin at, and what may be heads if it is not right.
_Known = tuple[Precision, np.ndarray, np.ndarray]


def learn_field(
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    *,
    most_dense: float = 0.0,
    last: bool = True,
) -> tuple[Learned | None, int]:
    """The field that is found from the point `x` (d,), if there is one, and the number of gradients it took.

    `density_in` gives the density in the coordinates of a map. `unit` (d,) are scales of the coordinates, and
    `variables` (d,) the numbers of the variables that they belong to. A dense block that takes more than
    `MOST_GRADIENTS` gets a field if `most_dense` gradients suffice. If one field for all series may be found
    from another point, the series get no fields of their own before the `last` search.
    """
    with np.errstate(all="ignore"):
        evaluate, effects, coupling = density_in(no_transport()), None, None
        if not np.isfinite(evaluate(x, np.zeros(x.size))):
            return None, 1
        is_short = has_short_variable_alone(variables)  # such terms may be tied as effects are
        series, more = find_innovations(evaluate, x, unit, variables) if is_short else (None, 0)
        taken = 1 + more
        if series is None:
            effects, coupling, more_yet = look_for_effects(density_in, x, unit, variables)
            taken += more_yet
        learn = functools.partial(_learn_given_effects, most_dense=most_dense)
        if effects is not None:
            if coupling is None or not has_series(coupling, variables):
                return effects, taken
            effects, more = given_standard_effects(
                effects, density_in, x, unit, variables, learn, MOST_GRADIENTS
            )
            return effects, taken + more
        if not is_short:
            series, more = find_innovations(evaluate, x, unit, variables)
            taken += more
        if series is not None:
            evaluate, x, unit, coupling = density_in(series.rows), series.x, series.unit, None
        elif coupling is None:  # no groups
            found, more_yet = look_for_weights_or_axes(density_in, x, unit, variables, alone=False)
            taken += more_yet
            if found is not None:
                return found, taken
            series, more_yet = find_common_scales(evaluate, x, unit, variables)
            taken, more = taken + more_yet, more + more_yet
            if series is not None:
                evaluate, x, unit = density_in(series.rows), series.x, series.unit
        neighbours = x.size + 1 if coupling is None else 0
        density, found = ScaledDensity(evaluate, unit, MOST_GRADIENTS + neighbours - more), None
        try:
            if coupling is None:
                coupling = couple(density, x / unit, variables)
                density.has_looked()
            if coupling is not None:
                heads = NO_HEADS if series is None else series.heads
                found = _learn_all(density, coupling, x / unit, variables, most_dense, heads, last=last)
        except (
            np.linalg.LinAlgError,
            ValueError,
        ):  # functions that call LAPACK raise these after an overflow
            found = None
        taken += density.gradients
        if found is None or density.spent >= 1.0:
            return None, taken
        if coupling is not None and len(found.rows):
            first = no_transport() if series is None else series.rows

            def density_beside(rows: np.ndarray) -> Evaluate:
                return density_in(np.concatenate((first, rows)))

            found, more = with_effects(found, density_beside, x, unit, variables, coupling)
            if factors_in(found.rows):
                taken += more
                found, more = given_standard_effects(
                    found, density_beside, x, unit, variables, learn, MOST_GRADIENTS
                )
            found = found._replace(rows=np.concatenate((first, found.rows)))
            taken += more
    return found, taken


def learn_effects(
    density_in: Callable[[np.ndarray], Evaluate], x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Learned | None, int]:
    """The same, but no other law than that of effects, which takes few gradients."""
    with np.errstate(all="ignore"):
        found, _, taken = look_for_effects(density_in, x, unit, variables)
    return found, taken


def learn_tied_effects(
    density_in: Callable[[np.ndarray], Evaluate], x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Learned | None, int]:
    """The same for effects that are all tied, by a sum that is 0 or by data, along their axes."""
    with np.errstate(all="ignore"):
        return look_along_axes(density_in, x, unit, variables, with_scale=True)


def _learn_all(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    variables: np.ndarray,
    most_dense: float,
    heads: np.ndarray,
    *,
    last: bool,
) -> Learned | None:
    """One field, or one for each of several series, around `x` (d,), in units.

    If some `heads` (k,) are known, one field has these, and no others but strong ones.
    """
    parts = find_parts(density, coupling, x, variables)
    if parts:
        return _learn_several(density, parts, x, variables, most_dense)

    tied = series_beside_others(coupling, variables)
    few, of_tied = NO_HEADS, NO_HEADS
    if tied is not None:
        few, of_tied = scales_of_few(density, x, coupling, variables)
        few = few if len(few) and are_followed(density, coupling, x, tied, few) else NO_HEADS
    has_few = tied is not None and _has_few_effects(coupling, variables, tied)

    def of_one(coupling: Coupling, x: np.ndarray) -> _Known | None:
        known = _find_precision(density, x, coupling, variables, most_dense, heads, few)
        is_lacking = known is not None and has_few and not np.isin(few, known[0].heads).all()
        return None if is_lacking else known

    strengths: StrengthsOfAll | None = None

    def learn_each(tied: Tied) -> Learned | None:
        return _learn_tied_series(density, coupling, x, variables, tied, most_dense, strengths)

    def learn_alone() -> Learned | None:
        alone = series_alone(coupling, variables) if tied is None else None
        found = None if alone is None else learn_each(alone)
        return None if found is None else _with_units(found, density.unit)

    def learn_one() -> Learned | None:
        return _learn(density, coupling, x, variables, of_one, whole=tied is None, otherwise=learn_alone)

    if tied is None:
        return learn_one()

    cost, n_heads = cost_of_precision(density, coupling, tied)
    if cost > LARGEST_WHOLE:
        return learn_one()
    is_cheap = cost <= min(LARGEST_COST[min(n_heads, MOST_HEADS)], x.size)
    is_cheap = is_cheap and not len(of_tied) and (len(few) > 0 or not has_few)
    if is_cheap and tied.has_matrices():
        strengths = strengths_of_all(density, coupling, x, tied, few)
    if is_cheap and not (strengths and strengths.are_too_many()):
        found = learn_one()
        return learn_each(without_short(tied)) if found is None and last else found
    found = learn_each(tied)
    return learn_one() if found is None else found


def _with_units(found: Learned, unit: np.ndarray) -> Learned:
    """What was learned of series, where all else begins with its `unit` (d,): it may have any scale."""
    scale = unit.copy()
    own = np.concatenate(latents_and_heads(found.rows))
    scale[own] = found.scale[own]
    return found._replace(scale=scale)


def _has_few_effects(coupling: Coupling, variables: np.ndarray, tied: Tied) -> bool:
    """Whether there are effects of few groups beside the series.

    Their scale has too few neighbours to be wide. If it is no head of one field for all, they are latents of
    it that know no neck.
    """
    known = np.concatenate([np.flatnonzero(tied.may_be_head), *(one.own for one in tied.series)])
    return any(
        len(own) < FEW_NEIGHBOURS and not _are_data(coupling, own.ravel(), tied)
        for own in factors_of(coupling, variables, LEAST_GROUPS, known)
    )


def _are_data(coupling: Coupling, own: np.ndarray, tied: Tied) -> bool:
    """Whether each of `own` (n,) is tied to one term of a series, and no two are to the same.

    So are data that are missing in a series, whose errors have the scale of all others. A group of effects
    has data at several times, or others have some at the same.
    """
    pairs = [coupling.pattern[own][:, series.own] for series in tied.series]
    terms = [pattern.sum(axis=1) for pattern in pairs]
    return (
        all(one.max() <= 1 for one in terms)
        and all(pattern.sum(axis=0).max() <= 1 for pattern in pairs)
        and any(one.min() == 1 for one in terms)
    )


def _learn_given_effects(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, variables: np.ndarray, most_dense: float
) -> Learned | None:
    """The field of a series, or one for each of several, beside which there are no effects."""
    tied = series_beside_others(coupling, variables)
    if tied is None:
        return _learn_all(density, coupling, x, variables, most_dense, NO_HEADS, last=True)
    return _learn_tied_series(density, coupling, x, variables, tied, most_dense)


def _learn_tied_series(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    variables: np.ndarray,
    tied: Tied,
    most_dense: float,
    strengths: StrengthsOfAll | None = None,
) -> Learned | None:
    """The fields of series that data tie, each given all other latents."""
    parts = find_tied_parts(density, coupling, x, tied, strengths)
    return _learn_several(density, parts, x, variables, most_dense) if parts else None


def _learn_several(
    density: ScaledDensity, parts: Sequence[Part], x: np.ndarray, variables: np.ndarray, most_dense: float
) -> Learned | None:
    """The fields of several series."""
    most = max(MOST_GRADIENTS, min(most_dense, LARGEST_SEVERAL))
    return learn_several(density, parts, x, variables, MOST_GRADIENTS, most, _learn_part)


def _learn_part(
    part: Part,
    x: np.ndarray,
    variables: np.ndarray,
    most: float,
    is_worth: Callable[[Design], bool],
    root: np.ndarray | None,
) -> Learned | None:
    """The field of one of several series, around `x` (k,), in at most so many gradients, if it is worth it.

    The search for the place of the heads begins with the reach of `root`.
    """

    def find(coupling: Coupling, x: np.ndarray) -> _Known | None:
        sparse = Precision(part.density, coupling, part.heads)
        return (sparse, x, part.possible) if sparse.cost <= LARGEST_COST[len(part.heads)] else None

    part.density.limit(most)
    try:
        found = _learn(
            part.density,
            part.coupling,
            x,
            variables,
            find,
            alone=part.alone,
            whole=False,
            is_worth=is_worth,
            root=root,
        )
    except (np.linalg.LinAlgError, ValueError):  # after an overflow
        return None
    return None if part.density.spent >= 1.0 else found


def _learn(
    density: ScaledDensity,
    coupling: Coupling | None,
    x: np.ndarray,
    variables: np.ndarray,
    find: Callable[[Coupling, np.ndarray], _Known | None],
    *,
    alone: bool = True,
    whole: bool = True,
    is_worth: Callable[[Design], bool] = lambda _: True,
    root: np.ndarray | None = None,
    otherwise: Callable[[], Learned | None] = lambda: None,
) -> Learned | None:
    """The field around `x` (d,), in units, whose precision `find` finds.

    Its heads may depend on others, if they are not `alone`, which their own law does not know. If latents may
    also have several laws, or are not the `whole` of what has one, scales of few of them are no heads. What
    `otherwise` learns takes its place if the precision is sparse, but latents are far from normal, or have no
    mode, as where a unit vector is among them.
    """
    for _ in range(MOST_LOOKS):
        coupling = couple(density, x, variables) if coupling is None else coupling
        density.has_looked()
        if coupling is None:
            return None
        known = find(coupling, x)
        if known is None:
            return None
        precision, x, possible = known
        try:
            place = find_place(precision, x, patient=not _may_be_heads(precision), root=root)
            if len(possible) > len(precision.heads) and (place is None or _is_head_missing(precision, place)):
                precision = Precision(density, precision.coupling, possible)
                place = find_place(precision, x)
            if place is None and whole and not precision.dense:
                others = _with_scales_of_few(density, x, precision.coupling, variables, possible)
                given = Precision(density, precision.coupling, others)
                if len(np.setdiff1d(others, possible)) and given.cost <= LARGEST_COST[len(others)]:
                    precision, place = given, find_place(given, x)
            break
        except MissingEntriesError as missing:
            x, coupling = missing.x, None
    else:
        return None
    heads = precision.heads
    if place is None:
        return None if precision.dense else otherwise()
    if not precision.dense and place.mode.factor.lower.nnz > MOST_ENTRIES * x.size:
        return None
    none = Learned(no_transport(), np.ones(x.size), np.zeros((0, x.size)), np.zeros(0))
    if how_far_from_normal(precision, place.mode) > NOT_NORMAL:
        return (None if precision.dense else otherwise()) or none
    design = find_design(precision, place, tails=False)
    if _has_no_use(design):
        return none
    if not is_worth(design):
        return None
    follow_tails(design)
    if precision.dense and not changes(design.points()[1]):
        return None
    of_heads = learn_head_laws(design, heads, density.unit[heads])
    field = learn_law(design, head_coordinates(place, heads, density.unit[heads], of_heads))
    of_heads = of_heads if alone else []
    rows = np.concatenate((field_rows(field, density.gradients), *head_rows(of_heads)))
    if not np.all(np.isfinite(rows)):
        return None
    return Learned(rows, *_metric(design, of_heads))


def _is_head_missing(precision: Precision, place: HeadPosterior) -> bool:
    """Whether no head was seen, but latents are not normal at their mode.

    A scale of sums of sums changes their curvature by next to nothing, in units of its diagonal, where it
    tells how far they go.
    """
    return not len(precision.heads) and how_far_from_normal(precision, place.mode) > NOT_NORMAL


def _may_be_heads(precision: Precision) -> bool:
    """Whether there are other coordinates that are coupled to many, and all of them may be heads.

    Where one of them is, a head may do nothing: the share of a part in a sum, say, where it is near 1.
    """
    wide = int(precision.coupling.wide.sum())
    return not precision.dense and len(precision.heads) < wide <= MOST_HEADS


def _with_scales_of_few(
    density: ScaledDensity, x: np.ndarray, coupling: Coupling, variables: np.ndarray, heads: np.ndarray
) -> np.ndarray:
    """The strongest of the `heads` (m,) and of coordinates of small variables that few latents depend on.

    A scale of the first terms of many series is such a coordinate. As a latent it has no mode: where they and
    it go to 0, the density goes to infinity.
    """
    is_small = np.bincount(variables)[variables] < SHORTEST
    is_small[heads] = True
    strengths = strengths_of(density, x, coupling._replace(wide=coupling.wide | is_small))
    return choose_heads({k: strength for k, strength in strengths.items() if is_small[k]})


def _find_precision(
    density: ScaledDensity,
    x: np.ndarray,
    coupling: Coupling,
    variables: np.ndarray,
    most_dense: float,
    heads: np.ndarray,
    few: np.ndarray,
) -> _Known | None:
    """The precision of the latents, sparse or dense, a point (d,) to begin at, and the coordinates that may
    be heads if it is not right; None if there is none. `heads` (k,) are those that are known, and `few` (m,)
    scales of effects of few groups.
    """
    sparse = _sparse_precisions(density, x, coupling, variables, heads, few)
    known = next(sparse, None)
    if known is None or _is_dear(known[0]):
        dense = _dense_precision(density, x, coupling, variables, most_dense)
        if dense is not None:
            return *dense, dense[0].heads
        known = next(sparse, None)
        if known is None or _is_dear(known[0]):
            return None
    precision, possible = known
    if len(precision.heads) > MOST_HEADS:
        density.allow(min(most_dense, LARGEST_DENSE))
    return precision, x, possible


def _sparse_precisions(
    density: ScaledDensity,
    x: np.ndarray,
    coupling: Coupling,
    variables: np.ndarray,
    heads: np.ndarray,
    few: np.ndarray,
) -> Iterator[tuple[Precision, np.ndarray]]:
    """A sparse precision, with what may be heads if it is not right, if there is one; and one with fewer
    heads, for series whose precision takes many gradients.
    """
    narrow = np.flatnonzero(~coupling.wide)
    among = coupling.pattern[narrow][:, narrow]
    tied = are_tied(among, LEAST_ALONE)
    apart = len(narrow) >= LEAST_UNTIED and np.median(np.asarray(among.sum(axis=0)).ravel()) < 2.0
    if coupling.wide.sum() > min(MOST_PROBES, 0.5 * x.size) or not (tied or apart):
        return
    strengths = strengths_of(density, x, coupling)
    of_heads = (
        without_all_locations(density, x, coupling, strengths, few)
        if len(few)
        else without_locations(density, x, coupling, strengths)
    )
    of_heads |= dict.fromkeys(heads.tolist(), np.inf)
    found = Precision(density, coupling, choose_heads(of_heads, STRONG_HEAD if len(heads) else HEAD))
    if tied and 0 < len(few) <= MOST_HEADS - len(found.heads):
        of_few = Precision(density, coupling, np.union1d(found.heads, few))
        if not _is_dear(of_few):
            yield of_few, of_few.heads
            return
    strong = choose_heads(of_heads, STRONG_HEAD, MOST_OF_ONE)
    if not tied and (len(found.heads) < HEADS_OF_UNTIED or not len(strong)):
        return
    # Beside effects of groups, these have a law of their own.
    weaker = len(strong) <= MOST_HEADS and not len(heads)
    more = choose_heads(of_heads, most=MOST_HEADS + 1) if weaker else strong
    if len(more) > MOST_HEADS and are_all_series(coupling, variables):
        of_more = Precision(density, coupling, more)
        is_cheap = of_more.cost <= COST_OF_FIVE if weaker else not _is_dear(of_more)
        found = of_more if is_cheap else found
    if len(strong) > len(found.heads):  # a strong head among the latents has a neck
        return
    wide = np.flatnonzero(coupling.wide)
    yield found, wide if len(wide) <= MOST_HEADS else choose_heads(strengths, FAINT_HEAD)
    if tied:
        fewer = choose_heads(of_heads, most=MOST_HEADS_LARGE)
        yield Precision(density, coupling, fewer), fewer


def _is_dear(precision: Precision) -> bool:
    """Whether a precision takes too many gradients for its number of heads."""
    return precision.cost > min(LARGEST_COST[len(precision.heads)], len(precision.coupling.wide))


def _has_no_use(design: Design) -> bool:
    """Whether other laws do as well as a field, or one that is fitted around the middle is far off there."""
    if design.precision.dense:
        return not ties_change(design.points()[1])
    if not len(design.precision.heads):
        return False
    return how_far_off(design, fit_law(design.precision, design.place, design, smooth=True)) > HOPELESS


def _dense_precision(
    density: ScaledDensity, x: np.ndarray, coupling: Coupling, variables: np.ndarray, most_dense: float
) -> tuple[Precision, np.ndarray] | None:
    """The precision of a dense block of latents, and a point (d,) to begin at; None if there is none."""
    whole = dense_coupling(coupling, variables)
    found = None if whole is None else head_strengths(density, x, whole, DELTA)
    if whole is None or found is None:
        return None
    narrow = whole._replace(wide=np.zeros_like(whole.wide))
    precisions = [Precision(density, narrow, choose_heads(found[0], least)) for least in HEADS_DENSE]
    precisions = [precision for precision in precisions if len(precision.heads)]
    costs = [precision.cost * PRECISIONS[len(precision.heads) - 1] for precision in precisions]
    limits = (MOST_GRADIENTS, MOST_HEADS), (min(0.5 * most_dense, LARGEST_DENSE), MOST_HEADS_LARGE)
    for most, most_heads in limits:
        for precision, cost in zip(precisions, costs, strict=True):
            if cost <= most and len(precision.heads) <= most_heads:
                density.allow(2 * cost)  # what a search takes beside the precisions is as much at most
                return precision, found[1]
    return None  # a search would end without a field


def learn_law(design: Design, coordinates: HeadCoordinates) -> Field:
    """The law of the latents: fitted to a design, which is widened where the law is off, or has gaps.

    Walks over the heads are in such `coordinates`.
    """
    precision, place = design.precision, design.place
    rng = np.random.default_rng(3)  # the search takes no random numbers of the chain
    if precision.dense:
        for _ in range(MOST_ROUNDS):
            if precision.density.spent > LAST_ROUND or fill_design(design, rng) <= FEW_ADDED:
                break
        return fit_law(precision, place, design)
    field = fit_law(precision, place, design)
    for _ in range(MOST_ROUNDS if len(precision.heads) else 0):
        if precision.density.spent > LAST_ROUND:
            break
        added = widen_design(design, field, coordinates, rng)
        if added:
            field = fit_law(precision, place, design, field)
        if added <= FEW_ADDED:
            break
    return field


@functools.cache
def learn_walk() -> np.ndarray:
    """The map of a small random walk x_t ~ N(x_t-1, e^(2u)), observed with unit noise.

    A process calls this function once, before chains start (run/preparation/compiling.py). The call compiles
    or loads the functions that learning a field needs, so that no chain waits for them during its warm-up.
    """
    n = 20
    data = np.cumsum(np.random.default_rng(1).standard_normal(n))

    def evaluate(point: np.ndarray, score: np.ndarray) -> float:
        u, steps, misses = point[0], np.diff(point[1:]), data - point[1:]
        pulls = steps * np.exp(-2.0 * u)
        score[0] = pulls @ steps - len(steps) - u
        score[1:] = misses + np.append(pulls, 0.0) - np.insert(pulls, 0, 0.0)
        return float(-0.5 * (pulls @ steps + misses @ misses + u * u) - len(steps) * u)

    x, variables = np.insert(data, 0, 0.0), np.minimum(np.arange(n + 1), 1)
    found, _ = learn_field(lambda _: evaluate, x, np.ones(n + 1), variables)
    assert found is not None
    score = np.empty(n + 1)
    logp = evaluate(x, score)
    z, logp, score = change_coordinates(no_transport(), found.rows, x, logp, score)
    change_coordinates(found.rows, no_transport(), z, logp, score)
    return found.rows


def _metric(design: Design, of_heads: Sequence[HeadLaw]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    precision, place, unit = design.precision, design.place, design.precision.density.unit
    d, heads = unit.size, precision.heads
    scale = np.ones(d)
    root = place.root * unit[heads][:, None]
    scale[heads] = np.sqrt(np.square(root).sum(axis=1))
    directions, variances = [], []
    for head, spread in spreads_of(of_heads).items():
        scale[head] = spread
    if not of_heads and len(heads) > 1:
        within = root @ root.T / np.outer(scale[heads], scale[heads])
        values, vectors = np.linalg.eigh(within)
        for value, vector in zip(values, vectors.T, strict=True):
            directions.append(np.zeros(d))
            directions[-1][heads] = vector
            variances.append(value)
    for vector, variance in zip(design.level.directions, design.level.variances, strict=True):
        directions.append(np.zeros(d))
        directions[-1][precision.latents] = vector
        variances.append(variance)
    return scale, np.array(directions).reshape(len(variances), d), np.array(variances)
