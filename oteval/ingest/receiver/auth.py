"""Bearer tokens: who may send and who may read, with what each sender is bound to.

Tokens are compared by their SHA-256 in constant time, all of them at each request, so that the
time of an answer says nothing about them.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .responses import RequestRefused

__all__ = ["Access", "Permission", "RefusalLog", "Token", "digest_of"]

_log = logging.getLogger(__name__)
# A peer whose requests are refused is named this often (s) in the log, and so many peers at most.
_LOG_EVERY = 60.0
_MOST_PEERS = 1000

Permission = Literal["ingest", "read"]
_VARIABLES = {"ingest": "OTEVAL_INGEST_TOKEN", "read": "OTEVAL_READ_TOKEN"}


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class Token:
    """A token that a request may carry.

    Attributes:
        name: Whose it is, for the log.
        digest: Its SHA-256 in hex.
        may: Whether it lets send or read.
        attributes: Resource attributes that are set on everything sent with it.
        requests_per_second: How many requests are taken in the long run; None for any number.
    """

    name: str
    digest: str
    may: Permission = "ingest"
    attributes: Mapping[str, str] = field(default_factory=dict)
    requests_per_second: float | None = None


ANYBODY = Token("anybody", "")


class Access:
    """Decides who may send and read. Without tokens for it, everybody may."""

    def __init__(
        self, tokens: Iterable[Token] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._refusals = RefusalLog(clock)
        self._limits: dict[str, _RateLimiter] = {}
        self._tokens: tuple[Token, ...] = tuple(tokens)

    @classmethod
    def of(cls, *, ingest: str = "", read: str = "") -> Access:
        """Return the access that one token for senders and one for readers give; "" is none."""
        given: tuple[tuple[Permission, str], ...] = (("ingest", ingest), ("read", read))
        return cls(Token(_VARIABLES[may], digest_of(text), may) for may, text in given if text)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens in force."""
        return self._tokens

    def replace(self, tokens: Iterable[Token]) -> None:
        """Put other tokens in force; the rates of those that stay go on."""
        with self._lock:
            self._tokens = tuple(tokens)
            known = {token.digest for token in self._tokens}
            self._limits = {digest: one for digest, one in self._limits.items() if digest in known}

    def needs(self, permission: Permission) -> bool:
        """Return whether a token is needed to send or to read."""
        return any(token.may == permission for token in self._tokens)

    def admit_sender(self, authorization: str | None, peer: str = "") -> Token:
        """Return the token of a sender.

        Args:
            authorization: The request's authorization header.
            peer: The sender's address, for the log.

        Raises:
            RequestRefused: The token is missing, unknown or over its rate.
        """
        token = self._admit("ingest", authorization, peer)
        if token.requests_per_second is not None:
            self._limit(token, peer)
        return token

    def admit_reader(self, authorization: str | None, peer: str = "") -> Token:
        """Return the token of a reader.

        Raises:
            RequestRefused: The token is missing or unknown.
        """
        return self._admit("read", authorization, peer)

    def _admit(self, permission: Permission, authorization: str | None, peer: str) -> Token:
        if not self.needs(permission):
            return ANYBODY
        scheme, _, given = (authorization or "").partition(" ")
        digest = digest_of(given.strip())
        found: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest) and token.may == permission:
                found = token
        if found is not None and scheme.lower() == "bearer":
            return found
        self._refusals.note(peer, "token missing" if not given else "token unknown")
        name = _VARIABLES[permission]
        raise RequestRefused(401, "token", f"send 'authorization: Bearer TOKEN' with the {name}")

    def _limit(self, token: Token, peer: str) -> None:
        assert token.requests_per_second is not None
        with self._lock:
            limiter = self._limits.get(token.digest)
            if limiter is None or limiter.rate != token.requests_per_second:
                limiter = _RateLimiter(token.requests_per_second, self._clock())
                self._limits[token.digest] = limiter
            wait = limiter.take(self._clock())
        if wait > 0:
            self._refusals.note(peer, f"token {token.name!r} is over its rate")
            reason = f"more than {token.requests_per_second:g} requests a second"
            raise RequestRefused(429, "rate", reason, retry_after=max(1, round(wait)))


class _RateLimiter:
    """A token bucket: a rate in the long run, and a burst of two seconds' worth."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._most = max(1.0, 2 * rate)
        self._level, self._time = self._most, now

    def take(self, now: float) -> float:
        """Take one; return 0, or the seconds until one is there."""
        self._level = min(self._most, self._level + max(0.0, now - self._time) * self.rate)
        self._time = now
        if self._level >= 1:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self.rate


class RefusalLog:
    """Warns about refused requests, each peer and reason at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def note(self, peer: str, reason: str) -> None:
        """Note a refused request."""
        now = self._clock()
        with self._lock:
            last, count = self._seen.get((peer, reason), (-_LOG_EVERY, 0))
            if now - last < _LOG_EVERY:
                self._seen[peer, reason] = last, count + 1
                return
            if len(self._seen) >= _MOST_PEERS:
                self._seen = {
                    key: one for key, one in self._seen.items() if now - one[0] < _LOG_EVERY
                }
            if len(self._seen) >= _MOST_PEERS:
                return
            self._seen[peer, reason] = now, 0
        more = f" ({count} more since)" if count else ""
        _log.warning("refused a request of %s: %s%s", peer or "an unknown peer", reason, more)
