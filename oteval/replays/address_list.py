"""The network addresses that an agent may reach during a replay."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from ..base.errors import ConfigError

__all__ = ["DEFAULT_PORTS", "AddressList", "is_local_name", "shown_address"]

DEFAULT_PORTS = {"http": 80, "https": 443}

_LOOPBACK = frozenset(
    {"127.0.0.1", "::1", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"}
)


class AddressList:
    """Addresses as ``host:port`` or ``host``, which means every port.

    Args:
        entries: The addresses.

    Raises:
        ConfigError: An entry is not an address.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        texts = [entries] if isinstance(entries, str) else entries
        self._entries = {_parsed(entry) for entry in texts}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def allows(self, host: str, port: int | None) -> bool:
        """Whether the agent may reach a host.

        Args:
            host: Its name or IP address.
            port: The port; None to resolve its name only.
        """
        if not self._entries:
            return False
        name = _plain(host)
        return any(
            entry_name == name and (port is None or entry_port in (None, port))
            for entry_name, entry_port in self._entries
        )

    def allows_url(self, url: str) -> bool:
        """Whether the agent may reach the address of a URL."""
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        except ValueError:
            return False
        return self.allows(parts.hostname or "", port)

    def add(self, host: str, port: int) -> None:
        """Allow another address."""
        with self._lock:
            self._entries = self._entries | {(_plain(host), port)}

    def resolved(self, host: str, addresses: Iterable[str]) -> None:
        """Allow the IP addresses of an allowed name, for the same ports."""
        name = _plain(host)
        with self._lock:
            ports = [port for entry_name, port in self._entries if entry_name == name]
            resolved_entries = {(_plain(address), port) for address in addresses for port in ports}
            self._entries = self._entries | resolved_entries


def _parsed(entry: str) -> tuple[str, int | None]:
    host, separator, port = entry.strip().rpartition(":")
    if not separator or (":" in host and not host.endswith("]")):
        host, port = entry.strip(), ""
    if port in ("", "*") and host:
        return _plain(host), None
    if host and port.isdigit() and int(port) < 65536:
        return _plain(host), int(port)
    raise ConfigError(f"allow: {entry!r} is not an address; write for instance 127.0.0.1:5432")


def _plain(host: str) -> str:
    """Normalize a host; the names and addresses of this machine become one host."""
    name = host.strip("[]").partition("%")[0].rstrip(".").lower()
    return "localhost" if name in _LOOPBACK else name


def is_local_name(host: str) -> bool:
    """Whether resolving a host sends nothing: an IP address, or this machine's name."""
    name = _plain(host)
    if name in ("", "localhost", _plain(socket.gethostname())):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def shown_address(host: str, port: int | None) -> str:
    """The address for people: ``host:port``, with brackets around an IPv6 address."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"
