"""OTLP over gRPC: the Export methods of traces, logs and metrics.

Calls are coroutines of one event loop in a separate thread, so that a stalled call occupies no
thread. The token in the metadata is checked before the message is read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
from grpc import aio

from ..spool import Kind, SpoolFull
from .auth import Access
from .intake import Accepted, Intake
from .limits import MAX_BYTES, Upload, Uploads, decompressed_grpc, is_compressed, too_large
from .responses import RequestRefused, status_protobuf, success_body, too_busy

__all__ = ["GrpcReceiver"]

_SERVICE = "opentelemetry.proto.collector.{0}.v1.{1}Service"
_KINDS = {"traces": ("trace", "Trace"), "logs": ("logs", "Logs"), "metrics": ("metrics", "Metrics")}
_METHODS = {
    f"/{_SERVICE.format(folder, name)}/Export": kind for kind, (folder, name) in _KINDS.items()
}
# Messages up to this size (bytes) are checked in the event loop; a thread would cost more.
_SMALL = 1 << 16
_THREADS = 4
# The most bytes of the messages of all senders together, which are in memory.
_MAX_ARRIVING_BYTES = 512 << 20
_MAX_CALLS = 1024
MESSAGE_TIMEOUT = 30.0  # seconds
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_DETAILS = "grpc-status-details-bin"
_T = TypeVar("_T")


class GrpcReceiver:
    """The gRPC server.

    Attributes:
        port: The port it listens on.
    """

    def __init__(
        self,
        intake: Intake,
        access: Access,
        address: str,
        *,
        limit: int = MAX_BYTES,
        credentials: grpc.ServerCredentials | None = None,
        message_timeout: float = MESSAGE_TIMEOUT,
        connections: int = 512,
    ) -> None:
        """Bind, but do not serve yet.

        Args:
            intake: Checks requests and appends them to the spool.
            access: Decides who may send.
            address: ``host:port``; port 0 is any free port.
            limit: The most bytes of a request, decompressed.
            credentials: The server's credentials, for TLS.
            message_timeout: A call's message must arrive within this time (s).
            connections: The most connections.

        Raises:
            OSError: The address cannot be used.
        """
        self._intake = intake
        self._access = access
        self._limit = limit
        self._timeout = message_timeout
        self._connections = connections
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc-large")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="grpc", daemon=True)
        self._thread.start()
        try:
            self.port = self._run(self._bind(address, credentials))
        except RuntimeError as error:
            self._end()
            raise OSError(str(error).splitlines()[0]) from None
        if not self.port:
            self._end()
            raise OSError(f"{address} cannot be bound")

    def start(self) -> None:
        """Serve."""
        self._run(self._server.start())

    def stop(self, grace: float) -> threading.Event:
        """Refuse new calls, and let the running calls finish.

        Args:
            grace: Seconds after which running calls are cancelled.

        Returns:
            An event that is set once the server has stopped.
        """
        stopped = threading.Event()

        async def stop() -> None:
            await self._server.stop(grace)
            stopped.set()
            self._loop.call_soon(self._end)

        asyncio.run_coroutine_threadsafe(stop(), self._loop)
        return stopped

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._pool.shutdown(wait=False)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _bind(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        self._uploads = Uploads(
            max_bytes=_MAX_ARRIVING_BYTES, max_count=_MAX_CALLS, timeout=self._timeout
        )
        self._server = aio.server(
            handlers=[_Handler(self)],
            options=[
                # Above our limit: the sender of a slightly larger message then gets our response.
                ("grpc.max_receive_message_length", min(4 * self._limit, (1 << 31) - 1)),
                # gRPC's decompression has no limit; `decompressed_grpc` has one.
                ("grpc.per_message_decompression", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", 128),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.absolute_max_metadata_size", 16 << 10),
                ("grpc.max_allowed_incoming_connections", self._connections),
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.http2.settings_timeout", 10_000),
                ("grpc.max_connection_idle_ms", 300_000),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
            ],
        )
        if credentials is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, credentials)

    async def export(
        self, kind: str, context: aio.ServicerContext[Any, Any], authorization: str | None
    ) -> bytes:
        """Answer one Export call."""
        start = time.perf_counter()
        outcome, valid, rejected = "ok", 0, 0
        try:
            token = self._access.admit_sender(authorization, _host(context.peer()))
            accepted = await self._accept(kind, context, token.attributes)
            if accepted is None:
                return b""
            valid, rejected, text = accepted.contents
            return success_body(kind, "protobuf", rejected, text)
        except RequestRefused as refused:
            outcome = refused.kind
            code = _CODES.get(refused.status, grpc.StatusCode.INVALID_ARGUMENT)
            number: int = code.value[0]
            # Senders retry only if the status has a RetryInfo.
            context.set_trailing_metadata(((_DETAILS, status_protobuf(refused, number)),))
            context.set_code(code)
            context.set_details(refused.reason)
            return b""
        except asyncio.CancelledError:
            outcome = "gone"
            raise
        finally:
            self._intake.observe(kind, outcome, valid, rejected, time.perf_counter() - start)

    async def _accept(
        self, kind: str, context: aio.ServicerContext[Any, Any], attributes: Mapping[str, str]
    ) -> Accepted | None:
        upload: Upload | None = None
        try:
            async with self._uploads.receive() as upload:
                message = await context.read()
                if not isinstance(message, bytes):
                    raise RequestRefused(400, "malformed", "the call has no message")
                upload.add(len(message))
            if kind == "metrics":
                return None
            name: Kind = "logs" if kind == "logs" else "traces"
            if len(message) <= _SMALL and not is_compressed(message):
                accepted = self._intake.accept(name, "protobuf", message, attributes)
            else:
                accepted = await self._loop.run_in_executor(
                    self._pool, self._large, name, message, attributes
                )
            try:
                await asyncio.wrap_future(accepted.durable)
            except SpoolFull as error:
                raise too_busy(str(error), "disk") from None
            return accepted
        finally:
            if upload is not None:
                self._uploads.done(upload)

    def _large(self, kind: Kind, message: bytes, attributes: Mapping[str, str]) -> Accepted:
        plain = decompressed_grpc(message, self._limit)
        if len(plain) > self._limit:
            raise too_large(self._limit)
        return self._intake.accept(kind, "protobuf", plain, attributes)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, receiver: GrpcReceiver) -> None:
        self._receiver = receiver

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        kind = _METHODS.get(details.method)
        if kind is None:
            return None
        authorization = _authorization(details)

        # A stream, because the message of a unary call would be read before this function runs.
        # Without a deserializer, messages are bytes.
        async def export(
            messages: AsyncIterator[bytes],  # noqa: ARG001
            context: aio.ServicerContext[Any, Any],
        ) -> bytes:
            return await self._receiver.export(kind, context, authorization)

        return grpc.stream_unary_rpc_method_handler(export)


def _host(peer: str) -> str:
    """The host of a peer such as ``ipv4:127.0.0.1:1234``."""
    return unquote(peer.partition(":")[2].rpartition(":")[0])


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    for key, value in details.invocation_metadata:
        if key == "authorization":
            return value if isinstance(value, str) else value.decode("latin-1")
    return None
