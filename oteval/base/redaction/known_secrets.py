"""The secrets that this process has sent: credentials in the headers of its HTTP requests.

A key without a known form is recognised by the header that contains it. From then on it is removed
from everything that the process records: servers echo keys in answers and in errors, and clients
quote them in exceptions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from .secret_names import secret_kind
from .secret_values import is_plausible

__all__ = ["PROCESS_SECRETS", "KnownSecrets", "is_credential_header"]

_MAX_SECRETS = 64


def is_credential_header(name: str) -> bool:
    """Whether a header contains a credential that is the same in many requests.

    Names of sessions and cookies are in other headers; they may also name a conversation.
    """
    return secret_kind(name) in ("secret", "token", "bare token")


class KnownSecrets:
    """A bounded set of secrets. If it is full, the oldest are dropped."""

    def __init__(self, limit: int = _MAX_SECRETS) -> None:
        self._limit = limit
        self._seen: dict[str, None] = {}
        self._secrets: frozenset[str] = frozenset()
        # Reentrant: a handler of a signal may send a request.
        self._lock = threading.RLock()

    def add(self, secrets: Iterable[str]) -> None:
        """Add plausible secrets. Servers without keys receive words: "not-needed", "lm-studio"."""
        for secret in secrets:
            if secret in self._seen or not is_plausible(secret):
                continue
            with self._lock:
                self._seen[secret] = None
                for oldest in list(self._seen)[: -self._limit]:
                    del self._seen[oldest]
                self._secrets = frozenset(self._seen)

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets; the same object until a secret is added."""
        return self._secrets


PROCESS_SECRETS = KnownSecrets()
"""The secrets that the clients of this process have sent while it was recorded."""
