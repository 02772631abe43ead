"""The seeds of statistical tests: their own ones, or others, and then how often each test fails.

A test that draws takes its `seed` as an argument, and says beside it which seeds are its own, and at which
rate a right sampler fails it:

    @pytest.mark.seeds(1, 2, 3, rate=0.001)
    def test_moments(seed): ...

`pytest --proof 50` runs the test with 50 other seeds in place of its own ones, and ends with a table. A seed
that passes here proves nothing about another processor, on which code rounds otherwise: there, other draws
come of the same seed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from scipy import stats

FIRST = 1_001  # of the other seeds
_SEEDS_OF_MAKE_TEST = 1  # of a test's own ones; `make thorough` runs the others
LEVEL = 0.001  # at which more failures than the stated rate explains are too many


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof", type=int, default=0, metavar="N", help="N other seeds, and how often tests fail"
    )


def choose_seeds(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a seed once for each of its own ones, or of the others."""
    mark, count = metafunc.definition.get_closest_marker("seeds"), metafunc.config.getoption("--proof")
    if mark is None:
        return
    seeds = range(FIRST, FIRST + count) if count else mark.args
    if len(seeds) == 1 and not count:
        return  # the fixture gives it, and the test's name has no number
    few = len(seeds) if count else _SEEDS_OF_MAKE_TEST
    metafunc.parametrize(
        "seed",
        [
            pytest.param(seed, id=f"seed={seed}", marks=() if i < few else pytest.mark.thorough)
            for i, seed in enumerate(seeds)
        ],
        indirect=True,
    )


def seed_of(request: pytest.FixtureRequest) -> int:
    own: int = request.node.get_closest_marker("seeds").args[0]
    return getattr(request, "param", own)


def keep_those_with_seeds(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all others where seeds are other ones, and tell the reports what the table needs."""
    if not config.getoption("--proof"):
        return
    marks = [item.get_closest_marker("seeds") for item in items]
    others = [item for item, mark in zip(items, marks, strict=True) if mark is None]
    items[:] = [item for item, mark in zip(items, marks, strict=True) if mark is not None]
    config.hook.pytest_deselected(items=others)
    for item in items:
        mark = item.get_closest_marker("seeds")
        assert mark is not None
        item.user_properties.append(("rate", mark.kwargs.get("rate")))


class Table:
    """How often each test failed."""

    def __init__(self) -> None:
        self.runs: defaultdict[str, int] = defaultdict(int)
        self.failures: defaultdict[str, list[int]] = defaultdict(list)  # the seeds
        self.rates: dict[str, float | None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "rate" not in properties or report.skipped or (report.when != "call" and report.passed):
            return
        name, _, parameters = report.nodeid.partition("[")
        seeds = [each for each in parameters.rstrip("]").split("-") if each.startswith("seed=")]
        rest = "-".join(each for each in parameters.rstrip("]").split("-") if each not in seeds)
        name = name.partition("tests/")[2] + (f"[{rest}]" if rest else "")
        rate = properties["rate"]
        self.rates[name] = None if rate is None else float(str(rate))
        self.runs[name] += report.when == "call"
        if report.failed:
            self.failures[name] += [int(seed.removeprefix("seed=")) for seed in seeds]

    def has_too_many(self, name: str) -> bool:
        """Whether a right sampler would fail so often once in a thousand times only."""
        rate, failures = self.rates[name], len(self.failures[name])
        return rate is not None and float(stats.binom.sf(failures - 1, self.runs[name], rate)) < LEVEL

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("tests with other seeds")
        width = max([len(name) for name in self.runs], default=4)
        head = f"{'test':{width}} {'runs':>5} {'failures':>8} {'rate':>7} {'stated':>7}  seeds that failed"
        terminalreporter.write_line(head)
        for name, runs in sorted(self.runs.items()):
            failures, rate = self.failures[name], self.rates[name]
            line = f"{name:{width}} {runs:5} {len(failures):8} {len(failures) / max(runs, 1):7.3f} "
            line += f"{'-' if rate is None else f'{rate:g}':>7}  {' '.join(map(str, sorted(failures)))}"
            terminalreporter.write_line(line + ("  TOO MANY" if self.has_too_many(name) else ""))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Some failures belong to the rates, so they alone are no failure of the session."""
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not any(map(self.has_too_many, self.runs)):
            session.exitstatus = pytest.ExitCode.OK
