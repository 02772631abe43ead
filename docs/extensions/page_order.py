"""The order in which pages are read: neighbours far apart, so that several processes share those that run.

With `-j` Sphinx gives each process a piece of the sorted list of pages. The tutorials follow each other in
it, and take nearly all of the time, because their cells run while they are read.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_APART = 16  # every 16th page of the list follows another


def spread_pages(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    docnames[:] = [name for first in range(_APART) for name in docnames[first::_APART]]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-before-read-docs", spread_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
