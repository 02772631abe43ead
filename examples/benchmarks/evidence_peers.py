"""Two modes and the evidence: tempered beside SMC of PyMC and of BlackJAX, dynesty and nautilus.

    python examples/benchmarks/evidence_peers.py SAMPLER [--dim 2 10 20] [--seeds 5] [--size N | --budget N]

SAMPLER is tempered, smc (PyMC), blackjax, dynesty or nautilus; each runs where it is installed, and counts
what it evaluates: gradients, or log likelihoods. The prior is uniform on a cube with sides of 20, the
likelihood a mixture of two normal laws with scales 1 and 0.5 and weights 0.3 and 0.7, six scales from the
cube's middle; so the log evidence is -d log 20. All run at their defaults on one core, but for the number of
particles or live points, where `--size` gives one; with `--budget` it is that at which a run takes about as
many evaluations, by what a run at the default number takes. BlackJAX has no defaults: see `blackjax`. The
columns: particles or live points; evaluations and seconds of CPU; the root mean square errors of the log
evidence and of the weight of the first mode; independent draws that would give the latter, and these a
second.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

WEIGHT, AWAY, SCALES, SIDE = 0.3, 3.0, (1.0, 0.5), 20.0
PARTICLES, LIVE = 2_000, 500  # defaults of the samplers


class Answer(NamedTuple):
    log_evidence: float
    weight: float  # of the first mode
    evaluations: int


Run = Callable[[int], Answer]  # of a seed


def log_likelihood(x: np.ndarray) -> Any:
    """Log likelihoods of points (..., d)."""
    d = x.shape[-1]
    parts = [
        np.log(weight) - 0.5 * np.sum(((x - middle) / scale) ** 2, axis=-1) - d * np.log(scale)
        for weight, middle, scale in zip((WEIGHT, 1 - WEIGHT), (-AWAY, AWAY), SCALES, strict=True)
    ]
    return np.logaddexp(*parts) - 0.5 * d * np.log(2 * np.pi)


def tempered(d: int, size: int | None) -> Run:
    import stanadapt
    from stanadapt.result.container import datasets

    program = (
        f"parameters {{ vector<lower=-10, upper=10>[{d}] x; }} model {{ x ~ uniform(-10, 10); "
        f"target += log_mix({WEIGHT}, normal_lpdf(x | -{AWAY}, {SCALES[0]}), "
        f"normal_lpdf(x | {AWAY}, {SCALES[1]})); }}"
    )
    posterior = stanadapt.Posterior(program)

    def run(seed: int) -> Answer:
        result = stanadapt.sample(posterior, method="tempered", seed=seed, progress=False, workers=1)
        groups = datasets(result)
        own = groups["adaptation"]
        chains = ("evaluations_warmup", "evaluations", "search_gradients")
        evaluations = sum(float(own[name].sum()) for name in chains)
        evaluations += groups["posterior"].attrs["modes_search_evaluations"]
        share = float((groups["posterior"]["x"].values.mean(axis=-1) < 0).mean())
        return Answer(groups["posterior"].attrs["log_evidence"], share, int(evaluations))

    return run


def smc(d: int, size: int | None) -> Run:
    import pymc as pm
    import pytensor.tensor as pt

    taken = [0]

    kernel = pm.smc.kernels.IMH  # the default one
    set_up, mutate = kernel.setup_kernel, kernel.mutate

    def counted_setup(own: Any) -> None:
        set_up(own)
        taken[0] += own.draws

    def counted_mutate(own: Any) -> None:
        mutate(own)
        taken[0] += own.draws * (own.n_steps - 1)

    with pm.Model() as model:
        x = pm.Uniform("x", -10, 10, shape=d)
        parts = [
            np.log(w) - 0.5 * pt.sum(((x - m) / s) ** 2) - d * np.log(s) - 0.5 * d * np.log(2 * np.pi)
            for w, m, s in zip((WEIGHT, 1 - WEIGHT), (-AWAY, AWAY), SCALES, strict=True)
        ]
        pm.Potential("likelihood", pt.logaddexp(*parts))

    def run(seed: int) -> Answer:
        taken[0] = 0
        more = {"random_seed": seed, "progressbar": False, "cores": 1}
        counted = mock.patch.multiple(kernel, setup_kernel=counted_setup, mutate=counted_mutate)
        with model, counted:
            result = pm.sample_smc(size or PARTICLES, kernel=kernel, **more)
        logs = result["sample_stats"]["log_marginal_likelihood"].values.squeeze()
        ends = [float(np.asarray(row)[-1]) for row in np.atleast_1d(logs)]
        share = float((result["posterior"]["x"].values.mean(axis=-1) < 0).mean())
        return Answer(float(np.mean(ends)), share, taken[0])

    return run


def blackjax(d: int, size: int | None) -> Run:
    """Adaptive tempered SMC, in stages that halve the effective size.

    After each stage, 5 trajectories of HMC, of 5 steps; their metric is the particles' variances, and their
    step size follows the acceptance rate, which is to be 0.7. The cube is made unbounded by logits.
    """
    import blackjax as bj
    import jax
    import jax.numpy as jnp
    from blackjax.smc import resampling
    from jax.scipy.special import logsumexp

    jax.config.update("jax_enable_x64", True)
    n, moves, leapfrogs = size or PARTICLES, 5, 5

    def log_prior(z: Any) -> Any:
        return jnp.sum(jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z))

    def likelihood(z: Any) -> Any:
        x = SIDE * (jax.nn.sigmoid(z) - 0.5)
        parts = [
            jnp.log(w) - 0.5 * jnp.sum(((x - m) / s) ** 2) - d * jnp.log(s)
            for w, m, s in zip((WEIGHT, 1 - WEIGHT), (-AWAY, AWAY), SCALES, strict=True)
        ]
        return logsumexp(jnp.array(parts)) - 0.5 * d * jnp.log(2 * jnp.pi)

    def learnt(particles: Any, step_size: Any) -> dict[str, Any]:
        return {"step_size": step_size[None], "inverse_mass_matrix": jnp.var(particles, axis=0)[None]}

    @jax.jit
    def stage(key: Any, state: Any, step_size: Any) -> Any:
        algorithm = bj.adaptive_tempered_smc(
            log_prior,
            likelihood,
            bj.hmc.build_kernel(),
            bj.hmc.init,
            learnt(state.particles, step_size) | {"num_integration_steps": jnp.array([leapfrogs])},
            resampling.systematic,
            0.5,
            num_mcmc_steps=moves,
        )
        state, info = algorithm.step(key, state)
        accepted = jnp.mean(info.update_info.acceptance_rate)
        return state, info.log_likelihood_increment, step_size * jnp.exp(2.0 * (accepted - 0.7))

    def run(seed: int) -> Answer:
        key, own = jax.random.split(jax.random.key(seed))
        state = bj.smc.tempered.init(jax.random.logistic(own, (n, d)))
        log_evidence, stages, step_size = 0.0, 0, jnp.array(d**-0.25)
        while float(state.tempering_param) < 1.0:
            key, own = jax.random.split(key)
            state, increment, step_size = stage(own, state, step_size)
            log_evidence, stages = log_evidence + float(increment), stages + 1
        share = float(jnp.sum(state.weights * (jnp.mean(state.particles, axis=1) < 0)))
        return Answer(log_evidence, share, stages * n * (moves * leapfrogs + 2))

    jax.block_until_ready(
        stage(jax.random.key(0), bj.smc.tempered.init(jnp.zeros((n, d))), jnp.array(0.1))
    )  # which compiles it
    return run


def dynesty(d: int, size: int | None) -> Run:
    from dynesty import NestedSampler

    def run(seed: int) -> Answer:
        more = {"nlive": size or LIVE, "rstate": np.random.default_rng(seed)}
        sampler = NestedSampler(lambda x: float(log_likelihood(x)), lambda u: SIDE * (u - 0.5), d, **more)
        sampler.run_nested(print_progress=False)
        found = sampler.results
        weights = np.exp(found.logwt - found.logz[-1])
        share = float(weights[found.samples.mean(axis=1) < 0].sum() / weights.sum())
        return Answer(float(found.logz[-1]), share, int(np.sum(found.ncall)))

    return run


def nautilus(d: int, size: int | None) -> Run:
    from nautilus import Sampler

    def run(seed: int) -> Answer:
        more = {"n_dim": d, "n_live": size or PARTICLES, "vectorized": True, "pass_dict": False, "seed": seed}
        sampler = Sampler(lambda u: SIDE * (u - 0.5), log_likelihood, **more)
        sampler.run(verbose=False)
        points, log_weights, _ = sampler.posterior()
        weights = np.exp(log_weights)
        share = float(weights[points.mean(axis=1) < 0].sum() / weights.sum())
        return Answer(float(sampler.log_z), share, int(sampler.n_like))

    return run


SAMPLERS: dict[str, tuple[Callable[[int, int | None], Run], int]] = {
    "tempered": (tempered, 0),
    "smc": (smc, PARTICLES),
    "blackjax": (blackjax, PARTICLES),
    "dynesty": (dynesty, LIVE),
    "nautilus": (nautilus, PARTICLES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sampler", choices=SAMPLERS)
    parser.add_argument("--dim", nargs="*", type=int, default=[2, 10, 20])
    parser.add_argument("--seeds", type=int, default=5)
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--size", type=int, help="particles, or live points")
    number.add_argument("--budget", type=int, help="evaluations that a run is to take")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    prepare, usual = SAMPLERS[asked.sampler]
    prepare(2, None)(0)  # what is compiled is not counted
    columns = "sampler | d | size | evaluations | CPU s | log evidence off by | weight off by | draws"
    print(f"| {columns} | draws a second |\n| --- |" + " ---: |" * 8)
    for d in asked.dim:
        size = asked.size or usual
        if asked.budget:
            size = round(size * asked.budget / prepare(d, size)(0).evaluations)
        run = prepare(d, size)
        began = time.process_time()
        answers = [run(seed) for seed in range(1, asked.seeds + 1)]
        seconds = (time.process_time() - began) / asked.seeds
        errors = np.array([answer.log_evidence + d * np.log(SIDE) for answer in answers])
        misses = np.array([answer.weight - WEIGHT for answer in answers])
        draws = WEIGHT * (1 - WEIGHT) / np.mean(misses**2)
        evaluations = np.mean([answer.evaluations for answer in answers])
        print(
            f"| {asked.sampler} | {d} | {size or ''} | {evaluations:,.0f} | {seconds:.1f} | "
            f"{np.sqrt(np.mean(errors**2)):.3f} | {np.sqrt(np.mean(misses**2)):.3f} | {draws:.0f} | "
            f"{draws / seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
