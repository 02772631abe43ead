"""Where log densities come from, one file each. A new backend is a file and its name in a table below."""

from __future__ import annotations

from ...cache import import_with_home

import_with_home("bridgestan")  # here, before other modules import it in the plain way

# Backends of Stan programs, in the order in which "auto" tries them. Their files are a `base.ProgramBackend`.
PROGRAM_BACKENDS = ("stanli", "bridgestan")
# Backends of models that users bring as objects. Their files are a `base.ObjectBackend`.
OBJECT_BACKENDS = ("python", "bridgestan")
# What a user may ask for.
BACKENDS = ("auto", *PROGRAM_BACKENDS)
