"""Grafana Tempo: traces from its HTTP API.

API: https://grafana.com/docs/tempo/latest/api_docs/. A search returns the ids of some traces in a
range of time, in no order and at most `limit`. A range with more traces is halved. Each trace is
then read whole.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from ...base.errors import BackendError
from ...base.jsontext import dumps
from ...ingest import Decoded, decode
from .json_api import JsonApi, Query
from .page_lists import begin_ns, halved_ranges, objects_of, position_at, text_of, unless_too_large
from .transfer import PullPosition, SpanPage, TraceSource

__all__ = ["ALL_SERVICES", "Tempo"]

ALL_SERVICES = "all services"
"""The project that is read without a name."""
_LIMIT = 500
# The largest limit of a search for one second.
_MAX_LIMIT = 1 << 20
# Traces of a page.
_PAGE = 25
_S = 10**9
# Seconds of a search at most; Tempo refuses more than a week by default.
_WIDEST = 86_400
# Tempo answers like this if it dropped a trace, or if a trace is too large.
_MISSING, _TOO_LARGE = 404, 422
_TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}").fullmatch


class Tempo(TraceSource):
    """A Tempo server. Its projects are services.

    Args:
        api: Its API.
        limit: Traces of a search.
        clock: The time (ns); traces are read up to it.
    """

    def __init__(
        self, api: JsonApi, *, limit: int = _LIMIT, clock: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__(api)
        self._limit, self._clock = limit, clock

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The services to read; see `TraceSource`.

        Tempo lists only services of recent traces, so that names are not checked here.
        """
        return list(names) or [ALL_SERVICES]

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a service; see `TraceSource`."""
        chosen = "" if project == ALL_SERVICES else f" resource.service.name = {dumps(project)} "
        query = f"{{{chosen}}}"
        begin, end = begin_ns(position) // _S, self._clock() // _S + 1
        ranges = halved_ranges(
            begin, end, lambda start, until: self._search(query, start, until), widest=_WIDEST
        )
        previous: frozenset[str] = frozenset()
        has_found = "read_ns" in position
        for start, until, ids in ranges:
            has_found = has_found or bool(ids)
            # A trace that lasts into the next range was read whole.
            new = [trace_id for trace_id in ids if trace_id not in previous]
            previous = frozenset(ids)
            before = position_at(position, start * _S, is_complete=False)
            for first in range(0, len(new), _PAGE):
                yield self._page(new[first : first + _PAGE], before)
            problems = []
            if until == end and not has_found:
                problems = [f"{self.url} has no trace of {project} since the given time"]
            after = position_at(position, until * _S, is_complete=until == end)
            yield SpanPage((), after, problems)

    def _search(self, filters: str, begin: int, until: int) -> list[str] | None:
        """The ids of a range (s), or None if a smaller range is needed."""
        can_halve = until - begin > 1
        parameters = [("q", filters), ("start", str(begin)), ("end", str(until)), ("spss", "1")]
        limit = self._limit
        while True:
            query = [*parameters, ("limit", str(limit))]
            trace_ids = unless_too_large(partial(self._found_ids, query), can_shrink=can_halve)
            if trace_ids is None or len(trace_ids) < limit:
                return trace_ids
            if can_halve:
                return None
            if limit >= _MAX_LIMIT:
                raise BackendError(f"{self.url}: more than {limit:,} traces in one second")
            limit *= 2

    def _found_ids(self, query: Query, once: Collection[int]) -> list[str]:
        answer = self._api.get("/api/search", query, once=once)
        # Without traces, Go leaves the list out.
        if not isinstance(answer, dict) or not ("traces" in answer or "metrics" in answer):
            raise self._api.foreign()
        with self._api.reading():
            names = [
                text_of(trace["traceID"])
                for trace in objects_of(answer.get("traces"), is_optional=True)
            ]
        if not all(map(_TRACE_ID, names)):
            raise self._api.foreign("an id is not one of a trace")
        return [name.lower().zfill(32) for name in names]

    def _page(self, ids: Sequence[str], position: PullPosition) -> SpanPage:
        page = Decoded()
        for name in ids:
            decoded = self._trace(name)
            page.spans += decoded.spans
            page.problems += (f"trace {name}: {problem}" for problem in decoded.problems)
        return SpanPage(page.spans, position, page.problems)

    def _trace(self, name: str) -> Decoded:
        try:
            answer = self._api.get(f"/api/v2/traces/{name}")
        except BackendError as error:
            if error.status == _TOO_LARGE:
                return Decoded(problems=["too large for Tempo's limit; skipped"])
            if error.status == _MISSING:
                return Decoded(problems=["found by the search, but Tempo has it no more; skipped"])
            raise
        if not isinstance(answer, dict) or not isinstance(answer.get("trace"), dict):
            raise self._api.foreign()
        with self._api.reading():
            decoded = decode(answer)
        if not decoded.spans and not decoded.problems:
            decoded.problems.append("no spans; skipped")
        return decoded
