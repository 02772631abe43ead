"""Figures 1 to 3 of Titsias and Dellaportas (2019), drawn by `gad_mcmc.py --figures`."""

from __future__ import annotations

import argparse

import numpy as np
from matplotlib.axes import Axes

from common import Job, Method, opened, sample
from ess import geyer_ess
from figures import COLOURS, Learner, image, new_figure, save, there, tidy
from stanadapt.result.container import datasets
from targets import Source, correlated, inhomogeneous, squared_exponential

SEED = 1
CORRELATED = correlated(0.99)
# The two demonstrations of Figure 1 have learning rates of their own in the code that the authors published.
GAD_RWM_2D = Method("gadRWM", "gad_rwm", {"learning_rate": 0.0005})
GAD_MALA_51D = Method("gadMALAf", "gad_mala_fast", {"learning_rate": 0.001}, warmup=200_000)
LEARNERS = [
    Method("gadMALAf", "gad_mala_fast"),
    Method("gadMALAe", "gad_mala_exact"),
    Method("gadRWM", "gad_rwm"),
    Method("AM", "am", {"target_accept": 0.25, "initial_scale": 10.0}),  # L = I, as the authors' code starts
]
HMC = Method("HMC-20", "hmc", {"n_leapfrog": 20, "target_accept": 0.7})
OTHERS = [
    Method("RWM", "rwm", {"target_accept": 0.25}),
    Method("MALA", "mala", {"target_accept": 0.54}),
    HMC,
    Method("NUTS", "nuts", warmup=500),
]


def contours(axes: Axes, cov: np.ndarray, colour: str, label: str) -> None:
    """The ellipses that hold 39% and 86% of N(0, cov): one and two standard deviations."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.linalg.cholesky(cov) @ np.array([np.cos(angle), np.sin(angle)])
    axes.plot(*circle, color=colour, lw=1.5, label=label)
    axes.plot(*(2 * circle), color=colour, lw=1.5)


def proposals_of_gad_rwm(axes: Axes, target_accept: float, source: Source) -> None:
    method = GAD_RWM_2D._replace(settings={"learning_rate": 0.0005, "target_accept": target_accept})
    learner = Learner(method, opened("2d", source), SEED).warmed_up()
    contours(axes, CORRELATED, COLOURS["MALA"], "target")
    contours(axes, learner.preconditioner, COLOURS["gadMALAf"], "proposal")
    axes.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal")
    axes.legend(fontsize=8, loc="upper left")
    tidy(axes, f"acceptance {target_accept}: beta = {learner.state.beta:.1f}")


def figure_1(source: Source) -> None:
    figure, ((quarter, more, true, learnt),) = new_figure(11, 3, 1, 4)
    proposals_of_gad_rwm(quarter, 0.25, source)
    proposals_of_gad_rwm(more, 0.4, source)
    cov = squared_exponential()
    image(figure, true, cov, "true covariance", cov.max())
    found = Learner(GAD_MALA_51D, opened("51d", source), SEED).warmed_up().preconditioner
    image(figure, learnt, found, "learnt by gadMALAf", found.max())
    save(figure, "gad_mcmc_figure_1")


def figure_2(source: Source) -> None:
    """Columns of the paper: the gradient-based methods and AM, and HMC-20 in the row of traces."""
    methods = there([*LEARNERS, HMC])
    figure, rows = new_figure(12, 4.4, 2, len(methods))
    sds = np.sqrt(np.diag(inhomogeneous()))
    for (above, below), method in zip(rows.T, methods, strict=True):
        learner = Learner(method, opened("neal", source), SEED).warmed_up()
        trace = learner.draw().x[:, 99]
        above.plot(np.arange(0, trace.size, 10), trace[::10], color=COLOURS[method.label], lw=0.4)
        above.set_ylim(-4, 4)
        tidy(above, method.label, "iteration")
        if method.label == "HMC-20":
            below.axis("off")
            continue
        diagonal = np.diag(np.linalg.cholesky(learner.preconditioner))
        below.plot(np.arange(1, 101), diagonal / diagonal.mean(), ".", ms=4, color=COLOURS[method.label])
        below.plot(np.arange(1, 101), sds / sds.mean(), color="black", lw=1)
        tidy(below, "", "dimension")
    rows[0, 0].set_ylabel("x_100", fontsize=9)
    rows[1, 0].set_ylabel("diagonal of L over its mean", fontsize=9)
    save(figure, "gad_mcmc_figure_2")


def figure_3(source: Source) -> None:
    """Log densities over adaptation and sampling."""
    methods = there([*LEARNERS, *OTHERS])
    figure, rows = new_figure(12, 4.4, 2, 4, sharey=True)
    for axes, method in zip(rows.flat, methods, strict=False):
        job = Job("neal", source, method, 0, SEED, geyer_ess)
        groups = datasets(sample(job, method.warmup, method.draws, save_warmup=True))
        logp = np.concatenate(
            [
                groups[name]["lp"].values[0]
                for name in ("warmup_sample_stats", "sample_stats")
                if name in groups
            ]
        )
        kept = np.arange(0, logp.size, 20)
        axes.plot(kept, logp[kept], color=COLOURS[method.label], lw=0.4)
        axes.set_ylim(-200, 0)
        if logp[-1] < -200:
            axes.text(0.5, 0.5, f"at {logp[-1]:.0f} in the end", transform=axes.transAxes, ha="center")
        tidy(axes, method.label, "iteration")
    for axes in rows[:, 0]:
        axes.set_ylabel("log density", fontsize=9)
    save(figure, "gad_mcmc_figure_3")


def draw(given: argparse.Namespace) -> None:
    source = Source(given.data.resolve(), standardise=True)
    figure_1(source)
    figure_2(source)
    figure_3(source)
