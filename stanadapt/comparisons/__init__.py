"""Methods on the same posterior under the same budget, side by side.

The room and the function `stanadapt.compare` have the same name, and whichever is imported last would take
it. So the package imports this file at its start, and this file imports nothing before it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison_result import Comparison

METHODS = ("fisher_mala", "fisher_hmc", "rlmh", "nuts")


def compare(
    model: Any,
    data: Any = None,
    *,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = METHODS,
    budget: str | int = "10 s",
    repeats: int = 1,
    reference: Any = None,
    var_names: Sequence[str] | None = None,
    mmd: bool = False,
    chains: int = 4,
    thin: int = 1,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    workers: int | None = None,
    backend: str = "auto",
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    error_rate: float = 0.001,
    progress: bool = True,
) -> Comparison:
    """Run several methods on the same posterior, in turn, under the same budget, and hold them side by side.

    Parameters
    ----------
    model, data
        As `sample` takes them.
    methods
        Names of methods, at their defaults. Or a dict by label, of dicts with any of method (by default the
        label), settings and warmup: {"nuts": {}, "dense": {"method": "nuts", "settings": {"metric":
        "dense"}}}. A method that fails, or is not for this posterior, is a row with its reason.
    budget
        What every run may spend, warm-up included: a time, such as "10 s" or "2 min", of start, warm-up and
        draws, without compiling and opening the model; or "200000 gradients" of all chains together, where
        methods without gradients count evaluations of the density. Warm-up is the method's own; a budget that
        ends in it is a reason. Or a number: the draws of each chain after the method's warm-up, with the cost
        of both in the rates.
    repeats
        Runs of each method, with seeds that follow from `seed`.
    reference
        What is known of the posterior: an InferenceData; a dict of means and sds by variable; a DataFrame
        with a column for each scalar, named as Stan has it (theta[1]); PosteriorDB's list of chains; or the
        path of such a file. Without it, methods are held against the others that have converged.
    var_names
        Variables that are compared; by default the parameters. Values that never move, or repeat another one,
        are left out.
    mmd
        Also estimate the maximum mean discrepancy from the reference's draws, or where it has none, from
        those of the other methods that agree.
    chains, thin, inits, init_radius, workers, backend, coords, dims
        As `sample` takes them.
    seed
        The results of a method depend on it, the method's label and the repeat alone; under a limit of time
        their length does not.
    error_rate
        Probability that any method is named as disagreeing where all are right.
    progress
        Show what is run, and its progress.

    Returns
    -------
    Comparison
        Its `table` has a row for each method: smallest and median effective sample sizes, also per second and
        per 1000 evaluations, the largest R-hat, acceptance, squared jump distance, findings, and the largest
        `|z|` of means and quantiles. `disagreements` names methods that differ beyond chance. `print` shows
        both, `plot` draws them, and `write` makes a page or a file of them. Ctrl-C returns what there is.

    Raises
    ------
    ArgumentError
        An argument is not allowed; before anything runs.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    KeyboardInterrupt
        Ctrl-C came before there were any draws.

    Notes
    -----
    Rates are effective sample sizes over all that a run has cost. A method under a limit may end sooner, at
    as many draws as memory and the statistics bear (a note says so): its rates are those of what it has done.
    The chains of nuts cannot be stopped in between; a trial, which does not count, tells how many draws fit,
    and its seconds are those that Stan reports, without the start of its processes. Evaluations in the search
    for a start are not counted.

    Standard errors are estimates themselves, so z is taken for Student's t, with degrees of freedom that
    follow from effective sizes and kurtosis; all comparisons share `error_rate` (Bonferroni). Without a
    reference the largest group of methods that agree is looked for first, so that one which is wrong does not
    make the others look wrong.

    Examples
    --------
    >>> comparison = stanadapt.compare("eight_schools.stan", "eight_schools.json", budget="10 s", seed=1)
    >>> print(comparison)
    """
    from .conclusion import conclude
    from .plan import make_plan
    from .running import run_all

    plan = make_plan(
        model,
        data,
        methods=methods,
        budget=budget,
        repeats=repeats,
        reference=reference,
        var_names=var_names,
        mmd=mmd,
        chains=chains,
        thin=thin,
        seed=seed,
        inits=inits,
        init_radius=init_radius,
        workers=workers,
        backend=backend,
        coords=coords,
        dims=dims,
        error_rate=error_rate,
        progress=progress,
    )
    return conclude(plan, *run_all(plan))
