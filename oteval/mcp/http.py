"""The MCP server over streamable HTTP, for clients on this machine.

Requests are independent of each other: the server keeps no sessions. A page in a
browser cannot reach the server: its ``Host`` and ``Origin`` headers name another host.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..addresses import listening_socket, split_address
from ..errors import ConfigError
from ..replays.server import signals_end_the_server

__all__ = ["McpHttpServer", "RequiredToken"]

PATH = "/mcp"
_SECONDS = 10.0


class RequiredToken:
    """Middleware that refuses requests without the bearer token.

    Args:
        application: The application.
        token: The token; "" admits everybody.
        variable: The environment variable that has it, for the error.
    """

    def __init__(self, application: ASGIApp, token: str, variable: str) -> None:
        self._application = application
        self._expected = f"bearer {token}".encode() if token else b""
        self._variable = variable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and self._expected and not self._is_admitted(scope):
            text = f"send 'authorization: Bearer TOKEN' with the {self._variable}\n"
            headers = {"www-authenticate": "Bearer"}
            await PlainTextResponse(text, 401, headers=headers)(scope, receive, send)
            return
        await self._application(scope, receive, send)

    def _is_admitted(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(scheme.lower() + b" " + token.strip(), self._expected)


class McpHttpServer:
    """Serves MCP at ``/mcp`` of an address of this machine.

    Attributes:
        url: The address of the endpoint.
    """

    def __init__(self, server: Server[Any], address: str, *, token: str, variable: str) -> None:
        """Bind the address.

        Args:
            server: The MCP server.
            address: The address, ``host:port``; port 0 for any free one.
            token: The token that clients must send; "" for none.
            variable: The environment variable that has it, for errors.

        Raises:
            ConfigError: The address is invalid, in use, or not an address of this machine.
        """
        host, port = split_address(address)
        _require_loopback(host)
        try:
            self._socket = listening_socket(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--http {address}: cannot listen there: {reason}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}{PATH}"
        application = server.streamable_http_app(
            streamable_http_path=PATH, json_response=True, stateless_http=True
        )
        config = uvicorn.Config(
            RequiredToken(application, token, variable),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        with signals_end_the_server():
            self._server.run(sockets=[self._socket])

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread while the block runs, and yield the address of the endpoint."""
        thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        thread.start()
        try:
            # The socket listens already: requests wait until the server takes them.
            yield self.url
        finally:
            self._server.should_exit = True
            thread.join(_SECONDS)
            self._socket.close()


def _require_loopback(host: str) -> None:
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        raise ConfigError(
            f"--http {host or '*'} is open to other machines, which oteval mcp does not serve; "
            "use 127.0.0.1, and a tunnel such as ssh -L"
        )
