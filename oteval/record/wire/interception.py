"""Interception of the HTTP requests that httpx, httpx2, requests, urllib3 and aiohttp send.

An `Interceptor` gets every request at the transport, where it is about to be sent, and decides how
to answer it. The hooks are set on the classes ``HTTPTransport`` and ``AsyncHTTPTransport``. They
therefore also apply to clients that exist already, to subclasses, and to transports that wrap
others: such a transport is passed by, and the request is intercepted once, where it would reach the
network. Retries are separate requests. For requests, ``HTTPAdapter`` is hooked; for urllib3 (and so
for botocore), its pools; for aiohttp, its sessions. Their requests are described as requests of
httpx, see `requests_adapter`, `urllib3_adapter` and `aiohttp_adapter`.

Libraries that are not imported yet are hooked when they are imported. The hooks lie below the
wrappers of wrapt, which OpenTelemetry's instrumentation uses: the current span is then the span of
the HTTP request, and either of them can be removed first.

``ASGITransport`` and ``WSGITransport`` call an application in the same process, usually the agent
under test, and are never hooked. ``MockTransport`` is hooked only for interceptors that request it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, Self

from ...base.import_hook import ImportHook
from .aiohttp_adapter import intercepted_request, is_supported
from .requests_adapter import intercepted_send
from .urllib3_adapter import intercepted_urlopen

__all__ = [
    "CLIENTS",
    "CLIENTS_WITHOUT_SPANS",
    "LIBRARIES",
    "Interception",
    "Interceptor",
    "add",
    "library_of",
]

LIBRARIES = ("httpx", "httpx2")
"""The libraries whose requests and responses an interceptor gets."""

CLIENTS = (*LIBRARIES, "aiohttp", "requests", "urllib3")
"""The libraries whose requests are intercepted."""

CLIENTS_WITHOUT_SPANS = ("aiohttp", "urllib3")
"""Libraries whose requests get a span from the recorder, unless an instrumentation writes one."""

Send = Callable[[Any], Any]
SendAsync = Callable[[Any], Awaitable[Any]]

_METHODS = (
    ("HTTPAdapter", "send"),
    ("HTTPConnectionPool", "urlopen"),
    ("ClientSession", "_request"),
    ("HTTPTransport", "handle_request"),
    ("AsyncHTTPTransport", "handle_async_request"),
    ("MockTransport", "handle_request"),
    ("MockTransport", "handle_async_request"),
)
_MARK = "_oteval_original"


class Interceptor(Protocol):
    """Answers requests: by sending them, or in another way.

    Requests and responses are objects of the client's library, see `library_of`. Calls may come
    from several threads at once. Exceptions reach the agent.
    """

    def handle(self, request: Any, send: Send) -> Any:
        """Answer a synchronous client's request.

        Args:
            request: The request.
            send: Passes a request to the next interceptor, or to the network.
        """

    async def handle_async(self, request: Any, send: SendAsync) -> Any:
        """Answer an asynchronous client's request.

        Args:
            request: The request.
            send: Passes a request to the next interceptor, or to the network.
        """


@dataclass(frozen=True, eq=False)
class Interception:
    """An interceptor that was added; as a context manager, until the end of the block.

    Attributes:
        interceptor: The interceptor.
        mocks: Whether it also gets the requests that a ``MockTransport`` answers.
    """

    interceptor: Interceptor
    mocks: bool = False

    def remove(self) -> None:
        """Remove the interceptor. Requests that it has received already run to their end."""
        _hooks.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.remove()


def add(interceptor: Interceptor, *, mocks: bool = False) -> Interception:
    """Intercept all requests from now on, also in libraries that are imported later.

    Of several interceptors, the last one added gets a request first.

    Args:
        interceptor: The interceptor.
        mocks: Whether it also gets the requests that a ``MockTransport`` answers.
    """
    interception = Interception(interceptor, mocks)
    _hooks.add(interception)
    return interception


def library_of(request: Any) -> ModuleType:
    """The module of a request or response: httpx or httpx2."""
    for base in type(request).__mro__:
        name = base.__module__.partition(".")[0]
        if name in LIBRARIES:
            return sys.modules[name]
    raise TypeError(f"{type(request).__name__} is not a request of {' or '.join(LIBRARIES)}")


_handled: ContextVar[Any] = ContextVar("oteval_handled_request", default=None)
# requests sends through urllib3, which calls itself for a retry.
_is_below_urllib3: ContextVar[bool] = ContextVar("oteval_below_urllib3", default=False)


class _Handling:
    """Marks a request as passed to the interceptors while the block runs.

    A mock transport may pass it on to a real one, and another library's function may lie between
    two hooks: the interceptors must not get it again.
    """

    def __init__(self, request: Any, *, sends_by_urllib3: bool = False) -> None:
        self._request, self._sends_by_urllib3 = request, sends_by_urllib3

    def __enter__(self) -> None:
        self._token = _handled.set(self._request)
        if self._sends_by_urllib3:
            self._urllib3_token = _is_below_urllib3.set(True)

    def __exit__(self, *_exception: object) -> None:
        # A coroutine that nobody awaits any more is closed in another context.
        with contextlib.suppress(ValueError):
            _handled.reset(self._token)
            if self._sends_by_urllib3:
                _is_below_urllib3.reset(self._urllib3_token)


class _Hooks:
    """The interceptors, the hooked classes, and the hook for later imports."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: tuple[Interception, ...] = ()
        self._importer = ImportHook(CLIENTS, self.hook)

    def chain(self, *, is_mock: bool) -> tuple[Interceptor, ...]:
        """The interceptors for a request, the first added first."""
        active = self._active
        if not active:
            return ()
        return tuple(
            interception.interceptor for interception in active if interception.mocks or not is_mock
        )

    def add(self, interception: Interception) -> None:
        with self._lock:
            self._active = (*self._active, interception)
            if self._importer not in sys.meta_path:
                sys.meta_path.insert(0, self._importer)
        for name in CLIENTS:
            module = sys.modules.get(name)
            # Another thread may be importing it now: importing it here waits for that.
            if module is not None and getattr(module.__spec__, "_initializing", False):
                __import__(name)
            if module is not None:
                self.hook(module)

    def remove(self, interception: Interception) -> None:
        with self._lock:
            self._active = tuple(active for active in self._active if active is not interception)
            if self._active:
                return
            if self._importer in sys.meta_path:
                sys.meta_path.remove(self._importer)
            for name in CLIENTS:
                for owner, method in _owners(sys.modules.get(name)):
                    _unhook(owner, method)

    def hook(self, module: ModuleType) -> None:
        """Hook the transports of a library, unless they are hooked or nobody listens."""
        with self._lock:
            if self._active:
                for owner, method in _owners(module):
                    _hook(owner, method)


def _owners(module: ModuleType | None) -> Iterator[tuple[type, str]]:
    """The transport classes of a library, each with the name of the method to hook."""
    # The classes of requests are in its module adapters.
    module = getattr(module, "adapters", module)
    for name, method in _METHODS:
        owner = getattr(module, name, None)
        if not isinstance(owner, type) or method not in vars(owner):
            continue
        if method != "_request" or is_supported(owner):
            yield owner, method


def _innermost(owner: type, method: str) -> tuple[Any, Any]:
    """The function below all wrappers of wrapt, and the wrapper around it or None."""
    outer, function = None, vars(owner)[method]
    while _is_wrapper(function):
        outer, function = function, function.__wrapped__
    return outer, function


def _replace(owner: type, method: str, outer: Any, function: Any) -> None:
    if outer is None:
        setattr(owner, method, function)
    else:
        outer.__wrapped__ = function


def _hook(owner: type, method: str) -> None:
    outer, function = _innermost(owner, method)
    below = function
    while below is not None:
        if _is_hook(below):
            return
        below = getattr(below, "__wrapped__", None)
    is_mock = owner.__name__ == "MockTransport"
    hooked: Any
    if method in _OTHER_HOOKS:
        hooked = _OTHER_HOOKS[method](function)
    else:
        hooked = (_async_hook if "async" in method else _sync_hook)(function, is_mock)
    setattr(hooked, _MARK, function)
    _replace(owner, method, outer, hooked)


def _unhook(owner: type, method: str) -> None:
    """Restore a method. A hook below another library's function stays, and does nothing."""
    outer, function = _innermost(owner, method)
    if _is_hook(function):
        _replace(owner, method, outer, getattr(function, _MARK))


def _is_wrapper(function: Any) -> bool:
    """Whether a function is a wrapper of wrapt, in Python or in C."""
    return any(base.__name__ == "FunctionWrapper" for base in type(function).__mro__)


def _is_hook(function: Any) -> bool:
    # Wrappers of wrapt show the attributes of their function as their own.
    return hasattr(function, _MARK) and not _is_wrapper(function)


def _sync_hook(original: Callable[[Any, Any], Any], is_mock: bool) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def handle_request(self: Any, request: Any) -> Any:
        chain = _hooks.chain(is_mock=is_mock)
        if not chain or _handled.get() is request:
            return original(self, request)

        with _Handling(request):
            return _handled_by(chain, request, functools.partial(original, self))

    return handle_request


def _requests_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def send(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        chain = _hooks.chain(is_mock=False)
        if not chain or _handled.get() is request:
            return original(self, request, *args, **options)

        def sent(prepared: Any) -> Any:
            return original(self, prepared, *args, **options)

        with _Handling(request, sends_by_urllib3=True):
            return intercepted_send(sent, self, request, functools.partial(_handled_by, chain))

    return send


def _urllib3_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def urlopen(self: Any, *args: Any, **options: Any) -> Any:
        chain = _hooks.chain(is_mock=False)
        if not chain or _is_below_urllib3.get():
            return original(self, *args, **options)

        with _Handling(None, sends_by_urllib3=True):
            handled = functools.partial(_handled_by, chain)
            return intercepted_urlopen(original, self, args, options, handled)

    return urlopen


def _aiohttp_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def _request(self: Any, *args: Any, **options: Any) -> Any:
        chain = _hooks.chain(is_mock=False)
        if not chain:
            return await original(self, *args, **options)
        handled = functools.partial(_handled_async, chain)
        return await intercepted_request(original, self, args, options, handled)

    return _request


def _handled_by(chain: tuple[Interceptor, ...], request: Any, send: Send) -> Any:
    """Pass a request to the interceptors, the last one first."""
    # Without a function that refers to itself: responses are freed as soon as the agent drops them.
    for interceptor in chain:
        send = functools.partial(_passed, interceptor, send)
    return send(request)


def _passed(interceptor: Interceptor, send: Send, request: Any) -> Any:
    return interceptor.handle(request, send)


def _async_hook(
    original: Callable[[Any, Any], Awaitable[Any]], is_mock: bool
) -> Callable[[Any, Any], Awaitable[Any]]:
    @functools.wraps(original)
    async def handle_async_request(self: Any, request: Any) -> Any:
        chain = _hooks.chain(is_mock=is_mock)
        if not chain or _handled.get() is request:
            return await original(self, request)

        with _Handling(request):
            return await _handled_async(chain, request, functools.partial(original, self))

    return handle_async_request


async def _handled_async(chain: tuple[Interceptor, ...], request: Any, send: SendAsync) -> Any:
    """Do the same for the request of an asynchronous client."""
    for interceptor in chain:
        send = functools.partial(_passed_async, interceptor, send)
    return await send(request)


async def _passed_async(interceptor: Interceptor, send: SendAsync, request: Any) -> Any:
    return await interceptor.handle_async(request, send)


_OTHER_HOOKS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_request": _aiohttp_hook,
    "send": _requests_hook,
    "urlopen": _urllib3_hook,
}


_hooks = _Hooks()
