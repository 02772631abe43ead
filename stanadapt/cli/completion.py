"""Completion in a shell: the command that prints its script, and the names that words are completed with.

Every press of the tab key starts Python anew. So nothing here imports the samplers, which would load numba:
the settings of a method are read from the text of its file, and of the file that it shares settings with.
"""

from __future__ import annotations

import ast
import contextlib
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from ..method_names import METHODS
from .command_group import main

_VARIABLE = "_STANADAPT_COMPLETE"  # in the environment, when a shell asks
_SAMPLERS = Path(__file__).parents[1] / "samplers"
_AUTO = CompletionItem("auto", help="one of them, by what it sees of the posterior")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes words in SHELL.

    With the tab key it completes commands, options and files, and the names of methods, settings and
    variables.

    \b
    Example:
      stanadapt completion bash > ~/.local/share/bash-completion/completions/stanadapt
      stanadapt completion zsh > "${fpath[1]}/_stanadapt"
      stanadapt completion fish > ~/.config/fish/completions/stanadapt.fish

    A new shell has it. For the present one: eval "$(stanadapt completion bash)"
    """
    kind: type[ShellComplete] | None = _Bash if shell == "bash" else get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "stanadapt", _VARIABLE).source())


def complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of methods."""
    items = [*(CompletionItem(name, help=text) for name, text in METHODS.items()), _AUTO]
    return [item for item in items if item.value.startswith(incomplete)]


def complete_setting(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """NAME= of the settings of the method that was named before, and NAME=VALUE of those with few values."""
    declared = setting_names(str(ctx.params.get("method") or ""))
    items = [CompletionItem(f"{name}=", help=meaning) for name, (meaning, _) in declared.items()]
    name, sign, _value = incomplete.partition("=")
    if sign and name in declared:
        items = [CompletionItem(f"{name}={value}") for value in declared[name][1]]
    return [item for item in items if item.value.startswith(incomplete)]


def complete_variable(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Variables of the posterior in the file that was named before, if it is netCDF."""
    path = ctx.params.get("file") or next(iter(ctx.args), "")  # an option without its value hides arguments
    names: list[str] = []
    if path and Path(path).is_file():
        with contextlib.suppress(Exception):  # whatever it is, there is nothing to complete then
            import h5py

            with h5py.File(path) as file:
                held = file["posterior"]
                names = [name for name in held if held[name].attrs.get("CLASS") != b"DIMENSION_SCALE"]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def setting_names(method: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Settings of a method: their meaning, and their values where there are only a few."""
    return _settings(method) if method in METHODS else {}


def _settings(file: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The settings that a file of samplers/ declares: its own first, then those that it shares."""
    tree = ast.parse((_SAMPLERS / f"{file}.py").read_text(encoding="utf-8"))
    choices: dict[str, tuple[str, ...]] = {}
    files: dict[str, str] = {}  # the name of a shared file there -> the file
    for node in tree.body:
        choices |= _choices(node)
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is None:
            files |= {alias.asname or alias.name: alias.name for alias in node.names}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    found[field.target.id] = _describe(field.annotation, choices)
            for decorator in node.decorator_list:  # `with_settings_of(shared)`
                if isinstance(decorator, ast.Call):
                    found |= _settings(files[ast.unparse(decorator.args[0])])
    return found


def _choices(node: ast.stmt) -> dict[str, tuple[str, ...]]:
    """Names in a statement such as `METRICS = Choice(("diag", "dense"))`, with their values."""
    if not isinstance(node, ast.Assign):
        return {}
    pairs: list[tuple[ast.expr, ast.expr]] = [(node.targets[0], node.value)]
    if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
    return {
        ast.unparse(target): ast.literal_eval(value.args[0])
        for target, value in pairs
        if isinstance(value, ast.Call)
        and ast.unparse(value.func) == "Choice"
        and isinstance(value.args[0], ast.Tuple)
    }


def _describe(annotation: ast.expr, choices: dict[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    """Meaning and values of a setting, by its annotation `Annotated[type, limits, meaning]`."""
    held = annotation.slice if isinstance(annotation, ast.Subscript) else annotation
    parts = held.elts if isinstance(held, ast.Tuple) else [held]
    meaning = next((part.value for part in parts if isinstance(part, ast.Constant)), "")
    words = [ast.unparse(part) for part in parts]
    if words[0] == "bool":
        return str(meaning), ("true", "false")
    return str(meaning), next((choices[word] for word in words if word in choices), ())


class _Bash(BashComplete):
    """bash takes `=` for the end of a word: here such words are put together again."""

    before = ""  # what stands before the `=` of the present word, which bash does not replace

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        parts = [*words, incomplete]
        joined: list[str] = []
        for i, part in enumerate(parts):
            if i and joined and (part == "=" or parts[i - 1] == "="):
                joined[-1] += part
            else:
                joined.append(part)
        incomplete = joined.pop()
        if len(joined) < len(words) and "=" in incomplete:
            self.before = incomplete.rpartition("=")[0] + "="
        return joined, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return super().format_completion(
            CompletionItem(str(item.value).removeprefix(self.before), type=item.type)
        )

    def source(self) -> str:
        """With no space after `NAME=`."""
        reply, nospace = "COMPREPLY+=($value)", "[[ $value == *= ]] && compopt -o nospace"
        return super().source().replace(reply, f"{reply}\n            {nospace}")


if _VARIABLE in os.environ:
    add_completion_class(_Bash)
