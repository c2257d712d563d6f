"""The listening process of `oteval serve`: it receives, spools and acknowledges requests.

It does not open the database. A second process, the storage process, stores and scores; the
listening process keeps it running. So neither a slow evaluator nor a crash delays an
acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
from starlette.types import ASGIApp

from ..base import machine
from ..base.errors import ConfigError
from ..base.files import private_folder, private_umask
from ..base.web_guard import LocalRequests, is_loopback, listening_socket, split_address
from ..ingest import Access, GrpcReceiver, HttpReceiver, HttpServer, Intake, Spool, refusal_of
from .listener_rules import RedactionRules, TokenRules
from .pages_process import PagesProcess, PagesProxy
from .server_config import ServerConfig, configure_logging
from .status_pages import ListenerMetrics, ServerStatus, StatusPages
from .supervisor import Supervisor

__all__ = ["Tls", "serve"]

_log = logging.getLogger(__name__)
_RULES_INTERVAL = 0.5  # seconds
_GRPC_GRACE = 3  # seconds
_MAX_CONNECTIONS = 4096


@dataclass(frozen=True)
class Tls:
    """A certificate and its key.

    Attributes:
        certificate: The path of the certificate chain, PEM.
        key: The path of the key, PEM.
        client_ca: The path of the certificates of authorities, PEM. Clients need a certificate of
            one of them; "" for none.
    """

    certificate: str
    key: str
    client_ca: str = ""

    def credentials(self) -> grpc.ServerCredentials:
        """The credentials of a gRPC server.

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
    config: ServerConfig,
    access: Access,
    tls: Tls | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: The configuration.
        access: Decides who may send and read.
        tls: The certificate, for TLS.
        on_ready: Called with the addresses once the server listens.

    Raises:
        OtevalError: The server cannot start; the message is the reason.
    """
    configure_logging(config.log_format, "listener")
    # Large requests are parsed in threads; small requests meanwhile must not wait long.
    sys.setswitchinterval(0.001)
    with private_umask():
        _make_private(config)
        asyncio.run(ListenerProcess(config, access, tls).run(on_ready))


def _make_private(config: ServerConfig) -> None:
    """Make the files of the server accessible to their owner only.

    Raises:
        ConfigError: A folder belongs to somebody else.
    """
    try:
        for folder in (config.spool, config.queues):
            if folder == config.spool or folder.is_symlink() or folder.exists():
                private_folder(folder)
        for file in (Path(config.db), Path(f"{config.db}.wal")):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


class ListenerProcess:
    """The servers, the spool and the supervisor of the storage process."""

    def __init__(self, config: ServerConfig, access: Access, tls: Tls | None) -> None:
        self._config, self._access, self._tls = config, access, tls
        self._stopping = asyncio.Event()
        # An equal share of the open files for HTTP, for gRPC and for everything else.
        self._connections = min(_MAX_CONNECTIONS, machine.raise_file_limit() // 3)
        self._tokens = TokenRules(config.tokens, access)
        # Before anything else: without its redaction rules, the server does not start.
        self._redaction = RedactionRules(config.config, is_optional=config.may_lack_config)
        self._listener = _listen(config.http)
        self._spool = Spool(config.spool, quota=config.quota)
        self._redaction.keep_copy(config.config_copy)
        if self._spool.cut:
            _log.warning("%d bytes of an incomplete request were cut", self._spool.cut)
        self._metrics = ListenerMetrics(lambda: self._status.read())
        self._intake = Intake(self._spool, self._redaction.redactor, self._metrics.observe)
        self._grpc = self._grpc_receiver() if config.grpc else None
        self._addresses = self._listening_addresses()
        # Only this user can read the notice.
        notice = {
            **self._addresses,
            "program": "oteval serve",
            "listener_pid": os.getpid(),
            "token": access.admit_local(),
        }
        self._storage = Supervisor(replace(config, notice=notice), self._spool.stored)
        self._pages = PagesProcess(config, access)
        self._status = ServerStatus(
            config,
            self._spool,
            self._storage,
            self._redaction,
            self._tokens,
            self._stopping.is_set,
        )

    async def run(self, on_ready: Callable[[str], None] | None) -> None:
        """Serve until `SIGTERM` or `SIGINT`; see `serve`."""
        supervising = asyncio.create_task(self._storage.run())
        server = self._http_server()
        self._catch_signals()
        ready = asyncio.create_task(self._storage.wait_ready())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({supervising, ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if supervising.done():
            self._listener.close()
            await asyncio.to_thread(self._spool.close)
            await supervising  # raises the reason why the storage process cannot start
        if self._grpc is not None:
            self._grpc.start()
        serving = asyncio.create_task(server.serve([self._listener]))
        watching = asyncio.create_task(self._watch_rules())
        if on_ready is not None:
            on_ready(", ".join(self._addresses.values()))
        await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        await self._shut_down(server, serving)
        watching.cancel()
        await asyncio.wait({supervising})

    async def _shut_down(self, server: HttpServer, serving: asyncio.Task[None]) -> None:
        _log.info("stopping: the spooled requests are stored first")
        self._stopping.set()
        if self._grpc is not None:
            await asyncio.to_thread(self._grpc.stop(_GRPC_GRACE).wait)
        await self._pages.stop()
        server.should_exit = True
        await asyncio.wait({serving})
        await asyncio.to_thread(self._spool.close)
        status = await self._storage.stop()
        if status:
            _log.error("the storage process ended with status %d", status)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _http_server(self) -> HttpServer:
        receiver = HttpReceiver(self._intake, self._access, limit=self._config.limit)
        pages = StatusPages(
            self._status,
            self._metrics,
            self._storage,
            self._access,
            self._addresses,
            PagesProxy(self._pages),
        )
        tls = self._tls
        return HttpServer(
            self._protect_from_browsers(receiver.application(pages.routes())),
            certificate=tls.certificate if tls else None,
            key=tls.key if tls else None,
            client_ca=(tls.client_ca or None) if tls else None,
            connections=self._connections,
        )

    def _grpc_receiver(self) -> GrpcReceiver:
        address = self._config.grpc
        try:
            return GrpcReceiver(
                self._intake,
                self._access,
                address,
                limit=self._config.limit,
                credentials=self._tls.credentials() if self._tls else None,
                connections=self._connections,
            )
        except OSError as error:
            raise ConfigError(
                f"{address}: cannot listen there ({error}); give another --grpc"
            ) from error

    def _listening_addresses(self) -> dict[str, str]:
        host = split_address(self._config.http)[0]
        port = self._listener.getsockname()[1]
        addresses = {"http": f"{'https' if self._tls else 'http'}://{host}:{port}"}
        if self._grpc is not None:
            addresses["grpc"] = f"{split_address(self._config.grpc)[0]}:{self._grpc.port}"
        return addresses

    def _protect_from_browsers(self, application: ASGIApp) -> ASGIApp:
        """Wrap the application so that pages in a browser on this machine cannot misuse it."""
        host = split_address(self._config.http)[0]
        if not is_loopback(host):
            return application
        return LocalRequests(application, self._needs_token, has_pages=True, refusal=refusal_of)

    def _needs_token(self, path: str) -> bool:
        if path.startswith("/v1/"):
            return self._access.needs("ingest")
        # Pages show nothing to a visitor who has not logged in.
        is_read = path not in ("/healthz", "/readyz")
        return self._access.needs("read") and is_read

    def _reload(self) -> None:
        self._redaction.reload()
        self._intake.redactor = self._redaction.redactor
        self._tokens.reload()
        self._storage.reload()

    async def _watch_rules(self) -> None:
        """Reload redaction rules and tokens when their files change."""
        while True:
            await asyncio.sleep(_RULES_INTERVAL)
            try:
                await asyncio.to_thread(self._tokens.check)
                self._pages.update_tokens()
                if await asyncio.to_thread(self._redaction.check):
                    _log.info("the redaction rules of %s are in force", self._config.config)
            except Exception:
                _log.exception("the configuration cannot be checked; it is tried again")
            self._intake.redactor = self._redaction.redactor


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    try:
        return listening_socket(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{address}: cannot listen there ({reason}); give another --http"
        ) from error
