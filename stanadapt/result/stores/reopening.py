"""The model of a run that goes on: from the store where it has a Stan program, and what is given is compared.

Only text and numbers are taken from the folder. A library or an executable comes from the caller.
"""

from __future__ import annotations

from typing import Any

from ... import check
from ...errors import ArgumentError, StoreError
from ...model.backends.contract import RefusedError
from ...model.data import to_json
from ...model.opening import open_source
from ...model.posterior import Posterior, as_posterior
from ...model.program import has_includes
from ...model.program_data import read_data
from ...model.source import Contents, ProgramSource, is_opened, read_source
from .identity import check_code, check_data, check_density
from .store import Store


def reopen_posterior(store: Store, model: Any, data: Any) -> Posterior:
    """The posterior of the run: `model` with `data`, or what the folder has of these where one is None.

    Raises
    ------
    StoreError
        The folder's program or data are damaged, or the given ones belong to another run.
    ArgumentError
        The folder lacks what is needed, and there is no `model`.
    """
    request = store.asked.request
    if isinstance(model, Posterior):
        posterior = as_posterior(model, data)
        _check_given(store, posterior)
    elif store.code():
        posterior = _open_program(store, model, data)
    else:
        posterior = _open_object(store, model, data)
    _check_executable(store, posterior)
    posterior = posterior.with_quantities(request.log_likelihood, request.posterior_predictive)
    _check_described(store, posterior, "unconstrained_names", "flat_names", "hash")
    check_density(store.folder, store.asked.facts.get("density", []), posterior)
    return posterior


def _open_program(store: Store, model: Any, data: Any) -> Posterior:
    """The run's Stan program with its data."""
    facts, held = store.asked.facts, Contents(store.data())
    source = _own_source(store) if model is None else _given_source(store, model)
    if data is not None or model is not None:
        check_data(store.folder, held, to_json(read_data(source, held if data is None else data)))
    try:
        return Posterior.of(open_source(source, held, facts["backend"], facts.get("seed", 0)))
    except RefusedError as error:
        raise StoreError(f"{store.folder}: its program cannot be opened again: {error}") from error


def _own_source(store: Store) -> ProgramSource:
    """The program in the folder, which has all that it needs."""
    code = store.code()
    if has_includes(code):
        raise ArgumentError(
            f"{store.folder} has a program that includes other files, and no file is read because a "
            "store says so: pass the program again, model=..."
        )
    if store.asked.facts["executable"] and store.is_whole_chains:
        raise ArgumentError(
            f"{store.folder} is of a CmdStanModel, and no executable is run because a store says so: "
            "pass the same CmdStanModel again, model=..."
        )
    return read_source(Contents(code))


def _given_source(store: Store, model: Any) -> ProgramSource:
    """The program that was given again."""
    source = None if is_opened(model) else read_source(model)
    if source is None or source.library is not None:
        raise _no_program(store)
    check_code(store.folder, store.code(), source.code)
    return source


def _open_object(store: Store, model: Any, data: Any) -> Posterior:
    """The model of a run that had no Stan program, which must be given again."""
    if model is None:
        raise ArgumentError(
            f"{store.folder} has no Stan program, since the run was of {store.asked.description.library}: "
            "pass the same model again, model=..."
        )
    posterior = as_posterior(model, data)
    _check_given(store, posterior)
    return posterior


def _check_given(store: Store, posterior: Posterior) -> None:
    """Refuse a posterior with another program, or with other data, than the folder has."""
    code = store.code()
    if code and not posterior.code:
        raise _no_program(store)
    if posterior.code and not code:
        raise StoreError(f"{store.folder} is of another model: the run had no Stan program, and this is one")
    check_code(store.folder, code, posterior.code)
    if not code:
        _check_described(store, posterior, "unconstrained_names")  # another model has other data, too
    check_data(store.folder, store.data(), to_json(posterior.data))


def _no_program(store: Store) -> StoreError:
    return StoreError(f"{store.folder} is of another model: the run was of a Stan program, and this is none")


def _check_described(store: Store, posterior: Posterior, *names: str) -> None:
    """Refuse a posterior whose description differs from the run's in one of the entries `names`."""
    theirs, ours = posterior.description.to_json(), store.asked.description.to_json()
    for name in names:
        if theirs[name] != ours[name]:
            raise StoreError(
                f"{store.folder} is of another model: its {name.replace('_', ' ')} is "
                f"{check.quote(ours[name])}, and that of this one {check.quote(theirs[name])}"
            )


def _check_executable(store: Store, posterior: Posterior) -> None:
    """Refuse to go on with chains of CmdStan by stanli, or the other way round."""
    ran = bool(store.asked.facts["executable"])
    if store.is_whole_chains and ran != bool(posterior.executable):
        raise ArgumentError(
            f"{store.folder} is of a run by {'CmdStan' if ran else 'stanli'}, and model is "
            f"{'no' if ran else 'a'} CmdStanModel with an executable: pass what the run had"
        )
