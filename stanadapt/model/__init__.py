"""A Stan program with its data: its declarations, and the backends that evaluate it.

A new backend is a file below backends/ and a line in a table below. They stand here because the command needs
them before anything that takes long is imported.
"""

from __future__ import annotations

# Backends of Stan programs, in the order in which "auto" tries them. Their files, below
# backends/, are each a `contract.ProgramBackend`.
PROGRAM_BACKENDS = {"stanli": "stan.stanli", "bridgestan": "stan.bridgestan"}
# Backends of models that users bring as objects. Their files are each a `contract.ObjectBackend`.
OBJECT_BACKENDS = ("python", "stan.bridgestan", "pymc.pymc_model", "jax.numpyro_model")
# What a user may ask for, beside the names of backends from outside, see plugins.py.
BACKENDS = ("auto", *PROGRAM_BACKENDS)
