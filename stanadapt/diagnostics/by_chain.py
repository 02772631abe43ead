"""What sets one chain apart from the others: tails, divergences, waits, step size, cost and coordinates.

A chain that has learnt a wrong map of the posterior may leave out a tail without a word: R-hat compares
ranks, and limits on a whole run hide what a single chain does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray
from scipy.special import betainc

from ..check import join_names
from .convergence import r_hat
from .finding import MOST_NAMES, Finding, Names, plain_chains
from .scalars import Scalars
from .shares import TAILS, Unlike, find_unlike
from .statistics import column, longest_wait

APART_R_HAT = 1.1  # above which R-hat itself tells enough of a scalar, and chains that sit apart are named
FAR = 3.0  # times the others' step size or cost
SOMEWHAT = 1.5  # likewise, of a chain that lacks coordinates
LONG_WAIT = 50  # draws without one acceptance
MANY_WAITS = 5.0  # times the longest wait that is usual in the other chains
CHANCE = 1e-4  # that so many of all divergences are one chain's where any chain has them as easily
_SHOWN = 3  # coordinates of a variable that a text names one by one
_HEAD = 2  # the role of a coordinate that rules a latent field, see transport/field.py


def tails(posterior: xarray.Dataset, scalars: Scalars, names: Names) -> list[Finding]:
    """Chains that have other shares of their draws in a tail than the others have, beyond chance."""
    chains, draws = posterior["chain"].values, posterior.sizes["draw"]
    with np.errstate(invalid="ignore"):
        usable = scalars.usable & (r_hat(scalars.moments, draws) <= APART_R_HAT)
    found = find_unlike(scalars.tail_hits, scalars.tail_clumps, usable, draws // 2 * 2)
    by_place = [[each for each in found if each.chain == place] for place in range(len(chains))]
    return [_tail(own, chains, names) for own in by_place[: 1 if len(chains) == 2 else None] if own]


def _tail(found: list[Unlike], chains: np.ndarray, names: Names) -> Finding:
    """Of one chain, or of the only two, its tails; the surest of them comes first."""
    first = found[0]
    quantile, side = TAILS[first.tail]
    more = len(found) - 1
    also = f", and {more} other {'tail differs' if more == 1 else 'tails differ'} too" if more else ""
    concerned, rest = chains[[first.chain]], "the others have"
    if len(chains) == 2:
        concerned, rest = chains, f"chain {chains[1]} has"
    text = (
        f"Chain {concerned[0]} has {first.share:.2%} of its draws {side} the {quantile:.0%} quantile of "
        f"{names.rows[first.row]}, where {rest} {first.others:.2%} ({first.errors:.3g} standard errors{also})"
        ". One side is wrong, although R-hat is near 1: do not rely on the tails. Warm up longer, raise "
        "target_accept, or reparametrise the model."
    )
    numbers = {
        "count": len(found),
        "quantile": quantile,
        "share": first.share,
        "others": first.others,
        "standard_errors": first.errors,
    }
    rows = list(dict.fromkeys(each.row for each in found))[:MOST_NAMES]
    variables = tuple(names.rows[row] for row in rows)
    return Finding("tails", text, variables, plain_chains(concerned), numbers)


def uneven(stats: xarray.Dataset | None, adaptation: xarray.Dataset | None) -> list[Finding]:
    """Chains whose step size, cost or coordinates are far from those of the others.

    Where it hardly matters whether a coordinate is learnt, some chains learn it and some do not. So those
    that a chain lacks count where its step size or cost differs too, if less.
    """
    group = stats if stats is not None else adaptation
    if group is None or "chain" not in group.coords or group.sizes["chain"] < 3:
        return []
    chains = group["chain"].values
    if adaptation is not None and adaptation.sizes.get("chain", 0) != len(chains):
        adaptation = None  # of other chains
    looked = []
    for key, words, combine in (
        ("step_size", "its step size is {:.3g}, and theirs {:.3g}", np.mean),
        ("n_steps", "an iteration takes it {:.3g} evaluations, and them {:.3g}", np.sum),
    ):
        values = None if stats is None else column(stats, key, combine)
        if values is not None:
            looked.append((key, words, values.mean(axis=1)))
    far = {key: _far(values, FAR) for key, _, values in looked}
    some = set().union(*(_far(values, SOMEWHAT) for _, _, values in looked))
    findings = []
    for place, chain in enumerate(chains):
        parts: list[str] = []
        numbers: dict[str, float] = {}
        for key, words, values in looked:
            if place in far[key]:
                own, others = float(values[place]), float(np.median(np.delete(values, far[key])))
                parts.append(words.format(own, others))
                numbers |= {key: own, f"others_{key}": others}
        lacking = {} if adaptation is None or place not in some else dict(_lacking(adaptation, place))
        if lacking:
            parts.append(f"it has not learnt {', nor '.join(lacking)}, as they have")
            numbers["coordinates"] = sum(lacking.values())
        if parts:
            text = (
                f"Chain {chain} is unlike the others: {'; '.join(parts)}. They have not learnt the same of "
                "the posterior, and one side may miss a part of it: warm up longer, and do not rely on tails."
            )
            findings.append(Finding("uneven", text, chains=plain_chains([chain]), numbers=numbers))
    return findings


def _far(values: np.ndarray, limit: float) -> list[int]:
    """Places of chains whose value (chain,) is more than `limit` times the others' median, or less than that.

    The farthest is left out, then the farthest of the rest, as long as there are three.
    """
    left, found = list(range(len(values))), []
    while len(left) > 2 and (values[left] > 0.0).all():
        ratios = []
        for place in left:
            others = np.median(values[[other for other in left if other != place]])
            ratios.append(max(values[place] / others, others / values[place]))
        if not max(ratios) > limit:
            break
        found.append(left.pop(int(np.argmax(ratios))))
    return found


def _lacking(adaptation: xarray.Dataset, place: int) -> Iterator[tuple[str, int]]:
    """What all other chains have learnt alike, and the chain has not; and of how many coordinates."""
    for name, none, words in (
        ("bend", 0, "the bend of {}"),
        ("tail_rate", 0, "the heavy tails of {}"),
        ("scale_head", -1, "what rules the scale of {}"),
        ("ridge_parent", -1, "the ridge that {} is on"),
        ("direction_power", 0, "the direction of {}"),
    ):
        if name not in adaptation.data_vars or adaptation[name].dims != ("chain", "unconstrained"):
            continue
        values = adaptation[name].values
        if values.dtype.kind not in "if":
            continue
        kinds = values if none < 0 else np.sign(values)  # to which side, or which coordinate
        rest = np.delete(kinds, place, axis=0)
        lacks = (kinds[place] == none) & (rest != none).all(axis=0) & (rest == rest[:1]).all(axis=0)
        labels = adaptation["unconstrained"].values
        if lacks.any():
            yield words.format(_list_coordinates(labels[lacks])), int(lacks.sum())
    yield from _lacking_field(adaptation, place)


def _list_coordinates(labels: np.ndarray) -> str:
    """Coordinates by their names; of a variable with more than a few of them, their number."""
    by_variable: dict[str, list[str]] = {}
    for label in map(str, labels):
        by_variable.setdefault(label.partition(".")[0], []).append(label)
    named: list[str] = []
    for variable, each in by_variable.items():
        named += each if len(each) <= _SHOWN else [f"{len(each)} coordinates of {variable}"]
    return join_names(named)


def _lacking_field(adaptation: xarray.Dataset, place: int) -> Iterator[tuple[str, int]]:
    """The latent field that all other chains have learnt, and the chain has not; or heads of theirs alone."""
    name = "field_role"
    if name not in adaptation.data_vars or adaptation[name].dims != ("chain", "unconstrained"):
        return
    heads, in_field = adaptation[name].values == _HEAD, adaptation[name].values > 0
    rest = np.delete(np.arange(len(heads)), place)
    if not in_field[rest].any(axis=1).all():
        return
    common = in_field[rest].all(axis=0)
    if not in_field[place].any():
        yield f"the latent field of {np.count_nonzero(common)} coordinates", 1
        return
    lacks = ~heads[place] & heads[rest].all(axis=0)
    labels = adaptation["unconstrained"].values
    if lacks.any():
        yield f"how the latent field depends on {_list_coordinates(labels[lacks])}", int(lacks.sum())


def waits(accepted: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Chains of (chain, draw) that stood still, and their longest waits.

    Those that waited for `most` draws or more, and those that waited much longer than is usual in the others.
    """
    longest = np.array([longest_wait(row) for row in accepted])
    found = []
    for place, wait in enumerate(longest):
        usual = np.median(np.delete(longest, place)) if len(longest) > 1 else np.inf
        if wait >= most or wait >= max(LONG_WAIT, MANY_WAITS * usual):
            found.append((place, int(wait)))
    return found


def divergent(diverging: np.ndarray, share: float) -> list[int]:
    """Places of chains that have more divergences than a share of their draws, and than chance gives them.

    Where chains are alike, each of all divergences (chain, draw) is any chain's with the same probability.
    The chain that has most is compared with the others, then the one that has most of these with the rest.
    """
    counts, draws = diverging.sum(axis=1), diverging.shape[1]
    left, found = list(range(len(counts))), []
    while len(left) > 1:
        place = max(left, key=lambda chain: int(counts[chain]))
        own, rest = float(counts[place]), float(counts[left].sum() - counts[place])
        left.remove(place)
        if not own > share * draws or not betainc(own, rest + 1.0, 1.0 / (len(left) + 1)) < CHANCE:
            break
        found.append(place)
    return found
