"""OTLP over gRPC: the Export methods of traces, logs and metrics."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from ..spool import Kind, SpoolFull
from .answers import Refused, status_message, success, too_busy
from .auth import Tokens
from .intake import Intake
from .limits import MAX_BYTES, InFlight, plain_grpc, too_large

__all__ = ["GrpcReceiver"]

_SERVICE = "opentelemetry.proto.collector.{0}.v1.{1}Service"
_KINDS = {"traces": ("trace", "Trace"), "logs": ("logs", "Logs"), "metrics": ("metrics", "Metrics")}
_METHODS = {
    f"/{_SERVICE.format(folder, name)}/Export": kind for kind, (folder, name) in _KINDS.items()
}
# Each waits for the disk in a thread; a group commit serves all of them.
_THREADS = 32
_WAITING = 256
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_DETAILS = "grpc-status-details-bin"


class GrpcReceiver:
    """The gRPC server.

    Attributes:
        port: The port it listens on.
    """

    def __init__(
        self,
        intake: Intake,
        tokens: Tokens,
        address: str,
        *,
        limit: int = MAX_BYTES,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """Bind, but do not serve yet.

        Args:
            intake: Where requests go.
            tokens: Who may send.
            address: ``host:port``; port 0 takes any.
            limit: The most bytes of a request, decompressed.
            credentials: For TLS.

        Raises:
            OSError: The address cannot be used.
        """
        self._intake = intake
        self._tokens = tokens
        self._limit = limit
        self._in_flight = InFlight(512 << 20)
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc"),
            handlers=[_Handler(self)],
            options=[
                ("grpc.max_receive_message_length", limit),
                # Its decompression knows no limit; `plain_grpc` does.
                ("grpc.per_message_decompression", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", 128),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
            ],
            maximum_concurrent_rpcs=_WAITING,
        )
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(str(error).splitlines()[0]) from None
        if not self.port:
            raise OSError(f"{address} cannot be bound")

    def start(self) -> None:
        """Serve."""
        self._server.start()

    def stop(self, grace: float) -> threading.Event:
        """Take no more calls, and give those there are some seconds to end."""
        return self._server.stop(grace)

    def export(self, kind: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer one Export call."""
        start = time.perf_counter()
        outcome, good, rejected = "ok", 0, 0
        size = len(message)
        counted = False
        try:
            self._tokens.check_ingest(_authorization(context))
            if kind == "metrics":
                return b""
            self._in_flight.add(size)
            counted = True
            plain = plain_grpc(message, self._limit)
            if len(plain) > self._limit:
                raise too_large(self._limit)
            name: Kind = "logs" if kind == "logs" else "traces"
            taken = self._intake.take(name, "protobuf", plain)
            try:
                taken.durable.result()
            except SpoolFull as error:
                raise too_busy(str(error), "disk") from None
            good, rejected, text = taken.checked
            return success(kind, "protobuf", rejected, text)
        except Refused as refused:
            outcome = refused.kind
            code = _CODES.get(refused.status, grpc.StatusCode.INVALID_ARGUMENT)
            number: int = code.value[0]
            # Senders try again only when the status has its RetryInfo.
            context.set_trailing_metadata(((_DETAILS, status_message(refused, number)),))
            context.set_code(code)
            context.set_details(refused.reason)
            return b""
        finally:
            if counted:
                self._in_flight.remove(size)
            self._intake.observe(kind, outcome, good, rejected, time.perf_counter() - start)


def _authorization(context: grpc.ServicerContext) -> str | None:
    for key, value in context.invocation_metadata():
        if key == "authorization":
            return value if isinstance(value, str) else value.decode("latin-1")
    return None


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, receiver: GrpcReceiver) -> None:
        self._receiver = receiver

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        kind = _METHODS.get(details.method)
        if kind is None:
            return None

        def export(message: bytes, context: grpc.ServicerContext) -> bytes:
            return self._receiver.export(kind, message, context)

        # Without a deserializer the message comes as bytes.
        return grpc.unary_unary_rpc_method_handler(export)
