"""The spool: acknowledged requests survive crashes, damage and full disks."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from oteval.base.durable_log import (
    HEADER_BYTES,
    MAGIC,
    LogReader,
    Position,
    Record,
    remove_before,
    segment_path,
    segment_sizes,
)
from oteval.ingest.spool import Spool, SpoolFull

RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(("traces", "logs")),
        st.sampled_from(("protobuf", "json")),
        st.integers(0, 2**62),
        st.binary(max_size=300),
    ),
    max_size=12,
)


def spooled(folder: Path, records: Sequence[Record]) -> None:
    spool = Spool(folder)
    for done in [spool.append(record) for record in records]:
        done.result()
    spool.close()


def read(folder: Path, position: Position | None = None) -> list[Record]:
    reader = LogReader(folder, position or Position())
    found = list(reader.records())
    reader.close()
    return found


def plain(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [record[:4] for record in records]


def only_segment(folder: Path) -> Path:
    (number,) = segment_sizes(folder)
    return segment_path(folder, number)


@given(RECORDS, st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_records_are_read_in_order_from_any_position(records: list[Record], start: int) -> None:
    """A reader returns each record; from a record's end, those after it."""
    with tempfile.TemporaryDirectory() as name:
        spooled(Path(name), records)

        found = read(Path(name))
        begin = found[start - 1].end if 0 < start <= len(found) else Position()
        later = read(Path(name), begin)

        assert plain(found) == plain(records)
        assert plain(later) == plain(records[start if start <= len(found) else 0 :])


@given(RECORDS.filter(len), st.data())
@settings(deadline=None, max_examples=60)
def test_a_torn_tail_costs_only_what_was_torn(records: list[Record], data: st.DataObject) -> None:
    """After a cut anywhere, the records before it are read, and so are new ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spooled(folder, records)
        path = only_segment(folder)
        cut = data.draw(st.integers(0, path.stat().st_size))
        os.truncate(path, cut)
        whole = 0
        end = len(MAGIC)
        for record in records:
            end += HEADER_BYTES + len(record.payload)
            whole += end <= cut

        spooled(folder, records[:1])

        assert plain(read(folder)) == plain(records[:whole] + records[:1])


@given(RECORDS.filter(len), st.data())
@settings(deadline=None, max_examples=60)
def test_changed_bytes_cost_only_the_records_they_are_in(
    records: list[Record], data: st.DataObject
) -> None:
    """After a flipped byte anywhere, all other records are read, and no invented ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spooled(folder, records)
        path = only_segment(folder)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(len(MAGIC), len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        end = len(MAGIC)
        intact = []
        for record in records:
            start, end = end, end + HEADER_BYTES + len(record.payload)
            if not start <= at < end:
                intact.append(record)

        spooled(folder, [])
        spooled(folder, records[-1:])

        assert plain(read(folder)) == plain(intact + records[-1:])


def test_a_reader_follows_while_others_append(tmp_path: Path) -> None:
    """Many threads append through several segments; the reader gets each record once."""
    spool = Spool(tmp_path, quota=1 << 18, reserve=0)
    expected = {f"{thread}-{n}".encode() + b"." * 900 for thread in range(4) for n in range(100)}
    queues = [[p for p in sorted(expected) if p.startswith(b"%d-" % t)] for t in range(4)]

    def append(payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            while True:
                try:
                    spool.append(Record("traces", "json", 1, payload)).result()
                    break
                except SpoolFull:
                    time.sleep(0.01)

    threads = [threading.Thread(target=append, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    reader, found = LogReader(tmp_path), []
    deadline = time.monotonic() + 30
    while len(found) < len(expected) and time.monotonic() < deadline:
        found += [record.payload for record in reader.records()]
        remove_before(tmp_path, reader.position.segment)
    for thread in threads:
        thread.join()
    spool.close()

    assert sorted(found) == sorted(expected)
    assert reader.damaged_bytes == 0
    reader.close()


def test_the_quota_refuses_and_removal_makes_room(tmp_path: Path) -> None:
    """At the quota a record is refused; once the reader removed segments, it is accepted."""
    now = [0.0]
    spool = Spool(tmp_path, quota=4096, reserve=0, clock=lambda: now[0])
    record = Record("traces", "json", 1, b"." * 1000)
    for _ in range(3):
        spool.append(record).result()

    with pytest.raises(SpoolFull, match="quota"):
        spool.append(record._replace(payload=b"." * 2000))
    reader = LogReader(tmp_path)
    list(reader.records())
    remove_before(tmp_path, reader.position.segment)
    now[0] += 1
    spool.append(record._replace(payload=b"." * 2000)).result()

    spool.close()
    reader.close()


class _Faulty:
    """A disk that is full, then is not."""

    def __init__(self) -> None:
        self.full = False

    def write(self, fd: int, buffers: Sequence[bytes]) -> int:
        if self.full:
            os.write(fd, bytes(buffers[0])[: len(buffers[0]) // 2])
            raise OSError(28, "No space left on device")
        return os.writev(fd, buffers)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)


def test_a_full_disk_refuses_records_until_there_is_room(tmp_path: Path) -> None:
    """A record that cannot be written is refused; the next ones are written whole."""
    disk = _Faulty()
    spool = Spool(tmp_path, reserve=0, write=disk.write, sync=disk.sync)
    records = [Record("logs", "protobuf", n, b"%d" % n) for n in range(3)]
    spool.append(records[0]).result()

    disk.full = True
    with pytest.raises(SpoolFull, match="No space left"):
        spool.append(records[1]).result()
    problem = spool.problem
    disk.full = False
    spool.append(records[2]).result()

    assert problem == "No space left on device"
    assert spool.problem == ""
    spool.close()
    assert plain(read(tmp_path)) == plain([records[0], records[2]])


def test_short_writes_are_finished(tmp_path: Path) -> None:
    """A write that is shorter than requested is continued."""
    chance = random.Random(1)

    def write(fd: int, buffers: Sequence[bytes]) -> int:
        return os.write(fd, bytes(buffers[0])[: chance.randint(1, len(buffers[0]))])

    spool = Spool(tmp_path, write=write)
    records = [Record("traces", "json", n, os.urandom(n)) for n in range(50)]
    for done in [spool.append(record) for record in records]:
        done.result()
    spool.close()

    assert plain(read(tmp_path)) == plain(records)


def test_two_processes_cannot_append_to_one_spool(tmp_path: Path) -> None:
    """The second process is refused with the reason."""
    spool = Spool(tmp_path)

    with pytest.raises(SpoolFull, match="another oteval serve"):
        Spool(tmp_path)

    spool.close()
    Spool(tmp_path).close()


def test_segments_on_disk_stay_readable(tmp_path: Path) -> None:
    """The bytes of a segment that an earlier version wrote are read, and written again alike."""
    content = bytes.fromhex(
        "4f5453504f4f4c31"
        "f54f545207000000afac1b56000100002a36fe9c9717c7697e637b2261223a317d"
        "f54f54520200000075fa36bb010001002a36fe9c97173d5588060a00"
    )
    expected = [
        Record("traces", "json", 1_700_000_000_000_000_000, b'{"a":1}'),
        Record("logs", "protobuf", 1_700_000_000_000_000_001, b"\x0a\x00"),
    ]
    segment_path(tmp_path, 1_000_001).write_bytes(content)

    found = read(tmp_path)
    spooled(tmp_path, expected)

    assert plain(found) == plain(expected)
    assert list(segment_sizes(tmp_path)) == [1_000_001, 1_000_002]
    assert segment_path(tmp_path, 1_000_002).read_bytes() == content
