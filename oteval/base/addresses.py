"""Addresses that servers listen on."""

from __future__ import annotations

import socket

from .errors import ConfigError

__all__ = ["listening_socket", "shown_host", "split_address"]


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
