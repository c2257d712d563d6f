"""The tokens in force: the tokens of the file of ``--tokens``, reloaded when it changes.

A file that cannot be read changes nothing: the tokens in force stay, and /readyz has the reason.
After a typing error, a revoked token must not work again, and every valid token must still work.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError
from ..base.files import file_stamp
from ..ingest import Access, Permission, Token
from ..scoring import load_tokens

__all__ = ["TokenRules"]

_log = logging.getLogger(__name__)


class TokenRules:
    """Keeps an `Access` up to date with the tokens of a file.

    Attributes:
        error: The error of the last attempt to read the file; "" when it succeeded.
    """

    def __init__(self, path: str, access: Access) -> None:
        """Read the file.

        Args:
            path: The file; "" for none.
            access: Decides by the tokens. Tokens that it has now stay, in addition to the file's.

        Raises:
            ConfigError: The file cannot be read, or is invalid.
        """
        self._path, self._access = path, access
        self._permanent = access.tokens
        self._stamp = file_stamp(Path(self._path))
        self._count = 0
        self.error = ""
        if path:
            self._apply()

    def check(self) -> None:
        """Reload the file if it has changed."""
        stamp = file_stamp(Path(self._path))
        if self._path and stamp != self._stamp:
            self._stamp = stamp
            self.reload()

    def reload(self) -> None:
        """Reload the file, and log its errors."""
        if not self._path:
            return
        try:
            self._apply()
        except ConfigError as error:
            self.error = str(error)
            _log.error("the old tokens stay in force: %s", error)
        else:
            _log.info("%d tokens of %s are in force", self._count, self._path)

    def state(self) -> dict[str, Any]:
        """The state for /readyz, without any token."""
        return {"tokens": self._count, "error": self.error}

    def _apply(self) -> None:
        tokens = [
            Token(
                entry.name,
                entry.digest,
                entry.may,
                dict(entry.attributes),
                entry.requests_per_second,
            )
            for entry in load_tokens(self._path)
        ]
        self._check_permissions(tokens)
        self._access.replace([*self._permanent, *tokens])
        self._count = len(tokens)
        self.error = ""

    def _check_permissions(self, granted: Sequence[Token]) -> None:
        """If a permission needs a token now, check that it still needs one.

        Raises:
            ConfigError: The file has no token for it, so that everybody would have it.
        """
        tokens = (*self._permanent, *granted)
        permissions: tuple[Permission, ...] = ("ingest", "read")
        for permission in permissions:
            if self._access.needs(permission) and not any(t.permits(permission) for t in tokens):
                raise ConfigError(
                    f"{self._path}: without a token that may {permission}, everybody could; add "
                    "one, or start the server again"
                )
