"""The network guard: during a replay, nothing reaches the network unless it is allowed.

Sockets cannot connect or send, and names cannot be resolved, on the loopback interface as well as
elsewhere. Unix sockets, socket pairs and servers in the process work as before: event loops and
subprocesses need them. Clients that do not use Python's sockets (gRPC, uvloop, curl) are stopped at
their own functions. Audit events (PEP 578) refuse calls that patched functions cannot see: a
function may have been imported by name before the replay, or a socket may come from the module
`_socket`.

A blocked attempt is a divergence of kind ``network``. It names the address, the client and the line
of the agent's code. Exporters of telemetry only receive a refused connection: they are not the
agent.

The guard belongs to the process and counts its users. The replay of the thread or task decides, see
`oteval.replays.open_replays`. For child processes see `oteval.replays.child_processes`.
"""

from __future__ import annotations

import _socket
import asyncio
import errno
import functools
import ipaddress
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakSet

from ..base.errors import ReplayDiverged
from ..base.import_hook import ImportHook
from ..record import CLIENTS
from .address_list import is_local_name, shown_address
from .call_site import CallSite, call_site
from .child_processes import (
    CHILD_MODULES,
    PROCESS_EVENTS,
    carry_into_processes,
    guard_fork_exec,
    guard_uvloop_processes,
)
from .divergence import Divergence
from .open_replays import OpenReplay, current_replay, has_context, has_open_replay, replay_of_call
from .patches import Patches

__all__ = ["network_guard"]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_RESOLVERS = ("gethostbyname", "gethostbyname_ex", "gethostbyaddr")
_Function = Callable[..., Any]


@contextmanager
def network_guard() -> Iterator[None]:
    """Block the network for the replays in progress, until the end of the block."""
    _GUARD.acquire()
    try:
        yield
    finally:
        _GUARD.release()


class _Guard:
    """The patched functions, and the number of their users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._patches = Patches()
        self._imports: ImportHook | None = None

    def acquire(self) -> None:
        """Patch the functions for the first user."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            _patch_sockets(self._patches)
            _patch_names(self._patches)
            guard_fork_exec(self._patches)
            carry_into_processes(self._patches)
            _add_audit_hook()
            self._imports = ImportHook(_PATCHED_MODULES, self._patch_module)
            self._imports.install()

    def release(self) -> None:
        """Restore the functions after the last user."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if self._imports is not None:
                self._imports.remove()
            self._patches.undo()

    def _patch_module(self, module: ModuleType) -> None:
        _PATCHED_MODULES[module.__name__](self._patches, module)


def _attempt(
    host: str, port: int | None, client: str = "", replay: OpenReplay | None = None
) -> None:
    """Check that an address may be used.

    Args:
        host: Its name or IP address.
        port: Its port; None to resolve the name.
        client: The name of the client, if it is known.
        replay: The replay; by default the replay of the thread or task.

    Raises:
        ReplayDiverged: It may not, and misses are ``strict``.
        ConnectionRefusedError: It may not, in all other cases.
    """
    replay = replay or current_replay()
    if replay is None or replay.player.is_live or _is_allowed(replay, host, port):
        return
    address = shown_address(host, port)
    site = call_site()
    if site.is_telemetry:
        replay.player.note(f"telemetry to {address} was blocked")
    else:
        replay.player.diverge(_divergence(address, port, client or site.client, site))
    raise ConnectionRefusedError(errno.ECONNREFUSED, f"oteval replay: {address} is blocked")


def _is_allowed(replay: OpenReplay, host: str, port: int | None) -> bool:
    return replay.allowed.allows(host, port) or replay.models.allows(host, port)


def _divergence(address: str, port: int | None, client: str, site: CallSite) -> Divergence:
    who = client if client and client != "socket" else "the agent"
    did = "connect to" if port is not None else "resolve the name"
    if client in CLIENTS:
        how = f"; {client} did not send it by its usual transport"
    else:
        how = "" if who == "the agent" else f"; requests of {client} are not intercepted"
    return Divergence(
        "network",
        f"{who} tried to {did} {address}{how}",
        actual=address,
        line=site.line,
    )


def _check_address(sock: Any, address: Any) -> None:
    """Check the address that a socket connects or sends to."""
    if sock.family not in _INTERNET or not isinstance(address, tuple) or len(address) < 2:
        return
    try:
        _attempt(str(address[0]), int(address[1]))
    except ReplayDiverged:
        # Clients close the socket only after an `OSError`.
        sock.close()
        raise


_accepted: WeakSet[Any] = WeakSet()


def _check_open(sock: Any) -> None:
    """Check a socket that was connected before it was guarded, such as in connection pools."""
    if sock.family not in _INTERNET or sock in _accepted:
        return
    replay = current_replay()
    if replay is None:
        return
    # Threads that are older than the replay have other purposes, such as a database or telemetry.
    if not has_context() and threading.current_thread() in replay.older_threads:
        return
    try:
        peer = _socket.socket.getpeername(sock)
    except OSError:
        return
    _attempt(str(peer[0]), int(peer[1]), replay=replay)


def _patch_sockets(patches: Patches) -> None:
    owner = socket.socket
    connect, connect_ex, accept = owner.connect, owner.connect_ex, owner.accept
    sendto, sendmsg = owner.sendto, owner.sendmsg

    @functools.wraps(connect)
    def guarded_connect(self: Any, address: Any) -> Any:
        _check_address(self, address)
        return connect(self, address)

    @functools.wraps(connect_ex)
    def guarded_connect_ex(self: Any, address: Any) -> Any:
        try:
            _check_address(self, address)
        except ConnectionRefusedError as error:
            return error.errno
        return connect_ex(self, address)

    @functools.wraps(accept)
    def noted_accept(self: Any) -> Any:
        accepted, address = accept(self)
        _accepted.add(accepted)
        return accepted, address

    @functools.wraps(sendto)
    def guarded_sendto(self: Any, data: Any, *flags_and_address: Any) -> Any:
        _check_address(self, flags_and_address[-1] if flags_and_address else None)
        return sendto(self, data, *flags_and_address)

    @functools.wraps(sendmsg)
    def guarded_sendmsg(self: Any, buffers: Any, *options: Any) -> Any:
        if len(options) == 3 and options[2] is not None:
            _check_address(self, options[2])
        else:
            _check_open(self)
        return sendmsg(self, buffers, *options)

    replaced: tuple[tuple[str, _Function], ...] = (
        ("connect", guarded_connect),
        ("connect_ex", guarded_connect_ex),
        ("accept", noted_accept),
        ("sendto", guarded_sendto),
        ("sendmsg", guarded_sendmsg),
        ("send", _guarded_send(owner.send)),
        ("sendall", _guarded_send(owner.sendall)),
    )
    for name, function in replaced:
        patches.set(owner, name, function)
    for name in ("send", "sendall", "write"):
        patches.set(ssl.SSLSocket, name, _guarded_send(getattr(ssl.SSLSocket, name)))


def _guarded_send(send: _Function) -> _Function:
    @functools.wraps(send)
    def guarded_send(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check_open(self)
        return send(self, *args, **kwargs)

    return guarded_send


def _patch_names(patches: Patches) -> None:
    """Guard the functions that resolve names, in the modules that callers use."""
    # Python's `socket.getaddrinfo` calls `_socket.getaddrinfo`; the other functions are copies.
    patches.set(_socket, "getaddrinfo", _guarded_resolver(_socket.getaddrinfo, _of_addrinfo))
    for name in _RESOLVERS:
        resolver = _guarded_resolver(getattr(_socket, name), _of_hosts)
        patches.set(_socket, name, resolver)
        patches.set(socket, name, resolver)
    # Event loops resolve names in another thread; its stack does not have the agent's line.
    _patch_loop(patches, asyncio.BaseEventLoop, ("getaddrinfo",))


def _audited_name(host: Any, *_rest: Any) -> None:
    """Check a name that is resolved by a function imported before it was guarded."""
    name = _host_text(host)
    if name is not None:
        _resolve_attempt(name)


def _audited_address(address: Any, *_rest: Any) -> None:
    """Check an address before its name is looked up, which would query a name server."""
    host = str(address[0] if isinstance(address, tuple) else address)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        _audited_name(host)
        return
    if not (ip.is_loopback or ip.is_unspecified):
        _resolve_attempt(host)


def _executed(code: Any) -> None:
    """Check that executed code does not define a tool that is already answered."""
    replay = replay_of_call() if isinstance(code, CodeType) else None
    if replay is not None and replay.is_open:
        replay.player.require_no_tool_in(code)


_AUDITED: dict[str, Callable[..., None]] = {
    **PROCESS_EVENTS,
    "exec": _executed,
    "socket.connect": _check_address,
    "socket.sendto": _check_address,
    "socket.getaddrinfo": _audited_name,
    "socket.gethostbyname": _audited_name,
    "socket.gethostbyaddr": _audited_address,
    "socket.getnameinfo": _audited_address,
}


@functools.cache
def _add_audit_hook() -> None:
    """Audit calls from now on, while a replay is open; such a hook cannot be removed."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    handler = _AUDITED.get(event)
    if handler is not None and has_open_replay():
        handler(*arguments)


def _of_addrinfo(entries: Any) -> list[str]:
    return [str(entry[4][0]) for entry in entries]


def _of_hosts(answer: Any) -> list[str]:
    return [answer] if isinstance(answer, str) else [str(address) for address in answer[2]]


def _guarded_resolver(resolve: _Function, addresses: Callable[[Any], list[str]]) -> _Function:
    @functools.wraps(resolve)
    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = _host_text(host)
        if name is None:
            return resolve(host, *args, **kwargs)
        _resolve_attempt(name)
        answer = resolve(host, *args, **kwargs)
        replay = current_replay()
        if replay is not None:
            for addresses_in_use in (replay.allowed, replay.models):
                addresses_in_use.resolved(name, addresses(answer))
        return answer

    return guarded_resolve


def _host_text(host: Any) -> str | None:
    """A name that must be resolved by a server, or None."""
    if isinstance(host, (bytes, bytearray)):
        host = host.decode("ascii", "replace")
    return None if not isinstance(host, str) or is_local_name(host) else host


def _resolve_attempt(name: str, port: int | None = None) -> None:
    try:
        _attempt(name, port)
    except ConnectionRefusedError as error:
        raise socket.gaierror(socket.EAI_FAIL, str(error.args[1])) from None


def _patch_loop(patches: Patches, owner: Any, names: tuple[str, ...]) -> None:
    """Guard the methods of an event loop that connect or resolve."""
    for name in names:
        patches.set(owner, name, _guarded_loop_method(name, getattr(owner, name)))


def _guarded_loop_method(name: str, method: _Function) -> _Function:
    @functools.wraps(method)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        host, port = _loop_target(name, args, kwargs)
        if name == "getaddrinfo":
            if (unknown := _host_text(host)) is not None:
                _resolve_attempt(unknown)
        elif host is not None:
            _attempt(str(host), int(port or 0))
        return await method(self, *args, **kwargs)

    return guarded


def _loop_target(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The host and port of a call of an event loop's method."""
    if name == "getaddrinfo":
        return (args[0] if args else kwargs.get("host")), None
    if name == "create_connection":
        host = args[1] if len(args) > 1 else kwargs.get("host")
        return host, args[2] if len(args) > 2 else kwargs.get("port")
    address = args[1] if name == "sock_connect" and len(args) > 1 else kwargs.get("address")
    if name == "create_datagram_endpoint":
        address = args[2] if len(args) > 2 else kwargs.get("remote_addr")
    return (address[0], address[1]) if isinstance(address, tuple) else (None, None)


def _patch_uvloop(patches: Patches, module: Any) -> None:
    names = ("create_connection", "create_datagram_endpoint", "getaddrinfo", "sock_connect")
    _patch_loop(patches, module.Loop, names)
    guard_uvloop_processes(patches, module.Loop)


def _patch_curl(patches: Patches, module: Any) -> None:
    perform = module.Curl.perform

    @functools.wraps(perform)
    def guarded_perform(self: Any, *args: Any, **kwargs: Any) -> Any:
        _attempt("an address", None, "curl_cffi")
        return perform(self, *args, **kwargs)

    patches.set(module.Curl, "perform", guarded_perform)


def _patch_grpc(patches: Patches, module: Any) -> None:
    """Guard gRPC's channels, and the calls on channels that were opened before."""
    for owner in vars(module).copy().values():
        is_call = isinstance(owner, type) and owner.__name__.endswith("MultiCallable")
        if not is_call or owner.__module__ != module.__name__:
            continue
        for name in ("__call__", "with_call", "future"):
            if name in vars(owner):
                patches.set(owner, name, _guarded_call(vars(owner)[name], "_target"))
    created = module.Channel.__init__

    @functools.wraps(created)
    def guarded_create(self: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        _grpc_attempt(target)
        created(self, target, *args, **kwargs)

    patches.set(module.Channel, "__init__", guarded_create)


def _guarded_call(call: _Function, target: str) -> _Function:
    @functools.wraps(call)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        _grpc_attempt(getattr(self, target, "a channel that was opened before"))
        return call(self, *args, **kwargs)

    return guarded


def _grpc_attempt(target: Any) -> None:
    import grpc

    text = target.decode() if isinstance(target, bytes) else str(target)
    if text.startswith(("unix:", "unix-abstract:")):
        return
    host, _, port = text.rpartition("/")[2].rpartition(":")
    try:
        _attempt(host or text, int(port) if port.isdigit() else None, "grpc")
    except ConnectionRefusedError as error:
        raise _refused(grpc, str(error)) from None


def _refused(grpc: Any, text: str) -> Exception:
    """The error of a refused call; gRPC's clients do not retry after it."""

    class Refused(grpc.RpcError):  # type: ignore[misc]
        def code(self) -> Any:
            return grpc.StatusCode.PERMISSION_DENIED

        def details(self) -> str:
            return text

        def trailing_metadata(self) -> tuple[()]:
            return ()

    return Refused(text)


_NATIVE_CLIENTS: dict[str, Callable[[Patches, Any], None]] = {
    "grpc._channel": _patch_grpc,
    "grpc.aio._channel": _patch_grpc,
    "uvloop": _patch_uvloop,
    "curl_cffi.curl": _patch_curl,
}
"""Modules of clients that do not use Python's sockets."""

_PATCHED_MODULES = {**_NATIVE_CLIENTS, **CHILD_MODULES}

_GUARD = _Guard()
