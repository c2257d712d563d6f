"""The MCP server over streamable HTTP, for clients on this machine.

Requests are independent of each other: the server keeps no sessions. A page in a
browser cannot reach the server: its ``Host`` and ``Origin`` headers name another host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from ...base.errors import ConfigError
from ...base.web_guard import (
    LocalRequests,
    RequiredToken,
    listening_socket,
    require_local,
    shown_host,
    split_address,
)
from ...replays import signals_end_the_server

__all__ = ["McpHttpServer"]

PATH = "/mcp"
_SECONDS = 10.0
_REMEDY = ", which oteval mcp does not serve; use 127.0.0.1, and a tunnel such as ssh -L"


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
            variable: The environment variable that contains it, for errors.

        Raises:
            ConfigError: The address is invalid, in use, or not an address of this machine.
        """
        host, port = split_address(address)
        require_local("--http", host, _REMEDY)
        try:
            self._socket = listening_socket(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--http {address}: cannot listen there: {reason}") from error
        self.url = f"http://{shown_host(host)}:{self._socket.getsockname()[1]}{PATH}"
        application = server.streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            # Hosts and origins are checked as by all servers.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        config = uvicorn.Config(
            LocalRequests(RequiredToken(application, token, variable)),
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
