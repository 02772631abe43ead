"""Warnings of stanc's pedantic mode: found where there is a stanc, in words, with the user's lines."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import stanadapt
from stanadapt import cli
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.model.backends.stan import stanc

PROGRAM = """functions {
#include scale.stan
}
parameters { real x; real unused; }
model { x ~ normal(0, scale()); }
"""
SCALE = "// the scale\nreal scale() {\n  return 3 / 2;\n}\n"
SAID = """Warning in '/a/b/program.stan', line 9, column 21: Argument 100000 suggests there may be
    parameters that are not unit scale; consider rescaling.
Warning in '/a/b/program.stan', line 4, column 9 to column 14: Found int division:
      3 / 2
    Values will be rounded towards zero.
Warning: The parameter unused was declared but was not used in the density
    calculation.
"""
WARNINGS = [
    "The parameter unused was declared but was not used in the density calculation.",
    "line 3 of scale.stan: Found int division: 3 / 2 Values will be rounded towards zero.",
    "line 5: Argument 100000 suggests there may be parameters that are not unit scale; consider rescaling.",
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "scale.stan").write_text(SCALE)
    path = tmp_path / "model.stan"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for stanc, which says what it is told to."""
    path = tmp_path / "bin" / "stanc"
    path.parent.mkdir()
    (tmp_path / "said").write_text(SAID)
    path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/said >&2\n')
    path.chmod(0o755)
    monkeypatch.setenv("STANC", str(path))
    return path


def said_of(program: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StanAdaptWarning)
        stanadapt.Posterior(program, pedantic=True)
    return [str(each.message) for each in caught]


@pytest.mark.usefixtures("fake")
def test_warnings_are_sentences_with_lines_of_the_files(program: Path, tmp_path: Path) -> None:
    assert said_of(program) == [f"stanc: {text}" for text in WARNINGS]
    assert "--warn-pedantic" in (tmp_path / "asked").read_text()


@pytest.mark.usefixtures("fake")
def test_a_program_without_faults_has_no_warnings(program: Path, tmp_path: Path) -> None:
    (tmp_path / "said").write_text("")
    assert said_of(program) == []


@pytest.mark.usefixtures("fake")
def test_nothing_is_asked_unless_it_is_wanted(program: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stanadapt.Posterior(program)
    assert not (tmp_path / "asked").exists()


@pytest.mark.usefixtures("fake")
def test_the_command(program: Path) -> None:
    done = CliRunner().invoke(cli.main, ["check", str(program), "--pedantic"])
    assert done.exit_code == 0, done.output
    lines = " ".join(done.stderr.split())
    assert all(text in lines for text in WARNINGS)


def test_without_stanc_it_is_said(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stanc, "_places", lambda: iter([Path("/nowhere/stanc")]))
    (said,) = said_of(program)
    assert said.startswith(
        "pedantic=True: the warnings of stanc's pedantic mode are not to be had: stanli has none"
    )


def test_a_stanc_that_cannot_read_the_program_is_told(program: Path, fake: Path) -> None:
    fake.write_text("#!/bin/sh\necho 'Syntax error in line 1' >&2\nexit 1\n")
    (said,) = said_of(program)
    assert re.fullmatch(
        r"pedantic=True: .*bin/stanc cannot read the program, .*: Syntax error in line 1", said
    )
    fake.write_bytes(b"\0 no program")
    (said,) = said_of(program)
    assert "cannot be run" in said


@pytest.mark.parametrize("place", ["CMDSTAN", "home", "path", "httpstan"])
def test_where_it_is_looked_for(
    place: str, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STANC")
    for name in ("CMDSTAN", "BRIDGESTAN"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(stanc, "sources_path", lambda: None)
    monkeypatch.setattr(stanc.importlib.util, "find_spec", lambda name: None)
    assert stanc.find_stanc() is None
    wanted = fake
    if place == "CMDSTAN":
        monkeypatch.setenv("CMDSTAN", str(tmp_path))
    elif place == "path":
        monkeypatch.setenv("PATH", str(fake.parent))
    elif place == "httpstan":
        spec = type("Spec", (), {"origin": str(fake.parent / "__init__.py")})
        monkeypatch.setattr(stanc.importlib.util, "find_spec", lambda name: spec)
    else:
        for version in ("2.9.0", "2.36.0", "2.35.0"):
            wanted = tmp_path / "home" / ".cmdstan" / f"cmdstan-{version}" / "bin" / "stanc"
            wanted.parent.mkdir(parents=True)
            wanted.symlink_to(fake)
        wanted = tmp_path / "home" / ".cmdstan" / "cmdstan-2.36.0" / "bin" / "stanc"
    assert stanc.find_stanc() == wanted


def test_only_programs_have_warnings() -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), dim=1)
    for model in (target, "a_model.so"):
        with pytest.raises(ArgumentError, match="pedantic=True is not allowed with a model that is no Stan"):
            stanadapt.Posterior(model, pedantic=True)
    with pytest.raises(ArgumentError, match="pedantic=3 is not allowed"):
        stanadapt.Posterior(PROGRAM, pedantic=3)


@pytest.mark.skipif(stanc.find_stanc() is None, reason="there is no stanc on this machine")
def test_a_real_stanc(program: Path) -> None:
    said = said_of(program)
    assert any("unused was declared but was not used" in text for text in said)
    assert any(text.startswith("stanc: line 3 of scale.stan: Found int division") for text in said)
