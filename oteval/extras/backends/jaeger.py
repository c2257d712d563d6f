"""Jaeger: traces from the HTTP API of its query service.

API: https://www.jaegertracing.io/docs/latest/apis/. A search returns whole traces of a service in a
range of time: the newest traces first, and at most `limit`. A range with more traces is halved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import BackendError
from ...ingest import Decoded, decode_trace, is_trace
from .json_api import JsonApi
from .page_lists import begin_ns, halved_ranges, position_at, text_of, unless_too_large
from .transfer import PullPosition, SpanPage, TraceSource

__all__ = ["Jaeger"]

_LIMIT = 200
_US = 1000
# The most ranges of one microsecond in a row: a day of them would never end.
_MOST_SMALLEST = 1000

Object = Mapping[str, Any]


class Jaeger(TraceSource):
    """A query service of Jaeger. Its projects are services.

    Args:
        api: Its API.
        limit: Traces of a page.
        clock: The time (ns); traces are read up to it.
    """

    def __init__(
        self, api: JsonApi, *, limit: int = _LIMIT, clock: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__(api)
        self._limit, self._clock = limit, clock

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The services to read; see `TraceSource`."""
        answer = self._api.get("/api/services")
        with self._api.reading():
            services = sorted(map(text_of, self._data(answer)))
        self._check_projects(names, services, "no service {}; it has")
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

    def _search(self, service: str, begin: int, until: int) -> list[Object] | None:
        """The traces of a range (µs), or None if a smaller range is needed."""
        can_halve = until - begin > 1
        query = [("service", service), ("start", str(begin)), ("end", str(until))]
        query.append(("limit", str(self._limit)))
        traces = unless_too_large(
            lambda once: self._data(self._api.get("/api/traces", query, once=once)),
            can_shrink=can_halve,
        )
        if traces is None:
            return None
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
