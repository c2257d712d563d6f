"""Times in nanoseconds since the Unix epoch, from and to datetimes.

The conversions use integers only: a time as a float is off by up to some hundred nanoseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["datetime_of", "ns_of_datetime", "ns_of_iso", "seconds_between"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(time_ns: int) -> datetime:
    """A time (ns) as a datetime in UTC, rounded down to microseconds.

    Raises:
        OverflowError: The year is not between 1 and 9999.
    """
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def ns_of_datetime(when: datetime) -> int:
    """The time (ns) of a datetime; without a zone, it is in UTC."""
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def ns_of_iso(text: str) -> int:
    """The time (ns) of an ISO date or time; without a zone, it is in UTC.

    Raises:
        ValueError: The text is neither.
    """
    return ns_of_datetime(datetime.fromisoformat(text))


def seconds_between(start_ns: int, end_ns: int) -> float | None:
    """The seconds from a start (ns) to an end; None if the start is unknown, or after the end."""
    return (end_ns - start_ns) / 1e9 if 0 < start_ns <= end_ns else None
