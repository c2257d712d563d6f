"""Tokens: who may send, and who may read. Compared in a time that tells nothing of them."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from .answers import Refused

__all__ = ["Tokens"]


@dataclass(frozen=True)
class Tokens:
    """The bearer tokens of a server; without one, everybody may.

    Attributes:
        ingest: Who has it may send.
        read: Who has it may read.
    """

    ingest: str = ""
    read: str = ""

    def check_ingest(self, authorization: str | None) -> None:
        """Let a sender pass.

        Args:
            authorization: The request's authorization header.

        Raises:
            Refused: It has not the token.
        """
        _check(self.ingest, authorization, "OTEVAL_INGEST_TOKEN")

    def check_read(self, authorization: str | None) -> None:
        """Let a reader pass.

        Raises:
            Refused: It has not the token.
        """
        _check(self.read, authorization, "OTEVAL_READ_TOKEN")


def _check(token: str, authorization: str | None, name: str) -> None:
    if not token:
        return
    scheme, _, given = (authorization or "").partition(" ")
    is_right = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        raise Refused(401, "token", f"send 'authorization: Bearer TOKEN' with the {name}")
