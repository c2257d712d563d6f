"""Requests on their way to the spool, by senders that mean harm or have bad luck."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oteval.ingest.receiver.answers import Refused
from oteval.ingest.receiver.arrivals import Arrivals
from oteval.ingest.receiver.intake import Intake
from oteval.ingest.receiver.redaction import Redactor, Rule
from oteval.ingest.spool import Spool
from oteval.ingest.spool_reader import SpoolReader

SECRET = "ann@example.com"


def deep_request(depth: int) -> bytes:
    """Return a request with a secret inside of so many lists."""
    value: dict[str, Any] = {"stringValue": SECRET}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    span = {
        "traceId": "1" * 32,
        "spanId": "2" * 16,
        "name": "run",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "attributes": [{"key": "deep", "value": value}],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.parametrize("attributes", [{}, {"tenant": "a"}])
@pytest.mark.parametrize("depth", [1, 90, 150])
def test_a_token_with_attributes_keeps_nothing_from_redaction(
    tmp_path: Path, depth: int, attributes: Mapping[str, str]
):
    """JSON too deep to be written at once is redacted, also with attributes of a token."""
    spool = Spool(tmp_path)
    intake = Intake(spool, Redactor([Rule(pattern=r"\w+@example\.com")]), lambda *_: None)

    intake.take("traces", "json", deep_request(depth), attributes).durable.result()
    spool.close()

    stored = b"".join(record.payload for record in SpoolReader(tmp_path).records())
    assert SECRET.encode() not in stored
    assert b"[redacted]" in stored
    assert all(value.encode() in stored for value in attributes)


def test_a_string_without_an_end_is_looked_through_once(tmp_path: Path):
    """The parts of a body are counted in linear time, however many quotation marks it has."""
    spool = Spool(tmp_path)
    intake = Intake(spool, None, lambda *_: None)
    body = b'{"resourceSpans":"' + b"," * 4_000_001 + rb"\"" * 60_000

    start = time.process_time()
    with pytest.raises(Refused):
        intake.take("traces", "json", body)
    spool.close()

    assert time.process_time() - start < 10


def test_a_request_that_is_late_already_can_give_way():
    """A request whose time is up does not fail the one that it has to give way to."""

    async def main() -> str:
        arrivals = Arrivals(most_bytes=100, most=1, timeout=1.05)
        late = asyncio.create_task(stalled(arrivals))
        await asyncio.sleep(0)
        (arrival,) = arrivals._arriving
        while not arrival._timeout.expired():
            await asyncio.sleep(0)
        async with arrivals.arriving() as other:
            other.add(100)
        with pytest.raises(Refused) as refused:
            await late
        return refused.value.kind

    async def stalled(arrivals: Arrivals) -> None:
        async with arrivals.arriving() as arrival:
            arrival.add(1)
            await asyncio.Event().wait()

    assert asyncio.run(main()) == "busy"
