"""Latents with a dense precision, such as those of a Gaussian process: their heads, their modes and a frame.

Here each difference of scores gives one column of the Hessian, so that a precision takes as many gradients as
there are latents. A mode is therefore approached by gradients alone, with the factor of a mode nearby
(L-BFGS: Nocedal and Wright, 2006, Numerical Optimization, section 7.2), and its Hessian is taken once.

All scalars of a program are coupled to all latents. Which of them are heads, and which are latents
themselves, is told by the curvature: as a scalar moves, latents follow to their new mode, and the curvature
there changes if the scalar is a head. An intercept does change the curvature at latents that stay where they
are, and not at those that follow.

A factor of such a precision changes much with the heads, in whatever order. But precisions at different heads
have nearly the same axes: those of a stationary process are waves. In a frame of such axes the factors are
nearly diagonal.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from scipy.linalg import solve_triangular
from scipy.sparse.csgraph import connected_components

from .laplace import LatentMode, find_mode
from .precision import Precision, dense_factor
from .probes import Coupling, ScaledDensity

LEAST, LARGEST = 8, 200  # numbers of latents
_FEW = 3  # a variable with more coordinates holds latents; those of smaller ones may be heads
_TIED = 0.4  # share of the entries that the precision of the largest block of coupled latents has
_SIGNS = 4  # random vectors that tell how much a curvature changes
_CHANGE = 0.4  # a field pays if the logarithm of a curvature changes by this within the design
# Root mean square changes beside the diagonal are 0.01 to 0.23 times those on it for crossed effects and item
# response with two parameters for each item, and 0.8 to 1.4 times for processes.
_TIES = 0.4


def dense_coupling(coupling: Coupling, variables: np.ndarray) -> Coupling | None:
    """The coupling of a dense block, in which the candidates for heads are wide; None if it is not dense.

    `variables` (d,) are the numbers of the variables that coordinates belong to.
    """
    d = variables.size
    scalar = np.bincount(variables, minlength=1)[variables] <= _FEW
    latents = np.flatnonzero(~scalar)
    if not LEAST <= len(latents) <= LARGEST or not scalar.any():
        return None
    between = coupling.pattern[latents][:, latents]
    parts = connected_components(between, directed=False)[1]
    largest = np.flatnonzero(parts == np.bincount(parts).argmax())
    if len(largest) < LEAST or between[largest][:, largest].nnz < _TIED * len(largest) ** 2:
        return None
    whole = sparse.csc_matrix(np.ones((d, d), bool))
    return Coupling(whole, coupling.diagonal, scalar, (), ())


def head_strengths(
    density: ScaledDensity, x: np.ndarray, coupling: Coupling, delta: float
) -> tuple[dict[int, float], np.ndarray] | None:
    """How much each candidate changes the curvature of the latents, which follow it; and their mode (d,).

    The candidate moves by `delta`, or by its standard deviation if that is smaller. The strength is the root
    mean square of the change over the latents, in coordinates in which the curvature is I.
    """
    candidates = np.flatnonzero(coupling.wide)
    narrow = coupling._replace(wide=np.zeros_like(coupling.wide))
    precision = Precision(density, narrow, candidates)
    mode = find_mode(precision, x)
    if mode is None:
        return None
    own, root = precision.latents, dense_factor(mode.factor)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (_SIGNS, len(own)))
    directions = np.zeros((_SIGNS, x.size))
    directions[:, own] = solve_triangular(root, signs.T, trans="T", lower=True).T
    found = {}
    for k in candidates:
        axis = np.zeros(x.size)
        axis[k] = 1.0
        column = density.curvature(mode.x, axis)
        if column is None:
            continue
        axis[own] = -mode.factor.solve(column[own])
        stiffness = float(column @ axis)
        step = min(delta / density.unit[k], 1.0 / np.sqrt(stiffness) if stiffness > 0.0 else np.inf)
        squares = []
        for direction in directions:
            ahead = density.curvature(mode.x + step * axis, direction)
            behind = density.curvature(mode.x - step * axis, direction)
            if ahead is not None and behind is not None:
                change = solve_triangular(root, (ahead - behind)[own], lower=True)
                squares.append(float(np.mean(np.square(change))))
        if squares:
            found[int(k)] = float(np.sqrt(np.mean(squares)))
    return found, mode.x


def changes(modes: list[LatentMode]) -> bool:
    """Whether the curvature at some of these modes differs from that at the first one."""
    largest = 0.0
    for change in _log_changes([dense_precision(mode) for mode in modes]):
        largest = max(largest, float(np.abs(np.linalg.eigvalsh(change)).max()))
    return largest > _CHANGE


def ties_change(modes: list[LatentMode]) -> bool:
    """Whether precisions at other modes differ from that at the first one beside their diagonals too.

    Where the diagonal alone changes, the heads are scales of independent latents, which the data tie: crossed
    effects, say. Groups (group.py) are the law of these, and it costs less.
    """
    first, *others = map(dense_precision, modes)
    unit = 1.0 / np.sqrt(np.diag(first))
    squares = np.square([(precision - first) * np.outer(unit, unit) for precision in others])
    diagonal = float(np.trace(squares, axis1=1, axis2=2).sum())
    return float(squares.sum()) - diagonal > _TIES**2 * diagonal


def dense_precision(mode: LatentMode) -> np.ndarray:
    """The precision (n, n) at a mode."""
    root = dense_factor(mode.factor)
    return np.asarray(root @ root.T)


def find_frame(precisions: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Axes (n, n), in columns, in which the first precision is I and the others are nearly diagonal.

    They are the axes of the mean square of the logarithms of the others, with these weights (p,). The
    stiffest ones come first.
    """
    logs = np.array(_log_changes(precisions))
    vectors = np.linalg.eigh(np.einsum("p,pij,pjk->ik", weights[1:], logs, logs))[1]
    root = np.linalg.cholesky(precisions[0])
    frame = solve_triangular(root, vectors, trans="T", lower=True)
    return np.asarray(frame[:, np.argsort(np.square(frame).sum(axis=0))])


def change_axes(precisions: list[np.ndarray], offsets: np.ndarray) -> np.ndarray:
    """V (m, m), where |V t| is about how far the precision is from the first one, at the `offsets` t (p, m).

    The distance is the root of the summed squares of the logarithms of all curvatures, where the first
    precision is I.
    """
    logs = np.array(_log_changes(precisions))
    slopes = np.linalg.lstsq(offsets[1:], logs.reshape(len(logs), -1), rcond=None)[0]
    values, vectors = np.linalg.eigh(slopes @ slopes.T)
    return np.asarray(np.sqrt(np.maximum(values, 1e-12))[:, None] * vectors.T)


def _log_changes(precisions: list[np.ndarray]) -> list[np.ndarray]:
    """The logarithms (n, n) of precisions in coordinates in which the first one is I."""
    root, found = np.linalg.cholesky(precisions[0]), []
    for precision in precisions[1:]:
        half = solve_triangular(root, precision, lower=True)
        values, vectors = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
        found.append((vectors * np.log(np.maximum(values, 1e-12))) @ vectors.T)
    return found
