"""Fields of dense blocks of latents, and blocks that look like them."""

from __future__ import annotations

import numpy as np
import pytest

from densities import in_maps
from stanadapt.transport import composition
from stanadapt.transport.field_table import field_of
from stanadapt.transport.fields import field_learning
from stanadapt.transport.fields.dense import dense_coupling, head_strengths
from stanadapt.transport.fields.design import Design
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.filling import fill_design
from stanadapt.transport.fields.heads import choose_heads
from stanadapt.transport.fields.laplace import find_place
from stanadapt.transport.fields.precision import Precision
from stanadapt.transport.fields.probes import ScaledDensity, couple


class Process:
    """y ~ N(f, 0.3²) with a Gaussian process f = chol(K) z, whose log scale and log length are the heads.

    The program is not centred: its coordinates are log alpha, log rho and z. All is known of z, given both.
    """

    n = 14

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.t = np.linspace(0.0, 3.0, self.n)
        self.y = np.sin(2.0 * self.t) + 0.3 * rng.normal(size=self.n)

    def root(self, theta: np.ndarray) -> np.ndarray:
        square = np.square(np.subtract.outer(self.t, self.t)) * np.exp(-2.0 * theta[1])
        return np.linalg.cholesky(np.exp(2.0 * theta[0] - 0.5 * square) + 1e-6 * np.eye(self.n))

    def precision(self, theta: np.ndarray) -> np.ndarray:
        root = self.root(theta)
        return np.eye(self.n) + root.T @ root / 0.09

    def mean(self, theta: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.precision(theta), self.root(theta).T @ self.y / 0.09)

    def logp(self, theta: np.ndarray, z: np.ndarray) -> float:
        misses = self.y - self.root(theta) @ z
        heads = np.square((theta - np.array([0.0, -0.5])) / np.array([0.5, 0.4])).sum()
        return float(-0.5 * (misses @ misses / 0.09 + z @ z + heads))

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        theta, z = at[:2], at[2:]
        root = self.root(theta)
        score[2:] = root.T @ (self.y - root @ z) / 0.09 - z
        for a, move in enumerate(1e-5 * np.eye(2)):
            score[a] = (self.logp(theta + move, z) - self.logp(theta - move, z)) / 2e-5
        return self.logp(theta, z)


def test_a_gaussian_process_is_standard_normal_in_z_wherever_its_heads_are() -> None:
    """A dense precision: its heads are the two scalars that change it.

    Their posterior has standard deviations of 0.33 and 0.36, and the law holds beyond two of them.
    """
    process, d = Process(), Process.n + 2
    start = np.append([0.2, -0.3], 0.3 * np.random.default_rng(4).normal(size=d - 2))
    learned, gradients = learn_field(
        in_maps(process), start, np.full(d, 0.7), np.array([0, 1, *[2] * process.n])
    )
    assert learned is not None
    law = field_of(learned.rows)
    np.testing.assert_array_equal(law.heads, [0, 1])
    assert law.frame.shape == (process.n, process.n)
    assert gradients < 6_000
    turns = 2.0 * np.pi * np.arange(12) / 12
    ring = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    for theta in law.mid + np.concatenate([np.zeros((1, 2)), 0.35 * ring, 0.7 * ring, 0.85 * ring]):
        mean, root = process.mean(theta), np.linalg.cholesky(np.linalg.inv(process.precision(theta)))
        at_mean, moved = np.empty(d), np.empty((d, d - 2))
        composition.into_z(learned.rows, np.append(theta, mean), at_mean)
        for column, out in zip(root.T, moved.T, strict=True):
            composition.into_z(learned.rows, np.append(theta, mean + column), out)
        assert np.linalg.norm(at_mean[2:]) < 0.3
        sizes = np.linalg.svd((moved - at_mean[:, None])[2:], compute_uv=False)
        assert np.abs(np.log(sizes)).max() < 0.15


def test_a_large_dense_block_gets_a_field_if_draws_would_take_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A precision takes a gradient a latent, so that a large block is beyond the limit of other searches."""
    monkeypatch.setattr(field_learning, "MOST_GRADIENTS", 500)
    process, d = Process(), Process.n + 2
    start = np.append([0.2, -0.3], 0.3 * np.random.default_rng(4).normal(size=d - 2))
    search = in_maps(process), start, np.full(d, 0.7), np.array([0, 1, *[2] * process.n])
    cost = field_learning.PRECISIONS[1] * (process.n + 1)
    for most_dense in (0.0, 1.9 * cost):
        found, gradients = learn_field(*search, most_dense=most_dense)
        assert found is None
        assert gradients < 500
    found, gradients = learn_field(*search, most_dense=2.1 * cost)
    assert found is not None
    assert field_of(found.rows).heads.tolist() == [0, 1]
    assert 500 < gradients <= 2 * cost
    monkeypatch.setattr(field_learning, "MOST_HEADS_LARGE", 1)
    assert learn_field(*search, most_dense=2.1 * cost)[0] is None


def test_a_dense_design_is_filled_where_it_has_no_points() -> None:
    """All its points are on one side of the middle. A law that fits them says little of the other."""
    process, d = Process(), Process.n + 2
    density, variables = ScaledDensity(process, np.full(d, 0.7)), np.array([0, 1, *[2] * process.n])
    start = np.append([0.2, -0.3], 0.3 * np.random.default_rng(4).normal(size=d - 2)) / 0.7
    coupling = couple(density, start, variables)
    assert coupling is not None
    whole = dense_coupling(coupling, variables)
    assert whole is not None
    precision = Precision(density, whole._replace(wide=np.zeros(d, bool)), np.array([0, 1]))
    place = find_place(precision, start)
    assert place is not None
    design = Design(precision, place)
    for move in ([1.2, 0.0], [0.0, 1.2], [1.2, 1.2]):
        assert design.add(place.theta + place.root @ move, place.mode) is not None
    assert fill_design(design, np.random.default_rng(3)) > 8
    moves = np.linalg.solve(place.root, (design.points()[0] - place.theta).T)
    for angle in np.arange(0.0, 2.0 * np.pi, np.pi / 4.0):
        assert (np.array([np.cos(angle), np.sin(angle)]) @ moves).max() > 1.5
    assert design.axes.any()


def test_a_scalar_that_latents_follow_is_no_head() -> None:
    """The level of a process with counts: curvature changes with it at latents that stay, and they do not."""
    n, rng = 20, np.random.default_rng(5)
    square = np.square(np.subtract.outer(np.arange(n), np.arange(n)) / 4.0)
    inverse = np.linalg.inv(np.exp(-0.5 * square) + 0.01 * np.eye(n))
    counts = rng.poisson(20.0, n)

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        rate = np.exp(x[1] + x[2:])
        f, unit = x[2:], np.exp(-2.0 * x[0])
        pull = unit * inverse @ f
        score[0] = f @ pull - n - 4.0 * x[0]
        score[1] = np.sum(counts - rate) - x[1] / 100.0
        score[2:] = counts - rate - pull
        return float(
            counts @ (x[1] + f) - rate.sum() - 0.5 * f @ pull - n * x[0] - 2.0 * x[0] ** 2 - x[1] ** 2 / 200
        )

    start = np.append([0.0, 3.0], 0.1 * rng.normal(size=n))
    density = ScaledDensity(evaluate, np.ones(n + 2))
    variables = np.array([0, 1, *[2] * n])
    coupling = couple(density, start, variables)
    assert coupling is not None
    whole = dense_coupling(coupling, variables)
    assert whole is not None
    strengths = head_strengths(density, start, whole, 0.5)
    assert strengths is not None
    np.testing.assert_array_equal(choose_heads(strengths[0]), [0])


class Crossed:
    """y_ij ~ N(a_i + b_j, 1): the scales of a and b, whose logarithms come first, are the heads."""

    rows, columns = 12, 9

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        a, b = 0.8 * rng.normal(size=self.rows), 1.5 * rng.normal(size=self.columns)
        self.y = a[:, None] + b + rng.normal(size=(self.rows, self.columns))

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        theta, a, b = at[:2], at[2 : 2 + self.rows], at[2 + self.rows :]
        misses, weights = self.y - a[:, None] - b, np.exp(-2.0 * theta)
        score[2 : 2 + self.rows] = misses.sum(axis=1) - weights[0] * a
        score[2 + self.rows :] = misses.sum(axis=0) - weights[1] * b
        squares, counts = np.array([a @ a, b @ b]), np.array([self.rows, self.columns])
        score[:2] = weights * squares - counts - theta
        return float(-0.5 * (np.square(misses).sum() + weights @ squares + theta @ theta) - counts @ theta)


def test_crossed_effects_are_left_to_groups() -> None:
    """All of them are tied by the data. But scales change nothing beside the diagonal of the precision."""
    crossed = Crossed()
    d = 2 + crossed.rows + crossed.columns
    start = np.append([-0.2, 0.4], 0.3 * np.random.default_rng(4).normal(size=d - 2))
    variables = np.array(
        [0, 1, *[2] * (crossed.rows + crossed.columns)]
    )  # so that no law of effects is found
    learned, gradients = learn_field(in_maps(crossed), start, np.full(d, 0.7), variables)
    assert learned is not None  # so that another search is not begun
    assert not len(learned.rows)
    assert gradients < 1_500
