"""Record the HTTP exchanges of an agent as log events, without secrets.

`WireRecorder` is an interceptor: it passes every request on, and keeps a copy of the request and
of its response. The agent gets each piece of a response as soon as it arrives. Once the response
has been read, has failed or is closed, the exchange is emitted as an OpenTelemetry log event in the
context in which the request was made, so it lies beside the spans of the trace.

Clients that no instrumentation gives a span for their requests, aiohttp and urllib3, get one here:
an exchange without a span could not be placed in its trace.

With a `RecordingWorker`, the agent's thread only keeps the pieces: a separate thread removes the
secrets and emits the event.

Nothing here breaks the agent: an error of the recorder is counted, and logged once.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, Protocol

from ...base.redaction.known_secrets import PROCESS_SECRETS
from ...base.redaction.secrets import (
    SecretRedactor,
    credentials,
    request_secrets,
    response_secrets,
)
from ...model import Chunk, Exchange, to_event
from .interception import CLIENTS_WITHOUT_SPANS, library_of
from .recording_worker import OpenResponse, RecordingWorker
from .request_headers import recorded_headers
from .requesting_thread import running_thread
from .requests_adapter import CLIENT_EXTENSION, TELEMETRY_PATHS

__all__ = ["MAX_BODY", "ExchangeRecorder", "WireRecorder"]

MAX_BODY = 16 << 20
"""The size (bytes) of the largest request or response body that is kept by default."""

_log = logging.getLogger(__name__)
# The last events of the streams of model APIs. Clients close the stream after them, without reading
# the end of the body.
_LAST_EVENTS = (
    b"data: [DONE]",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.failed",
    b"event: response.incomplete",
)
_METHOD_KEYS = ("http.request.method", "http.method")
_TAIL = 4096
_CHUNK_BYTES = 150  # the memory of a piece, besides its data
_NO_ROOM = "too many exchanges were waiting to be recorded: the bodies were not kept"


class ExchangeWatcher(Protocol):
    """Sees the exchanges in the threads of the agent, before it gets the end of a response."""

    def requested(self, exchange: OpenExchange) -> None:
        """Take note of a request that is about to be sent."""

    def answered(self, exchange: OpenExchange) -> None:
        """Take note of an exchange that has ended."""


class ExchangeRecorder(ABC):
    """Sends requests, and hands each exchange to `emit` once it has ended.

    Attributes:
        recorded: The number of exchanges that were emitted.
        failures: The number of exchanges that were lost by an error of the recorder.
        watcher: Sees the exchanges before they are recorded, or None.
    """

    watcher: ExchangeWatcher | None = None

    def __init__(self, redactor: SecretRedactor | None = None, max_body: int = MAX_BODY) -> None:
        """Prepare to record.

        Args:
            redactor: Removes the secrets; None for one with the process's environment.
            max_body: The largest body that is kept (bytes, encoded and decoded).
        """
        self._redactor = redactor or SecretRedactor()
        self._max_body = max_body
        self._worker: RecordingWorker | None = None
        # Reentrant: the garbage collector may end an abandoned exchange at any step.
        self._lock = threading.RLock()
        self.recorded = 0
        self.failures = 0

    @abstractmethod
    def emit(self, exchange: Exchange, omitted: str, context: Any) -> None:
        """Take an exchange.

        Args:
            exchange: The exchange, without secrets.
            omitted: Why parts of it were not kept, or "".
            context: The context in which the request was made.
        """

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Send a request, and record it."""
        call = self._begin(request)
        if call is None:
            return send(request)
        try:
            response = send(request)
        except BaseException as error:
            call.fail(error)
            raise
        finally:
            call.sent()
        call.answered(response)
        return response

    async def handle_async(self, request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request of an asynchronous client, and record it."""
        call = self._begin(request)
        if call is None:
            return await send(request)
        try:
            response = await send(request)
        except BaseException as error:
            call.fail(error)
            raise
        finally:
            call.sent()
        call.answered(response)
        return response

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Count and log an error of the block instead of raising it."""
        try:
            yield
        except Exception as error:
            with self._lock:
                self.failures += 1
                is_first = self.failures == 1
            if is_first:
                # Without the error's text, which may quote a body.
                reason = type(error).__name__
                _log.warning("HTTP exchanges are lost (%s); more are only counted", reason)
            _log.debug("an HTTP exchange could not be recorded", exc_info=True)

    def has_room(self, size: int) -> bool:
        """Return whether bodies of a size (bytes) may be kept until they are recorded."""
        return self._worker is None or self._worker.has_room(size)

    def opened(self, exchange: OpenResponse) -> None:
        """Remember an exchange whose response is being read."""
        if self._worker is not None:
            self._worker.opened(exchange)

    def finished(self, exchange: OpenResponse) -> None:
        """Forget an exchange."""
        if self._worker is not None:
            self._worker.finished(exchange)

    def later(self, record: Callable[[], None], size: int) -> None:
        """Call a function that records an exchange: in the worker's thread, if there is one.

        Args:
            record: The function.
            size: The size of the bodies that it keeps (bytes).

        Raises:
            queue.Full: Too many exchanges wait.
        """
        if self._worker is None:
            record()
        elif not self._worker.add(functools.partial(self._guarded, record), size):
            raise queue.Full

    def _guarded(self, record: Callable[[], None]) -> None:
        with self.guarded():
            record()

    def _begin(self, request: Any) -> OpenExchange | None:
        """Return the record of a request; None if it is not to be recorded."""
        with self.guarded():
            if self._is_wanted(request):
                span, context = self._span_and_context(request)
                call = OpenExchange(self, request, self._redactor, self._max_body, context)
                call.span = span
                if self.watcher is not None:
                    with self.guarded():
                        self.watcher.requested(call)
                return call
        return None

    def _span_and_context(self, request: Any) -> tuple[Any, Any]:
        """Return the span to end with an exchange, or None, and the context of the exchange."""
        del request
        return None, None

    def _is_wanted(self, request: Any) -> bool:
        del request
        return True


class WireRecorder(ExchangeRecorder):
    """Records exchanges as log events; add it with `oteval.record.wire.interception.add`.

    Requests to OTLP endpoints, and those of code that suppresses instrumentation, are not recorded.
    """

    def __init__(
        self,
        logger_provider: Any = None,
        *,
        redactor: SecretRedactor | None = None,
        max_body: int = MAX_BODY,
        include_hosts: Iterable[str] = (),
        exclude_hosts: Iterable[str] = (),
        worker: RecordingWorker | None = None,
        watcher: ExchangeWatcher | None = None,
        tracer_provider: Any = None,
    ) -> None:
        """Prepare to record.

        Args:
            logger_provider: OpenTelemetry's logger provider; None for the global one.
            redactor: Removes the secrets; None for one with the process's environment.
            max_body: The largest body that is kept (bytes, encoded and decoded). The event of a
                larger one says that it is missing.
            include_hosts: Globs of the hosts to record, such as ``*.openai.com`` or
                ``localhost:8000``; empty for all.
            exclude_hosts: Globs of hosts not to record.
            worker: Redacts and emits the exchanges; None to do so in the agent's thread.
            watcher: Sees the exchanges in the agent's thread, before they are recorded.
            tracer_provider: OpenTelemetry's tracer provider; None for the global one.
        """
        from opentelemetry import context, trace
        from opentelemetry._logs import get_logger

        super().__init__(redactor, max_body)
        self._worker = worker
        self.watcher = watcher
        self._context, self._trace = context, trace
        self._tracer = trace.get_tracer("oteval.wire", tracer_provider=tracer_provider)
        self._logger = get_logger("oteval.wire", logger_provider=logger_provider)
        self._include, self._exclude = tuple(include_hosts), tuple(exclude_hosts)

    def emit(self, exchange: Exchange, omitted: str, context: Any) -> None:
        """Emit the event of an exchange."""
        event = to_event(exchange, omitted)
        self._logger.emit(
            timestamp=event.time_ns,
            context=context,
            event_name=event.name,
            body=event.body,
            attributes=event.attributes,
        )
        with self._lock:
            self.recorded += 1

    def _span_and_context(self, request: Any) -> tuple[Any, Any]:
        context = self._context.get_current()
        if request.extensions.get(CLIENT_EXTENSION) not in CLIENTS_WITHOUT_SPANS:
            return None, context
        around = getattr(self._trace.get_current_span(context), "attributes", None) or {}
        if any(key in around for key in _METHOD_KEYS):
            return None, context
        url = request.url
        attributes = {
            "http.request.method": request.method,
            "server.address": url.host,
            "url.full": str(url.copy_with(query=None, fragment=None, userinfo=b"")),
        }
        kind = self._trace.SpanKind.CLIENT
        span = self._tracer.start_span(request.method, context, kind, attributes)
        if not span.get_span_context().is_valid:
            return None, context
        return span, self._trace.set_span_in_context(span, context)

    def _is_wanted(self, request: Any) -> bool:
        url = request.url
        if url.path.endswith(TELEMETRY_PATHS) or any(
            self._context.get_value(key)
            for key in ("suppress_instrumentation", self._context._SUPPRESS_INSTRUMENTATION_KEY)
        ):
            return False
        if not (self._include or self._exclude):
            return True
        names = (url.host, f"{url.host}:{url.port}")
        return (not self._include or _matches(names, self._include)) and not _matches(
            names, self._exclude
        )


def _matches(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


class OpenExchange:
    """One request and its response, while they are being recorded.

    Attributes:
        span: The span that ends with the exchange, or None.
        method: The method of the request.
        url: The URL of the request.
        status: The status of the response; 0 if there is none.
        error: Why it failed, once it has ended; "" if it did not.
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
        # Now, so that spans that end meanwhile lose them as well.
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
        """Return the body of the request, decoded, as far as it is known."""
        return self._request_body(_lower_names(self._headers))

    def received_body(self) -> bytes:
        """Return the body of the response, decoded, as far as it has arrived."""
        chunks, _ = self._chunks(_lower_names(self._response_headers))
        return b"".join(chunk.data for chunk in chunks)

    def sent(self) -> None:
        """Give the request its stream back: a redirect may send it again."""
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
        """Return the request's body, decoded if that is possible."""
        chunks, _ = _decoded(self._library, self._sent, headers)
        return b"".join(chunk.data for chunk in chunks)

    def _chunks(self, headers: dict[str, str]) -> tuple[list[Chunk], str]:
        if self._is_decoded:
            headers.pop("content-encoding", None)
        return _decoded(self._library, self._received, headers)

    def _was_read(self) -> bool:
        """Return whether a response that was closed early has no more content."""
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
        """Return why the exchange cannot be replayed, or ""."""
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
        size: The size of all pieces, also of those not kept (bytes).
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
        """Return the memory that the kept pieces take (bytes)."""
        return 0 if self.is_too_large else self.size + len(self.chunks) * _CHUNK_BYTES

    def drop(self) -> None:
        """Forget the body, because it is too large."""
        self.is_too_large = True
        self.chunks = []

    def tail(self) -> bytes:
        """Return the last bytes."""
        size, out = 0, []
        for chunk in reversed(self.chunks):
            out.append(chunk.data)
            size += len(chunk.data)
            if size >= _TAIL:
                break
        return b"".join(reversed(out))[-_TAIL:]


def _decoded(library: ModuleType, body: _Body, headers: dict[str, str]) -> tuple[list[Chunk], str]:
    """Return the pieces of a body as the agent got them, and the error of the decoding or "".

    Args:
        library: The client's library, which decodes them.
        body: The body; it is dropped if it becomes too large.
        headers: The kept headers. If the body is decoded, ``content-encoding`` is removed.
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
    """A stream that shows each piece to a function, and the end to a call."""

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
    """Return a stream of the same kind that is recorded while it is read."""
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
