"""Names of models for the titles of pages. No run depends on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .source import Contents

_LIBRARY = "_model"  # BridgeStan writes NAME_model.so for NAME.stan


def model_name(model: Any) -> str:
    """Return the name of a file without its ending, of an object or of a function; empty if it has none."""
    given = getattr(model, "stan_file", None) or model
    if isinstance(given, Contents) or (isinstance(given, str) and any(sign in given for sign in "\n{")):
        return ""  # the text of a program
    name: Any
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        name = path.stem if path.suffix == ".stan" else path.stem.removesuffix(_LIBRARY)
    else:
        name = getattr(given, "name", None) or getattr(given, "__name__", "")
    is_name = isinstance(name, str) and name.isprintable() and name != "<lambda>"
    return name.encode(errors="replace").decode() if is_name else ""
