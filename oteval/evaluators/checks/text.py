"""A check of what is said: texts that must be there, or must not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ConfigError
from ...patterns import Pattern
from ..messages import ROLES
from .base import Check, Found, NotEvaluated, Seen, listed, one_of, pattern, strings

__all__ = ["SAID_BY", "TEXT_MATCHES", "RequiredText", "create_required_text_evaluator"]

TEXT_MATCHES = ("all", "any", "none")
SAID_BY = ("assistant", "user", "tool", "system", "anyone")


@dataclass(frozen=True)
class RequiredText(Check):
    """Fails where what must be said is not, or what must not be said is.

    Attributes:
        key: The score's name.
        texts: The texts, or regular expressions.
        match: Whether all must be said, any, or none may be.
        said_by: Whose messages are looked at; a developer's count as the system's.
        regex: Whether the texts are regular expressions, searched in each message.
        ignore_case: Whether upper and lower case are the same.
        last_only: Whether only the last of those messages that has text is looked at.
    """

    type: ClassVar[str] = "required_text"

    key: str = "required_text"
    texts: tuple[str, ...] = ()
    match: str = "all"
    said_by: str = "assistant"
    regex: bool = False
    ignore_case: bool = False
    last_only: bool = False

    def check(self, seen: Seen) -> Found:
        """Look for the texts."""
        said = self._said(seen)
        found = {text: at for text in self.texts if (at := self._where(text, said)) is not None}
        absent = [text for text in self.texts if text not in found]
        problems = self._problems(found, absent)
        # What was not captured may hold the texts: only what was found is sure.
        is_sure = bool(problems) if self.match == "none" else not problems
        lost = None if is_sure else seen.lost("content_shortened")
        if lost is not None:
            raise NotEvaluated(f"{lost.code}: {lost.detail}")
        return Found(problems, {"found": found, "absent": absent, "messages": len(said)})

    def _said(self, seen: Seen) -> list[tuple[int, str]]:
        """Return the texts to look at, each with its message's number."""
        said = [
            (at, message.content)
            for at, message in enumerate(seen.messages)
            if message.content and self.said_by in ("anyone", _speaker(message.role))
        ]
        return said[-1:] if self.last_only else said

    def _where(self, text: str, said: Sequence[tuple[int, str]]) -> int | None:
        flags = re.IGNORECASE if self.ignore_case else 0
        compiled = Pattern(text if self.regex else re.escape(text), flags)
        return next((at for at, content in said if compiled.search(content)), None)

    def _problems(self, found: dict[str, int], absent: list[str]) -> list[str]:
        who = "no one" if self.said_by == "anyone" else f"the {self.said_by}"
        if self.match == "none":
            return [f"message {at} says {text!r}" for text, at in found.items()]
        if absent and (self.match == "all" or not found):
            verb = "says" if self.said_by == "anyone" else "never says"
            which = f"any of {listed([*map(repr, absent)])}" if self.match == "any" else ""
            return [f"{who} {verb} {which or listed([*map(repr, absent)])}"]
        return []


def _speaker(role: str) -> str:
    known = ROLES.get(role, role)
    return "system" if known == "developer" else known


def create_required_text_evaluator(
    *,
    texts: Any,
    match: str = "all",
    said_by: str = "assistant",
    regex: bool = False,
    ignore_case: bool = False,
    last_only: bool = False,
    feedback_key: str = "required_text",
) -> RequiredText:
    """Create an evaluator of what is said.

    Args:
        texts: A text, or a list of them.
        match: ``all`` must be said, ``any`` of them, or ``none`` may be.
        said_by: Whose messages are looked at: ``assistant``, ``user``, ``tool``, ``system`` or
            ``anyone``.
        regex: Whether the texts are regular expressions.
        ignore_case: Whether upper and lower case are the same.
        last_only: Whether only the last of those messages that has text is looked at.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it.
    """
    named = strings([texts] if isinstance(texts, str) else texts, "texts")
    if not named or not all(named):
        raise ConfigError(f"texts is {texts!r}; give at least one, none of them empty")
    if regex:
        named = tuple(pattern(text, "texts") for text in named)
    return RequiredText(
        feedback_key,
        named,
        one_of(match, TEXT_MATCHES, "match"),
        one_of(said_by, SAID_BY, "said_by"),
        regex,
        ignore_case,
        last_only,
    )
