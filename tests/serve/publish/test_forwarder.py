"""Forwarding traces with their scores, to a real HTTP server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from oteval.base.clients.otlp_client import ExportResult, HttpClient
from oteval.base.durable_log import LogWriter
from oteval.serve.publish import export_queue
from oteval.serve.publish.forwarder import Forwarder
from oteval.serve.publish.request_log import resend

from ...make import ROOT, score
from ...otlp_endpoint import Downstream
from .test_request_log import old_queue

SECOND = 1_000_000_000


def request(*ids: tuple[int, int], name: str = "s", start: int = 1) -> bytes:
    """Return a request with spans of traces and numbers."""
    export = ExportTraceServiceRequest()
    spans = export.resource_spans.add().scope_spans.add().spans
    for trace, number in ids:
        spans.add(
            trace_id=trace.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=start,
            end_time_unix_nano=start + 1,
        )
    return export.SerializeToString()


def trace(number: int) -> str:
    return f"{number:032x}"


class Bench:
    """A forwarder without a thread, and its clock."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.now = 1_000 * SECOND
        self.offset = 0
        self.forwarder = self.open()

    def open(self, **options: Any) -> Forwarder:
        """Open the queue as a starting process does."""
        self.forwarder = Forwarder(
            *(self.folder, HttpClient(self.url, timeout=2.0)),
            **{"clock": lambda: self.now, "threaded": False, "deadline": 30.0, **options},
        )
        return self.forwarder

    def take(self, payload: bytes, kind: str = "traces", encoding: str = "protobuf") -> None:
        """Take a request at the next position."""
        self.offset += 1
        self.forwarder.take(kind, encoding, payload, (1, self.offset), self.now)

    def pump(self) -> None:
        """Send everything that can be sent now."""
        while self.forwarder.pump():
            pass


@pytest.fixture
def bench(tmp_path: Path, downstream: Downstream) -> Iterator[Bench]:
    new_bench = Bench(tmp_path / "queue", downstream.url)
    yield new_bench
    new_bench.forwarder.close()


def test_a_trace_is_held_until_it_is_scored(bench: Bench, downstream: Downstream) -> None:
    """Spans are forwarded only after the release, and the scored span carries its scores."""
    bench.take(request((1, 1), (2, 9), (1, 2)))
    bench.pump()
    before = len(downstream.requests)

    bench.forwarder.release({trace(1): [score(1, comment="fine")]})
    bench.pump()

    assert before == 0
    spans = downstream.spans()
    assert [(s.trace_id[-1], s.span_id[-1]) for s in spans] == [(1, 1), (1, 2)]
    attributes = {a.key: a.value for a in spans[0].attributes}
    assert attributes["oteval.score.e"].double_value == 1.0
    assert attributes["oteval.score.e.passed"].bool_value is True
    assert attributes["oteval.score.e.explanation"].string_value == "fine"
    assert not spans[1].attributes
    assert bench.forwarder.state()["held_spans"] == 1


def test_nothing_is_held_past_the_deadline(bench: Bench, downstream: Downstream) -> None:
    """Each part of a trace is forwarded at its deadline, while later parts may wait for scores."""
    bench.take(request((1, 1)))
    bench.now += 20 * SECOND
    bench.take(request((1, 2)))
    bench.now += 9 * SECOND
    bench.pump()
    assert downstream.spans() == []

    bench.now += SECOND
    bench.pump()
    assert [s.span_id[-1] for s in downstream.spans()] == [1]
    bench.forwarder.release({trace(1): []})
    bench.pump()
    assert [s.span_id[-1] for s in downstream.spans()] == [1, 2]


def test_scores_that_are_there_go_along_at_the_deadline(
    bench: Bench, downstream: Downstream
) -> None:
    """Scores that exist at the deadline are attached, even if another evaluator is not done."""
    bench.take(request((1, 1)))
    due = bench.forwarder.expiring(bench.now + 31 * SECOND)
    bench.forwarder.expire({name: [score(1)] for name in due}, bench.now + 31 * SECOND)
    bench.pump()

    assert downstream.spans()[0].attributes[0].key == "oteval.score.e"


def test_errors_and_missing_scores_add_nothing(bench: Bench, downstream: Downstream) -> None:
    """A score with an error, or one that was not evaluated, leaves the span unchanged."""
    payload = request((1, 1))
    bench.take(payload)
    scores = [score(1, status="error", comment="x"), score(1, status="not_evaluated")]
    bench.forwarder.release({trace(1): scores})
    bench.pump()

    assert downstream.bodies() == [payload]


def test_a_request_of_one_trace_is_forwarded_byte_for_byte(
    bench: Bench, downstream: Downstream
) -> None:
    """Without scores, the received body is forwarded unchanged, including unknown fields."""
    payload = request((1, 1), (1, 2)) + bytes([0xBA, 0x3E, 0x03]) + b"new"
    bench.take(payload)
    bench.forwarder.release({trace(1): []})
    bench.pump()

    assert downstream.bodies() == [payload]


def test_json_is_forwarded_as_json(bench: Bench, downstream: Downstream) -> None:
    """A JSON request is forwarded in JSON, with the attributes in OTLP/JSON."""
    span = {"traceId": trace(1), "spanId": f"{1:016x}", "name": "s", "later": {"x": 1}}
    payload = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    bench.take(payload, encoding="json")
    bench.forwarder.release({trace(1): [score(1)]})
    bench.pump()

    path, headers, body = downstream.requests[0]
    sent = json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (path, headers["Content-Type"]) == ("/v1/traces", "application/json")
    assert sent["later"] == {"x": 1}
    assert sent["attributes"][0] == {"key": "oteval.score.e", "value": {"doubleValue": 1.0}}


def test_logs_are_not_held(bench: Bench, downstream: Downstream) -> None:
    """Log records are forwarded at once and unchanged."""
    bench.take(b"\x0a\x00", kind="logs")
    bench.pump()

    assert downstream.bodies("/v1/logs") == [b"\x0a\x00"]


def test_failed_requests_are_retried_in_order(
    bench: Bench, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy endpoint receives each request later, once and in order; Retry-After is respected."""
    moment = [0.0]
    monkeypatch.setattr("oteval.serve.publish.export_queue.time.monotonic", lambda: moment[0])
    downstream.answers = [(503, {"Retry-After": "7"}), (429, {})]
    bench.take(request((1, 1)))
    bench.take(request((2, 1)))
    bench.forwarder.release({trace(1): [], trace(2): []})

    bench.pump()
    moment[0] = 6.9
    bench.pump()
    early = (len(downstream.answers), bench.forwarder.state())
    moment[0] = 7.1
    bench.pump()
    moment[0] = 60.0
    bench.pump()

    assert early[0] == 1
    assert early[1]["error"].startswith("503")
    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2]
    assert bench.forwarder.state()["failures"] == {"503": 1, "429": 1}
    assert bench.forwarder.state()["error"] is None


def test_a_refused_request_does_not_block_the_others(bench: Bench, downstream: Downstream) -> None:
    """A refused request is saved in a folder; the others arrive."""
    downstream.poison = b"poison"
    for number in range(1, 9):
        name = "poison" if number == 5 else "fine"
        bench.take(request((number, 1), name=name))
    bench.forwarder.release({trace(n): [] for n in range(1, 9)})
    bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2, 3, 4, 6, 7, 8]
    refused_paths = list((bench.folder / "refused").iterdir())
    assert [path.read_bytes() for path in refused_paths] == [request((5, 1), name="poison")]
    assert bench.forwarder.state()["refused"] == 1
    assert bench.forwarder.state()["refused_kept"] == 1


def reopen_with_short_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch, suspect: float) -> None:
    """Reopen the queue, with short waits between attempts and before a request is suspected."""
    waits = {"_SUSPECT_SECONDS": suspect, "_FIRST_WAIT": 0.01, "_LONGEST_WAIT": 0.01}
    for name, value in waits.items():
        monkeypatch.setattr(export_queue, name, value)
    bench.forwarder.close()
    bench.open()


@pytest.mark.parametrize("poisoned", [1, 5, 8])
def test_an_endpoint_that_one_request_breaks(
    bench: Bench, downstream: Downstream, monkeypatch: pytest.MonkeyPatch, poisoned: int
) -> None:
    """A request that keeps getting 500 is set aside once the endpoint accepts the next one."""
    reopen_with_short_waits(bench, monkeypatch, suspect=0.2)
    downstream.poison, downstream.poison_status = b"poison", 500
    for number in range(1, 9):
        name = "poison" if number == poisoned else "fine"
        bench.take(request((number, 1), name=name))
    bench.forwarder.release({trace(n): [] for n in range(1, 9)})
    until = time.monotonic() + 20
    while time.monotonic() < until and len(downstream.spans()) < 7:
        bench.pump()
    alone = bench.forwarder.state()
    bench.take(request((9, 1)))
    bench.forwarder.release({trace(9): []})
    while time.monotonic() < until and bench.forwarder.state()["waiting_requests"]:
        bench.pump()

    # The last request still waits: no later request has shown that the endpoint works.
    assert alone["waiting_requests"] == (1 if poisoned == 8 else 0)
    assert [s.trace_id[-1] for s in downstream.spans()] == [
        n for n in range(1, 10) if n != poisoned
    ]
    refused_paths = list((bench.folder / "refused").iterdir())
    assert [path.read_bytes() for path in refused_paths] == [request((poisoned, 1), name="poison")]
    assert bench.forwarder.state()["error"] is None


def test_an_endpoint_that_some_of_many_requests_break(
    bench: Bench, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bisection finds each refused request, without a new wait after each success."""
    reopen_with_short_waits(bench, monkeypatch, suspect=1.0)
    downstream.poison, downstream.poison_status = b"poison", 500
    poisoned = {77, 190}
    for number in range(1, 201):
        bench.take(request((number, 1), name="poison" if number in poisoned else "fine"))
    bench.forwarder.release({trace(n): [] for n in range(1, 201)})
    until = time.monotonic() + 8
    while time.monotonic() < until and bench.forwarder.state()["waiting_requests"]:
        bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [
        n for n in range(1, 201) if n not in poisoned
    ]
    assert bench.forwarder.state()["refused"] == 2


def test_an_endpoint_that_answers_500_to_all_is_waited_for(
    bench: Bench, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is set aside during an outage of any length; all arrive afterwards, in order."""
    reopen_with_short_waits(bench, monkeypatch, suspect=0.0)
    downstream.poison, downstream.poison_status = b"fine", 500
    for number in range(1, 9):
        bench.take(request((number, 1), name="fine"))
    bench.forwarder.release({trace(n): [] for n in range(1, 9)})
    while bench.forwarder.state()["failures"].get("500", 0) < 20:
        bench.pump()
    during = bench.forwarder.state()
    downstream.poison = b""
    until = time.monotonic() + 20
    while time.monotonic() < until and bench.forwarder.state()["waiting_requests"]:
        bench.pump()

    assert (during["waiting_requests"], during["refused"]) == (8, 0)
    assert during["error"].startswith("500")
    assert [s.trace_id[-1] for s in downstream.spans()] == list(range(1, 9))


@pytest.mark.parametrize(
    ("encoding", "response_body"),
    [
        (
            "protobuf",
            ExportTraceServiceResponse(
                partial_success={"rejected_spans": 2, "error_message": "too old"}  # type: ignore[arg-type]
            ).SerializeToString(),
        ),
        ("json", b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}'),
    ],
)
def test_rejected_spans_are_counted(
    bench: Bench,
    downstream: Downstream,
    caplog: pytest.LogCaptureFixture,
    encoding: str,
    response_body: bytes,
) -> None:
    """The rejected spans of a partial success are counted, and the reason is logged."""
    downstream.said = response_body
    payload = request((1, 1), (1, 2), (1, 3))
    if encoding == "json":
        span = {"traceId": trace(1), "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
        spans = [{**span, "spanId": f"{number:016x}"} for number in range(1, 4)]
        payload = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    bench.take(payload, encoding=encoding)
    bench.forwarder.release({trace(1): []})
    bench.pump()

    assert bench.forwarder.state()["sent"] == 1
    assert bench.forwarder.state()["rejected"] == 2
    assert "too old" in caplog.text


@given(st.binary(max_size=60), st.sampled_from(["protobuf", "json"]))
def test_any_response_body_is_accepted(body: bytes, encoding: str) -> None:
    """A body that is not a partial success rejects nothing and raises nothing."""
    for kind in ("traces", "logs", "metrics"):
        assert ExportResult(200, body=body, encoding=encoding).rejected(kind)[0] >= 0


def test_refused_requests_are_resent_on_demand(bench: Bench, downstream: Downstream) -> None:
    """An accepted request is sent with its scores and deleted; a request refused again remains."""
    downstream.answers = [(400, {}), (400, {})]
    bench.take(request((1, 1)))
    bench.take(b'{"resourceLogs": []}', kind="logs", encoding="json")
    bench.forwarder.release({trace(1): [score(1)]})
    bench.pump()
    folder = bench.folder / "refused"
    poster = HttpClient(downstream.url)

    downstream.answers = [(400, {}), (200, {})]
    first = [answer.status for _, answer in resend(folder, poster)]
    downstream.answers = [(503, {})]
    away = [answer.status for _, answer in resend(folder, poster)]
    last = [answer.status for _, answer in resend(folder, poster)]
    poster.close()

    assert (first, away, last) == ([400, 200], [503], [200])
    assert downstream.spans()[0].attributes[0].key == "oteval.score.e"
    assert downstream.bodies("/v1/logs") == [b'{"resourceLogs": []}']
    assert list(folder.iterdir()) == []


def test_refused_requests_count_against_the_quota(bench: Bench, downstream: Downstream) -> None:
    """An endpoint that refuses everything cannot fill the disk."""
    bench.forwarder.close()
    bench.open(quota=4000, segment_bytes=1000)
    downstream.poison = b"poison"
    for number in range(1, 6):
        bench.take(request((number, 1), name="poison" * 150))
    bench.forwarder.release({trace(n): [] for n in range(1, 6)})
    bench.pump()

    assert bench.forwarder.has_room() is False
    assert bench.forwarder.state()["refused_kept"] == 5


def test_a_restart_sends_the_held_traces(bench: Bench, downstream: Downstream) -> None:
    """Only unsent parts are sent, and no position is used twice."""
    bench.take(request((1, 1), (2, 1)))
    bench.take(request((3, 1)))
    bench.forwarder.release({trace(1): []})
    bench.pump()
    bench.forwarder.close()

    bench.open()
    bench.offset = 0
    bench.take(request((1, 1), (2, 1)))
    bench.take(request((3, 1)))
    bench.now += 30 * SECOND
    bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2, 3]


def test_a_queue_of_the_old_format_is_sent(bench: Bench, downstream: Downstream) -> None:
    """After an update, only the traces held by the old version are sent."""
    bench.forwarder.close()
    old_queue(bench.folder)

    bench.open()
    bench.forwarder.take("traces", "protobuf", request((3, 1)), (7, 2), bench.now)
    bench.forwarder.take("traces", "protobuf", request((4, 1)), (7, 3), bench.now)
    bench.now += 60 * SECOND
    bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [2, 3, 4]
    assert not list(bench.folder.glob("*.held"))


def test_downtime_counts_against_no_deadline(bench: Bench, downstream: Downstream) -> None:
    """A trace is held for its deadline in running time, even one received while down."""
    bench.take(request((1, 1)))
    bench.now += 10 * SECOND
    bench.pump()
    bench.forwarder.close()
    came = bench.now + 50 * SECOND

    bench.now += 100 * SECOND
    bench.open()
    bench.forwarder.take("traces", "protobuf", request((2, 1)), (1, 99), came)
    bench.now += 19 * SECOND
    bench.pump()
    early = list(downstream.spans())
    bench.now += SECOND
    bench.pump()

    assert early == []
    assert [s.trace_id[-1] for s in downstream.spans()] == [1]
    bench.now += 10 * SECOND
    bench.pump()
    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2]


def test_a_trace_scored_before_a_restart_keeps_its_scores(
    bench: Bench, downstream: Downstream
) -> None:
    """After a start, live scoring has some seconds to attach scores to overdue traces."""
    downstream.answers = [(503, {})]
    bench.take(request((1, 1)))
    bench.forwarder.release({trace(1): [score(1)]})
    bench.pump()
    for _ in range(40):  # the server runs, and the endpoint is busy
        bench.now += SECOND
        bench.forwarder.expiring(bench.now)
    bench.forwarder.close()

    bench.open()
    bench.pump()
    before = list(downstream.spans())
    due = bench.forwarder.expiring(bench.now)
    bench.forwarder.expire({name: [score(1)] for name in due}, bench.now)
    bench.pump()

    assert before == []
    assert downstream.spans()[0].attributes[0].key == "oteval.score.e"


def test_an_incomplete_record_is_cut_off(bench: Bench, downstream: Downstream) -> None:
    """Half a record at the end, as after a crash, is cut off; the records before it are sent."""
    bench.take(request((1, 1)))
    bench.take(request((2, 1)))
    bench.forwarder.close()
    path = next(bench.folder.glob("*.spool"))
    path.write_bytes(path.read_bytes()[:-5])

    bench.open()
    bench.offset = 1
    bench.take(request((2, 1)))
    bench.now += 30 * SECOND
    bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2]


def test_spans_that_come_back_are_not_forwarded_again(bench: Bench, downstream: Downstream) -> None:
    """Spans sent back to oteval are recognised, including the one with scores."""
    bench.take(request((1, 1), (1, 2)))
    bench.forwarder.release({trace(1): [score(1)]})
    bench.pump()

    for body in list(downstream.bodies()):
        bench.take(body)
    bench.take(request((1, 2), (1, 3)))
    bench.now += 31 * SECOND
    bench.pump()

    assert [s.span_id[-1] for s in downstream.spans()] == [1, 2, 3]
    assert bench.forwarder.state()["looped"] == 3


@pytest.mark.parametrize("options", [{"segment_bytes": 2000}, {}], ids=["small", "usual"])
def test_files_are_removed_once_everything_is_sent(
    bench: Bench, downstream: Downstream, options: dict[str, int]
) -> None:
    """Disk space is reclaimed for new requests, whatever the usual segment size."""
    bench.forwarder.close()
    bench.open(quota=4000, **options)
    for number in range(1, 60):
        bench.take(request((number, 1), name="x" * 50))
    full = bench.forwarder.has_room()
    bench.now += 31 * SECOND
    bench.pump()

    assert full is False
    assert bench.forwarder.has_room() is True
    assert len(downstream.spans()) == 59
    assert len(list(bench.folder.glob("*.spool"))) == 1


def test_a_full_disk_loses_nothing(
    bench: Bench, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed write leaves no data behind, and the same request can be accepted again."""
    bench.take(request((1, 1)))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LogWriter, "_write_all", full)
        with pytest.raises(OSError, match="No space"):
            bench.take(request((2, 1)))
    bench.offset -= 1
    bench.take(request((2, 1)))
    bench.now += 31 * SECOND
    bench.pump()

    assert [s.trace_id[-1] for s in downstream.spans()] == [1, 2]


def test_its_thread_sends_and_survives_an_endpoint_that_is_away(
    tmp_path: Path, downstream: Downstream
) -> None:
    """Requests wait while the endpoint is down, and arrive once it is up."""
    dead = HttpClient("http://127.0.0.1:9", timeout=0.5)
    forwarder = Forwarder(tmp_path, dead, deadline=0.1)
    forwarder.take("traces", "protobuf", request((1, 1)), (1, 1), time.time_ns())
    forwarder.sync()
    _until(lambda: forwarder.state()["error"] is not None)
    forwarder.close()

    again = Forwarder(tmp_path, HttpClient(downstream.url), deadline=0.1)
    _until(lambda: len(downstream.spans()) > 0)
    again.close()

    assert [s.trace_id[-1] for s in downstream.spans()] == [1]


def _until(holds: Callable[[], bool], patience: float = 10.0) -> None:
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


CHILD = """
import sys, time
from pathlib import Path
from oteval.serve.publish.forwarder import Forwarder
from oteval.base.clients.otlp_client import HttpClient
from tests.serve.publish.test_forwarder import request
forwarder = Forwarder(Path(sys.argv[1]), HttpClient(sys.argv[2]), deadline=0.05)
number = forwarder._queue.log.position.offset
while True:
    number += 1
    forwarder.take("traces", "protobuf", request((number, 1), (number, 2)), (1, number),
                   time.time_ns())
    if number % 20 == 0:
        forwarder.sync()
        print(number, flush=True)
"""


@pytest.mark.slow
def test_killed_again_and_again_it_loses_nothing(tmp_path: Path, downstream: Downstream) -> None:
    """Despite SIGKILLs at random moments, every synced span arrives at least once."""
    synced = 0
    for life in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), downstream.url],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        for _ in range(3 + 2 * life):
            synced = max(synced, int(child.stdout.readline()))
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split()
        synced = max([synced, *(int(line) for line in rest)])
        child.stdout.close()
        child.wait()

    last = Forwarder(tmp_path, HttpClient(downstream.url), deadline=0.0)
    _until(lambda: last.state()["held_spans"] + last.state()["waiting_requests"] == 0, 30.0)
    last.close()

    arrived = {(int.from_bytes(s.trace_id, "big"), s.span_id[-1]) for s in downstream.spans()}
    assert synced > 0
    assert {(n, i) for n in range(1, synced + 1) for i in (1, 2)} <= arrived
