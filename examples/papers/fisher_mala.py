"""Titsias (2023), Optimal Preconditioning and Fisher Adaptive Langevin Sampling: its table beside ours.

    python examples/papers/fisher_mala.py [--repeats 10] [--targets gp,pima] [--methods fisher_mala] [--quick]
    python examples/papers/fisher_mala.py --figures

The paper's settings: 20,000 iterations of burn-in, 20,000 draws, standard normal starts, damping 10, inputs
as they are, without a column of ones, prior N(0, I). Effective sample sizes as TensorFlow Probability gives
them by default, of one chain. The paper has no column of times or acceptance. FisherMALA+forgetting is not in
the paper: it is this package's default, which forgets the transient.
"""

from __future__ import annotations

from common import Method, Panel, Published, options, run
from ess import tfp_ess

Figure = tuple[float, float]  # mean and standard deviation over repeats


def published(most: Figure, median: Figure, least: Figure) -> Published:
    """A line of Table 1, in its order."""
    return Published((least[0], median[0], most[0]), ess_sd=(least[1], median[1], most[1]))


GP = {
    "MALA": published((15.235, 4.246), (6.326, 1.934), (3.619, 0.956)),
    "AdaMALA": published((845.100, 80.472), (662.978, 81.127), (552.377, 74.441)),
    "HMC": published((17.625, 6.706), (6.680, 2.205), (4.315, 0.889)),
    "mMALA": published((2109.441, 101.553), (2007.640, 104.867), (1841.978, 114.266)),
    "FisherMALA": published((2096.259, 94.751), (1923.753, 95.820), (1784.962, 104.440)),
}
PIMA = {
    "MALA": published((106.668, 29.601), (14.723, 3.821), (4.061, 1.587)),
    "AdaMALA": published((211.948, 133.363), (52.277, 26.566), (6.401, 3.344)),
    "HMC": published((1624.773, 544.777), (337.100, 212.158), (6.052, 2.062)),
    "mMALA": published((6086.948, 117.241), (5690.967, 118.401), (5297.835, 160.084)),
    "FisherMALA": published((6437.419, 207.548), (5981.960, 156.072), (5628.541, 168.425)),
}
CARAVAN = {
    "MALA": published((27.247, 7.554), (5.890, 0.398), (2.906, 0.150)),
    "AdaMALA": published((41.522, 9.343), (7.144, 0.663), (3.144, 0.135)),
    "HMC": published((787.901, 173.863), (37.303, 6.808), (4.238, 0.532)),
    "mMALA": published((179.899, 61.502), (121.867, 41.801), (51.414, 24.995)),
    "FisherMALA": published((2257.737, 45.289), (1920.903, 55.821), (498.016, 96.692)),
}
MNIST = {
    "MALA": published((34.074, 4.977), (7.589, 0.149), (2.944, 0.066)),
    "AdaMALA": published((62.301, 9.203), (8.188, 0.399), (2.985, 0.089)),
    "HMC": published((889.386, 118.050), (303.345, 10.976), (114.439, 20.965)),
    "mMALA": published((51.589, 3.447), (20.222, 1.259), (5.240, 0.492)),
    "FisherMALA": published((1053.455, 35.680), (811.522, 19.165), (439.580, 52.800)),
}

PANELS = {
    "2d-0.995": Panel(
        "2-D Gaussian, correlation 0.995 (the paper draws it in Figure 1 and has no table)", {}
    ),
    "gp": Panel("Gaussian process target (paper: Table 1)", GP),
    "inhomogeneous": Panel("Inhomogeneous Gaussian (the paper draws it in Figure 2 and has no table)", {}),
    "ripley": Panel("Ripley, 250 data points (paper: appendix)", {}),
    "pima": Panel("Pima Indian, 532 data points (paper: Table 1)", PIMA),
    "heart": Panel("Heart, 270 data points (paper: appendix)", {}),
    "australian": Panel("Australian Credit, 690 data points (paper: appendix)", {}),
    "german": Panel("German Credit, 1000 data points (paper: appendix)", {}),
    "caravan": Panel("Caravan, 5822 data points, the paper's d is 87 (Table 1)", CARAVAN),
    "mnist": Panel("MNIST 5 against 6, in the paper 11339 images and d = 785 (Table 1); no mMALA", MNIST),
    "synthetic-mnist": Panel("Synthetic digits of the shape of MNIST 5 against 6, not in the paper", {}),
}

METHODS = (
    Method("MALA", "mala"),
    Method("AdaMALA", "ada_mala"),
    Method("HMC", "hmc", {"n_leapfrog": 10, "target_accept": 0.651}),
    Method("mMALA", "mmala"),
    Method("FisherMALA", "fisher_mala"),
    Method("FisherMALA+forgetting", "fisher_mala", {"faithful": False}),
)


def rows_of(target: str) -> list[Method]:
    """The paper's methods. Not mMALA on the digits: 40,000 Hessians of dimension 784 would take a week."""
    return [method for method in METHODS if method.name != "mmala" or "mnist" not in target]


def main() -> None:
    given = options(__doc__, PANELS, METHODS)
    if given.figures:
        from fisher_figures import draw

        draw(given)
        return
    run(given, PANELS, rows_of, tfp_ess, standardise=False)


if __name__ == "__main__":
    main()
