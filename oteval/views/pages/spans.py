"""The page of a run's spans, ``/runs/ID/spans``: a tree, a waterfall, and how each was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import ConfigError, NotFound
from ...base.jsontext import dumps
from ...base.text import counted, listed
from ...model import Span, Trajectory
from ...reconstruct import accounts_of_some, in_order
from ...scoring import Explanation, SpanAccount, explain
from ...store import Store
from ..text import clean, duration, indented, is_cut, one_line, shorten
from .responses import near_parts, page, text_page
from .runs import kept_columns
from .search import stored_run
from .site import Site

__all__ = ["SpanItem", "SpansPage", "spans_page", "spans_routes"]

# Traces with more spans are not reconstructed for the page.
_MOST_EXPLAINED = 4000
_PAGE = 200
# The most attributes and events of a span, and the characters of them for all spans of a page.
_MOST, _ROOM = 60, 200_000
_GAPS = 50
# Characters of the elements around an attribute.
_MARKUP = 50
_LONGEST, _NAME = 800, 80  # characters
_MAX_DEPTH = 16
# The width of the waterfall in units of its drawing, and of its thinnest bar.
_WIDTH, _THINNEST = 1000, 4


@dataclass(frozen=True, slots=True)
class SpanItem:
    """A span in the tree.

    Attributes:
        id: The span's id.
        depth: How far it is indented.
        name: Its name.
        kind: ``agent``, ``model call``, ``tool``, or "".
        dialect: The dialect that read it, or "".
        holds: Its content, in words.
        messages: The numbers of the messages that come from it.
        run: The id of the run that it belongs to, or "".
        is_of_run: Whether that is the run of the page.
        note: Why no messages come from it, or "".
        x: The left edge of its bar.
        width: The width of its bar.
        took: How long it took.
        is_error: Whether its status is an error.
        status: The description of its status.
        facts: Its scope, kind and parent, by name.
        attributes: Its attributes, long ones cut.
        events: Its events, as text.
        is_cut: Whether an attribute or event was cut or left out.
        left_out: The number of attributes and events that were left out, as text, or "".
        gaps: Its gaps.
    """

    id: str
    depth: int
    name: str
    kind: str
    dialect: str
    holds: str
    messages: tuple[int, ...]
    run: str
    is_of_run: bool
    note: str
    x: float
    width: float
    took: str
    is_error: bool
    status: str
    facts: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str], ...]
    is_cut: bool
    left_out: str
    gaps: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SpansPage:
    """Everything that the page shows.

    Attributes:
        run: The id of the run.
        trace_id: The trace.
        items: The spans of this part.
        count: The number of spans of the trace.
        log_records: The number of log records.
        runs: The number of runs of the trace; 0 if they were not counted.
        took: How long the trace took.
        gaps: The codes and details of its gaps, with the number of spans.
        first: The place of the first span of this part.
        parts: The places of the first spans of all parts, if there are several.
    """

    run: str
    trace_id: str
    items: tuple[SpanItem, ...]
    count: int
    log_records: int
    runs: int
    took: str
    gaps: tuple[tuple[str, str, int], ...]
    first: int
    parts: tuple[int, ...]

    def near_parts(self) -> Sequence[int]:
        """The parts to link to: the first, the last, and the parts near this one."""
        return near_parts(self.parts, self.first)


def spans_routes(site: Site) -> list[Route]:
    """The routes of spans."""

    async def spans(request: Request) -> Response:
        name, text = request.path_params["name"], request.query_params.get("from", "0")
        if not text.isdecimal() or len(text) > 9:
            raise ConfigError(f"from={text[:60]}: write a number")

        def read(store: Store) -> SpansPage:
            run = stored_run(store, name)
            trace_id = run.root_span.trace_id
            count = store.span_outlines.count(trace_id)
            if count > _MOST_EXPLAINED:
                return large_trace(store, run, count, int(text))
            try:
                explanation = explain(store, trace_id)
            except NotFound:
                explanation = Explanation(trace_id, (), 0, ())
            return spans_page(explanation, run.id, int(text))

        shown_page = await site.read(read)
        query = request.query_params.get("q", "")
        columns = kept_columns(request)
        return page("spans.html.j2", section="runs", spans=shown_page, query=query, columns=columns)

    async def span(request: Request) -> Response:
        name, span_id = request.path_params["name"], request.path_params["span"]

        def read(store: Store) -> Span | None:
            trace_id = stored_run(store, name).root_span.trace_id
            if stored := store.span_outlines.one(trace_id, span_id):
                return stored
            spans_of_trace, _ = store.spans.of_traces([trace_id])  # it may be archived
            return next((span for span in spans_of_trace if span.span_id == span_id), None)

        stored_span = await site.read(read)
        if stored_span is None:
            raise HTTPException(404, f"the trace has no span {span_id}")
        return text_page(_whole_text(stored_span))

    return [Route("/runs/{name}/spans", spans), Route("/runs/{name}/spans/{span}", span)]


def large_trace(store: Store, run: Trajectory, count: int, first: int = 0) -> SpansPage:
    """The page of a trace with many spans; only the shown spans are read.

    Args:
        store: The store.
        run: The run whose page leads here.
        count: The number of spans.
        first: The place of the first span to show.
    """
    trace_id = run.root_span.trace_id
    outlines = list(in_order(store.span_outlines.of(trace_id)))
    parts = tuple(range(0, len(outlines), _PAGE))
    first = first if first in parts else 0
    here = outlines[first : first + _PAGE]
    whole_spans = store.span_outlines.whole(trace_id, [span.seq for span, _ in here])
    accounts = accounts_of_some(
        [(whole_spans.get(span.span_id, span), depth) for span, depth in here], run
    )
    spans = [span for span, _ in outlines]
    begin = min((listed_span.start_ns for listed_span in spans if listed_span.start_ns), default=0)
    total = max(1, max((listed_span.end_ns for listed_span in spans), default=0) - begin)
    gaps: dict[tuple[str, str], int] = {}
    for gap in run.gaps:
        gaps[gap.code, gap.detail] = gaps.get((gap.code, gap.detail), 0) + 1
    return SpansPage(
        run=run.id,
        trace_id=trace_id,
        items=_items(accounts, run.id, begin, total),
        count=count,
        log_records=0,
        runs=0,
        took=duration(total),
        gaps=tuple(
            (clean(c), shorten(text, _LONGEST), n) for (c, text), n in islice(gaps.items(), _GAPS)
        ),
        first=first,
        parts=parts,
    )


def spans_page(explanation: Explanation, run: str, first: int = 0) -> SpansPage:
    """The page of a trace's spans.

    Args:
        explanation: How the trace was read.
        run: The run whose page leads here.
        first: The place of the first span to show.
    """
    spans = [account.span for account in explanation.accounts]
    begin = min((listed_span.start_ns for listed_span in spans if listed_span.start_ns), default=0)
    end = max((listed_span.end_ns for listed_span in spans), default=0)
    parts = tuple(range(0, len(spans), _PAGE)) if len(spans) > _PAGE else ()
    first = first if first in parts else 0
    return SpansPage(
        run=run,
        trace_id=explanation.trace_id,
        items=_items(explanation.accounts[first : first + _PAGE], run, begin, max(1, end - begin)),
        count=len(spans),
        log_records=explanation.log_records,
        runs=len(explanation.trajectories),
        took=duration(max(0, end - begin)),
        gaps=tuple(
            (clean(code), shorten(detail, _LONGEST), len(ids))
            for (code, detail), ids in islice(explanation.gaps.items(), _GAPS)
        ),
        first=first,
        parts=parts,
    )


def _items(
    accounts: Sequence[SpanAccount], run: str, begin: int, total: int
) -> tuple[SpanItem, ...]:
    """Return spans; the later ones without their attributes if the earlier ones are large."""
    items: list[SpanItem] = []
    room = _ROOM
    for account in accounts:
        items.append(_item(account, run, begin, total, room))
        room -= _size(items[-1])
    return tuple(items)


def _item(account: SpanAccount, run: str, begin: int, total: int, room: int) -> SpanItem:
    """A span whose attributes and events take at most a number of characters of HTML."""
    span = account.span
    x = min(max(0.0, (span.start_ns - begin) / total * _WIDTH), _WIDTH - _THINNEST)
    width = (span.end_ns - span.start_ns) / total * _WIDTH
    most = _MOST if room > 0 else 0
    shown_attributes = islice(sorted(span.attributes.items()), most)
    attributes = _shortened([(key, _value(value)) for key, value in shown_attributes])
    events = _shortened(
        [(event.name, _value(dict(event.attributes))) for event in span.events[:most]]
    )
    left_out = [
        counted(len(all_items) - len(shown_items), word)
        for all_items, shown_items, word in (
            (span.attributes, attributes, "more attribute"),
            (span.events, events, "more event"),
        )
        if len(shown_items) < len(all_items)
    ]
    return SpanItem(
        id=clean(span.span_id),
        depth=min(account.depth, _MAX_DEPTH),
        name=shorten(one_line(span.name), _NAME) or "(no name)",
        kind=account.kind,
        dialect=account.dialect,
        holds=shorten(account.holds, _LONGEST),
        messages=account.messages,
        run=account.trajectory_id,
        is_of_run=account.trajectory_id == run,
        note=shorten(account.note, _LONGEST),
        x=round(x, 1),
        width=round(min(max(width, _THINNEST), _WIDTH - x), 1),
        took=duration(span.end_ns - span.start_ns) if span.end_ns >= span.start_ns else "?",
        is_error=span.is_error,
        status=shorten(span.status_message, _LONGEST),
        facts=tuple((name, shorten(value, 200)) for name, value in _facts(span) if value),
        attributes=attributes,
        events=events,
        is_cut=bool(left_out) or any(is_cut(text) for _, text in (*attributes, *events)),
        left_out=listed(left_out),
        gaps=tuple((clean(gap.code), shorten(gap.detail, _LONGEST)) for gap in account.gaps[:5]),
    )


def _size(item: SpanItem) -> int:
    """About how many characters of HTML a span's attributes and events take."""
    pairs = (*item.attributes, *item.events)
    return sum(len(escape(name)) + len(escape(text)) + _MARKUP for name, text in pairs)


def _facts(span: Span) -> list[tuple[str, str]]:
    kinds = ("", "internal", "server", "client", "producer", "consumer")
    return [
        ("span", span.span_id),
        ("parent", span.parent_id),
        ("kind", kinds[span.kind] if 0 <= span.kind < len(kinds) else str(span.kind)),
        ("scope", f"{span.scope} {span.scope_version}".strip()),
    ]


def _shortened(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((shorten(name, 200), shorten(value, _LONGEST)) for name, value in pairs)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _whole_text(span: Span) -> str:
    """A span as indented JSON."""
    fields: Mapping[str, Any] = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": {"code": span.status_code, "message": span.status_message},
        "scope": {"name": span.scope, "version": span.scope_version},
        "resource": dict(span.resource),
        "attributes": dict(span.attributes),
        "events": [
            {"name": item.name, "time_ns": item.time_ns, "attributes": dict(item.attributes)}
            for item in span.events
        ],
        "links": [{"trace_id": item.trace_id, "span_id": item.span_id} for item in span.links],
    }
    return indented(fields) + "\n"
