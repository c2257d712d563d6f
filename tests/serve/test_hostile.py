"""Hostile input to a running server is answered properly, and other clients are served."""

from __future__ import annotations

import gzip
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import grpc
import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.served import Served, until

from .clients import INGEST, LOGS, READ, RULES, TOKENS, TRACES, Neighbour, agent_run, call
from .fuzzed import json_request, mutated, nested

ARGUMENTS = ("--max-request", "4MB")
ENVIRONMENT = TOKENS
LIMIT = 4 << 20
MB = 1 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.fixture
def large(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """Return a server with the options of the test's parameter."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    server = Served(tmp_path, *getattr(request, "param", ()))
    yield server
    server.stop()


def trajectory(server: Served, trace_id: str, seconds: float = 60.0) -> dict[str, object]:
    """Return a run as the API shows it, once it is scored."""

    def scored_run() -> dict[str, object] | None:
        status, body = server.get(f"/api/trajectories/{trace_id}", READ)
        document = json.loads(body)
        return document if status == 200 and document["scores"] else None

    try:
        return dict(until(scored_run, seconds))
    except TimeoutError as error:
        raise TimeoutError(f"{trace_id}: {error}: {server.state()} {server.log[-20:]}") from error


def all_scored(server: Served, runs: list[str]) -> bool:
    """Return whether each run becomes a scored trajectory."""
    return all(trajectory(server, name) for name in runs)


def body(**fields: object) -> bytes:
    """Return a valid request with one span."""
    return agent_run(**fields)[1].SerializeToString()  # type: ignore[arg-type]


@cache
def bomb() -> bytes:
    """Return 400 MB as gzip; made lazily because it takes a second."""
    return gzip.compress(b"\0" * (100 * LIMIT))


Body = bytes | Callable[[], bytes]
BAD_POSTS: dict[str, tuple[Body, str, dict[str, str], int]] = {
    "no token": (body(), PROTOBUF, {"authorization": ""}, 401),
    "wrong token": (body(), PROTOBUF, {"authorization": "Bearer no"}, 401),
    "read token": (body(), PROTOBUF, READ, 401),
    "odd token": (body(), PROTOBUF, {"authorization": "Bearer \xe9\xff"}, 401),
    "text": (b"hello", "text/plain", {}, 415),
    "no type": (body(), "", {}, 415),
    "unknown encoding": (body(), PROTOBUF, {"content_encoding": "br"}, 415),
    "malformed": (b"\xff\xff\xff", PROTOBUF, {}, 400),
    "cut": (body()[:-7], PROTOBUF, {}, 400),
    "JSON as protobuf": (b'{"resourceSpans": []}', PROTOBUF, {}, 400),
    "invalid UTF-8": (body(answer="NNNN").replace(b"NNNN", b"\xff\xfe\xfd\xfc"), PROTOBUF, {}, 400),
    "invalid UTF-8 in JSON": (b'{"resourceSpans": ["\xff\xfe"]}', JSON, {}, 400),
    "no JSON": (b"{", JSON, {}, 400),
    "other JSON": (b'{"x": 1}', JSON, {}, 400),
    "deep JSON": (b"[" * 100_000, JSON, {}, 400),
    "deep attribute": (nested(500), PROTOBUF, {}, 400),
    "no gzip": (b"no gzip", PROTOBUF, {"content_encoding": "gzip"}, 400),
    "cut gzip": (gzip.compress(body())[:-9], PROTOBUF, {"content_encoding": "gzip"}, 400),
    "oversized": (b"\0" * (LIMIT + 1), PROTOBUF, {}, 413),
    "bomb": (bomb, PROTOBUF, {"content_encoding": "gzip"}, 413),
}
BAD_CALLS: dict[str, tuple[Body, str, dict[str, str], grpc.StatusCode]] = {
    "no token": (body(), TRACES, {}, grpc.StatusCode.UNAUTHENTICATED),
    "wrong token": (body(), TRACES, READ, grpc.StatusCode.UNAUTHENTICATED),
    "malformed": (b"\xff\xff\xff", TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "malformed logs": (b"\xff\xff\xff", LOGS, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "cut": (body()[:-7], TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "deep attribute": (nested(500), TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "invalid UTF-8": (
        body(answer="NNNN").replace(b"NNNN", b"\xff\xfe\xfd\xfc"),
        *(TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    ),
    "oversized": (b"\0" * (LIMIT + 1), TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "bomb": (bomb, TRACES, INGEST, grpc.StatusCode.INVALID_ARGUMENT),
    "other method": (body(), "/x.Y/Z", INGEST, grpc.StatusCode.UNIMPLEMENTED),
}


def _bytes(sent: Body) -> bytes:
    return sent() if callable(sent) else sent


@pytest.mark.slow
def test_bad_requests_are_answered_and_others_served(served: Served) -> None:
    """Each hostile request is answered and not stored, and all runs of the neighbour are stored."""
    served.drained()
    before = served.state()["stored"]["spans"]
    with Neighbour(served) as neighbour:
        posts = {
            name: served.post("/v1/traces", _bytes(sent), content, **{**INGEST, **headers})
            for name, (sent, content, headers, _) in BAD_POSTS.items()
        }
        calls = {
            name: call(served.grpc, _bytes(sent), method, headers=tuple(headers.items()))
            for name, (sent, method, headers, _) in BAD_CALLS.items()
        }
    scored = all_scored(served, neighbour.runs)
    state = served.drained()

    assert {name: answer[0] for name, answer in posts.items()} == {
        name: status for name, (*_, status) in BAD_POSTS.items()
    }
    assert all(
        json.loads(answer[1])["message"]
        if BAD_POSTS[name][1] == JSON
        else status_pb2.Status.FromString(answer[1]).message
        for name, answer in posts.items()
    )
    assert calls == {name: code for name, (*_, code) in BAD_CALLS.items()}
    assert neighbour.was_served
    assert scored
    assert state["stored"]["spans"] - before == 2 * len(neighbour.runs)
    assert (state["restarts"], state["reasons"]) == (0, [])


def ways(server: Served) -> dict[str, Callable[[bytes], object]]:
    """Return each way to send a request; they return its status."""
    return {
        "http": lambda sent: server.post("/v1/traces", sent)[0],
        "http gzip": lambda sent: server.post(
            "/v1/traces", gzip.compress(sent, 1), content_encoding="gzip"
        )[0],
        "grpc": lambda sent: call(server.grpc, sent),
        "grpc gzip": lambda sent: call(server.grpc, sent, compression=grpc.Compression.Gzip),
    }


def peaks(server: Served) -> dict[str, int]:
    """Return the peak resident memory of each process (MB)."""
    peak_by_process = {}
    for part in ("listener", "storage", "decoder"):
        lines = Path(f"/proc/{server.pid(part)}/status").read_text().splitlines()
        peak_by_process[part] = next(
            int(x.split()[1]) >> 10 for x in lines if x.startswith("VmHWM")
        )
    return peak_by_process


@pytest.mark.slow
def test_an_attribute_of_100_mb_is_refused(large: Served) -> None:
    """By default it is refused over every transport, with little memory used."""
    huge = body(answer="x" * (100 * MB))
    with Neighbour(large) as neighbour:
        answers = {name: send(huge) for name, send in ways(large).items()}
        status, refusal, _ = large.post("/v1/traces", huge)
    most = peaks(large)

    assert answers == {
        "http": 413,
        "http gzip": 413,
        "grpc": grpc.StatusCode.INVALID_ARGUMENT,
        "grpc gzip": grpc.StatusCode.INVALID_ARGUMENT,
    }
    assert "64 MiB" in status_pb2.Status.FromString(refusal).message
    assert status == 413
    assert neighbour.was_served
    assert large.state()["restarts"] == 0
    assert max(most.values()) < 500, most


@pytest.mark.slow
@pytest.mark.parametrize("large", [("--max-request", "256MB")], indirect=True)
def test_an_attribute_of_100_mb_is_stored_scored_and_shown(large: Served) -> None:
    """With a limit of 256 MB, a run with it is scored over every transport."""
    with Neighbour(large, pause=0.5) as neighbour:
        for name in ("http", "grpc gzip"):
            trace_id, request = agent_run("word " * (20 * MB))
            begun = time.monotonic()
            answer = ways(large)[name](request.SerializeToString())
            assert answer in (200, grpc.StatusCode.OK)
            scored_run = trajectory(large, trace_id, 90)
            assert len(scored_run["messages"][-1]["content"]) == 100 * MB  # type: ignore[index]
            print(f"{name}: scored and read after {time.monotonic() - begun:.1f} s")
    most = peaks(large)
    show = large.cli("show", trace_id)
    listed = large.cli("trajectories", "--json")

    assert neighbour.was_served
    assert all_scored(large, neighbour.runs)
    assert large.state()["restarts"] == 0
    assert show.returncode == 0, show.stderr
    assert "refund 7" in show.stdout
    assert len(listed.stdout.splitlines()) == len(neighbour.runs) + 2
    print("peak MB", most)
    assert most["listener"] < 1500
    assert most["decoder"] < 1500
    assert most["storage"] < 3500


def chain(depth: int) -> tuple[str, list[ExportTraceServiceRequest]]:
    """Return a trace in which each span is the child of the one before, one span a request."""
    trace_id = random.randbytes(16)
    requests = []
    for number in range(depth):
        _, request = agent_run(trace_id=trace_id)
        spans = request.resource_spans[0].scope_spans[0].spans
        del spans[number == 0]
        spans[0].span_id = (number + 1).to_bytes(8, "big")
        spans[0].parent_span_id = number.to_bytes(8, "big") if number else b""
        requests.append(request)
    # The deepest is the model's call; the spans between have no kind.
    for request in requests[1:-1]:
        del request.resource_spans[0].scope_spans[0].spans[0].attributes[:]
    return trace_id.hex(), requests


def joined(requests: list[ExportTraceServiceRequest]) -> bytes:
    """Return requests as one."""
    return b"".join(request.SerializeToString() for request in requests)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10_000, 10], ids=["one request", "a thousand requests"])
def test_a_tree_of_10_000_levels(large: Served, size: int) -> None:
    """The tree becomes a scored run, and other clients are served meanwhile."""
    trace_id, requests = chain(10_000)
    bodies = [joined(requests[at : at + size]) for at in range(0, len(requests), size)]
    random.Random(1).shuffle(bodies)
    with Neighbour(large) as neighbour:
        begun = time.monotonic()
        answers = Counter(large.post("/v1/traces", sent)[0] for sent in bodies)
        sent = time.monotonic() - begun
        scored_run = trajectory(large, trace_id)
        took = time.monotonic() - begun
    show = large.cli("show", trace_id)

    print(f"sent in {sent:.1f} s, scored after {took:.1f} s")
    assert answers == {200: len(bodies)}
    assert [m["content"] for m in scored_run["messages"]] == ["refund 7", "Done."]  # type: ignore[attr-defined]
    assert show.returncode == 0, show.stderr
    assert neighbour.was_served
    assert all_scored(large, neighbour.runs)
    assert took < 60


def trickled(port: int, head: str, seconds: float = 40.0) -> bytes:
    """Send a head, then a byte a second; return the answer until the connection is closed."""
    heard = b""
    end = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
        connection.sendall(head.encode())
        while time.monotonic() < end:
            try:
                if not (part := connection.recv(1000)):
                    return heard
                heard += part
            except TimeoutError:
                with suppress(OSError):
                    connection.sendall(b"x")
            except OSError:
                return heard
    raise TimeoutError(f"the connection is open after {seconds} s")


@pytest.mark.slow
def test_slow_senders_are_cut_off(served: Served) -> None:
    """Two hundred clients that never finish a request do not affect other clients."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\n"
    full = f"{head}authorization: Bearer in\r\ncontent-length: 1000\r\n\r\n"
    with Neighbour(served) as neighbour, ThreadPoolExecutor(200) as pool:
        heads = [pool.submit(trickled, served.http, f"{head}x: ") for _ in range(100)]
        bodies = [pool.submit(trickled, served.http, full) for _ in range(100)]
        answers = [each.result() for each in bodies]
        silences = {each.result() for each in heads}

    assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers)
    assert silences == {b""}
    assert neighbour.was_served
    assert neighbour.slowest < 5
    assert served.state()["restarts"] == 0


@pytest.mark.parametrize("rounds", [25, pytest.param(900, marks=pytest.mark.slow)])
def test_mutated_requests(served: Served, rounds: int) -> None:
    """Requests with bits flipped, cut, doubled or nested cause no internal server error."""
    chance = random.Random(rounds)
    answers: Counter[object] = Counter()
    served.drained()
    pids = [served.pid(part) for part in ("listener", "storage", "decoder")]
    with Neighbour(served, pause=0.2) as neighbour:
        for _ in range(rounds):
            _, request = agent_run("".join(chance.choices('aé😀\\"{}', k=40)))
            packed = mutated(request.SerializeToString(), chance)
            text = mutated(json_request(request), chance)
            path = chance.choice(("/v1/traces", "/v1/logs", "/v1/metrics"))
            answers[served.post(path, packed, **INGEST)[0]] += 1
            answers[served.post(path, text, JSON, **INGEST)[0]] += 1
            method = chance.choice((TRACES, LOGS))
            answers[call(served.grpc, packed, method)] += 1
    scored = all_scored(served, neighbour.runs)
    served.drained()

    print(dict(answers))
    right = {200, 400, 413, grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert set(answers) <= right, answers
    assert {200, 400} <= set(answers)
    assert neighbour.was_served
    assert scored
    assert pids == [served.pid(part) for part in ("listener", "storage", "decoder")]
    assert served.state()["reasons"] == []
