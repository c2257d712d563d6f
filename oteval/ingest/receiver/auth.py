"""Tokens for senders, readers and people who act on runs.

A sender's token also has attributes for its traces, and a rate of requests.

Each request is compared with the SHA-256 of every token in constant time, so that the response time
reveals nothing about the tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .responses import RequestRefused

__all__ = ["Access", "Permission", "RefusalLog", "Token", "digest_of"]

_log = logging.getLogger(__name__)
# Seconds between two log entries about the same refused peer.
_LOG_INTERVAL = 60.0
_MAX_PEERS = 1000

Permission = Literal["ingest", "read", "write"]
_VARIABLES: Mapping[Permission, str] = {
    "ingest": "OTEVAL_INGEST_TOKEN",
    "read": "OTEVAL_READ_TOKEN",
    "write": "OTEVAL_WRITE_TOKEN",
}


def digest_of(token: str) -> str:
    """The SHA-256 of a token in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class Token:
    """A bearer token.

    Attributes:
        name: The name of its owner, for the log.
        digest: Its SHA-256 in hex.
        may: Whether it permits sending, reading, or acting on runs; acting includes reading.
        attributes: Resource attributes that are set on everything sent with it.
        requests_per_second: The average rate that it permits; None for no limit.
    """

    name: str
    digest: str
    may: Permission = "ingest"
    attributes: Mapping[str, str] = field(default_factory=dict)
    requests_per_second: float | None = None

    def permits(self, permission: Permission) -> bool:
        """Whether the token grants a permission."""
        return self.may == permission or (self.may == "write" and permission == "read")


ANYBODY = Token("anybody", "")


class Access:
    """Decides who may send and read.

    Without any token for sending or for reading, this action is open to everybody.
    """

    def __init__(
        self, tokens: Iterable[Token] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._refusals = RefusalLog(clock)
        self._limits: dict[str, _TokenBucket] = {}
        self._tokens: tuple[Token, ...] = tuple(tokens)
        self._local: Token | None = None

    @classmethod
    def of(cls, *, ingest: str = "", read: str = "", write: str = "") -> Access:
        """The access by one token for each permission; "" for no token."""
        token_texts: tuple[tuple[Permission, str], ...] = (
            ("ingest", ingest),
            ("read", read),
            ("write", write),
        )
        return cls(
            Token(_VARIABLES[may], digest_of(text), may) for may, text in token_texts if text
        )

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The current tokens."""
        return self._tokens

    def replace(self, tokens: Iterable[Token]) -> None:
        """Replace the tokens; tokens that remain keep the state of their rate."""
        with self._lock:
            self._tokens = tuple(tokens)
            digests = {token.digest for token in self._tokens}
            self._limits = {
                digest: limit for digest, limit in self._limits.items() if digest in digests
            }

    def admit_local(self) -> str:
        """A new token with which processes of this user may send traces.

        It is separate from the other tokens, and stays when they are replaced.
        """
        text = secrets.token_urlsafe(24)
        self._local = Token("local", digest_of(text))
        return text

    def needs(self, permission: Permission) -> bool:
        """Whether a permission requires a token. Acting on runs always does."""
        return permission == "write" or any(token.permits(permission) for token in self._tokens)

    def find(self, token: str) -> Token | None:
        """The token with this text, or None. All tokens are compared, in constant time."""
        digest, match = digest_of(token), None
        for token_of_access in (*self._tokens, *filter(None, [self._local])):
            if hmac.compare_digest(token_of_access.digest, digest):
                match = token_of_access
        return match

    def note_refusal(self, peer: str, reason: str) -> None:
        """Log that a request of a peer was refused, at most once a minute."""
        self._refusals.note(peer, reason)

    def admit_sender(self, authorization: str | None, peer: str = "") -> Token:
        """Admit a sender, and return its token.

        Args:
            authorization: The authorization header of the request.
            peer: The address of the sender, for the log.

        Raises:
            RequestRefused: The token is missing, unknown or over its rate.
        """
        token = self._admit("ingest", authorization, peer)
        if token.requests_per_second is not None:
            self._limit(token, peer)
        return token

    def admit_reader(self, authorization: str | None, peer: str = "") -> Token:
        """Admit a reader, and return its token.

        Raises:
            RequestRefused: The token is missing or unknown.
        """
        return self._admit("read", authorization, peer)

    def _admit(self, permission: Permission, authorization: str | None, peer: str) -> Token:
        if not self.needs(permission):
            return ANYBODY
        scheme, _, credentials = (authorization or "").partition(" ")
        token = self.find(credentials.strip())
        if token is not None and token.permits(permission) and scheme.lower() == "bearer":
            return token
        self._refusals.note(peer, "token missing" if not credentials else "token unknown")
        name = _VARIABLES[permission]
        raise RequestRefused(401, "token", f"send 'authorization: Bearer TOKEN' with the {name}")

    def _limit(self, token: Token, peer: str) -> None:
        assert token.requests_per_second is not None
        with self._lock:
            limiter = self._limits.get(token.digest)
            if limiter is None or limiter.rate != token.requests_per_second:
                limiter = _TokenBucket(token.requests_per_second, self._clock())
                self._limits[token.digest] = limiter
            wait = limiter.take(self._clock())
        if wait > 0:
            self._refusals.note(peer, f"token {token.name!r} is over its rate")
            reason = f"more than {token.requests_per_second:g} requests a second"
            raise RequestRefused(429, "rate", reason, retry_after=max(1, round(wait)))


class _TokenBucket:
    """An average rate of requests, with bursts of up to two seconds of it."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._most = max(1.0, 2 * rate)
        self._level, self._time = self._most, now

    def take(self, now: float) -> float:
        """Take one request; return 0 if it is permitted, else the seconds until it would be."""
        self._level = min(self._most, self._level + max(0.0, now - self._time) * self.rate)
        self._time = now
        if self._level >= 1:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self.rate


class RefusalLog:
    """Logs refused requests, at most once a minute for each peer and reason."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def note(self, peer: str, reason: str) -> None:
        """Record a refused request."""
        now = self._clock()
        with self._lock:
            last, count = self._seen.get((peer, reason), (-_LOG_INTERVAL, 0))
            if now - last < _LOG_INTERVAL:
                self._seen[peer, reason] = last, count + 1
                return
            if len(self._seen) >= _MAX_PEERS:
                self._seen = {
                    key: noted
                    for key, noted in self._seen.items()
                    if now - noted[0] < _LOG_INTERVAL
                }
            if len(self._seen) >= _MAX_PEERS:
                return
            self._seen[peer, reason] = now, 0
        more = f" ({count} more since)" if count else ""
        _log.warning("refused a request from %s: %s%s", peer or "an unknown peer", reason, more)
