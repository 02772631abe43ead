"""Fields beside effects, once more: given effects that are standard normal.

A field is found given all other latents as they are. But effects of groups follow their mean, so that where
the latents of a series move, effects move with them in the coordinates of their law: data hold the series
less, and by how much depends on the scales of effects too. So the field is looked for again in these
coordinates, in which effects stay where they are. What is better by the scores stays: effects of groups that
are seen at all times tie these to each other, so that there may be no field then.

Effects may also be found alone beside a series that is short. That gets a field in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..composition import points_in_z
from ..field_table import (
    bends_of_effects,
    effects_alone,
    factors_in,
    fields_of,
    join_fields,
    latents_and_heads,
)
from ..map_table import OWN
from .effects_search import climb_beside, how_far_off_normal, point_in_x
from .learned_law import Learned
from .probes import Coupling, Evaluate, ScaledDensity, couple
from .several import density_within

# A field for a part of the coordinates: from their density, coupling, the point, and their variables.
LearnPart = Callable[[ScaledDensity, Coupling, np.ndarray, np.ndarray], Learned | None]

GOOD = 0.5  # scores of latents are off by less, in root mean square: no other field is looked for
FAIR = 1.0  # and by less than this where there was none before


def given_standard_effects(
    found: Learned,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    learn: LearnPart,
    most: int,
) -> tuple[Learned, int]:
    """The effects that are `found` and their field, or with another field, and the gradients that this took.

    `learn` looks for it with at most so many gradients; the other arguments are those of `learn_field`.
    """
    off, point, taken = _how_far_off(found, density_in, x, unit)
    if off < GOOD:
        return found, taken
    effects = effects_alone(found.rows)
    own = np.concatenate([factor.own.ravel() for factor in factors_in(found.rows)])
    others = np.setdiff1d(np.arange(x.size), own)
    z = points_in_z(effects, point[None])[0]
    z[own], unit = 0.0, unit.copy()
    unit[own] = 1.0
    limit = most + len(others) + 1  # with the look for neighbours
    whole = ScaledDensity(density_in(effects), unit, limit)
    part, begin = density_within(whole, z / unit, others), z[others] / unit[others]
    part.limit(limit)
    coupling = couple(part, begin, variables[others])
    part.has_looked()
    learned = None if coupling is None else learn(part, coupling, begin, variables[others])
    taken += part.gradients
    if learned is None or not len(learned.rows) or part.spent >= 1.0:
        return found, taken
    again = _put_together(found, learned, effects, others)
    off_again, _, more = _how_far_off(again, density_in, point, unit)
    return again if off_again < off else found, taken + more


def _put_together(found: Learned, learned: Learned, effects: np.ndarray, others: np.ndarray) -> Learned:
    """The effects that are `found` with a field that is `learned` for all `others` (k,)."""
    field = join_fields([learned.rows], [others])
    bends = bends_of_effects(found.rows, field)
    scale, directions = found.scale.copy(), np.zeros((len(learned.variances), len(found.scale)))
    scale[others], directions[:, others] = learned.scale, learned.directions
    bent = bends[:, OWN].astype(np.int64)
    scale[bent] = found.scale[bent]
    return Learned(np.concatenate((effects, field, bends)), scale, directions, learned.variances)


def _how_far_off(
    found: Learned, density_in: Callable[[np.ndarray], Evaluate], x: np.ndarray, unit: np.ndarray
) -> tuple[float, np.ndarray, int]:
    """How far scores of the latents of fields are off, in root mean square, around the mode of all else where
    latents and effects are 0; that mode (d,), as a point x; and the gradients that this took.

    Where there is no field, the first is what another one may be off, and the second is `x` (d,): series and
    their scales have no mode together.
    """
    rows, density = found.rows, ScaledDensity(density_in(found.rows), unit)
    standard, fields = latents_and_heads(rows)[0], fields_of(rows)[0]
    if not fields:
        return FAIR, x, 0
    latents = np.concatenate([law.own for law in fields])
    inner, middle, _ = climb_beside(density, density_in(rows), points_in_z(rows, x[None])[0], standard)
    rng = np.random.default_rng(7)  # no random numbers of the chain
    off = how_far_off_normal(inner, middle, found.scale, rng, standard, latents[:0], latents)
    return off, point_in_x(rows, middle), inner.gradients
