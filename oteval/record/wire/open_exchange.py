"""One HTTP exchange while it is recorded: the pieces of its bodies, its end, and its redaction.

The agent gets each piece of a response as soon as it arrives; `OpenExchange` keeps a copy. Once the
response has been read, has failed or is closed, it becomes an `Exchange` without secrets.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from ...base.redaction.exchange_secrets import PROCESS_SECRETS
from ...base.redaction.secrets import (
    SecretRedactor,
    credentials,
    request_secrets,
    response_secrets,
)
from ...model import Chunk, Exchange
from ..context import running_thread
from .interception import library_of
from .request_headers import recorded_headers

if TYPE_CHECKING:
    from .recorder import ExchangeRecorder

__all__ = ["OpenExchange"]

# The last events of the streams of model APIs. Clients close the stream after them, without reading
# the end of the body.
_LAST_EVENTS = (
    b"data: [DONE]",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.failed",
    b"event: response.incomplete",
)
_TAIL = 4096
_CHUNK_BYTES = 150  # the memory of a piece in addition to its data
_NO_ROOM = "too many exchanges were waiting to be recorded: the bodies were not kept"


class OpenExchange:
    """One request and its response, while they are being recorded.

    Attributes:
        span: The span that ends with the exchange, or None.
        method: The method of the request.
        url: The URL of the request.
        status: The status of the response; 0 if there is none.
        error: Why it failed, once it has ended; "" if it did not fail.
    """

    def __init__(
        self,
        recorder: ExchangeRecorder,
        request: Any,
        redactor: SecretRedactor,
        max_body: int,
        context: Any,
    ) -> None:
        self._recorder = recorder
        self.span: Any = None
        self._context = context
        self._library = library_of(request)
        self._request = request
        self.method, self.url = request.method, str(request.url)
        self._headers = request.headers.multi_items()
        self._thread = running_thread()
        # Added now, so that spans that end meanwhile lose these secrets as well.
        PROCESS_SECRETS.add(credentials(self._headers))
        self._redactor = redactor
        self._sent = _Body(max_body)
        self._received = _Body(max_body)
        self.status = 0
        self.error = ""
        self._response_headers: list[tuple[str, str]] = []
        self._is_decoded = False
        self._stream: Any = None
        self._lock = threading.RLock()
        self._is_finished = self._has_no_room = False
        self._start_ns, self._started = time.time_ns(), time.perf_counter_ns()
        try:
            self._sent.add(request.content)
        except self._library.RequestNotRead:
            self._stream = request.stream
            request.stream = _tee(self._library, self._stream, self._sent.add, None)

    def sent_body(self) -> bytes:
        """The decoded body of the request, as far as it was sent."""
        return self._request_body(_lower_names(self._headers))

    def received_body(self) -> bytes:
        """The decoded body of the response, as far as it has arrived."""
        chunks, _ = self._chunks(_lower_names(self._response_headers))
        return b"".join(chunk.data for chunk in chunks)

    def __enter__(self) -> None:
        """Begin to send the request."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record the error of sending, and restore the request's stream.

        A redirect may send the stream again.
        """
        if error is not None:
            self.fail(error)
        if self._stream is not None:
            self._request.stream = self._stream

    def answered(self, response: Any) -> None:
        """Watch how the agent reads a response."""
        with self._recorder.guarded():
            self.status = response.status_code
            self._response_headers = response.headers.multi_items()
            try:
                content = response.content
            except self._library.ResponseNotRead:
                response.stream = _tee(self._library, response.stream, self.receive, self)
                self._recorder.opened(self)
            else:
                # Somebody made the response in this process: it is not encoded.
                self._is_decoded = True
                self.receive(content)
                self.finish(is_complete=True)

    def receive(self, data: bytes) -> None:
        """Keep a piece of the response's body."""
        if not self._is_finished:
            self._received.add(data, time.perf_counter_ns() - self._started)

    def fail(self, error: BaseException) -> None:
        """Record the error of the transport, or of the agent's task."""
        self._finish(f"{type(error).__name__}: {error}", is_complete=False)

    def finish(self, *, is_complete: bool) -> None:
        """Record the response as it is, unless it is recorded already."""
        self._finish("", is_complete=is_complete)

    def _finish(self, error: str, *, is_complete: bool) -> None:
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = True
        self.error = error
        self._recorder.finished(self)
        if self._recorder.watcher is not None:
            with self._recorder.guarded():
                self._recorder.watcher.answered(self)
        with self._recorder.guarded():
            self._end_span(error)
            end_ns = self._start_ns + time.perf_counter_ns() - self._started
            size = self._sent.memory() + self._received.memory()
            if not self._recorder.has_room(size):
                self._has_no_room = True
                self._sent.drop()
                self._received.drop()
                size = 0

            def record() -> None:
                exchange = self._exchange(error, is_complete, end_ns)
                self._recorder.emit(exchange, self._omitted(), self._context)

            self._recorder.later(record, size)

    def _end_span(self, error: str) -> None:
        if self.span is None:
            return
        if self.status:
            self.span.set_attribute("http.response.status_code", self.status)
        if error or self.status >= 400:
            from opentelemetry.trace import StatusCode

            self.span.set_attribute("error.type", error.partition(":")[0] or str(self.status))
            self.span.set_status(StatusCode.ERROR)
        self.span.end()

    def _exchange(self, error: str, is_complete: bool, end_ns: int) -> Exchange:
        secrets = request_secrets(self._headers, self.url) | PROCESS_SECRETS.secrets
        redactor = self._redactor.with_secrets(secrets | response_secrets(self._response_headers))
        request_headers = recorded_headers(self._headers, redactor)
        sent = self._request_body(request_headers)
        sent_type = request_headers.get("content-type", "")
        request_body = redactor.body(sent, sent_type)
        if request_body != sent:
            redactor = redactor.with_secrets(redactor.body_secrets(sent, sent_type))
        response_headers = redactor.headers(self._response_headers)
        chunks, problem = self._chunks(response_headers)
        kind = response_headers.get("content-type", "")
        pieces = redactor.pieces([chunk.data for chunk in chunks], kind)
        return Exchange(
            method=self.method,
            url=redactor.url(self.url),
            request_headers=request_headers,
            has_all_headers=True,
            request_body=request_body,
            status=self.status,
            response_headers=response_headers,
            chunks=tuple(
                Chunk(data, chunk.offset_ns)
                for data, chunk in zip(pieces, chunks, strict=True)
                if data
            ),
            error=redactor.text(error or (problem if is_complete else "")),
            is_complete=is_complete or (not error and self._was_read()),
            start_ns=self._start_ns,
            end_ns=end_ns,
            thread=self._thread,
        )

    def _request_body(self, headers: dict[str, str]) -> bytes:
        """The request's body, decoded if possible."""
        chunks, _ = _decoded(self._library, self._sent, headers)
        return b"".join(chunk.data for chunk in chunks)

    def _chunks(self, headers: dict[str, str]) -> tuple[list[Chunk], str]:
        if self._is_decoded:
            headers.pop("content-encoding", None)
        return _decoded(self._library, self._received, headers)

    def _was_read(self) -> bool:
        """Whether a response that was closed early has no more content."""
        if not self.status:
            return False
        if self.method == "HEAD" or self.status in (204, 304):
            return True
        length = dict(self._response_headers).get("content-length", "")
        if length.isdecimal():
            return self._received.size >= int(length)
        tail = self._received.tail()
        return any(event in tail for event in _LAST_EVENTS)

    def _omitted(self) -> str:
        """The reason why the exchange cannot be replayed, or ""."""
        if self.status == 101:
            return "the connection was upgraded (status 101); its messages are not recorded"
        if self._has_no_room:
            return _NO_ROOM
        for name, body in (("request", self._sent), ("response", self._received)):
            if body.is_too_large:
                return f"the {name} body is larger than max_body ({body.limit} bytes): not kept"
        return ""


def _lower_names(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


class _Body:
    """The pieces of a body, up to a limit.

    Attributes:
        size: The size of all pieces, also of dropped ones (bytes).
        limit: The most bytes to keep.
        chunks: The pieces; empty if they are too large.
        is_too_large: Whether the body exceeds the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.chunks: list[Chunk] = []
        self.is_too_large = False

    def add(self, data: bytes, offset_ns: int = 0) -> None:
        """Add a piece."""
        self.size += len(data)
        if self.size > self.limit:
            self.drop()
        elif data:
            self.chunks.append(Chunk(data, offset_ns))

    def memory(self) -> int:
        """The memory of the pieces (bytes)."""
        return 0 if self.is_too_large else self.size + len(self.chunks) * _CHUNK_BYTES

    def drop(self) -> None:
        """Forget the body, because it is too large."""
        self.is_too_large = True
        self.chunks = []

    def tail(self) -> bytes:
        """The last bytes."""
        size, out = 0, []
        for chunk in reversed(self.chunks):
            out.append(chunk.data)
            size += len(chunk.data)
            if size >= _TAIL:
                break
        return b"".join(reversed(out))[-_TAIL:]


def _decoded(library: ModuleType, body: _Body, headers: dict[str, str]) -> tuple[list[Chunk], str]:
    """Decode the pieces of a body as the agent got them; return the error of the decoding too.

    Args:
        library: The client's library, which decodes them.
        body: The body; it is dropped if it becomes too large.
        headers: The recorded headers. If the body is decoded, ``content-encoding`` is removed.
    """
    encoding = headers.get("content-encoding", "")
    if not encoding or not body.chunks:
        return body.chunks, ""
    offset = 0

    def pieces() -> Iterator[bytes]:
        nonlocal offset
        for chunk in body.chunks:
            offset = chunk.offset_ns
            yield chunk.data

    out: list[Chunk] = []
    size, problem = 0, ""
    response = library.Response(200, headers={"content-encoding": encoding}, content=pieces())
    try:
        for data in response.iter_bytes():
            size += len(data)
            if size > body.limit:
                body.drop()
                return [], ""
            out.append(Chunk(data, offset))
    except library.DecodingError as error:
        problem = f"DecodingError: {error}"
    if [chunk.data for chunk in out] != [chunk.data for chunk in body.chunks]:
        del headers["content-encoding"]
    return out, problem


class _Tee:
    """A stream that shows each piece to a function, and its end to an exchange."""

    def __init__(
        self, stream: Any, receive: Callable[[bytes], None], call: OpenExchange | None
    ) -> None:
        self._stream = stream
        self._receive = receive
        self._call = call

    def _end(self) -> None:
        if self._call is not None:
            self._call.finish(is_complete=True)

    def _fail(self, error: BaseException) -> None:
        # A reader that stops early closes the stream afterwards.
        if self._call is not None and not isinstance(error, GeneratorExit):
            self._call.fail(error)

    def _close(self) -> None:
        if self._call is not None:
            self._call.finish(is_complete=False)

    def __del__(self) -> None:
        # A response that is neither read nor closed.
        self._close()


class _SyncTee(_Tee):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._stream:
                self._receive(data)
                yield data
        except BaseException as error:
            self._fail(error)
            raise
        self._end()

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._close()


class _AsyncTee(_Tee):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._stream:
                self._receive(data)
                yield data
        except BaseException as error:
            self._fail(error)
            raise
        self._end()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._close()


def _tee(
    library: ModuleType, stream: Any, receive: Callable[[bytes], None], call: OpenExchange | None
) -> Any:
    """Wrap a stream so that it is recorded while it is read."""
    bases: list[type[Any]] = []
    if isinstance(stream, library.SyncByteStream):
        bases.append(_SyncTee)
    if isinstance(stream, library.AsyncByteStream):
        bases.append(_AsyncTee)
    return _tee_class(library, tuple(bases))(stream, receive, call)


@functools.cache
def _tee_class(library: ModuleType, bases: tuple[type[Any], ...]) -> type[Any]:
    kinds = {_SyncTee: library.SyncByteStream, _AsyncTee: library.AsyncByteStream}
    return type("RecordedStream", (*bases, *(kinds[base] for base in bases)), {})
