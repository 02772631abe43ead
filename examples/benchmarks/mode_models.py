"""Twelve posteriors with several modes, whose weights are known by construction, and two with a narrow mode.

Where labels can be exchanged, the weight of one labelling is one over their number. In the localisation of
sensors the known ones stand in a line, so that the mirror image of all unknown ones is as likely.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

POSTERIORDB = Path(os.environ.get("POSTERIORDB", Path(__file__).parents[3] / "shared/data/posteriordb"))


class ModeProblem(NamedTuple):
    """A program with its data, and a part of its posterior."""

    program: str
    data: dict[str, Any] | None
    inside: Callable[[Any], np.ndarray]  # of the posterior group: which draws (chain, draw) are in the part
    weight: float  # of the part
    log_evidence: float | None = None


def _mixture(d: int, parts: list[tuple[float, str, str]]) -> str:
    """A program with a mixture of normal laws: weight, middle and scale of each, as Stan writes them."""
    terms = ", ".join(f"log({weight}) + normal_lpdf(x | {mean}, {scale})" for weight, mean, scale in parts)
    return f"parameters {{ vector[{d}] x; }} model {{ target += log_sum_exp([{terms}]); }}"


def _eight(part: int = 0, scale: float = 1.0, seed: int = 8) -> ModeProblem:
    """Eight modes in ten dimensions; the one that is looked at may have another scale."""
    rng = np.random.default_rng(seed)
    means, weights = rng.uniform(-10.0, 10.0, (8, 10)), rng.dirichlet(np.full(8, 3.0))
    scales = np.where(np.arange(8) == part, scale, 1.0)
    program = (
        "data { matrix[8, 10] m; vector[8] w; vector[8] s; } parameters { vector[10] x; } "
        "model { vector[8] l; for (k in 1:8) l[k] = log(w[k]) + normal_lpdf(x | m[k]', s[k]); "
        "target += log_sum_exp(l); }"
    )

    def inside(posterior: Any) -> np.ndarray:
        away = posterior["x"].values[..., None, :] - means
        return np.asarray(np.square(away).sum(axis=-1).argmin(axis=-1) == part)

    data = {"m": means.tolist(), "w": weights.tolist(), "s": scales.tolist()}
    return ModeProblem(program, data, inside, float(weights[part]), 0.0)


def _labels() -> ModeProblem:
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(middle, 0.6, n) for middle, n in ((-3.0, 15), (0.0, 10), (4.0, 20))])
    program = (
        "data { int n; vector[n] y; } parameters { simplex[3] w; vector[3] mu; vector<lower=0>[3] s; } "
        "model { mu ~ normal(0, 5); s ~ lognormal(0, 0.5); w ~ dirichlet([2, 2, 2]'); for (i in 1:n) { "
        "vector[3] l; for (k in 1:3) l[k] = log(w[k]) + normal_lpdf(y[i] | mu[k], s[k]); "
        "target += log_sum_exp(l); } }"
    )

    def inside(posterior: Any) -> np.ndarray:
        mu = posterior["mu"].values
        return np.asarray((mu[..., 0] < mu[..., 1]) & (mu[..., 1] < mu[..., 2]))

    return ModeProblem(program, {"n": len(y), "y": y.tolist()}, inside, 1 / 6)


HMM = """
data { int n; vector[n] y; }
parameters { array[2] simplex[2] theta; vector[2] mu; }
model {
  array[n] vector[2] g;
  mu ~ normal(5, 5);
  for (k in 1:2) theta[k] ~ dirichlet([2, 2]');
  for (k in 1:2) g[1][k] = normal_lpdf(y[1] | mu[k], 1);
  for (t in 2:n) for (k in 1:2)
    g[t][k] = log_sum_exp(g[t - 1][1] + log(theta[1][k]), g[t - 1][2] + log(theta[2][k]))
              + normal_lpdf(y[t] | mu[k], 1);
  target += log_sum_exp(g[n]);
}
"""


def _hmm(y: np.ndarray) -> ModeProblem:
    return ModeProblem(
        HMM, {"n": len(y), "y": y.tolist()}, lambda p: p["mu"].values[..., 0] < p["mu"].values[..., 1], 0.5
    )


def _made_hmm() -> ModeProblem:
    rng = np.random.default_rng(5)
    states = np.zeros(60, int)
    for t in range(1, 60):
        states[t] = states[t - 1] if rng.random() < 0.8 else 1 - states[t - 1]
    return _hmm(rng.normal(np.array([2.0, 6.0])[states], 1.0))


def _of_posteriordb(name: str) -> dict[str, Any]:
    path = POSTERIORDB / "posterior_database" / "data" / "data" / f"{name}.json.zip"
    with zipfile.ZipFile(path) as files:
        return dict(json.load(io.BytesIO(files.read(files.namelist()[0]))))


def _low_dim() -> ModeProblem:
    program = (
        "data { int N; vector[N] y; } parameters { vector[2] mu; vector<lower=0>[2] sigma; "
        "real<lower=0, upper=1> theta; } model { sigma ~ normal(0, 2); mu ~ normal(0, 2); "
        "theta ~ beta(5, 5); for (n in 1:N) target += log_mix(theta, normal_lpdf(y[n] | mu[1], sigma[1]), "
        "normal_lpdf(y[n] | mu[2], sigma[2])); }"
    )
    return ModeProblem(
        program,
        _of_posteriordb("low_dim_gauss_mix"),
        lambda p: p["mu"].values[..., 0] < p["mu"].values[..., 1],
        0.5,
    )


def _sensors() -> ModeProblem:
    """Distances with noise, seen with a chance that falls with the distance (Ahn, Chen and Welling, 2013)."""
    rng = np.random.default_rng(11)
    anchors = np.array([[0.1, 0.0], [0.5, 0.0], [0.9, 0.0]])
    places = rng.uniform([0.0, 0.1], [1.0, 1.0], (6, 2))
    everything = np.concatenate([anchors, places])
    k = len(everything)
    seen, distance = np.zeros((k, k), int), np.zeros((k, k))
    for i in range(k):
        for j in range(i):
            gap = float(np.linalg.norm(everything[i] - everything[j]))
            seen[i, j] = rng.random() < np.exp(-(gap**2) / (2 * 0.3**2))
            distance[i, j] = gap + 0.02 * rng.normal()
    program = (
        "data { int a; int k; array[a] vector[2] anchor; array[k, k] int seen; matrix[k, k] d; } "
        "parameters { array[k - a] vector[2] x; } model { array[k] vector[2] all = append_array(anchor, x); "
        "for (i in 1:(k - a)) x[i] ~ normal([0.5, 0], 1); for (i in (a + 1):k) for (j in 1:(i - 1)) { "
        "real g = sqrt(dot_self(all[i] - all[j])); "
        "real l = -square(g) / (2 * square(0.3)); if (seen[i, j]) { "
        "target += l; d[i, j] ~ normal(g, 0.02); } else target += log1m_exp(l); } }"
    )
    data = {"a": 3, "k": k, "anchor": anchors.tolist(), "seen": seen.tolist(), "d": distance.tolist()}
    return ModeProblem(program, data, lambda p: p["x"].values[..., 0, 1] > 0.0, 0.5)


def problems() -> dict[str, Callable[[], ModeProblem]]:
    """The problems by name; some read data when they are called."""

    def plain(*arguments: Any) -> Callable[[], ModeProblem]:
        return lambda: ModeProblem(*arguments)

    far = _mixture(2, [(0.3, "-100", "1"), (0.7, "100", "0.3")])
    spike = _mixture(4, [(0.5, "0", "1"), (0.5, "0", "0.01")])
    corners = _mixture(50, [(0.75, "-2", "1"), (0.25, "2", "1")])
    wells = "parameters { vector[5] x; } model { target += -sum(square(square(x) - 4)); }"
    donut = "parameters { vector[2] x; } model { target += -square(sqrt(dot_self(x)) - 3) / 0.02; }"
    heavy = (
        "parameters { vector[3] x; } model { target += log_mix(0.6, student_t_lpdf(x | 4, -8, 1), "
        "student_t_lpdf(x | 4, 8, 2)); }"
    )
    return {
        "far": plain(far, None, lambda p: p["x"].values[..., 0] > 0.0, 0.7, 0.0),
        "spike": plain(spike, None, lambda p: np.square(p["x"].values).sum(axis=-1) < 0.01, 0.5, 0.0),
        "eight": _eight,
        "corners": plain(corners, None, lambda p: p["x"].values.mean(axis=-1) < 0.0, 0.75, 0.0),
        "labels": _labels,
        "hmm": _made_hmm,
        "wells": plain(wells, None, lambda p: p["x"].values[..., 0] > 0.0, 0.5),
        "donut": plain(donut, None, lambda p: p["x"].values[..., 0] > 0.0, 0.5),
        "sensors": _sensors,
        "low_dim_gauss_mix": _low_dim,
        "hmm_example": lambda: _hmm(np.array(_of_posteriordb("hmm_example")["y"])),
        "narrow": lambda: _eight(5, 0.6),
        "narrow_and_hidden": lambda: _eight(2, 0.6, 9),
        "heavy": plain(heavy, None, lambda p: p["x"].values.mean(axis=-1) < 0.0, 0.6, 0.0),
    }
