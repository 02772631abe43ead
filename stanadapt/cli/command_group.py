"""The command group: its help, its errors in a line, and its exit status."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import click

from ..errors import ArgumentError, StanAdaptError
from ..version import __version__

_INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
WRITTEN = f"{__name__}.written"  # in the context's notes: the file, once it is there


class _Group(click.Group):
    """Turns our errors into a line on stderr and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        from ..check import printable
        from ..run.background import is_under_way
        from ..run.interrupts import raised_interrupts

        try:
            with raised_interrupts(ending=False):
                return super().invoke(ctx)
        except ArgumentError as error:
            raise click.UsageError(printable(str(error), "\n")) from error
        except StanAdaptError as error:
            raise click.ClickException(printable(str(error), "\n")) from error
        except (KeyboardInterrupt, SystemExit) as error:
            done = f"the result is in {ctx.meta[WRITTEN]}" if WRITTEN in ctx.meta else "nothing was written"
            with contextlib.suppress(OSError):  # the terminal is closed
                click.echo(f"Interrupted: {done}.", err=True)
            code = getattr(error, "code", None)
            code = code if isinstance(code, int) else _INTERRUPTED
            if is_under_way():  # Python would wait for the end of a kernel
                os._exit(code)
            ctx.exit(code)

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
