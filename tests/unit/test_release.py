"""What keeps a checkout from being released, as `make release` sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

import stanadapt
from release import ROOT, faults, version_of


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A checkout that can be released."""
    (tmp_path / "stanadapt").mkdir()
    (tmp_path / "stanadapt" / "version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-11-21\n\n## 1.2.2 - 2026-11-20\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\ndate-released: 2026-11-21\n")
    return tmp_path


def test_a_checkout_that_is_ready(ready: Path) -> None:
    assert faults(ready, "") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        ("stanadapt/version.py", "1.2.3", "1.2.4", "CHANGELOG.md begins with 1.2.3, not with 1.2.4."),
        ("stanadapt/version.py", "1.2.3", "1.2.dev0", "not of the form X.Y.Z"),
        ("CHANGELOG.md", "2026-11-21", "unreleased", "CHANGELOG.md has no date for 1.2.3"),
        ("CHANGELOG.md", "2026-11-21", "2026-11-22", "CITATION.cff does not have the date 2026-11-22"),
        ("CITATION.cff", "1.2.3", "1.2.2", "CITATION.cff does not have the version 1.2.3."),
    ],
)
def test_what_does_not_fit_is_said(ready: Path, file: str, old: str, new: str, fault: str) -> None:
    path = ready / file
    path.write_text(path.read_text().replace(old, new))
    assert any(fault in each for each in faults(ready, ""))


def test_changes_that_are_not_committed_are_listed(ready: Path) -> None:
    assert any(" M README.md" in each for each in faults(ready, " M README.md\n"))


def test_the_version_is_the_packages() -> None:
    assert version_of(ROOT) == stanadapt.__version__
