"""Writes reference/command.md: every command of `stanadapt`, from what click knows of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

from method_pages import write_page
from stanadapt.cli import main

INTRODUCTION = """\
(the-command)=

# The command

What `stanadapt --help` says of each command. [](../guide/shell.md) shows them at work.
"""


def walk_commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """All commands below a group by their full names, the group first."""
    yield context.command_path, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from walk_commands(below, click.Context(below, info_name=name, parent=context))


def describe(command: click.Command) -> str:
    """The help text in Markdown: what click is not to rewrap becomes a block of code."""
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines = paragraph.split("\n")
        if lines[0] != "\b":
            parts.append(paragraph)
            continue
        title, code = lines[1], inspect.cleandoc("\n".join(["", *lines[2:]]))
        parts.append(f"{title}\n\n```shell\n{code}\n```")
    return "\n\n".join(parts)


def describe_option(option: click.Option, context: click.Context) -> str:
    """One option, with what `--help` says of it."""
    record = option.get_help_record(context)
    if record is None:
        return ""
    names, text = record
    return f"::::{{option}} {names}\n{text}\n::::\n"


def command_page() -> str:
    """The page of all commands, in Markdown."""
    parts = [INTRODUCTION]
    for path, context in walk_commands(main, click.Context(main, info_name="stanadapt")):
        command = context.command
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        parts.append(
            f"## {path}\n\n```{{program}} {path}\n```\n\n```text\n{usage}\n```\n\n{describe(command)}\n"
        )
        parts += [
            describe_option(each, context)
            for each in command.get_params(context)
            if isinstance(each, click.Option)
        ]
    return "\n".join(parts)


def _write(app: Sphinx) -> None:
    write_page(Path(app.srcdir) / "reference" / "command.md", command_page())


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
