"""The command export: draws for other tools."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..errors import OutputError
from .command_group import WRITTEN, main
from .options import RESULT, VAR
from .output import read_result, warnings_as_lines


@main.command()
@click.argument("file", type=RESULT)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "parquet", "stancsv"]),
    help="What to write. [default: as the suffix of --out says, .csv or .parquet]",
)
@click.option(
    "--out",
    type=click.Path(),
    metavar="PATH",
    required=True,
    help="The file to write; of stancsv there is one for each chain, fit_1.csv and so on for fit.csv.",
)
@click.option("--var", "variables", **VAR)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def export(
    ctx: click.Context,
    file: str,
    kind: str | None,
    out: str,
    variables: Sequence[str],
    force: bool,
    quiet: bool,
) -> None:
    """Write the draws in FILE for other tools.

    FILE may be the folder of a run. csv and parquet are tables with .chain, .iteration, .draw, lp__, and a
    column for each number, as R's posterior has them. stancsv are files as CmdStan writes them, for
    CmdStanPy, CmdStanR, RStan and shinystan. No digit is lost.

    \b
    Example:
      stanadapt export fit.nc --out fit.parquet
      stanadapt export fit.nc --format stancsv --out fit.csv
    """
    from ..result.formats.export import choose_format
    from ..result.formats.export import export as write

    with warnings_as_lines(quiet):
        kind = choose_format(out, kind)
        try:
            paths = write(
                read_result(file),
                out,
                kind,
                var_names=list(variables) or None,
                overwrite=force,
                progress=not quiet,
            )
        except OutputError as error:
            hint = ": use --force to replace it" if "exists already" in str(error) else ""
            raise click.BadParameter(f"{error}{hint}", ctx, param_hint="--out") from error
    ctx.meta[WRITTEN] = ", ".join(map(str, paths))
    if not quiet:
        click.echo(f"Written to {ctx.meta[WRITTEN]}")
