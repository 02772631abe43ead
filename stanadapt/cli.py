"""The command `stanadapt`: sampling and its results from a shell.

Everything but click is imported inside the commands, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from . import __version__
from .errors import ArgumentError, FindingsWarning, OutputError, StanAdaptError
from .model import BACKENDS

_INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
_WRITTEN = f"{__name__}.written"  # in the context's notes: the file, once it is there
_MOST_ROWS = 30  # of the table after a run; `stanadapt summary` has them all

_EXISTING = click.Path(exists=True, dir_okay=False)
_RESULT = click.Path(exists=True)  # a file, or the folder of a run
_STORE = click.Path(exists=True, file_okay=False)
_COUNT: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
_SEED: dict[str, Any] = {"type": click.IntRange(0, 2**32 - 1), "metavar": "N"}
_RADIUS: dict[str, Any] = {"type": click.FloatRange(min=0), "metavar": "R", "default": 2.0}


def _output_options(default: str) -> Callable[[Any], Any]:
    """The options of commands that write a result."""
    options = [
        click.option("--no-progress", is_flag=True, help="No progress bar."),
        click.option("--quiet", is_flag=True, help="Print errors only."),
        click.option(
            "--out",
            type=click.Path(),
            metavar="FILE",
            help=f"The netCDF file to write. [default: {default}]",
        ),
        click.option("--force", is_flag=True, help="Replace the file if it exists."),
    ]
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


class _Group(click.Group):
    """Turns our errors into a line on stderr and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        from .check import printable
        from .run.interrupts import raised_interrupts

        try:
            with raised_interrupts():
                return super().invoke(ctx)
        except ArgumentError as error:
            raise click.UsageError(printable(str(error), "\n")) from error
        except StanAdaptError as error:
            raise click.ClickException(printable(str(error), "\n")) from error
        except (KeyboardInterrupt, SystemExit) as error:
            done = f"the result is in {ctx.meta[_WRITTEN]}" if _WRITTEN in ctx.meta else "nothing was written"
            with contextlib.suppress(OSError):  # the terminal is closed
                click.echo(f"Interrupted: {done}.", err=True)
            code = getattr(error, "code", None)
            ctx.exit(code if isinstance(code, int) else _INTERRUPTED)

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        """Also for an output that takes no more: a full disk, say. click itself ends at a closed pipe."""
        try:
            return super().main(*arguments, **keywords)
        except OSError as error:
            if error.filename is not None:  # not of an output that is open already
                raise
            click.echo(f"Error: the output cannot be written: {error.strerror or error}", err=True)
            with contextlib.suppress(OSError, ValueError):  # or the rest of it fails once more at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stanadapt")
def main() -> None:
    """Adaptive MCMC for Stan programs, at native speed.

    \b
    Example:
      stanadapt sample eight_schools.stan --data eight_schools.json --seed 1 --out fit.nc
      stanadapt summary fit.nc --var mu --var tau
      stanadapt diagnose fit.nc

    Exit status: 0 when all went well, 1 when a run failed, 2 when an option or its value is not allowed,
    and 128 and the number of the signal that ended it: 130 after Ctrl-C, 143 after SIGTERM.
    """


@main.command()
@click.argument("model", type=_EXISTING)
@click.option("--data", type=_EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option(
    "--method",
    metavar="NAME",
    default="fisher_mala",
    show_default=True,
    help="See `stanadapt methods`; auto takes one of them by what it sees of the posterior.",
)
@click.option("--chains", **_COUNT, default=4, show_default=True, help="Number of chains.")
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    metavar="N",
    help="Iterations of each chain in which the method adapts. [default: the method's]",
)
@click.option("--draws", **_COUNT, help="Iterations of each chain after that. [default: the method's]")
@click.option("--thin", **_COUNT, default=1, show_default=True, help="Keep every so-many-th iteration.")
@click.option(
    "--seed",
    **_SEED,
    help="Draws depend on it and on nothing else. [default: a new one, kept in the file]",
)
@click.option(
    "--init",
    metavar="FILE|R",
    help="Where chains start: a JSON file with values of some or all parameters, the .nc file of an earlier "
    "run (its last draws), or a radius, as --init-radius has it.",
)
@click.option(
    "--init-radius",
    **_RADIUS,
    show_default=True,
    help="Chains start uniformly on (-radius, radius), unconstrained, in what --init leaves open.",
)
@click.option(
    "--warm",
    type=_RESULT,
    metavar="FILE",
    help="The .nc file, or the folder, of an earlier run for the same parameters: begin with what its chains "
    "have learnt, at some of its draws, with a short warm-up.",
)
@click.option("--workers", **_COUNT, help="Chains that run at a time. [default: one a core]")
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
    help="A setting of the method, such as damping=1; see `stanadapt methods NAME`. May be repeated.",
)
@click.option("--save-warmup", is_flag=True, help="Keep the iterations of warm-up too.")
@click.option(
    "--log-likelihood",
    multiple=True,
    metavar="NAME",
    help="Generated quantity that is the pointwise log likelihood. May be repeated.",
)
@click.option(
    "--posterior-predictive",
    multiple=True,
    metavar="NAME",
    help="Generated quantity that is replicated data. May be repeated.",
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
@_output_options("the model's name with .nc, in this folder")
@click.pass_context
def sample(
    ctx: click.Context,
    /,
    model: str,
    data: str | None,
    method: str,
    settings: Sequence[str],
    backend: str,
    init: str | None,
    no_progress: bool,
    quiet: bool,
    out: str | None,
    force: bool,
    **keywords: Any,
) -> None:
    """Draw from the posterior of MODEL.

    MODEL is a .stan file, or a library that BridgeStan compiled.

    \b
    Example:
      stanadapt sample eight_schools.stan --data eight_schools.json \\
          --method fisher_mala --set damping=1 --chains 4 --seed 1 --out fit.nc

    Writes a netCDF file that ArviZ reads, and prints a summary of the parameters and what there is to say
    against the result. Ctrl-C ends the run early: the draws so far are written, and the exit status is 130.
    SIGTERM and SIGHUP do the same, with 143 and 129.
    """
    with _warnings_as_lines(quiet):  # of the cache, at the first import
        from . import api
        from .run.engine import open_posterior

    out = out or f"{Path(model).stem}.nc"
    _check_output(ctx, out, force)
    chosen = _settings(method, settings)
    starts = None if init is None else _inits(init)

    def draw() -> Any:
        opened = open_posterior(method, model, data, backend)
        return api.sample(
            opened,
            method=method,
            settings=chosen,
            inits=starts,
            progress=not (quiet or no_progress),
            **keywords,
        )

    _draw_and_write(ctx, draw, out, quiet)


@main.command()
@click.argument("store", type=_STORE)
@click.option("--workers", **_COUNT, help="Chains that run at a time. [default: one a core]")
@_output_options("the folder's name with .nc, in this folder")
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
    from . import runs

    out = out or f"{Path(store).resolve().name}.nc"
    _check_output(ctx, out, force)
    progress = not (quiet or no_progress)
    _draw_and_write(ctx, lambda: runs.resume(store, workers=workers, progress=progress), out, quiet)


@main.command()
@click.argument("store", type=_STORE)
@click.option("--draws", **_COUNT, required=True, help="Iterations to add to each chain.")
@click.option("--workers", **_COUNT, help="Chains that run at a time. [default: one a core]")
@_output_options("the folder's name with .nc, in this folder")
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

    They are those of a run that was asked for more from the start.

    \b
    Example:
      stanadapt extend fits/model --draws 1000 --out fit.nc --force
    """
    from . import runs

    out = out or f"{Path(store).resolve().name}.nc"
    _check_output(ctx, out, force)
    progress = not (quiet or no_progress)
    _draw_and_write(ctx, lambda: runs.extend(store, draws, workers=workers, progress=progress), out, quiet)


def _check_output(ctx: click.Context, out: str, force: bool) -> None:
    """Refuse a file that cannot be written, before anything runs."""
    from . import check

    try:
        check.output(out, overwrite=force)
    except OutputError as error:
        hint = ": use --force to replace it" if "exists already" in str(error) else ""
        raise click.BadParameter(f"{error}{hint}", ctx, param_hint="--out") from error


def _draw_and_write(ctx: click.Context, draw: Callable[[], Any], out: str, quiet: bool) -> None:
    """Have a result drawn, write it to a file, and report on it."""
    from .result.container import attributes
    from .run.interrupts import delayed_interrupts

    # Once there are draws, signals wait until they are in the file.
    with _warnings_as_lines(quiet) as findings, delayed_interrupts() as caught:
        idata = draw()
        _write(idata, out)
        ctx.meta[_WRITTEN] = out
    note = attributes(idata).get("interrupted_note", "")
    ended = caught.signal or (signal.SIGINT if note else 0)
    is_hurried = ended and (ended != signal.SIGINT or not note)  # a kill may follow, or the run was over
    if not quiet and not is_hurried:
        _report(idata, findings)
    if not quiet:
        with contextlib.suppress(OSError):  # the terminal is closed
            click.echo(f"\nWritten to {out}")
    if ended:
        with contextlib.suppress(OSError):  # the terminal is closed
            click.echo(note.capitalize() or "Interrupted after the last draw", err=True)
        ctx.exit(128 + ended)


def _write(idata: Any, out: str) -> None:
    """Write the result; where `out` has become impossible meanwhile, beside other temporary files."""
    from .result.files import rescue_result, write

    try:
        write(idata, out)
    except Exception as error:
        rescued = rescue_result(idata, Path(out).name)
        raise OutputError(f"{error}. The draws are in {rescued}") from error


@main.command()
@click.argument("file", type=_RESULT)
@click.option(
    "--var", "variables", multiple=True, metavar="NAME", help="Only this variable. May be repeated."
)
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    default=0.9,
    show_default=True,
    help="Probability of the central interval.",
)
def summary(file: str, variables: Sequence[str], interval: float) -> None:
    """Print a table of the draws in FILE, or in a run's folder.

    It has means, standard deviations, intervals, effective sample sizes and R-hat.

    \b
    Example:
      stanadapt summary fit.nc --var mu --var tau --interval 0.5
    """
    from .diagnostics import table

    frame = table.summary(_read(file), list(variables) or None, interval)
    click.echo(table.summary_table(frame))


@main.command()
@click.argument("file", type=_RESULT)
@click.option(
    "--var", "variables", multiple=True, metavar="NAME", help="Only this variable. May be repeated."
)
def diagnose(file: str, variables: Sequence[str]) -> None:
    """Say whether the draws in FILE can be trusted.

    FILE may be the folder of a run, also while that goes on.

    \b
    Example:
      stanadapt diagnose fit.nc
    """
    from .diagnostics.findings import diagnose as find

    click.echo(_worded(find(_read(file), list(variables) or None)))


@main.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the methods, or the settings of one.

    The settings of the method NAME are what `stanadapt sample --set` changes.

    \b
    Example:
      stanadapt methods
      stanadapt methods fisher_mala
    """
    from . import api, samplers
    from .diagnostics import table
    from .run import auto

    if name is None:
        frame = api.methods()
        rows = [
            [str(method), "yes" if row.gradient else "no", str(row.warmup), str(row.draws), row.description]
            for method, row in frame.iterrows()
        ]
        click.echo(table.aligned(["method", "gradient", "warmup", "draws", "description"], rows))
        click.echo(f"\n{auto.NAME}: {auto.DESCRIPTION}")
        return
    auto.check_method(name)
    if name == auto.NAME:
        click.echo(f"{auto.NAME}: {auto.DESCRIPTION}\n\n{inspect.getdoc(auto.choose)}")
        return
    click.echo(f"{name}: {samplers.METHODS[name]}\n")
    rows = [
        [setting.name, _shown(setting.default), setting.range, setting.meaning]
        for setting in samplers.declared(samplers.sampler(name)).values()
    ]
    click.echo(table.aligned(["setting", "default", "allowed", "meaning"], rows))


@main.command("check")
@click.argument("model", type=_EXISTING)
@click.option("--data", type=_EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--init-radius", **_RADIUS, show_default=True, help="As for sampling.")
@click.option("--seed", **_SEED, default=0, show_default=True, help="For the start.")
def check_model(model: str, data: str | None, backend: str, init_radius: float, seed: int) -> None:
    """Open MODEL, and say what it holds and costs.

    Prints the variables with their shapes, whether chains find a start, and the time of a gradient.

    \b
    Example:
      stanadapt check eight_schools.stan --data eight_schools.json
    """
    import numpy as np

    from . import check
    from .diagnostics import table
    from .model.posterior import Posterior
    from .model.speed import seconds_per_gradient
    from .run.inits import Init, find

    init_radius = check.number("init_radius", init_radius, 0.0, check.LARGEST_RADIUS)
    with _warnings_as_lines(quiet=False):
        opened = Posterior(model, data, backend=backend)
    facts = [["model", model], ["backend", opened.library]]
    facts.append(["dimension", f"{opened.dim} unconstrained parameters"])
    click.echo(table.aligned(facts[0], facts[1:]))
    groups = {
        "parameter": opened.parameters,
        "transformed parameter": opened.transformed_parameters,
        "generated quantity": opened.generated_quantities,
    }
    rows = [
        [name, " x ".join(map(str, variable.shape)) or "1", kind]
        for kind, group in groups.items()
        for name, variable in group.items()
    ]
    click.echo("\n" + table.aligned(["variable", "shape", "kind"], rows))
    if not opened.dim:
        return
    rng = np.random.default_rng(seed)
    x = find(Init(init_radius), opened, opened.model, 0, rng, True, False).x
    click.echo(f"\nA finite start was found: log density {opened.log_density(x):.6g}")
    click.echo(f"A gradient takes {_duration(seconds_per_gradient(opened.model.target(), x))} there")


def _read(path: str) -> Any:
    """A result in a file, or what the folder of a run has."""
    from .result.files import read
    from .runs import load

    return load(path) if Path(path).is_dir() else read(path)


def _settings(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE texts as the values that the method's settings take; what does not parse stays a text.

    Such a text, and a name that is unknown, are refused where settings are checked, in the words used there.
    """
    from . import samplers
    from .run import auto

    auto.check_method(method, dict.fromkeys(pairs))
    if method == auto.NAME:
        return {}
    module = samplers.sampler(method)
    declared = samplers.declared(module)
    values: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        name, text = name.strip(), text.strip()
        if not sign or not name:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--set")
        if name in values:
            raise click.BadParameter(f"{name} is set twice", param_hint="--set")
        values[name] = samplers.parse(declared[name], text) if name in declared else text
    samplers.resolve(module, values)
    return values


def _inits(text: str) -> Any:
    """A radius, the result of an earlier run, or the path of a JSON file."""
    from .result.files import read

    with contextlib.suppress(ValueError):
        return float(text)
    if Path(text).suffix in (".nc", ".npz"):
        return read(text)
    if not Path(text).is_file():
        raise click.BadParameter(f"{text!r} is neither a number nor a file", param_hint="--init")
    return text


@contextlib.contextmanager
def _warnings_as_lines(quiet: bool) -> Iterator[list[Any]]:
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
    from .result.container import datasets

    groups = datasets(idata)
    if "warmup_iterations" not in groups.get("adaptation", {}):
        return str(groups["posterior"].attrs["tuning_steps"])
    done = groups["adaptation"]["warmup_iterations"].values
    return str(done[0]) if done.min() == done.max() else f"{done.min()} to {done.max()}"


def _report(idata: Any, findings: Sequence[Any]) -> None:
    """What was done, a summary of the parameters, and the findings."""
    from .diagnostics import table
    from .result.container import datasets

    draws = datasets(idata)["posterior"]
    attrs, sizes = draws.attrs, draws.sizes
    click.echo(
        f"{attrs['method']} with {attrs['backend']}: {sizes['chain']} chains, {sizes['draw']} draws each "
        f"after {_warmup(idata)} iterations of warm-up, seed {attrs['seed']}, "
        f"in {_duration(attrs['sampling_time'])}"
    )
    if "auto_reason" in attrs:
        click.echo(f"Chosen because {attrs['auto_reason']}.")
    if "until_reason" in attrs:
        click.echo(f"Drawn until {attrs['until']}: {attrs['until_reason']}.")
    names = list(json.loads(attrs["parameters"])) or [str(name) for name in draws.data_vars]
    if sizes["draw"]:
        frame = table.summary(idata, names)
        click.echo("\n" + table.summary_table(frame[:_MOST_ROWS]))
        if len(frame) > _MOST_ROWS:
            click.echo(f"and {len(frame) - _MOST_ROWS} rows more: see `stanadapt summary`")
    click.echo("\n" + _worded(findings))


def _worded(findings: Sequence[Any]) -> str:
    if not findings:
        return "No findings: R-hat, effective sample sizes and acceptance are as they should be."
    return "\n".join(["Findings:", *(f"- {finding}" for finding in findings)])


def _shown(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


@main.command()
@click.argument("file", type=_RESULT)
@click.argument("model", type=_EXISTING, required=False)
@click.option("--data", type=_EXISTING, metavar="FILE", help="The data of the run, as JSON.")
@click.option("--seed", **_SEED, default=0, show_default=True, help="Of the replay.")
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
@click.option("--init-radius", **_RADIUS, show_default=True, help="As for sampling.")
@click.option(
    "--no-kernel",
    is_flag=True,
    help="Leave out the run's own kernel: for a run of another machine, whose warm-up cannot be run again.",
)
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--workers", **_COUNT, help="Chains that run at a time. [default: one a core]")
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
    from .diagnostics import replay as diagnosis
    from .result.files import read

    with _warnings_as_lines(quiet=False):
        outcome = diagnosis.replay(
            file if Path(file).is_dir() else read(file),
            model,
            inits=None if init is None else _inits(init),
            kernel=not no_kernel,
            progress=not no_progress,
            **keywords,
        )
    click.echo(outcome)
