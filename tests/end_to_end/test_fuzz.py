"""Odd arguments, options, files and programs get an answer in the package's own words; see tests/fuzz.py."""

from __future__ import annotations

import fuzz

# Examples of each suite; all of them together take twenty seconds; tests/fuzz.py runs more.
COUNTS = {
    "sample": 12,
    "results": 12,
    "posterior": 15,
    "targets": 15,
    "options": 12,
    "result_files": 4,
    "json": 25,
    "programs": 15,
}


def test_every_suite_is_run() -> None:
    assert set(COUNTS) == set(fuzz.SUITES)


def test_only_documented_answers_come_out() -> None:
    """All suites in one child, which begins again behind an example that it does not survive."""
    suites = " ".join(f"{suite}={count}" for suite, count in COUNTS.items())
    found = fuzz.failures(suites, sum(COUNTS.values()))
    assert not found, "\n\n".join(found)


def test_harness_finds_raw_errors_crashes_hangs_and_exits() -> None:
    """And goes on behind each of them; among twelve examples there are some of every kind."""
    signs = {
        "a raw error": "KeyError: 'missing'",
        "a crash": "exit status -6",
        "a hang": "no end after 2.0 seconds",
        "an exit": "SystemExit: 3",
    }
    found = fuzz.failures("faults", 12, seconds=2.0)
    kinds = {report.partition(": ")[2].partition("\n")[0] for report in found}
    assert kinds == set(signs)
    for report in found:
        assert signs[report.partition(": ")[2].partition("\n")[0]] in report
    assert len({report.partition(":")[0] for report in found}) == len(found) < 12
