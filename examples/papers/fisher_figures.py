"""Figures 1 to 3 of Titsias (2023), drawn by `python examples/papers/fisher_mala.py --figures`."""

from __future__ import annotations

import argparse

import numpy as np
from matplotlib.axes import Axes

from common import Method, opened
from ess import tfp_ess
from figures import COLOURS, Learner, image, new_figure, normalised, save, there, tidy
from targets import Source, correlated, gaussian_process, inhomogeneous

SEED = 1
ADAPTIVE = [Method("FisherMALA", "fisher_mala"), Method("AdaMALA", "ada_mala")]
BASELINES = [Method("MALA", "mala"), Method("HMC", "hmc", {"n_leapfrog": 10, "target_accept": 0.651})]


def errors(learner: Learner, cov: np.ndarray, every: int) -> tuple[list[int], list[float]]:
    """Iterations of burn-in, and the Frobenius norm of the normalised preconditioner's error at each."""
    optimal = normalised(cov)
    steps, norms = [], []
    for done in learner.warm_up(every):
        steps.append(done)
        norms.append(float(np.linalg.norm(normalised(learner.preconditioner) - optimal)))
    return steps, norms


def draw_errors(
    axes: Axes, target: str, cov: np.ndarray, source: Source, every: int, legend: str
) -> dict[str, Learner]:
    """A curve for each adaptive method; returns the chains that have learnt."""
    learners = {}
    for method in there(ADAPTIVE):
        learner = learners[method.label] = Learner(method, opened(target, source), SEED)
        axes.plot(*errors(learner, cov, every), color=COLOURS[method.label], label=method.label, lw=1.5)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc=legend)
    return learners


def figure_1(source: Source) -> None:
    figure, panels = new_figure(12.5, 2.9, 1, 5)
    error_2d, error_gp, true, fisher, ada = panels[0]
    draw_errors(error_2d, "2d-0.995", correlated(0.995), source, 20, "upper right")
    tidy(error_2d, "(a) 2-D Gaussian", "burn-in iteration", "Frobenius norm of error")
    learners = draw_errors(error_gp, "gp", gaussian_process(), source, 100, "lower left")
    tidy(error_gp, "(b) GP target", "burn-in iteration", "Frobenius norm of error")
    for axes in (error_2d, error_gp):
        axes.set_xscale("log")
        axes.set_xlim(left=300)  # all before 500 is simple MALA
    optimal = normalised(gaussian_process())
    image(figure, true, optimal, "(c) true covariance", optimal.max())
    image(figure, fisher, normalised(learners["FisherMALA"].preconditioner), "(d) FisherMALA", optimal.max())
    image(figure, ada, normalised(learners["AdaMALA"].preconditioner), "(e) AdaMALA", optimal.max())
    save(figure, "fisher_mala_figure_1")


def figure_2(source: Source) -> None:
    figure, ((ess, sds, error),) = new_figure(12, 3.2, 1, 3)
    cov, dimension = inhomogeneous(), np.arange(1, 101)
    learners = draw_errors(error, "inhomogeneous", cov, source, 200, "upper right")
    tidy(error, "(c) error of the preconditioner", "burn-in iteration", "Frobenius norm")
    for label, learner in learners.items():
        scale = np.sqrt(np.diag(normalised(learner.preconditioner)) * np.trace(cov) / len(cov))
        sds.plot(dimension, scale, ".", ms=4, color=COLOURS[label], label=label)
    sds.plot(dimension, np.sqrt(np.diag(cov)), color="black", lw=1, label="true")
    sds.legend(fontsize=8)
    tidy(sds, "(b) standard deviations from the preconditioner", "dimension")
    for method in there(BASELINES):
        learners[method.label] = Learner(method, opened("inhomogeneous", source), SEED).warmed_up()
    for label, learner in learners.items():
        values = [tfp_ess(column) for column in learner.draw().x.T]
        ess.plot(dimension, values, ".", ms=4, color=COLOURS[label], label=label)
    ess.set_yscale("log")
    ess.set_ylim(top=1e6)
    ess.legend(fontsize=8, loc="upper right", ncols=2)
    tidy(ess, "(a) ESS of 20,000 draws", "dimension")
    save(figure, "fisher_mala_figure_2")


def figure_3(source: Source) -> None:
    methods = there([*ADAPTIVE, *reversed(BASELINES)])
    figure, panels = new_figure(12, 2.6, 1, len(methods), sharey=True)
    for axes, method in zip(panels[0], methods, strict=True):
        logp = Learner(method, opened("caravan", source), SEED).warmed_up().draw().logp
        kept = np.arange(0, logp.size, 10)
        axes.plot(kept, logp[kept], color=COLOURS[method.label], lw=0.4)
        tidy(axes, method.label, "iteration")
    panels[0, 0].set_ylabel("log target", fontsize=9)
    save(figure, "fisher_mala_figure_3")


def draw(given: argparse.Namespace) -> None:
    source = Source(given.data.resolve())
    figure_1(source)
    figure_2(source)
    if (source.folder / "caravan.csv").is_file():
        figure_3(source)
    else:
        print(f"figure 3 is skipped: no caravan.csv in {source.folder}")
