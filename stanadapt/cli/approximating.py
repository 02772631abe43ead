"""Commands that find a maximum or approximate a posterior: optimize, laplace and pathfinder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..model import BACKENDS
from .command_group import main
from .options import (
    COUNT,
    EXISTING,
    INCLUDE_PATH,
    RADIUS,
    SEED,
    output_options,
    parse_inits,
    parse_quantities,
)
from .output import approximate_and_write, check_output

_DRAWS: dict[str, Any] = {"type": click.IntRange(min=100), "metavar": "N", "default": 1000}


def _shared_options(command: Any) -> Any:
    """What all commands of this file take."""
    options: list[Callable[[Any], Any]] = [
        click.argument("model", type=EXISTING),
        click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON."),
        click.option("--seed", **SEED, help="[default: a new one, kept in the file]"),
        click.option(
            "--init",
            metavar="FILE|R",
            help="Where climbs start: a JSON file with values of some or all parameters, the .nc file of an "
            "earlier result, or a radius, as --init-radius has it.",
        ),
        click.option(
            "--init-radius", **RADIUS, show_default=True, help="Of random starts, on the unconstrained scale."
        ),
        click.option(
            "--backend",
            type=click.Choice(BACKENDS),
            default="auto",
            show_default=True,
            help="What evaluates the model, as for sampling.",
        ),
        click.option("--include-path", "include_paths", **INCLUDE_PATH),
        click.option(
            "--log-likelihood",
            multiple=True,
            metavar="[DATA=]NAME",
            help="Generated quantity that is the pointwise log likelihood. May be repeated.",
        ),
        click.option(
            "--posterior-predictive",
            multiple=True,
            metavar="[DATA=]NAME",
            help="Generated quantity that is replicated data. May be repeated.",
        ),
        output_options("the model's name with .nc, in this folder"),
        click.pass_context,
    ]
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


@main.command()
@_shared_options
@click.option(
    "--jacobian/--no-jacobian",
    default=False,
    show_default=True,
    help="Climb the density of the unconstrained parameters, or that of the parameters as declared.",
)
@click.option("--starts", **COUNT, default=10, show_default=True, help="Number of climbs.")
@click.option("--max-iterations", **COUNT, default=2000, show_default=True, help="Of each climb.")
def optimize(ctx: click.Context, /, **keywords: Any) -> None:
    """Find the maximum of the density of MODEL.

    By default it is the posterior mode of the parameters as they are declared, or, without priors, the
    maximum likelihood estimate. It says how many climbs have ended where.

    \b
    Example:
      stanadapt optimize eight_schools.stan --data eight_schools.json --jacobian --seed 1 --out mode.nc
      stanadapt sample eight_schools.stan --data eight_schools.json --init mode.nc
    """
    from ..approximations.optimum import optimize as function

    _run(ctx, function, **keywords)


@main.command()
@_shared_options
@click.option("--draws", **_DRAWS, show_default=True, help="Number of draws.")
@click.option(
    "--learn/--no-learn",
    default=True,
    show_default=True,
    help="Try coordinates that are learned, and take them if Pareto k is clearly smaller there.",
)
@click.option("--starts", **COUNT, default=4, show_default=True, help="Number of climbs to the mode.")
def laplace(ctx: click.Context, /, **keywords: Any) -> None:
    """Approximate MODEL by a normal law at its mode.

    Draws of the law come with importance weights, and Pareto k says whether these correct it.

    \b
    Example:
      stanadapt laplace eight_schools.stan --data eight_schools.json --seed 1 --out laplace.nc
      stanadapt sample eight_schools.stan --data eight_schools.json --method fisher_hmc --warm laplace.nc
    """
    from ..approximations.laplace_draws import laplace as function

    _run(ctx, function, **keywords)


@main.command()
@_shared_options
@click.option("--draws", **_DRAWS, show_default=True, help="Draws, resampled from those of all paths.")
@click.option("--paths", **COUNT, default=4, show_default=True, help="Number of climbs.")
@click.option("--draws-per-path", **_DRAWS, show_default=True, help="Draws of each path.")
@click.option(
    "--elbo-draws", **COUNT, default=25, show_default=True, help="Draws that estimate the ELBO at an iterate."
)
@click.option("--max-iterations", **COUNT, default=1000, show_default=True, help="Of each climb.")
def pathfinder(ctx: click.Context, /, **keywords: Any) -> None:
    """Approximate MODEL by Pathfinder.

    Normal laws along several climbs, resampled by Pareto-smoothed importance weights.

    \b
    Example:
      stanadapt pathfinder eight_schools.stan --data eight_schools.json --seed 1 --out paths.nc
      stanadapt sample eight_schools.stan --data eight_schools.json --init paths.nc
    """
    from ..approximations.pathfinder_draws import pathfinder as function

    _run(ctx, function, **keywords)


def _run(
    ctx: click.Context,
    function: Callable[..., Any],
    *,
    model: str,
    data: str | None,
    init: str | None,
    log_likelihood: Sequence[str],
    posterior_predictive: Sequence[str],
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
    **keywords: Any,
) -> None:
    out = out or f"{Path(model).stem}.nc"
    check_output(ctx, out, force)
    named = {
        "inits": None if init is None else parse_inits(init),
        "log_likelihood": parse_quantities("--log-likelihood", log_likelihood),
        "posterior_predictive": parse_quantities("--posterior-predictive", posterior_predictive),
        "progress": not (quiet or no_progress),
    }
    approximate_and_write(ctx, lambda: function(model, data, **named, **keywords), out, quiet)
