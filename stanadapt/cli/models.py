"""Commands about models and methods: methods, compile and check."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..method_names import METHODS
from ..model import BACKENDS
from .command_group import main
from .completion import complete_method
from .options import EXISTING, INCLUDE_PATH, JSON, RADIUS, SEED
from .output import shell_text, warnings_as_lines

if TYPE_CHECKING:
    from ..model.posterior import Posterior


@main.command()
@click.argument("name", required=False, shell_complete=complete_method)
@click.option("--json", "as_json", **JSON)
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or the settings of one.

    The settings of the method NAME are what `stanadapt sample --set` changes. With --json: methods with name,
    description, gradient, warmup and draws; or name, description and settings of one, these with name,
    default, allowed and meaning.

    \b
    Example:
      stanadapt methods
      stanadapt methods fisher_mala
    """
    from .. import api, samplers
    from ..diagnostics import table
    from ..run.preparation import auto
    from .records import method_record, methods_record, print_record

    if as_json:
        if name is not None:
            auto.check_method(name)
        print_record(methods_record() if name is None else method_record(name))
        return
    if name is None:
        frame = api.methods()
        rows = [
            [str(method), "yes" if row.gradient else "no", str(row.warmup), str(row.draws), row.description]
            for method, row in frame.iterrows()
        ]
        click.echo(table.align_columns(["method", "gradient", "warmup", "draws", "description"], rows))
        click.echo(f"\n{auto.NAME}: {auto.DESCRIPTION}")
        return
    auto.check_method(name)
    if name == auto.NAME:
        click.echo(f"{auto.NAME}: {auto.DESCRIPTION}\n\n{inspect.getdoc(auto.choose)}")
        return
    click.echo(f"{name}: {samplers.METHODS[name]}\n")
    rows = [
        [setting.name, shell_text(setting.default), setting.range, setting.meaning]
        for setting in samplers.settings_of(samplers.sampler(name)).values()
    ]
    click.echo(table.align_columns(["setting", "default", "allowed", "meaning"], rows))


@main.command("compile")
@click.argument("methods", nargs=-1, metavar="[METHOD]...", shell_complete=complete_method)
@click.option("--all", "every", is_flag=True, help="All methods.")
@click.option("--no-progress", is_flag=True, help="No progress bar.")
def compile_methods(methods: Sequence[str], every: bool, no_progress: bool) -> None:
    """Compile ahead what runs of METHOD need.

    That saves time where images are built, and before the jobs of a cluster begin.

    Without METHOD: fisher_hmc and fisher_mala. The compiled code goes into the cache of the user, and a later
    `stanadapt sample` with the method at its default settings compiles nothing.

    \b
    Example:
      stanadapt compile
      stanadapt compile rlmh arwmh
    """
    if every and methods:
        raise click.UsageError("--all is not allowed with names of methods: leave one of them out")
    from .. import api

    with warnings_as_lines(quiet=False):
        names = list(METHODS) if every else list(methods) or list(api.DEFAULT_METHODS)
        api.compile(names, progress=not no_progress)
        click.echo(f"compiled: {', '.join(names)}")


@main.command("check")
@click.argument("model", type=EXISTING)
@click.option("--data", type=EXISTING, metavar="FILE", help="Data, as JSON.")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--include-path", "include_paths", **INCLUDE_PATH)
@click.option(
    "--pedantic", is_flag=True, help="Also warn of what the pedantic mode of Stan's compiler finds, by stanc."
)
@click.option("--init-radius", **RADIUS, show_default=True, help="As for sampling.")
@click.option("--seed", **SEED, default=0, show_default=True, help="For the start.")
@click.option("--json", "as_json", **JSON)
def check_model(
    model: str,
    data: str | None,
    backend: str,
    include_paths: Sequence[str],
    pedantic: bool,
    init_radius: float,
    seed: int,
    as_json: bool,
) -> None:
    """Open MODEL, and say what it holds and costs.

    Prints the variables with their shapes, whether chains find a start, and the time of a gradient. With
    --json: model, backend, dimension, variables with name, shape and kind, and start, which is null or has
    log_density and seconds_per_gradient.

    \b
    Example:
      stanadapt check eight_schools.stan --data eight_schools.json
    """
    import numpy as np

    from .. import check
    from ..diagnostics import table
    from ..model.posterior import Posterior
    from ..model.speed import seconds_per_gradient
    from ..run.inits import Init, find
    from .records import check_record, print_record

    init_radius = check.number("init_radius", init_radius, 0.0, check.LARGEST_RADIUS)
    with warnings_as_lines(quiet=False):
        opened = Posterior(model, data, backend=backend, include_paths=include_paths, pedantic=pedantic)
    if not as_json:
        _describe(model, opened)
    start = None
    if opened.dim:
        rng = np.random.default_rng(seed)
        x = find(Init(init_radius), opened, opened.model, 0, rng, True, False).x
        start = float(opened.log_density(x)), float(seconds_per_gradient(opened.model.target(), x))
    if as_json:
        print_record(check_record(model, opened, start))
    elif start is not None:
        click.echo(f"\nA finite start was found: log density {start[0]:.6g}")
        click.echo(f"A gradient takes {table.duration(start[1])} there")


def _describe(model: str, opened: Posterior) -> None:
    """The contents of a model, as tables."""
    from ..diagnostics import table
    from .records import kinds

    facts = [["model", model], ["backend", opened.library]]
    facts.append(["dimension", f"{opened.dim} unconstrained parameters"])
    click.echo(table.align_columns(facts[0], facts[1:]))
    rows = [
        [name, " x ".join(map(str, variable.shape)) or "1", kind]
        for kind, group in kinds(opened).items()
        for name, variable in group.items()
    ]
    click.echo("\n" + table.align_columns(["variable", "shape", "kind"], rows))
