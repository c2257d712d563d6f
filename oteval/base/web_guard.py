"""The addresses of our HTTP servers, and who may send requests to them: one rule for all of them.

- An address that other machines can reach needs a token (`require_local`).
- A request that needs a token must have it. It may come from anywhere (`RequiredToken`).
- A request without a token must come from a program of this machine, and not from a page in a
  browser. A page of any site can send requests to loopback, and its domain name may resolve to
  127.0.0.1 (DNS rebinding), so that its scripts can even read the answers. Such requests name a
  foreign ``Host`` or ``Origin``, or another site in ``Sec-Fetch-Site`` (`LocalRequests`).

The middleware is plain ASGI.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from .errors import ConfigError

__all__ = [
    "LocalRequests",
    "RequiredToken",
    "is_local",
    "is_loopback",
    "is_own_origin",
    "listening_socket",
    "require_local",
    "shown_host",
    "split_address",
]


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``.

    Raises:
        ConfigError: The address is invalid.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"invalid address {address!r}: write HOST:PORT, such as 127.0.0.1:4318")
    return host.strip("[]"), int(port)


def shown_host(host: str) -> str:
    """A host for a URL: addresses of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def listening_socket(host: str, port: int, *, backlog: int = 2048) -> socket.socket:
    """A socket that listens, whose connections send small responses at once.

    By default TCP delays the second write of a response until the client has acknowledged the
    first. Clients that keep a connection acknowledge it after 40 ms. asyncio switches the delay
    off, but not for sockets that `socket.create_server` returns. Connections inherit the option.

    Args:
        host: A host name or an address; with a colon, an IPv6 address.
        port: The port; 0 for a free one.
        backlog: The maximum number of connections that wait to be accepted.

    Raises:
        OSError: The address does not belong to this machine, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=backlog)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
_Refusal = Callable[[int, str], _Application]

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
# Where clients of models send their key: OpenAI's and most others, Anthropic's, Azure's, Google's.
_KEY_HEADERS = (b"x-api-key", b"api-key", b"x-goog-api-key")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address to listen on.

    Args:
        host: A host name or an address; "" means all addresses.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_local(option: str, host: str, remedy: str) -> None:
    """Refuse an address that other machines can reach.

    Args:
        option: The option that names it, for the error.
        host: The host name or address.
        remedy: The rest of the error, with the remedy.

    Raises:
        ConfigError: The address is not a loopback address.
    """
    if not is_loopback(host):
        raise ConfigError(f"{option} {host or '*'} is open to other machines{remedy}")


def is_local(host: str) -> bool:
    """Whether a ``Host`` header, with or without a port, names this machine's loopback."""
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


def is_own_origin(origin: str, host: str) -> bool:
    """Whether an ``Origin`` header names the host that a request was sent to.

    The scheme may differ from the scheme seen here, because a proxy may end TLS.
    """
    scheme, _, netloc = origin.partition("://")
    return bool(host) and scheme in ("http", "https") and netloc == host.lower()


class LocalRequests:
    """Middleware that refuses requests of pages of other sites, unless a token is needed anyway.

    Args:
        application: The application.
        needs_token: Whether a path requires a token; by default none does.
        has_pages: Whether other sites may link to pages here.
        refusal: Makes the response of a refusal from its status and reason.
    """

    def __init__(
        self,
        application: _Application,
        needs_token: Callable[[str], bool] = lambda _: False,
        *,
        has_pages: bool = False,
        refusal: _Refusal | None = None,
    ) -> None:
        self._application, self._needs_token = application, needs_token
        self._has_pages = has_pages
        self._refusal = refusal or _plain_refusal

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        application = self._application
        if scope["type"] in ("http", "websocket") and not self._needs_token(scope["path"]):
            hosts, origins = _texts(scope, b"host"), _texts(scope, b"origin")
            if not all(map(is_local, hosts)):
                application = self._refusal(403, "use http://127.0.0.1 or http://localhost")
            elif not all(is_own_origin(origin, "".join(hosts)) for origin in origins) or (
                _FOREIGN_SITES & {*_texts(scope, b"sec-fetch-site")} and not self._is_link(scope)
            ):
                application = self._refusal(403, "pages of other sites may not send requests here")
        await application(scope, receive, send)

    def _is_link(self, scope: _Scope) -> bool:
        """Whether somebody follows a link to a page."""
        is_followed = _texts(scope, b"sec-fetch-mode") == ["navigate"]
        return self._has_pages and is_followed and scope.get("method") == "GET"


class RequiredToken:
    """Middleware that refuses requests without the token.

    Clients of models may send it as their key, in their API's header for keys.

    Args:
        application: The application.
        token: The token; "" admits everybody.
        variable: The environment variable that has it, for the error.
        open_paths: Paths that need no token.
    """

    def __init__(
        self, application: _Application, token: str, variable: str, open_paths: Iterable[str] = ()
    ) -> None:
        self._application, self._variable = application, variable
        self._token = token.encode()
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        application = self._application
        if scope["type"] in ("http", "websocket") and not self._is_admitted(scope):
            text = f"send 'authorization: Bearer TOKEN' with the {self._variable}"
            application = _plain_refusal(401, text)
        await application(scope, receive, send)

    def _is_admitted(self, scope: _Scope) -> bool:
        if not self._token or scope["path"] in self._open_paths:
            return True
        bearers = [text.partition(" ") for text in _texts(scope, b"authorization")]
        tokens = [token for scheme, _, token in bearers if scheme.lower() == "bearer"]
        tokens += [text for name in _KEY_HEADERS for text in _texts(scope, name)]
        # All are compared, in constant time.
        matches = [
            hmac.compare_digest(token.strip().encode("latin-1"), self._token) for token in tokens
        ]
        return any(matches)


def _texts(scope: _Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope.get("headers", ())
    return [value.decode("latin-1") for key, value in headers if key == name]


def _plain_refusal(status: int, reason: str) -> _Application:
    """An application that answers any request with a reason as text."""
    body = f"{reason}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))

    async def refuse(scope: _Scope, _receive: _Receive, send: _Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return refuse
