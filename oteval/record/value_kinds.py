"""The kinds of values that a recording keeps with their type, except instances of classes.

They are the types of Python's library, and results that a tool delivers later: generators and
coroutines, recorded with their chunks and their end.

Each kind has a tag, and turns a value into plain JSON and back. `class_kinds` adds the values of an
agent's own classes, and `typed_values` puts them together. The table is closed, because a recording
is data from disk: no entry of the table imports a module or calls a function that the recording
names.
"""

from __future__ import annotations

import ipaddress
import json
import math
import pathlib
import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

__all__ = [
    "DELIVERED_KINDS",
    "LIBRARY_KINDS",
    "OPAQUE",
    "Awaited",
    "Cancelled",
    "Decoder",
    "Encode",
    "Generated",
    "UnrestorableValue",
    "ValueKind",
]


class UnrestorableValue(ValueError):
    """A recorded value cannot be restored; the message names its type and the reason."""


OPAQUE = "$opaque"
"""The tag of a value that cannot be restored; the payload has the reason."""

Encode = Callable[[Any], Any]
"""Returns the encoded form of a part of a value."""


class Decoder:
    """Restores the parts of one value.

    Attributes:
        class_named: Finds a class of the agent's process by its name, ``module:Class``.
    """

    def __init__(self, class_named: Callable[[str], type], kinds: Mapping[str, ValueKind]) -> None:
        """Set the agent's classes, and the kinds of values by their tags."""
        self.class_named = class_named
        self._kinds = kinds

    def value(self, encoded: Any) -> Any:
        """Restore a part.

        Raises:
            UnrestorableValue: Its class is missing, or only its class is recorded.
        """
        if isinstance(encoded, list):
            return [self.value(item) for item in encoded]
        if not isinstance(encoded, dict):
            return encoded
        tag, payload = next(iter(encoded.items())) if len(encoded) == 1 else ("", None)
        if tag == OPAQUE:
            raise UnrestorableValue(str(payload))
        kind = self._kinds.get(tag)
        if kind is None:
            if tag.startswith("$") and not tag.startswith("$$"):
                raise UnrestorableValue(
                    f"{tag[1:]}: a kind of value that this version does not know"
                )
            return {key.removeprefix("$"): self.value(item) for key, item in encoded.items()}
        try:
            return kind.decode(payload, self)
        except UnrestorableValue:
            raise
        except Exception as error:
            name = payload.get("class", "") if isinstance(payload, dict) else ""
            raise UnrestorableValue(f"{name or kind.tag[1:]}: {error}") from error


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind of value.

    Attributes:
        tag: The only key of the object that stands for a value.
        encode: Returns the payload of a value, as plain JSON.
        decode: Returns the value of a payload.
    """

    tag: str
    encode: Callable[[Any, Encode], Any]
    decode: Callable[[Any, Decoder], Any]


def _by_text(tag: str, read: Callable[[str], Any]) -> ValueKind:
    """A kind of values that their ``str`` defines."""
    return ValueKind(tag, lambda value, _encode: str(value), lambda text, _decoder: read(text))


def _by_items(tag: str, make: Callable[[Any], Any]) -> ValueKind:
    """A kind of containers that their items define."""
    return ValueKind(
        tag,
        lambda value, encode: [encode(item) for item in value],
        lambda items, decoder: make(decoder.value(item) for item in items),
    )


def _by_sorted_items(tag: str, make: Callable[[Any], Any]) -> ValueKind:
    """A kind of containers without an order: equal ones have equal encoded forms."""
    return ValueKind(
        tag,
        lambda value, encode: sorted(map(encode, value), key=lambda item: json.dumps(item)),
        lambda items, decoder: make(decoder.value(item) for item in items),
    )


def _by_attributes(tag: str, names: tuple[str, ...], make: Callable[..., Any]) -> ValueKind:
    """A kind of values that some of their attributes define."""
    return ValueKind(
        tag,
        lambda value, encode: [encode(getattr(value, name)) for name in names],
        lambda payload, decoder: make(*map(decoder.value, payload)),
    )


def _by_pairs(tag: str, make: Callable[[Any], Any]) -> ValueKind:
    """A kind of mappings that their items define."""
    return ValueKind(
        tag,
        lambda value, encode: encoded_pairs(value, encode),
        lambda pairs, decoder: make(decoded_pairs(pairs, decoder)),
    )


def encoded_pairs(value: Any, encode: Encode) -> list[Any]:
    """Encode the items of a mapping. Text keys stay names, for rules of redaction."""
    return [
        {key: encode(item)} if type(key) is str and key.isascii() else [encode(key), encode(item)]
        for key, item in value.items()
    ]


def decoded_pairs(pairs: Any, decoder: Decoder) -> dict[Any, Any]:
    """Restore the items of a mapping."""
    items: dict[Any, Any] = {}
    for pair in pairs:
        if isinstance(pair, dict):
            ((key, encoded),) = pair.items()
            items[key] = decoder.value(encoded)
        else:
            key, encoded = pair
            items[decoder.value(key)] = decoder.value(encoded)
    return items


# As Latin-1, so that the search for secrets sees the text in them.
def _of_bytes(tag: str, make: Callable[[bytes], Any]) -> ValueKind:
    return ValueKind(
        tag,
        lambda value, _encode: bytes(value).decode("latin-1"),
        lambda text, _decoder: make(text.encode("latin-1")),
    )


def _by_clock(tag: str, cls: type[datetime] | type[time]) -> ValueKind:
    """A kind of values with a time of day, a fold and a time zone."""

    def decode(payload: Any, decoder: Decoder) -> Any:
        text, fold, zone = payload
        return cls.fromisoformat(text).replace(fold=fold, tzinfo=decoder.value(zone))

    return ValueKind(
        tag,
        lambda value, encode: [
            value.replace(tzinfo=None).isoformat(),
            value.fold,
            encode(value.tzinfo),
        ],
        decode,
    )


def _encoded_zone(value: timezone, _encode: Encode) -> Any:
    offset, name = value.utcoffset(None), value.tzname(None)
    return [offset / timedelta(microseconds=1), name] if value != UTC else []


def _decoded_zone(payload: Any, _decoder: Decoder) -> timezone:
    if not payload:
        return UTC
    offset, name = payload
    unnamed = timezone(timedelta(microseconds=offset))
    return (
        unnamed if unnamed.tzname(None) == name else timezone(timedelta(microseconds=offset), name)
    )


def _encoded_zone_key(value: ZoneInfo, _encode: Encode) -> str:
    if not value.key:
        raise UnrestorableValue("zoneinfo:ZoneInfo: has no key")
    return value.key


def _encoded_path(value: pathlib.PurePath, _encode: Encode) -> Any:
    return [type(value).__name__, str(value)]


_PATHS = ("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath")


def _decoded_path(payload: Any, _decoder: Decoder) -> pathlib.PurePath:
    name, text = payload
    if name not in _PATHS:
        raise UnrestorableValue(f"pathlib:{name}: unknown class")
    path: pathlib.PurePath = getattr(pathlib, name)(text)
    return path


_FACTORIES = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)}


def _encoded_default(value: defaultdict[Any, Any], encode: Encode) -> Any:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if factory is not None and _FACTORIES.get(str(name)) is not factory:
        raise UnrestorableValue("collections:defaultdict: its default is a function")
    return [name, encoded_pairs(value, encode)]


def _decoded_default(payload: Any, decoder: Decoder) -> defaultdict[Any, Any]:
    name, pairs = payload
    factory: Any = None if name is None else _FACTORIES[name]
    return defaultdict(factory, decoded_pairs(pairs, decoder))


def _encoded_deque(value: deque[Any], encode: Encode) -> Any:
    return [value.maxlen, [encode(item) for item in value]]


def _decoded_deque(payload: Any, decoder: Decoder) -> deque[Any]:
    longest, items = payload
    return deque(map(decoder.value, items), longest)


def _encoded_float(value: float, _encode: Encode) -> str:
    return str(value)  # only NaN and the infinities, which JSON lacks


def _decoded_float(text: str, _decoder: Decoder) -> float:
    value = float(text)
    if math.isfinite(value):
        raise ValueError(text)
    return value


def _encoded_view(value: memoryview, _encode: Encode) -> str:
    if value.format != "B" or value.ndim != 1:
        raise UnrestorableValue("builtins:memoryview: does not consist of bytes")
    return bytes(value).decode("latin-1")


_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}

LIBRARY_KINDS: dict[type, ValueKind] = {
    float: ValueKind("$float", _encoded_float, _decoded_float),
    # Integers that JSON readers refuse, and texts with halves of UTF-16 pairs.
    int: ValueKind("$int", lambda value, _: hex(value), lambda text, _: int(text, 16)),
    str: ValueKind("$text", lambda value, _: json.dumps(value), lambda text, _: json.loads(text)),
    dict: _by_pairs("$dict", dict),
    tuple: _by_items("$tuple", tuple),
    set: _by_sorted_items("$set", set),
    frozenset: _by_sorted_items("$frozenset", frozenset),
    bytes: _of_bytes("$bytes", bytes),
    bytearray: _of_bytes("$bytearray", bytearray),
    memoryview: ValueKind(
        "$memoryview", _encoded_view, lambda text, _: memoryview(text.encode("latin-1"))
    ),
    complex: _by_attributes("$complex", ("real", "imag"), complex),
    range: _by_attributes("$range", ("start", "stop", "step"), range),
    slice: _by_attributes("$slice", ("start", "stop", "step"), slice),
    Decimal: _by_text("$decimal", Decimal),
    Fraction: _by_text("$fraction", Fraction),
    UUID: _by_text("$uuid", UUID),
    date: ValueKind("$date", lambda v, _: v.isoformat(), lambda text, _: date.fromisoformat(text)),
    datetime: _by_clock("$datetime", datetime),
    time: _by_clock("$time", time),
    timedelta: _by_attributes("$timedelta", ("days", "seconds", "microseconds"), timedelta),
    timezone: ValueKind("$timezone", _encoded_zone, _decoded_zone),
    ZoneInfo: ValueKind("$zoneinfo", _encoded_zone_key, lambda key, _: ZoneInfo(key)),
    OrderedDict: _by_pairs("$ordered_dict", OrderedDict),
    Counter: _by_pairs("$counter", Counter),
    defaultdict: ValueKind("$defaultdict", _encoded_default, _decoded_default),
    deque: ValueKind("$deque", _encoded_deque, _decoded_deque),
    types.MappingProxyType: _by_pairs("$mapping_proxy", types.MappingProxyType),
    types.SimpleNamespace: ValueKind(
        "$namespace",
        lambda value, encode: encoded_pairs(vars(value), encode),
        lambda pairs, decoder: types.SimpleNamespace(**decoded_pairs(pairs, decoder)),
    ),
    re.Pattern: _by_attributes("$pattern", ("pattern", "flags"), re.compile),
    **{
        constant_type: ValueKind(
            "$constant", lambda value, _: str(value), lambda name, _: _CONSTANTS[name]
        )
        for constant_type in map(type, _CONSTANTS.values())
    },
    **{
        address_type: _by_text(f"$ip_{address_type.__name__}", address_type)
        for address_type in (
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
        )
    },
    **{
        path_type: ValueKind("$path", _encoded_path, _decoded_path)
        for path_type in (getattr(pathlib, name) for name in _PATHS)
    },
}
"""The kinds by the exact type of a value."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A generator that was read.

    Attributes:
        chunks: The values that it yielded.
        value: The value that it returned.
        error: The exception that ended it, or None.
        is_async: Whether it is an asynchronous generator.
    """

    chunks: tuple[Any, ...] = ()
    value: Any = None
    error: BaseException | None = None
    is_async: bool = False

    def work(self) -> Any:
        """A new generator with the same chunks and the same end."""
        return self._async_chunks() if self.is_async else self._chunks()

    def _chunks(self) -> Generator[Any, Any, Any]:
        yield from self.chunks
        if self.error is not None:
            raise self.error
        return self.value

    async def _async_chunks(self) -> AsyncIterator[Any]:
        for chunk in self.chunks:
            yield chunk
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True)
class Awaited:
    """A coroutine that a plain function returned, and that was awaited.

    Attributes:
        value: Its result.
        error: The exception that ended it, or None.
    """

    value: Any = None
    error: BaseException | None = None

    async def work(self) -> Any:
        """The result, or raise the exception."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The end of a tool that its caller cancelled, for example after a timeout."""


def _encoded_generated(value: Generated, encode: Encode) -> Any:
    chunks = [encode(chunk) for chunk in value.chunks]
    return [chunks, encode(value.value), encode(value.error), value.is_async]


def _decoded_generated(payload: Any, decoder: Decoder) -> Generated:
    chunks, value, error, is_async = payload
    return Generated(
        tuple(map(decoder.value, chunks)),
        decoder.value(value),
        decoder.value(error),
        is_async,
    )


DELIVERED_KINDS = {
    Generated: ValueKind("$generator", _encoded_generated, _decoded_generated),
    Awaited: ValueKind(
        "$awaited",
        lambda value, encode: [encode(value.value), encode(value.error)],
        lambda payload, decoder: Awaited(*map(decoder.value, payload)),
    ),
    Cancelled: ValueKind("$cancelled", lambda _value, _: None, lambda _payload, _: Cancelled()),
}
"""The kinds by the type of a value."""
