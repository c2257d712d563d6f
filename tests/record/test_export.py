"""Exports that fail, hang or cannot keep up: counted, bounded, and never noticed by the agent."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oteval.record.export_pipeline import Exportable, ExportFailed, ExportPipeline
from oteval.record.otlp_export import OtlpExporter
from tests.otlp_endpoint import Downstream, listening
from tests.record.programs import exported, run_program
from tests.record.test_instrument import Agent

ENDING = """
import sys, oteval
oteval.instrument(sys.argv[1], exit_timeout=float(sys.argv[2]))
from opentelemetry import trace
for number in range(20):
    trace.get_tracer("agent").start_span(str(number)).end()
"""


@pytest.fixture
def endpoint() -> Iterator[Downstream]:
    with listening() as state:
        yield state


def test_an_endpoint_that_is_down_is_reported_at_the_end() -> None:
    """The program ends as usual, with one line that says how many spans were lost, and why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = run_program(ENDING, url, "30")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{url}: 20 of 20 spans and logs were lost: Connection refused\n"


def test_an_endpoint_that_never_answers_is_given_up() -> None:
    """The end of a program waits for a silent endpoint no longer than it was told to."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        # One span, so that all are in the request that is under way, and time to send it.
        done = run_program(ENDING.replace("range(20)", "range(1)"), url, "2")

    assert done.returncode == 0
    assert done.stderr == (
        f"{url}: 1 of 1 spans and logs may or may not have arrived: no answer in time\n"
    )


@pytest.fixture
def exporter(endpoint: Downstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpExporter]:
    """Return an exporter to the endpoint, which has a minute for each answer."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    made = OtlpExporter(endpoint.url)
    yield made
    made.close()


def batch(spans: int, logs: int) -> list[Exportable]:
    """Return ended spans and log records of OpenTelemetry's SDK."""
    ended, emitted = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(ended))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(emitted))
    for _ in range(spans):
        tracers.get_tracer("t").start_span("s").end()
    for _ in range(logs):
        loggers.get_logger("t").emit(LogRecord(body="b"))
    tracers.shutdown()
    items = [Exportable(span, False, 1) for span in ended.get_finished_spans()]
    records = [Exportable(record, True, 1) for record in emitted.get_finished_logs()]
    loggers.shutdown()
    return [*items, *records]


def ended(exporter: OtlpExporter, *batches: list[Exportable]) -> ExportPipeline:
    """Return a pipeline that has exported batches, one after the other, and reported."""
    pipeline = ExportPipeline(exporter, "there", exit_timeout=30)
    for some in batches:
        for one in some:
            pipeline.add(one)
        pipeline.flush(30)
    pipeline.end()
    return pipeline


@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_endpoint_without_logs_takes_no_logs(
    endpoint: Downstream, exporter: OtlpExporter, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its spans are complete: the log records are no loss, and are not sent again and again."""
    endpoint.log_status = status
    pipeline = ended(exporter, batch(3, 2), batch(0, 2), batch(1, 5))
    stats = pipeline.stats
    pipeline.shutdown()

    assert "lost" not in caplog.text
    assert caplog.text.count("there takes no logs: 9 log records") == 1
    assert (stats.exported, stats.lost, stats.untaken_logs) == (4, 0, 9)
    assert len(endpoint.spans()) == 4


def test_an_endpoint_that_is_another_server_loses_the_spans(
    endpoint: Downstream, exporter: OtlpExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an address for spans, they are lost, whatever becomes of the logs."""
    endpoint.answers += [(404, {})]
    pipeline = ended(exporter, batch(3, 0))
    pipeline.shutdown()

    assert pipeline.stats.lost == 3
    assert "3 of 3 spans and logs were lost" in caplog.text


def test_a_request_without_an_answer_may_have_arrived(
    endpoint: Downstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slow endpoint may have stored what it did not acknowledge in time: nobody knows."""
    endpoint.is_silent.set()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    exporter = OtlpExporter(endpoint.url)
    pipeline = ended(exporter, batch(3, 0))
    stats = pipeline.stats
    pipeline.shutdown()

    assert "lost" not in caplog.text
    assert "3 of 3 spans and logs may or may not have arrived" in caplog.text
    assert (stats.exported, stats.lost, stats.unknown) == (0, 0, 3)


def test_refused_spans_are_counted(endpoint: Downstream, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the endpoint is logged once, by oteval and not by the exporter."""
    endpoint.answers += [(500, {}), (500, {})]
    agent = Agent(endpoint.url)
    for name in ("first", "second", "third"):
        agent.span(name)
        agent.handle.flush()
    stats = agent.handle.stats
    agent.handle.shutdown()

    assert (stats.exported, stats.failed, stats.lost) == (1, 2, 2)
    assert "500" in stats.error
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len([one for one in warnings if "cannot be exported" in one.getMessage()]) == 1
    assert {one.name for one in warnings} == {"oteval"}


def test_requests_that_are_too_large_are_halved(endpoint: Downstream) -> None:
    """Only the spans that are too large by themselves are lost."""
    endpoint.poison, endpoint.poison_status = b"x" * 1000, 413
    agent = Agent(endpoint.url)
    for number in range(10):
        agent.span(str(number), text="x" * 1000 if number == 3 else "")
    agent.handle.flush()
    stats = agent.handle.stats
    agent.handle.shutdown()

    assert sorted(int(span.name) for span in endpoint.spans()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert (stats.exported, stats.failed) == (9, 1)


class Stuck:
    """An exporter that waits until the test lets it go on."""

    trouble = ""

    def __init__(self) -> None:
        self.batches: list[list[Exportable]] = []
        self.entered, self.go = (threading.Event() for _ in range(2))

    def export(self, batch: list[Exportable]) -> None:
        """Wait, then take the batch."""
        self.batches.append(batch)
        self.entered.set()
        assert self.go.wait(60)

    def close(self) -> None:
        """Do nothing."""

    def after_fork(self) -> None:
        """Do nothing."""


def test_the_queue_is_bounded_in_bytes() -> None:
    """While an export hangs, adding never waits, and what does not fit is dropped and counted."""
    exporter = Stuck()
    pipeline = ExportPipeline(exporter, "test", max_bytes=1000, interval=0)
    pipeline.add(Exportable("first", False, 100))
    assert exporter.entered.wait(60)
    for number in range(100):
        pipeline.add(Exportable(number, False, 100))

    assert pipeline.stats.dropped == 90
    assert not pipeline.flush(0.01)
    exporter.go.set()
    assert pipeline.flush(60)
    assert pipeline.stats.exported == 11
    pipeline.shutdown()


def test_large_spans_are_sent_in_small_batches() -> None:
    """A batch has 2 MiB at most, unless one span alone has more."""
    exporter = Stuck()
    exporter.go.set()
    pipeline = ExportPipeline(exporter, "test", interval=60)
    for size in (1 << 20, 1 << 20, 1, 5 << 20):
        pipeline.add(Exportable(size, False, size))
    assert pipeline.flush(60)
    pipeline.shutdown()

    sizes = [sum(one.size for one in batch) for batch in exporter.batches]
    assert sum(sizes) == 7 * 2**20 + 1
    assert all(
        size <= 2 << 20 or len(batch) == 1
        for size, batch in zip(sizes, exporter.batches, strict=True)
    )


def test_spans_that_end_inside_the_queue_do_not_deadlock() -> None:
    """The garbage collector may end the span of an abandoned generator at any step of `add`."""

    class Collecting:
        item, is_log = "first", False

        @property
        def size(self) -> int:
            pipeline.add(Exportable("second", False, 1))
            return 1

    first: Any = Collecting()
    exporter = Stuck()
    exporter.go.set()
    pipeline = ExportPipeline(exporter, "test")
    adding = threading.Thread(target=pipeline.add, args=(first,), daemon=True)
    adding.start()
    adding.join(60)
    assert not adding.is_alive()
    assert pipeline.shutdown()
    assert pipeline.stats.exported >= 2


def test_any_exception_of_an_exporter_is_counted() -> None:
    """Even an error that nobody thought of neither ends the thread nor reaches the agent."""

    class Broken(Stuck):
        def export(self, batch: list[Exportable]) -> None:
            if len(self.batches) == 0:
                self.batches.append(batch)
                raise ExportFailed("half of it", 1)
            raise ZeroDivisionError("oops")

    pipeline = ExportPipeline(Broken(), "test", interval=0)
    pipeline.add(Exportable(1, False, 1))
    pipeline.flush(60)
    pipeline.add(Exportable(2, False, 1))
    pipeline.flush(60)

    assert pipeline.stats.failed == 2
    assert pipeline.stats.error == "ZeroDivisionError: oops"
    pipeline.shutdown()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """A batch that does not fit is taken back; the file still loads."""
    code = """
import resource, sys, oteval
from opentelemetry import trace
handle = oteval.instrument(sys.argv[1])
tracer = trace.get_tracer("agent")
tracer.start_span("fits").end()
handle.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
tracer.start_span("does not", attributes={"text": "x" * 5000}).end()
handle.flush()
print(handle.stats.exported, handle.stats.failed, handle.stats.error)
"""
    done = run_program(code, str(tmp_path / "t.jsonl"))

    assert done.stdout == "1 1 File too large\n"
    assert [span["name"] for span in exported(tmp_path / "t.jsonl")] == ["fits"]


def test_lines_after_a_torn_one_are_whole(tmp_path: Path) -> None:
    """A process that was killed in the middle of a line costs only that line."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"resourceSpans":[{"reso')
    agent = Agent(path)
    agent.span("next")
    agent.handle.shutdown()

    torn, whole = path.read_text().splitlines()
    assert torn == '{"resourceSpans":[{"reso'
    assert '"next"' in whole


@pytest.mark.slow
def test_memory_stays_bounded_while_the_endpoint_is_down() -> None:
    """100,000 spans of 100 KB do not need more than the queue and one batch."""
    code = """
import resource, sys, oteval
from opentelemetry import trace
handle = oteval.instrument("http://127.0.0.1:1", exit_timeout=0.1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number in range(100_000):
    trace.get_tracer("agent").start_span("s", attributes={"m": "y" * 100_000 + str(number)}).end()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = run_program(code)
    kilobytes = 1 if os.uname().sysname == "Linux" else 1024

    assert int(done.stdout) / kilobytes < 120_000


@pytest.mark.slow
def test_http_exchanges_are_exported_without_secrets(endpoint: Downstream) -> None:
    """Requests of an HTTP client become log events, and keys of rules apply inside their bodies."""
    code = """
import sys, oteval
oteval.instrument(sys.argv[1], redact=["card"], capture_content=len(sys.argv) == 2)
import httpx
body = {"model": "m", "card": "1234-5678"}
headers = {"authorization": "Bearer sk-hidden"}
httpx.post(sys.argv[1] + "/v1/chat/completions", json=body, headers=headers)
"""
    done = run_program(code, endpoint.url)
    events = [one.event_name for one in endpoint.log_records()]
    without = run_program(code, endpoint.url, "no content")

    assert (done.stderr, without.stderr) == ("", "")
    assert events == ["oteval.http.exchange"]
    assert len(endpoint.log_records()) == 1
    logs = b"".join(endpoint.bodies("/v1/logs"))
    assert b'"model"' in logs
    assert b"1234-5678" not in logs
    assert b"sk-hidden" not in logs
