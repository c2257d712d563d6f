"""Who may read pages and act on runs: tokens, the cookie of a session, and the token of forms.

Whoever logs in with a token gets a cookie that is signed with a key of this process. The cookie
ends with the process, after a week, or when the token is revoked. A form carries a second token,
made from the cookie, and its ``Origin`` must be the page's own, so that no other page can send the
form. Ports do not separate cookies, so the cookie's name contains the port.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ...ingest import Access, Token, digest_of

__all__ = ["NOBODY", "VISITOR", "PageAccess", "Visitor", "cookie_name"]

_LIFETIME = 7 * 24 * 3600  # seconds
_LONGEST_COOKIE = 200


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who requests a page.

    Attributes:
        name: The name of the visitor's token, or "".
        may_read: Whether the visitor may read pages.
        may_act: Whether the visitor may label runs and the like.
        form_token: The value that forms of the visitor carry.
        can_log_in: Whether there is a token that the visitor could log in with.
    """

    name: str = ""
    may_read: bool = True
    may_act: bool = False
    form_token: str = ""
    can_log_in: bool = False


NOBODY = Visitor()
"""The visitor of pages that everybody may read, and nobody may act on."""
VISITOR: ContextVar[Visitor] = ContextVar("visitor", default=NOBODY)
"""The visitor of the current request."""


class PageAccess:
    """Decides by tokens who may read pages, and who may act."""

    def __init__(
        self,
        access: Access,
        *,
        accepts_links: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the decisions.

        Args:
            access: The tokens. Everybody may read if none of the tokens permits reading.
            accepts_links: Whether a link with a code by `link_code` logs in, instead of a form.
            clock: Returns the time (s since the epoch).
        """
        self.accepts_links = accepts_links
        self._access, self._clock = access, clock
        self._codes: dict[str, Callable[[], None]] = {}
        self._key = secrets.token_bytes(32)

    @property
    def has_tokens(self) -> bool:
        """Whether there is a token to log in with."""
        return bool(self._access.tokens)

    @classmethod
    def for_one_user(cls, name: str, *, may_act: bool = True) -> PageAccess:
        """The access of one person, who logs in by a link with a code.

        Args:
            name: The person's name, for labels and the audit log.
            may_act: Whether the person may label runs and the like.
        """
        digest = digest_of(secrets.token_urlsafe(24))
        tokens = Access([Token(name, digest, "write" if may_act else "read")])
        return cls(tokens, accepts_links=True)

    def link_code(self, on_used: Callable[[], None] = lambda: None) -> str:
        """A new code for a link, which logs in once.

        Other users of the machine can read the arguments of commands, including a link that a
        browser is started with. A browser also keeps links in its history.

        Args:
            on_used: Called when somebody has logged in with the code.
        """
        code = secrets.token_urlsafe(24)
        self._codes[digest_of(code)] = on_used
        return code

    def redeem(self, code: str, peer: str = "") -> str:
        """The cookie of a new session for a code, or "" if it is unknown or was used.

        Args:
            code: The code.
            peer: The address of the visitor, for the log.
        """
        on_used = self._codes.pop(digest_of(code), None)
        if on_used is None:
            self._access.note_refusal(peer, "code unknown on the login page")
            return ""
        on_used()
        return self._cookie_of(self._access.tokens[0].digest)

    def log_in(self, token: str, peer: str = "") -> str:
        """The cookie of a new session, or "" if a token is unknown or not for reading.

        Args:
            token: The token.
            peer: The address of the visitor, for the log.
        """
        token_of_access = self._access.find(token)
        if token_of_access is None or not token_of_access.permits("read"):
            self._access.note_refusal(peer, "token unknown on the login page")
            return ""
        return self._cookie_of(token_of_access.digest)

    def visitor(self, cookie: str) -> Visitor:
        """The visitor with a cookie; the cookie is "" if there is none."""
        someone = Visitor(
            may_read=not self._access.needs("read"),
            can_log_in=not self.accepts_links and self._access.needs("read"),
        )
        content, _, signature = cookie.rpartition(".")
        until = content.partition(".")[0]
        if len(cookie) > _LONGEST_COOKIE or not (until.isascii() and until.isdecimal()):
            return someone
        if int(until) < self._clock():
            return someone
        for token in self._access.tokens:
            expected = self._signed(f"{token.digest} {content}")
            if hmac.compare_digest(expected.encode(), signature.encode()):
                return replace(
                    someone,
                    name=token.name,
                    may_read=token.permits("read"),
                    may_act=token.permits("write"),
                    form_token=self._signed(f"form {cookie}"),
                )
        return someone

    def _cookie_of(self, digest: str) -> str:
        content = f"{int(self._clock()) + _LIFETIME}.{secrets.token_hex(16)}"
        return f"{content}.{self._signed(f'{digest} {content}')}"

    def _signed(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def cookie_name(host: str) -> str:
    """The name of the cookie for a ``Host`` header."""
    port = host.rpartition(":")[2]
    return f"oteval_{port}" if port.isascii() and port.isdecimal() else "oteval"
