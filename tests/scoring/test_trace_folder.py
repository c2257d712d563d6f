"""Traces that running agents leave beside a database are loaded once, or sent to its server."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base import files
from oteval.base.files import append_shared
from oteval.scoring.trace_folder import TraceFolder
from oteval.store import Store

from ..commands import Run
from ..otlp_endpoint import Downstream, listening


def line(number: int) -> bytes:
    """Return a line of OTLP/JSON with one span: an agent's model call."""
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": messages,
    }
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat m",
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in attributes.items()
        ],
    }
    request = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    return json.dumps(request).encode() + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> TraceFolder:
    """Return the folder of a database, with the spans 1 and 2 that a command has left."""
    found = TraceFolder(str(tmp_path / "t.duckdb"))
    found.create()
    append_shared(found.path / "10-a.jsonl", line(1))
    append_shared(found.path / "11-b.jsonl", line(2))
    found.release()
    return found


@pytest.fixture
def endpoint() -> Iterator[Downstream]:
    """Return a scripted endpoint, in place of a server."""
    with listening() as state:
        yield state


def spans_in(tmp_path: Path) -> int:
    """Return the number of spans in the database."""
    with Store(tmp_path / "t.duckdb", create=False) as store:
        return store.spans.count()[0]


def test_files_are_loaded_while_processes_write_on(folder: TraceFolder, tmp_path: Path) -> None:
    """A second transfer has only the new span, and an empty folder can be removed."""
    assert folder.path.stat().st_mode & 0o777 == 0o700
    first = folder.transfer()
    append_shared(folder.path / "10-a.jsonl", line(3))
    second = folder.transfer()
    folder.release()

    assert (first.spans, len(first.changed)) == (2, 2)
    assert (second.spans, len(second.changed)) == (1, 1)
    assert spans_in(tmp_path) == 3
    assert not folder.path.exists()


def test_files_of_a_killed_loader_are_loaded_and_nothing_twice(
    folder: TraceFolder, tmp_path: Path
) -> None:
    """It may have loaded a file that it had taken away, or not."""
    loaded = folder.path / "10-a.jsonl"
    content = loaded.read_bytes()
    folder.transfer()
    (folder.path / "10-a.1234.taken").write_bytes(content + line(4))

    report = folder.transfer()

    assert len(report.changed) == 1
    assert spans_in(tmp_path) == 3
    assert list(folder.path.iterdir()) == []


def test_a_line_that_a_killed_process_wrote_half_is_reported(folder: TraceFolder) -> None:
    """Everything before it is loaded."""
    with (folder.path / "10-a.jsonl").open("ab") as file:
        file.write(line(3)[:100])

    report = folder.transfer()

    assert (report.spans, report.problem_count, report.error) == (2, 1, "")


def test_without_traces_no_database_is_created(tmp_path: Path) -> None:
    """A command without agents leaves nothing behind."""
    folder = TraceFolder(str(tmp_path / "t.duckdb"))
    folder.create()

    assert folder.transfer().spans == 0
    folder.release()
    assert list(tmp_path.iterdir()) == []


def test_files_are_kept_while_another_process_holds_the_database(
    folder: TraceFolder, tmp_path: Path
) -> None:
    """The report says why; later they are loaded."""
    with Store(tmp_path / "t.duckdb"):
        report = folder.transfer(patience=0.2)

    assert "has it open" in report.error
    assert folder.transfer().spans == 2


def test_a_file_that_a_stopped_process_holds_is_left(
    folder: TraceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are loaded, and it is loaded once the process goes on."""
    monkeypatch.setattr(files, "_PATIENCE", 0.0)
    with (folder.path / "10-a.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert folder.transfer().spans == 1

    assert folder.transfer().spans == 1


def test_a_running_server_gets_the_traces(
    folder: TraceFolder, tmp_path: Path, endpoint: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that has the database open gets each line, with the token."""
    monkeypatch.setenv("OTEVAL_INGEST_TOKEN", "t0ken")
    with Store(tmp_path / "t.duckdb") as store:
        server = store.serve(lambda _: b"", {"http": endpoint.url})
        report = folder.transfer()
        server.close()

    assert (report.spans, report.server, report.error) == (2, endpoint.url, "")
    assert [json.loads(body) for body in endpoint.bodies()] == [
        json.loads(line(number)) for number in (1, 2)
    ]
    assert endpoint.requests[0][1]["Authorization"] == "Bearer t0ken"
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "kept", "error"), [((503, {}), 2, "503"), ((400, {}), 0, "")], ids=str
)
def test_a_server_that_does_not_accept_traces(
    folder: TraceFolder,
    tmp_path: Path,
    endpoint: Downstream,
    answer: tuple[int, Any],
    kept: int,
    error: str,
) -> None:
    """Those that it may accept later are kept; those that it refuses are counted."""
    endpoint.answers += [answer, answer]
    with Store(tmp_path / "t.duckdb") as store:
        server = store.serve(lambda _: b"", {"http": endpoint.url})
        report = folder.transfer()
        server.close()

    assert (len(list(folder.path.iterdir())), error in report.error) == (kept, True)
    assert report.problem_count == 2 - kept


def test_ingest_loads_the_files_that_were_left(
    folder: TraceFolder, tmp_path: Path, oteval: Run
) -> None:
    """They are loaded together with another file, and when they are named themselves."""
    (tmp_path / "more.jsonl").write_bytes(line(5))

    done = oteval("ingest", "more.jsonl", folder.path / "10-a.jsonl", "--db", "t.duckdb")

    assert done.status == 0
    assert "2 spans that oteval run had left there" in done.err
    assert "3 trajectories new" in done.out
    assert not folder.path.exists()


def test_commands_that_share_a_folder_load_their_own_files(tmp_path: Path) -> None:
    """Each sees its own spans; those of a command that has ended are loaded by the next one."""
    one, other = (TraceFolder(str(tmp_path / "t.duckdb")) for _ in range(2))
    for number, folder in ((1, one), (2, other)):
        folder.create()
        append_shared(folder.path / f"{folder.prefix}10-a.jsonl", line(number))

    first = one.transfer()
    append_shared(other.path / f"{other.prefix}11-b.jsonl", line(3))
    second = other.transfer()
    append_shared(other.path / f"{other.prefix}12-c.jsonl", line(4))
    other.release()
    left = one.transfer()
    one.release()

    assert (first.spans, second.spans, left.spans) == (1, 2, 1)
    assert not set(first.changed) & set(second.changed)
    assert not one.path.exists()
