"""Stan's own no-U-turn sampler: the yardstick for the others. It runs in stanli or CmdStan, not in a kernel.

Hoffman and Gelman (2014), The No-U-Turn Sampler, Algorithm 6, in the form that Stan has given it: draws from
a trajectory by multinomial weights, Betancourt (2017), A Conceptual Introduction to Hamiltonian Monte Carlo,
Appendix A; warm-up in windows, Stan Reference Manual, chapter MCMC Sampling.

    paper      here                     shape   meaning
    theta      x                        (d,)    position on the unconstrained scale
    epsilon    step_size                ()      of the leapfrog integrator, learnt by dual averaging
    M^-1       preconditioner_diagonal  (d,)    inverse metric for metric="diag": variances over warm-up
               preconditioner           (d, d)  and for metric="dense": covariances over warm-up
    delta      settings.target_accept   ()      acceptance statistic that epsilon is adapted to
    j_max      settings.max_tree_depth  ()      doublings of a trajectory at most

    and of every iteration
    alpha      acceptance_rate          ()      mean of min(1, exp(H(start) - H)) over the trajectory
    j          tree_depth               ()      doublings of the trajectory
    n_alpha    n_steps                  ()      leapfrog steps, which are gradients; at most 2^j_max - 1
    H          energy                   ()      Hamiltonian of the draw
    Delta_max  diverging                ()      whether H rose by more than 1000: the integrator failed

Departures from the paper:
1. Stan's, as above: multinomial weights for the slice, a test for U-turns that knows the metric and looks
   across subtrees too, a metric that is learnt.
2. Every chain has a seed of its own, so that draws depend on the run's seed alone. A program whose
   `transformed data` draw random numbers is refused, because each chain would have others.
3. Chains start where those of the other methods do, without their climb out of the far tail.
4. Thinning is ours: with thin=k every k-th of the same draws is kept.

Cost of an iteration: n_steps gradients, each with O(d), or O(d²) with the dense metric, and then O(d³) for
the momentum. A chain runs as a whole, in a process of its own: Ctrl-C keeps only those that are finished.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..model.backends.base import Plan
from .base import HAMILTONIAN, TOO_LOW, Facts, WholeChain
from .settings import Choice, Limit

METRICS = Choice(("diag", "dense"))


class Settings(NamedTuple):
    metric: Annotated[str | int, METRICS, "form of the inverse metric that is learnt"] = "diag"
    target_accept: Annotated[
        float, Limit(0.0, 0.9999, True), "acceptance statistic that epsilon is adapted to"
    ] = 0.8
    max_tree_depth: Annotated[int, Limit(1, 30), "doublings of a trajectory at most"] = 10


FACTS = Facts(
    family=HAMILTONIAN,
    needs="gradients",
    learns=("step size", "metric"),
    warmup=1_000,
    draws=1_000,
    gradient=True,
    acceptance=TOO_LOW,
    whole_chains=True,
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
# What Stan calls them, in the order of its columns.
_COLUMNS = ("lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__")


def n_matrices(settings: Any) -> int:
    """The metric, its factor, the estimate over warm-up, the metric made from it, and the one handed over."""
    return 5 if settings.metric == DENSE else 0


def run(program: Any, settings: Any, x: np.ndarray, plan: Plan) -> WholeChain:
    """One chain that starts at `x` (d,). Raises RuntimeError with the program's message."""
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
