"""Learning the fields of several series: which are worth their gradients, and how these are shared out."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.run.warmup import variable_groups
from stanadapt.transport.field_table import fields_of, split
from stanadapt.transport.fields import field_learning, several_learning
from stanadapt.transport.fields.design import Design
from stanadapt.transport.fields.field_learning import learn_walk
from stanadapt.transport.fields.laplace import HeadPosterior, LatentMode
from stanadapt.transport.fields.learned_law import Learned
from stanadapt.transport.fields.precision import Factor
from stanadapt.transport.fields.probes import ScaledDensity
from stanadapt.transport.fields.several import Part
from stanadapt.transport.fields.worth import is_worth_more

PERSONS, DAYS = 10, 16
# Short autoregressions, whose latents are hardly tied.
PANEL = """
data { int J; int T; array[J, T] int y; }
parameters { vector[J] a; vector[J] p; real log_s; matrix[J, T] h; }
model {
  a ~ normal(1, 0.7); p ~ normal(0, 0.5); log_s ~ normal(-0.7, 0.5);
  for (j in 1:J) {
    h[j, 1] ~ normal(0, exp(log_s) * cosh(p[j])); h[j, 2:T] ~ normal(tanh(p[j]) * h[j, 1:T-1], exp(log_s));
    y[j] ~ poisson_log(a[j] + to_vector(h[j]));
  }
}
"""


def mode_with(precision: np.ndarray) -> LatentMode:
    root = np.linalg.cholesky(precision)
    scale, none = np.diag(root), np.zeros((0, 0))
    factor = Factor(sparse.csc_array(root / scale), np.square(scale), None, none, none, none)
    return LatentMode(np.zeros(len(precision)), 0.0, factor)


def design_of(precision_at: Callable[[float], np.ndarray], spread: float = 1.0) -> Design:
    """With one head, and points a tenth of its standard deviation on either side."""
    middle = mode_with(precision_at(0.0))
    latents: Any = SimpleNamespace(latents=np.arange(len(precision_at(0.0))))
    design = Design(latents, HeadPosterior(np.zeros(1), np.array([[spread]]), middle))
    for theta in (-0.1 * spread, 0.1 * spread):
        design.keep(np.array([theta]), mode_with(precision_at(theta)))
    return design


@pytest.mark.parametrize(("n", "spread", "found"), [(7, 1.0, False), (9, 1.0, True), (9, 0.9, False)])
def test_latents_that_tell_much_of_a_head(n: int, spread: float, found: bool) -> None:
    """A scale of n latents: they tell n / 2 of the logarithm of their precision."""
    assert is_worth_more(design_of(lambda theta: np.exp(theta) * np.eye(n), spread)) is found


@pytest.mark.parametrize(("correlation", "found"), [(0.65, False), (0.75, True)])
def test_latents_that_are_tied(correlation: float, found: bool) -> None:
    """The condition number of a correlation r is (1 + r) / (1 - r), whatever the scales are."""
    scales = np.array([1.0, 30.0])
    covariance = np.array([[1.0, correlation], [correlation, 1.0]]) * np.outer(scales, scales)
    precision = np.linalg.inv(covariance)
    assert is_worth_more(design_of(lambda _: precision)) is found


def learn_panel(monkeypatch: pytest.MonkeyPatch) -> tuple[Learned | None, int]:
    rng = np.random.default_rng(2)
    h = 0.5 * rng.normal(size=(PERSONS, DAYS))
    for t in range(1, DAYS):
        h[:, t] += 0.2 * h[:, t - 1]
    y = rng.poisson(np.exp(1.0 + h))
    density = ProgramDensity(PANEL, {"J": PERSONS, "T": DAYS, "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    x = np.concatenate((np.ones(PERSONS), np.full(PERSONS, 0.2), [-0.7], h.ravel(order="F")))
    monkeypatch.setattr(field_learning, "MOST_GRADIENTS", 3_000)
    unit = np.full(x.size, 0.5)
    return field_learning.learn_field(in_maps(density), x, unit, variable_groups(names), most_dense=30_000.0)


def test_a_panel_of_short_series_gets_no_fields_for_more_than_one_search_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned, gradients = learn_panel(monkeypatch)
    assert learned is None
    assert gradients < 6_000


def test_it_gets_them_where_they_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_learning, "is_worth_more", lambda _: True)
    learned, gradients = learn_panel(monkeypatch)
    assert learned is not None
    assert len(fields_of(split(learned.rows)[0])[0]) == PERSONS
    assert gradients > 6_000


class Parts:
    """Stands in for the learning of parts, and records what each was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int, need: dict[int, int]) -> None:
        """Part k needs `need[k]` gradients, or 100."""
        self.density = ScaledDensity(lambda x, score: 0.0, np.ones(n))
        self.parts = [self._part(k) for k in range(n)]
        self.given: list[tuple[int, int]] = []
        self.poor: list[int] = []
        self._need = need
        monkeypatch.setattr(several_learning, "join_fields", lambda rows, _: np.concatenate(rows))
        monkeypatch.setattr(several_learning._Learning, "is_poor", self._is_poor)

    def _part(self, k: int) -> Part:
        own = ScaledDensity(lambda x, score: self.density(np.zeros(self.density.unit.size))[0], np.ones(1))
        coupling: Any = None
        none = np.zeros(0, np.int64)
        return Part(np.array([k]), own, coupling, none, none, alone=True)

    def _learn(
        self, part: Part, x: np.ndarray, variables: np.ndarray, most: float, *_: object
    ) -> Learned | None:
        k = int(part.places[0])
        self.given.append((k, int(most)))
        part.density.limit(most)
        part.density.has_looked()
        needs = self._need.get(k, 100)
        while part.density.spent < min(1.0, needs / most):
            part.density(np.zeros(1))
        return None if needs > most else Learned(np.ones((1, 8)), np.ones(1), np.zeros((0, 1)), np.zeros(0))

    def _is_poor(self, found: Learned | None) -> bool:
        return self.given[-1][0] in self.poor

    def learn(self) -> Learned | None:
        n = len(self.parts)
        x, variables = np.zeros(n), np.arange(n)
        return several_learning.learn_several(
            self.density, self.parts, x, variables, 12_000, 12_000, self._learn
        )


@pytest.mark.parametrize("n", [4, 12])
def test_one_of_many_that_has_a_poor_law_is_learned_again(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    parts = Parts(monkeypatch, n, {})
    parts.poor = [3]
    learned = parts.learn()
    assert learned is not None
    assert len(learned.rows) == n
    assert [k for k, _ in parts.given] == [*range(n), *([3] if n == 12 else [])]


def test_a_series_for_which_gradients_were_too_few_gets_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 4, {2: 5_000})
    learned = parts.learn()
    assert learned is not None
    assert len(learned.rows) == 4
    assert parts.given == [(0, 3_000), (1, 3_000), (2, 3_000), (3, 3_000), (2, 6_960)]


def test_the_others_keep_theirs_if_that_is_too_few_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 4, {2: 7_000})
    learned = parts.learn()
    assert learned is not None
    assert len(learned.rows) == 3


def test_many_series_have_no_fields_if_the_first_ones_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 12, {0: 2_000, 1: 2_000, 2: 2_000})
    assert parts.learn() is None
    assert [k for k, _ in parts.given] == [0, 1, 2]


def test_some_that_have_none_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 12, {0: 2_000, 2: 2_000})
    learned = parts.learn()
    assert learned is not None
    assert len(learned.rows) == 12


def test_what_is_outside_of_all_parts_begins_with_its_unit_if_that_is_far_from_1() -> None:
    rows, unit = learn_walk(), np.append(np.full(21, 0.01), [0.01, 0.5, 30.0])
    own = Learned(rows, np.append(0.4, np.ones(20)), np.zeros((0, 21)), np.zeros(0))
    joint = several_learning._join([(np.arange(21), own)], unit)
    np.testing.assert_allclose(joint.scale, np.append(own.scale, [0.01, 1.0, 30.0]))
