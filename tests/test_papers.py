"""examples/papers: estimators of ESS, the papers' targets, how data are read, and that the scripts run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import common
import ess
import fisher_mala
import gad_mcmc
import stanadapt
import targets

ROOT = Path(__file__).parents[1]
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
        ("gad_mcmc.py", "RWM,MALA", ("RWM", "MALA")),
        ("fisher_mala.py", "ada_mala,FisherMALA", ("AdaMALA", "FisherMALA")),
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
