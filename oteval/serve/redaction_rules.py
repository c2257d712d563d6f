"""The redaction rules in force: the rules of oteval.yaml, reloaded when the file changes.

Stored data must never be less redacted than a valid configuration requires. So a file that cannot
be read changes nothing: the last valid rules stay in force. The file may contain new rules, so the
server is not ready meanwhile. A file counts as changed once two checks in a row find it the same:
a file that is still being written might lack some of its rules.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from ..base.errors import OtevalError
from ..base.files import file_stamp, write_private
from ..ingest import Redactor
from ..scoring import parse_config, read_config, read_yaml

__all__ = ["RedactionRules"]

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
