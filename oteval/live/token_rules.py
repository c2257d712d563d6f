"""The tokens in force: those of the file that ``--tokens`` names, read again when it changes.

A file that cannot be read changes nothing: the tokens in force stay so, and the state says why. A
revoked token would otherwise be let in, or everybody shut out, by a typing mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import load_tokens
from ..errors import ConfigError
from ..files import file_stamp
from ..ingest.receiver.auth import Access, Token

__all__ = ["TokenRules"]

_log = logging.getLogger(__name__)


class TokenRules:
    """Keeps an `Access` at the tokens of a file.

    Attributes:
        error: Why the file could not be read when that was last tried, or "".
    """

    def __init__(self, path: str, access: Access) -> None:
        """Read the file.

        Args:
            path: The file; "" for none.
            access: Decides by the tokens; those that it has stay in force beside the file's.

        Raises:
            ConfigError: The file cannot be read.
        """
        self._path, self._access = path, access
        self._always = access.tokens
        self._stamp = file_stamp(Path(self._path))
        self._count = 0
        self.error = ""
        if path:
            self._take()

    def check(self) -> None:
        """Read the file again if it has changed."""
        stamp = file_stamp(Path(self._path))
        if self._path and stamp != self._stamp:
            self._stamp = stamp
            self.reload()

    def reload(self) -> None:
        """Read the file again, and log its errors."""
        if not self._path:
            return
        try:
            self._take()
        except ConfigError as error:
            self.error = str(error)
            _log.error("the tokens in force stay so: %s", error)
        else:
            _log.info("%d tokens of %s are in force", self._count, self._path)

    def state(self) -> dict[str, Any]:
        """Return how the tokens stand, for /readyz; it names none."""
        return {"tokens": self._count, "error": self.error}

    def _take(self) -> None:
        found = [
            Token(
                entry.name,
                entry.digest,
                entry.may,
                dict(entry.attributes),
                entry.requests_per_second,
            )
            for entry in load_tokens(self._path)
        ]
        self._refuse_open(found)
        self._access.replace([*self._always, *found])
        self._count = len(found)
        self.error = ""

    def _refuse_open(self, found: Sequence[Token]) -> None:
        """Refuse tokens after which everybody may do something that needed a token before.

        Raises:
            ConfigError: They are such.
        """
        permitted = {token.may for token in (*self._always, *found)}
        for permission in ("ingest", "read"):
            if self._access.needs(permission) and permission not in permitted:
                raise ConfigError(
                    f"{self._path}: without a token that may {permission}, everybody could; add "
                    "one, or start the server again"
                )
