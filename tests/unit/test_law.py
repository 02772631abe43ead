"""Tests of whether a kernel keeps a law: null rates, what they measure, and the kernel they measure by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exact import TARGETS, D, Exact, gaussian, skewed
from stanadapt.diagnostics.law import DISTANCE, LOG_DENSITY, DrawFrame, adjust, batch_test, names
from stanadapt.model.backends.python import Target
from stanadapt.numerics.reference import reference_steps

ROOT = np.linalg.cholesky(np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]]))
SCALE = np.array([0.5, 1.0, 2.0])


def steps(
    target: Target, points: np.ndarray, step: float, seed: int, root: np.ndarray = ROOT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Proposals (n, 2, d), log densities (n, 3) and probabilities (n, 2)."""
    n, d = points.shape
    room = np.empty((n, 2, d)), np.empty((n, 3)), np.empty((n, 2))
    rng = np.random.default_rng(seed)
    reference_steps(target.target(), points, SCALE, root, step, target.has_gradient, rng, *room)
    return room


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_p_values_are_uniform_where_the_mean_is_zero(correlation: float) -> None:
    rng = np.random.default_rng(1)
    n, k = 640, 1_000
    noise = rng.standard_normal((4, n, k))
    for i in range(1, n):
        noise[:, i] = correlation * noise[:, i - 1] + np.sqrt(1.0 - correlation**2) * noise[:, i]
    independent = 4 * n * (1.0 - correlation) / (1.0 + correlation)
    p = batch_test(noise, independent / 5.0).p
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert batch_test(noise + 0.5, independent / 5.0).p.max() < 1e-4


def test_p_values_of_skewed_differences_hold_in_the_far_tail() -> None:
    """Of rare large differences; of 20,000 p-values two are expected under 1e-4."""
    rng, small = np.random.default_rng(2), 0
    for _ in range(10):
        rare = rng.random((4, 480, 2_000)) < 0.1
        small += int((batch_test(rare - 0.1, 64.0).p < 1e-4).sum())
    assert small <= stats.binom(20_000, 1e-4).ppf(0.9999)


def test_the_correction_shares_out_the_error_rate() -> None:
    """By Bonferroni's rule the tests' own error rates add up to that of the check."""
    for k in (4, 22, 2_002):
        factors = adjust(np.full(k, 1e-9), 2) / 1e-9
        assert np.sum(1.0 / factors) == pytest.approx(0.5)
        assert factors[k // 2 - 1] == factors[-1] == pytest.approx(8.0)
    assert adjust(np.ones(4), 1).tolist() == [1.0] * 4
    assert [name for name, _ in names(["a"])] == ["a", LOG_DENSITY, "a", DISTANCE]


def test_slopes_are_those_of_the_means() -> None:
    rng = np.random.default_rng(3)
    x, logp, h = rng.standard_normal((5_000, D)) * SCALE, rng.standard_normal(5_000), 1e-5
    frame = DrawFrame.of(x, logp)
    slopes, before = frame.slopes(x, logp), frame.functions(x, logp).mean(axis=0)
    assert frame.yardstick.scale == pytest.approx(SCALE, rel=0.1)
    shifted = frame.functions(x + h * frame.yardstick.scale, logp + h * frame.height).mean(axis=0)
    assert (shifted - before)[: D + 1] / h == pytest.approx(slopes[: D + 1], rel=1e-3)
    spread = frame.functions(frame.middle + np.exp(h) * (x - frame.middle), logp).mean(axis=0)
    assert (spread - before)[D + 1 :] / h == pytest.approx(slopes[D + 1 :], rel=1e-3)


def test_the_functions_are_bounded() -> None:
    frame = DrawFrame.of(np.random.default_rng(4).standard_normal((1_000, D)), np.arange(1_000.0))
    far = frame.functions(np.array([[1e200, -1e200, 0.0]]), np.array([-1e300]))
    assert np.abs(far[:, [0, 1, 2, 3, 6]]).max() <= 1.0


@pytest.mark.parametrize("root", [ROOT, np.empty((0, 0))], ids=["dense", "diagonal"])
def test_probabilities_are_those_of_metropolis_and_hastings(root: np.ndarray) -> None:
    exact = skewed()
    points = exact.draw(50, np.random.default_rng(5))
    step = 0.8
    proposals, logp, accept = steps(exact.target, points, step, 6, root)
    factor = SCALE[:, None] * (root if len(root) else np.eye(D))
    cov = factor @ factor.T

    def law(x: np.ndarray) -> stats._multivariate.multivariate_normal_frozen:
        score = exact.target.log_density_gradient(x)[1]
        return stats.multivariate_normal(x + 0.5 * step**2 * cov @ score, step**2 * cov)

    for i, x in enumerate(points):
        for side, y in enumerate(proposals[i]):
            ratio = exact.target.log_density(y) - exact.target.log_density(x)
            ratio += law(y).logpdf(x) - law(x).logpdf(y)
            assert accept[i, side] == pytest.approx(np.exp(min(0.0, ratio)), rel=1e-9)
            assert logp[i, side + 1] == pytest.approx(exact.target.log_density(y))
        middle = proposals[i].mean(axis=0)  # of opposite noises
        assert middle == pytest.approx(law(x).mean)
    assert 0.1 < accept.mean() < 0.9


def wrong_gradient() -> Exact:
    exact = gaussian()
    model = exact.target
    target = Target.from_python(
        lambda x: model.log_density(x), D, lambda x: 0.5 * model.log_density_gradient(x)[1] + 1.0
    )
    return Exact("wrong gradient", target, exact.draw, exact.probabilities)


def no_gradient() -> Exact:
    exact = gaussian()
    target = Target.from_python(lambda x: exact.target.log_density(x), D)
    return Exact("no gradient", target, exact.draw, exact.probabilities)


CASES = [*TARGETS.values(), wrong_gradient, no_gradient]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_the_reference_keeps_the_law_and_sees_another(make: object) -> None:
    """Of exact draws, and of those that spread wider. Wrong gradients do no harm."""
    exact = make()  # type: ignore[operator]
    n = 5_000 if "gradient" in exact.name else 20_000  # Python's functions are slow
    x = exact.draw(n, np.random.default_rng(7))
    smallest = []
    for points in (x, x.mean(axis=0) + 1.12 * (x - x.mean(axis=0))):
        proposals, logp, accept = steps(exact.target, points, 0.7, 8)
        frame = DrawFrame.of(points, logp[:, 0])
        before = frame.functions(points, logp[:, 0])
        with np.errstate(all="ignore"):
            after = frame.functions(proposals, logp[:, 1:])
        change = np.where(accept[..., None] > 0.0, accept[..., None] * (after - before[:, None]), 0.0)
        smallest.append(float(adjust(batch_test(change.mean(axis=1)[None], 64.0).p, 1).min()))
    assert smallest[0] > 0.001
    assert smallest[1] < 0.001
