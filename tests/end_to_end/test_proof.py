"""Statistical tests take their seeds from proof.py, which counts what fails with other ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cases import thorough

STATISTICAL = Path(__file__).parents[1] / "statistical"

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.seeds(3, rate=0.001)
def test_rare(seed):
    assert seed == 3 or seed > 1_000

@pytest.mark.parametrize("letter", "ab")
@pytest.mark.seeds(1, 2, rate=0.5)
def test_often(seed, letter):
    assert seed < 3 or seed % 2 or letter == "a"

@pytest.mark.seeds(1, rate=0.001)
def test_wrong(seed):
    assert seed == 1

def test_without():
    pass
"""
CONFTEST = """
import pytest
import proof

pytest_addoption = proof.add_option
pytest_generate_tests = proof.choose_seeds

def pytest_configure(config):
    config.addinivalue_line("markers", "seeds: of proof.py")
    if config.getoption("--proof"):
        config.pluginmanager.register(proof.Table())

def pytest_collection_modifyitems(config, items):
    proof.keep_those_with_seeds(config, items)

@pytest.fixture
def seed(request):
    return proof.seed_of(request)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(STATISTICAL.parent))
    pytester.makeconftest(CONFTEST)
    pytester.mkdir("tests")
    (pytester.path / "tests" / "test_few.py").write_text(TESTS)
    return pytester


def test_without_the_option_tests_have_their_own_seeds(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=7)


@pytest.mark.parametrize("workers", ["0", thorough("2")])
def test_failures_with_other_seeds_are_counted(workers: str, project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--proof=10", "--tb=no", f"-n{workers}")
    result.assert_outcomes(passed=25, failed=15, deselected=1 if workers == "0" else 0)
    result.stdout.fnmatch_lines(
        [
            "test * runs failures * rate * stated *",
            "test_few.py::test_often[[]a] * 10 * 0 * 0.000 * 0.5*",
            "test_few.py::test_often[[]b] * 10 * 5 * 0.500 * 0.5 * 1002 1004 1006 1008 1010",
            "test_few.py::test_rare * 10 * 0 * 0.000 * 0.001*",
            "test_few.py::test_wrong * 10 * 10 * 1.000 * 0.001 * TOO MANY",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_as_many_failures_as_are_stated_are_no_failure(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--proof=10", "--tb=no", "-n0", "-k", "often or rare")
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("file", sorted(STATISTICAL.glob("test_*.py")), ids=lambda path: path.stem)
def test_statistical_tests_have_no_seeds_of_their_own(file: Path) -> None:
    """A number as a seed stands in the mark seeds, or under the mark one_seed, which says why."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if "pytestmark = pytest.mark.one_seed" in file.read_text(encoding="utf-8"):
        return
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        marks = [ast.unparse(each) for each in function.decorator_list]
        takes_seed = "seed" in [each.arg for each in function.args.args]
        marked = [mark for mark in marks if mark.startswith("pytest.mark.seeds(")]
        if function.name.startswith("test_"):
            assert takes_seed == bool(marked), function.name
            assert all("rate=" in mark for mark in marked), function.name
        if function.name.startswith("test_") and not any("one_seed" in mark for mark in marks):
            assert not _numbers(function), f"{file.name}: {function.name} has a seed of its own"


def _numbers(function: ast.FunctionDef) -> list[str]:
    """Places where a number is a seed."""
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            given = [keyword.value for keyword in node.keywords if keyword.arg == "seed"]
            given += node.args if ast.unparse(node.func).endswith("default_rng") else []
            found += [ast.unparse(node) for value in given if isinstance(value, ast.Constant)]
    return found
