"""Laws that are looked for before a field or beside it: those of effects and weights, and along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..field_table import factors_in, latents_and_heads, moved_beside_latents
from ..map_table import no_transport
from ..rotation import Rotation, rotation_rows, with_rotations
from .effects_search import find_effects, may_have_effects
from .learned_law import Learned, without_directions
from .probes import Coupling, Evaluate, ScaledDensity, couple
from .rotation_search import find_rotations, without_ties
from .weights_search import find_weights


def look_for_effects(
    density_in: Callable[[np.ndarray], Evaluate], x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Learned | None, Coupling | None, int]:
    """The law of effects, if there is one, the coupling that was seen, and the gradients that it took."""
    density = ScaledDensity(density_in(no_transport()), unit)
    if not may_have_effects(density, x / unit, variables):
        return None, None, density.gradients
    learned, taken = look_for_weights_or_axes(density_in, x, unit, variables, alone=True)
    density.gradients += taken
    if learned is not None:
        return learned, None, density.gradients
    found, coupling = _find_effects(density, density_in, x / unit, variables)
    return found, coupling, density.gradients


def look_for_weights_or_axes(
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    *,
    alone: bool,
) -> tuple[Learned | None, int]:
    """The law of weights, else that of effects along axes, and the gradients that this took."""
    found, taken = _look_for_weights(density_in, x, unit, variables, alone=alone)
    if found is None:
        found, more = look_along_axes(density_in, x, unit, variables)
        taken += more
    return found, taken


def with_effects(
    found: Learned,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    coupling: Coupling,
) -> tuple[Learned, int]:
    """A field with the law of effects for those groups that are no latents of it, if there are any, and the
    gradients that this took.

    The arguments are those of the field's search; `coupling` is what was seen at `x` (d,).
    """
    density = ScaledDensity(density_in(no_transport()), unit)
    try:
        judged = find_effects(density, density_in, x / unit, coupling, variables, beside=found.rows)
    except (np.linalg.LinAlgError, ValueError):  # after an overflow
        judged = None
    if judged is None:
        return found, density.gradients
    rows, scale = judged
    kept = np.concatenate((latents_and_heads(found.rows)[0], moved_beside_latents(found.rows)))
    scale[kept] = found.scale[kept]
    return found._replace(rows=rows, scale=scale), density.gradients


def look_along_axes(
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    *,
    with_scale: bool = False,
) -> tuple[Learned | None, int]:
    """The law of effects that are tied, along their axes, if there is one, and its gradients; `with_scale` as
    in `find_rotations`.
    """
    density = ScaledDensity(density_in(no_transport()), unit)
    rotations = find_rotations(density, x / unit, variables, with_scale=with_scale)
    if not rotations:
        return None, density.gradients
    turned, x, unit = rotation_rows(rotations), x.copy(), unit.copy()
    for own, axes in rotations:
        x[own], unit[own] = axes.T @ x[own], np.sqrt(np.square(axes.T) @ np.square(unit[own]))

    def density_in_axes(rows: np.ndarray) -> Evaluate:
        return density_in(with_rotations(rows, turned))

    along = ScaledDensity(density_in_axes(no_transport()), unit)
    found, _ = _find_effects(along, density_in_axes, x / unit, variables, rotations)
    gradients = density.gradients + along.gradients
    if found is None or not _are_along(found, rotations):
        return None, gradients
    return found._replace(rows=with_rotations(found.rows, turned)), gradients


def _are_along(found: Learned, rotations: Sequence[Rotation]) -> bool:
    """Whether there are effects along the axes of some rotation; others are found without axes."""
    effects = np.concatenate([factor.own.ravel() for factor in factors_in(found.rows)])
    return any(np.isin(own, effects).any() for own, _ in rotations)


def _look_for_weights(
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    *,
    alone: bool,
) -> tuple[Learned | None, int]:
    """The law of weights, if there is one, and the gradients that it took; `alone` as in `find_weights`."""
    density = ScaledDensity(density_in(no_transport()), unit)
    try:
        found = find_weights(density, density_in, x / unit, variables, alone=alone)
    except (np.linalg.LinAlgError, ValueError):  # after an overflow
        found = None
    return None if found is None else without_directions(*found), density.gradients


def _find_effects(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    variables: np.ndarray,
    rotations: Sequence[Rotation] = (),
) -> tuple[Learned | None, Coupling | None]:
    """The law of effects around `x` (d,), in units, if there is one, and the coupling that was seen there."""
    found = coupling = None
    try:
        coupling = couple(density, x, variables)
        if coupling is not None:
            seen = without_ties(coupling, rotations) if rotations else coupling
            found = find_effects(density, density_in, x, seen, variables, rotated=bool(rotations))
    except (np.linalg.LinAlgError, ValueError):  # after an overflow
        found = None
    if found is None:
        return None, coupling
    return without_directions(*found), coupling
