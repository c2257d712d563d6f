"""The runs of a server, and their effect on deadlines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from oteval.serve.publish.forwarder import Uptime

SECOND = 1_000_000_000


def lives(path: Path, *runs: tuple[float, float], now: float) -> Uptime:
    """Return the uptime of a process that starts now and ran before, each time until a kill."""
    for begin, end in runs:
        life = Uptime(path, round(begin * SECOND))
        life.beat(round(end * SECOND))
        life.close()
    return Uptime(path, round(now * SECOND))


def test_time_down_does_not_count(tmp_path: Path) -> None:
    """A wait is over once the process has run for so long, whenever it was down meanwhile."""
    life = lives(tmp_path / "runs", (100, 110), (130, 140), now=200)

    def due(since: float) -> float:
        return life.due(round(since * SECOND), 30 * SECOND) / SECOND

    assert due(100) == 210  # ran for 10 s, and 10 s
    assert due(105) == 215
    assert due(120) == 220  # came while it was down
    assert due(150) == 230
    assert due(200) == 230
    assert due(60) == 90  # over before it was ever down
    life.close()


def test_a_deadline_that_passed_while_it_ran_stays_passed(tmp_path: Path) -> None:
    """What was due in an earlier life is due at once after the restart."""
    life = lives(tmp_path / "runs", (100, 190), now=250)

    assert life.due(120 * SECOND, 30 * SECOND) == 150 * SECOND
    life.close()


def test_a_file_that_is_torn_or_nonsense_is_no_harm(tmp_path: Path) -> None:
    """What cannot be right in the file is left out; deadlines then come as without it."""
    path = tmp_path / "runs"
    path.write_bytes(b"\xff" * 21)

    life = Uptime(path, 100 * SECOND)

    assert life.due(50 * SECOND, 30 * SECOND) == 80 * SECOND
    life.close()


def test_a_disk_that_is_full_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be noted is not; the deadlines of this run hold all the same."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)

    life = Uptime(tmp_path / "runs", 100 * SECOND)
    life.beat(101 * SECOND)
    due = life.due(100 * SECOND, 30 * SECOND)
    life.close()

    assert due == 130 * SECOND


def test_a_clock_that_was_set_back_is_no_harm(tmp_path: Path) -> None:
    """A run that begins before the one before it ended leaves no time down."""
    life = lives(tmp_path / "runs", (100, 200), now=150)

    assert life.due(120 * SECOND, 30 * SECOND) == 150 * SECOND
    life.close()


def test_the_file_stays_small(tmp_path: Path) -> None:
    """Of thousands of restarts the newest are known."""
    path = tmp_path / "runs"
    for number in range(500):
        Uptime(path, number * SECOND + 1).close()

    assert path.stat().st_size < 2000


@given(
    st.lists(st.integers(1, 40), min_size=3, max_size=21),
    st.integers(0, 400),
    st.integers(0, 100),
)
def test_a_wait_is_as_long_as_it_ran(
    tmp_path_factory: object, steps: list[int], since: int, wait: int
) -> None:
    """Between a time and its due time, the process ran for exactly the wait."""
    folder = tmp_path_factory.mktemp("runs")  # type: ignore[attr-defined]
    times = [1000 + sum(steps[: i + 1]) for i in range(len(steps))]
    runs = list(zip(times[::2], times[1::2], strict=False))
    now = times[-1] + 7
    life = lives(folder / "runs", *runs, now=now)
    since += runs[0][0]

    due = life.due(since * SECOND, wait * SECOND) // SECOND
    life.close()

    ran = [*runs, (now, now + 10_000)]
    counted = sum(max(0, min(due, end) - max(since, begin)) for begin, end in ran)
    assert counted == wait
