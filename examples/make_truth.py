"""Remake the synthetic data and the known moments of the models.

    python examples/make_truth.py [NAME ...]

Moments are exact where they have a closed form, otherwise from a long run of NUTS, with Monte
Carlo standard errors by batch means. They cover parameters and transformed parameters.
"""

import argparse
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import stanli

MODELS = Path(__file__).resolve().parents[1] / "models"
CHAINS, WARMUP, DRAWS, SEED = 4, 2_000, 50_000, 1
BATCH = 500  # draws: far longer than the autocorrelation of NUTS on these models
GENERATED = {"log_lik", "y_rep"}
NUTS = f"NUTS of stanli{{}}, {CHAINS} chains x {DRAWS:,} draws, seed {SEED}: python examples/make_truth.py"

Data = dict[str, Any]
Moments = dict[str, dict[str, Any]]
Truth = tuple[str, Moments]  # source, moments


def logistic_regression_data(rng: np.random.Generator) -> Data:
    n, scales, beta = 200, [0.1, 1.0, 3.0, 10.0], [0.5, 6.0, -1.0, 0.3, 0.05]
    predictors = np.column_stack([np.ones(n), rng.normal(0, scales, (n, 4)).round(3)])
    chance = 1 / (1 + np.exp(-predictors @ beta))
    return {"N": n, "d": 5, "X": predictors, "y": (rng.uniform(size=n) < chance).astype(int)}


def classification_data(rng: np.random.Generator) -> Data:
    n, beta = 100, [0.8, -1.5, 0.3]
    inputs = np.column_stack([rng.normal(size=(n, 2)).round(3), np.ones(n)])
    chance = 1 / (1 + np.exp(-inputs @ beta))
    return {"N": n, "d": 3, "X": inputs, "y": (rng.uniform(size=n) < chance).astype(int)}


def gaussian_precision_data(rng: np.random.Generator) -> Data:
    return {"d": 2, "mu": [0, 0], "P": np.linalg.inv([[1, 0.99], [0.99, 1]])}


def correlated_gaussian_data(rng: np.random.Generator) -> Data:
    rotation = np.linalg.qr(rng.normal(size=(5, 5))).Q
    cov = rotation * np.geomspace(0.1, 10, 5) @ rotation.T
    return {"d": 5, "mu": [3, -2, 1, 5, -4], "Sigma": cov.round(4)}


def linear_regression_data(rng: np.random.Generator) -> Data:
    n = 30
    predictors = np.column_stack([np.ones(n), rng.normal(0, [1, 2], (n, 2)).round(3)])
    y = rng.normal(predictors @ [1.0, -2.0, 0.5], 0.8).round(3)
    prior = {"prior_sd": 3, "prior_shape": 3, "prior_scale": 2}
    return {"N": n, "d": 3, "X": predictors, "y": y, **prior}


def hierarchical_data(rng: np.random.Generator) -> Data:
    sizes = [3, 4, 5, 6, 6, 7, 8, 9]
    group = np.repeat(np.arange(len(sizes)), sizes)
    alpha = rng.normal(1.5, 1.0, len(sizes))
    x = rng.normal(size=group.size).round(3)
    y = rng.normal(alpha[group] + 0.7 * x, 0.8).round(3)
    return {"N": group.size, "J": len(sizes), "group": group + 1, "x": x, "y": y}


def exact(mean: Any, sd: Any) -> dict[str, Any]:
    zero = np.zeros(np.shape(mean))
    return {"mean": mean, "sd": sd, "mcse_mean": zero, "mcse_sd": zero}


def correlated_gaussian(data: Data) -> Truth:
    moments = {"x": exact(data["mu"], np.sqrt(np.diag(data["Sigma"])))}
    return "exact: the mean and covariance are the data", moments


def gaussian_precision(data: Data) -> Truth:
    moments = {"x": exact(data["mu"], np.sqrt(np.diag(np.linalg.inv(data["P"]))).round(12))}
    return "exact: the mean and the inverse of the covariance are the data", moments


def linear_regression(data: Data) -> Truth:
    predictors, y = np.array(data["X"]), np.array(data["y"])
    precision = predictors.T @ predictors + np.eye(data["d"]) / data["prior_sd"] ** 2
    beta = np.linalg.solve(precision, predictors.T @ y)
    shape = data["prior_shape"] + data["N"] / 2
    scale = data["prior_scale"] + (y @ y - beta @ precision @ beta) / 2
    sigma_sq = scale / (shape - 1)
    sigma = math.sqrt(scale) * math.exp(math.lgamma(shape - 0.5) - math.lgamma(shape))
    moments = {
        "beta": exact(beta, np.sqrt(sigma_sq * np.diag(np.linalg.inv(precision)))),
        "sigma_sq": exact(sigma_sq, sigma_sq / math.sqrt(shape - 2)),
        "sigma": exact(sigma, math.sqrt(sigma_sq - sigma**2)),
    }
    source = (
        "exact: sigma_sq is inverse gamma, sigma its root, and beta multivariate t, with the "
        "conjugate updates of shape, scale, mean and precision"
    )
    return source, moments


def funnel(data: Data) -> Truth:
    moments = {
        "v": exact(0.0, 3.0),
        "x": exact(np.zeros(data["d"]), np.full(data["d"], math.exp(9 / 4))),
    }
    source = (
        "exact: v is normal(0, 3), and x has mean 0 and variance E exp(v) = exp(9/2); its kurtosis "
        "is 3 exp(9), about 24,000, so even the sd of independent draws of x converges slowly"
    )
    return source, moments


def banana(data: Data) -> Truth:
    sd = np.ones(data["d"])
    sd[:2] = data["sigma"], math.sqrt(1 + 2 * data["b"] ** 2 * data["sigma"] ** 4)
    source = (
        "exact: x[1] is normal(0, sigma), x[2] has mean 0 and variance 1 + 2 b^2 sigma^4, and the "
        "others are standard normal"
    )
    return source, {"x": exact(np.zeros(data["d"]), sd)}


def mcse(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean of (chains, draws, ...) values, by batch means."""
    batches = values.reshape(-1, BATCH, *values.shape[2:]).mean(axis=1)
    return batches.std(axis=0, ddof=1) / math.sqrt(len(batches))


def estimate(draws: np.ndarray) -> dict[str, Any]:
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    # To first order the error of sd is that of the variance over 2 sd.
    errors = {"mcse_mean": mcse(draws), "mcse_sd": mcse((draws - mean) ** 2) / (2 * sd)}
    return {key: value.round(5) for key, value in {"mean": mean, "sd": sd, **errors}.items()}


@functools.cache
def nuts(name: str) -> Moments:
    model = stanli.Model(MODELS / name / f"{name}.stan", MODELS / name / f"{name}.json")
    fit = model.sample(chains=CHAINS, warmup=WARMUP, samples=DRAWS, seed=SEED, delta=0.95, refresh=0)
    kept = [variable for variable in fit.variables if variable not in GENERATED]
    return {variable: estimate(fit.draws(variable)) for variable in kept}


SYNTHETIC = {
    "logistic_regression": logistic_regression_data,
    "classification": classification_data,
    "gaussian_precision": gaussian_precision_data,
    "correlated_gaussian": correlated_gaussian_data,
    "linear_regression": linear_regression_data,
    "hierarchical": hierarchical_data,
}

EXACT = {
    "correlated_gaussian": correlated_gaussian,
    "gaussian_precision": gaussian_precision,
    "linear_regression": linear_regression,
    "funnel": funnel,
    "banana": banana,
}

SAMPLED = ["classification", "eight_schools", "eight_schools_centered", "hierarchical", "logistic_regression"]


def truth(name: str) -> Truth:
    if name in EXACT:
        return EXACT[name](json.loads((MODELS / name / f"{name}.json").read_text()))
    if name == "eight_schools_centered":
        moments = {k: v for k, v in nuts("eight_schools").items() if k != "theta_trans"}
        return NUTS.format(" on the non-centred eight_schools"), moments
    return NUTS.format(""), nuts(name)


def to_json(value: Any, indent: str = "") -> str:
    """JSON with one entry of a dictionary to a line, and arrays on one line."""
    if not isinstance(value, dict):
        return json.dumps(value, default=lambda array: array.tolist())
    deeper = indent + "  "
    lines = (f"{deeper}{json.dumps(key)}: {to_json(entry, deeper)}" for key, entry in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main() -> None:
    models = sorted([*EXACT, *SAMPLED])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(models)}")
    names = parser.parse_args().names or models
    if unknown := set(names) - set(models):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(models)}")
    for name in names:
        if name in SYNTHETIC:
            data = SYNTHETIC[name](np.random.default_rng(SEED))
            (MODELS / name / f"{name}.json").write_text(to_json(data) + "\n")
        source, moments = truth(name)
        known = {"source": source, "moments": moments}
        (MODELS / name / "truth.json").write_text(to_json(known) + "\n")
        print(name)


if __name__ == "__main__":
    main()
