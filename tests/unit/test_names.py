"""Functions of the samplers and their mathematics are named by verbs or nouns, not by participles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stanadapt

PACKAGE = Path(stanadapt.__file__).parent
FILES = [
    PACKAGE / "jit.py",
    PACKAGE / "target.py",
    *(
        path
        for room in ("numerics", "samplers", "simulators")
        for path in sorted((PACKAGE / room).glob("*.py"))
    ),
]
PARTICIPLE = re.compile(
    r".*(?<!spe)(?<!se)(?<!ne)ed|made|found|caught|begun|built|kept|left|learnt|swept|taken"
)
ALLOWED = {
    "learnt": "a part of every sampler's contract, and of results",
    "swept": "the decorator of `step`: sweep = swept(step)",
    "declared": "settings as a sampler's file declares them",
    "named": "settings by the names that users give them",
    "carried": "a part of the contract of models, see model/backends",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_function_is_named_by_a_participle(path: Path) -> None:
    functions = [
        node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
    ]
    names = {node.name for node in functions if not node.name.startswith(("_", "is_"))}
    assert {name for name in names if PARTICIPLE.fullmatch(name.rpartition("_")[2])} <= set(ALLOWED)


def test_participles_are_told_from_other_words() -> None:
    told = [
        name
        for name in ("proposed", "need", "speed", "seed", "begun", "learn", "rescaled")
        if PARTICIPLE.fullmatch(name)
    ]
    assert told == ["proposed", "begun", "rescaled"]


def test_no_exception_is_idle() -> None:
    names = {
        node.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(ALLOWED) <= names
