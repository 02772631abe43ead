"""Estimates with their errors, what they say together, and when a difference is beyond chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import spatial, stats
from scipy.signal import lfilter

import moments
from cases import partly_thorough
from stanadapt.diagnostics.agreement import compare_samples, compare_with
from stanadapt.diagnostics.discrepancy import squared_mmd
from stanadapt.diagnostics.efficiency import Sizes, jump_lengths, squared_jump_distance
from stanadapt.diagnostics.estimates import QUANTILES, STATISTICS, Estimates, combine, contrast
from stanadapt.result.container import statistics


def autoregressive(k: int, chains: int, n: int, phi: float, seed: int) -> np.ndarray:
    """Stationary draws (k, chains, n) of variance 1."""
    noise = np.random.default_rng(seed).normal(size=(k, chains, n))
    noise[..., 0] /= np.sqrt(1.0 - phi**2)
    return np.asarray(lfilter([np.sqrt(1.0 - phi**2)], [1.0, -phi], noise, axis=2))


@pytest.mark.parametrize("n", [400, 401])
def test_estimates_are_arvizs(n: int) -> None:
    draws = np.exp(autoregressive(3, 4, n, 0.7, 1))
    found = Estimates.of(draws)
    for row, column in enumerate(draws):
        dataset = moments.as_dataset(column)
        values = [column.mean(), column.std(ddof=1), *np.quantile(column, list(QUANTILES.values()))]
        np.testing.assert_allclose(found.value[row], values)
        squares = (column - column.mean()) ** 2
        size = float(statistics().ess(moments.as_dataset(squares), method="mean")["x"])
        errors = [
            float(statistics().mcse(dataset, method="mean")["x"]),
            # By the delta method; arviz 0.23 fails at it with some versions of numba.
            squares.std(ddof=1) / np.sqrt(size) / (2 * values[1]),
        ]
        errors += [
            float(statistics().mcse(dataset, method="quantile", prob=p)["x"]) for p in QUANTILES.values()
        ]
        np.testing.assert_allclose(found.error[row], errors, rtol=1e-9)
        sizes = [float(statistics().ess(dataset, method="mean")["x"]), size]
        sizes += [
            float(statistics().ess(dataset, method="quantile", prob=p)["x"]) for p in QUANTILES.values()
        ]
        np.testing.assert_allclose(found.size[row], sizes, rtol=1e-9)


LAWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": lambda x: x,
    "exponential": lambda x: -stats.norm.logsf(x),
    "Cauchy": lambda x: stats.cauchy.isf(stats.norm.sf(x)),
}


@pytest.mark.parametrize("law", partly_thorough(LAWS, ("Cauchy",)))
def test_chance_is_rarely_taken_for_a_difference(law: str) -> None:
    """Normal errors in place of Student's would do it up to 17 times as often at the smaller levels."""
    k = 6_000
    one, other = (Estimates.of(LAWS[law](autoregressive(k, 4, 150, 0.3, seed))) for seed in (1, 2))
    found = contrast(one, other)
    for level, most in ((1e-2, 1.3e-2), (1e-3, 1.7e-3), (1e-4, 6e-4)):
        assert ((found.p_value < level).mean(axis=0) < most).all(), STATISTICS
    if law == "normal":  # or this test would not see the difference
        by_normal = 2.0 * stats.norm.sf(np.abs(found.z))
        assert (by_normal < 1e-3).mean(axis=0)[STATISTICS.index("q5")] > 1.7e-3


def test_a_difference_of_some_errors_is_beyond_chance() -> None:
    draws = autoregressive(1, 4, 2_000, 0.0, 3)
    one, other = Estimates.of(draws), Estimates.of(autoregressive(1, 4, 2_000, 0.0, 4) + 0.2)
    found = contrast(one, other)
    mean = STATISTICS.index("mean")
    expected = (one.value - other.value) / np.hypot(one.error, other.error)
    np.testing.assert_allclose(found.z, expected)
    assert found.z[0, mean] < -9.0
    assert found.p_value[0, mean] < 1e-15
    assert found.p_value[0, STATISTICS.index("sd")] > 0.01


def exact(values: np.ndarray) -> Estimates:
    zeros, infinite = np.zeros(values.shape), np.full(values.shape, np.inf)
    return Estimates(values, zeros, infinite, infinite)


def test_estimates_together_weigh_by_effective_draws() -> None:
    parts = [
        Estimates(*(np.array([[x]]) for x in part))
        for part in ((1.0, 0.2, 100.0, 50.0), (2.0, 0.1, 300.0, 90.0))
    ]
    both = combine(parts)
    assert both.value == pytest.approx(1.75)
    assert both.error == pytest.approx(np.hypot(0.25 * 0.2, 0.75 * 0.1))
    assert both.size == pytest.approx(400.0)
    variances = np.array([0.25 * 0.2, 0.75 * 0.1]) ** 2
    assert both.dof == pytest.approx(variances.sum() ** 2 / (variances**2 / [50.0, 90.0]).sum())
    unknown = Estimates(*(np.full((1, 1), np.nan) for _ in range(4)))
    assert combine([parts[0], unknown]).value == pytest.approx(1.0)
    assert np.isnan(combine([unknown, unknown]).value)
    assert combine([parts[0], exact(np.array([[7.0]]))]).value == pytest.approx(7.0)


def test_what_is_unknown_or_the_same_is_no_difference() -> None:
    values = np.array([[1.0, np.nan, 3.0]])
    found = contrast(exact(values), exact(np.array([[1.0, 2.0, 4.0]])))
    assert found.z[0, 0] == 0.0
    assert np.isnan(found.z[0, 1])
    assert np.isinf(found.z[0, 2])
    assert found.p_value.tolist() == [[1.0, 1.0, 0.0]]


def samples(seed: int, **shifts: float) -> dict[str, Estimates]:
    """Samples of one law of five scalars, moved by so many standard deviations."""
    return {
        name: Estimates.of(autoregressive(5, 4, 1_000, 0.5, seed + i) + shift)
        for i, (name, shift) in enumerate(shifts.items())
    }


def test_one_that_is_wrong_is_outvoted_however_many_draws_it_has() -> None:
    found = samples(1, a=0.0, b=0.0, c=0.0)
    found["wrong"] = Estimates.of(autoregressive(5, 4, 40_000, 0.0, 9) + 0.3)
    agreement = compare_samples(found, 0.001)
    assert agreement.group == ("a", "b", "c")
    assert agreement.is_unique
    assert {name for name, verdict in agreement.verdicts.items() if verdict.differs.any()} == {"wrong"}
    assert agreement.verdicts["wrong"].against == ("a", "b", "c")
    assert agreement.verdicts["a"].against == ("b", "c")


def test_a_small_difference_is_seen_against_the_others_together() -> None:
    """No pair tells it; held against the others, the wrong one differs most and leaves first.

    A difference is seen from 4.2 standard errors on. Beside any one sample 0.25 is 3.5 of them (standard
    deviation 0.14, since the right ones differ); beside 24 together it is 4.9.
    """
    rng = np.random.default_rng(0)
    shape = (1, 1)

    def estimate(value: float, error: float) -> Estimates:
        size = 1.0 / error**2
        return Estimates(*(np.full(shape, x) for x in (value, error, size, 1e6)))

    found = {f"right {i}": estimate(float(rng.normal(0.0, 0.01)), 0.05) for i in range(24)}
    found["wrong"] = estimate(0.25, 0.05)
    pairs = [contrast(found["wrong"], found[f"right {i}"]).p_value.item() for i in range(24)]
    agreement = compare_samples(found, 0.01)
    assert min(pairs) > agreement.level
    assert {name for name, verdict in agreement.verdicts.items() if verdict.differs.any()} == {"wrong"}
    assert "wrong" not in agreement.group


def test_two_sides_of_the_same_size_are_held_against_each_other() -> None:
    agreement = compare_samples(samples(20, a=0.0, b=0.5, c=0.0, d=0.5), 0.001)
    assert not agreement.is_unique
    assert agreement.group == ("a", "c")
    differing = {
        name: verdict.against for name, verdict in agreement.verdicts.items() if verdict.differs.any()
    }
    assert differing == {"b": ("a", "c"), "d": ("a", "c")}
    two = compare_samples(samples(30, a=0.0, b=0.5), 0.001)
    assert not two.is_unique
    assert {name for name, verdict in two.verdicts.items() if verdict.differs.any()} == {"b"}


def test_against_what_is_known() -> None:
    known = exact(np.tile([0.0, 1.0, *stats.norm.ppf(list(QUANTILES.values()))], (5, 1)))
    agreement = compare_with(known, samples(40, right=0.0, wrong=0.4), 0.001)
    assert agreement.group == ("right",)
    assert agreement.level == pytest.approx(0.001 / 50)
    wrong = agreement.verdicts["wrong"].differs
    assert wrong[:, [STATISTICS.index("mean"), STATISTICS.index("q50")]].all()
    assert not wrong[:, STATISTICS.index("sd")].any()


def test_alone_there_is_nothing_to_compare() -> None:
    agreement = compare_samples(samples(1, a=0.0), 0.001)
    assert (agreement.group, agreement.verdicts) == (("a",), {})
    assert compare_samples({}, 0.001).group == ()


def test_sizes_are_arvizs_and_nothing_where_a_chain_stands_still() -> None:
    draws = autoregressive(3, 4, 500, 0.6, 5)
    found = Sizes.of(draws)
    for row in range(3):
        dataset = moments.as_dataset(draws[row])
        assert found.bulk[row] == pytest.approx(float(statistics().ess(dataset, method="bulk")["x"]))
        assert found.tail[row] == pytest.approx(
            float(statistics().ess(dataset, method="tail", prob=(0.05, 0.95))["x"])
        )
        assert found.r_hat[row] == pytest.approx(float(statistics().rhat(dataset)["x"]))
    for spoil in (0.7, np.nan):
        spoilt = draws.copy()
        spoilt[1, 2] = spoil
        still = Sizes.of(spoilt)
        assert (still.bulk[1], still.tail[1], still.r_hat[1]) == (0.0, 0.0, np.inf)
        np.testing.assert_array_equal(still.bulk[[0, 2]], found.bulk[[0, 2]])


def test_jumps() -> None:
    x = np.array([[[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]], [[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]]])
    np.testing.assert_allclose(jump_lengths(x), [[5.0, 0.0], [1.0, 2.0]])
    assert squared_jump_distance(x) == pytest.approx((25.0 + 0.0 + 1.0 + 4.0) / 4)


def test_squared_mmd_is_its_definition_and_unbiased() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(40, 2)) + 0.3

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-spatial.distance.cdist(a, b, "sqeuclidean") / (2 * 0.8**2)))

    among = [(kernel(a, a).sum() - len(a)) / (len(a) * (len(a) - 1)) for a in (x, y)]
    assert squared_mmd(x, y, 0.8) == pytest.approx(sum(among) - 2 * kernel(x, y).mean())
    found = [squared_mmd(*rng.normal(size=(2, 50, 2)), 1.0) for _ in range(400)]
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(400)
