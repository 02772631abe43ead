"""Effects as rows of a map: written, read, checked and told. effects.py has the law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import rotation
from .effects_factor import places
from .map_table import (
    BOUNDED,
    COLUMNS,
    EFFECTS,
    IS_CENTRED,
    KIND,
    N_CHANGING,
    N_COEFFICIENTS,
    N_EFFECTS,
    N_GRADIENTS,
    N_HEADS,
    N_LATENTS,
    N_TIES,
    OWN_ROWS,
    POWER,
    ROWS,
    TURN,
    are_coordinates,
    pack_rows,
)

LARGEST = 8  # effects of a group
LEAST_GROUPS, LEAST_EFFECTS = 4, 10  # of groups of a factor, and of the effects of all factors
LEAST_ROTATED = 5  # effects of one scale that the data tie


class Effects(NamedTuple):
    """The numbers of the law for one factor, see effects.py."""

    heads: np.ndarray  # (K (K + 1) / 2,)
    coefficients: np.ndarray  # (p,)
    own: np.ndarray  # (J, K)
    precision: np.ndarray  # (J, K, K) D
    pulls: np.ndarray  # (J, K) b, the means of effects taken off
    slopes: np.ndarray  # (J, K, p) E, the same
    ties: np.ndarray  # (t, 2) coordinates and groups of other columns of E, entry by entry
    tied: np.ndarray  # (t, K) these entries
    offsets: np.ndarray  # (J, K)
    means: np.ndarray  # (J, K, p) A
    centred: bool
    changing: np.ndarray  # (r,) the coordinates v
    rates: np.ndarray  # (r, K) rho
    middles: np.ndarray  # (r,) of v
    powers: np.ndarray  # (r,) epsilon
    shares: np.ndarray  # (r, J) w
    changing_bounded: np.ndarray  # (r,) whether v is of a scale with an upper bound
    log_units: np.ndarray  # (K,) log c
    bounded: bool  # whether the scales of effects have an upper bound
    middle: np.ndarray  # (K (K + 1) / 2,) where the heads are
    turn: float  # t is tanh of this multiple of the coordinate
    power: float  # beta: 1 for log scales, 1/2 for log variances and -1/2 for log precisions


def log_of_scales(bounded: bool | np.ndarray, u: np.ndarray) -> np.ndarray:
    """h(u), the log of a scale but for a constant: u, and log(1 / (1 + e^-u)) where it has an upper bound."""
    return np.asarray(np.where(bounded, -np.logaddexp(0.0, -u), u))


def slope_of_log(bounded: bool, u: float) -> float:
    """The derivative of `log_of_scales` at `u`."""
    return float(1.0 / (1.0 + np.exp(u))) if bounded else 1.0


def root_at(log_scales: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """C (K, K) from log scales (K,) and the numbers whose tanh is t, (K (K - 1) / 2,), or (0,) for none."""
    k, at = len(log_scales), 0
    lower = np.eye(k)
    for i in range(1, k if len(angles) else 1):
        t = np.tanh(angles[at : at + i])
        rest = np.sqrt(np.cumprod(np.append(1.0, 1.0 - np.square(t))))
        lower[i, :i], lower[i, i] = t * rest[:-1], rest[-1]
        at += i
    return np.asarray(np.exp(log_scales)[:, None] * lower)


def log_scales_at(law: Effects, theta: np.ndarray) -> np.ndarray:
    """The log standard deviations (J, K) of effects given the heads `theta`, with all v in their middles."""
    k = law.own.shape[1]
    log_scales = law.log_units + law.power * log_of_scales(law.bounded, theta[:k])
    root = root_at(log_scales, law.turn * theta[k:])
    inverse = np.linalg.inv(np.eye(k) + root.T @ law.precision @ root)
    covariance = root @ inverse @ root.T if law.centred else inverse
    return np.asarray(0.5 * np.log(np.diagonal(covariance, axis1=1, axis2=2)))


def are_told_apart(rates: np.ndarray) -> np.ndarray:
    """Which effects (K, K) have different rates (r, K): different data tell them, and D does not tie them."""
    return np.asarray((rates[:, :, None] != rates[:, None, :]).any(axis=0))


def effects_rows(factors: Sequence[Effects], gradients: int) -> np.ndarray:
    """The rows of a map that hold the law; `gradients` is the number that learning it took."""
    rows = np.concatenate([_rows_of(law) for law in factors])
    rows[0, ROWS], rows[0, N_GRADIENTS] = len(rows), gradients
    return rows


def _rows_of(law: Effects) -> np.ndarray:
    """The rows of one factor."""
    groups, k = law.own.shape
    lower = np.tril_indices(k)
    by_groups = [law.precision[:, lower[0], lower[1]], law.pulls, law.slopes]
    numbers = [law.heads, law.coefficients, law.own.T, law.changing, law.rates, law.middles]
    numbers += [law.powers, law.shares]
    numbers += [np.moveaxis(v, 0, -1) for v in by_groups]
    numbers += [law.ties.T, law.tied.T]
    if law.centred:
        numbers += [np.moveaxis(v, 0, -1) for v in (law.offsets, law.means)]
    numbers += [law.log_units, law.changing_bounded, law.middle]
    header = {
        KIND: EFFECTS,
        N_LATENTS: groups * k,
        N_HEADS: len(law.heads),
        N_EFFECTS: k,
        N_COEFFICIENTS: len(law.coefficients),
        IS_CENTRED: law.centred,
        N_CHANGING: len(law.changing),
        N_TIES: len(law.ties),
        TURN: law.turn,
        POWER: law.power,
        BOUNDED: law.bounded,
    }
    rows = pack_rows(header, numbers)
    rows[0, [ROWS, OWN_ROWS]] = len(rows)
    return rows


def effects_of(rows: np.ndarray) -> list[Effects]:
    """The law of each factor that these rows of a map hold, the first header first; none without rows.

    Bends of the scales may follow.
    """
    parts = _parts(rows)
    return [_effects_in(part) for part in parts if part[0, N_EFFECTS] > 0.0]


def rotations_of(rows: np.ndarray) -> list[rotation.Rotation]:
    """The rotations that follow the factors; none without rows."""
    parts = _parts(rows)
    return [rotation.rotation_of(part) for part in parts if part[0, N_EFFECTS] == 0.0]


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of each factor and rotation, without bends that may follow."""
    return _factors_in(rows[: int(rows[0, ROWS])]) if len(rows) else []


def _factors_in(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of each factor; what is left over, in a table from a file, is a factor of its own."""
    parts = []
    while len(rows):
        own = rows[0, OWN_ROWS]
        end = int(own) if 1.0 <= own <= len(rows) else len(rows)
        parts.append(rows[:end])
        rows = rows[end:]
    return parts


def _effects_in(rows: np.ndarray) -> Effects:
    header, flat, at = rows[0], rows.reshape(-1), [int(place) for place in places(rows[0])]
    k, p, centred = int(header[N_EFFECTS]), int(header[N_COEFFICIENTS]), header[IS_CENTRED] > 0.0
    groups, lower = int(header[N_LATENTS]) // k, np.tril_indices(k)
    parts = [flat[at[i] : at[i + 1]] for i in range(len(at) - 1)]

    def by_group(number: int, *shape: int) -> np.ndarray:
        """An array (J, ...), which has its groups last among the numbers of the rows."""
        return np.moveaxis(parts[number].reshape(*shape, groups), -1, 0)

    packed, precision = by_group(8, len(lower[0])), np.zeros((groups, k, k))
    precision[:, lower[0], lower[1]] = precision[:, lower[1], lower[0]] = packed
    return Effects(
        heads=parts[0].astype(np.int64),
        coefficients=parts[1].astype(np.int64),
        own=by_group(2, k).astype(np.int64),
        precision=precision,
        pulls=by_group(9, k),
        slopes=by_group(10, k, p),
        ties=np.column_stack((parts[11], parts[12])).astype(np.int64),
        tied=parts[13].reshape(k, -1).T,
        offsets=by_group(14, k) if centred else np.zeros((groups, k)),
        means=by_group(15, k, p) if centred else np.zeros((groups, k, p)),
        centred=bool(centred),
        changing=parts[3].astype(np.int64),
        rates=parts[4].reshape(-1, k),
        middles=parts[5],
        powers=parts[6],
        shares=parts[7].reshape(-1, groups),
        changing_bounded=parts[17] > 0.0,
        log_units=parts[16],
        bounded=bool(header[BOUNDED]),
        middle=parts[18],
        turn=float(header[TURN]),
        power=float(header[POWER]),
    )


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, hold a law of `d` coordinates."""
    if rows[0, ROWS] != len(rows) or not np.isfinite(rows).all():
        return False
    parts = _factors_in(rows)
    while len(parts) > 1 and parts[-1][0, N_EFFECTS] == 0.0:
        if not rotation.is_valid(parts.pop(), d):
            return False
    if not all(_is_valid(part, d) for part in parts):
        return False
    factors = [_effects_in(part) for part in parts]
    before: set[int] = set()  # effects of this factor and of those before it, on which it may not depend
    whole = np.concatenate([law.own.ravel() for law in factors])
    if len(set(whole)) < len(whole):
        return False
    for law in factors:
        before |= set(law.own.ravel().tolist())
        if before & set(law.coefficients.tolist()) or before & set(law.ties[:, 0].tolist()):
            return False
        if np.isin(np.concatenate((law.heads, law.changing)), whole).any():
            return False
    return True


def _is_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows hold the law of one factor."""
    header = rows[0]
    counts = header[[N_LATENTS, N_HEADS, N_EFFECTS, N_COEFFICIENTS, N_CHANGING, N_TIES]]
    if not (are_coordinates(counts, rows.size) and header[KIND] == EFFECTS and header[OWN_ROWS] == len(rows)):
        return False
    n, heads, k, p = (int(count) for count in counts[:4])
    if not 1 <= k <= LARGEST or n == 0 or n % k or heads not in (k, k * (k + 1) // 2):
        return False
    end = int(places(header)[-1]) if header[IS_CENTRED] in (0.0, 1.0) else 0
    if header[BOUNDED] not in (0.0, 1.0):
        return False
    if not (rows.size - COLUMNS < end <= rows.size and header[TURN] > 0.0 and header[POWER] != 0.0):
        return False
    law = _effects_in(rows)
    if not (are_coordinates(law.ties[:, 0], d) and are_coordinates(law.ties[:, 1], n // k)) or p > d:
        return False
    for others in ((law.heads, law.coefficients), (law.heads, law.changing)):
        whole = np.concatenate((*others, law.own.ravel()))
        if not are_coordinates(whole, d) or len(set(whole)) < len(whole):
            return False
    if not np.isin(rows.reshape(-1)[places(header)[17] : places(header)[18]], (0.0, 1.0)).all():
        return False
    if law.precision[:, are_told_apart(law.rates)].any():
        return False
    if np.any(law.shares < 0.0) or np.any(law.shares.sum(axis=0) > 1.0 + 1e-9):
        return False
    return bool(np.linalg.eigvalsh(law.precision).min() >= -1e-6 * max(float(law.precision.max()), 1.0))
