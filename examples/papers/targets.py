"""The targets of the papers: TARGETS gives a Stan program and its data by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
CLASSIFICATION = ROOT.parent / "shared" / "data" / "classification"


class Source(NamedTuple):
    """Where data come from, and how the paper treats them."""

    folder: Path  # ripley.csv and the others
    mnist: Path | None = None
    standardise: bool = False  # also appends a column of ones


class Target(NamedTuple):
    """A Stan program and its data."""

    program: Path
    data: dict[str, Any]
    cov: np.ndarray | None = None  # where it is known


def program(name: str) -> Path:
    return ROOT / "models" / name / f"{name}.stan"


def gaussian(cov: np.ndarray, mean: float) -> Target:
    d = len(cov)
    data = {"d": d, "mu": np.full(d, mean), "P": np.linalg.inv(cov)}
    return Target(program("gaussian_precision"), data, cov)


def correlated(correlation: float) -> np.ndarray:
    return np.array([[1.0, correlation], [correlation, 1.0]])


def squared_exponential() -> np.ndarray:
    """The 51 x 51 covariance of Titsias and Dellaportas (2019), section 4.1."""
    x = np.linspace(0, 4, 51)
    return np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.16) + 0.01 * np.eye(51)


def gaussian_process() -> np.ndarray:
    """The 100 x 100 covariance of Titsias (2023), section 5.2: linear times squared exponential kernel."""
    s = np.linspace(1, 2, 100)
    return s[:, None] * s * np.exp(-0.5 * (s[:, None] - s) ** 2 / 0.09) + 0.001 * np.eye(100)


def inhomogeneous() -> np.ndarray:
    """Neal's Gaussian: independent, standard deviations 0.01, 0.02, ..., 1."""
    return np.diag(np.linspace(0.01, 1, 100) ** 2)


def classification(inputs: np.ndarray, labels: np.ndarray, standardise: bool) -> Target:
    """Bayesian logistic regression with prior N(0, I)."""
    if standardise:
        inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0, ddof=1)
        inputs = np.column_stack([inputs, np.ones(len(inputs))])
    data = {"N": len(inputs), "d": inputs.shape[1], "X": inputs, "y": labels.astype(int)}
    return Target(program("classification"), data)


def classification_set(name: str, source: Source) -> Target:
    """A csv file with a header, the label 0 or 1 in its last column."""
    values = pd.read_csv(source.folder / f"{name}.csv").to_numpy(float)
    return classification(values[:, :-1], values[:, -1], source.standardise)


def digits(images: np.ndarray, labels: np.ndarray, source: Source) -> Target:
    """5 against 6. Pixels are divided by their maximum; the first paper appends a column of ones."""
    kept = np.isin(labels, (5, 6))
    inputs = images[kept].reshape(kept.sum(), -1) / images.max()
    if source.standardise:
        inputs = np.column_stack([inputs, np.ones(len(inputs))])
    return classification(inputs, labels[kept] == 5, standardise=False)


def read_digits(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels; labels are digits, of which all but 5 and 6 are left out later.

    A file is npz with `images` (n, 784) or (n, 28, 28) and `labels` (n,), or csv with a header and the label
    in its first column.
    """
    if path is None:
        raise ValueError("mnist needs a file of digits")
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["images"].astype(float), arrays["labels"]
    values = pd.read_csv(path).to_numpy(float)
    return values[:, 1:], values[:, 0]


def synthetic_digits() -> tuple[np.ndarray, np.ndarray]:
    """As many images as MNIST has of 5 and 6: blobs of ink within 4 pixels of white border on each side."""
    rng = np.random.default_rng(56)
    labels = np.repeat([5, 6], [5421, 5918])
    tops = np.where(labels[:, None] == 5, [9, 16], [9, 11])  # row and column where the stroke begins
    ends = np.where(labels[:, None] == 5, [18, 12], [18, 16])
    along = np.linspace(0, 1, 5)[:, None]
    middles = tops[:, None] * (1 - along) + ends[:, None] * along + rng.normal(0, 1.5, (len(labels), 5, 2))
    widths = rng.uniform(2, 8, (len(labels), 5, 1, 1))
    profiles = np.exp(-((np.arange(28) - middles[..., None]) ** 2) / widths)
    images = np.einsum("nkr,nkc->nrc", profiles[:, :, 0], profiles[:, :, 1])
    images[images < 0.05] = 0.0
    images[:, :4], images[:, -4:], images[:, :, :4], images[:, :, -4:] = 0.0, 0.0, 0.0, 0.0
    return np.minimum(images, 1.0).reshape(len(labels), 784).round(2), labels


SETS = ("ripley", "pima", "heart", "australian", "german", "caravan")
TARGETS: dict[str, Callable[[Source], Target]] = {
    "2d": lambda source: gaussian(correlated(0.99), 0.0),
    "51d": lambda source: gaussian(squared_exponential(), 0.0),
    "neal": lambda source: gaussian(inhomogeneous(), 0.0),
    "2d-0.995": lambda source: gaussian(correlated(0.995), 1.0),
    "gp": lambda source: gaussian(gaussian_process(), 1.0),
    "inhomogeneous": lambda source: gaussian(inhomogeneous(), 1.0),
    **{name: functools.partial(classification_set, name) for name in SETS},
    "mnist": lambda source: digits(*read_digits(source.mnist), source),
    "synthetic-mnist": lambda source: digits(*synthetic_digits(), source),
}
