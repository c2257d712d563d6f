"""From a body to the spool: what HTTP and gRPC have in common."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from ..spool import Encoding, Kind, Record, Spool, SpoolFull
from .answers import Refused, too_busy
from .checking import Checked, check, parsed
from .parts import MOST_ITEMS, check_parts, too_many
from .redaction import Redactor, json_bytes
from .resource import set_attributes

__all__ = ["Intake", "Observer", "Taken"]

_NOTHING: Mapping[str, str] = {}
_log = logging.getLogger(__name__)

Observer = Callable[[str, str, int, int, float], None]
"""Told of each request: what it holds, its outcome, good and rejected parts, seconds it took."""


class Taken(NamedTuple):
    """A request on its way to disk.

    Attributes:
        checked: What it holds.
        durable: Done when it is durable.
    """

    checked: Checked
    durable: Future[None]


class Intake:
    """Takes requests.

    Attributes:
        redactor: What is taken out of them; may be replaced while it works.
    """

    def __init__(self, spool: Spool, redactor: Redactor, observe: Observer) -> None:
        self.redactor = redactor
        self.observe = observe
        self._spool = spool

    def refuse_when_full(self, size: int) -> None:
        """Refuse before the body is read, where it could not be taken anyway.

        Raises:
            Refused: The spool has no room.
        """
        if reason := self._spool.full(size):
            raise too_busy(reason)

    def take(
        self,
        kind: Kind,
        encoding: Encoding,
        body: bytes,
        attributes: Mapping[str, str] = _NOTHING,
    ) -> Taken:
        """Check and redact a request, and hand it to the spool.

        Args:
            kind: What it holds.
            encoding: How.
            body: The request, decompressed.
            attributes: Resource attributes to set on all of it.

        Raises:
            Refused: It is not taken.
        """
        check_parts(kind, encoding, body)
        request = parsed(kind, encoding, body)
        checked = check(kind, encoding, request)
        if checked.good + checked.rejected > MOST_ITEMS:
            raise too_many("spans" if kind == "traces" else "log records", MOST_ITEMS)
        if attributes:
            set_attributes(encoding, request, attributes)
        if redactor := self.redactor:
            body = _redacted(redactor, encoding, request)
        elif attributes:
            body = _body(encoding, request)
        if not checked.good:
            done: Future[None] = Future()
            done.set_result(None)
            return Taken(checked, done)
        try:
            durable = self._spool.append(Record(kind, encoding, time.time_ns(), body))
        except SpoolFull as error:
            raise too_busy(str(error)) from None
        return Taken(checked, durable)


def _redacted(redactor: Redactor, encoding: Encoding, request: Any) -> bytes:
    """Return a parsed request redacted, as a body.

    Raises:
        Refused: It cannot be redacted; nothing is stored unredacted.
    """
    try:
        if encoding == "json":
            request = redactor.json(request)
        else:
            redactor.message(request)
        return _body(encoding, request)
    except Exception:
        _log.exception("a request that could not be redacted was refused")
        raise Refused(400, "redaction", "the request cannot be redacted") from None


def _body(encoding: Encoding, request: Any) -> bytes:
    """Return a parsed request as a body. What is deep in JSON cannot be read or changed after."""
    return json_bytes(request) if encoding == "json" else bytes(request.SerializeToString())
