"""The sparse precision of the latents, and its factor, at a point."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu, spsolve_triangular

from .probes import Coupling, ScaledDensity, colours_of

_SYMMETRIC = {"SymmetricMode": True}


class Factor(NamedTuple):
    """L D L^T of a precision in the order of elimination, with the background beside it."""

    lower: sparse.csc_array  # (n, n) L with a unit diagonal
    pivots: np.ndarray  # (n,) D
    solver: Any  # of SciPy, which has no name for its type
    carried: np.ndarray  # (n, b) Q^-1 B, where the background is B B^T
    inner: np.ndarray  # (b, b) I + B^T Q^-1 B
    background: np.ndarray  # (n, b) B

    def solve(self, v: np.ndarray) -> np.ndarray:
        """(Q + B B^T)^-1 v, by the formula of Woodbury."""
        found = self.solver.solve(v)
        if self.inner.size:
            found = found - self.carried @ np.linalg.solve(self.inner, self.background.T @ found)
        return np.asarray(found)

    def log_det(self) -> float:
        """log |Q + B B^T|."""
        return float(np.log(self.pivots).sum() + np.linalg.slogdet(self.inner)[1])


class Precision:
    """How the precision of the latents is found at a point: their order, colours, and where entries go."""

    def __init__(self, density: ScaledDensity, coupling: Coupling, heads: np.ndarray) -> None:
        """For all coordinates but `heads` (m,)."""
        self.density, self.coupling, self.heads = density, coupling, heads
        d = coupling.wide.size
        self.dense = coupling.is_dense()
        # Whether the log density was quadratic along the last step of Newton's method. If it is, one-sided
        # differences are as good as central ones.
        self.quadratic = False
        latents = np.setdiff1d(np.arange(d), heads)
        wide = coupling.wide[latents]
        pattern = coupling.pattern[latents][:, latents]
        narrow = np.flatnonzero(~wide)
        between = pattern[narrow][:, narrow].tocsc()
        # A matrix with a large diagonal has the factor's pattern, whatever its entries are.
        filled = (between.astype(float) + sparse.identity(len(narrow)) * (len(narrow) + 1.0)).tocsc()
        permuted = np.argsort(
            splu(filled, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=_SYMMETRIC).perm_c
        )
        order = np.concatenate((narrow[permuted], np.flatnonzero(wide)))
        self.latents = latents[order]  # in the order of elimination
        wide = wide[order]
        pattern = pattern[order][:, order].tocsc()
        pattern.sort_indices()
        rows, columns = pattern.indices, np.repeat(np.arange(len(order)), np.diff(pattern.indptr))
        self._empty = pattern.astype(float)  # with the entries of a precision, but not their values
        self._transpose = _transposed_places(pattern)
        colour_of = np.full(len(order), -1)
        colour_of[: len(narrow)] = _colours_of_most(between)[permuted]
        alone = colour_of < 0
        probe_of = np.where(alone, colour_of.max(initial=-1) + np.cumsum(alone), colour_of)
        n_probes = probe_of.max(initial=-1) + 1
        seen = np.flatnonzero(alone[columns] | ~alone[rows])
        of_probes = _by_number(probe_of, n_probes), _by_number(probe_of[columns[seen]], n_probes)
        self._probes: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # members, places, rows
        for own, at in zip(*of_probes, strict=True):
            self._probes.append((own, seen[at], rows[seen[at]]))
        self._from_alone = alone[columns] & ~alone[rows]
        self._directions = np.zeros((len(self._probes), d))
        self._directions[probe_of, self.latents] = 1.0
        background = np.zeros((len(order), len(coupling.levels)))
        place = np.full(d, -1)
        place[self.latents] = np.arange(len(order))
        for b, (members, level) in enumerate(zip(coupling.members, coupling.levels, strict=True)):
            background[place[members], b] = np.sqrt(level) * density.unit[members]
        self.background = background
        # What the background adds to the product of the precision with each probe: it is the same everywhere.
        self._in_probes = np.array(
            [background @ background[members].sum(axis=0) for members, _, _ in self._probes]
        )

    @property
    def cost(self) -> int:
        """Gradients that a precision takes."""
        return len(self._probes) + 1 if self.dense else 2 * len(self._probes)

    def at(self, x: np.ndarray, score: np.ndarray) -> sparse.csc_matrix | None:
        """The precision (n, n) at `x` (d,), without the background; None where scores are missing.

        With the `score` (d,) there, one-sided differences take half as many gradients as central ones.
        """
        data = np.zeros(self._empty.nnz)
        here = score if self.dense or self.quadratic else None
        products = self.density.curvatures(x, self._directions, here)
        if np.isnan(products).any():
            return None
        of_latents = products[:, self.latents] - self._in_probes
        for product, (_, at, rows) in zip(of_latents, self._probes, strict=True):
            data[at] = product[rows]
        # A probe sees the rows of latents without a colour as sums: their own columns have the entries.
        data[self._transpose[self._from_alone]] = data[self._from_alone]
        matrix = copy.copy(self._empty)  # SciPy would look at all places again
        matrix.data = 0.5 * (data + data[self._transpose])
        return matrix

    def factor(self, matrix: sparse.csc_matrix) -> Factor | None:
        """The factor of a precision; None if it is not positive definite."""
        try:
            # Panels pay in dense factors; in those of series and maps they take half of the time.
            lu = splu(
                matrix,
                permc_spec="NATURAL",
                diag_pivot_thresh=0.0,
                relax=1,
                panel_size=1,
                options=_SYMMETRIC,
            )
        except RuntimeError:  # it is singular
            return None
        lower, pivots = lu.L, lu.U.diagonal()
        lower.sort_indices()
        if not (np.all(pivots > 0.0) and np.array_equal(lu.perm_r, np.arange(len(pivots)))):
            return None
        if not self.background.size:
            none = np.zeros((0, 0))
            return Factor(lower, pivots, lu, none, none, none)
        carried = lu.solve(self.background)
        inner = np.eye(carried.shape[1]) + self.background.T @ carried
        return Factor(lower, pivots, lu, carried, inner, self.background)


def dense_factor(factor: Factor) -> np.ndarray:
    """The Cholesky factor (n, n) of a precision without a background."""
    return np.asarray(factor.lower.toarray() * np.sqrt(factor.pivots))


def background_directions(factor: Factor) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal directions (b, n) of the background in z, and the variances (b,) that z has there.

    In z the background is B_z B_z^T with B_z = D^(-1/2) L^-1 B.
    """
    if not factor.inner.size:
        return np.zeros((0, len(factor.pivots))), np.zeros(0)
    moved = spsolve_triangular(factor.lower.tocsr(), factor.background, lower=True)
    moved /= np.sqrt(factor.pivots)[:, None]
    left, sizes, _ = np.linalg.svd(moved, full_matrices=False)
    return left.T, 1.0 / (1.0 + np.square(sizes))


def _colours_of_most(pattern: sparse.csc_matrix) -> np.ndarray:
    """A colour (n,) for each column, so that columns of one colour share no row; -1 for those that have a
    probe alone, which asks for fewer probes where a few columns have many entries, as the effects of persons
    beside a series for each.
    """
    colours = colours_of(pattern)
    degrees = np.asarray(pattern.sum(axis=0)).ravel().astype(np.int64)
    if not len(degrees):
        return colours
    # Without the columns that have more entries than a limit, and with a probe for each of these, so many
    # probes are needed at least.
    limits = np.unique(degrees)
    probes = limits + np.array([np.count_nonzero(degrees > limit) for limit in limits])
    rest = np.flatnonzero(degrees <= limits[probes.argmin()])
    of_rest = colours_of(pattern[rest][:, rest].tocsc()) if len(rest) < len(degrees) else colours
    if len(degrees) - len(rest) + of_rest.max() >= colours.max():
        return colours
    found = np.full(len(degrees), -1)
    found[rest] = of_rest
    return found


def _by_number(numbers: np.ndarray, n: int) -> list[np.ndarray]:
    """Where each of the numbers from 0 to `n` - 1 stands among `numbers`, in order."""
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers, minlength=n)))[:-1]


def _transposed_places(pattern: sparse.csc_matrix) -> np.ndarray:
    """For each entry of a symmetric pattern the place of the entry that mirrors it."""
    numbered = sparse.csc_matrix(
        (np.arange(1, pattern.nnz + 1), pattern.indices, pattern.indptr), pattern.shape
    )
    mirrored = numbered.T.tocsc()
    mirrored.sort_indices()
    return np.asarray(mirrored.data - 1)
