"""Commands that store traces while `oteval view` or `oteval serve` has the database open."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oteval.scoring.trace_folder import TraceFolder
from oteval.serve.inprocess import InProcess
from oteval.store import Store
from oteval.views.pages.server import serve_locally

from ..make import TRACES, chat
from .conftest import Run
from .test_private_files import outside

PAGES = {"program": "oteval view", "http": "http://127.0.0.1:1", "takes_traces": False}
SERVER = {"program": "oteval serve", "http": "http://127.0.0.1:1", "listener_pid": 1}
AGENT = "import oteval\noteval.agent(lambda text: text, name='asked')('hello')\n"


@pytest.fixture
def pages(oteval: Run) -> Iterator[Store]:
    """Return the store of a database that pages have open in this folder."""
    Path("agent.py").write_text(AGENT)
    with Store("oteval.duckdb") as store:
        server = store.serve(lambda _: b"", PAGES)
        yield store
        server.close()


def record() -> int:
    """Run an agent under `oteval run`."""
    return outside("run", "--", sys.executable, "agent.py")


def test_a_run_is_stored_while_the_pages_are_open(pages: Store):
    """The pages see the run at once, and nothing is left in the folder of traces."""
    before = pages.run_list.state()

    assert record() == 0

    assert pages.trajectories.count() == 1
    assert pages.run_list.state() != before
    assert not TraceFolder("oteval.duckdb").path.exists()


@pytest.mark.slow
def test_runs_at_once_are_all_stored(pages: Store):
    """Several commands load through the pages one after the other, and number no row twice."""
    commands = [threading.Thread(target=record) for _ in range(3)]
    for command in commands:
        command.start()
    for command in commands:
        command.join()

    assert pages.trajectories.count() == 3
    numbers = pages._connection.execute("SELECT count(*), count(DISTINCT seq) FROM spans")
    assert [*numbers.fetchall()] == [(3, 3)]


def test_ingest_names_the_pages_and_loads_through_them(pages: Store, oteval: Run):
    """A line says which command has the database open."""
    done = oteval("ingest", TRACES / "genai_openai_chat.json")

    assert done.status == 0
    assert done.err == (
        "oteval: oteval.duckdb: oteval view has it open; the traces are loaded through it\n"
    )
    assert pages.trajectories.count() == 3


@pytest.mark.parametrize("command", ["ingest", "pull"])
def test_a_server_that_takes_traces_is_named(oteval: Run, command: str):
    """Only `oteval serve` itself may store traces, and the line says so."""
    arguments = {
        "ingest": (TRACES / "genai_openai_chat.json",),
        "pull": ("phoenix", "http://127.0.0.1:1"),
    }
    with Store("oteval.duckdb") as store:
        server = store.serve(lambda _: b"", SERVER)
        done = oteval(command, *arguments[command])
        server.close()

    assert done.status == 2
    assert "oteval.duckdb: oteval serve has it open; send traces to the server" in done.err


def test_a_recorder_goes_on_when_the_pages_are_closed(oteval: Run):
    """`oteval.InProcess` uses the database through the pages, and opens the file afterwards."""
    store = Store("oteval.duckdb")
    server = store.serve(lambda _: b"", PAGES)
    recorder = InProcess("oteval.duckdb")
    recorder._write_rows([chat(1, 1, [("user", "a")], "b")], [])
    store.spans.renumber()
    store.spans.write([chat(2, 2, [("user", "a")], "b")])
    recorder._write_rows([chat(3, 3, [("user", "a")], "b")], [])
    assert store.spans.count() == (3, 0)
    server.close()
    recorder._store._connection._socket.close()
    store.close()

    recorder._write_rows([chat(4, 4, [("user", "a")], "b")], [])

    recorder.shutdown()
    with Store("oteval.duckdb") as store:
        assert store.spans.count() == (4, 0)
        numbers = store._connection.execute("SELECT count(DISTINCT seq) FROM spans").fetchall()
    assert numbers == [(4,)]


def test_the_notice_of_the_pages_is_private_and_says_what_they_are(oteval: Run):
    """Other commands find in it that the pages do not take traces."""
    seen: list[object] = []

    def look(_: str) -> None:
        with Store("oteval.duckdb") as client:
            assert client.server is not None
            seen.append((client.server.program, client.is_filled, client.server.pid))
            seen.append(oct(Path("oteval.duckdb.server.json").stat().st_mode & 0o777))
        raise KeyboardInterrupt

    with Store("oteval.duckdb") as store, pytest.raises(KeyboardInterrupt):
        serve_locally(store, on_ready=look)

    assert seen == [("oteval view", False, os.getpid()), "0o600"]


def test_a_servers_own_token_lets_this_users_commands_send(
    oteval: Run, monkeypatch: pytest.MonkeyPatch
):
    """The notice, which only this user can read, has a token of the server beside the others."""
    monkeypatch.delenv("OTEVAL_INGEST_TOKEN", raising=False)
    sent: list[str] = []

    class Client:
        """Stands for the client of a server."""

        def __init__(self, url: str, headers: dict[str, str]) -> None:
            sent.append(headers["Authorization"])
            self.url = url

        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr("oteval.base.clients.otlp_client.HttpClient", Client)
    folder = TraceFolder("oteval.duckdb")
    folder.create()
    (folder.path / f"{folder.prefix}1.jsonl").write_text("no OTLP\n")
    with Store("oteval.duckdb") as store:
        server = store.serve(lambda _: b"", {**SERVER, "token": "secret"})
        report = folder.transfer()
        server.close()

    assert sent == ["Bearer secret"]
    assert report.server == SERVER["http"]


def failing(error: BaseException) -> Callable[..., None]:
    """Return a function that fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("place", ["load_files", "refresh_runs", "store_in_turn"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RuntimeError("Query interrupted")], ids=["Python", "DuckDB"]
)
def test_ctrl_c_during_ingest_is_one_line(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
):
    """Also while DuckDB works, which has no exception for it: status 130, and no traceback."""
    monkeypatch.setattr(f"oteval.cli.ingest.{place}", failing(error))

    done = oteval("ingest", TRACES / "genai_openai_chat.json")

    assert (done.status, done.out) == (130, "")
    assert done.err.strip() == "oteval: interrupted; finished work is kept"
