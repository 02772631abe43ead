"""A run that goes on, as a page: what is seen of it, who may see it, and that it ends with the run."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stanadapt
import stores
from pages import EVIL, Elements
from stanadapt import cli
from stanadapt.errors import OutputError, StoreError
from stanadapt.reports import document, watch
from stanadapt.reports.watch import FINISHED, HOST, KILLED, RUNNING, STOPPED, Page, Server, Watch
from stanadapt.result.stores.run_folder import lock

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    stores.sample(store=folder)
    return folder


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed on its way, with checkpoints of all chains."""
    folder = tmp_path_factory.mktemp("runs") / f"part{EVIL.replace('/', '')}"
    with stores.short_intervals(), stores.stopped_at(3):
        stores.sample(store=folder)
    return folder


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time, and matter to the test of what a browser gets alone."""
    if request.function is not test_what_a_browser_gets:
        monkeypatch.setattr(document, "draw_pictures", lambda idata: [])


def pages(folder: Path, stop: threading.Event | None = None) -> Iterator[Page]:
    return Watch(folder).pages(stop or threading.Event(), wait=0.0)


def test_a_run_that_is_over(finished: Path) -> None:
    (page,) = pages(finished)
    assert page.look.state == FINISHED
    assert [(chain.done, chain.percent, chain.stage) for chain in page.look.chains] == [
        (60, 100, "finished")
    ] * 2
    idata = stanadapt.load(finished)
    keys = {key.label: key.value for key in page.content["keys"]}
    assert keys["Largest R-hat"] == f"{stanadapt.summary(idata)['r_hat'].max():.3f}"
    assert "interrupted" not in str(page.content["verdict"])


def test_a_run_that_was_killed(broken: Path) -> None:
    *early, last = pages(broken)
    assert [page.look.state for page in early] == [
        RUNNING
    ]  # for so long as its process may be about to begin
    assert last.look.state == KILLED
    assert f"`stanadapt resume {broken}` goes on with it" in last.look.words
    assert any(finding.kind == "interrupted" for finding in last.content["findings"])


def test_a_run_that_was_stopped(tmp_path: Path) -> None:
    with stores.short_intervals():
        stores.sample(store=tmp_path / "run", until="1 gradients", draws=40)
    (page,) = pages(tmp_path / "run")
    assert page.look.state in (FINISHED, STOPPED)
    assert page.look.words.startswith("The run ")


def test_a_run_that_goes_on(broken: Path) -> None:
    stop = threading.Event()
    with lock(broken):
        first = next(pages(broken, stop))
        assert first.look.state == RUNNING
        assert all(0 < chain.done < chain.total == 60 for chain in first.look.chains)
        assert not any(finding.kind in ("interrupted", "short") for finding in first.content["findings"])
        assert first.content["verdict"].level in ("wait", "good")
    stop.set()
    assert list(pages(broken, stop)) == []


def test_a_page_for_each_checkpoint(tmp_path: Path) -> None:
    """Of a run that writes many checkpoints: each page has more than the one before, up to the end."""
    folder = tmp_path / "run"
    began = threading.Event()
    seen: list[Page] = []

    def follow() -> None:
        began.wait()
        seen.extend(Watch(folder).pages(threading.Event(), wait=0.0))

    def logp(x: Any) -> float:
        if (folder / "run.json").exists():
            began.set()
        return -0.5 * float(x @ x)

    follower = threading.Thread(target=follow)
    follower.start()
    target = stanadapt.Target.from_python(logp, 2)
    with stores.short_intervals():
        stores.sample(target, None, store=folder, warmup=60, draws=200)
    began.set()
    follower.join(120)
    assert not follower.is_alive()
    assert [page.version for page in seen] == list(range(1, len(seen) + 1))
    assert [page.look.state for page in seen] == [*[RUNNING] * (len(seen) - 1), FINISHED]
    done = [sum(chain.done for chain in page.look.chains) for page in seen]
    assert done == sorted(done)
    assert done[-1] == 2 * 260


def test_folders_of_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store of a run"):
        Watch(tmp_path)
    (tmp_path / "zarr.json").write_text("{}")  # as ArviZ writes results
    with pytest.raises(StoreError, match=r"it is a zarr group: give what xarray\.open_datatree"):
        Watch(tmp_path)


def ask(server: Server, path: str, host: str | None = None, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    return connection.getresponse()


@pytest.fixture
def server(broken: Path) -> Iterator[Server]:
    with Server(Watch(broken), 0) as opened:
        yield opened


def test_who_may_look(server: Server) -> None:
    whole = f"/{server.token}/"
    assert ask(server, whole).status == 200
    assert ask(server, whole, f"localhost:{server.port}").status == 200
    for stranger in ("evil.example", f"evil.example:{server.port}", HOST, f"{HOST}:1", ""):
        answer = ask(server, whole, stranger)
        assert (answer.status, b"heading" in answer.read()) == (421, False)
    for path in ("/", "/state", f"/{'x' * len(server.token)}/", f"{whole}../", f"{whole}etc/passwd"):
        assert ask(server, path).status == 404
    assert ask(server, whole, method="POST").status == 501
    headers = dict(ask(server, whole).getheaders())
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Frame-Options"] == "DENY"


def test_no_other_machine_may_look(server: Server) -> None:
    assert server._http.socket.getsockname()[0] == HOST
    with pytest.raises(OutputError, match=f"port {server.port} on {HOST} cannot be used"):
        Server(server.watch, server.port)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: "])
@pytest.mark.parametrize("goes_on", [False, True], ids=["silent", "slow"])
def test_half_open_connections_end(
    sent: bytes, goes_on: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of who says nothing more, and of who sends a byte now and then."""
    assert watch.ASKING_SECONDS == 10.0
    monkeypatch.setattr(watch, "ASKING_SECONDS", 0.2)
    with socket.create_connection((HOST, server.port)) as asking:
        asking.sendall(sent)
        answer = b"nothing yet"
        asking.settimeout(0.05 if goes_on else 20.0)
        for _ in range(400):
            try:
                answer = asking.recv(1_000)
                break
            except TimeoutError:
                with contextlib.suppress(ConnectionError):  # it was ended just now
                    asking.sendall(b"x" if goes_on else b"")
            except ConnectionError:
                answer = b""
                break
    assert answer != b"nothing yet"  # the end, or what is wrong with the request


def test_who_does_not_read_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is longer than the system keeps for somebody ends, and takes its thread along."""
    monkeypatch.setattr(watch, "ASKING_SECONDS", 0.2)
    monkeypatch.setattr(server, "answer", lambda path: ("text/plain", "x" * 50_000_000))
    before = set(threading.enumerate())
    with socket.create_connection((HOST, server.port)) as asking:
        asking.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
        assert asking.recv(10)
        for thread in set(threading.enumerate()) - before:
            thread.join(20.0)
            assert not thread.is_alive()


def test_what_a_browser_gets(server: Server) -> None:
    path = f"/{server.token}/"
    before = Elements(ask(server, path).read().decode())
    assert "The first page is being made." in before.text
    assert json.loads(ask(server, f"{path}state").read()) == {"version": 0, "over": False}
    assert ask(server, f"{path}contents").status == 404
    *_, last = pages(server.watch.folder)
    server.show(last)
    assert json.loads(ask(server, f"{path}state").read()) == {"version": last.version, "over": True}
    answer = json.loads(ask(server, f"{path}contents").read())
    after = Elements(ask(server, path).read().decode())
    part = Elements(answer["html"])
    for each in (part, after):
        assert "Chain 1" in each.text
        assert "alert('evil')" in each.text  # the folder's name
        assert "img" not in {tag for tag, _ in each.found}
        assert len([tag for tag, _ in each.found if tag == "progress"]) == 2
    assert answer["html"].count(EVIL.replace("/", "")) == 0
    assert answer["colours"].startswith("--x")
    assert [id for id, times in Counter(after.attributes("id")).items() if times > 1] == []


def test_the_end_waits_for_a_browser(server: Server) -> None:
    *_, last = pages(server.watch.folder)
    server.show(last)
    server.wait_for_browsers(60.0)  # nobody has ever asked: at once
    assert json.loads(ask(server, f"/{server.token}/state").read())["over"]
    waiter = threading.Thread(target=server.wait_for_browsers, args=(60.0,), daemon=True)
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive()
    ask(server, f"/{server.token}/contents").read()
    waiter.join(30.0)
    assert not waiter.is_alive()
    server.taken = 0
    ask(server, f"/{server.token}/state").read()
    ask(server, f"/{server.token}/gone").read()
    server.wait_for_browsers(60.0)  # the one who asked has closed the page


def test_the_command(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "last.html"
    done = CliRunner().invoke(cli.main, ["watch", str(finished), "--no-browser", "--out", str(out)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith(f"Watching {finished} at http://{HOST}:")
    assert "The run is over." in lines
    assert "Draw it again" in out.read_text("utf-8")
    again = CliRunner().invoke(cli.main, ["watch", str(finished), "--no-browser", "--out", str(out)])
    assert again.exit_code == 2
    assert "use --force to replace it" in again.output
    nothing = CliRunner().invoke(cli.main, ["watch", str(tmp_path)])
    assert nothing.exit_code == 1
    assert "is no store of a run" in nothing.output


def test_a_port_that_is_taken(broken: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(OutputError, match="cannot be used"):
            Server(Watch(broken), taken.getsockname()[1])
