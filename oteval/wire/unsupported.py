"""Network clients in this process whose requests are neither recorded nor replayed.

Only httpx and httpx2 are intercepted. Other clients are named, so that nobody takes a recording for
whole that is not. A client that is imported has not necessarily been used: OpenTelemetry's own
exporters import requests and grpc. During a replay, the network guard stops them all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass

__all__ = ["UnsupportedClient", "unsupported_clients"]


@dataclass(frozen=True)
class UnsupportedClient:
    """A library that sends requests and is not intercepted.

    Attributes:
        library: The name under which it is imported.
        protocol: The protocol it speaks.
        remedy: How its requests can be recorded after all.
    """

    library: str
    protocol: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.library} ({self.protocol}) is imported: its requests are neither recorded nor "
            f"replayed; {self.remedy}"
        )


_USE_HTTPX = "use httpx, or mark the function that calls it with @oteval.tool"
_USE_TOOL = "mark the function that calls it with @oteval.tool"
_CLIENTS = (
    UnsupportedClient("aiohttp", "HTTP", _USE_HTTPX),
    UnsupportedClient("botocore", "HTTP", _USE_TOOL),
    UnsupportedClient("curl_cffi", "HTTP", _USE_HTTPX),
    UnsupportedClient("grpc", "gRPC", _USE_TOOL),
    UnsupportedClient("httpx_aiohttp", "HTTP", "give the client httpx's usual transport"),
    UnsupportedClient("pycurl", "HTTP", _USE_HTTPX),
    UnsupportedClient("requests", "HTTP", _USE_HTTPX),
    UnsupportedClient("tornado.httpclient", "HTTP", _USE_HTTPX),
    UnsupportedClient("urllib3", "HTTP", _USE_HTTPX),
    UnsupportedClient("websockets", "WebSocket", _USE_TOOL),
)
# Libraries that send their requests by another one of the list.
_BELOW = {"requests": "urllib3", "botocore": "urllib3", "httpx_aiohttp": "aiohttp"}


def unsupported_clients(modules: Container[str] | None = None) -> list[UnsupportedClient]:
    """Return the clients that are imported and not intercepted, by name.

    A library by which another one of them sends its requests is left out.

    Args:
        modules: The names of the imported modules; None for those of this process.
    """
    imported = sys.modules if modules is None else modules
    found = [client for client in _CLIENTS if client.library in imported]
    below = {_BELOW[client.library] for client in found if client.library in _BELOW}
    return [client for client in found if client.library not in below]
