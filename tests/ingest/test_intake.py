"""Requests from hostile or unlucky senders on their way to the spool."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oteval.base.durable_log import LogReader
from oteval.base.redaction import RedactionRule
from oteval.ingest.compression import ZSTD_MAGIC
from oteval.ingest.receiver.intake import Intake
from oteval.ingest.receiver.limits import Uploads, decompressed
from oteval.ingest.receiver.redaction import Redactor
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


def test_the_message_of_a_partial_success_names_the_span_that_was_skipped(tmp_path: Path):
    """Problems of spans that are stored come first, and are not the reason."""
    spans = [
        {"traceId": "1" * 32, "spanId": "2" * 16, "name": "kept", "kind": "unknown"},
        {"traceId": "x", "spanId": "2" * 16, "name": "first"},
        {"traceId": "y", "spanId": "2" * 16, "name": "second"},
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    spool = Spool(tmp_path)

    contents = Intake(spool, None, lambda *_: None).accept("traces", "json", body).contents
    spool.close()

    reason = "span 'first': traceId 'x' is not a trace id in hex; span skipped"
    assert contents == (1, 2, reason)


@pytest.mark.parametrize(
    ("data", "status"), [(bytes(2 << 20), 413), (None, 400)], ids=["large", "damaged"]
)
def test_zstd_data_is_refused_by_reason(data: bytes | None, status: int):
    """Data above the limit is too large; damaged data is malformed."""
    packed = ZSTD_MAGIC + b"damaged" if data is None else pa.Codec("zstd").compress(data)

    with pytest.raises(RequestRefused) as refused:
        decompressed(bytes(packed), "zstd", 1 << 20)

    assert refused.value.status == status


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
