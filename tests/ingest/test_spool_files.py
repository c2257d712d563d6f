"""The spool's files moved, deleted and cut while it is in use: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import until
from oteval.base.durable_log import (
    LogReader,
    Position,
    Record,
    SegmentMissing,
    missing_segments,
    segment_path,
    segment_sizes,
)
from oteval.ingest.spool import Backlog, Spool, SpoolFull


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    made = Spool(folder, quota=1 << 20, reserve=0)
    yield made
    made.close()


def append(spool: Spool, number: int, size: int = 0) -> bytes:
    """Append a record, and return its payload once it is acknowledged."""
    payload = b"%d" % number + b"." * size
    spool.append(Record("traces", "json", 1, payload)).result()
    return payload


def taken(spool: Spool, number: int) -> bytes:
    """Append a record as soon as it is taken."""

    def tried() -> bytes | None:
        try:
            return append(spool, number)
        except SpoolFull:
            return None

    return bytes(until(tried))


def payloads(reader: LogReader) -> list[bytes]:
    return [record.payload for record in reader.records()]


def test_a_folder_that_was_moved_is_waited_for(spool: Spool, folder: Path) -> None:
    """Nothing is acknowledged while it is away; once it is back, the reader misses nothing."""
    promised = [append(spool, 1)]
    reader = LogReader(folder)
    found = payloads(reader)
    promised.append(append(spool, 2))

    folder.rename(folder.with_name("away"))
    with pytest.raises(SpoolFull, match="moved"):
        append(spool, 3)
    records = reader.records()
    found.append(next(records).payload)
    with pytest.raises(SegmentMissing, match=str(folder)):
        next(records)
    refusing = spool.refusing()
    folder.with_name("away").rename(folder)
    promised.append(taken(spool, 4))
    found += payloads(reader)

    assert "put it back" in refusing
    assert found == promised
    assert spool.problem == ""
    reader.close()


def test_another_folder_in_its_place_is_not_written_to(spool: Spool, folder: Path) -> None:
    """A disk mounted over the spool, or a copy of it: requests are refused, not acknowledged."""
    append(spool, 1)
    folder.rename(folder.with_name("away"))
    shutil.copytree(folder.with_name("away"), folder)

    with pytest.raises(SpoolFull, match="moved"):
        append(spool, 2)


@pytest.mark.parametrize("what", ["folder", "segment"])
def test_deleted_files_are_restored(spool: Spool, folder: Path, what: str) -> None:
    """Everything acknowledged is read once and in order, by old and new readers."""
    promised = [append(spool, 1)]
    early = LogReader(folder)
    found = payloads(early)
    promised.append(append(spool, 2))

    if what == "folder":
        shutil.rmtree(folder)
    else:
        segment_path(folder, max(segment_sizes(folder))).unlink()
    promised.append(taken(spool, 3))
    promised.append(append(spool, 4))
    found += payloads(early)

    assert found == promised
    assert payloads(LogReader(folder)) == promised
    with pytest.raises(SpoolFull, match="another oteval serve"):
        Spool(folder)
    early.close()


def test_segments_before_the_current_one_are_restored(spool: Spool, folder: Path) -> None:
    """A backlog of several segments whose folder is deleted loses nothing."""
    promised = []
    while len(segment_sizes(folder)) < 3:
        promised.append(append(spool, len(promised), 50_000))

    shutil.rmtree(folder)
    until(lambda: len(segment_sizes(folder)) == 3)
    promised.append(taken(spool, 99))

    assert payloads(LogReader(folder, known_gaps=())) == promised


def test_stored_segments_may_be_removed(spool: Spool, folder: Path) -> None:
    """A segment that the storage process removed is not restored."""
    while len(segment_sizes(folder)) < 3:
        append(spool, 1, 50_000)
    first, *others = segment_sizes(folder)
    spool.stored(Position(others[0]))

    segment_path(folder, first).unlink()
    shutil.rmtree(folder)
    until(lambda: len(segment_sizes(folder)) == 2)

    assert list(segment_sizes(folder)) == others


def test_a_segment_that_was_cut_is_an_error(spool: Spool, folder: Path) -> None:
    """The next request is refused with the reason; later ones go to another segment."""
    append(spool, 1, 100)
    path = segment_path(folder, max(segment_sizes(folder)))
    with path.open("r+b") as file:
        file.truncate(20)

    with pytest.raises(SpoolFull, match=r"spool was cut"):
        append(spool, 2)
    promised = append(spool, 3)

    assert payloads(LogReader(folder))[-1] == promised
    assert len(segment_sizes(folder)) == 2


def test_a_gap_between_segments_is_an_error(spool: Spool, folder: Path) -> None:
    """A reader stops before a missing segment; where its loss is known it goes on after it."""
    promised = []
    while len(segment_sizes(folder)) < 3:
        promised.append(append(spool, len(promised), 50_000))
    first, second, third = segment_sizes(folder)
    segment_path(folder, second).unlink()
    reader = LogReader(folder, known_gaps=())
    records = reader.records()
    found = [next(records).payload for _ in range(segment_sizes(folder)[first] // 50_000)]

    with pytest.raises(SegmentMissing, match=str(second)):
        next(records)
    missing = missing_segments(folder, Position(first, 8))
    after = payloads(LogReader(folder, reader.position, known_gaps=missing))

    assert 0 < len(found) < len(promised)
    assert found == promised[: len(found)]
    assert list(missing) == [third]
    assert str(second) in missing[third]
    assert after == promised[-len(after) :]
    reader.close()


def test_a_stored_position_whose_segment_is_missing_is_a_loss(spool: Spool, folder: Path) -> None:
    """Its own segment, or all; a position whose segment is there has none behind it."""
    while len(segment_sizes(folder)) < 2:
        append(spool, 1, 50_000)
    first, second = segment_sizes(folder)

    assert missing_segments(folder, Position()) == {}
    assert missing_segments(folder, Position(first, 10)) == {}
    assert list(missing_segments(folder, Position(first - 2, 10))) == [first]
    assert list(missing_segments(folder, Position(first - 10**12, 10))) == [first]
    assert list(missing_segments(folder, Position(second + 1, 10))) == [0]
    segment_path(folder, first).unlink()
    assert list(missing_segments(folder, Position())) == [second]


def test_numbers_do_not_depend_on_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that was set back, an emptied folder still gets greater numbers than before."""
    monkeypatch.setattr("oteval.base.durable_log.writer.time.time_ns", lambda: 5)
    spool = Spool(folder)
    spool.stored(Position(1_000, 8))

    append(spool, 1)
    until(lambda: segment_sizes(folder))
    spool.close()
    again = Spool(folder)
    append(again, 2)
    again.close()

    assert list(segment_sizes(folder)) == [1_001, 1_002]


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_age_of_what_waits() -> None:
    """It is the age of the oldest request that is not stored, and 0 if there is none."""
    clock = _Clock()
    backlog = Backlog(clock)
    for number in range(5):
        backlog.acknowledge(Position(7, number))
        clock.now += 1.0

    assert backlog.oldest(Position()) == 5.0
    assert backlog.oldest(Position(7, 2)) == 2.0
    assert backlog.oldest(Position(7, 4)) == 0.0


def test_the_age_of_what_waits_for_long() -> None:
    """A day without storing takes little memory, and ages are never too low."""
    clock = _Clock()
    backlog = Backlog(clock)
    for number in range(100_000):
        backlog.acknowledge(Position(1, number))
        clock.now += 1.0

    for stored in (0, 10, 5_000, 99_000):
        age = 100_000 - stored - 1
        assert age <= backlog.oldest(Position(1, stored)) <= age + 600
    assert len(backlog._entries) <= 1024
