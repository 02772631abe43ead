"""stanli: Stan programs without a C++ compiler, in milliseconds. The default backend."""

from __future__ import annotations

import re
from pathlib import Path

import stanli

from ..errors import DataError, ModelError
from .native import NativeModel, strings_for_non_finite

# What stanli says of a program that it has no code for, as opposed to data that do not fit.
_REFUSED = re.compile(r"unsupported|not supported|unknown function|not implemented", re.IGNORECASE)


class RefusedError(ModelError):
    """stanli cannot run this program; another backend may."""


def open_program(code: str, folder: Path | None, data: str, seed: int) -> NativeModel:
    """Open a Stan program with data (JSON text); `folder` is where its includes are searched.

    Raises
    ------
    ModelError
        The program does not compile; the message is Stan's own, with the line.
    RefusedError
        The program is valid, and stanli does not cover it.
    DataError
        The data do not fit the program.
    """
    try:
        include = [str(folder)] if folder is not None else None
        intermediate = stanli.stan_to_mir(code, include_paths=include)
    except RuntimeError as error:
        raise ModelError(f"model: the Stan program does not compile.\n{str(error).strip()}") from error
    try:
        model = stanli.bridgestan_model(
            mir=intermediate, data=strings_for_non_finite(data), seed=seed, name="stanadapt_model"
        )
    except RuntimeError as error:
        reason = str(error).strip()
        if _REFUSED.search(reason):
            raise RefusedError(f"stanli does not cover this program: {reason}") from error
        raise DataError(f"data do not fit the Stan program: {reason}") from error
    opened = NativeModel(model, "stanli")
    if _wants_outputs(code) and opened.names(transformed=False, generated=False) == opened.names(
        transformed=True, generated=True
    ):
        raise RefusedError("stanli does not cover the transformed parameters or generated quantities")
    return opened


def _wants_outputs(code: str) -> bool:
    """Whether the program declares anything in its generated quantities (comments removed)."""
    from ..program import block

    return bool(block(code, "generated quantities").strip())
