"""Requests from hostile or unlucky senders on their way to the spool."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oteval.durable_log import LogReader
from oteval.ingest.receiver.intake import Intake
from oteval.ingest.receiver.limits import Uploads
from oteval.ingest.receiver.redaction import RedactionRule, Redactor
from oteval.ingest.receiver.responses import RequestRefused
from oteval.ingest.spool import Spool

SECRET = "ann@example.com"


def deep_request(depth: int) -> bytes:
    """Return a request with a secret inside that many nested lists."""
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
def test_deep_json_is_redacted(tmp_path: Path, depth: int, attributes: Mapping[str, str]):
    """JSON nested too deeply for orjson is redacted, with and without a token's attributes."""
    spool = Spool(tmp_path)
    intake = Intake(spool, Redactor([RedactionRule(pattern=r"\w+@example\.com")]), lambda *_: None)

    intake.accept("traces", "json", deep_request(depth), attributes).durable.result()
    spool.close()

    stored = b"".join(record.payload for record in LogReader(tmp_path).records())
    assert SECRET.encode() not in stored
    assert b"[redacted]" in stored
    assert all(value.encode() in stored for value in attributes)


def test_counting_parts_takes_linear_time(tmp_path: Path):
    """An unterminated string with many quotation marks is scanned once."""
    spool = Spool(tmp_path)
    intake = Intake(spool, None, lambda *_: None)
    body = b'{"resourceSpans":"' + b"," * 4_000_001 + rb"\"" * 60_000

    start = time.process_time()
    with pytest.raises(RequestRefused):
        intake.accept("traces", "json", body)
    spool.close()

    assert time.process_time() - start < 10


def test_a_request_that_timed_out_can_be_displaced():
    """Displacing a request whose timeout has expired does not fail the newer request."""

    async def main() -> str:
        uploads = Uploads(max_bytes=100, max_count=1, timeout=1.05)
        late = asyncio.create_task(stalled(uploads))
        await asyncio.sleep(0)
        (upload,) = uploads._arriving
        while not upload._timeout.expired():
            await asyncio.sleep(0)
        async with uploads.receive() as other:
            other.add(100)
        with pytest.raises(RequestRefused) as refused:
            await late
        return refused.value.kind

    async def stalled(uploads: Uploads) -> None:
        async with uploads.receive() as upload:
            upload.add(1)
            await asyncio.Event().wait()

    assert asyncio.run(main()) == "busy"
