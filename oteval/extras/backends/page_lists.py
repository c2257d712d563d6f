"""Read a backend's lists page by page, up to the present, and continue at a stored position.

A backend, or a proxy in front of it, may return the same cursor or the same page again and again.
Then a pull ends with an error. A list ends when its cursor is empty.

A trace that arrives late began before traces that were read already. A later pull therefore begins
an hour before the newest trace of the last complete pull; the store skips repeated spans.

A list of a range of time is fixed at the request for its first page, and the range is stored with
the cursor, so that an interrupted pull continues in the same list. If a pull completes an older
range, it then reads on to the present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from ...base.errors import BackendError
from ...base.jsontext import canonical
from ...base.text import counted
from ...model import Span
from .json_api import JsonApi
from .span_fields import require_valid
from .transfer import PullPosition

__all__ = [
    "OVERLAP_NS",
    "CursorRequest",
    "Listed",
    "PageGuard",
    "all_elements",
    "begin_ns",
    "cursor_of",
    "cursor_pages",
    "halved_ranges",
    "objects_of",
    "position_at",
    "spans_of",
    "text_of",
    "unless_too_large",
]

Object = Mapping[str, Any]
Listed = tuple[Sequence[Object], str]
"""The elements of a page, and the cursor of the next page; "" for the last page."""

# Pages in a row without an element. Some backends search a part of their data for each page.
_MOST_EMPTY = 200
# Pages of a list that is read whole, such as the list of all projects.
_MOST_PAGES = 10_000
_IDS = ("id", "name")
OVERLAP_NS = 3600 * 10**9
"""How far before the end of a complete pull the next pull begins (ns)."""

T = TypeVar("T")
# A smaller request may succeed: the answer is too large, or takes too long.
_SMALLER = frozenset({408, 413, 500, 504})
# The backend does not know the cursor any more.
_BAD_REQUEST = 400


class PageGuard:
    """Notes the pages of one list, and ends a list that does not come to its end.

    Args:
        api: The API, for errors.
    """

    def __init__(self, api: JsonApi) -> None:
        self._api = api
        self._cursors: set[bytes] = set()
        self._pages: set[bytes] = set()
        self._empty = 0

    def check(self, elements: Iterable[Object], cursor: str) -> None:
        """Note a page.

        Args:
            elements: Its elements, without elements that are known to come twice.
            cursor: The cursor of the next page, "" for none.

        Raises:
            BackendError: The cursor or the page came before, or too many pages were empty.
        """
        if not cursor:
            return
        self._note(self._cursors, [cursor], "the cursor of a page comes again")
        names = [_name_of(element) for element in elements]
        if names:
            self._empty = 0
            self._note(self._pages, names, "a page comes again")
            return
        self._empty += 1
        if self._empty >= _MOST_EMPTY:
            raise self._endless(f"{self._empty} pages in a row are empty")

    def _note(self, digests: set[bytes], texts: Sequence[str], problem: str) -> None:
        digest = blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=12).digest()
        if digest in digests:
            raise self._endless(problem)
        digests.add(digest)

    def _endless(self, problem: str) -> Exception:
        return self._api.error(f"{problem}, so that its list does not end; stopped")


def all_elements(api: JsonApi, page: Callable[[str], Listed]) -> Iterator[Object]:
    """Yield the elements of all pages of a list.

    Args:
        api: The API, for errors.
        page: Returns the page of a cursor, which is "" for the first page.

    Raises:
        BackendError: The list does not end.
    """
    guard = PageGuard(api)
    cursor = ""
    for _ in range(_MOST_PAGES):
        elements, cursor = page(cursor)
        yield from elements
        if not cursor:
            return
        guard.check(elements, cursor)
    raise api.error(f"a list has more than {_MOST_PAGES:,} pages; stopped")


def unless_too_large(request: Callable[[Collection[int]], T], *, can_shrink: bool) -> T | None:
    """The result of a request, or None if a smaller request may succeed.

    Args:
        request: Sends the request; takes the statuses after which it is not sent again.
        can_shrink: Whether a smaller request is possible.

    Raises:
        BackendError: The backend refuses the request.
    """
    once = _SMALLER if can_shrink else frozenset[int]()
    try:
        return request(once)
    except BackendError as error:
        if error.status not in once:
            raise
        return None


def objects_of(value: Any, *, is_optional: bool = False) -> list[Object]:
    """A list of JSON objects.

    Args:
        value: The value.
        is_optional: Whether null means an empty list.

    Raises:
        TypeError: The value is of another type.
    """
    if is_optional and value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{_kind(value)} where a list is expected")
    for element in value:
        if not isinstance(element, dict):
            raise TypeError(f"{_kind(element)} where an object is expected")
    return value


def cursor_of(value: Any) -> str:
    """A cursor, "" for none.

    Raises:
        TypeError: The value is neither text nor null.
    """
    if value is None or isinstance(value, str):
        return value or ""
    raise TypeError(f"{_kind(value)} where a cursor is expected")


def text_of(value: Any) -> str:
    """A text that is not empty, such as a name or an id.

    Raises:
        TypeError: The value is of another type.
    """
    if isinstance(value, str) and value:
        return value
    raise TypeError(f"{_kind(value)} where a name or an id is expected")


def _name_of(element: Object) -> str:
    for key in _IDS:
        if isinstance(element.get(key), str):
            return str(element[key])
    return canonical(element)


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        type(None): "null",
        bool: "a boolean",
    }
    return kinds.get(type(value), "a number")


def begin_ns(position: PullPosition) -> int:
    """The time where a pull begins to read (ns).

    Args:
        position: A position by `position_at`, or only ``since_ns``.
    """
    since = int(position["since_ns"])
    read = int(position.get("read_ns", since))
    return max(since, read - OVERLAP_NS) if position.get("is_complete") else max(since, read)


def position_at(position: PullPosition, read_ns: int, *, is_complete: bool) -> PullPosition:
    """The position after a page.

    Args:
        position: The position before it.
        read_ns: All traces that began before this time (ns) were read.
        is_complete: Whether this was the last page.
    """
    return {"since_ns": position["since_ns"], "read_ns": read_ns, "is_complete": is_complete}


def halved_ranges(
    begin: int,
    end: int,
    search: Callable[[int, int], T | None],
    *,
    widest: int | None = None,
) -> Iterator[tuple[int, int, T]]:
    """Search a span of time in ranges that are as wide as the backend can answer.

    Args:
        begin: The start, in any unit.
        end: The end, in the same unit.
        search: Returns the findings of a range, or None if it is to be halved. A range of one unit
            cannot be halved.
        widest: The largest width of a range.

    Yields:
        The start and end of each range, and its findings.
    """
    largest = widest or max(end - begin, 1)
    width = largest
    while begin < end:
        until = min(begin + width, end)
        results = search(begin, until)
        if results is None:
            width = max((until - begin) // 2, 1)
            continue
        yield begin, until, results
        begin, width = until, min(width * 2, largest)


class CursorRequest(NamedTuple):
    """A page to request.

    Attributes:
        begin_ns: The start of the range.
        end_ns: Its end.
        cursor: The cursor from the page before; "" for the first page.
        limit: Elements of the page at most.
    """

    begin_ns: int
    end_ns: int
    cursor: str
    limit: int


def cursor_pages(
    api: JsonApi,
    position: PullPosition,
    *,
    now_ns: int,
    limit: int,
    fetch: Callable[[CursorRequest, Collection[int]], Listed],
) -> Iterator[tuple[Sequence[Mapping[str, Any]], PullPosition]]:
    """Yield the pages from a position to the present, each with the position after it.

    Args:
        api: The API, for errors.
        position: The position of an earlier page, or only ``since_ns``.
        now_ns: The end of the newest range.
        limit: Elements of a page; halved while the backend cannot answer.
        fetch: Returns a page; its second argument is as for `unless_too_large`.

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
            request = CursorRequest(begin, end, cursor, limit)
            try:
                page = unless_too_large(partial(fetch, request), can_shrink=limit > 1)
            except BackendError as error:
                if error.status != _BAD_REQUEST or not cursor or has_restarted:
                    raise
                cursor, has_restarted, guard = "", True, PageGuard(api)
                continue
            if page is None:
                limit //= 2
                continue
            items, cursor = page
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
    read: Callable[[Mapping[str, Any]], tuple[Span, bool]],
    *,
    now_ns: int = 0,
) -> tuple[list[Span], list[str]]:
    """The spans of a page, and the problems.

    An element without an end is left to the next pull, which reads the last hour again. If it
    began before that hour, it is taken as it is.

    Args:
        items: The elements.
        noun: The backend's name for an element.
        read: Returns an element's span, and whether it has an end.
        now_ns: The end of the range, if elements may have no end.
    """
    spans: list[Span] = []
    problems: list[str] = []
    open_count = 0
    for value in items:
        name = f"{noun} {value.get('id')}"
        try:
            span, has_ended = read(value)
            require_valid(span)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            problems.append(f"{name} cannot be read ({kind}{error}); skipped")
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
