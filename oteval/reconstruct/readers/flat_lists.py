"""Lists that attributes with indices in their keys spell out, such as ``prefix.0.role``.

Each model call repeats the attributes of the calls before it, and a long history has thousands of
attributes. `FlatLists` recognises a list that was read before by comparing all its names and all
its values, and reads only the other attributes: without it, 1,000 calls that repeat their history
take more than twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...messages import active

__all__ = ["FEW_KEYS", "FlatLists", "NamedAttributes", "has_prefix", "named", "nested"]

FEW_KEYS = 64
"""A span with more attributes has lists, under names that differ from span to span."""
# How many lists of each prefix are compared: a trace may interleave the calls of several agents.
_RECENT = 16
_MAX_DIGITS = 9


@dataclass(slots=True, eq=False)
class _FlatList:
    """A list, and the attributes that spell it out.

    Attributes:
        keys: The names of the attributes, in their order.
        values: Their values, all of them text.
        items: The items.
        last: The highest index.
        known_fields: The cached `fields`, or None.
    """

    keys: list[str]
    values: list[str]
    items: list[Any]
    last: int
    known_fields: dict[str, str] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The attributes, to compare them in any order."""
        if self.known_fields is None:
            self.known_fields = dict(zip(self.keys, self.values, strict=True))
        return self.known_fields

    def is_at(self, start: int, keys: Sequence[str], values: Sequence[Any]) -> bool:
        """Whether the attributes are consecutive from an index on."""
        end = start + len(self.keys)
        # Most different lists differ in their last attribute.
        if end > len(keys) or keys[end - 1] != self.keys[-1] or values[end - 1] != self.values[-1]:
            return False
        return keys[start:end] == self.keys and values[start:end] == self.values

    def is_part_of(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the attributes are among others, in any order."""
        return self.fields.items() <= attributes.items()


class NamedAttributes:
    """The attributes of a span, without the attributes of known lists.

    Args:
        attributes: The attributes.
        recent: Lists that were read before, by prefix.

    Attributes:
        attributes: The attributes.
        known: The known lists among the attributes, by prefix.
        keys: The names of all other attributes.
        names: The same in one text, each after a NUL. A search in this text is several
            times as fast as a check of each name.
        has_nul: Whether one of these names contains a NUL.
    """

    def __init__(
        self, attributes: Mapping[str, Any], recent: Mapping[str, Sequence[_FlatList]]
    ) -> None:
        self.attributes = attributes
        self.known: dict[str, _FlatList] = {}
        keys = list(attributes)
        if recent:
            values = list(attributes.values())
            for prefix, lists in recent.items():
                self._set_apart(prefix, lists, keys, values)
        self.keys = keys
        self.names = "\0" + "\0".join(keys) if keys else ""
        self.has_nul = self.names.count("\0") != len(keys)
        self._marks = "".join([self.names, *(f"\0{prefix}" for prefix in self.known)])

    def _set_apart(
        self, prefix: str, lists: Sequence[_FlatList], keys: list[str], values: list[Any]
    ) -> None:
        """Remove the attributes of a known list with a prefix from the others."""
        starts: dict[str, int] = {}
        for flat_list in lists:
            first = flat_list.keys[0]
            if first not in starts:
                starts[first] = keys.index(first) if first in self.attributes else len(keys)
            start = starts[first]
            if flat_list.is_at(start, keys, values):
                end = start + len(flat_list.keys)
                del keys[start:end], values[start:end]
                self.known[prefix] = flat_list
                return

    def has_prefix(self, prefix: str) -> bool:
        """Whether the name of any attribute begins with a prefix."""
        return f"\0{prefix}" in self._marks or any(
            key.startswith(prefix)
            for list_prefix, flat_list in self.known.items()
            if prefix.startswith(list_prefix)
            for key in flat_list.keys
        )

    def keys_under(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with a prefix, without the names of known lists."""
        mark, start = f"\0{prefix}", 0
        while (start := self.names.find(mark, start)) >= 0:
            end = self.names.find("\0", start + 1)
            yield self.names[start + 1 : end if end >= 0 else None]
            start += len(mark)


class FlatLists:
    """The lists that were read last, by the prefix of their attributes' names."""

    def __init__(self) -> None:
        self._recent: dict[str, list[_FlatList]] = {}
        self._named = NamedAttributes({}, {})

    def named(self, attributes: Mapping[str, Any]) -> NamedAttributes:
        """Attributes without their known lists; the last result is cached."""
        if self._named.attributes is not attributes:
            self._named = NamedAttributes(attributes, self._recent)
        return self._named

    def read(
        self,
        attributes: Mapping[str, Any],
        prefix: str,
        read: Callable[[Mapping[str, Any]], list[Any]],
    ) -> list[Any]:
        """The list under a prefix, extending a known list if possible.

        Args:
            attributes: The attributes.
            prefix: The beginning of the names, the last dot included.
            read: Returns the items that some of these attributes spell out.
        """
        names = self.named(attributes)
        if names.has_nul or any(_overlap(prefix, other) for other in self._recent):
            return read(attributes)
        recent = self._recent.setdefault(prefix, [])
        previous, keys = names.known.get(prefix), list(names.keys_under(prefix))
        if previous is None:
            previous = next(
                (flat_list for flat_list in recent if flat_list.is_part_of(attributes)), None
            )
            if previous is not None:
                keys = [key for key in keys if key not in previous.fields]
        if previous is not None and any(_index(prefix, key) <= previous.last for key in keys):
            previous, keys = None, [key for key in attributes if key.startswith(prefix)]
        if previous is not None and not keys:
            return previous.items
        new = {key: attributes[key] for key in keys}
        items = [*(previous.items if previous else ()), *read(new)]
        last = max(map(partial(_index, prefix), keys), default=-1)
        if items and last >= 0 and all(isinstance(value, str) for value in new.values()):
            keys = [*(previous.keys if previous else ()), *keys]
            values = [*(previous.values if previous else ()), *new.values()]
            recent.insert(0, _FlatList(keys, values, items, last))
            del recent[_RECENT:]
        return items


def _overlap(prefix: str, other: str) -> bool:
    """Whether a name may begin with both of two different prefixes."""
    return prefix != other and (prefix.startswith(other) or other.startswith(prefix))


def _index(prefix: str, key: str) -> int:
    """The index in a key, or -1 if it has none."""
    step = key[len(prefix) :].partition(".")[0]
    return int(step) if step.isdecimal() and len(step) <= _MAX_DIGITS else -1


def named(attributes: Mapping[str, Any]) -> NamedAttributes:
    """Attributes without the known lists of the active cache, if there is one."""
    cache = active()
    return (
        cache.companion(FlatLists).named(attributes) if cache else NamedAttributes(attributes, {})
    )


def has_prefix(attributes: Mapping[str, Any], prefix: str) -> bool:
    """Whether any attribute's name begins with a prefix."""
    return named(attributes).has_prefix(prefix)


def nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The list under a prefix.

    Args:
        attributes: The span's attributes.
        prefix: The beginning of the keys, the last dot included.

    Returns:
        The items in the order of their indices as numbers; a missing index leaves no hole, and
        names without an index are left out. Inside an item, keys that are all numbers become a
        list likewise.
    """
    if not has_prefix(attributes, prefix):
        return []
    cache = active()
    if cache is None:
        return _nested(attributes, prefix)
    return cache.companion(FlatLists).read(attributes, prefix, partial(_nested, prefix=prefix))


def _nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    root = _Branch()
    cut = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            *path, last = key[cut:].split(".", _MAX_STEPS)
            if len(path) < _MAX_STEPS:
                _put(root, path, last, value)
    # Azure's filter results have a name in place of an index.
    items = _with_lists(_Branch({key: item for key, item in root.items() if key.isdecimal()}))
    return items if isinstance(items, list) else []


# No dialect nests as deeply.
_MAX_STEPS = 32


class _Branch(dict[str, Any]):
    """The values below a shared prefix, distinct from attributes whose value is a dict."""


def _put(node: _Branch, path: list[str], last: str, value: Any) -> None:
    for step in path:
        below = node[step] if step in node else node.setdefault(step, _Branch())
        if not isinstance(below, _Branch):
            return
        node = below
    node.setdefault(last, value)


def _with_lists(node: _Branch) -> dict[str, Any] | list[Any]:
    is_list = bool(node)
    for key, value in node.items():
        if isinstance(value, _Branch):
            node[key] = _with_lists(value)
        is_list = is_list and key.isdecimal() and len(key) <= _MAX_DIGITS
    return [node[key] for key in sorted(node, key=int)] if is_list else dict(node)
