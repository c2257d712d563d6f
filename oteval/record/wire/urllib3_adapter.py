"""Interception of the requests that urllib3 sends for botocore, and for programs that use it alone.

The hook on ``HTTPConnectionPool.urlopen`` describes each request like a request of requests, see
`requests_adapter`. The library requests sends through urllib3 too: its requests are intercepted by
its own adapter, and pass this hook.

Redirects that a pool follows by itself, and retries, are below the hook, so only the last response
is seen. botocore and ``PoolManager`` follow redirects and retry above it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from .requests_adapter import Chain, intercepted_send, native_error

__all__ = ["intercepted_urlopen"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


def intercepted_urlopen(
    urlopen: Callable[..., Any], pool: Any, args: tuple[Any, ...], options: Any, chain: Chain
) -> Any:
    """Send a request through the interceptors, and return urllib3's response.

    Args:
        urlopen: The original method.
        pool: The pool of connections.
        args: The arguments of the method.
        options: Its arguments by name.
        chain: Passes a request to the interceptors, with the function that sends it.

    Raises:
        urllib3.exceptions.HTTPError: The request failed, or an interceptor raised the error.
    """
    call = _UrlopenCall(urlopen, pool, _signature(urlopen).bind(pool, *args, **options))
    request = call.described()
    native = intercepted_send(call.send, call, request, chain, error_of=call.error_of)
    return call.finished(native.raw)


@functools.cache
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


@dataclass
class _Request:
    """A request, with the attributes by which `requests_adapter` describes it."""

    method: str
    url: str
    headers: dict[Any, Any]
    body: Any
    client: str = "urllib3"

    def copy(self) -> _Request:
        """Copy the request and its headers."""
        return replace(self, headers=dict(self.headers))


def _native(raw: Any) -> SimpleNamespace:
    """A response of urllib3 with the attributes that `requests_adapter` reads."""
    return SimpleNamespace(raw=raw, close=raw.close)


class _UrlopenCall:
    """One call of ``urlopen``; as an adapter of requests, it builds responses that are answers.

    Args:
        urlopen: The original method.
        pool: The pool.
        bound: The arguments.
    """

    def __init__(
        self, urlopen: Callable[..., Any], pool: Any, bound: inspect.BoundArguments
    ) -> None:
        self._urlopen, self._pool, self._bound = urlopen, pool, bound
        bound.apply_defaults()
        self._arguments = bound.arguments
        self._url = _absolute(pool, str(self._arguments["url"]))
        # A body that is read at once is described afterwards: a retry may follow its error.
        self._is_preloaded = self._arguments.get("preload_content", True)
        self._is_native = False

    def described(self) -> _Request:
        """Describe the request."""
        headers = self._arguments["headers"]
        headers = self._pool.headers if headers is None else headers
        return _Request(
            str(self._arguments["method"]),
            self._url,
            dict(headers or {}),
            self._arguments["body"],
        )

    def send(self, request: _Request) -> SimpleNamespace:
        """Send a request for real."""
        arguments, pool = self._arguments, self._pool
        arguments["method"], arguments["body"] = request.method, request.body
        if arguments["headers"] is not None or request.headers != dict(pool.headers or {}):
            arguments["headers"] = request.headers
        if request.url != self._url:
            arguments["url"] = _relative(request.url)
            if urlsplit(request.url).netloc != urlsplit(self._url).netloc:
                from urllib3 import connection_from_url

                arguments["self"] = connection_from_url(request.url)
        self._is_native = True
        return _native(self._urlopen(*self._bound.args, **self._bound.kwargs))

    def build_response(self, _request: Any, raw: Any) -> SimpleNamespace:
        """Build the response for an interceptor's answer."""
        self._is_native = False
        raw._request_url = self._arguments["url"]
        return _native(raw)

    def finished(self, raw: Any) -> Any:
        """Read the body of a response if the caller wants it at once."""
        if self._is_preloaded and not self._is_native:
            raw._body = raw.read(decode_content=self._arguments.get("decode_content", True))
        return raw

    def error_of(self, error: Any, request: _Request) -> Exception:
        """The exception of urllib3 for one of httpx, whose text names a recorded exception."""
        from urllib3 import exceptions

        kind, message = native_error(
            error, exceptions, exceptions.HTTPError, _ERRORS, "ProtocolError"
        )
        return _exception(kind, self._pool, request.url, message)


_ERRORS = {
    "ConnectError": "NewConnectionError",
    "ConnectTimeout": "ConnectTimeoutError",
    "DecodingError": "DecodeError",
    "PoolTimeout": "ConnectTimeoutError",
    "ProxyError": "ProxyError",
    "ReadTimeout": "ReadTimeoutError",
    "WriteTimeout": "ReadTimeoutError",
}


def _exception(kind: Any, pool: Any, url: str, message: str) -> Exception:
    from urllib3 import exceptions

    error: Exception
    if issubclass(kind, exceptions.MaxRetryError):
        error = kind(pool, url, exceptions.ProtocolError(message))
    elif issubclass(kind, exceptions.RequestError):
        error = kind(pool, url, message)
    elif issubclass(kind, exceptions.ProxyError):
        error = kind(message, OSError(message))
    elif issubclass(kind, (exceptions.PoolError, exceptions.NewConnectionError)):
        error = kind(pool, message)
    else:
        try:
            error = kind(message)
        except TypeError:
            error = exceptions.ProtocolError(message)
    # The recorded text already begins as the constructors begin it.
    error.args = (message,)
    return error


def _absolute(pool: Any, url: str) -> str:
    """The whole URL of a request: a pool only gets its path."""
    if url.startswith(("http://", "https://")):
        return url
    host = f"[{pool.host}]" if ":" in str(pool.host) else pool.host
    is_default = pool.port in (None, _DEFAULT_PORTS.get(pool.scheme))
    return f"{pool.scheme}://{host}{'' if is_default else f':{pool.port}'}{url}"


def _relative(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(("", "", parts.path or "/", parts.query, ""))
