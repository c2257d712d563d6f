"""Pages of APIs that list a range of time behind a cursor.

The range is fixed at the request for the first page, and stored with the cursor, so that an
interrupted pull continues in the same list. If a pull completes an older range, it then reads on to
the present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.errors import BackendError
from ...base.text import counted
from ...model import Span
from .interface import PullPosition
from .json_api import JsonApi
from .page_lists import Listed, PageGuard
from .span_checks import require_valid
from .times import OVERLAP_NS, begin_ns, position_at

__all__ = ["CursorRequest", "cursor_pages", "spans_of"]

# A smaller page may succeed: the answer is too large, or takes too long.
_SMALLER = frozenset({408, 413, 500, 504})
# The backend does not know the cursor any more.
_BAD_REQUEST = 400


class CursorRequest(NamedTuple):
    """A page to request.

    Attributes:
        begin_ns: The start of the range.
        end_ns: Its end.
        cursor: The cursor from the page before; "" for the first page.
        limit: Elements of the page at most.
        once: Statuses after which the request is not sent again.
    """

    begin_ns: int
    end_ns: int
    cursor: str
    limit: int
    once: Collection[int] = ()


def cursor_pages(
    api: JsonApi,
    position: PullPosition,
    *,
    now_ns: int,
    limit: int,
    fetch: Callable[[CursorRequest], Listed],
) -> Iterator[tuple[Sequence[Mapping[str, Any]], PullPosition]]:
    """Yield the pages from a position to the present, each with the position after it.

    Args:
        api: The API, for errors.
        position: The position of an earlier page, or only ``since_ns``.
        now_ns: The end of the newest range.
        limit: Elements of a page; halved while the backend cannot answer.
        fetch: Returns a page.

    Raises:
        BackendError: The backend refuses a request, or its list does not end.
    """
    while True:
        cursor = str(position.get("cursor") or "")
        end = int(position["to_ns"]) if cursor else now_ns
        begin = begin_ns(position)
        if begin >= end:
            return
        has_restarted = False
        guard = PageGuard(api)
        while True:
            once = _SMALLER if limit > 1 else frozenset()
            try:
                items, following = fetch(CursorRequest(begin, end, cursor, limit, once))
            except BackendError as error:
                if error.status in once:
                    limit //= 2
                elif error.status == _BAD_REQUEST and cursor and not has_restarted:
                    cursor, has_restarted, guard = "", True, PageGuard(api)
                else:
                    raise
                continue
            cursor = following
            guard.check(items, cursor)
            after = position_at(position, begin if cursor else end, is_complete=not cursor)
            position = {**after, "to_ns": end, "cursor": cursor} if cursor else after
            yield items, position
            if not cursor:
                break
        if end >= now_ns:
            return


def spans_of(
    items: Sequence[Mapping[str, Any]],
    noun: str,
    now_ns: int,
    read: Callable[[Mapping[str, Any]], tuple[Span, bool]],
) -> tuple[list[Span], list[str]]:
    """The spans of a page, and the problems.

    An element without an end is left to the next pull, which reads the last hour again. If it
    began before that hour, it is taken as it is.

    Args:
        items: The elements.
        noun: The backend's name for an element.
        now_ns: The end of the range.
        read: Returns an element's span, and whether it has an end; raises `ValueError`.
    """
    spans: list[Span] = []
    problems: list[str] = []
    open_count = 0
    for value in items:
        name = f"{noun} {value.get('id')}"
        try:
            span, has_ended = read(value)
            require_valid(span)
        except ValueError as error:
            problems.append(f"{name} cannot be read ({error}); skipped")
            continue
        if has_ended:
            spans.append(span)
        elif span.start_ns > now_ns - OVERLAP_NS:
            open_count += 1
        else:
            spans.append(span)
            problems.append(f"{name} has no end; read as if it ended at its start")
    if open_count:
        problems.append(f"{counted(open_count, noun)} without an end; the next pull reads them")
    return spans, problems
