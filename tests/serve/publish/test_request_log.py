"""The requests of an export queue on disk: what was appended is there after any crash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from oteval.base.durable_log import Position
from oteval.serve.publish.request_log import QueuedRequest, RequestLog

# A folder as the queue wrote it before it was a durable log: two requests, of traces 1 and 2 and of
# trace 3, received at 1,000 s and read from the spool up to (7, 1) and (7, 2); trace 1 was sent.
_SPAN = "12310a10{trace:032x}1208{span:016x}2a0173390100000000000000410200000000000000"
_FIRST = "0a681266" + _SPAN.format(trace=1, span=1) + _SPAN.format(trace=2, span=1)
_SECOND = "0a351233" + _SPAN.format(trace=3, span=1)
OLD_SEGMENT = (
    "6f746576616c2d31" + "0" * 32
    + "6a000000bfed9c970010a5d4e80000000700000000000000010000000000000000" + "00" + _FIRST
    + "370000007f5af8280010a5d4e80000000700000000000000020000000000000000" + "00" + _SECOND
)  # fmt: skip
OLD_DONE = "1800000000000000" + f"{1:032x}"


def old_queue(folder: Path) -> None:
    """Write the files of a queue in the old format."""
    folder.mkdir(exist_ok=True)
    (folder / "000000000001.held").write_bytes(bytes.fromhex(OLD_SEGMENT))
    (folder / "000000000001.done").write_bytes(bytes.fromhex(OLD_DONE))


def bodies(log: RequestLog) -> list[bytes]:
    return [log.read(request) for request in log.requests()]


def filled(folder: Path, count: int) -> list[QueuedRequest]:
    """Append requests of growing size, and close the log."""
    log = RequestLog(folder)
    requests = [
        log.append("logs", "json", b"%d" % n * n, 5, position=Position(3, n))
        for n in range(1, count + 1)
    ]
    log.close()
    return requests


def test_the_old_format_is_read(tmp_path: Path) -> None:
    """Requests, their sent parts and the position are those that the old version wrote."""
    old_queue(tmp_path)

    log = RequestLog(tmp_path)
    found = log.requests()

    assert bodies(log) == [bytes.fromhex(_FIRST), bytes.fromhex(_SECOND)]
    assert [one.sent_parts for one in found] == [{(1).to_bytes(16, "big")}, set()]
    assert [(one.kind, one.encoding, one.received_ns) for one in found] == [
        ("traces", "protobuf", 10**12)
    ] * 2
    assert log.position == (7, 2)
    log.close()


def test_an_old_segment_is_removed_once_it_is_sent(tmp_path: Path) -> None:
    """New requests go to a new segment; the position outlives the old one."""
    old_queue(tmp_path)
    log = RequestLog(tmp_path)
    log.append("traces", "protobuf", b"new", 1, position=Position(7, 3))
    first, second, _ = log.requests()

    log.mark_sent(first, b"p" * 16, is_last=True)
    still_there = (tmp_path / "000000000001.held").exists()
    log.mark_sent(second, b"p" * 16, is_last=True)
    log.close()

    assert still_there
    assert not list(tmp_path.glob("000000000001.*"))
    log = RequestLog(tmp_path)
    assert bodies(log) == [b"new"]
    assert log.position == (7, 3)
    log.close()


@given(st.data())
def test_an_old_segment_may_be_cut_anywhere(data: st.DataObject) -> None:
    """A crash of the old version cost the last request at most; so it does when it is read."""
    content = bytes.fromhex(OLD_SEGMENT)
    size = data.draw(st.integers(0, len(content)))
    with tempfile.TemporaryDirectory() as name:
        old_queue(Path(name))
        (Path(name) / "000000000001.held").write_bytes(content[:size])

        log = RequestLog(Path(name))
        found = bodies(log)
        log.close()

    ends = len(content) - 33 - len(bytes.fromhex(_SECOND)) - 1, len(content)
    assert len(found) == sum(size >= end for end in ends)


@given(st.data())
def test_a_log_may_be_cut_anywhere(data: st.DataObject) -> None:
    """Every whole request before the cut is there, and requests can be appended after it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = filled(folder, 5)
        (path,) = folder.glob("*.spool")
        size = data.draw(st.integers(0, path.stat().st_size))
        path.write_bytes(path.read_bytes()[:size])

        log = RequestLog(folder)
        whole = sum(size >= one.payload_at + one.size for one in requests)
        assert log.position == (Position(3, whole) if whole else Position())
        log.append("logs", "json", b"next", 5, position=Position(3, 9))
        log.close()
        log = RequestLog(folder)
        found = bodies(log)
        log.close()

    assert found == [b"%d" % n * n for n in range(1, whole + 1)] + [b"next"]


def test_a_damaged_request_costs_no_other(tmp_path: Path) -> None:
    """A byte that the disk changed loses the request that it is in, and only that."""
    second = filled(tmp_path, 3)[1]
    (path,) = tmp_path.glob("*.spool")
    content = bytearray(path.read_bytes())
    content[second.payload_at] ^= 1
    path.write_bytes(content)

    log = RequestLog(tmp_path)

    assert bodies(log) == [b"1", b"333"]
    assert log.position == (3, 3)
    log.close()


def test_a_cut_list_of_sent_parts_is_read(tmp_path: Path) -> None:
    """Half an entry at its end, as a crash leaves it, is dropped; what comes next is read."""
    log = RequestLog(tmp_path)
    request = log.append("traces", "protobuf", b"x", 1)
    log.mark_sent(request, b"a" * 16, is_last=False)
    log.close()
    (path,) = tmp_path.glob("*.done")
    with path.open("ab") as file:
        file.write(b"half")

    log = RequestLog(tmp_path)
    (again,) = log.requests()
    log.mark_sent(again, b"b" * 16, is_last=False)
    log.close()

    log = RequestLog(tmp_path)
    assert log.requests()[0].sent_parts == {b"a" * 16, b"b" * 16}
    log.close()


def test_segments_go_in_any_order_and_the_newest_stays(tmp_path: Path) -> None:
    """A segment whose requests are sent is removed though one before it is not."""
    log = RequestLog(tmp_path, segment_bytes=100)
    requests = [log.append("logs", "json", b"x" * 200, 1, Position(1, n)) for n in range(1, 5)]

    for request in requests[1:]:
        log.mark_sent(request, b"p" * 16, is_last=True)
    left = len(list(tmp_path.glob("*.spool")))
    log.close()

    assert left == 2
    log = RequestLog(tmp_path)
    assert log.position == (1, 4)
    log.close()


def test_a_deleted_folder_is_restored_at_the_next_sync(tmp_path: Path) -> None:
    """What was appended is there again, and more can be appended and read."""
    folder = tmp_path / "queue"
    log = RequestLog(folder)
    log.append("logs", "json", b"first", 1, Position(1, 1))
    log.sync()
    shutil.rmtree(folder)
    log.append("logs", "json", b"second", 1, Position(1, 2))

    with pytest.raises(OSError, match="deleted"):
        log.sync()
    log.restore()
    log.append("logs", "json", b"third", 1, Position(1, 3))
    log.sync()
    now = bodies(log)
    log.close()

    log = RequestLog(folder)
    assert bodies(log) == now == [b"first", b"second", b"third"]
    log.close()


def test_one_process_has_a_queue(tmp_path: Path) -> None:
    """Two servers with one database cannot send from one queue."""
    log = RequestLog(tmp_path)

    with pytest.raises(OSError, match="another oteval serve"):
        RequestLog(tmp_path)

    log.close()
