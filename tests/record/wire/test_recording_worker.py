"""Exchanges are redacted and emitted in a separate thread, and never unredacted or lost."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oteval.base.redaction.secrets import SecretRedactor
from oteval.model.recording import UnreadableExchange
from oteval.record.wire.recording_worker import RecordingWorker

from ..programs import run_program
from .recordings import recording
from .web_server import Answer, Arrived, answering

SECRET = "sk-0123456789abcdef0123"


def echo(arrived: Arrived) -> Answer:
    """Answer with the request's body."""
    return Answer([arrived.body], headers={"Content-Type": "application/json"})


class Held(SecretRedactor):
    """A redactor that waits for an event, and remembers the calling threads."""

    def __init__(self) -> None:
        super().__init__(environment={})
        self.go = threading.Event()
        self.threads: set[int] = set()

    def headers(self, headers: Any) -> dict[str, str]:
        """Wait, then redact."""
        self.threads.add(threading.get_ident())
        self.go.wait(60)
        return super().headers(headers)


def test_the_agent_does_not_wait_for_the_redaction() -> None:
    """The response returns before its exchange is redacted; a flush waits for the redaction."""
    redactor, worker = Held(), RecordingWorker()
    with answering(echo) as web, recording(redactor=redactor, worker=worker) as recorded:
        for number in range(3):
            body = {"number": number, "api_key": SECRET}
            assert httpx2.post(web.url, json=body).json() == body
        assert not worker.flush(0.01)
        assert recorded.logs() == []
        redactor.go.set()

        assert worker.flush(60)

        bodies = [exchange.request_body for exchange in recorded.exchanges()]
        assert [body[:11] for body in bodies] == [b'{"number":%d' % n for n in range(3)]
        assert SECRET not in recorded.text()
        assert (recorded.recorder.recorded, recorded.recorder.failures) == (3, 0)
        assert threading.get_ident() not in redactor.threads


def test_the_bytes_that_wait_are_bounded() -> None:
    """Exchanges over the limit are recorded without bodies, then dropped; both are reported."""
    redactor, worker = Held(), RecordingWorker(20_000)
    with answering(echo) as web, recording(redactor=redactor, worker=worker) as recorded:
        for _ in range(20):
            httpx2.post(web.url, content=b"x" * 10_000)
        redactor.go.set()
        assert worker.flush(60)

        recorded_count, failed = recorded.recorder.recorded, recorded.recorder.failures
        assert (recorded_count + failed, failed > 0) == (20, True)
        assert recorded.text().count("x" * 10_000) == 2  # a request and its response
        with pytest.raises(UnreadableExchange, match="too many exchanges were waiting"):
            recorded.exchanges()


def test_a_faulty_task_does_not_end_the_thread() -> None:
    """An error while an exchange is recorded is counted, and the next one is recorded."""

    class Faulty(Held):
        def headers(self, headers: Any) -> dict[str, str]:
            redacted = super().headers(headers)
            if not recorded.recorder.failures:
                raise ValueError
            return redacted

    redactor, worker = Faulty(), RecordingWorker()
    redactor.go.set()
    with answering(echo) as web, recording(redactor=redactor, worker=worker) as recorded:
        for _ in range(2):
            httpx2.post(web.url, content=b"1")
        assert worker.flush(60)
        assert (recorded.recorder.recorded, recorded.recorder.failures) == (1, 1)


PROGRAM = """
import os, sys
import httpx2
import oteval
oteval.instrument(sys.argv[1], libraries=[])
def ask(number):
    httpx2.post(sys.argv[2], json={"number": number, "password": sys.argv[3], "x": "y" * 200_000})
ask(1)
"""
FORK = """
if not os.fork():
    ask(2)
    os.kill(os.getpid(), 15)
os.wait()
ask(3)
"""


@pytest.mark.parametrize(
    ("end", "status", "numbers"),
    [
        ("", 0, "1"),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, "1"),
        (FORK, 0, "123"),
    ],
    ids=["exit", "sigterm", "fork"],
)
@pytest.mark.slow
def test_ends_of_a_process_wait_for_the_last_exchange(
    tmp_path: Path, end: str, status: int, numbers: str
) -> None:
    """It is exported, once and without its secrets, however the process ends."""
    file = tmp_path / "traces.jsonl"
    with answering(echo) as web:
        done = run_program(PROGRAM + end, str(file), web.url, "hunter2-hunter2")

    assert (done.returncode, done.stderr) == (status, "")
    text = file.read_text()
    assert [text.count(f'\\"number\\":{number}') for number in "123"] == [
        2 * (number in numbers) for number in "123"
    ]
    assert "hunter2" not in text


class Endless:
    """A server whose stream continues until an event is set."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, _arrived: Arrived) -> Answer:
        """Answer with the stream."""
        return Answer(self._chunks(), headers={"Content-Type": "text/event-stream"})

    def _chunks(self) -> Iterator[bytes]:
        yield b"data: 1\n\n"
        self.go.wait(60)


def test_a_stream_that_is_dropped_is_recorded_by_the_next_flush() -> None:
    """Its client and response refer to each other, so only the garbage collector finds it."""
    endless, worker = Endless(), RecordingWorker()

    def drop(url: str) -> None:
        client = httpx2.Client()
        response = client.send(client.build_request("GET", url), stream=True)
        assert next(response.iter_bytes()) == b"data: 1\n\n"

    with answering(endless) as web, recording(worker=worker) as recorded:
        gc.disable()
        try:
            drop(web.url)
            assert worker.flush(60)
        finally:
            gc.enable()
            endless.go.set()
        exchange = recorded.one()
    assert (exchange.response_body, exchange.is_complete) == (b"data: 1\n\n", False)


def test_a_stream_that_is_open_at_the_end_is_recorded(tmp_path: Path) -> None:
    """A program that exits with an open response keeps the received part."""
    program = """
import sys, httpx2, oteval
oteval.instrument(sys.argv[1], libraries=[])
client = httpx2.Client()
response = client.send(client.build_request("GET", sys.argv[2]), stream=True)
next(response.iter_bytes())
"""
    endless, file = Endless(), tmp_path / "traces.jsonl"
    with answering(endless) as web:
        done = run_program(program, str(file), web.url)
        endless.go.set()

    assert (done.returncode, done.stderr) == (0, "")
    text = file.read_text()
    assert text.count("data: 1") == 1
    assert '{"key":"complete","value":{"boolValue":false}}' in text
