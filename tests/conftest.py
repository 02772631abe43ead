"""Shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def posteriordb() -> Path:
    """PosteriorDB's folder `posterior_database`: from POSTERIORDB, or beside the project."""
    default = ROOT.parent / "shared" / "data" / "posteriordb" / "posterior_database"
    folder = Path(os.environ.get("POSTERIORDB", default))
    if not (folder / "posteriors").is_dir():
        pytest.skip("PosteriorDB is not here; POSTERIORDB names its folder posterior_database")
    return folder
