"""Jaeger: traces from the HTTP API of its query service.

API: https://www.jaegertracing.io/docs/latest/apis/. A search returns whole traces of a service in a
range of time: the newest traces first, and at most `limit`. A range with more traces is halved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import BackendError
from ...base.text import listed
from ...ingest import Decoded, decode_trace, is_trace
from .interface import PullPosition, SpanPage
from .json_api import JsonApi
from .page_lists import text_of
from .times import begin_ns, halved_ranges, position_at

__all__ = ["Jaeger"]

_LIMIT = 200
_US = 1000
# The most ranges of one microsecond in a row: a day of them would never end.
_MOST_SMALLEST = 1000
# A smaller range may succeed: the answer is too large, or takes too long.
_SMALLER = frozenset({408, 413, 500, 504})

Object = Mapping[str, Any]


class Jaeger:
    """A query service of Jaeger: a `TraceSource`. Its projects are services.

    Args:
        api: Its API.
        limit: Traces of a page.
        clock: The time (ns); traces are read up to it.

    Attributes:
        url: Its base URL without a password.
    """

    def __init__(
        self, api: JsonApi, *, limit: int = _LIMIT, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.url = api.url
        self._api, self._limit, self._clock = api, limit, clock

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The services to read; see `TraceSource`."""
        answer = self._api.get("/api/services")
        with self._api.reading():
            services = sorted(map(text_of, self._data(answer)))
        for name in names:
            if name not in services:
                raise BackendError(f"{self.url}: no service {name!r}; it has {listed(services)}")
        return list(names) or services

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a service; see `TraceSource`."""
        end = self._clock() // _US
        begin = min(begin_ns(position) // _US, end)
        ranges = halved_ranges(begin, end, lambda start, to: self._search(project, start, to))
        smallest = 0
        for start, until, traces in ranges:
            smallest = smallest + 1 if until - start == 1 else 0
            if smallest > _MOST_SMALLEST:
                raise self._api.error(
                    f"it says that every two microseconds have more than {self._limit} traces"
                )
            decoded = Decoded()
            for trace in traces:
                decode_trace(trace, decoded)
            after = position_at(position, until * _US, is_complete=until == end)
            yield SpanPage(decoded.spans, after, decoded.problems)

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _search(self, service: str, begin: int, until: int) -> list[Object] | None:
        """The traces of a range (µs), or None if a smaller range is needed."""
        can_halve = until - begin > 1
        query = [("service", service), ("start", str(begin)), ("end", str(until))]
        try:
            answer = self._api.get(
                "/api/traces",
                [*query, ("limit", str(self._limit))],
                once=_SMALLER if can_halve else (),
            )
        except BackendError as error:
            if error.status not in _SMALLER or not can_halve:
                raise
            return None
        traces = self._data(answer)
        if not all(isinstance(trace, dict) and is_trace(trace) for trace in traces):
            raise self._api.foreign()
        if len(traces) >= self._limit:
            if can_halve:
                return None
            raise BackendError(
                f"{self.url}: service {service!r} has {self._limit} traces in one microsecond"
            )
        return traces

    def _data(self, answer: Any) -> list[Any]:
        with self._api.reading():
            data = answer["data"]
            if data is None:  # Go's empty list
                return []
            if isinstance(data, list):
                return data
        raise self._api.foreign()
