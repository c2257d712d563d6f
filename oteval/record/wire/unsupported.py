"""Network clients whose requests are neither recorded nor replayed.

Only the clients of `interception.CLIENTS` are intercepted. Other clients are named, so that
nobody takes a recording for whole that is not. A client that is imported or installed has not
necessarily been used: OpenTelemetry's own exporters import grpc. During a replay, the network
guard stops them all the same. ``http.client`` and ``urllib.request`` of Python's library are not
intercepted either, and not named: everybody imports them.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass

__all__ = ["UnsupportedClient", "unsupported_clients", "unsupported_distributions"]


@dataclass(frozen=True)
class UnsupportedClient:
    """A library that sends requests and is not intercepted.

    Attributes:
        library: The name under which it is imported.
        protocol: The protocol it speaks.
        remedy: How its requests can be recorded after all.
        distribution: Its name on PyPI; "" if it is installed for other reasons, as a rule.
        models: The models that are reached through it.
    """

    library: str
    protocol: str
    remedy: str
    distribution: str = ""
    models: str = ""

    def __str__(self) -> str:
        return (
            f"{self.library} ({self.protocol}) is imported: its requests are neither recorded nor "
            f"replayed; {self.remedy}"
        )


_USE_HTTPX = "use httpx, requests or aiohttp, or mark the function that calls it with @oteval.tool"
_USE_TOOL = "mark the function that calls it with @oteval.tool"
_CLIENTS = (
    UnsupportedClient("curl_cffi", "HTTP", _USE_HTTPX, "curl-cffi"),
    UnsupportedClient("grpc", "gRPC", _USE_TOOL, "grpcio", "Vertex AI"),
    UnsupportedClient("pycurl", "HTTP", _USE_HTTPX, "pycurl"),
    UnsupportedClient("tornado.httpclient", "HTTP", _USE_HTTPX),
    UnsupportedClient("websockets", "WebSocket", _USE_TOOL),
)


def unsupported_clients(modules: Container[str] | None = None) -> list[UnsupportedClient]:
    """Return the clients that are imported and not intercepted, by name.

    Args:
        modules: The names of the imported modules; None for those of this process.
    """
    imported = sys.modules if modules is None else modules
    return [client for client in _CLIENTS if client.library in imported]


def unsupported_distributions() -> dict[str, UnsupportedClient]:
    """Return the clients that are not intercepted, by their names on PyPI."""
    return {client.distribution: client for client in _CLIENTS if client.distribution}
