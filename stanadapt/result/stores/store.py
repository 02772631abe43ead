"""The store of a run: it keeps its chains while they go on, and gives them back to a run that goes on.

run_folder.py lists the files of its folder. reopening.py opens the model of the run again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import xarray

from ... import check, samplers
from ...errors import StoreError, warn
from ...model import PROGRAM_BACKENDS
from ...model.data import to_json
from ...model.description import Description
from ...run.draws import Draws, Stack, row_bytes
from ...run.inits import Init
from ...run.job import Job
from ...run.preparation.memory import stays_on_disk
from ...run.preparation.prepare import Prepared
from ...run.request import Request
from ...run.stopping import Until
from ...run.warmup import pilot
from ..build import data_groups
from ..machine import machine
from ..schema import Schema
from .admission import check_files
from .blocks import Blocks
from .checkpoint import flush_files, read_checkpoint, write_checkpoint, write_whole
from .encoding import EncodingError, decode, encode
from .identity import density_of
from .run_folder import (
    ASIDE,
    ASKED,
    CHAINS,
    DATA,
    DRAWS,
    END,
    LOCK,
    PROGRAM,
    RUN,
    check_folder,
    failures,
    is_locked,
    resolve,
)

FORMAT = 1  # of the folder
BLOCK_BYTES = 2**23  # of a block of a chain's rows, about
SECONDS = 10.0  # between checkpoints of a chain
SHARE = 0.01  # of the time that checkpoints may take


class Asked(NamedTuple):
    """The description of a run in its folder."""

    request: Request  # without starts
    job: Job
    inits: list[Init]
    description: Description
    notes: dict[str, Any]
    block: int  # rows of a block
    facts: dict[str, Any]  # versions, processor, hashes of the other files, how it was opened


# What `Asked.facts` has.
_FACTS = ("program", "data", "starts", "labels", "backend", "executable", "machine")


class Store:
    """The folder of a run, and the keeper of its chains (`run.workers.turns.Keeper`)."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.folder, self.asked = folder, asked
        self.schema = Schema.of(asked.request, asked.description)
        self.blocks = Blocks(folder / DRAWS, folder / ASIDE, self.schema, asked.job.chains, asked.block)
        self._due = [time.monotonic() + SECONDS] * asked.job.chains

    @property
    def is_lazy(self) -> bool:
        """Whether the draws are too many for memory."""
        return stays_on_disk(self.asked.request, self.asked.job, self.asked.description)

    @property
    def is_whole_chains(self) -> bool:
        """Whether chains cannot go on from within."""
        return samplers.facts(self.asked.job.method).whole_chains

    def close(self) -> None:
        """Write no more checkpoints: a second Ctrl-C abandons the run, and its threads may still run."""
        self._due = [float("inf")] * len(self._due)

    def is_due(self, chain: int) -> bool:
        return time.monotonic() >= self._due[chain]

    def keep(self, chain: int, value: Any, draws: Draws, warmup: Draws | None) -> None:
        began = time.monotonic()
        with failures(self.folder):
            flush_files(self.blocks.flush(chain))
            tails = {"draws": _tail(draws), "warmup": None if warmup is None else _tail(warmup)}
            write_checkpoint(self._chain(chain), {"value": value, **tails})
        ended = time.monotonic()
        self._due[chain] = ended + max(SECONDS, (ended - began) / SHARE)

    def rooms(self) -> tuple[tuple[Stack, Stack | None], list[Draws], list[Draws | None], list[Any]]:
        """Room for draws and warm-up, with the rows and the value that each chain has already.

        Raises
        ------
        StoreError
            A file is damaged, or by another version.
        """
        job, description = self.asked.job, self.asked.description
        room = self.asked.block if self.is_lazy else None
        draws = Stack.empty(job.chains, job.rows, description, job, room)
        warmup = Stack.empty(job.chains, job.warmup_rows, description, job, room) if job.save_warmup else None
        held = [self.checkpoint(i) for i in range(job.chains)]
        values = [one and one["value"] for one in held]
        each = [self._restore(i, draws, one and one["draws"], job.rows) for i, one in enumerate(held)]
        early: list[Draws | None] = [None] * job.chains
        if warmup is not None:
            # A result has as many rows of warm-up as every chain has, and leaves no others on the disk.
            is_over = all(value is not None and value.warmup_iterations is not None for value in values)
            most = min(int(one["warmup"]["n"]) for one in held) if is_over else job.warmup_rows
            early = [
                self._restore(i, warmup, one and one["warmup"], most, warmup=True)
                for i, one in enumerate(held)
            ]
        return (draws, warmup), each, early, values

    def checkpoint(self, chain: int) -> Any:
        """The last checkpoint of a chain; None where there is none. Raises StoreError."""
        folder = self._chain(chain)
        samplers.sampler(self.asked.job.method), pilot()  # whose classes it names
        try:
            held = read_checkpoint(folder)
        except (EncodingError, OSError) as error:
            raise StoreError(f"{folder}: a checkpoint cannot be read: {check.one_line(error)}") from error
        if held is not None and held["value"].index != chain:
            raise StoreError(f"{folder}: this is the checkpoint of chain {held['value'].index}, not {chain}")
        return held

    def state(self) -> str:
        """Whether the run goes on, or what has ended it, in words."""
        ended = self.read_end()
        if ended:
            return f"ended by {ended.get('ended_by') or 'a limit'}: stanadapt.resume goes on with it"
        try:
            if is_locked(self.folder):
                return "it goes on at this moment"
        except StoreError:
            return "whether it goes on cannot be seen, since its lock cannot be opened"
        return "it was killed, or has failed: stanadapt.resume goes on with it"

    def end(self, **facts: Any) -> None:
        """Say how the run has ended."""
        text = json.dumps({"hash": _hash(json.dumps(facts)), "ended": facts})
        with failures(self.folder):
            write_whole(self.folder / END, text.encode())

    def read_end(self) -> dict[str, Any]:
        """How the run has ended; nothing if it has not, was killed, or the file that says so is damaged."""
        try:
            held = json.loads((self.folder / END).read_text(encoding="utf-8"))
            facts: dict[str, Any] = held["ended"]
            return facts if _hash(json.dumps(facts)) == held["hash"] else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def begin_again(self, job: Job, request: Request) -> None:
        """Go on, maybe with more draws."""
        with failures(self.folder):
            (self.folder / END).unlink(missing_ok=True)
            self.blocks.grow(job.rows, has_blocks=self._has_blocks())
            self.blocks.remove_torn()
        self.asked = self.asked._replace(job=job, request=request._replace(coords=self.asked.request.coords))
        self._write_run()

    def code(self) -> str:
        """The program; empty where the run has none. Raises StoreError where it is damaged."""
        digest = self.asked.facts["program"]
        return "" if digest is None else self._text(PROGRAM, digest)

    def data(self) -> str:
        """The data as JSON text. Raises StoreError where they are damaged."""
        return self._text(DATA, self.asked.facts["data"])

    def check_machine(self, library: str) -> None:
        """Say where this machine or its packages differ, since draws need not be the same to the last bit.

        Raises
        ------
        StoreError
            The run was begun by another version of this package.
        """
        was, now = self.asked.facts["machine"], machine(library)
        if was.get("stanadapt") != now["stanadapt"]:
            raise StoreError(
                f"{self.folder} was begun by stanadapt {was.get('stanadapt')}, and this is "
                f"{now['stanadapt']}: go on with that version. stanadapt.load reads what there is"
            )
        differences = [
            f"{name} was {was.get(name)} and is {now[name]}" for name in now if was.get(name) != now[name]
        ]
        if differences:
            warn(
                f"{self.folder} goes on elsewhere: {'; '.join(differences)}. The draws have the same law, "
                "but they need not be those that the run would have had, bit for bit"
            )

    def _write_run(self) -> None:
        asked = self.asked
        request = asked.request._replace(inits=None, coords={}, settings=None, warm=None)._asdict()
        job = asked.job._asdict() | {
            "settings": samplers.user_values(samplers.sampler(asked.job.method), asked.job.settings)
        }
        content = {
            "request": request
            | {
                "dims": {name: list(dims) for name, dims in asked.request.dims.items()},
                "until": None if asked.request.until is None else dataclasses.asdict(asked.request.until),
            },
            "job": job,
            "notes": asked.notes,
            "description": asked.description.to_json(),
            "block": asked.block,
            "facts": asked.facts,
        }
        text = json.dumps({"format": FORMAT, "hash": _hash(json.dumps(content)), "run": content}, indent=1)
        with failures(self.folder):
            write_whole(self.folder / RUN, text.encode())

    def _has_blocks(self) -> bool:
        """Whether checkpoints count rows whose values are in blocks only."""
        held = [one for i in range(self.asked.job.chains) if (one := self.checkpoint(i))]
        rows = [one[kind]["n"] for one in held for kind in ("draws", "warmup") if one[kind] is not None]
        return max(rows, default=0) >= self.asked.block

    def _chain(self, chain: int) -> Path:
        return self.folder / CHAINS / str(chain)

    def _restore(self, chain: int, stack: Stack, tail: Any, most: int, *, warmup: bool = False) -> Draws:
        """The room of a chain with the rows that it has drawn, `most` of them at most."""
        sink = _Sink(self, chain, stack.rows, warmup)
        draws = stack.chain(chain)
        if tail is not None:
            n, last = int(tail["n"]), Draws(tail["values"], tail["x"], tail["stats"])
            before = n - last.rows
            if n > most:
                n, whole, first = most, last, before
                before = n // self.asked.block * self.asked.block
                if before < first:
                    last = whole.room(n - before)
                    self.blocks.read(chain, last, before, n, warmup=warmup)
                else:
                    last = whole.part(0, n - before)
            if not self.is_lazy:
                self.blocks.read(chain, draws, 0, before, warmup=warmup)
            draws.sink = sink
            draws.restore(n, last)
        draws.sink = sink
        return draws

    def _text(self, name: str, digest: str) -> str:
        try:
            text = (self.folder / name).read_bytes().decode()  # with the ends of lines that it has
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.folder / name} cannot be read: {check.one_line(error)}") from error
        if _hash(text) != digest:
            raise StoreError(f"{self.folder / name} is damaged or of another run: it has changed since")
        return text


class _Sink:
    """Where the full blocks of a chain go, see `run.draws.Sink`."""

    def __init__(self, store: Store, chain: int, rows: int, warmup: bool) -> None:
        self.store, self.chain, self.rows, self.warmup = store, chain, rows, warmup
        self.block = store.asked.block

    def put(self, first: int, rows: Draws) -> None:
        with failures(self.store.folder):
            self.store.blocks.put(self.chain, first, rows, self.rows, warmup=self.warmup)


def create_store(path: str | os.PathLike[str], request: Request, prepared: Prepared) -> Store:
    """The folder of a run that is about to begin.

    Raises
    ------
    StoreError
        It cannot be made or written.
    """
    posterior, job = prepared.posterior, prepared.job
    folder = check_folder(path)
    is_program = bool(posterior.code)
    data = to_json(posterior.data)
    coords = {name: _labels(name, given) for name, given in request.coords.items()}
    try:
        starts = encode({"inits": list(prepared.inits), "coords": coords})
    except EncodingError as error:
        raise StoreError(f"inits or coords cannot be written: {error}") from error
    facts = {
        "program": _hash(posterior.code) if is_program else None,
        "data": _hash(data),
        "starts": hashlib.sha256(starts).hexdigest(),
        "labels": "",
        "backend": posterior.model.backend if is_program else "auto",
        "executable": posterior.executable,
        "seed": posterior.seed,
        "density": density_of(posterior),
        "machine": machine(posterior.library),
    }
    size = row_bytes(job, posterior.n_values, posterior.dim)
    block = int(np.clip(BLOCK_BYTES // size, 16, 2**20))
    request = request._replace(coords=cast(Any, coords))
    asked = Asked(request, job, prepared.inits, posterior.description, dict(prepared.notes), block, facts)
    store = Store(folder, asked)
    with failures(folder, "No run has begun"):
        for path in folder.iterdir():  # of one that was killed before it began
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for i in range(job.chains):
            (folder / CHAINS / str(i)).mkdir(parents=True)
        if is_program:
            write_whole(folder / PROGRAM, posterior.code.encode())
        write_whole(folder / DATA, data.encode())
        write_whole(folder / ASKED, starts)
        for name, group in data_groups(posterior, store.schema).items():
            store.blocks.write_group(name, group)
        facts["labels"] = store.blocks.data_digest()
        store._write_run()
    return store


def open_store(path: str | os.PathLike[str]) -> Store:
    """The folder of a run.

    Raises
    ------
    ArgumentError
        `path` is no path, or none in UTF-8.
    StoreError
        It is no store, is damaged, or was written by another version.
    """
    folder = resolve(path)
    check_files(folder, (folder / DRAWS, folder / ASIDE))
    try:
        text = (folder / RUN).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        bare = (folder / "zarr.json").is_file()
        hint = "; it is a zarr group: give what xarray.open_datatree makes of it" if bare else ""
        raise StoreError(
            f"{path} is no store of a run: its {RUN} cannot be read ({check.one_line(error)}){hint}"
        ) from error
    try:
        held = json.loads(text)
        if held["format"] != FORMAT:
            raise StoreError(
                f"{path} is a store of format {held['format']}, and this version of stanadapt reads {FORMAT}"
            )
        content = held["run"]
        if _hash(json.dumps(content)) != held["hash"]:
            raise StoreError(f"{folder / RUN} is damaged: its content does not have the hash that it names")
        if lacking := [name for name in _FACTS if name not in content["facts"]]:
            raise StoreError(f"{folder / RUN} lacks {', '.join(lacking)}: another version has written it")
        _check_facts(content["facts"])
        starts = (folder / ASKED).read_bytes()
        if hashlib.sha256(starts).hexdigest() != content["facts"]["starts"]:
            raise StoreError(f"{folder / ASKED} is damaged or of another run: it has changed since")
        asked = decode(starts)
        job = _checked_job(Job(**content["job"]))
        job = job._replace(settings=samplers.resolve(samplers.sampler(job.method), job.settings))
        request = Request(**content["request"])._replace(coords=asked["coords"], settings=job.settings)
        return Store(
            folder,
            Asked(
                request._replace(
                    until=Until.parse(request.until),
                    log_likelihood=dict(request.log_likelihood),
                    posterior_predictive=dict(request.posterior_predictive),
                ),
                job,
                asked["inits"],
                Description(**content["description"]),
                content["notes"],
                check.integer("block", content["block"], 1, check.LARGEST_COUNT),
                content["facts"],
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read: it is damaged, or by another version ({type(error).__name__}: "
            f"{check.one_line(error)})"
        ) from error


def _checked_job(job: Job) -> Job:
    """A job with counts that native code can bear. Raises ArgumentError."""
    most = check.LARGEST_COUNT
    for name, least in (("warmup", 0), ("draws", 1), ("thin", 1), ("chains", 1)):
        check.integer(name, getattr(job, name), least, most)
    check.integer("seed", job.seed, 0)
    for name in ("save_warmup", "keep_unconstrained"):
        check.boolean(name, getattr(job, name))
    return job


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts of other types, and a backend from outside. Raises ValueError or TypeError."""
    if facts["program"] is not None:
        check.choice("backend", facts["backend"], PROGRAM_BACKENDS)
    check.integer("seed", facts.get("seed", 0), 0)
    np.array(facts.get("density", []), float)


def _tail(draws: Draws) -> Mapping[str, Any]:
    tail = draws.tail()
    return {"n": draws.n, "values": tail.values, "x": tail.x, "stats": tail.stats}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _labels(name: str, given: Any) -> np.ndarray:
    """Coordinates as an array that a file can hold."""
    array = np.asarray(
        xarray.Variable(name, list(given)).values
    )  # which makes dates of objects that are some
    if array.dtype == object and all(isinstance(label, str) for label in array):
        array = array.astype(str)
    if array.dtype.kind not in "biufUMm":
        raise check.refusal(
            f"coords[{name!r}]", given, "numbers, texts or dates, so that the store can hold them"
        )
    return array
