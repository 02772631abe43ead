"""Comparisons of methods on the same posterior under the same budget.

The room and the function `stanadapt.compare` have the same name, and the one that is imported last takes it.
So the package imports this file when it starts, and the function imports what it needs when it is called.
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
    """Run several methods in turn on the same posterior under the same budget, and compare them.

    Parameters
    ----------
    model, data
        As `sample` takes them.
    methods
        Names of methods, at their defaults. Or a dict by label, of dicts with any of method (by default the
        label), settings and warmup: {"nuts": {}, "dense": {"method": "nuts", "settings": {"metric":
        "dense"}}}. A method that fails or does not suit this posterior has a row without figures, and
        the notes say why.
    budget
        What every run may spend, with warm-up. A time, such as "10 s" or "2 min", for start, warm-up and
        draws; compiling and opening the model do not count. Or "200000 gradients" for all chains together;
        methods without gradients count evaluations of the density. Each method has its own warm-up, and a run
        whose budget ends in it has no figures. Or a number of draws for each chain after warm-up; the rates
        count the cost of both.
    repeats
        Number of runs of each method; `seed` determines their seeds.
    reference
        Known facts about the posterior: an InferenceData; a dict of means and sds by variable; a DataFrame
        with a column for each scalar, named as Stan has it (theta[1]); PosteriorDB's list of chains; or the
        path of such a file. Without a reference, each method is compared with the other methods that have
        converged.
    var_names
        Variables to compare; by default the parameters. Values that never move or that repeat another value
        do not take part.
    mmd
        Also estimate the maximum mean discrepancy from the draws of the reference or, if it has none, from
        those of the other methods that agree.
    chains, thin, inits, init_radius, workers, backend, coords, dims
        As `sample` takes them.
    seed
        The draws of a method depend only on the seed, its label and the repeat; under a limit of time their
        number also depends on the machine.
    error_rate
        Probability of naming any method as disagreeing if all methods are right.
    progress
        Show which run is going on, and its progress.

    Returns
    -------
    Comparison
        Its `table` has a row for each method: smallest and median effective sample sizes, also per second and
        per 1000 evaluations, the largest R-hat, acceptance, squared jump distance, findings, and the largest
        `|z|` of means and quantiles. `disagreements` lists the statistics in which chance does not explain a
        difference. `print` shows both, `plot` draws them, and `write` makes a page or a file of them. After
        Ctrl-C the comparison has the runs so far.

    Raises
    ------
    ArgumentError
        An argument is not allowed; before anything runs.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    KeyboardInterrupt
        Ctrl-C came before there were any draws.

    Notes ----- A rate is an effective sample size divided by the whole cost of a run. A run under a limit may
    end sooner, if it has as many draws as memory and the statistics allow; a note says so, and its rates are
    for the draws that it has. The chains of nuts cannot stop in between, so a trial, which does not count,
    finds out how many draws fit; their seconds are those that Stan reports, without the start of processes.
    Evaluations in the search for a start do not count.

    Standard errors are estimates themselves, so z has Student's t distribution, whose degrees of freedom
    follow from effective sizes and kurtosis; all comparisons share `error_rate` (Bonferroni). Without a
    reference, the largest group of methods that agree is found first, so that one wrong method does not make
    the others look wrong.

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
