"""Reading, writing and printing results."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import FindingsWarning, OutputError
from .command_group import WRITTEN

_MOST_ROWS = 30  # of the table after a run; `stanadapt summary` has them all


def read_result(path: str) -> Any:
    """A result in a file, or the draws in the folder of a run."""
    from ..result.files import read
    from ..runs import load

    return load(path) if Path(path).is_dir() else read(path)


def check_output(ctx: click.Context, out: str, force: bool) -> None:
    """Refuse a file that cannot be written, before anything runs."""
    from .. import check

    try:
        check.output(out, overwrite=force)
    except OutputError as error:
        hint = ": use --force to replace it" if "exists already" in str(error) else ""
        raise click.BadParameter(f"{error}{hint}", ctx, param_hint="--out") from error


def draw_and_write(
    ctx: click.Context,
    draw: Callable[[], Any],
    out: str,
    quiet: bool,
    report: Callable[[Any, Sequence[Any]], None] | None = None,
) -> None:
    """Have a result drawn, write it to a file, and report on it, by `report` if it is no posterior."""
    from ..result.container import attributes
    from ..run.interrupts import delayed_interrupts

    # Once there are draws, signals wait until they are in the file.
    with warnings_as_lines(quiet) as findings, delayed_interrupts() as caught:
        idata = draw()
        write_result(idata, out)
        ctx.meta[WRITTEN] = out
    note = attributes(idata).get("interrupted_note", "")
    ended = caught.signal or (signal.SIGINT if note else 0)
    is_hurried = ended and (ended != signal.SIGINT or not note)  # a kill may follow, or the run was over
    if not quiet and not is_hurried:
        (report or _report)(idata, findings)
    if not quiet:
        with contextlib.suppress(OSError):  # the terminal is closed
            click.echo(f"\nWritten to {out}")
    if ended:
        with contextlib.suppress(OSError):  # the terminal is closed
            click.echo(note.capitalize() or "Interrupted after the last draw", err=True)
        ctx.exit(128 + ended)


def approximate_and_write(ctx: click.Context, approximate: Callable[[], Any], out: str, quiet: bool) -> None:
    """Have a maximum or an approximation made, write it to a file, and report on it."""
    with warnings_as_lines(quiet) as findings:
        idata = approximate()
        write_result(idata, out)
        ctx.meta[WRITTEN] = out
    if not quiet:
        _report_approximation(idata, findings)
        click.echo(f"\nWritten to {out}")


def _report_approximation(idata: Any, findings: Sequence[Any]) -> None:
    """What was found, a table of the parameters, and the findings."""
    from ..diagnostics import statistics, table
    from ..diagnostics.approximation import APPROXIMATIONS, describe_approximation
    from ..result.container import datasets

    groups = datasets(idata)
    draws = groups["posterior"]
    attrs = draws.attrs
    evaluated = [f"{attrs[name]} {name}" for name in ("gradients", "densities") if name in attrs]
    click.echo(
        f"{attrs['method']} with {attrs['backend']}: {APPROXIMATIONS[attrs['approximation']]}, seed "
        f"{attrs['seed']}, {' and '.join(evaluated)} in {table.duration(attrs['sampling_time'])}"
    )
    if not findings:
        click.echo(f"{describe_approximation(groups, attrs)}.")
    if "coordinates" in groups["adaptation"].attrs:
        click.echo(f"Coordinates: {groups['adaptation'].attrs['coordinates']}.")
    chosen = statistics.select(idata, list(json.loads(attrs["parameters"])))
    if attrs["approximation"] == "optimum":
        names = statistics.row_names(chosen)
        values = statistics.rows_of(chosen, range(len(names))).ravel()
        rows = [[name, f"{value:.6g}"] for name, value in zip(names, values, strict=True)]
        click.echo(f"\nlog density {attrs['lp']:.6g}\n")
        click.echo(table.align_columns(["parameter", "value"], rows[:_MOST_ROWS]))
    else:
        frame = table.summary(idata, list(map(str, chosen.data_vars)))
        rows = [[name] for name in frame.index]
        click.echo("\n" + table.summary_table(frame[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        click.echo(f"and {len(rows) - _MOST_ROWS} rows more: see the file")
    if findings:
        click.echo("\n" + in_words(findings))


def write_result(idata: Any, out: str) -> None:
    """Write the result; where `out` has become impossible meanwhile, beside other temporary files."""
    from ..result.files import rescue_result, write

    try:
        write(idata, out)
    except Exception as error:
        rescued = rescue_result(idata, Path(out).name)
        raise OutputError(f"{error}. The draws are in {rescued}") from error


@contextlib.contextmanager
def warnings_as_lines(quiet: bool) -> Iterator[list[Any]]:
    """Warnings meanwhile go to stderr as plain lines; findings are collected, for the end of the report."""
    findings: list[Any] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if isinstance(message, FindingsWarning):
            findings.extend(message.findings)
        elif not quiet:
            with contextlib.suppress(OSError):  # the terminal is closed
                click.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield findings


def _warmup(idata: Any) -> str:
    """Iterations of warm-up of the chains, which may have ended it by themselves."""
    from ..result.container import datasets

    groups = datasets(idata)
    if "warmup_iterations" not in groups.get("adaptation", {}):
        return str(groups["posterior"].attrs["tuning_steps"])
    done = groups["adaptation"]["warmup_iterations"].values
    return str(done[0]) if done.min() == done.max() else f"{done.min()} to {done.max()}"


def _report(idata: Any, findings: Sequence[Any]) -> None:
    """What was done, a summary of the parameters, and the findings."""
    from ..diagnostics import table
    from ..result.container import datasets

    draws = datasets(idata)["posterior"]
    attrs, sizes = draws.attrs, draws.sizes
    click.echo(
        f"{attrs['method']} with {attrs['backend']}: {sizes['chain']} chains, {sizes['draw']} draws each "
        f"after {_warmup(idata)} iterations of warm-up, seed {attrs['seed']}, "
        f"in {table.duration(attrs['sampling_time'])}"
    )
    if "auto_reason" in attrs:
        click.echo(f"Chosen because {attrs['auto_reason']}.")
    if "until_reason" in attrs:
        click.echo(f"Drawn until {attrs['until']}: {attrs['until_reason']}.")
    if "log_evidence" in attrs:
        click.echo(f"Log evidence {attrs['log_evidence']:.4g} ± {attrs['log_evidence_error']:.2g}.")
    if math.isfinite(scale := attrs.get("modes_narrowest_seen", math.inf)):
        click.echo(
            f"Modes known: {attrs['modes_found']}. The search would have missed most of those that have a "
            f"tenth of the mass and are narrower than {scale:.2f} times the largest."
        )
    names = list(json.loads(attrs["parameters"])) or [str(name) for name in draws.data_vars]
    if sizes["draw"]:
        frame = table.summary(idata, names)
        click.echo("\n" + table.summary_table(frame[:_MOST_ROWS]))
        if len(frame) > _MOST_ROWS:
            click.echo(f"and {len(frame) - _MOST_ROWS} rows more: see `stanadapt summary`")
    click.echo("\n" + in_words(findings))


def report_prior(idata: Any, findings: Sequence[Any]) -> None:
    """How the prior was found, a summary of the parameters under it, and the findings."""
    from ..diagnostics import table
    from ..result.container import container, datasets

    groups = datasets(idata)
    prior = groups["prior"]
    predicted = groups["prior_predictive"].data_vars if "prior_predictive" in groups else ()
    attrs, sizes = prior.attrs, prior.sizes
    click.echo(
        f"{attrs['method']} with {attrs['backend']}: {sizes['chain']} chains, {sizes['draw']} draws each, "
        f"seed {attrs['seed']}, in {table.duration(attrs['sampling_time'])}"
    )
    click.echo(f"Drawn from {attrs['prior_from']}.")
    if sizes["draw"]:
        names = list(json.loads(attrs["parameters"])) or [str(name) for name in prior.data_vars]
        frame = table.summary(container({"posterior": prior}, attrs), names)
        click.echo("\n" + table.summary_table(frame[:_MOST_ROWS]))
        if len(frame) > _MOST_ROWS:
            click.echo(f"and {len(frame) - _MOST_ROWS} rows more: see the file")
    click.echo(f"\nprior_predictive: {', '.join(map(str, predicted)) or 'nothing'}")
    click.echo(in_words(findings))


def in_words(findings: Sequence[Any]) -> str:
    if not findings:
        return "No findings: R-hat, effective sample sizes and acceptance are as they should be."
    return "\n".join(["Findings:", *(f"- {finding}" for finding in findings)])


def shell_text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
