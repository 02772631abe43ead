"""One name, one thing; and functions are named by verbs or nouns."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import stanadapt

PACKAGE = Path(stanadapt.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
PARTICIPLE = re.compile(
    r".*(?<!spe)(?<!se)(?<!ne)ed|made|found|caught|begun|built|drawn|given|held|kept|known|"
    "left|learnt|lost|met|seen|sent|shown|swept|taken|told|written"
)
# "fit_packed" says what is done, and "n_kept" what is counted: there the participle belongs to another word.
BEFORE = re.compile("are|ask|check|draw|find|fit|from|has|list|n|pull|read|solve|tell|with|without|write")
ALLOWED = {
    "learnt": "a part of every sampler's contract, and of results",
    "carried": "a part of the contract of models, see model/backends",
}


def is_participle(name: str) -> bool:
    words = name.split("_")
    verbs = [word for word in words[:-1] if BEFORE.fullmatch(word)]
    return not verbs and PARTICIPLE.fullmatch(words[-1]) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_function_is_named_by_a_participle(path: Path) -> None:
    """A property may be: it is what something is, and not what it does."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        and not any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)
    ]
    names = {node.name.lstrip("_") for node in functions if not node.name.startswith(("is_", "_is_"))}
    assert {name for name in names if is_participle(name)} <= set(ALLOWED)


def test_participles_are_told_from_other_words() -> None:
    names = ("proposed", "need", "speed", "seed", "begun", "learn", "rescaled", "law_kept", "n_kept", "find")
    assert [name for name in names if is_participle(name)] == ["proposed", "begun", "rescaled", "law_kept"]


def test_no_exception_is_idle() -> None:
    names = {
        node.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(ALLOWED) <= names


# Every sampler's file has them: they are its contract.
IN_EVERY_SAMPLER = {"Settings", "State"}


def _classes() -> dict[str, set[str]]:
    """Names of public classes, and the files that define them."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path.relative_to(PACKAGE).as_posix())
    return found


def _modules() -> dict[str, set[str]]:
    """Names of files and folders of the package, without the ending, and where they stand."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        name = path.parent.name if path.stem == "__init__" else path.stem
        if path.parent != PACKAGE or path.stem != "__init__":
            found[name].add(path.relative_to(PACKAGE).as_posix())
    return found


def _repeated() -> dict[str, set[str]]:
    return {
        name: files
        for names in (_classes(), _modules())
        for name, files in names.items()
        if len(files) > 1 and name not in IN_EVERY_SAMPLER
    }


def test_a_name_means_one_thing() -> None:
    assert _repeated() == {}


def test_a_name_in_the_mathematics_means_one_function() -> None:
    found = Counter(
        node.name
        for path in (PACKAGE / "numerics").glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
    assert [name for name, n in found.items() if n > 1] == []


def test_no_room_has_the_name_of_a_public_function() -> None:
    """`stanadapt.compare` would be a package before its first import, and a function after it."""
    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert set(stanadapt.__all__) & rooms == {"errors"}  # public under its own name
