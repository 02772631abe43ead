"""Where compiled things are kept between runs."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path


def cache_home() -> Path:
    """The package's folder in the user's cache, `XDG_CACHE_HOME` or `~/.cache`.

    Where that cannot be written (a read-only home in a container), a folder among the temporary files.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    for home in (Path(named) if named else Path("~/.cache").expanduser(), _temporary()):
        folder = home / "stanadapt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return folder


def _temporary() -> Path:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"cache-{user}"
