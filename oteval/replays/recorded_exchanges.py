"""The recorded HTTP exchanges besides model calls, such as those of tools.

A request is answered by the first exchange with the same method, URL and body that has not been
used. The order of query parameters and of keys in JSON is irrelevant. Secrets of a request are
replaced before it is compared, as they were when the exchange was recorded. Recorded text that was
redacted equals any text: the agent's process knew further secrets, such as those of other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ..jsontext import canonical, loads
from ..model import Exchange
from ..patterns import Pattern
from ..redaction.secrets import SecretRedactor, request_secrets
from ..text import shown_url
from .divergence import Divergence
from .http_answers import HttpRequest
from .redacted_text import is_same_text

__all__ = ["RecordedExchanges"]

_SERVED = (
    "only requests to /chat/completions, /responses, /v1/messages, :generateContent and "
    "/converse are answered without a recorded HTTP exchange"
)


@dataclass(eq=False)
class _ExchangeEntry:
    exchange: Exchange
    target: tuple[str, str]
    body: str
    is_used: bool = False


class RecordedExchanges:
    """The exchanges of a session.

    Args:
        exchanges: The exchanges.
        normalize: Patterns of parts that vary.
        can_pass: Whether the user can let requests through to the network.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        normalize: Sequence[Pattern] = (),
        *,
        can_pass: bool = True,
    ) -> None:
        self._normalize = normalize
        self._can_pass = can_pass
        self._redactor = SecretRedactor() if exchanges else None
        self._entries = [
            _ExchangeEntry(one, self._target(one.method, one.url), self._recorded_body(one))
            for one in exchanges
        ]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used(self) -> int:
        """The number of exchanges that have answered a request."""
        return sum(entry.is_used for entry in self._entries)

    @property
    def unused(self) -> list[tuple[int, Exchange]]:
        """The exchanges that have answered no request, with their numbers from 1."""
        entries = enumerate(self._entries, 1)
        return [(number, entry.exchange) for number, entry in entries if not entry.is_used]

    def has(self, request: HttpRequest) -> bool:
        """Return whether there is an exchange with the request's method and URL."""
        target, _ = self._key(request)
        return any(entry.target == target for entry in self._entries)

    def take(self, request: HttpRequest) -> Exchange | None:
        """Return the exchange that answers a request, and use it up; None if there is none."""
        target, body = self._key(request)
        for entry in self._entries:
            if not entry.is_used and entry.target == target and is_same_text(entry.body, body):
                entry.is_used = True
                return entry.exchange
        return None

    def intended(self, request: HttpRequest) -> Exchange | None:
        """Return the unused exchange with the same method and URL, and use it up."""
        target, _ = self._key(request)
        for entry in self._entries:
            if not entry.is_used and entry.target == target:
                entry.is_used = True
                return entry.exchange
        return None

    def divergence(self, recorded: Exchange | None, request: HttpRequest) -> Divergence:
        """Return the divergence of a request that is not recorded.

        Args:
            recorded: The exchange that the request stands for, or None.
            request: The request.
        """
        shown = f"{request.method} {shown_url(request.url)}"
        if recorded is not None:
            return Divergence(
                "extra_call",
                f"the body of {shown} differs",
                recorded=recorded.request_body.decode(errors="replace"),
                actual=request.body.decode(errors="replace"),
                suggestion="if it varies in every run: --normalize PATTERN",
            )
        how = " more often than recorded" if self.has(request) else ", which is not recorded"
        return Divergence(
            "extra_call",
            f"the agent sent {shown}{how}",
            suggestion="to let it through: allow HOST:PORT" if self._can_pass else _SERVED,
        )

    def _recorded_body(self, exchange: Exchange) -> str:
        """Return the body of a recorded request, without secrets that its recorder did not know."""
        if self._redactor is None:
            return ""
        kind = exchange.request_headers.get("content-type", "")
        return self._body(self._redactor.body(exchange.request_body, kind))

    def _key(self, request: HttpRequest) -> tuple[tuple[str, str], str]:
        """Return the target and the body of a request, without secrets."""
        if self._redactor is None:
            return ("", ""), ""
        redactor = self._redactor.with_secrets(
            request_secrets(request.headers.items(), request.url)
        )
        body = redactor.body(request.body, request.headers.get("content-type", ""))
        return self._target(request.method, redactor.url(request.url)), self._body(body)

    def _target(self, method: str, url: str) -> tuple[str, str]:
        try:
            parts = urlsplit(url)
        except ValueError:  # such as a user that was replaced by text in brackets
            return method.upper(), self._normalized(url)
        query = urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)))
        bare = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
        return method.upper(), self._normalized(bare)

    def _body(self, body: bytes) -> str:
        try:
            text = canonical(loads(body))
        except ValueError:
            text = body.decode("latin-1")
        return self._normalized(text)

    def _normalized(self, text: str) -> str:
        for pattern in self._normalize:
            text = pattern.replace(text, "*")
        return text
