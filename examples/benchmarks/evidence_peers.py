"""Two modes and the evidence: tempered beside PyMC's SMC, dynesty and nautilus.

    python examples/benchmarks/evidence_peers.py SAMPLER [--dim 2 10 20] [--seeds 5] [--size N]

SAMPLER is tempered, smc, dynesty or nautilus; each runs where it is installed, and counts what it evaluates
in its own way: gradients, or log likelihoods. The prior is uniform on a cube with sides of 20, the
likelihood a mixture of two normal laws with scales 1 and 0.5 and weights 0.3 and 0.7, six scales from the
cube's middle; so the log evidence is -d log 20. All run at their defaults on one core, but for the number of
particles or live points where `--size` gives one. The columns:
evaluations and seconds of CPU; the root mean square errors of the log evidence and of the weight of the
first mode; independent draws that would give the latter, and these a second.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

WEIGHT, AWAY, SCALES, SIDE = 0.3, 3.0, (1.0, 0.5), 20.0


class Answer(NamedTuple):
    log_evidence: float
    weight: float  # of the first mode
    evaluations: int


def log_likelihood(x: np.ndarray) -> Any:
    """Log likelihoods of points (..., d)."""
    d = x.shape[-1]
    parts = [
        np.log(weight) - 0.5 * np.sum(((x - middle) / scale) ** 2, axis=-1) - d * np.log(scale)
        for weight, middle, scale in zip((WEIGHT, 1 - WEIGHT), (-AWAY, AWAY), SCALES, strict=True)
    ]
    return np.logaddexp(*parts) - 0.5 * d * np.log(2 * np.pi)


def tempered(d: int, seed: int, size: int | None) -> Answer:
    import stanadapt
    from stanadapt.result.container import datasets

    program = (
        f"parameters {{ vector<lower=-10, upper=10>[{d}] x; }} model {{ x ~ uniform(-10, 10); "
        f"target += log_mix({WEIGHT}, normal_lpdf(x | -{AWAY}, {SCALES[0]}), "
        f"normal_lpdf(x | {AWAY}, {SCALES[1]})); }}"
    )
    result = stanadapt.sample(program, method="tempered", seed=seed, progress=False, workers=1)
    groups = datasets(result)
    own = groups["adaptation"]
    evaluations = own["evaluations_warmup"].sum() + own["evaluations"].sum() + own["search_gradients"].sum()
    evaluations += groups["posterior"].attrs["modes_search_evaluations"]
    share = float((groups["posterior"]["x"].values.mean(axis=-1) < 0).mean())
    return Answer(groups["posterior"].attrs["log_evidence"], share, int(evaluations))


def smc(d: int, seed: int, size: int | None) -> Answer:
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model():
        x = pm.Uniform("x", -10, 10, shape=d)
        parts = [
            np.log(w) - 0.5 * pt.sum(((x - m) / s) ** 2) - d * np.log(s) - 0.5 * d * np.log(2 * np.pi)
            for w, m, s in zip((WEIGHT, 1 - WEIGHT), (-AWAY, AWAY), SCALES, strict=True)
        ]
        pm.Potential("likelihood", pt.logaddexp(*parts))
        result = pm.sample_smc(size or 2_000, random_seed=seed, progressbar=False, cores=1)
    stats = result["sample_stats"]
    ends = [
        float(np.asarray(row)[-1]) for row in np.atleast_1d(stats["log_marginal_likelihood"].values.squeeze())
    ]
    share = float((result["posterior"]["x"].values.mean(axis=-1) < 0).mean())
    return Answer(float(np.mean(ends)), share, -1)


def dynesty(d: int, seed: int, size: int | None) -> Answer:
    from dynesty import NestedSampler

    rng = np.random.default_rng(seed)
    sampler = NestedSampler(
        lambda x: float(log_likelihood(x)), lambda u: SIDE * (u - 0.5), d, nlive=size or 500, rstate=rng
    )
    sampler.run_nested(print_progress=False)
    found = sampler.results
    weights = np.exp(found.logwt - found.logz[-1])
    share = float(weights[found.samples.mean(axis=1) < 0].sum() / weights.sum())
    return Answer(float(found.logz[-1]), share, int(np.sum(found.ncall)))


def nautilus(d: int, seed: int, size: int | None) -> Answer:
    from nautilus import Sampler

    more = {"n_dim": d, "n_live": size or 2_000, "vectorized": True, "pass_dict": False, "seed": seed}
    sampler = Sampler(lambda u: SIDE * (u - 0.5), log_likelihood, **more)
    sampler.run(verbose=False)
    points, log_weights, _ = sampler.posterior()
    weights = np.exp(log_weights)
    share = float(weights[points.mean(axis=1) < 0].sum() / weights.sum())
    return Answer(float(sampler.log_z), share, int(sampler.n_like))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sampler", choices=["tempered", "smc", "dynesty", "nautilus"])
    parser.add_argument("--dim", nargs="*", type=int, default=[2, 10, 20])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--size", type=int, help="particles, or live points")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    run = globals()[asked.sampler]
    run(2, 0, None)  # what is compiled is not counted
    print(
        "| sampler | d | evaluations | CPU s | log evidence off by | weight off by | draws | draws a second |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for d in asked.dim:
        began = time.process_time()
        answers = [run(d, seed, asked.size) for seed in range(1, asked.seeds + 1)]
        seconds = (time.process_time() - began) / asked.seeds
        errors = np.array([answer.log_evidence + d * np.log(SIDE) for answer in answers])
        misses = np.array([answer.weight - WEIGHT for answer in answers])
        draws = WEIGHT * (1 - WEIGHT) / np.mean(misses**2)
        evaluations = np.mean([answer.evaluations for answer in answers])
        print(
            f"| {asked.sampler} | {d} | {evaluations:,.0f} | {seconds:.1f} | "
            f"{np.sqrt(np.mean(errors**2)):.3f} | {np.sqrt(np.mean(misses**2)):.3f} | {draws:.0f} | "
            f"{draws / seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
