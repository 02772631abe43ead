"""Least squares for many columns of numbers, each with weights of its own, in the same few terms."""

from __future__ import annotations

import numpy as np

from ...jit import kernel
from ...kinds import Matrix

# Terms are nearly orthonormal and scaled, so that a pivot is this small only by rounding.
_LEAST_PIVOT = 1e-14


def products_of_pairs(terms: np.ndarray) -> np.ndarray:
    """The products (p, q (q + 1) / 2) of pairs of `terms` (p, q), in the order of `numpy.triu_indices`."""
    columns = np.ascontiguousarray(terms.T)
    q, p = columns.shape
    products, first = np.empty((q * (q + 1) // 2, p)), 0
    for k in range(q):  # picking both terms of all pairs first would take three times the memory
        np.multiply(columns[k], columns[k:], out=products[first : first + q - k])
        first += q - k
    return products.T


def weighted_least_squares(
    terms: np.ndarray, products: np.ndarray, weights: np.ndarray, penalty: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Coefficients (n, q) that explain each row of `wanted` (n, p) by `terms` (p, q), with weights (n, p).

    `products` (p, q (q + 1) / 2) are the `products_of_pairs` of the terms, so that the normal equations of
    all rows are one product of matrices. A second solution, for what the first one leaves, has the digits
    that these lose.
    """
    roots, sizes = weights @ products, np.empty((len(weights), len(penalty)))
    _factorise(roots, penalty, sizes)
    found = np.zeros((len(wanted), len(penalty)))
    for _ in range(2):
        left = (weights * (wanted - found @ terms.T)) @ terms - penalty * found
        _solve(roots, sizes, left)
        found += left
    return found


@kernel(late=True)
def _factorise(normal: Matrix, penalty: Matrix, sizes: Matrix) -> None:
    """Replace normal matrices (n, q (q + 1) / 2), without the penalty (q,), by Cholesky factors R in rows.

    Each matrix is R^T R after its rows and columns have been multiplied by `sizes` (n, q), which are written
    and make its diagonal 1.
    """
    q = penalty.size
    for one in range(len(normal)):
        matrix, size = normal[one], sizes[one]
        k = 0
        for i in range(q):
            matrix[k] += penalty[i]
            size[i] = 1.0 / np.sqrt(matrix[k])
            k += q - i
        k = 0
        for i in range(q):
            for j in range(i, q):
                matrix[k + j - i] *= size[i] * size[j]
            k += q - i
        k = 0
        for i in range(q):
            row = matrix[k : k + q - i]
            pivot = 1.0 / np.sqrt(max(row[0], _LEAST_PIVOT))
            for j in range(q - i):
                row[j] *= pivot
            row[0] = 1.0 / pivot
            k += q - i
            at = k
            for j in range(1, q - i):
                factor, below, own = row[j], matrix[at : at + q - i - j], row[j:]
                for c in range(q - i - j):
                    below[c] -= factor * own[c]
                at += q - i - j


@kernel(late=True)
def _solve(roots: Matrix, sizes: Matrix, right: Matrix) -> None:
    """Solve the normal equations of each row of `right` (n, q) in place, by factors of `_factorise`."""
    q = right.shape[1]
    for one in range(len(right)):
        root, size, x = roots[one], sizes[one], right[one]
        for i in range(q):
            x[i] *= size[i]
        k = 0
        for i in range(q):  # R^T y = b
            x[i] /= root[k]
            for j in range(1, q - i):
                x[i + j] -= root[k + j] * x[i]
            k += q - i
        for i in range(q - 1, -1, -1):  # R x = y
            k -= q - i
            left = x[i]
            for j in range(1, q - i):
                left -= root[k + j] * x[i + j]
            x[i] = left / root[k]
        for i in range(q):
            x[i] *= size[i]
