"""Requests that would need gigabytes, or that end the process that decodes them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import grpc
import pytest

from benchmarks.served import Served, memory, until
from oteval.ingest.spool import Position, Record, Spool
from oteval.serve.decoder import DecodedChunk, SpoolDecoder

from .clients import LOGS, TRACES, Neighbour, agent_run, call
from .fuzzed import _field

pytestmark = pytest.mark.slow

RULES = "evaluators: [{name: tools, type: tool_errors}]\ncompletion: {quiet: 200ms}\n"
MB = 1 << 20
IDS = _field(1, b"t" * 16) + _field(2, b"s" * 8)


def spans(parts: bytes) -> bytes:
    """Return a request with spans."""
    return _field(1, _field(2, parts))


def one_span(parts: bytes) -> bytes:
    """Return a request of one span with parts of it."""
    return spans(_field(2, IDS + parts))


MANY = 30 * MB
# Functions, because they are hundreds of megabytes, which only their tests need.
BOMBS: dict[str, Callable[[], bytes]] = {
    "empty spans": lambda: spans(b"\x12\x00" * MANY),
    "spans": lambda: spans(_field(2, IDS) * (2 * MB)),
    "attributes": lambda: one_span(b"\x4a\x00" * MANY),
    "attributes with keys": lambda: one_span(_field(9, _field(1, b"k")) * (10 * MB)),
    "events": lambda: one_span(b"\x5a\x00" * MANY),
    "links": lambda: one_span(b"\x6a\x00" * MANY),
    "values": lambda: one_span(
        _field(9, _field(1, b"k") + _field(2, _field(5, b"\x0a\x00" * MANY)))
    ),
    "resources": lambda: b"\x0a\x00" * MANY,
    "scopes": lambda: _field(1, b"\x12\x00" * MANY),
    "overlong tags": lambda: one_span(b"\xca\x00\x00" * (20 * MB)),
    "alternating values": lambda: one_span(
        _field(9, _field(1, b"k") + _field(2, b"\x2a\x00\x32\x00" * (15 * MB)))
    ),
}
JSON_BOMBS: dict[str, Callable[[], bytes]] = {
    "JSON spans": lambda: (
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * (20 * MB) + b"{}]}]}]}"
    ),
    "JSON numbers": lambda: b'{"resourceSpans":[' + b"1," * MANY + b"1]}",
    "JSON lists": lambda: b'{"resourceSpans":[' + b"[]," * (20 * MB) + b"1]}",
}


@pytest.mark.parametrize("name", [*BOMBS, *JSON_BOMBS])
def test_small_requests_of_millions_of_parts_are_refused(served: Served, name: str) -> None:
    """Some kilobytes of gzip that are millions of parts: 413, and little memory."""
    body = {**BOMBS, **JSON_BOMBS}[name]()
    kind = "application/json" if name in JSON_BOMBS else "application/x-protobuf"
    restarts = served.state()["restarts"]

    packed = gzip.compress(body, 6)
    status, told, _ = served.post("/v1/traces", packed, kind, content_encoding="gzip")

    assert status == 413, told
    assert b"send less at once" in told
    assert memory([served.pid("listener")]) < 800 * MB
    assert served.state()["restarts"] == restarts


def test_the_same_over_grpc_and_as_logs(served: Served) -> None:
    """Both ways of sending, and both kinds, have the same limits."""
    records = gzip.compress(spans(b"\x12\x00" * MANY), 1)
    attributes = gzip.compress(spans(_field(2, b"\x32\x00" * MANY)), 1)
    options = grpc.Compression.NoCompression

    codes = {
        call(served.grpc, records, LOGS, options),
        call(served.grpc, attributes, LOGS, options),
        call(served.grpc, gzip.compress(BOMBS["empty spans"](), 1), TRACES, options),
    }

    assert codes == {grpc.StatusCode.INVALID_ARGUMENT}


@pytest.fixture
def poisonous(tmp_path: Path) -> Iterator[Served]:
    """Return a server whose decoding ends the process at a span called poison."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'oteval.serve.decoder_child' in sys.orig_argv:\n"
        "    import os\n"
        "    from oteval.ingest.otlp import wire_spans\n"
        "    real = wire_spans.request_spans\n"
        "    def decode(data):\n"
        "        if b'poison' in data:\n"
        "            os._exit(139)\n"
        "        return real(data)\n"
        "    wire_spans.request_spans = decode\n"
    )
    paths = [str(folder), str(Path(__file__).parents[2])]
    server = Served(tmp_path, environment={"PYTHONPATH": os.pathsep.join(paths)})
    yield server
    server.stop()


def test_a_request_that_ends_its_decoder_is_set_aside(poisonous: Served) -> None:
    """It is kept in rejected/, said in /readyz, and what stands around it is stored."""
    runs = [agent_run() for _ in range(6)]
    _, poison = agent_run("poison")
    sent = [*(request for _, request in runs[:3]), poison, *(request for _, request in runs[3:])]
    for request in sent:
        assert poisonous.post("/v1/traces", request.SerializeToString())[0] == 200
    until(lambda: poisonous.state()["stored"]["spans"] == 12, 60)
    state = until(lambda: (s := poisonous.state())["stored"]["rejected"] and s)
    folder = Path(f"{poisonous.db}.spool") / "rejected"
    kept = [path.read_bytes() for path in folder.iterdir()]

    assert kept == [poison.SerializeToString()]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert any("rejected" in warning for warning in state["warnings"])
    assert (state["restarts"], state["is_ready"]) == (0, True)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    found = Spool(tmp_path / "spool", quota=1 << 30, reserve=0)
    yield found
    found.close()


def taken(decoder: SpoolDecoder, requests: int) -> list[DecodedChunk]:
    """Return the chunks of so many requests."""
    chunks: list[DecodedChunk] = []

    def is_done() -> bool:
        chunk = decoder.next()
        chunks.extend([chunk] if chunk else [])
        return sum(each.requests for each in chunks) >= requests

    until(is_done, 60)
    return chunks


def test_a_child_that_is_silent_is_replaced(spool: Spool, tmp_path: Path) -> None:
    """One that was stopped is ended, and what it had is decoded by another, once."""
    decoder = SpoolDecoder(tmp_path / "spool", age=0.0, start=Position(), timeout=1.0)
    try:
        add(spool, 1)
        first = taken(decoder, 1)
        pid = decoder.pids[0]
        os.kill(pid, signal.SIGSTOP)
        add(spool, 5)
        rest = taken(decoder, 5)
    finally:
        decoder.close()
        decoder.release()

    assert sum(chunk.spans.num_rows for chunk in [*first, *rest]) == 12
    assert decoder.pids[0] != pid
    assert not any(chunk.rejected for chunk in rest)


def test_children_that_are_killed_again_and_again_lose_nothing(
    spool: Spool, tmp_path: Path
) -> None:
    """Requests are decoded once each, and none is taken for what ends its process."""
    decoder = SpoolDecoder(tmp_path / "spool", age=0.0, start=Position())
    add(spool, 60)
    chunks: list[DecodedChunk] = []
    end = time.monotonic() + 60
    try:
        while sum(chunk.requests for chunk in chunks) < 60 and time.monotonic() < end:
            if len(chunks) % 7 == 3:
                os.kill(decoder.pids[0], signal.SIGKILL)
            chunks += [chunk for chunk in [decoder.next()] if chunk]
            if not chunks and not decoder._assignments:
                continue
    finally:
        decoder.close()
        decoder.release()

    assert sum(chunk.spans.num_rows for chunk in chunks) == 120
    assert not any(chunk.rejected for chunk in chunks)


def add(spool: Spool, count: int) -> None:
    """Have some requests acknowledged."""
    for _ in range(count):
        body = agent_run()[1].SerializeToString()
        spool.append(Record("traces", "protobuf", time.time_ns(), body)).result(20)


EVIL = ("(a+)+$", "(a|aa)+$", "(a|a)*b", "^([a-zA-Z]+)*$", "(.*a){12}$")


@pytest.mark.parametrize("pattern", EVIL)
def test_conditions_of_readers_hold_up_nobody(served: Served, pattern: str) -> None:
    """A pattern that would backtrack for hours is answered, and runs are stored meanwhile."""
    trace_id, request = agent_run(agent="a" * 5000 + "!")
    assert served.post("/v1/traces", request.SerializeToString())[0] == 200
    until(lambda: served.get(f"/api/trajectories/{trace_id}")[0] == 200, 60)

    with Neighbour(served) as neighbour:
        query = urlencode({"where": f"agent~{pattern}"})
        status, body = served.get(f"/api/trajectories?{query}")
        runs = list(neighbour.runs)
    until(lambda: all(served.get(f"/api/trajectories/{run}")[0] == 200 for run in runs), 60)

    assert status == 200
    assert trace_id not in body.decode()


@pytest.mark.parametrize(
    "query",
    [
        "where=agent" + "%20" * 15_000 + "x",
        "where=agent~" + "%28" * 5_000,
        "where=agent~a%7B1000%7D%7B1000%7D",
        "where=agent~%28%3F%3Da%29",
        "where=" + "seconds%3E" + "9" * 5_000,
        "since_ns=99999999999999999999999",
        "limit=-5",
        "limit=" + "9" * 5_000,
        "where=agent~%00&where=agent~%ED%A0%80",
    ],
)
def test_odd_questions_of_readers_are_answered_soon(served: Served, query: str) -> None:
    """Each has an answer in time, and the storage process goes on."""
    begun = time.monotonic()
    status, _ = served.get(f"/api/trajectories?{query}")

    assert status in (200, 400)
    assert time.monotonic() - begun < 20
    assert served.get("/api/status")[0] == 200


def test_what_is_left_out_is_told_shortly(served: Served) -> None:
    """A request of 100,000 faults has a thousand lines at most, and its good part is stored."""
    attributes = [{"value": {}} for _ in range(100_000)]
    trace_id = os.urandom(16).hex()
    span = {"traceId": trace_id, "spanId": "11" * 8, "name": "n", "attributes": attributes}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    before = served.state()["stored"]["spans"]

    with Neighbour(served) as neighbour:
        status, told, _ = served.post(
            "/v1/traces", json.dumps(document).encode(), "application/json"
        )
    until(lambda: served.state()["stored"]["spans"] > before + 2 * len(neighbour.runs), 60)

    assert status == 200
    assert len(told) < 1000
