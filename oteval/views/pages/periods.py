"""The periods of figures: they end with the newest run, and begin some days before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from ...base.errors import ConfigError
from ...model import EVERYTHING, Selection
from ...store import Store

__all__ = [
    "DEFAULT_PERIOD",
    "PERIODS",
    "chosen_period",
    "extent_of",
    "latest_start",
    "periods_in_order",
]

_DAY_NS = 86_400 * 10**9
PERIODS: Final[Mapping[str, int | None]] = {
    "1d": _DAY_NS,
    "7d": 7 * _DAY_NS,
    "30d": 30 * _DAY_NS,
    "all": None,
}
"""The length (ns) of each period; None for the period with all runs."""
DEFAULT_PERIOD: Final = "7d"


def periods_in_order() -> list[str]:
    """The periods, beginning with the default period."""
    return sorted(PERIODS, key=lambda period: period != DEFAULT_PERIOD)


def chosen_period(request: Request) -> str:
    """The period of a request.

    Raises:
        ConfigError: It is none of the `PERIODS`.
    """
    period = request.query_params.get("period", DEFAULT_PERIOD)
    if period not in PERIODS:
        raise ConfigError(f"period={period[:40]}: write one of {', '.join(PERIODS)}")
    return period


def latest_start(now_ns: int) -> int:
    """The time (ns) when the future begins: clocks may differ by a day."""
    return now_ns + _DAY_NS


def extent_of(
    store: Store, period: str, now_ns: int, selection: Selection = EVERYTHING
) -> tuple[int, int] | None:
    """When a period begins and ends (ns since the epoch); None without runs.

    A run in the future does not end the period. Otherwise, a single run of a machine whose clock is
    wrong would be all that the period shows.

    Args:
        store: The store.
        period: One of `PERIODS`.
        now_ns: The current time.
        selection: The filter for runs, whose times narrow the period.
    """
    length = PERIODS[period]
    extent = store.agent_figures.extent(latest_start(now_ns) if length else None)
    if extent is None:
        return None
    first, last = extent
    if length is not None:
        first = max(first, last - length)
    if selection.since_ns is not None:
        first = max(first, selection.since_ns)
    if selection.until_ns is not None:
        last = min(last, selection.until_ns - 1)
    return (first, last) if first <= last else None
