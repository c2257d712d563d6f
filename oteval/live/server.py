"""The listening process of `oteval serve`: receives, spools, acknowledges; opens no database.

What it receives is stored and scored by `back`, a process of its own that it keeps alive, so that
neither a slow evaluator nor a crash of it keeps anybody from being acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .. import machine
from ..durable_log import LogReader
from ..errors import ConfigError
from ..files import private_folder
from ..ingest.receiver.auth import Access
from ..ingest.receiver.grpc import GrpcReceiver
from ..ingest.receiver.http import HttpReceiver, refusal
from ..ingest.receiver.http_server import HttpServer, LocalHosts, is_local
from ..ingest.receiver.intake import Intake
from ..ingest.receiver.responses import RequestRefused
from ..ingest.spool import Spool
from .asking import ask
from .figures import Figures
from .logs import set_up
from .readiness import lateness
from .redaction_rules import RedactionRules
from .settings import Settings
from .supervisor import Supervisor
from .token_rules import TokenRules
from .welcome import welcome

__all__ = ["Tls", "serve"]

_log = logging.getLogger(__name__)
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_CHECK = 0.5


class Tls:
    """A certificate and its key.

    Attributes:
        certificate: The file of the chain, PEM.
        key: The file of the key, PEM.
        client_ca: The file of the authorities of which clients must have a certificate, PEM; ""
            for none.
    """

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        self.certificate = certificate
        self.key = key
        self.client_ca = client_ca

    def credentials(self) -> grpc.ServerCredentials:
        """Return them as gRPC takes them.

        Raises:
            ConfigError: A file cannot be read.
        """
        try:
            pair = (Path(self.key).read_bytes(), Path(self.certificate).read_bytes())
            authorities = Path(self.client_ca).read_bytes() if self.client_ca else None
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror}") from error
        return grpc.ssl_server_credentials([pair], authorities, bool(authorities))


def serve(
    settings: Settings,
    access: Access,
    tls: Tls | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: How.
        access: Who may send and read.
        tls: The certificate, for TLS.
        on_ready: Called with one line that says where it listens.

    Raises:
        OtevalError: It cannot begin; the message says why.
    """
    set_up(settings.log_format, "front")
    # Large requests are looked through in threads; the small ones beside them should not wait long.
    sys.setswitchinterval(0.001)
    # Nobody else may read what is written, whatever the shell says of new files.
    os.umask(0o077)
    _make_private(settings)
    asyncio.run(_Front(settings, access, tls).run(on_ready))


def _make_private(settings: Settings) -> None:
    """See that nobody else can use what is written.

    Raises:
        ConfigError: A folder is not the owner's alone; the message says what to do.
    """
    try:
        for folder in (settings.spool, settings.queues):
            if folder == settings.spool or folder.is_symlink() or folder.exists():
                private_folder(folder)
        for file in (Path(settings.db), Path(f"{settings.db}.wal")):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of ``host:port``.

    Raises:
        ConfigError: It is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{address!r} is no address; write HOST:PORT, such as 127.0.0.1:4318")
    return host.strip("[]"), int(port)


class _Front:
    def __init__(self, settings: Settings, access: Access, tls: Tls | None) -> None:
        self._settings, self._access, self._tls = settings, access, tls
        self._tokens = TokenRules(settings.tokens, access)
        self._stopping = asyncio.Event()
        self._redaction: RedactionRules
        self._figures = Figures(self._stand)
        # A share for each protocol, and one for files.
        self._connections = min(4096, machine.raise_file_limit() // 3)
        self._intake: Intake
        self._spool: Spool
        self._back: Supervisor
        self._addresses: dict[str, str] = {}

    async def run(self, on_ready: Callable[[str], None] | None) -> None:
        settings = self._settings
        # Before anything else: a server that does not know its rules does not start.
        self._redaction = RedactionRules(settings.config, is_optional=settings.may_lack_config)
        listener = _listen(settings.http)
        self._spool = Spool(settings.spool, quota=settings.quota)
        self._redaction.keep_copy(settings.config_copy)
        if self._spool.cut:
            _log.warning("%d bytes of an unfinished request were cut", self._spool.cut)
        self._intake = Intake(self._spool, self._redaction.redactor, self._figures.observe)
        grpc_server = self._grpc() if settings.grpc else None
        host = split_address(settings.http)[0]
        url = f"{'https' if self._tls else 'http'}://{host}:{listener.getsockname()[1]}"
        self._addresses = {"http": url}
        if grpc_server is not None:
            self._addresses["grpc"] = f"{split_address(settings.grpc)[0]}:{grpc_server.port}"
        notice = {**self._addresses, "front_pid": os.getpid()}
        self._back = Supervisor(replace(settings, notice=notice), self._spool.stored)
        supervising = asyncio.create_task(self._back.run())
        receiver = HttpReceiver(self._intake, self._access, limit=settings.limit)
        server = HttpServer(
            self._guarded(receiver.application(self._routes())),
            certificate=self._tls.certificate if self._tls else None,
            key=self._tls.key if self._tls else None,
            client_ca=(self._tls.client_ca or None) if self._tls else None,
            connections=self._connections,
        )
        self._catch_signals()
        first = asyncio.create_task(self._back.wait_ready())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({supervising, first, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if supervising.done():
            listener.close()
            await asyncio.to_thread(self._spool.close)
            await supervising  # raises what kept it from beginning
        if grpc_server is not None:
            grpc_server.start()
        serving = asyncio.create_task(server.serve([listener]))
        watching = asyncio.create_task(self._watch_config())
        if on_ready is not None:
            on_ready(", ".join(self._addresses.values()))
        await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        await self._end(server, serving, grpc_server)
        watching.cancel()
        await asyncio.wait({supervising})

    async def _end(
        self, server: HttpServer, serving: asyncio.Task[None], grpc_server: GrpcReceiver | None
    ) -> None:
        _log.info("stopping: what is spooled is stored")
        self._stopping.set()
        if grpc_server is not None:
            await asyncio.to_thread(grpc_server.stop(3).wait)
        server.should_exit = True
        await asyncio.wait({serving})
        await asyncio.to_thread(self._spool.close)
        status = await self._back.stop()
        if status:
            _log.error("the storing process ended with status %d", status)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _grpc(self) -> GrpcReceiver:
        try:
            return GrpcReceiver(
                self._intake,
                self._access,
                self._settings.grpc,
                limit=self._settings.limit,
                credentials=self._tls.credentials() if self._tls else None,
                connections=self._connections,
            )
        except OSError as error:
            raise ConfigError(
                f"{self._settings.grpc}: cannot listen there ({error}); give another --grpc"
            ) from error

    def _guarded(self, application: ASGIApp) -> ASGIApp:
        """Return the application as it may be asked by pages in browsers on this machine."""
        host = split_address(self._settings.http)[0]
        if not host or not is_local(host):
            return application
        return LocalHosts(application, self._needs_token)

    def _needs_token(self, path: str) -> bool:
        if path.startswith("/v1/"):
            return self._access.needs("ingest")
        is_read = path == "/metrics" or path.startswith("/api/")
        return self._access.needs("read") and is_read

    def _routes(self) -> list[Route]:
        return [
            Route("/", self._welcome),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/api/{path:path}", self._api),
        ]

    async def _welcome(self, request: Request) -> Response:  # noqa: ARG002
        text = welcome(self._addresses, needs_token=self._access.needs("ingest"))
        return Response(text, media_type="text/plain")

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002
        return Response(b"ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002
        stand = self._stand()
        status = 200 if stand["is_ready"] else 503
        return Response(orjson.dumps(stand), status, media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        if refused := self._may_not_read(request):
            return refused
        text = self._figures.text()
        # Without the other process, those of this one say that it is away.
        with suppress(OSError, KeyError, TimeoutError):
            text += await asyncio.wait_for(ask(self._back.state["socket"], "metrics"), 5)
        return Response(text, headers={"content-type": _TEXT})

    async def _api(self, request: Request) -> Response:
        if refused := self._may_not_read(request):
            return refused
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        try:
            path = request.path_params["path"]
            body = await asyncio.wait_for(ask(self._back.state["socket"], path, query), 60)
        except (OSError, KeyError, TimeoutError):
            return refusal(
                RequestRefused(503, "away", "the storing process is away", retry_after=1)
            )
        status = 200
        if body.startswith(b'{"error":'):
            status = int(orjson.loads(body).get("status", 500))
        return Response(body, status, media_type="application/json")

    def _may_not_read(self, request: Request) -> Response | None:
        try:
            peer = request.client.host if request.client else ""
            self._access.admit_reader(request.headers.get("authorization"), peer)
        except RequestRefused as refused:
            return refusal(refused)
        return None

    def _stand(self) -> Mapping[str, Any]:
        back = self._back.state if self._back.is_up else {}
        reason = "the server stops" if self._stopping.is_set() else self._spool.refusing()
        reasons = [
            reason,
            self._spool.problem and f"the spool: {self._spool.problem}",
            "" if back else f"the storing process is away: {self._back.failure or 'it starts'}",
            back and self._back.failure,
            lateness(self._spool.oldest(), self._back.unmoved),
            self._redaction.reason(),
        ]
        known = [text for text in reasons if text]
        return {
            "is_ready": not known,
            "reasons": known,
            "warnings": _warnings(back, self._redaction.error, self._tokens.error),
            "is_storing": bool(back),
            "redaction": self._redaction.state(),
            "tokens": self._tokens.state(),
            "restarts": self._back.restarts,
            "spool_bytes": self._spool.size(),
            "spool_quota": self._spool.quota,
            "left_bytes": self._left(),
            "oldest_seconds": round(self._spool.oldest(), 1),
            **{key: value for key, value in back.items() if key != "socket"},
        }

    def _left(self) -> int:
        """Return how many bytes of the spool are not stored, also while nobody stores."""
        if self._back.position is None:
            return self._spool.size()
        return LogReader(self._settings.spool, self._back.position).unread_bytes()

    def _reload(self) -> None:
        self._redaction.reload()
        self._intake.redactor = self._redaction.redactor
        self._tokens.reload()
        self._back.hang_up()

    async def _watch_config(self) -> None:
        """Take new redaction rules when the file changes; the other process sees to its own."""
        while True:
            await asyncio.sleep(_CHECK)
            try:
                await asyncio.to_thread(self._tokens.check)
                if await asyncio.to_thread(self._redaction.check):
                    _log.info("the redaction rules of %s are in force", self._settings.config)
            except Exception:
                _log.exception("the configuration could not be looked at; it is tried again")
            self._intake.redactor = self._redaction.redactor


def _warnings(back: Mapping[str, Any], configuration: str, tokens: str) -> list[str]:
    """Return warnings that do not keep the server from being ready."""
    found = [f"lost: {loss}" for loss in back.get("losses", ())]
    if damaged := back.get("stored", {}).get("lost_bytes"):
        found.append(f"lost: {damaged} bytes of the spool, which the disk damaged")
    if rejected := back.get("stored", {}).get("rejected"):
        found.append(
            f"{rejected} requests cannot be decoded; they are kept in the spool's rejected/"
        )
    if configuration:
        found.append(f"the old rules stay in force: {configuration}")
    if tokens:
        found.append(f"the tokens in force stay so: {tokens}")
    return found + list(back.get("scoring", {}).get("problems", ()))


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{address}: cannot listen there ({reason}); give another --http"
        ) from error
