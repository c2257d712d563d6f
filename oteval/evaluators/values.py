"""JSON-like values: whether they are equal, where they differ, and how to show them.

A **path** is the dotted way to a value: keys of objects and, in lists, indexes counted from 0.
A missing value is `MISSING`, which differs from null.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from ..base.jsontext import canonical, dumps_exact

__all__ = [
    "MISSING",
    "Difference",
    "canonical_key",
    "differences",
    "folded",
    "holds_list",
    "lookup",
    "same",
    "show",
    "show_pair",
    "sorted_lists",
]

Difference = tuple[str, Any, Any]
"""A path, the output's value and the reference's value there."""


_SCALARS = frozenset({str, int})
_PAIRED = 60  # characters of each of two values that differ
_SMALL = 10**15  # its digits fit into any limit


class _Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def canonical_key(value: Any) -> str | None:
    """The text that all equal values share.

    Args:
        value: A JSON-like value.

    Returns:
        The text, or None for a value that is nested too deeply to compare; it equals nothing.
    """
    try:
        return canonical(value)
    except RecursionError:
        return None


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal: ``1`` equals ``1.0``, but neither true nor ``"1"``."""
    if type(left) is type(right) and isinstance(left, (str, int)):
        return bool(left == right)
    key = canonical_key(left)
    return key is not None and key == canonical_key(right)


def folded(text: str) -> str:
    """The form of a text that does not depend on case, white space or Unicode's forms.

    Args:
        text: Any text.

    Returns:
        The text in Unicode's form NFKC without case, with single spaces.
    """
    if not text.isascii():
        # Case folding may change the form, so the text is normalised twice.
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.casefold().split())


def lookup(value: Any, path: str) -> Any:
    """The value at a dotted path.

    A key that contains dots is found as well: the longest key that fits is tried first.

    Args:
        value: The value to start from.
        path: Keys, and for lists indexes, joined by dots.

    Returns:
        The value found, or `MISSING`.
    """
    if isinstance(value, dict):
        if path in value:
            return value[path]
        cut = path.rfind(".")
        while cut > 0:
            if path[:cut] in value:
                inner = lookup(value[path[:cut]], path[cut + 1 :])
                if inner is not MISSING:
                    return inner
            cut = path.rfind(".", 0, cut)
        return MISSING
    if isinstance(value, (list, tuple)):
        head, _, inner_path = path.partition(".")
        if not head.isdecimal() or len(head) > 9 or int(head) >= len(value):
            return MISSING
        return lookup(value[int(head)], inner_path) if inner_path else value[int(head)]
    return MISSING


def differences(
    out: Any,
    ref: Any,
    equal: Callable[[Any, Any], bool],
    *,
    extra_ok: bool = False,
    missing_ok: bool = False,
    path: str = "",
) -> Iterator[Difference]:
    """Yield every place where two values differ, in the output's key order.

    Lists are compared element by element; lists of different lengths differ as a whole.

    Args:
        out: The output's value.
        ref: The reference's value.
        equal: Compares values that are not both objects or both lists.
        extra_ok: Whether the output's objects may have keys that the reference lacks.
        missing_ok: Whether the output's objects may lack keys that the reference has.
        path: The path of the two values.

    Yields:
        Path, output value and reference value; `MISSING` if one side has none.
    """
    if isinstance(out, dict) and isinstance(ref, dict):
        is_strict = equal is same
        for key in {**out, **ref}:
            left, right = out.get(key, MISSING), ref.get(key, MISSING)
            is_plain = is_strict and type(left) is type(right) in _SCALARS
            if is_plain and left == right:
                continue  # as most are
            here = f"{path}.{key}" if path else str(key)
            if is_plain:  # without a generator for it
                yield here, left, right
                continue
            if left is MISSING or right is MISSING:
                if not (missing_ok if left is MISSING else extra_ok):
                    yield here, left, right
                continue
            yield from differences(
                left, right, equal, extra_ok=extra_ok, missing_ok=missing_ok, path=here
            )
    elif isinstance(out, list) and isinstance(ref, list) and len(out) == len(ref):
        for index, (left, right) in enumerate(zip(out, ref, strict=True)):
            here = f"{path}.{index}" if path else str(index)
            yield from differences(
                left, right, equal, extra_ok=extra_ok, missing_ok=missing_ok, path=here
            )
    elif not equal(out, ref):
        yield path, out, ref


def holds_list(value: Any) -> bool:
    """Whether a value is a list of several items, or contains such a list."""
    if isinstance(value, dict):
        return any(map(holds_list, value.values()))
    if isinstance(value, (list, tuple)):
        return len(value) > 1 or any(map(holds_list, value))
    return False


def sorted_lists(value: Any) -> Any:
    """A value with the items of all lists in one fixed order."""
    if isinstance(value, dict):
        return {key: sorted_lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted(map(sorted_lists, value), key=canonical)
    return value


def show(value: Any, limit: int = 60) -> str:
    """A value as JSON text, cut to a readable length."""
    if type(value) is int and -_SMALL < value < _SMALL:
        return str(value)  # ten times faster than the general way
    try:
        text = dumps_exact(value)
    except RecursionError:
        text = "(nested too deeply to show)"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def show_pair(out: Any, ref: Any) -> tuple[str, str]:
    """Two differing values as text, both cut around the first character that differs."""
    left, right = show(out, 4000), show(ref, 4000)
    if max(len(left), len(right)) <= _PAIRED:
        return left, right
    at = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    start = max(0, at - _PAIRED // 3)
    return _window(left, start), _window(right, start)


def _window(text: str, start: int) -> str:
    end = start + _PAIRED
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
