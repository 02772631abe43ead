"""Stan's own no-U-turn sampler, for comparison with the other methods. It runs in stanli or CmdStan.

Hoffman and Gelman (2014), The No-U-Turn Sampler, Algorithm 6, in the form that Stan has given it: draws from
a trajectory by multinomial weights, Betancourt (2017), A Conceptual Introduction to Hamiltonian Monte Carlo,
Appendix A; warm-up in windows, Stan Reference Manual, chapter MCMC Sampling.

    paper      here                     shape   meaning
    theta      x                        (d,)    position on the unconstrained scale
    epsilon    step_size                ()      step size of leapfrog, learned by dual averaging
    M^-1       preconditioner_diagonal  (d,)    inverse metric for metric="diag": variances over warm-up
               preconditioner           (d, d)  and for metric="dense": covariances over warm-up
    delta      settings.target_accept   ()      acceptance statistic that epsilon is adapted to
    j_max      settings.max_tree_depth  ()      largest number of doublings of a trajectory

    and of every iteration
    alpha      acceptance_rate          ()      mean of min(1, exp(H(start) - H)) over the trajectory
    j          tree_depth               ()      number of doublings of the trajectory
    n_alpha    n_steps                  ()      leapfrog steps, one gradient each; at most 2^j_max - 1
    H          energy                   ()      Hamiltonian of the draw
    Delta_max  diverging                ()      whether H rose by more than 1000: the integrator failed

Departures from the paper:
1. Stan has these: multinomial weights instead of a slice; a test for U-turns that uses the metric and looks
   across subtrees too; a metric that warm-up learns.
2. Every chain has its own seed, so that draws depend on the run's seed alone. A program with random numbers
   in `transformed data` is refused, because these would differ between chains.
3. Chains start at the same points as with the other methods, but do not climb out of the far tail.
4. Thinning is ours: thin=k keeps every k-th of the same draws.

Cost of an iteration: n_steps gradients with O(d) each. With the dense metric it is O(d²) each, and O(d³) for
the momentum. A chain runs as a whole in its own process, so that Ctrl-C keeps only the finished chains.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..model.backends.contract import ChainPlan
from .base import HAMILTONIAN, TOO_LOW, Facts, WholeChain
from .settings import Choice, Limit

METRICS = Choice(("diag", "dense"))


class Settings(NamedTuple):
    metric: Annotated[str | int, METRICS, "form of the learned inverse metric"] = "diag"
    target_accept: Annotated[float, Limit(0.0, 0.9999, True), "acceptance statistic that epsilon aims at"] = (
        0.8
    )
    max_tree_depth: Annotated[int, Limit(1, 30), "largest number of doublings of a trajectory"] = 10


FACTS = Facts(
    module=__name__,
    family=HAMILTONIAN,
    needs="gradients",
    learns=("step size", "metric"),
    warmup=1_000,
    draws=1_000,
    gradient=True,
    acceptance=TOO_LOW,
    leapfrogs=1.0,
)

DENSE = METRICS.names.index("dense")

STATS: dict[str, type[np.generic]] = {
    "lp": np.float64,
    "acceptance_rate": np.float64,
    "step_size": np.float64,
    "tree_depth": np.int32,
    "n_steps": np.int32,
    "diverging": np.bool_,
    "energy": np.float64,
}
# Stan's names for these columns, in the same order.
_COLUMNS = ("lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__")


def n_matrices(settings: Any) -> int:
    """The metric, its factor, the running estimate, the new metric from it, and the one in the result."""
    return 5 if settings.metric == DENSE else 0


def run(program: Any, settings: Any, x: np.ndarray, plan: ChainPlan) -> WholeChain:
    """Run one chain from `x` (d,). Raises RuntimeError with the program's message."""
    drawn = program.nuts(
        x,
        plan,
        metric=METRICS.names[settings.metric],
        target_accept=settings.target_accept,
        max_tree_depth=settings.max_tree_depth,
    )
    kind = "preconditioner" if settings.metric == DENSE else "preconditioner_diagonal"
    stats = {
        name: drawn.stats[column].astype(STATS[name]) for name, column in zip(STATS, _COLUMNS, strict=True)
    }
    learnt = {"step_size": np.array(drawn.step_size), kind: drawn.inverse_metric}
    return WholeChain(drawn.names, drawn.values, stats, learnt, drawn.seconds)
