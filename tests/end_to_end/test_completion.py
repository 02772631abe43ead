"""Completion of the command's words, in real shells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from click.shell_completion import CompletionItem
from click.testing import CliRunner

import stanadapt
from stanadapt import cli, samplers
from stanadapt.cli.completion import _AUTO, _Bash, setting_names
from stanadapt.run.preparation import auto

START = {
    "bash": "bash --norc --noprofile -i",
    "zsh": "zsh -f -i",
    "fish": "fish --no-config --interactive",
}
SOURCE = {
    "bash": 'eval "$(stanadapt completion bash)"',
    "zsh": 'autoload -U compinit; compinit -u -D; eval "$(stanadapt completion zsh)"',
    "fish": "stanadapt completion fish | source",
}
# A function that prints what the command would get. Completion calls the command itself.
SHOW = {
    "bash": "stanadapt() { printf '<<%s>>' \"$@\"; }",
    "zsh": "stanadapt() { printf '<<%s>>' \"$@\"; }",
    "fish": "function stanadapt; printf '<<%s>>' $argv; end",
}
MODEL = "parameters { real mu; vector[3] theta; } model { mu ~ std_normal(); theta ~ std_normal(); }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a program and a fit."""
    made = tmp_path_factory.mktemp("completion")
    (made / "schools.stan").write_text(MODEL)
    run = ["--method=rwm", "--chains=2", "--warmup=50", "--draws=50", "--seed=1", "--quiet"]
    out = ["--out", str(made / "fit.nc")]
    assert CliRunner().invoke(cli.main, ["sample", str(made / "schools.stan"), *run, *out]).exit_code == 0
    return made


def environment() -> dict[str, str]:
    """In which `stanadapt` is that of this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "TERM": "dumb", "PYTHONPATH": str(Path(stanadapt.__file__).parents[1])}


def press(shell: str, folder: Path, typed: str) -> list[str]:
    """The words of a line that is typed into an interactive shell with tab keys, but for the first."""
    if shutil.which(START[shell].split()[0]) is None:
        pytest.skip(f"there is no {shell}")
    env = environment() | {"PS1": "", "PROMPT": ""}
    terminal = pexpect.spawn(START[shell], cwd=folder, env=env, timeout=60, encoding="utf-8", echo=False)
    try:
        terminal.setwinsize(50, 250)
        for line in (SOURCE[shell], SHOW[shell], "printf 're%s\\n' ady"):
            terminal.sendline(line)
        terminal.expect("ready\r?\n")
        terminal.send(f"{typed}\r")
        terminal.sendline("printf '\\nen%s\\n' d")
        terminal.expect("end\r?\n")
        said = str(terminal.before)
    finally:
        terminal.close(force=True)
    return re.findall("<<(.*?)>>", said)


CASES = {  # what is typed, and the words that it becomes
    "command": ("stanadapt summ\t", "stanadapt summary"),
    "option": ("stanadapt sample --save-w\t", "stanadapt sample --save-warmup"),
    "method": ("stanadapt sample --method fisher_m\t", "stanadapt sample --method fisher_mala"),
    "settings of": ("stanadapt methods gad_mala_f\t", "stanadapt methods gad_mala_fast"),
    "file": ("stanadapt check sch\t", "stanadapt check schools.stan"),
    "variable": ("stanadapt diagnose fit.nc --var th\t", "stanadapt diagnose fit.nc --var theta"),
    "choice": ("stanadapt export fit.nc --format st\t", "stanadapt export fit.nc --format stancsv"),
}


@pytest.mark.parametrize("shell", START)
@pytest.mark.parametrize("what", CASES)
def test_in_a_shell(what: str, shell: str, folder: Path) -> None:
    typed, words = CASES[what]
    assert press(shell, folder, typed) == words.split()[1:]


BASH = {  # which takes `=` for the end of a word
    "--method=fisher_h\t": "--method=fisher_hmc",
    "--method fisher_hmc --set curv\tfalse": "--method fisher_hmc --set curvature=false",
    "--seed=1 --method=fisher_hmc --set curv\tf\t": "--seed=1 --method=fisher_hmc --set curvature=false",
    "--method fisher_hmc --set metric=low\t": "--method fisher_hmc --set metric=low_rank",
    "--set damp\t1": "--set damping=1",  # of the method that is the default
}


@pytest.mark.parametrize("typed", BASH)
def test_words_with_an_equals_sign_in_bash(typed: str, folder: Path) -> None:
    assert press("bash", folder, f"stanadapt sample schools.stan {typed}")[2:] == BASH[typed].split()


def complete(*words: str) -> list[str]:
    """What zsh is told, without its help texts."""
    env = environment() | {"COMP_WORDS": " ".join(["stanadapt", *words]), "COMP_CWORD": str(len(words))}
    env["_STANADAPT_COMPLETE"] = "zsh_complete"
    done = subprocess.run(["stanadapt"], env=env, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n").split("\n")[1::3]


def test_nothing_heavy_is_imported_for_it() -> None:
    script = """
import json, sys
from stanadapt import cli
try:
    cli.main(prog_name="stanadapt")
except SystemExit:
    pass
print(json.dumps([name for name in ("numba", "numpy", "xarray", "pandas", "arviz") if name in sys.modules]))
"""
    words = {"COMP_WORDS": "stanadapt sample --method fisher_hmc --set c", "COMP_CWORD": "5"}
    env = environment() | words | {"_STANADAPT_COMPLETE": "bash_complete"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    *said, heavy = done.stdout.splitlines()
    assert said == ["plain,careful_accept=", "plain,curvature="]
    assert json.loads(heavy) == []


def test_names_are_those_of_the_samplers() -> None:
    assert _AUTO.value == auto.NAME
    assert setting_names("fisher_hmc")["metric"][1] == ("auto", "dense", "low_rank")
    for name in samplers.METHODS:
        declared = samplers.settings_of(samplers.sampler(name))
        found = setting_names(name)
        assert list(found) == list(declared)
        for setting, (meaning, values) in found.items():
            assert meaning == declared[setting].meaning
            for value in values:  # all of them can be given
                parsed = samplers.parse(declared[setting], value)
                samplers.resolve(samplers.sampler(name), {setting: parsed})
            if isinstance(declared[setting].default, bool):
                assert values == ("true", "false")


def test_nothing_is_completed_where_there_is_nothing(folder: Path) -> None:
    assert complete("sample", "--method", "none", "--set", "") == []
    assert complete("summary", str(folder / "schools.stan"), "--var", "") == []
    assert complete("summary", str(folder / "missing.nc"), "--var", "") == []
    assert complete("summary", str(folder / "fit.nc"), "--var", "") == ["mu", "theta"]


def test_scripts_are_printed() -> None:
    for shell in START:
        said = CliRunner().invoke(cli.main, ["completion", shell])
        assert said.exit_code == 0
        assert "_STANADAPT_COMPLETE" in said.output
    refused = CliRunner().invoke(cli.main, ["completion", "tcsh"])
    assert refused.exit_code == 2
    assert "bash" in refused.output


def test_bash_is_not_given_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `=` ends no word for the user's bash, words come whole."""
    for words, place, item in (
        ("stanadapt sample --set metric = lo", 5, "low_rank"),
        ("stanadapt sample --set metric=lo", 3, "metric=low_rank"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        own = _Bash(cli.main, {}, "stanadapt", "_STANADAPT_COMPLETE")
        assert own.get_completion_args() == (["sample", "--set"], "metric=lo")
        assert own.format_completion(CompletionItem("metric=low_rank")) == f"plain,{item}"
