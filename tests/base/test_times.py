"""Times in nanoseconds: the same moment in both directions, and the seconds between two."""

from __future__ import annotations

from datetime import datetime

import pytest

from oteval.base.times import datetime_of, ns_of_datetime, ns_of_iso, seconds_between


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:00+00:00", 0),
        ("2026-11-20T08:00:00.000001+00:00", 1_795_161_600_000_001_000),
        ("1969-12-31T23:59:59.999999+00:00", -1000),
        ("9999-12-31T23:59:59.999999+00:00", 253_402_300_799_999_999_000),
    ],
)
def test_a_time_is_the_same_in_both_directions(text: str, time_ns: int) -> None:
    """A datetime has the nanoseconds of its moment, and these give the same datetime."""
    assert ns_of_iso(text) == ns_of_datetime(datetime.fromisoformat(text)) == time_ns
    assert datetime_of(time_ns).isoformat(timespec="microseconds") == (
        text if "." in text else text.replace("+", ".000000+")
    )


def test_zones_are_kept_and_the_default_is_utc() -> None:
    """A time with a zone is the moment that it names; a time without one is in UTC."""
    moment = ns_of_iso("2026-11-20T08:00")

    assert ns_of_iso("2026-11-20T10:00+02:00") == moment
    assert ns_of_iso("2026-11-20T08:00Z") == moment


def test_a_datetime_is_rounded_down() -> None:
    """The digits below a microsecond are cut, also before 1970."""
    assert datetime_of(1_999).microsecond == 1
    assert datetime_of(-1).microsecond == 999_999


def test_a_duration_needs_a_start_and_a_later_end() -> None:
    """Seconds are unknown without a start, without an end, and between times in disorder."""
    assert seconds_between(10**9, 10**9) == 0.0
    assert seconds_between(10**9, 3 * 10**9) == 2.0
    assert seconds_between(0, 10**9) is None
    assert seconds_between(10**9, 0) is None
    assert seconds_between(2 * 10**9, 10**9) is None
