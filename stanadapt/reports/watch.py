"""A page that follows a run while it is going on.

A server that listens on this machine alone shows a report on the draws of the last checkpoints. Its address
has a random part, so other users of the machine do not find it; and a request must name this machine as its
host, so a page from elsewhere cannot trick a browser into reading it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import check
from ..diagnostics.table import duration
from ..errors import OutputError
from ..result.stores.disk_draws import read_store
from ..result.stores.run_folder import is_locked
from ..result.stores.store import Store, open_store
from .document import contents
from .page import Picture, fill, render
from .vector import dark_rules

if TYPE_CHECKING:
    from ..result.container import InferenceData

HOST = "127.0.0.1"
LOOK_SECONDS = 1.0  # between looks for new checkpoints
SHARE = 0.2  # largest share of the time for making pages: the run needs the cores
ASKING_SECONDS = 10.0  # a browser has so long for its request, or half-open connections would add up
FAREWELL_SECONDS = 90.0  # the last page waits so long for a browser; one in the background asks once a minute
RUNNING, FINISHED, STOPPED, KILLED = "running", "finished", "stopped", "killed"
_PATIENCE = 3  # a run counts as killed when so many looks found no process and no end


class ChainState(NamedTuple):
    """The progress of a chain."""

    chain: int
    done: int  # iterations
    total: int
    stage: str

    @property
    def percent(self) -> int:
        return 100 * self.done // max(1, self.total)


class Look(NamedTuple):
    """A run at one moment."""

    state: str  # RUNNING, FINISHED, STOPPED or KILLED
    words: str
    chains: list[ChainState]
    checkpoints: tuple[str, ...]  # two looks differ if these differ


class Page(NamedTuple):
    """One version of the page that browsers get."""

    version: int
    look: Look
    content: dict[str, Any]
    seconds: float  # that it took to make


class Watch:
    """Follows the run in a folder; `pages` makes a page at each new checkpoint."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open the folder.

        Raises
        ------
        StoreError
            It holds no run, it is damaged, or another version wrote it.
        """
        self.shown = os.fspath(folder)
        self.folder = open_store(folder).folder
        self._orphaned = 0

    def look(self) -> Look:
        """Look at the progress of the run. Raises StoreError if its folder is damaged."""
        store = open_store(self.folder)
        ended = store.read_end()
        if ended:
            state = FINISHED if ended.get("finished") else STOPPED
        else:
            self._orphaned = 0 if is_locked(self.folder) else self._orphaned + 1
            state = KILLED if self._orphaned >= _PATIENCE else RUNNING
        chains = [_chain_state(store, i, state) for i in range(store.asked.job.chains)]
        return Look(state, _words(state, self.shown, ended), chains, _checkpoints(store))

    def result(self) -> InferenceData:
        """Read the draws that the run has written. Raises StoreError."""
        return read_store(open_store(self.folder))

    def pages(self, stop: threading.Event, wait: float = LOOK_SECONDS) -> Iterator[Page]:
        """Make a page for the beginning, one for each new checkpoint, and one for the end, which is the last.

        Raises
        ------
        StoreError
            The folder is damaged.
        """
        before: Look | None = None
        version, seconds, free_from = 0, 0.0, 0.0
        while not stop.is_set():
            look = self.look()
            is_over = look.state != RUNNING
            if is_over or (look != before and time.monotonic() >= free_from):
                began = time.monotonic()
                content = contents(self.result(), is_running=look.state == RUNNING)
                seconds = time.monotonic() - began
                free_from = time.monotonic() + seconds / SHARE
                version += 1
                yield Page(version, look, content, seconds)
                before = look
                if is_over:
                    return
            stop.wait(wait)


class Server:
    """Serves the pages of a watch. It is a context manager, and the server stops at its end."""

    def __init__(self, watch: Watch, port: int) -> None:
        """Take the port; 0 means any free port.

        Raises
        ------
        OutputError
            The port is taken.
        """
        self.watch = watch
        self.page: Page | None = None
        self.error = ""
        self.asked_at = float("-inf")  # when a browser last asked
        self.taken = 0  # the newest version that a browser has fetched
        self.changed = threading.Condition()
        self.token = secrets.token_urlsafe(12)
        handler = type("Handler", (_Handler,), {"owner": self})
        try:
            self._http = _Http((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise OutputError(f"port {port} on {HOST} cannot be used: {check.one_line(error)}") from error
        self.port = self._http.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def __enter__(self) -> Server:
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def show(self, page: Page) -> None:
        """Show browsers a new page."""
        with self.changed:
            self.page = page
            self.changed.notify_all()

    def wait_for_browsers(self, seconds: float = FAREWELL_SECONDS) -> None:
        """Wait until a browser that asked a short time ago has fetched the last page."""
        assert self.page is not None
        last = self.page.version
        late = time.monotonic() + seconds
        with self.changed:
            while self.taken < last and self.asked_at > late - 2 * seconds and time.monotonic() < late:
                self.changed.wait(late - time.monotonic())

    def answer(self, path: str) -> tuple[str, str] | None:
        """Return the type and the text at a path below the token; None if there is nothing."""
        page = self.page
        with self.changed:
            self.asked_at = time.monotonic()
        if path == "gone":
            with self.changed:
                self.asked_at = float("-inf")
                self.changed.notify_all()
            return "application/json", "{}"
        if path == "":
            self._note(page)
            return "text/html", _whole(page, self.watch.shown)
        if path == "state":
            return "application/json", json.dumps(_state(page))
        if path == "contents" and page is not None:
            self._note(page)
            return "application/json", json.dumps(_state(page) | _part(page, self.watch.shown))
        return None

    def _note(self, page: Page | None) -> None:
        """Note that a browser fetches this page."""
        with self.changed:
            self.taken = max(self.taken, page.version if page else 0)
            self.changed.notify_all()


class _Http(ThreadingHTTPServer):
    """A server with a thread for each connection. The threads end with the process."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the browser has only closed the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers requests that name this machine as their host."""

    owner: Server
    server_version, sys_version = "stanadapt", ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(ASKING_SECONDS)  # for each byte, and for the answer
        self.late = threading.Timer(ASKING_SECONDS, self._hang_up)
        self.late.daemon = True
        self.late.start()

    def finish(self) -> None:
        self.late.cancel()
        super().finish()

    def _hang_up(self) -> None:
        """Stop to read, even if the other side still sends a byte now and then."""
        with contextlib.suppress(OSError):  # the connection has ended
            self.connection.shutdown(socket.SHUT_RD)

    def do_GET(self) -> None:
        self.late.cancel()  # the request is complete
        port = self.owner.port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._reply(421, "text/plain", "This server answers to its own name alone.")
            return
        start = f"/{self.owner.token}/"
        path = self.path.partition("?")[0]
        answer = self.owner.answer(path[len(start) :]) if path.startswith(start) else None
        if answer is None:
            self._reply(404, "text/plain", "There is nothing here.")
            return
        self._reply(200, *answer)

    def _reply(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *_: Any) -> None:
        """Print nothing: the terminal shows the state of the run."""


def _chain_state(store: Store, chain: int, state: str) -> ChainState:
    job = store.asked.job
    total = job.warmup + job.draws
    held = store.checkpoint(chain)
    if state == FINISHED:
        return ChainState(chain, total, total, "finished")
    if held is None:
        return ChainState(chain, 0, total, "no checkpoint yet")
    value = held["value"]
    if value.warmup_iterations is None:
        return ChainState(chain, value.done, total, "warm-up")
    # Warm-up may have ended before its limit; then the chain has fewer iterations in total.
    total = value.warmup_iterations + job.draws
    return ChainState(chain, value.done, total, "finished" if value.done >= total else "sampling")


def _checkpoints(store: Store) -> tuple[str, ...]:
    """Return the names of the checkpoint files, which hold a number and a hash."""
    folder = store.folder / "chains"
    return tuple(sorted(f"{path.parent.name}/{path.name}" for path in folder.glob("*/*.npz")))


def _words(state: str, folder: str, ended: dict[str, Any]) -> str:
    again = f"`stanadapt resume {folder}` goes on with it"
    if state == RUNNING:
        return "The run goes on."
    if state == FINISHED:
        return "The run is over."
    if state == STOPPED:
        return f"{ended.get('ended_by') or 'A limit'} ended the run: {again}."
    return f"The run was killed, or has failed: {again}."


def _state(page: Page | None) -> dict[str, Any]:
    return {"version": page.version if page else 0, "over": page is not None and page.look.state != RUNNING}


def _content(page: Page | None, shown: str) -> dict[str, Any]:
    heading = Path(shown).resolve().name
    if page is None:
        return {"heading": heading, "look": None}
    return page.content | {"heading": heading, "look": page.look, "took": duration(page.seconds)}


def _whole(page: Page | None, shown: str) -> str:
    content = _content(page, shown)
    pictures: list[Picture] = content.pop("pictures", [])
    return render(
        "watch.html",
        title=f"{content['heading']}: watch",
        pictures=pictures,
        scripts=["watch.js"],
        connects=True,
        version=page.version if page else 0,
        over=_state(page)["over"],
        **content,
    )


def _part(page: Page, shown: str) -> dict[str, Any]:
    content = _content(page, shown)
    return {
        "html": fill("live.html", **content),
        "colours": dark_rules(picture.markup for picture in content["pictures"]),
    }
