"""Commands that read a result: summary, diagnose, replay and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..model import BACKENDS
from .command_group import main
from .options import COUNT, EXISTING, JSON, RADIUS, RESULT, SEED, VAR, parse_inits
from .output import in_words, read_result, warnings_as_lines


@main.command()
@click.argument("file", type=RESULT)
@click.option("--var", "variables", **VAR)
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    default=0.9,
    show_default=True,
    help="Probability of the central interval.",
)
@click.option("--json", "as_json", **JSON)
def summary(file: str, variables: Sequence[str], interval: float, as_json: bool) -> None:
    """Print a table of the draws in FILE, or in a run's folder.

    It has means, standard deviations, intervals, effective sample sizes and R-hat. With --json: interval, and
    quantities with name, mean, sd, lower, upper, mcse_mean, ess_bulk, ess_tail and r_hat.

    \b
    Example:
      stanadapt summary fit.nc --var mu --var tau --interval 0.5
    """
    from ..diagnostics import table
    from .records import print_record, summary_record

    frame = table.summary(read_result(file), list(variables) or None, interval)
    if as_json:
        print_record(summary_record(frame, interval))
    else:
        click.echo(table.summary_table(frame))


@main.command()
@click.argument("file", type=RESULT)
@click.option("--var", "variables", **VAR)
@click.option("--json", "as_json", **JSON)
def diagnose(file: str, variables: Sequence[str], as_json: bool) -> None:
    """Say whether the draws in FILE can be trusted.

    FILE may be the folder of a run, also while that goes on. With --json: findings with kind, message,
    variables (the worst first, 100 at most), chains and numbers.

    \b
    Example:
      stanadapt diagnose fit.nc
    """
    from ..diagnostics.findings import diagnose as find
    from .records import diagnose_record, print_record

    findings = find(read_result(file), list(variables) or None)
    if as_json:
        print_record(diagnose_record(findings))
    else:
        click.echo(in_words(findings))


@main.command()
@click.argument("file", type=RESULT)
@click.argument("model", type=EXISTING, required=False)
@click.option("--data", type=EXISTING, metavar="FILE", help="The data of the run, as JSON.")
@click.option("--seed", **SEED, default=0, show_default=True, help="Of the replay.")
@click.option(
    "--error-rate",
    type=click.FloatRange(0, 0.5, min_open=True),
    metavar="P",
    default=0.001,
    show_default=True,
    help="Probability of a finding where all is well.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    metavar="SHARE",
    default=1.0,
    show_default=True,
    help="Evaluations of the density that it may take, as a share of those of the run's draws.",
)
@click.option(
    "--init",
    metavar="FILE|R",
    help="Where chains started, as it was given to `stanadapt sample`.",
)
@click.option("--init-radius", **RADIUS, show_default=True, help="As for sampling.")
@click.option(
    "--no-kernel",
    is_flag=True,
    help="Leave out the run's own kernel: for a run of another machine, whose warm-up cannot be run again.",
)
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--workers", **COUNT, help="Chains that run at a time. [default: one a core]")
@click.option("--no-progress", is_flag=True, help="No progress bar.")
def replay(
    file: str, model: str | None, init: str | None, no_kernel: bool, no_progress: bool, **keywords: Any
) -> None:
    """Say whether adaptation has broken the law of the draws in FILE.

    The frozen kernel of the run of MODEL takes them up again, and so does one that is known to be right. FILE
    may be the folder of a run, which has its MODEL and data.

    \b
    Example:
      stanadapt replay fit.nc eight_schools.stan --data eight_schools.json
    """
    from ..diagnostics import replay as diagnosis
    from ..result.files import read

    with warnings_as_lines(quiet=False):
        outcome = diagnosis.replay(
            file if Path(file).is_dir() else read(file),
            model,
            inits=None if init is None else parse_inits(init),
            kernel=not no_kernel,
            progress=not no_progress,
            **keywords,
        )
    click.echo(outcome)


@main.command()
@click.argument("file", type=RESULT)
@click.argument("model", type=EXISTING, required=False)
@click.option("--data", type=EXISTING, metavar="FILE", help="The data of the run, as JSON.")
@click.option("--seed", **SEED, default=0, show_default=True, help="Of the proposal's draws.")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--json", "as_json", **JSON)
def evidence(file: str, model: str | None, as_json: bool, **keywords: Any) -> None:
    """Print the log evidence of MODEL, from the draws in FILE.

    The evidence is the marginal likelihood. It comes from bridge sampling, with its standard error and what
    speaks against it. FILE may be the folder of a run, which has its MODEL and data. With --json:
    log_evidence, standard_error, by_half, by_chain, effective_draws, effective_proposals, proposal, density,
    observed, and findings with kind, message and numbers.

    \b
    Example:
      stanadapt evidence fit.nc eight_schools.stan --data eight_schools.json
    """
    from ..evidence.evidence_estimate import log_evidence
    from .records import evidence_record, print_record

    with warnings_as_lines(quiet=True):  # the findings are printed with the rest
        found = log_evidence(file, model, **keywords)
    if as_json:
        print_record(evidence_record(found))
    else:
        click.echo(str(found))
