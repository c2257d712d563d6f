"""Names by which a server that listens on this machine only may be asked.

A page in a browser can have a name of its own point to 127.0.0.1 and then read what answers there,
without a token. Its requests carry that name as their `Host`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import Refused
from .http import refusal

__all__ = ["LocalNames", "is_local"]


def is_local(host: str) -> bool:
    """Return whether a name or address, with or without a port, is one of this machine."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


class LocalNames:
    """An application that answers to names of this machine only."""

    def __init__(self, application: ASGIApp, needs_token: Callable[[str], bool]) -> None:
        """Wrap an application.

        Args:
            application: The application.
            needs_token: Whether a path is open only to those with a token, under any name.
        """
        self._application = application
        self._needs_token = needs_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        hosts = [v.decode("latin-1") for k, v in scope.get("headers", ()) if k == b"host"]
        is_foreign = not all(map(is_local, hosts))
        if scope["type"] == "http" and is_foreign and not self._needs_token(scope["path"]):
            refused = Refused(403, "host", "use http://127.0.0.1 or http://localhost")
            await refusal(refused)(scope, receive, send)
            return
        await self._application(scope, receive, send)
