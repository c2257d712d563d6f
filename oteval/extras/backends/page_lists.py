"""Lists that a backend returns page by page, each with a cursor for the next page.

A backend, or a proxy in front of it, may return the same cursor or the same page again and again.
Then a pull ends with an error. A list ends when its cursor is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from ...base.jsontext import canonical
from .json_api import JsonApi

__all__ = ["Listed", "PageGuard", "all_elements", "cursor_of", "objects_of", "text_of"]

Object = Mapping[str, Any]
Listed = tuple[Sequence[Object], str]
"""The elements of a page, and the cursor of the next page; "" for the last page."""

# Pages in a row without an element. Some backends search a part of their data for each page.
_MOST_EMPTY = 200
# Pages of a list that is read whole, such as the list of all projects.
_MOST_PAGES = 10_000
_IDS = ("id", "name")


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
