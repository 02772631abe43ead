"""examples/papers: estimators of ESS, the papers' targets, how data are read, and that the scripts run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import spatial, special

import abc_skew_normal
import banana
import common
import ess
import figures
import fisher_mala
import gad_mcmc
import glass
import gp_classification
import mmd
import posteriors
import rlmh
import rlmh_figures
import skew_normal
import stanadapt
import targets
import trajectories
from cases import thorough
from stanadapt import samplers
from stanadapt.diagnostics.discrepancy import ROWS, median_distance

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "examples" / "papers"
ESTIMATORS = (ess.geyer_ess, ess.tfp_ess)


@pytest.fixture(scope="session")
def classification() -> Path:
    """The folder of the classification sets: from CLASSIFICATION, or beside the project."""
    folder = Path(os.environ.get("CLASSIFICATION", targets.CLASSIFICATION))
    if not (folder / "ripley.csv").is_file():
        pytest.skip("the classification sets are not here; CLASSIFICATION names their folder")
    return folder


def autoregression(correlation: float, n: int, seed: int) -> np.ndarray:
    """A stationary AR(1) chain, whose ESS is n (1 - correlation) / (1 + correlation)."""
    noise = np.random.default_rng(seed).standard_normal(n)
    x = np.empty(n)
    x[0] = noise[0]
    for i in range(1, n):
        x[i] = correlation * x[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return x


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("correlation", [0.3, 0.8, 0.95])
def test_ess_of_an_autoregression(estimator, correlation: float) -> None:
    n = 20_000
    estimates = [estimator(autoregression(correlation, n, seed)) for seed in range(20)]
    known = n * (1 - correlation) / (1 + correlation)
    np.testing.assert_allclose(np.mean(estimates), known, rtol=0.05)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ess_of_independent_draws(estimator) -> None:
    n = 20_000
    estimates = [estimator(np.random.default_rng(seed).standard_normal(n)) for seed in range(10)]
    np.testing.assert_allclose(np.mean(estimates), n, rtol=0.03)


def test_geyer_ess_is_at_most_the_number_of_draws() -> None:
    assert ess.geyer_ess(autoregression(-0.5, 1_000, 1)) == 1_000
    assert ess.tfp_ess(autoregression(-0.5, 1_000, 1)) == 1_000  # stops at lag 1, which is negative


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ess_does_not_depend_on_place_and_scale(estimator) -> None:
    x = autoregression(0.7, 2_000, 1)
    np.testing.assert_allclose(estimator(1e-3 * x - 50.0), estimator(x), rtol=1e-6)


def test_estimators_by_hand() -> None:
    x = np.array([1.0, 2.0, 4.0, 3.0, 0.0, -1.0])
    away = x - x.mean()
    rho = np.array([away[: 6 - k] @ away[k:] for k in range(6)]) / (away @ away)
    np.testing.assert_allclose(ess.autocorrelation(x), rho, atol=1e-12)
    first, second = rho[0] + rho[1], rho[2] + rho[3]
    assert first > 0 > second
    np.testing.assert_allclose(ess.geyer_ess(x), 6 / (2 * first - 1))
    assert rho[1] > 0 > rho[2]
    np.testing.assert_allclose(ess.tfp_ess(x), 6 / (1 + 2 * rho[1]))


def test_gaussian_targets_are_the_papers() -> None:
    eigenvalues = np.linalg.eigvalsh(targets.squared_exponential())
    assert len(eigenvalues) == 51
    np.testing.assert_allclose(eigenvalues[[0, -1]].round(2), [0.01, 12.07])
    process = targets.gaussian_process()
    assert process.shape == (100, 100)
    np.testing.assert_allclose(process[[0, 99], [0, 99]], [1.001, 4.001])
    np.testing.assert_allclose(process[0, 99], 2 * np.exp(-0.5 / 0.09))
    np.testing.assert_allclose(np.sqrt(np.diag(targets.inhomogeneous())), np.arange(1, 101) / 100)
    np.testing.assert_array_equal(targets.correlated(0.99), [[1, 0.99], [0.99, 1]])


@pytest.mark.parametrize(
    ("name", "mean"), [("2d", 0), ("51d", 0), ("neal", 0), ("2d-0.995", 1), ("gp", 1), ("inhomogeneous", 1)]
)
def test_program_of_a_gaussian_target(name: str, mean: float) -> None:
    target = targets.TARGETS[name](targets.Source(Path()))
    posterior = stanadapt.Posterior(target.program, target.data)
    x = np.random.default_rng(1).standard_normal(posterior.dim)
    value, score = posterior.log_density_gradient(x)
    pull = np.linalg.solve(target.cov, x - mean)
    np.testing.assert_allclose(score, -pull, rtol=1e-6, atol=1e-6 * np.abs(pull).max())
    np.testing.assert_allclose(value, -0.5 * (x - mean) @ pull, rtol=1e-8)


SIZES = {
    **{"ripley": (250, 2), "pima": (532, 7), "heart": (270, 13), "australian": (690, 14)},
    **{"german": (1000, 24), "caravan": (5822, 85)},
}


@pytest.mark.parametrize("name", SIZES)
def test_classification_sets(classification: Path, name: str) -> None:
    n, inputs = SIZES[name]
    plain = targets.TARGETS[name](targets.Source(classification)).data
    assert plain["X"].shape == (n, inputs)
    assert set(plain["y"]) == {0, 1}
    assert gad_mcmc.DIMENSIONS[name] == inputs + 1
    standardised = targets.TARGETS[name](targets.Source(classification, standardise=True)).data
    assert standardised["X"].shape == (n, inputs + 1)
    assert standardised["d"] == inputs + 1
    np.testing.assert_allclose(standardised["X"][:, :-1].mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(standardised["X"][:, :-1].std(axis=0, ddof=1), 1)
    np.testing.assert_array_equal(standardised["X"][:, -1], 1)
    np.testing.assert_array_equal(standardised["y"], plain["y"])


def test_program_of_the_classification_sets() -> None:
    rng = np.random.default_rng(1)
    inputs, labels, beta = rng.standard_normal((30, 4)), rng.uniform(size=30) < 0.5, rng.standard_normal(4)
    target = targets.classification(inputs, labels, standardise=False)
    value, score = stanadapt.Posterior(target.program, target.data).log_density_gradient(beta)
    eta = inputs @ beta
    likelihood = np.where(labels, -np.logaddexp(0, -eta), -np.logaddexp(0, eta)).sum()
    np.testing.assert_allclose(value, likelihood - 0.5 * beta @ beta)
    np.testing.assert_allclose(score, inputs.T @ (labels - 1 / (1 + np.exp(-eta))) - beta)


def digits() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (6, 784)), np.array([5, 6, 0, 6, 5, 9])


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_digits_from_a_file(tmp_path: Path, suffix: str) -> None:
    images, labels = digits()
    path = tmp_path / f"digits{suffix}"
    if suffix == ".npz":
        np.savez(path, images=images.reshape(-1, 28, 28), labels=labels)
    else:
        header = ",".join(["label", *(f"pixel{i}" for i in range(784))])
        np.savetxt(path, np.column_stack([labels, images]), "%d", ",", header=header, comments="")
    data = targets.TARGETS["mnist"](targets.Source(tmp_path, path, standardise=True)).data
    assert data["X"].shape == (4, 785)
    np.testing.assert_allclose(data["X"][:, :-1], images[[0, 1, 3, 4]] / images.max())
    np.testing.assert_array_equal(data["X"][:, -1], 1)
    np.testing.assert_array_equal(data["y"], [1, 0, 0, 1])


def test_synthetic_digits_are_like_mnist() -> None:
    data = targets.TARGETS["synthetic-mnist"](targets.Source(Path())).data
    images = data["X"].reshape(-1, 28, 28)
    assert data["X"].shape == (11339, 784)
    assert images.min() == 0
    assert images.max() == 1
    assert np.mean(images.reshape(-1, 784).max(axis=0) == 0) > 0.4  # the border and its corners


@pytest.mark.parametrize("script", [gad_mcmc, fisher_mala])
def test_every_published_row_is_run(script) -> None:
    labels = {method.label for method in script.METHODS}
    for name, panel in script.PANELS.items():
        assert name in targets.TARGETS
        assert set(panel.rows) <= labels
        for row in panel.rows.values():
            assert list(row.ess) == sorted(row.ess)
            if row.rate and row.seconds > 60:  # rounding counts in short times
                np.testing.assert_allclose(row.rate, row.ess[0] / row.seconds, rtol=0.2)


def test_starts_differ_between_repeats_and_agree_between_methods() -> None:
    points = [common.first_point(3, 1, repeat) for repeat in (0, 1, 0)]
    assert not np.allclose(points[0], points[1])
    np.testing.assert_array_equal(points[0], points[2])


@pytest.mark.parametrize(
    ("script", "methods", "labels"),
    [
        thorough("gad_mcmc.py", "RWM,MALA", ("RWM", "MALA")),
        thorough("fisher_mala.py", "ada_mala,FisherMALA", ("AdaMALA", "FisherMALA")),
        ("fisher_mala.py", "FisherMALA", ("FisherMALA",)),
    ],
)
def test_quick_prints_every_row(tmp_path: Path, script: str, methods: str, labels: tuple[str, str]) -> None:
    target = "neal" if script == "gad_mcmc.py" else "gp"
    out = tmp_path / "rows.csv"
    command = [sys.executable, str(PAPERS / script), "--quick", "--targets", target, "--methods", methods]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows[2:] == list(labels)  # after the header and its rule
    again = subprocess.run([*command[:2], "--show", str(out)], capture_output=True, text=True, check=True)
    assert again.stdout.strip() in done.stdout


def labelled(n: int, d: int) -> gp_classification.Labelled:
    rng = np.random.default_rng(1)
    return gp_classification.Labelled(rng.standard_normal((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0))


def test_likelihood_of_gaussian_process_classification_is_unbiased() -> None:
    data, log_scales = labelled(3, 2), np.array([0.3, -0.2])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(*[nodes] * 3, indexing="ij")).reshape(3, -1)
    masses = np.prod(np.stack(np.meshgrid(*[weights] * 3, indexing="ij")).reshape(3, -1), axis=0)
    root = np.linalg.cholesky(gp_classification.covariance(data.inputs, log_scales))
    likelihood = special.expit(data.labels[:, None] * (root @ grid)).prod(axis=0)
    known = likelihood @ masses / masses.sum()

    rng = np.random.default_rng(2)
    estimates = np.exp(
        [gp_classification.log_likelihood_estimate(data, log_scales, rng, draws=2) for _ in range(4_000)]
    )
    error = estimates.std() / np.sqrt(len(estimates))
    assert error < 0.01 * known
    assert abs(estimates.mean() - known) < 4 * error


def test_mode_of_gaussian_process_classification() -> None:
    data = labelled(30, 2)
    cov = gp_classification.covariance(data.inputs, np.zeros(2))
    mode = gp_classification.mode_of(cov, data.labels)
    slope = 0.5 * (data.labels + 1) - special.expit(mode.f)
    np.testing.assert_allclose(mode.f, cov @ slope, atol=1e-6)
    b = np.eye(30) + mode.root_w[:, None] * cov * mode.root_w
    np.testing.assert_allclose(mode.chol_b @ mode.chol_b.T, b, atol=1e-10)


def test_covariance_of_gaussian_process_classification() -> None:
    x, scales = labelled(4, 2).inputs, np.array([2.0, 0.5])
    known = [[np.exp(-((((a - b) / scales) ** 2).sum())) for b in x] for a in x]
    ridge = gp_classification.RIDGE * np.eye(4)
    np.testing.assert_allclose(gp_classification.covariance(x, np.log(scales)), known + ridge, atol=1e-12)


def test_glass(classification: Path) -> None:
    data = gp_classification.glass(classification)
    assert data.inputs.shape == (214, 9)
    assert (data.labels == 1).sum() == 163
    np.testing.assert_allclose(np.cov(data.inputs.T), np.eye(9), atol=1e-8)


def test_mmd_is_its_definition() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal((30, 3)) + 0.3

    def mean_kernel(a: np.ndarray, b: np.ndarray) -> float:
        return ((1 + a @ b.T) ** 3).mean()

    known = [mean_kernel(a, a) + mean_kernel(y, y) - 2 * mean_kernel(a, y) for a in (x[:7], x)]
    np.testing.assert_allclose(mmd.mmd_path(x, y, np.array([7, 20])), known)


def gaussian_kernel(x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-spatial.distance.cdist(x, y, "sqeuclidean") / (2 * scale**2))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 700])
def test_median_distance(n: int) -> None:
    points = np.random.default_rng(n).standard_normal((n, 3))
    known = np.median(spatial.distance.pdist(points))
    np.testing.assert_allclose(median_distance(points), known)
    np.testing.assert_allclose(mmd.benchmark_of(points).scale, known / 2)


def test_median_distance_where_few_points_differ() -> None:
    points = np.repeat([[0.0], [1.0], [5.0]], [400, 300, 100], axis=0)
    np.testing.assert_allclose(median_distance(points), np.median(spatial.distance.pdist(points)))


def test_gaussian_mmd_in_blocks_is_its_definition() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2 * ROWS + 30, 3)) + 0.3, rng.standard_normal((3 * ROWS, 3))
    benchmark = mmd.benchmark_of(y)
    means = [gaussian_kernel(a, b, benchmark.scale).mean() for a, b in ((x, x), (x, y), (y, y))]
    known = np.sqrt(means[0] - 2 * means[1] + means[2])
    np.testing.assert_allclose(mmd.gaussian_mmd(x, benchmark), known)
    assert mmd.gaussian_mmd(y, benchmark) < 1e-6


def test_gaussian_mmd_of_exact_draws() -> None:
    rng = np.random.default_rng(1)
    benchmarks = [mmd.benchmark_of(rng.standard_normal((400, 2))) for _ in range(200)]
    found = [mmd.gaussian_mmd(rng.standard_normal((200, 2)), benchmark) for benchmark in benchmarks]
    known = np.mean([mmd.exact_mmd(200, benchmark) for benchmark in benchmarks])
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(found))), known, rtol=0.04)


def test_published_mmd() -> None:
    """As it is described: diagonal blocks, each once for every block of the other sample."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((50, 2)), rng.standard_normal((90, 2))
    benchmark, known = mmd.benchmark_of(y), 0.0
    for y_block in np.split(y, 9):
        for x_block in np.split(x, 5):
            pairs = ((y_block, y_block, 90**2), (x_block, x_block, 50**2), (y_block, x_block, -45 * 50))
            known += sum(gaussian_kernel(a, b, benchmark.scale).sum() / n for a, b, n in pairs)
    np.testing.assert_allclose(mmd.published_mmd(x, benchmark, block=10), known)


def test_table_of_wang() -> None:
    """Its size, its dimensions and the shares that the paper states, in which ties are successes."""
    paper = rlmh.published_table()
    assert len(paper) == 44
    assert paper.index.is_unique
    assert paper["d"].astype(int).is_monotonic_increasing
    columns = [column for column in paper if column not in ("d", "settled")]
    means = paper[columns].map(lambda cell: rlmh.parsed(cell)[0])
    assert (means["rlmh_esjd"] >= means["arwmh_esjd"]).mean().round(2) == 0.86
    assert (means["rlmh_mmd"] <= means["arwmh_mmd"]).mean().round(2) == 0.93
    assert means.filter(like="mmd").to_numpy().max() <= 2.0
    assert set(" ".join(paper["settled"]).split()) <= set(columns)
    assert rlmh.parsed("1.9(0.2)E-2") == pytest.approx((0.019, 0.002))
    assert rlmh.parsed("0") == (0.0, 0.0)


def test_shares() -> None:
    first, second = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0}), pd.Series({"a": 2.0, "b": 2.0, "c": 1.0})
    assert rlmh.wins(first, second, larger=True) == "33% of 3 (67% with ties)"
    assert rlmh.wins(first, second[["a", "c"]], larger=False) == "50% of 2"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "held"),
    [("eight_schools-eight_schools_noncentered", "theta"), ("gp_pois_regr-gp_pois_regr", "f")],
)
def test_reference_that_holds_a_transformed_parameter(posteriordb: Path, name: str, held: str) -> None:
    posterior = posteriors.opened(posteriordb, name)
    x = 0.5 * np.random.default_rng(1).standard_normal((20, posterior.dim))
    values = posterior.constrain(x, transformed=True)
    kept = [key for key in posterior.parameters if values[key].ndim == 1]
    found = posteriors.unconstrained({key: values[key] for key in [held, *kept]}, posterior)
    np.testing.assert_allclose(found, x, atol=1e-5)


@pytest.mark.data
def test_reference_draws(posteriordb: Path) -> None:
    posterior = posteriors.opened(posteriordb, "earnings-logearn_height")
    points = posteriors.reference(posteriordb, "earnings-logearn_height", posterior)
    assert points is not None
    assert points.shape == (10_000, 3)
    np.testing.assert_allclose(points.mean(axis=0), [5.78, 0.0588, -0.113], rtol=0.02)
    centered = posteriors.opened(posteriordb, "eight_schools-eight_schools_centered")
    assert posteriors.reference(posteriordb, "eight_schools-eight_schools_centered", centered) is None


@pytest.mark.thorough
@pytest.mark.data
def test_quick_rlmh_prints_every_row(posteriordb: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    names = ["earnings-logearn_height", "eight_schools-eight_schools_centered"]
    command = [sys.executable, str(PAPERS / "rlmh.py"), "--quick", "--published-mmd", "--names", *names]
    command += ["--database", str(posteriordb), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "failed" not in done.stdout
    labels = [row.label for row in rlmh.ROWS if row.name in samplers.METHODS]
    jump, esjd, distance, published, *shares, seconds = tables(done.stdout)
    for rows, tasks in ((jump, names), (esjd, names), (distance, names[:1]), (published, names[:1])):
        assert rows[0][2 : 2 + len(labels)] == labels
        assert [row[0] for row in rows[1:]] == tasks
    assert jump[1][2 + labels.index("ARWMH")].startswith("0.1 / ")
    assert len(shares) == ("RLMH" in labels)
    assert [row[0] for row in seconds[1:]] == labels
    assert len(pd.read_csv(out)) == 2 * len(labels)


def test_policy_of_a_demonstration() -> None:
    """phi is the identity to begin with, inside of the ball and far outside of it."""
    demo = rlmh_figures.DEMOS[0]
    posterior = stanadapt.Posterior(demo.program, demo.data)
    grid = np.array([[-100.0], [-5.0], [0.0], [5.0], [100.0]])
    method = common.Method("RLMH", "rlmh", demo.settings | {"actor_rate": 0.0}, 500, 100)
    learner = figures.Learner(method, posterior, 1)
    assert list(learner.warm_up(500)) == [500]
    found = rlmh_figures.phi(learner.state.policy, demo.settings["radius"], grid)
    np.testing.assert_allclose(found[[0, 4]], grid[[0, 4]])
    np.testing.assert_allclose(found[1:4], grid[1:4], atol=2.5)


@pytest.mark.parametrize("place", [1, thorough(-1)])
def test_figures_of_wang(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "PICTURES", tmp_path)
    for name, value in {"EPISODES": 60, "DRAWS": 200, "RUNS": 1}.items():
        monkeypatch.setattr(rlmh_figures, name, value)
    rlmh_figures.draw_demo(rlmh_figures.DEMOS[place], seed=1)
    names = {1: "rlmh_figure_3a.png", -1: "rlmh_figure_4.png"}
    assert [path.name for path in tmp_path.iterdir()] == [names[place]]


def test_moments_of_the_skew_normal() -> None:
    draws = abc_skew_normal.skew_normal(200_000, np.random.default_rng(1))
    alpha = abc_skew_normal.ALPHA
    delta = alpha / np.sqrt(1 + alpha @ alpha)
    np.testing.assert_allclose(draws.mean(axis=0), np.sqrt(2 / np.pi) * delta, atol=0.01)
    known = np.eye(len(alpha)) - 2 / np.pi * np.outer(delta, delta)
    np.testing.assert_allclose(np.cov(draws.T), known, atol=0.015)


def test_exact_draws_are_of_the_estimated_density() -> None:
    """The log density at draws of a normal is on average d / 2 below its height; here it is nearly normal."""
    rng = np.random.default_rng(1)
    draws = abc_skew_normal.exact_draws(2_000, rng)
    noise = abc_skew_normal.simulate(np.zeros(10), rng, 20_000) - abc_skew_normal.OBSERVED

    def log_density(x: np.ndarray) -> float:
        logs = -0.5 * ((x + noise) ** 2).sum(axis=1) / abc_skew_normal.EPSILON**2
        return special.logsumexp(logs) - 0.5 * x @ x / abc_skew_normal.PRIOR_VARIANCE

    below = log_density(draws.mean(axis=0)) - np.mean([log_density(x) for x in draws[:400]])
    np.testing.assert_allclose(below, 5.0, atol=0.5)


def test_spas_gradient_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    theta, seed, size = abc_skew_normal.TRUE - 0.5, 7, 1e-4
    steps = size * np.eye(theta.size)
    rises = [
        abc_skew_normal.synthetic_log_likelihood(theta + step, seed)
        - abc_skew_normal.synthetic_log_likelihood(theta - step, seed)
        for step in steps
    ]
    known = np.array(rises) / (2 * size) - theta / abc_skew_normal.PRIOR_VARIANCE
    estimates = np.array([abc_skew_normal.spas_gradient(theta, seed, rng) for _ in range(2_000)])
    error = estimates.std(axis=0) / np.sqrt(len(estimates))
    assert np.all(np.abs(estimates.mean(axis=0) - known) < 4 * error)
    assert np.all(error < 0.05 * np.linalg.norm(known))


def test_targets_of_the_trajectories() -> None:
    roots = [trajectories.covariance_root(5, np.random.default_rng(i)) for i in range(300)]
    eigenvalues = np.array([np.linalg.eigvalsh(root @ root.T) for root in roots])
    np.testing.assert_allclose(eigenvalues.mean(), 1, atol=0.1)  # of Gamma(1, 1)
    np.testing.assert_allclose(eigenvalues.var(), 1, atol=0.2)
    directions = np.array([np.linalg.eigh(root @ root.T)[1][:, 0] for root in roots])
    np.testing.assert_allclose((directions**2).mean(axis=0), np.full(5, 0.2), atol=0.04)


def test_acceptance_along_a_trajectory() -> None:
    def leap(x: np.ndarray, momentum: np.ndarray) -> None:
        x += 1.0

    def energy(x: np.ndarray, momentum: np.ndarray) -> float:
        return float(x[0])

    x = np.zeros(1)
    known = (np.exp(-1) + np.exp(-2)) / 2
    np.testing.assert_allclose(trajectories.along(leap, energy, x, x, 2), known)
    assert x[0] == 0.0


def test_draws_of_the_banana_are_its_models() -> None:
    x = banana.draws(3, np.random.default_rng(1))
    score = np.array([banana.banana().log_density_gradient(point)[1] for point in x])
    straight = x.copy()
    straight[:, 1] -= banana.BEND * (x[:, 0] ** 2 - banana.SD**2)
    np.testing.assert_allclose(score[:, 1:], -straight[:, 1:], atol=1e-10)
    along = -x[:, 0] / banana.SD**2 + 2 * banana.BEND * x[:, 0] * straight[:, 1]
    np.testing.assert_allclose(score[:, 0], along, atol=1e-10)


def tables(output: str) -> list[list[list[str]]]:
    """Cells of the tables in what a script has printed, headers first."""
    found: list[list[list[str]]] = []
    inside = False
    for line in output.splitlines():
        if line.startswith("| "):
            if not inside:
                found.append([])
            if not line.startswith("| -"):
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        inside = line.startswith("| ")
    return found


def quick_kernel_hmc(parts: list[str], *more: str) -> list[list[list[str]]]:
    command = [sys.executable, str(PAPERS / "kernel_hmc.py"), "--quick", "--repeats", "1", "--part", *parts]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
    assert "failed" not in done.stdout
    return tables(done.stdout)


@pytest.mark.thorough
def test_quick_kernel_hmc_prints_every_row(tmp_path: Path) -> None:
    along, mixing, abc = quick_kernel_hmc(["1", "2", "4"], "--out", str(tmp_path))
    assert along[0] == ["d", "n = 100", "n = 200", "HMC"]
    assert [row[0] for row in along[1:]] == ["2", "8"]
    names = [banana.NAMES[method] for method in ("hmc", "rwm", *2 * ["kmc_finite"], *2 * ["kamh"])]
    assert [row[0] for row in mixing[1:]] == names
    assert all(" / " in cell for row in mixing[1:] for cell in row[2:6])  # the paper's beside ours
    labels = [label for label, _, _ in skew_normal.METHODS]
    assert [row[0] for row in abc[1:]] == [*labels, *skew_normal.HABC]
    assert [row[3] for row in abc[1:]] == ["10"] * len(labels) + ["1000"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {f"kernel_hmc_{part}.csv" for part in (1, 2, 4)}


@pytest.mark.thorough
def test_quick_kernel_hmc_on_glass(classification: Path) -> None:
    (moments,) = quick_kernel_hmc(["3"], "--data", str(classification))
    assert [row[0] for row in moments[1:]] == [label for label, _, _ in glass.METHODS]
    assert [row[2].split(" / ")[0] for row in moments[1:] if " / " in row[2]] == ["415", "35.0", "25.0"]


def test_kernel_hmc_without_glass(tmp_path: Path) -> None:
    command = [sys.executable, str(PAPERS / "kernel_hmc.py"), "--part", "3", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"Glass is skipped: no glass.csv in {tmp_path}" in done.stdout
