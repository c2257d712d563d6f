"""How an experiment goes on: how long it waits, what a failure does, and who hears of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError
from .progress import Progress

__all__ = ["TIMEOUT", "Conduct", "OnError", "OnProgress", "refuse_client"]

OnProgress = Callable[[Progress], None]
OnError = Literal["record", "raise"]

TIMEOUT = 120.0


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How an experiment or a comparison goes on.

    Attributes:
        timeout: After how many seconds to give up on an evaluator; None waits.
        target_timeout: The same of the target.
        on_error: ``record`` goes on; ``raise`` stops at the first failure.
        on_progress: Called after each run or question.
    """

    timeout: float | None = TIMEOUT
    target_timeout: float | None = None
    on_error: OnError = "record"
    on_progress: OnProgress | None = None

    @property
    def stops(self) -> bool:
        """Whether the first failure ends it."""
        return self.on_error == "raise"

    def tell(self, progress: Progress) -> None:
        """Say how far it is, to who wants to know."""
        if self.on_progress:
            self.on_progress(progress)


def refuse_client(client: object) -> None:
    """Raise ConfigError for a LangSmith client, to which nothing would be sent."""
    if client is not None:
        raise ConfigError(
            "client: results are kept in oteval's store, not sent to LangSmith; leave client out, "
            "or hand oteval's evaluators to langsmith.evaluate"
        )
