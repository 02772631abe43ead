"""The g-and-k distribution: a simulator without a density, fitted by its octiles.

python examples/g_and_k.py    # about a minute on two cores
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

import stanadapt

TRUTH = {"a": 3.0, "b": 1.0, "g": 2.0, "k": 0.5}
PRIOR = {name: stats.uniform(0.0, 10.0) for name in TRUTH}
DATA = 500
OCTILES = np.arange(1, 8) / 8


def simulator(theta: dict[str, Any], n_sim: int, rng: np.random.Generator) -> np.ndarray:
    """The octiles of `n_sim` data sets (n_sim, 7)."""
    z = rng.standard_normal((n_sim, DATA))
    skew = 1.0 + 0.8 * np.tanh(0.5 * theta["g"] * z)
    data = theta["a"] + theta["b"] * skew * (1.0 + z**2) ** theta["k"] * z
    return np.quantile(data, OCTILES, axis=1).T


def main(warmup: int = 4_000, draws: int = 8_000, chains: int = 4) -> Any:
    observed = simulator(TRUTH, 1, np.random.default_rng(3))[0]
    target = stanadapt.abc(simulator, observed, PRIOR, likelihood="synthetic", n_sim=40, vectorized=True)
    return stanadapt.sample(
        target, method="arwmh", chains=chains, warmup=warmup, draws=draws, seed=1, inits=TRUTH
    )


if __name__ == "__main__":
    idata = main()
    print(stanadapt.summary(idata).assign(truth=TRUTH)[["truth", "mean", "sd", "ess_bulk", "r_hat"]])
    evaluations = idata["sample_stats"]["n_steps"].sum("draw")
    print("simulations per proposal:", (idata["adaptation"]["n_simulations"] / evaluations).values)
