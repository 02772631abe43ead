"""Where log densities come from, one file each."""

from __future__ import annotations

import importlib

from ...cache import import_with_home

# Here, before other modules import it in the plain way.
import_with_home(lambda: importlib.import_module("bridgestan"))
