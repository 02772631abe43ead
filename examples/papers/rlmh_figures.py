"""Figures 1, 3 and 4 of Wang, Chen, Kanagawa and Oates (2024), drawn by `rlmh.py --figures`.

Targets and settings are those of the demonstrations in the authors' published code, which differ from the
benchmark's: no warm start, proposals with the mean phi(x) = x to begin with, Sigma a multiple of I, faster
learning, 140 episodes. Where the code has the target once for RLMH and, with other numbers, for MALA and
NUTS, it is RLMH's here.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

import stanadapt
from common import Method
from figures import COLOURS, Learner, new_figure, save, tidy
from stanadapt.numerics.actor_critic import action
from stanadapt.result.container import datasets
from stanadapt.samplers.policy import into_space, out_of_space

EPISODE, EPISODES, DRAWS = 500, 140, 5_000
RUNS = 10  # of which the one with the largest rewards in the end is shown
WINDOW = 5  # episodes that rewards are smoothed over
BREAKS = (20, 50)  # episodes at which the colours of the paper's figures change: black, red, blue
PHASES = ("black", "#D55E00", "#0072B2")

MIXTURE = """
data {
  int K;
  int d;
  simplex[K] weights;
  array[K] vector[d] means;
  vector<lower=0>[K] sds;
}
parameters {
  vector[d] x;
}
model {
  vector[K] parts;
  for (k in 1 : K) {
    parts[k] = log(weights[k]) + normal_lpdf(x | means[k], sds[k]);
  }
  target += log_sum_exp(parts);
}
"""
SKEW_NORMAL = """
parameters {
  vector[1] x;
}
model {
  x ~ skew_normal(0, 1, 2);
}
"""


class Demo(NamedTuple):
    """A target and how the policy is trained on it."""

    picture: str
    title: str
    program: str
    data: dict[str, Any]
    settings: dict[str, Any]
    limits: tuple[float, float]


def mixture(weights: list[float], means: list[list[float]], variances: list[float]) -> dict[str, Any]:
    sizes = {"K": len(weights), "d": len(means[0])}
    return sizes | {"weights": weights, "means": means, "sds": np.sqrt(variances)}


# The ball C is so large that phi is the network wherever the target is, as in the demonstrations.
TRAINING = {"warm_start": 0, "pretrain": "identity", "radius": 40.0, "actor_rate": 0.01, "threshold": 0.01}
DEMOS = (
    Demo(
        "rlmh_figure_1",
        "0.5 N(-5, 1) + 0.5 N(5, 1)",
        MIXTURE,
        mixture([0.5, 0.5], [[-5], [5]], [1, 1]),
        TRAINING,
        (-10, 10),
    ),
    Demo("rlmh_figure_3a", "skew normal, shape 2", SKEW_NORMAL, {}, TRAINING | {"radius": 10.0}, (-2, 4)),
    Demo(
        "rlmh_figure_3b",
        "skewed, with several modes",
        MIXTURE,
        mixture([0.2, 0.2, 0.1, 0.3, 0.2], [[-7], [-5], [5], [6], [8]], [1, 1, 1, 1, 1]),
        TRAINING | {"threshold": 1e6},
        (-12, 13),
    ),
    Demo(
        "rlmh_figure_3c",
        "0.6 N(-5, 1) + 0.4 N(7, 2)",
        MIXTURE,
        mixture([0.6, 0.4], [[-5], [7]], [1, 2]),
        TRAINING | {"threshold": 1.0, "scale": np.sqrt(2.0)},
        (-10, 12),
    ),
    Demo(
        "rlmh_figure_4",
        "0.5 N((-5, 0), I) + 0.5 N((5, 0), I)",
        MIXTURE,
        mixture([0.5, 0.5], [[-5, 0], [5, 0]], [1, 1]),
        TRAINING | {"scale": np.sqrt(2.0), "radius": 30.0},
        (-10, 10),
    ),
)


class Trained(NamedTuple):
    """A run of RLMH: rewards of its episodes, phi at the grid, and draws with the last phi."""

    rewards: np.ndarray
    policies: np.ndarray  # (1 + episodes, points, d): before all and after each of them
    draws: np.ndarray  # (n, d)


def phi(policy: Any, radius: float, points: np.ndarray) -> np.ndarray:
    """Means (n, d) of the proposals from `points` (n, d)."""
    learner, means = policy.learner, np.empty_like(points)
    a = np.empty(points.shape[1])
    for i, x in enumerate(points):
        action(learner.actor_is, learner.nets.actor, radius, into_space(policy.space, x), a)
        means[i] = out_of_space(policy.space, a)
    return means


def trained(demo: Demo, posterior: stanadapt.Posterior, grid: np.ndarray, seed: int) -> Trained:
    method = Method("RLMH", "rlmh", demo.settings, EPISODES * EPISODE, DRAWS)
    untrained = Learner(method._replace(warmup=1), posterior, seed).warmed_up()
    learner = Learner(method, posterior, seed)
    radius = demo.settings["radius"]
    policies = [phi(untrained.state.policy, radius, grid)]
    policies += [phi(learner.state.policy, radius, grid) for _ in learner.warm_up(EPISODE)]
    draws = learner.draw().x
    return Trained(learner.state.policy.record.rewards, np.array(policies), draws)


def best_of(demo: Demo, posterior: stanadapt.Posterior, grid: np.ndarray, seed: int) -> Trained:
    """The run whose last episodes have the largest rewards; not every one learns to visit all modes."""
    runs = [trained(demo, posterior, grid, seed + i) for i in range(RUNS)]
    rewards = [run.rewards[-20:].mean() for run in runs]
    print(f"{demo.title}: rewards in the end {', '.join(f'{reward:.1f}' for reward in rewards)}")
    return runs[int(np.argmax(rewards))]


def others(posterior: stanadapt.Posterior, name: str, seed: int) -> np.ndarray:
    """Draws (n, d) of another method, from the origin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stays in one mode is what is shown
        idata = stanadapt.sample(
            posterior,
            method=name,
            chains=1,
            warmup=20_000,
            draws=DRAWS,
            seed=seed,
            inits=np.zeros((1, posterior.dim)),
            progress=False,
        )
    return np.asarray(datasets(idata)["posterior"]["x"].values[0])


def colour(episode: int) -> str:
    return PHASES[sum(episode >= there for there in BREAKS)]


def draw_rewards(axes: Axes, rewards: np.ndarray) -> None:
    smooth = np.convolve(rewards, np.ones(WINDOW) / WINDOW, "valid")
    edges = (0, *BREAKS, len(smooth) - 1)
    for first, last, shade in zip(edges[:-1], edges[1:], PHASES, strict=True):
        axes.plot(EPISODE * np.arange(first, last + 1), smooth[first : last + 1], color=shade, lw=1)
    tidy(axes, "reward", "n")


def draw_lines(axes: Axes, grid: np.ndarray, policies: np.ndarray, episodes: range, limits: Any) -> None:
    """phi after each of `episodes`, a line each; 0 is before the first."""
    for i in episodes:
        shade = 1.0 if len(episodes) == 1 else 0.2
        axes.plot(grid[:, 0], policies[i, :, 0], color=colour(i), lw=0.8, alpha=shade)
    axes.set(xlim=limits, ylim=limits)


def draw_arrows(axes: Axes, grid: np.ndarray, policies: np.ndarray, episodes: range, limits: Any) -> None:
    """From points x to phi(x), after the last of `episodes`."""
    i = episodes[-1]
    moves = (policies[i] - grid).T
    axes.quiver(
        *grid.T, *moves, color=colour(i), angles="xy", scale_units="xy", scale=1, width=0.003, headwidth=6
    )
    axes.set(xlim=limits, ylim=(-5, 5))


def draw_density(axes: Axes, posterior: stanadapt.Posterior, limits: Any) -> None:
    x = np.linspace(*limits, 200)
    if posterior.dim == 1:
        logp = [posterior.log_density(np.array([value])) for value in x]
        axes.plot(x, np.exp(np.array(logp) - max(logp)), color="black", lw=1)
    else:
        y = np.linspace(-5, 5, 100)
        logp = [[posterior.log_density(np.array([first, second])) for first in x] for second in y]
        axes.contour(x, y, np.exp(np.array(logp) - np.max(logp)), colors="black", linewidths=0.6)
    tidy(axes, "density")
    axes.set(xlim=limits, yticks=[])


def draw_draws(axes: Axes, label: str, draws: np.ndarray, limits: Any) -> None:
    """A histogram, or in two dimensions the points."""
    shade = COLOURS[label]
    if draws.shape[1] == 1:
        axes.hist(draws[:, 0], np.linspace(*limits, 100), color=shade, histtype="stepfilled")
    else:
        axes.plot(*draws.T, ".", ms=1, color=shade)
        axes.set_ylim(-5, 5)
    tidy(axes, label)
    axes.set(xlim=limits, yticks=[])


def grid_of(demo: Demo, d: int, rng: np.random.Generator) -> np.ndarray:
    """Where phi is looked at: (n, d) along the axis, or in two dimensions 40 draws from the target."""
    if d == 1:
        return np.linspace(*demo.limits, 201)[:, None]
    picked = rng.choice(len(demo.data["weights"]), 40, p=demo.data["weights"])
    return np.array(demo.data["means"])[picked] + rng.standard_normal((40, d))


def draw_demo(demo: Demo, seed: int) -> None:
    """Above rewards and policies, below the density and what three samplers draw from it."""
    posterior = stanadapt.Posterior(demo.program, demo.data)
    grid = grid_of(demo, posterior.dim, np.random.default_rng(seed))
    run = best_of(demo, posterior, grid, seed)
    figure, (above, below) = new_figure(11, 5, 2, 4)
    figure.suptitle(demo.title, fontsize=10)
    draw_rewards(above[0], run.rewards)
    draw_policies = draw_lines if posterior.dim == 1 else draw_arrows
    early, late = range(*BREAKS), range(BREAKS[1], EPISODES + 1)
    for axes, episodes in zip(above[1:], (range(1), early, late), strict=True):
        draw_policies(axes, grid, run.policies, episodes, demo.limits)
        tidy(axes, f"phi, episodes {episodes[0]} to {episodes[-1]}" if episodes[-1] else "phi, untrained")
    draw_density(below[0], posterior, demo.limits)
    drawn = {"MALA": others(posterior, "mala", seed), "NUTS": others(posterior, "nuts", seed)}
    for axes, (label, draws) in zip(below[1:], (drawn | {"RLMH": run.draws}).items(), strict=True):
        draw_draws(axes, label, draws, demo.limits)
    save(figure, demo.picture)


def draw(seed: int) -> None:
    for demo in DEMOS:
        draw_demo(demo, seed)
