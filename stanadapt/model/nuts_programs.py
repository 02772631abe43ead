"""Which program runs Stan's own sampler on a model: CmdStan, or stanli."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from .. import check
from ..errors import ArgumentError, ModelError
from . import PROGRAM_BACKENDS
from .backends.contract import StanProgram
from .data import to_json
from .posterior import Posterior
from .program import draws_data

_WANTED = "it needs a Stan program that stanli covers, or a CmdStanModel with its executable"


def refuse_before_compiling(method: str, code: str, data: str) -> None:
    """Refuse a program that stanli cannot run, before a C++ compiler takes a minute. Raises ArgumentError."""
    _stanli_program(method, code, data)


def check_nuts(method: str, posterior: Posterior) -> None:
    """Refuse a posterior that no such program can run, before anything runs.

    Raises
    ------
    ArgumentError
        There is no Stan program at hand that stanli covers, and no executable of CmdStan; or every chain
        would have data of its own.
    """
    if posterior.model.backend not in PROGRAM_BACKENDS:
        is_python = posterior.model.backend == "python"
        what = "target is made of Python functions" if is_python else f"model is one of {posterior.library}"
        raise ArgumentError(
            f"method={method!r} needs a Stan program, and this {what}: use another method, see "
            "stanadapt.methods()"
        )
    if not posterior.dim:
        return
    nuts_program(method, posterior)
    if how := _random_data(posterior):
        raise ArgumentError(
            f"method={method!r} is not allowed for this program: its transformed data draw random numbers "
            f"({how}), and every chain would have its own. Draw them before, and pass them as data"
        )


def _random_data(posterior: Posterior) -> str:
    """The evidence that `transformed data` draw random numbers, in words; empty if they do not."""
    if posterior.code or posterior.model.backend != "stanli":
        return draws_data(posterior.code)
    from .backends.stan.stanli_nuts import StanliProgram

    program = StanliProgram.of_model(cast(Any, posterior.model))
    return "another seed is another density" if program.has_random_data() else ""


def nuts_program(method: str, posterior: Posterior) -> StanProgram:
    """The program that runs Stan's own sampler on a posterior: CmdStan if the model came with it, else
    stanli.

    Raises ArgumentError where neither can.
    """
    if posterior.executable:
        _check_executable(method, posterior.executable)
        from .backends.stan.cmdstan import CmdStanProgram

        data = to_json(posterior.data)
        return CmdStanProgram(posterior.executable, data, posterior.constrain)
    from .backends.stan.stanli_nuts import StanliProgram

    if posterior.model.backend == "stanli":
        return StanliProgram.of_model(cast(Any, posterior.model))
    if not posterior.code:
        raise ArgumentError(
            f"method={method!r} cannot run a compiled library ({posterior.library}): {_WANTED}"
        )
    return _stanli_program(method, posterior.code, to_json(posterior.data))


def _stanli_program(method: str, code: str, data: str) -> StanProgram:
    """A program in stanli, with data as JSON text."""
    from .backends.stan.stanli_nuts import StanliProgram

    try:
        return StanliProgram.of_code(code, data)
    except (ModelError, RuntimeError) as error:
        reason = check.one_line(error)
        raise ArgumentError(
            f"method={method!r} cannot run this program: {_WANTED}. stanli says: {reason}"
        ) from error


def _check_executable(method: str, executable: str) -> None:
    if not Path(executable).is_file():
        raise ArgumentError(
            f"method={method!r} needs the CmdStanModel's executable, and {executable} is gone"
        )
