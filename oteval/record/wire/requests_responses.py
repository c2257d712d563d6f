"""Responses of requests: from the network, copied while the agent reads them, or from a recording.

A response that came from the network keeps everything it has: connection, cookies, timeouts. Only
the class of its ``raw`` is replaced by a subclass that copies the arriving bytes before they are
decoded, and notices how the body ends. It extends private methods of urllib3, which are the same
from 1.26.10 to 2. If a version does not have them, the body is not recorded.

A recorded response is a response of urllib3 that reads from a stream of httpx. It is read chunk by
chunk, as it was recorded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from email.message import Message
from typing import Any, Protocol

from ..faults import FaultCounter

__all__ = ["FAULTS", "StreamCopy", "copied_stream", "response_of", "watched"]

_ENCODINGS = ("content-encoding", "content-length", "transfer-encoding")
_SMALL = 64
_KEPT = 4096
_WATCHED_METHODS = ("_fp_read", "_handle_chunk", "_update_chunk_length", "close")


FAULTS = FaultCounter(logging.getLogger(__name__), "calls by requests are not recorded")
"""Requests that were not intercepted, or not whole, by an error of the adapters."""


class StreamCopy(Protocol):
    """A stream of httpx that repeats the pieces it is shown, and does not read by itself.

    An interceptor that reads it before it follows another stream gets the body itself.

    Attributes:
        was_read: Whether an interceptor has read the body itself.
    """

    was_read: bool

    def follow(self, stream: Any) -> None:
        """Let a stream that wraps this stream get the pieces from now on."""

    def show(self, piece: bytes, *, is_whole: bool = True) -> None:
        """Show a piece that the agent sends or reads.

        Args:
            piece: The piece.
            is_whole: Whether it is shown at once, rather than with the next pieces: some agents
                read byte by byte.
        """

    def end(self) -> None:
        """Show that the body is complete."""

    def fail(self, error: BaseException) -> None:
        """Show the error that ends the body."""

    def close(self) -> None:
        """Show that the agent reads no more."""


def copied_stream(library: Any, body: Iterator[bytes]) -> StreamCopy:
    """A stream of httpx that repeats a body.

    Args:
        library: The module httpx or httpx2.
        body: The pieces, for an interceptor that reads them itself.
    """
    copy: StreamCopy = _stream_class(library)(body)
    return copy


@functools.cache
def _stream_class(library: Any) -> Any:
    class Copy(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, body: Iterator[bytes]) -> None:
            self._body: Iterator[bytes] | None = body
            self._shown: bytes | BaseException | None = None
            self._stream: Any = None
            self._pieces: Iterator[bytes] | None = None
            self._kept = bytearray()
            self.was_read = False

        def __iter__(self) -> Iterator[bytes]:
            if self._body is not None:
                self.was_read = True
                yield from self._body
            while (piece := self._shown) is not None:
                self._shown = None
                if isinstance(piece, BaseException):
                    raise piece
                yield piece

        def follow(self, stream: Any) -> None:
            self._body = None
            if stream is not self:
                self._stream, self._pieces = stream, iter(stream)

        def show(self, piece: bytes, *, is_whole: bool = True) -> None:
            if is_whole and not self._kept:
                self._advance(piece)
                return
            self._kept += piece
            if is_whole or len(self._kept) >= _KEPT:
                self._show_kept()

        def end(self) -> None:
            self._show_kept()
            self._advance(None)
            self._pieces = None

        def fail(self, error: BaseException) -> None:
            self._show_kept()
            if isinstance(error, TimeoutError):
                error = library.ReadTimeout(str(error))
            elif isinstance(error, Exception):
                error = library.RemoteProtocolError(str(error) or type(error).__name__)
            self._advance(error)
            self._pieces = None

        def close(self) -> None:
            self._show_kept()
            stream, self._stream, self._pieces = self._stream, None, None
            if stream is not None:
                try:
                    stream.close()
                except Exception as error:
                    FAULTS.add(error)

        def _show_kept(self) -> None:
            if self._kept:
                self._advance(bytes(self._kept))
                self._kept.clear()

        def _advance(self, piece: bytes | BaseException | None) -> None:
            pieces = self._pieces
            if pieces is None:
                return
            self._shown = piece
            try:
                next(pieces, None)
            except BaseException as error:
                self._pieces = None
                if error is not piece and isinstance(error, Exception):
                    FAULTS.add(error)

    return Copy


def watched(native: Any, response: Any, copy: StreamCopy) -> Any:
    """Copy the body of a network's response from now on.

    Args:
        native: The response of requests.
        response: Its description, after it has passed the interceptors.
        copy: The copy of its body, which nobody has read.
    """
    stream = response.stream
    copy.follow(stream)
    if stream is copy:
        return native
    raw = native.raw
    try:
        kind: Any = type(raw)
        missing = [name for name in _WATCHED_METHODS if not callable(getattr(kind, name, None))]
        if missing:
            raise AttributeError(f"urllib3's response has no {', '.join(missing)}")
        raw._oteval_copy = copy
        raw.__class__ = _watched_class(kind)
        raw._oteval_check()
    except Exception as error:
        FAULTS.add(error)
        copy.fail(RuntimeError("the response's body could not be recorded"))
    return native


@functools.cache
def _watched_class(kind: Any) -> Any:
    """Derive a class of urllib3's responses that copies the bytes that arrive."""
    from urllib3.util.response import is_fp_closed

    class Watched(kind):  # type: ignore[misc]
        _oteval_is_reading = False

        def _fp_read(self, *args: Any, **options: Any) -> Any:
            data = self._oteval_read(functools.partial(super()._fp_read, *args, **options))
            if data:
                is_whole = len(data) > _SMALL or data.endswith(b"\n")
                self._oteval_copy.show(data, is_whole=is_whole)
            elif args and args[0] == 0:
                return data
            elif self.enforce_content_length and self.length_remaining:
                self._oteval_copy.fail(EOFError(f"{self.length_remaining} more bytes expected"))
            else:
                self._oteval_copy.end()
            self._oteval_check()
            return data

        def _handle_chunk(self, amt: Any) -> Any:
            data = self._oteval_read(functools.partial(super()._handle_chunk, amt))
            if data:
                self._oteval_copy.show(data, is_whole=self.chunk_left is None)
            return data

        def _update_chunk_length(self) -> None:
            self._oteval_read(super()._update_chunk_length)
            if self.chunk_left == 0:
                self._oteval_copy.end()

        def close(self) -> None:
            super().close()
            if not self._oteval_is_reading:
                self._oteval_copy.close()

        def __del__(self) -> None:
            # urllib3 does not close a response whose connection is closed already.
            super().__del__()
            self._oteval_copy.close()

        def _oteval_read(self, read: Any) -> Any:
            self._oteval_is_reading = True
            try:
                return read()
            except BaseException as error:
                self._oteval_copy.fail(error)
                raise
            finally:
                self._oteval_is_reading = False

        def _oteval_check(self) -> None:
            """Notice the end of a body whose length is known."""
            if is_fp_closed(self._fp):
                self._oteval_copy.end()

    Watched.__name__, Watched.__qualname__ = kind.__name__, kind.__qualname__
    Watched.__module__ = kind.__module__
    return Watched


def response_of(
    library: Any, adapter: Any, prepared: Any, response: Any, *, is_read: bool = False
) -> Any:
    """Build the response of requests with the status, headers and body of a response of httpx.

    Args:
        library: The module httpx or httpx2.
        adapter: The adapter of requests.
        prepared: The agent's request.
        response: The response that an interceptor gave.
        is_read: Whether it came from the network, and the interceptor has read it: its content is
            decoded.
    """
    from urllib3 import HTTPHeaderDict, HTTPResponse

    headers = HTTPHeaderDict()
    for name, value in response.headers.multi_items():
        if not (is_read and name.lower() in _ENCODINGS):
            headers.add(name, value)
    pieces = iter([response.content]) if is_read else iter(response.stream)
    file: Any = _AnswerFile(library, response, pieces, prepared.method)
    raw: Any = HTTPResponse(
        body=file,
        headers=headers,
        status=response.status_code,
        version=11,
        reason=response.reason_phrase,
        preload_content=False,
        decode_content=False,
        original_response=file,
        # Redaction changes the length.
        enforce_content_length=False,
        request_method=prepared.method,
        request_url=prepared.url,
    )
    if "content-length" not in headers:
        raw.chunked = True
    return adapter.build_response(prepared, raw)


class _AnswerFile:
    """A recorded body, as urllib3 reads it from a response of ``http.client``.

    `read` returns the bytes of the body; `readline` and `_safe_read` return the chunks with their
    lengths.

    Attributes:
        fp: The file itself, None if it is closed.
        msg: The headers, for the cookies.
    """

    def __init__(self, library: Any, response: Any, pieces: Iterator[bytes], method: str) -> None:
        self._library, self._response, self._method = library, response, method
        self._pieces = pieces
        self._buffer = b""
        self._is_at_end = False
        self.fp: _AnswerFile | None = self
        self.msg = Message()
        for name, value in response.headers.multi_items():
            self.msg[name] = value

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self.fp is None

    def isclosed(self) -> bool:
        """Whether the file is closed, as ``http.client`` spells it."""
        return self.fp is None

    def close(self) -> None:
        """Close the response, which may have been read in part."""
        if self.fp is not None:
            self.fp = None
            self._response.close()

    def read(self, size: int | None = None) -> bytes:
        """Read the next bytes of the body; without a size, all of them."""
        is_all = size is None or size < 0
        while (is_all or len(self._buffer) < (size or 0)) and (piece := self._next()):
            self._buffer += piece
        data = self._taken(len(self._buffer) if is_all or size is None else size)
        if self._is_at_end and not self._buffer:
            self.close()
        return data

    def read1(self, size: int | None = None) -> bytes:
        """Read as many bytes of the body as are there."""
        if not self._buffer:
            self._buffer = self._next()
        return self.read(min(size if size is not None else _MANY, len(self._buffer) or 1))

    def readline(self, _limit: int = -1) -> bytes:
        """Read the line before a chunk, or after the last one."""
        if not self._buffer and not self._is_at_end:
            piece = self._next()
            self._buffer = b"%x\r\n%s\r\n" % (len(piece), piece)
        return self._taken(self._buffer.find(b"\n") + 1)

    def _safe_read(self, size: int) -> bytes:
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _next(self) -> bytes:
        """The next piece that is not empty, b"" at the end."""
        try:
            piece = next((piece for piece in self._pieces if piece), b"")
        except self._library.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except self._library.RequestError as error:
            raise ConnectionError(str(error)) from error
        self._is_at_end = not piece
        return piece


_MANY = 1 << 30
