"""The rules of the listening process: redaction and tokens, reloaded when their files change.

Stored data must never be less redacted than a valid configuration requires. So a file that cannot
be read changes nothing: the last valid rules stay in force. The file may contain new rules, so the
server is not ready meanwhile. A file counts as changed once two checks in a row find it the same:
a file that is still being written might lack some of its rules.

Nor does a file of tokens that cannot be read change anything: the tokens in force stay, and /readyz
has the reason. After a typing error, a revoked token must not work again, and every valid token
must still work.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, OtevalError
from ..base.files import file_stamp, write_private
from ..ingest import Access, Permission, Redactor, Token
from ..scoring import load_tokens, parse_config, read_config, read_yaml

__all__ = [
    "RedactionRules",
    "TokenRules",
]

_log = logging.getLogger(__name__)
_UNKNOWN = object()


class RedactionRules:
    """The redaction rules of a file.

    Attributes:
        redactor: Applies the rules in force.
        error: The error of the last attempt to read the file; "" when it succeeded.
    """

    def __init__(self, path: str, *, is_optional: bool = False) -> None:
        """Read the file.

        Args:
            path: The file; "" for no rules.
            is_optional: Whether the file may be missing; until it exists, nothing is redacted.

        Raises:
            ConfigError: The file cannot be read, or is invalid.
        """
        self._path = path
        self._lock = threading.Lock()
        self._copy: Path | None = None
        self._text = ""
        self._stamp = self._last_stamp = file_stamp(Path(self._path))
        self._section: Any = None
        self._count = self._loads = 0
        self.error = ""
        self._is_stale = False
        self.redactor = Redactor([])
        if path and not (is_optional and self._stamp is None):
            self._apply(read_config(path))

    def keep_copy(self, path: Path) -> None:
        """Keep a copy of the last valid file, for a storage process that is started again."""
        self._copy = path
        self._write_copy()

    def check(self) -> bool:
        """Reload the file if it has changed; return whether other rules are in force."""
        with self._lock:
            stamp = file_stamp(Path(self._path))
            is_stable, self._last_stamp = stamp == self._last_stamp, stamp
            return stamp != self._stamp and is_stable and self._reload()

    def reload(self) -> bool:
        """Reload the file; return whether other rules are in force."""
        with self._lock:
            return self._reload()

    def state(self) -> dict[str, Any]:
        """The state for /readyz."""
        return {
            "rules": self._count,
            "is_current": not self._is_stale,
            "loads": self._loads,
            "error": self.error,
        }

    def reason(self) -> str:
        """Why the server is not ready; "" while the rules of the file are in force."""
        if not self._is_stale:
            return ""
        return f"redaction: the last good rules stay in force, not those of the file: {self.error}"

    def _reload(self) -> bool:
        if not self._path:
            return False
        self._stamp = self._last_stamp = file_stamp(Path(self._path))
        text = None
        try:
            text = read_config(self._path)
            self._apply(text)
        except OtevalError as error:
            self._reject(str(error), text)
        except Exception as error:
            # Whatever the file contains, it must still be checked for the next change.
            _log.exception("%s", self._path)
            self._reject(f"{self._path}: {type(error).__name__}: {error}", text)
        else:
            return True
        return False

    def _apply(self, text: str) -> None:
        config = parse_config(text, self._path)
        rules = [redaction.rule() for redaction in config.redact]
        self.redactor = Redactor(rules)
        self._count = len(rules)
        self._loads += 1
        self._section = self._section_of(text)
        self.error, self._is_stale = "", False
        self._text = text
        self._write_copy()

    def _reject(self, error: str, text: str | None) -> None:
        """Keep the rules in force. They are current if the file still has the same rules."""
        section = self._section_of(text)
        self._is_stale = section is _UNKNOWN or section != self._section
        self.error = error
        _log.error("the last good redaction rules stay in force: %s", error)

    def _section_of(self, text: str | None) -> Any:
        """The section ``redact`` of a file; `_UNKNOWN` when it cannot be read."""
        try:
            value = read_yaml(text or "", self._path)[1]
        except OtevalError:
            return _UNKNOWN
        return value.get("redact") if isinstance(value, dict) else _UNKNOWN

    def _write_copy(self) -> None:
        if self._copy is None or not self._path:
            return
        if not self._text:
            # The copy of an earlier server does not belong to a file that is missing now.
            self._copy.unlink(missing_ok=True)
            return
        partial = self._copy.with_name(f"{self._copy.name}.{os.getpid()}")
        try:
            write_private(partial, self._text)
            partial.replace(self._copy)
        except OSError as error:
            _log.warning("%s: cannot be written: %s", self._copy, error.strerror)


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
