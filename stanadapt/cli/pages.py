"""Commands whose results are pages: report and watch."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import click

from .command_group import WRITTEN, main
from .options import RESULT, STORE
from .output import check_output, read_result, warnings_as_lines


@main.command()
@click.argument("file", type=RESULT)
@click.option(
    "--out",
    type=click.Path(),
    metavar="FILE",
    help="The page to write. [default: the name of FILE with .html, in this folder]",
)
@click.option(
    "--title",
    metavar="TEXT",
    help="What the page is called. [default: the model's name, or else that of FILE]",
)
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
@click.pass_context
def report(ctx: click.Context, file: str, out: str | None, title: str | None, force: bool) -> None:
    """Write a page on the draws in FILE: whether to trust them.

    It is one HTML file that loads nothing from anywhere, for a browser, a phone or a printer.

    \b
    Example:
      stanadapt report fit.nc --out fit.html
    """
    from ..reports.document import make

    out = out or f"{Path(file).resolve().stem}.html"
    check_output(ctx, out, force)
    with warnings_as_lines(quiet=False):
        made = make(read_result(file), title, file=Path(file).resolve().name, progress=True)
    made.save(out)
    ctx.meta[WRITTEN] = out
    click.echo(f"{made.verdict}\n\nWritten to {out}")


@main.command()
@click.argument("store", type=STORE)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The port on 127.0.0.1. [default: a free one]",
)
@click.option(
    "--open/--no-browser",
    "opens",
    default=None,
    help="Open the page in a browser. [default: where there is a screen]",
)
@click.option("--out", type=click.Path(), metavar="FILE", help="Write the last page to a file, too.")
@click.option("--force", is_flag=True, help="Replace that file if it exists.")
@click.pass_context
def watch(
    ctx: click.Context, store: str, port: int, opens: bool | None, out: str | None, force: bool
) -> None:
    """Show the run in the folder STORE in a browser while it goes on.

    The page has the progress, R-hat, effective sample sizes and pictures of what the last checkpoints have,
    and ends with the run. Only this machine sees it.

    \b
    Example:
      stanadapt sample model.stan --data data.json --store fits/model &
      stanadapt watch fits/model
    """
    from ..reports.document import make
    from ..reports.watch import RUNNING, Server, Watch

    if out is not None:
        check_output(ctx, out, force)
    with warnings_as_lines(quiet=False):
        run = Watch(store)
        with Server(run, port) as server:
            click.echo(f"Watching {store} at {server.address}\nCtrl-C stops watching; the run goes on.")
            if _has_screen() if opens is None else opens:
                import webbrowser

                webbrowser.open(server.address)
            try:
                for page in run.pages(threading.Event()):
                    server.show(page)
                    if page.look.state != RUNNING:
                        click.echo(page.look.words)
                        click.echo(page.content["verdict"].sentence)
                if out is not None:
                    make(run.result(), Path(store).resolve().name).save(out)
                    ctx.meta[WRITTEN] = out
                    click.echo(f"Written to {out}")
                server.wait_for_browsers()
            except KeyboardInterrupt:
                click.echo("Not watching any more.", err=True)


def _has_screen() -> bool:
    """Whether a browser can open on the user's screen."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
