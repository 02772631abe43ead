"""The ladder of Pigeons.jl's page on its output, climbed by `tempered`.

    python examples/benchmarks/like_pigeons.py [--dim 100] [--seeds 2]

The target is Pigeons' `toy_mvn_target(100)`: a normal law with precision 10 in each coordinate. Its path
begins at a normal law with precision 1, so that the log of the ratio of integrals is -d/2 log 10 = -115.13.
With `reach` 1 and `heat` sqrt(10) the broad leg of `tempered` begins at a law as wide (a Student t law
with 10 degrees of freedom). The page, https://pigeons.run/stable/output-reports, prints for 10 chains and
1,024 scans of the last round: Lambda 7.12, a log ratio of -115, acceptance rates of 0.17 at least and 0.21
on average.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import stanadapt
from stanadapt.result.container import datasets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    d = asked.dim
    program = f"parameters {{ vector[{d}] x; }} model {{ x ~ normal(0, 1 / sqrt(10)); }}"
    settings = {"reach": 1.0, "heat": float(np.sqrt(10.0))}
    columns = (
        "seed",
        "rungs",
        "Lambda broad",
        "Lambda fitted",
        "acceptance",
        "trips a chain",
        "log Z",
        "error",
    )
    print(f"| {' | '.join(columns)} | gradients a draw |\n|{' ---: |' * (len(columns) + 1)}")
    for seed in range(1, asked.seeds + 1):
        run = {"method": "tempered", "seed": seed, "settings": settings, "progress": False}
        groups = datasets(stanadapt.sample(program, chains=1, **run))
        path, attrs = groups["tempering"], groups["posterior"].attrs
        cells = [
            f"{seed}",
            f"{path.sizes['rung']}",
            *(f"{value:.2f}" for value in path["barrier"].values[0]),
            f"{1.0 - path['refusal_rate'].values.mean():.2f}",
            f"{path['round_trips'].values.sum():.0f}",
            f"{attrs['log_evidence']:.3f}",
            f"{attrs['log_evidence_error']:.3f}",
            f"{groups['sample_stats']['n_steps'].values.mean():.0f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
