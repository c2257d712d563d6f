"""The recorded HTTP exchanges besides model calls, such as the requests of tools.

A request is answered by the first unused exchange with the same method, URL, headers and body. Some
headers may differ, see `wire.request_headers`, and so may a port of this machine that the system
chose. The order of query parameters and of keys in JSON is irrelevant, and so is the random text
that divides the parts of a body. Secrets of a request are replaced before it is compared, as they
were when the exchange was recorded. Recorded text that was redacted equals any text: the agent's
process knew further secrets, for example from other requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ..base.jsontext import canonical, loads
from ..base.patterns import Pattern
from ..base.redaction.secrets import SecretRedactor, request_secrets
from ..base.text import shown_url
from ..model import Exchange
from .divergence import Divergence
from .http_answers import READING_METHODS, HttpRequest
from .text_comparison import is_same_text, without_variable_parts
from .wire_requests import header_differences, plain_address

__all__ = ["RecordedExchanges"]

_BOUNDARY = re.compile(r"^multipart/.*;\s*boundary=\"?([^\";]+)", re.IGNORECASE)
_SERVED = (
    "only requests to /chat/completions, /responses, /v1/messages, :generateContent and "
    "/converse are answered without a recorded HTTP exchange"
)


@dataclass(eq=False)
class _ExchangeEntry:
    exchange: Exchange
    target: tuple[str, str]
    body: str
    wire: HttpRequest
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
            _ExchangeEntry(
                exchange,
                self._target(exchange.method, exchange.url),
                self._recorded_body(exchange),
                HttpRequest.of_exchange(exchange),
            )
            for exchange in exchanges
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
        """Whether there is an exchange with the request's method and URL."""
        target, _ = self._key(request)
        return any(entry.target == target for entry in self._entries)

    def take(self, request: HttpRequest) -> Exchange | None:
        """Use up the exchange that answers a request; None if there is none."""
        return self._use(
            entry
            for entry in self._with_target_and_body(request)
            if self._header_difference(entry.wire, request) is None
        )

    def peek(self, request: HttpRequest) -> Exchange | None:
        """The exchange of an equal request; it is not used up."""
        return next((entry.exchange for entry in self._with_target_and_body(request)), None)

    def intended(self, request: HttpRequest) -> Exchange | None:
        """Use up the exchange with the same method and URL.

        If there are several, an exchange with the same body is preferred.
        """
        target, _ = self._key(request)
        same_target = (entry for entry in self._entries if entry.target == target)
        return self._use(chain(self._with_target_and_body(request), same_target))

    def _with_target_and_body(self, request: HttpRequest) -> Iterator[_ExchangeEntry]:
        target, body = self._key(request)
        for entry in self._entries:
            if entry.target == target and is_same_text(entry.body, body):
                yield entry

    def _use(self, entries: Iterable[_ExchangeEntry]) -> Exchange | None:
        entry = next((entry for entry in entries if not entry.is_used), None)
        if entry is None:
            return None
        entry.is_used = True
        return entry.exchange

    def _header_difference(self, recorded: HttpRequest, request: HttpRequest) -> Divergence | None:
        return next(header_differences(recorded, request, self._normalize), None)

    def divergence(self, recorded: Exchange | None, request: HttpRequest) -> Divergence:
        """Describe how a request differs from the recording.

        Args:
            recorded: The exchange that corresponds to the request, or None.
            request: The request.
        """
        request_line = f"{request.method} {shown_url(request.url)}"
        if recorded is not None and is_same_text(
            self._recorded_body(recorded), self._key(request)[1]
        ):
            header = self._header_difference(HttpRequest.of_exchange(recorded), request)
            if header is not None:
                return replace(header, summary=f"{request_line}: {header.summary}")
        if recorded is not None:
            return Divergence(
                "extra_call",
                f"the body of {request_line} differs",
                recorded=recorded.request_body.decode(errors="replace"),
                actual=request.body.decode(errors="replace"),
                suggestion="if it varies in every run: --normalize PATTERN",
            )
        how = " more often than recorded" if self.has(request) else ", which is not recorded"
        return Divergence(
            "extra_call",
            f"the agent sent {request_line}{how}",
            suggestion=self._suggestion(request) if self._can_pass else _SERVED,
        )

    def _suggestion(self, request: HttpRequest) -> str:
        """The remedy for a request; a request that may act is never let through."""
        if request.method.upper() in READING_METHODS:
            return "to let it through: allow HOST:PORT"
        return "if the agent is meant to send it: record the session again"

    def _recorded_body(self, exchange: Exchange) -> str:
        """The body of a recorded request, without secrets that its recorder did not know."""
        if self._redactor is None:
            return ""
        kind = exchange.request_headers.get("content-type", "")
        return self._body(self._redactor.body(exchange.request_body, kind), kind)

    def _key(self, request: HttpRequest) -> tuple[tuple[str, str], str]:
        """The target and the body of a request, without secrets."""
        if self._redactor is None:
            return ("", ""), ""
        redactor = self._redactor.with_secrets(
            request_secrets(request.headers.items(), request.url)
        )
        kind = request.headers.get("content-type", "")
        body = self._body(redactor.body(request.body, kind), kind)
        return self._target(request.method, redactor.url(request.url)), body

    def _target(self, method: str, url: str) -> tuple[str, str]:
        url = plain_address(url)
        try:
            parts = urlsplit(url)
        except ValueError:  # such as a user that was replaced by text in brackets
            return method.upper(), self._normalized(url)
        query = urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)))
        bare = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
        return method.upper(), self._normalized(bare)

    def _body(self, body: bytes, content_type: str) -> str:
        try:
            text = canonical(loads(body))
        except ValueError:
            text = body.decode("latin-1")
        if (boundary := _BOUNDARY.search(content_type)) is not None:
            text = text.replace(boundary[1], "boundary")
        return self._normalized(text)

    def _normalized(self, text: str) -> str:
        return without_variable_parts(text, self._normalize)
