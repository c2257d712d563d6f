"""Results that a tool delivers later: those of a generator, or of a coroutine.

They are recorded with their chunks and their end, and `work` gives a caller the same again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from typing import Any

from .value_kinds import Decoder, Encode, ValueKind

__all__ = ["DELIVERED_KINDS", "Awaited", "Cancelled", "Generated"]


@dataclass(frozen=True, slots=True)
class Generated:
    """A generator that was read.

    Attributes:
        chunks: The values that it yielded.
        value: The value that it returned.
        error: The exception with which it ended, or None.
        is_async: Whether it is an asynchronous generator.
    """

    chunks: tuple[Any, ...] = ()
    value: Any = None
    error: BaseException | None = None
    is_async: bool = False

    def work(self) -> Any:
        """Return a generator with the same chunks and the same end."""
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
        error: The exception with which it ended, or None.
    """

    value: Any = None
    error: BaseException | None = None

    async def work(self) -> Any:
        """Return the result, or raise the exception."""
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
