"""Commands that draw: sample, resume and extend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..model import BACKENDS
from .command_group import main
from .completion import complete_method, complete_setting
from .options import (
    CHAINS,
    COUNT,
    DRAWS,
    EXISTING,
    INCLUDE_PATH,
    RADIUS,
    RESULT,
    SEED,
    STORE,
    WARMUP,
    output_options,
    parse_inits,
    parse_quantities,
    parse_settings,
)
from .output import check_output, draw_and_write, warnings_as_lines


@main.command()
@click.argument("model", type=EXISTING)
@click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option(
    "--method",
    metavar="NAME",
    default="fisher_mala",
    show_default=True,
    shell_complete=complete_method,
    help="See `stanadapt methods`; auto takes one of them by what it sees of the posterior.",
)
@click.option("--chains", **CHAINS)
@click.option("--warmup", **WARMUP)
@click.option("--draws", **DRAWS)
@click.option("--thin", **COUNT, default=1, show_default=True, help="Keep every so-many-th iteration.")
@click.option(
    "--seed",
    **SEED,
    help="Draws depend on it and on nothing else. [default: a new one, kept in the file]",
)
@click.option(
    "--init",
    metavar="FILE|R",
    help="Where chains start: a JSON file with values of some or all parameters, the .nc file of an earlier "
    "run (its last draws) or of `stanadapt pathfinder`, or a radius, as --init-radius has it.",
)
@click.option(
    "--init-radius",
    **RADIUS,
    show_default=True,
    help="Chains start uniformly on (-radius, radius), unconstrained, in what --init leaves open.",
)
@click.option(
    "--warm",
    type=RESULT,
    metavar="FILE",
    help="The .nc file, or the folder, of an earlier run for the same parameters: begin with what its chains "
    "have learnt, at some of its draws, with a short warm-up.",
)
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="auto",
    show_default=True,
    help="What evaluates the model: stanli needs no C++ compiler; auto takes BridgeStan where stanli cannot.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_setting,
    help="A setting of the method, such as damping=1; see `stanadapt methods NAME`. May be repeated.",
)
@click.option("--include-path", "include_paths", **INCLUDE_PATH)
@click.option("--save-warmup", is_flag=True, help="Keep the iterations of warm-up too.")
@click.option(
    "--log-likelihood",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that is the pointwise log likelihood; y=log_lik names it as the data y, "
    'and so does {"y": "log_lik"}. May be repeated.',
)
@click.option(
    "--posterior-predictive",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that is replicated data; likewise.",
)
@click.option(
    "--log-prior", is_flag=True, help="Add the log density of the prior at each draw, for power-scaling."
)
@click.option("--keep-unconstrained", is_flag=True, help="Keep the unconstrained draws too.")
@click.option(
    "--until",
    metavar="GOALS",
    help="Draw until goals hold or a limit is reached, such as 'ess 400, rhat 1.01, 10 min'; --draws is the "
    "most there may be then.",
)
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    help="A new folder in which the run lives: `stanadapt resume DIR` goes on with it after a crash.",
)
@output_options("the model's name with .nc, in this folder")
@click.pass_context
def sample(
    ctx: click.Context,
    /,
    model: str,
    data: str | None,
    method: str,
    settings: Sequence[str],
    backend: str,
    include_paths: Sequence[str],
    init: str | None,
    log_likelihood: Sequence[str],
    posterior_predictive: Sequence[str],
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
    **keywords: Any,
) -> None:
    """Draw from the posterior of MODEL.

    MODEL is a .stan file, or a library that BridgeStan compiled.

    Take `fisher_hmc` if the model has gradients, `rlmh` if it has none and at most 20 dimensions, and `arwmh`
    if it has more or is noisy; `fisher_mala`, a published method, runs if you name none.

    \b
    Example:
      stanadapt sample eight_schools.stan --data eight_schools.json \\
          --method fisher_mala --set damping=1 --chains 4 --seed 1 --out fit.nc

    Writes a netCDF file that ArviZ reads, and prints a summary of the parameters and what there is to say
    against the result. Ctrl-C ends the run early: the draws so far are written, and the exit status is 130.
    SIGTERM and SIGHUP do the same, with 143 and 129.
    """
    with warnings_as_lines(quiet):  # of the cache, at the first import
        from .. import api
        from ..run.preparation.prepare import open_posterior

    out = out or f"{Path(model).stem}.nc"
    check_output(ctx, out, force)
    chosen = parse_settings(method, settings)
    starts = None if init is None else parse_inits(init)
    likelihoods = parse_quantities("--log-likelihood", log_likelihood)
    predictions = parse_quantities("--posterior-predictive", posterior_predictive)

    def draw() -> Any:
        opened = open_posterior(method, model, data, backend, include_paths)
        return api.sample(
            opened,
            method=method,
            settings=chosen,
            inits=starts,
            progress=not (quiet or no_progress),
            log_likelihood=likelihoods,
            posterior_predictive=predictions,
            **keywords,
        )

    draw_and_write(ctx, draw, out, quiet)


@main.command()
@click.argument("store", type=STORE)
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@output_options("the folder's name with .nc, in this folder")
@click.pass_context
def resume(
    ctx: click.Context,
    store: str,
    workers: int | None,
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
) -> None:
    """Go on with the run in the folder STORE, wherever it was stopped.

    The draws are those that the run would have had without the stop.

    \b
    Example:
      stanadapt sample model.stan --data data.json --seed 1 --store fits/model
      stanadapt resume fits/model --out fit.nc
    """
    from .. import runs

    progress = not (quiet or no_progress)
    _write_run(ctx, lambda: runs.resume(store, workers=workers, progress=progress), store, out, quiet, force)


@main.command()
@click.argument("store", type=STORE)
@click.option("--draws", **COUNT, required=True, help="Iterations to add to each chain.")
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@output_options("the folder's name with .nc, in this folder")
@click.pass_context
def extend(
    ctx: click.Context,
    store: str,
    draws: int,
    workers: int | None,
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
) -> None:
    """Add draws to the run in the folder STORE.

    The draws equal the draws of a run that was asked for more from the start.

    \b
    Example:
      stanadapt extend fits/model --draws 1000 --out fit.nc --force
    """
    from .. import runs

    progress = not (quiet or no_progress)
    _write_run(
        ctx, lambda: runs.extend(store, draws, workers=workers, progress=progress), store, out, quiet, force
    )


def _write_run(
    ctx: click.Context, draw: Callable[[], Any], store: str, out: str | None, quiet: bool, force: bool
) -> None:
    """Write what `draw` gives of the run in a store; by default to a file with the name of the store."""
    out = out or f"{Path(store).resolve().name}.nc"
    check_output(ctx, out, force)
    draw_and_write(ctx, draw, out, quiet)
