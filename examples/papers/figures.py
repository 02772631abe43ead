"""What the figures share: chains whose learning can be looked at, and pictures that are saved small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import stanadapt
from common import Method, first_point, settings_of
from stanadapt import samplers
from stanadapt.run.warmup import warm_up
from stanadapt.samplers.base import advance
from stanadapt.trace import Trace

PICTURES = Path(__file__).parent / "pictures"
COLOURS = {  # of Okabe and Ito, told apart by colour-blind readers too
    **{
        "FisherMALA": "#0072B2",
        "AdaMALA": "#D55E00",
        "MALA": "#009E73",
        "HMC": "#CC79A7",
        "mMALA": "#E69F00",
    },
    **{"gadMALAf": "#0072B2", "gadMALAe": "#56B4E9", "gadRWM": "#E69F00", "AM": "#D55E00", "RWM": "#000000"},
    **{"HMC-20": "#CC79A7", "NUTS": "#999999"},
    **{"KMC finite": "#0072B2", "KMC lite, oracle": "#0072B2", "KMC lite, oracle, long steps": "#56B4E9"},
    **{"KMC lite": "#009E73", "KMC lite, long steps": "#999999", "KMC lite, our defaults": "#882255"},
    **{"RLMH": "#0072B2"},
    **{"KAMH": "#E69F00", "RW": "#000000", "HABC": "#D55E00", "HABC, no friction": "#CC79A7"},
}


class Learner:
    """A chain that is warmed up in pieces, so that what it has learnt can be looked at on the way."""

    def __init__(self, method: Method, posterior: stanadapt.Posterior, seed: int) -> None:
        self.method, self.posterior = method, posterior
        self.sampler = samplers.sampler(method.name)
        self.settings = samplers.resolve(self.sampler, settings_of(method))
        self.target = self.posterior.model.target()
        self.rng = np.random.default_rng(seed)
        x = first_point(self.posterior.dim, seed, 0)
        self.driver = warm_up(self.sampler, self.settings, self.target, x, self.rng, method.warmup)
        self.state = self.driver.state

    def warm_up(self, every: int) -> Iterator[int]:
        """Yields the number of iterations done, at the end of every stage and at multiples of `every`."""
        done = 0
        while self.driver.n_left or self.driver.next_stage():
            step = min(every - done % every, self.driver.n_left)
            self.driver.run(self.driver.room(step))
            self.state = self.driver.state
            done += step
            yield done

    def warmed_up(self) -> Learner:
        for _ in self.warm_up(self.method.warmup):
            pass
        return self

    def draw(self) -> Trace:
        trace = self.driver.room(self.method.draws)
        self.state = advance(self.sampler, self.target, self.settings, self.state, self.rng, False, trace)
        return trace

    @property
    def preconditioner(self) -> np.ndarray:
        """The matrix (d, d) that proposals are shaped by."""
        return np.asarray(self.sampler.learnt(self.state)["preconditioner"])


def normalised(matrix: np.ndarray) -> np.ndarray:
    """Scaled to an average eigenvalue of one."""
    return matrix * len(matrix) / np.trace(matrix)


def there(methods: list[Method]) -> list[Method]:
    """Those that this stanadapt has."""
    return [method for method in methods if method.name in samplers.METHODS]


def new_figure(width: float, height: float, rows: int, columns: int, **keywords: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **keywords)


def tidy(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def image(figure: Figure, axes: Axes, matrix: np.ndarray, title: str, limit: float) -> None:
    """A covariance matrix, colours from 0 (or the most negative entry) to `limit`."""
    shown = axes.imshow(
        matrix, vmin=min(0.0, float(matrix.min())), vmax=limit, cmap="viridis", interpolation="nearest"
    )
    figure.colorbar(shown, ax=axes, shrink=0.7).ax.tick_params(labelsize=7)
    tidy(axes, title)


def save(figure: Figure, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}.png"
    figure.savefig(path, dpi=100, pil_kwargs={"optimize": True})
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
