"""Commands of generated quantities: generate, over the draws of a run, and prior, over those of the prior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..model import BACKENDS
from .command_group import WRITTEN, main
from .completion import complete_method, complete_setting
from .options import (
    CHAINS,
    COUNT,
    DRAWS,
    EXISTING,
    INCLUDE_PATH,
    RESULT,
    SEED,
    WARMUP,
    output_options,
    parse_quantities,
    parse_settings,
)
from .output import check_output, draw_and_write, report_prior, warnings_as_lines, write_result


@main.command()
@click.argument("model", type=EXISTING)
@click.argument("files", type=RESULT, nargs=-1, required=True, metavar="FILE...")
@click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option(
    "--seed",
    **SEED,
    help="Of the quantities' random numbers. [default: a new one, kept in the file]",
)
@click.option(
    "--log-likelihood",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that is the pointwise log likelihood; y=log_lik names it as the data y. May be "
    "repeated.",
)
@click.option(
    "--posterior-predictive",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that is replicated data; likewise.",
)
@click.option(
    "--predictions",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that predicts data that were not fitted; likewise.",
)
@click.option(
    "--log-prior", is_flag=True, help="Add the log density of the prior at each draw, for power-scaling."
)
@click.option("--workers", **COUNT, help="Threads that run at a time. [default: one a core]")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--include-path", "include_paths", **INCLUDE_PATH)
@output_options("the model's name with _generated.nc, in this folder")
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    model: str,
    files: Sequence[str],
    log_likelihood: Sequence[str],
    posterior_predictive: Sequence[str],
    predictions: Sequence[str],
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
    **keywords: Any,
) -> None:
    """Evaluate generated quantities at the draws of a result.

    MODEL may have another block of generated quantities than the program of the run, or other data; FILE must
    have its parameters. FILE is what `stanadapt sample` wrote, the folder of a run, or Stan CSV files, one
    for each chain.

    \b
    Example:
      stanadapt generate eight_schools.stan fit.nc --data eight_schools.json \\
          --posterior-predictive y=y_rep --seed 1 --out replicated.nc
      stanadapt generate eight_schools.stan fit_1.csv fit_2.csv --data eight_schools.json

    Writes a netCDF file that ArviZ reads; `stanadapt export` makes other files of it. Draws at which
    quantities fail have NaN, and their number is told.
    """
    with warnings_as_lines(quiet):
        from ..predictive.generated import generate_quantities

        out = out or f"{Path(model).stem}_generated.nc"
        check_output(ctx, out, force)
        made = generate_quantities(
            model,
            files[0] if len(files) == 1 else list(files),
            log_likelihood=parse_quantities("--log-likelihood", log_likelihood),
            posterior_predictive=parse_quantities("--posterior-predictive", posterior_predictive),
            predictions=parse_quantities("--predictions", predictions),
            progress=not (quiet or no_progress),
            **keywords,
        )
        write_result(made, out)
    ctx.meta[WRITTEN] = out
    if not quiet:
        _report(made, out)


def _report(made: Any, out: str) -> None:
    """Which quantities there are, by group."""
    from ..diagnostics import table
    from ..result.container import attributes, datasets

    groups, attrs = datasets(made), attributes(made)
    sizes = groups["posterior"].sizes
    click.echo(
        f"{attrs['quantities_backend']}: {sizes['chain']} chains, {sizes['draw']} draws each, seed "
        f"{attrs['quantities_seed']}, in {table.duration(attrs['quantities_time'])}"
    )
    for group in ("posterior", "log_likelihood", "posterior_predictive", "predictions", "log_prior"):
        if group in groups:
            click.echo(f"{group}: {', '.join(map(str, groups[group].data_vars)) or 'nothing'}")
    click.echo(f"\nWritten to {out}")


@main.command()
@click.argument("model", type=EXISTING)
@click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option(
    "--predictive",
    multiple=True,
    metavar="[DATA=]NAME",
    help="Generated quantity that is replicated data; y=y_rep names it as the data y. May be repeated.",
)
@click.option(
    "--observed",
    multiple=True,
    metavar="NAME",
    help="Data that the likelihood is of: statements that depend on them are left out. May be repeated. "
    "[default: what the program models]",
)
@click.option(
    "--method", metavar="NAME", default="fisher_hmc", show_default=True, shell_complete=complete_method
)
@click.option("--chains", **CHAINS)
@click.option("--warmup", **WARMUP)
@click.option("--draws", **DRAWS)
@click.option("--seed", **SEED, help="[default: a new one, kept in the file]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_setting,
    help="A setting of the method, as for sampling. May be repeated.",
)
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--include-path", "include_paths", **INCLUDE_PATH)
@output_options("the model's name with _prior.nc, in this folder")
@click.pass_context
def prior(
    ctx: click.Context,
    /,
    model: str,
    predictive: Sequence[str],
    observed: Sequence[str],
    method: str,
    settings: Sequence[str],
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
    **keywords: Any,
) -> None:
    """Draw from the prior of MODEL, with its generated quantities.

    MODEL is a .stan file. Its flag prior_only is set, if it has one among its data; otherwise the statements
    of the likelihood are left out, where it can be told which these are.

    \b
    Example:
      stanadapt prior eight_schools.stan --data eight_schools.json --predictive y=y_rep --seed 1
    """
    with warnings_as_lines(quiet):
        from ..predictive.prior_draws import prior_predictive

    out = out or f"{Path(model).stem}_prior.nc"
    check_output(ctx, out, force)
    named = parse_quantities("--predictive", predictive)
    chosen = parse_settings(method, settings)

    def draw() -> Any:
        return prior_predictive(
            model,
            predictive=named,
            observed=list(observed) or None,
            method=method,
            settings=chosen,
            progress=not (quiet or no_progress),
            **keywords,
        )

    draw_and_write(ctx, draw, out, quiet, report_prior)
