"""The command that compares methods."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import click

from ..comparisons import METHODS
from ..model import BACKENDS
from .command_group import WRITTEN, main
from .options import COUNT, EXISTING, RADIUS, SEED, parse_inits
from .output import check_output, warnings_as_lines


@main.command()
@click.argument("model", type=EXISTING)
@click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option(
    "--methods",
    metavar="NAME,NAME",
    default=",".join(METHODS),
    show_default=True,
    help="Methods with commas between, see `stanadapt methods`.",
)
@click.option(
    "--budget",
    metavar="BUDGET",
    default="10s",
    show_default=True,
    help="What every run may spend, warm-up included: a time (10s, 2min, 1h), or '200000 gradients' of all "
    "chains together; or a number, the draws of each chain after the method's warm-up.",
)
@click.option("--repeats", **COUNT, default=1, show_default=True, help="Runs of each method.")
@click.option(
    "--reference",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="What is known of the posterior: a result (.nc), moments or PosteriorDB's draws (.json, .zip), or a "
    "table of draws (.csv). [default: methods are held against each other]",
)
@click.option(
    "--var", "var_names", multiple=True, metavar="NAME", help="Only this variable. May be repeated."
)
@click.option("--mmd", is_flag=True, help="Also estimate the maximum mean discrepancy.")
@click.option("--chains", **COUNT, default=4, show_default=True, help="Number of chains.")
@click.option("--thin", **COUNT, default=1, show_default=True, help="Keep every so-many-th iteration.")
@click.option("--seed", **SEED, help="Seeds of all runs follow from it. [default: a new one, printed]")
@click.option("--init", metavar="FILE|R", help="Where chains start, as for sampling.")
@click.option("--init-radius", **RADIUS, show_default=True, help="As for sampling.")
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option(
    "--out",
    type=click.Path(),
    metavar="FILE",
    help="A page (.html), the table (.csv) or all figures (.json) to write, too.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--no-progress", is_flag=True, help="No progress.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    model: str,
    data: str | None,
    methods: str,
    budget: str,
    var_names: Sequence[str],
    init: str | None,
    out: str | None,
    force: bool,
    no_progress: bool,
    quiet: bool,
    **keywords: Any,
) -> None:
    """Compare methods on MODEL, each under the same budget.

    Prints a table of effective sample sizes, also per second and per 1000 evaluations, and which methods
    disagree beyond chance. A method that fails is a row with its reason. Ctrl-C keeps what is there.

    \b
    Example:
      stanadapt compare eight_schools.stan --data eight_schools.json \\
          --methods fisher_mala,fisher_hmc,nuts --budget 10s --seed 1 --out compare.html
    """
    with warnings_as_lines(quiet):  # of the cache, at the first import
        from .. import compare as compare_methods
        from ..comparisons.comparison_result import check_suffix

    if out is not None:
        check_suffix(out)
        check_output(ctx, out, force)
    with warnings_as_lines(quiet):
        comparison = compare_methods(
            model,
            data,
            methods=[name.strip() for name in methods.split(",")],
            budget=budget,
            var_names=list(var_names) or None,
            inits=None if init is None else parse_inits(init),
            progress=not (quiet or no_progress),
            **keywords,
        )
        if not quiet:
            click.echo(str(comparison))
        if out is not None:
            comparison.write(out)
            ctx.meta[WRITTEN] = out
    if out is not None and not quiet:
        with contextlib.suppress(OSError):  # the terminal is closed
            click.echo(f"\nWritten to {out}")
    if comparison.signal:
        ctx.exit(128 + comparison.signal)
