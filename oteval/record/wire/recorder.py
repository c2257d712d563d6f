"""Record the HTTP exchanges of an agent as log events, without secrets.

`WireRecorder` is an interceptor. It passes every request on, and emits each exchange that has ended
as an OpenTelemetry log event. The event has the context of the request, so it lies beside the spans
of the trace. `open_exchange` copies the bodies.

If no instrumentation writes a span for a request of aiohttp or urllib3, the recorder does: an
exchange without a span could not be placed in its trace.

With a `RecordingWorker`, the agent's thread only collects the pieces: a separate thread removes the
secrets and emits the event.

Nothing here breaks the agent: an error of the recorder is counted, and logged once.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ...base.redaction.secrets import (
    SecretRedactor,
)
from ...model import Exchange, to_event
from ..faults import FaultCounter
from .interception import CLIENTS_WITHOUT_SPANS
from .open_exchange import OpenExchange
from .recording_worker import RecordingWorker
from .requests_adapter import CLIENT_EXTENSION, TELEMETRY_PATHS

if TYPE_CHECKING:
    from ..tool_watcher import ToolWatcher

__all__ = ["MAX_BODY", "ExchangeRecorder", "WireRecorder"]

MAX_BODY = 16 << 20
"""The size (bytes) of the largest request or response body that is recorded by default."""

_log = logging.getLogger(__name__)
_METHOD_KEYS = ("http.request.method", "http.method")


class ExchangeRecorder(ABC):
    """Sends requests, and passes each exchange to `emit` once it has ended.

    Attributes:
        recorded: The number of exchanges that were emitted.
        watcher: Sees the exchanges before they are recorded, or None.
    """

    watcher: ToolWatcher | None = None

    def __init__(self, redactor: SecretRedactor | None = None, max_body: int = MAX_BODY) -> None:
        """Prepare to record.

        Args:
            redactor: Removes the secrets; None for a redactor with the process's environment.
            max_body: The largest body to record (bytes, encoded and decoded).
        """
        self._redactor = redactor or SecretRedactor()
        self._max_body = max_body
        self._worker: RecordingWorker | None = None
        # Reentrant: the garbage collector may end an abandoned exchange at any step.
        self._lock = threading.RLock()
        self.recorded = 0
        self._faults = FaultCounter(_log, "HTTP exchanges are lost")

    @abstractmethod
    def emit(self, exchange: Exchange, omitted: str, context: Any) -> None:
        """Take an exchange.

        Args:
            exchange: The exchange, without secrets.
            omitted: Why parts of it are missing, or "".
            context: The context of the request.
        """

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Send a request, and record it."""
        exchange = self._begin(request)
        if exchange is None:
            return send(request)
        with exchange:
            response = send(request)
        exchange.answered(response)
        return response

    async def handle_async(self, request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request of an asynchronous client, and record it."""
        exchange = self._begin(request)
        if exchange is None:
            return await send(request)
        with exchange:
            response = await send(request)
        exchange.answered(response)
        return response

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Count and log an error of the block instead of raising it."""
        try:
            yield
        except Exception as error:
            self._faults.add(error)

    @property
    def failures(self) -> int:
        """The number of exchanges that were lost by an error of the recorder."""
        return self._faults.count

    def has_room(self, size: int) -> bool:
        """Whether bodies of a size (bytes) may wait until they are recorded."""
        return self._worker is None or self._worker.has_room(size)

    def opened(self, exchange: OpenExchange) -> None:
        """Remember an exchange whose response is being read."""
        if self._worker is not None:
            self._worker.opened(exchange)

    def finished(self, exchange: OpenExchange) -> None:
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
        """Begin to record a request; None if it is not to be recorded."""
        with self.guarded():
            if self._is_wanted(request):
                span, context = self._span_and_context(request)
                exchange = OpenExchange(self, request, self._redactor, self._max_body, context)
                exchange.span = span
                if self.watcher is not None:
                    with self.guarded():
                        self.watcher.requested(exchange)
                return exchange
        return None

    def _span_and_context(self, request: Any) -> tuple[Any, Any]:
        """The span to end with an exchange, or None, and the context of the exchange."""
        del request
        return None, None

    def _is_wanted(self, request: Any) -> bool:
        del request
        return True


class WireRecorder(ExchangeRecorder):
    """Records exchanges as log events; add it with `oteval.record.wire.interception.add`.

    Requests to OTLP endpoints, or from code that suppresses instrumentation, are not recorded.
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
        watcher: ToolWatcher | None = None,
        tracer_provider: Any = None,
    ) -> None:
        """Prepare to record.

        Args:
            logger_provider: OpenTelemetry's logger provider; None for the global one.
            redactor: Removes the secrets; None for a redactor with the process's environment.
            max_body: The largest body to record (bytes, encoded and decoded). The event of a larger
                body has a note instead.
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
            event_name=event.event_name,
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
