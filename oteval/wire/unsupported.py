"""Network clients whose requests are neither recorded nor replayed.

Only httpx, httpx2 and requests are intercepted. Other clients are named, so that nobody takes a
recording for whole that is not. A client that is imported or installed has not necessarily been
used: OpenTelemetry's own exporters import grpc. During a replay, the network guard stops them all
the same. ``http.client`` and ``urllib.request`` of Python's library are not intercepted either, and
not named: everybody imports them.
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


_USE_HTTPX = "use httpx or requests, or mark the function that calls it with @oteval.tool"
_USE_TOOL = "mark the function that calls it with @oteval.tool"
_HTTPX_TRANSPORT = "give the client httpx's usual transport"
_CLIENTS = (
    UnsupportedClient("aiohttp", "HTTP", _USE_HTTPX, "aiohttp", "litellm may use it"),
    UnsupportedClient("botocore", "HTTP", _USE_TOOL, "botocore", "Amazon Bedrock"),
    UnsupportedClient("curl_cffi", "HTTP", _USE_HTTPX, "curl-cffi"),
    UnsupportedClient("grpc", "gRPC", _USE_TOOL, "grpcio", "Vertex AI"),
    UnsupportedClient("httpx_aiohttp", "HTTP", _HTTPX_TRANSPORT, "httpx-aiohttp"),
    UnsupportedClient("pycurl", "HTTP", _USE_HTTPX, "pycurl"),
    UnsupportedClient("tornado.httpclient", "HTTP", _USE_HTTPX),
    UnsupportedClient("urllib3", "HTTP", _USE_HTTPX),
    UnsupportedClient("websockets", "WebSocket", _USE_TOOL),
)
# Libraries that others of the list, or requests, send their requests by.
_ABOVE = {"urllib3": ("requests", "botocore"), "aiohttp": ("httpx_aiohttp",)}


def unsupported_clients(modules: Container[str] | None = None) -> list[UnsupportedClient]:
    """Return the clients that are imported and not intercepted, by name.

    A library by which another one of them, or requests, sends its requests is left out.

    Args:
        modules: The names of the imported modules; None for those of this process.
    """
    imported = sys.modules if modules is None else modules
    return [
        client
        for client in _CLIENTS
        if client.library in imported
        and not any(above in imported for above in _ABOVE.get(client.library, ()))
    ]


def unsupported_distributions() -> dict[str, UnsupportedClient]:
    """Return the clients that are not intercepted, by their names on PyPI."""
    return {client.distribution: client for client in _CLIENTS if client.distribution}
