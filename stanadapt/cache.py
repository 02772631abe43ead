"""Where compiled things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """The package's folder in the user's cache: `XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stanadapt"
