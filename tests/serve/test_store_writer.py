"""Requests move from the spool to the store, once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.otlp_load import requests
from benchmarks.served import until
from oteval.base.durable_log import RecordRange, segment_sizes
from oteval.ingest.spool import Encoding, Kind, Record, Spool
from oteval.serve import decoder
from oteval.serve.store_writer import StoreWriter
from oteval.store import Store


class _Bench:
    """A spool, a store, and what the writer told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool"
        self.spool = Spool(self.folder, quota=1 << 20, reserve=0)
        self.store = Store(folder / "a.duckdb")
        self.told: set[str] = set()

    def append(self, kind: Kind, encoding: Encoding, payload: bytes) -> None:
        self.spool.append(Record(kind, encoding, 1, payload)).result()

    def write(self) -> StoreWriter:
        """Write until nothing is left."""
        writer = StoreWriter(self.store, self.folder, self._stored, age=0.05)
        until(lambda: writer.error or not writer.left())
        writer.close()
        return writer

    def _stored(self, traces: Sequence[str]) -> None:
        self.told.update(traces)

    def close(self) -> None:
        self.spool.close()
        self.store.close()


@pytest.fixture
def bench(tmp_path: Path):
    made = _Bench(tmp_path)
    yield made
    made.close()


def test_all_that_is_spooled_is_stored_once(bench: _Bench) -> None:
    """Traces and logs in both encodings, requests sent twice, and a writer that begins again."""
    first, second = requests(8, batch=32, seed=1)
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "json"}
    log = {"traceId": "ab" * 16, "body": {"stringValue": "hello"}, "timeUnixNano": "5"}
    traces = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    bench.append("traces", "protobuf", first.body)
    bench.append("traces", "protobuf", first.body)
    bench.append("traces", "json", json.dumps(traces).encode())
    bench.append("logs", "json", json.dumps(logs).encode())

    one = bench.write()
    bench.append("traces", "protobuf", second.body)
    two = bench.write()

    assert (one.error, two.error) == (None, None)
    assert (one.statistics.spans, one.statistics.logs, one.statistics.duplicates) == (33, 1, 32)
    assert two.statistics.spans == 32
    assert bench.store.spans.count() == (65, 1)
    assert bench.told == {t for t, _ in first.spans + second.spans} | {"ab" * 16}
    assert bench.store.spans.spool_position() == two.position


def test_segments_go_once_they_are_stored(bench: _Bench) -> None:
    """Only the one that is being written stays."""
    for load in requests(300, batch=32):
        bench.append("traces", "protobuf", load.body)
        if len(segment_sizes(bench.folder)) >= 3:
            break
    before = len(segment_sizes(bench.folder))

    bench.write()

    assert before >= 3
    assert len(segment_sizes(bench.folder)) == 1


def test_what_cannot_be_read_is_kept_and_does_not_stop_the_rest(bench: _Bench) -> None:
    """An acknowledged request that is no request any more lies beside the spool."""
    (load,) = requests(2, seed=2)
    bench.append("traces", "protobuf", b"\xff\xff")
    bench.append("traces", "protobuf", load.body)

    writer = bench.write()

    assert writer.error is None
    assert writer.statistics.spans == 16
    assert [path.read_bytes() for path in (bench.folder / "rejected").iterdir()] == [b"\xff\xff"]


def test_damaged_bytes_are_counted(bench: _Bench) -> None:
    """What the disk changed is lost, said so, and nothing else is."""
    (load,) = requests(2, seed=3)
    for _ in range(2):
        bench.append("traces", "protobuf", b"".join([load.body]))
    (other,) = requests(2, seed=4)
    bench.append("traces", "protobuf", other.body)
    (path,) = bench.folder.glob("*.spool")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    writer = bench.write()

    assert writer.statistics.lost_bytes > len(load.body)
    assert writer.statistics.spans == 32


def test_our_own_events_are_not_stored(bench: _Bench) -> None:
    """Scores that we emitted come back by way of a Collector, and go no further."""
    attributes = [
        {"key": "gen_ai.evaluation.name", "value": {"stringValue": "e"}},
        {"key": "oteval.evaluator.version", "value": {"stringValue": "v"}},
    ]
    own = {"eventName": "gen_ai.evaluation.result", "attributes": attributes}
    scoped = {"scope": {"name": "oteval"}, "logRecords": [own]}
    other = {"scope": {"name": "x"}, "logRecords": [{"body": {"stringValue": "b"}}]}
    body = {"resourceLogs": [{"scopeLogs": [scoped, other]}]}
    bench.append("logs", "json", json.dumps(body).encode())

    bench.write()

    assert bench.store.spans.count() == (0, 1)


def test_a_burst_is_decoded_by_two_and_stored_in_its_order(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stretches of a backlog go to two processes; the store has each span once, as it came."""
    monkeypatch.setattr(decoder, "_STRETCH_SIZE", 20_000)
    monkeypatch.setattr(decoder, "_BURST", 100_000)
    monkeypatch.setattr(decoder, "_MAX_CHILDREN", 2)
    # The second one gets its stretches before it has started.
    monkeypatch.setattr(decoder._DecoderProcess, "is_ready", True)
    loads = list(requests(40, batch=8))
    for load in loads:
        bench.append("traces", "protobuf", load.body)

    writer = StoreWriter(bench.store, bench.folder, bench._stored, age=0.05)
    until(lambda: writer.error or not writer.left())
    pids = writer.decoder_pids
    writer.close()

    stored = [span for page in bench.store.spans.pages() for span in page]
    stored.sort(key=lambda span: span.seq)
    assert writer.error is None
    assert len(pids) == 2
    assert [(s.trace_id, s.span_id) for s in stored] == [
        one for load in loads for one in load.spans
    ]


def test_a_second_decoder_that_still_starts_delays_nothing(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one decodes everything meanwhile."""
    asked: list[int] = []
    send = decoder._DecoderProcess.decode

    def decode(child: decoder._DecoderProcess, stretch: RecordRange) -> None:
        asked.append(child.pid)
        send(child, stretch)

    monkeypatch.setattr(decoder, "_STRETCH_SIZE", 20_000)
    monkeypatch.setattr(decoder, "_BURST", 100_000)
    monkeypatch.setattr(decoder, "_MAX_CHILDREN", 2)
    monkeypatch.setattr(decoder._DecoderProcess, "is_ready", False)
    monkeypatch.setattr(decoder._DecoderProcess, "decode", decode)
    for load in requests(40, batch=8):
        bench.append("traces", "protobuf", load.body)

    writer = StoreWriter(bench.store, bench.folder, bench._stored, age=0.05)
    until(lambda: writer.error or not writer.left())
    pids = writer.decoder_pids
    writer.close()

    assert writer.error is None
    assert len(pids) == 2
    assert set(asked) == {pids[0]}
    assert bench.store.spans.count() == (320, 0)


def test_the_second_decoder_ends_when_the_burst_is_over(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is free again, and what comes later is stored."""
    monkeypatch.setattr(decoder, "_BURST", 20_000)
    monkeypatch.setattr(decoder, "_BURST_TIMEOUT", 0.2)
    monkeypatch.setattr(decoder, "_MAX_CHILDREN", 2)
    first, second = requests(16, batch=64)
    bench.append("traces", "protobuf", first.body)

    writer = StoreWriter(bench.store, bench.folder, bench._stored, age=0.05)
    until(lambda: len(writer.decoder_pids) == 2)
    until(lambda: writer.error or len(writer.decoder_pids) == 1)
    bench.append("traces", "protobuf", second.body)
    until(lambda: writer.error or writer.statistics.spans == 128)
    writer.close()

    assert writer.error is None


def test_a_decoder_that_dies_is_replaced(bench: _Bench) -> None:
    """The writer goes on with another one, whose process is a new one."""
    import os
    import signal

    writer = StoreWriter(bench.store, bench.folder, bench._stored)
    before = writer.decoder_pids[0]
    os.kill(before, signal.SIGKILL)

    after = until(lambda: next((pid for pid in writer.decoder_pids if pid != before), None))
    writer.close()

    assert after
    assert writer.error is None
