"""A check for required or forbidden texts in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...base.errors import ConfigError
from ...base.patterns import Pattern
from ...messages import role_of
from ..factories import with_options_of
from ..options import check_regex
from . import Check, EvaluationContext, EvaluationResult, NotEvaluated, listed

__all__ = ["RequiredText", "create_required_text_evaluator"]


@dataclass(frozen=True, kw_only=True)
class RequiredText(Check):
    """Fails if a required text is missing or a forbidden text occurs.

    Attributes:
        texts: A text, or a list of them.
        match: ``all`` requires every text, ``any`` requires one of them, ``none`` forbids all.
        said_by: Whose messages to search: ``assistant``, ``user``, ``tool``, ``system`` (which
            includes the developer's) or ``anyone``.
        regex: Whether the texts are regular expressions, searched in each message.
        ignore_case: Whether upper and lower case are the same.
        last_only: Whether to search only the last of these messages that has text.
    """

    type: ClassVar[str] = "required_text"

    texts: str | Sequence[str]
    match: Literal["all", "any", "none"] = "all"
    said_by: Literal["assistant", "user", "tool", "system", "anyone"] = "assistant"
    regex: bool = False
    ignore_case: bool = False
    last_only: bool = False

    def check_combination(self) -> None:
        """Refuse empty texts, and regular expressions that cannot run."""
        texts = (self.texts,) if isinstance(self.texts, str) else tuple(self.texts)
        if not texts or not all(texts):
            raise ConfigError(f"texts is {self.texts!r}; give at least one, none of them empty")
        if self.regex:
            for text in texts:
                check_regex(text, "texts")
        object.__setattr__(self, "texts", texts)

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Search the messages for the texts."""
        contents = self._contents(context)
        indexes = {text: self._where(text, contents) for text in self.texts}
        index_by_text = {text: at for text, at in indexes.items() if at is not None}
        absent = [text for text in self.texts if text not in index_by_text]
        problems = self._problems(index_by_text, absent)
        # Content that was not captured may contain the texts.
        is_sure = bool(problems) if self.match == "none" else not problems
        lost = None if is_sure else context.content_gap(*self._lost_by(contents))
        if lost is not None:
            raise NotEvaluated(f"{lost.code}: {lost.detail}")
        figures = {"found": index_by_text, "absent": absent, "messages": len(contents)}
        return self.result(problems, figures)

    def _lost_by(self, contents: Sequence[tuple[int, str]]) -> Sequence[str]:
        """The codes of more gaps that may hide texts."""
        # `calls_not_captured` marks an answer without its run, which hides no text of the assistant
        # or the user.
        is_answer = bool(contents) and self.said_by in ("assistant", "user")
        return ("content_shortened", *(() if is_answer else ("calls_not_captured",)))

    def _contents(self, context: EvaluationContext) -> list[tuple[int, str]]:
        """The index and content of each message to search."""
        contents = [
            (at, message.content)
            for at, message in enumerate(context.messages)
            if message.content and self.said_by in ("anyone", _speaker(message.role))
        ]
        return contents[-1:] if self.last_only else contents

    def _where(self, text: str, contents: Sequence[tuple[int, str]]) -> int | None:
        flags = re.IGNORECASE if self.ignore_case else 0
        compiled = Pattern(text if self.regex else re.escape(text), flags)
        return next((at for at, content in contents if compiled.search(content)), None)

    def _problems(self, index_by_text: dict[str, int], absent: list[str]) -> list[str]:
        who = "no one" if self.said_by == "anyone" else f"the {self.said_by}"
        if self.match == "none":
            return [f"message {at} says {text!r}" for text, at in index_by_text.items()]
        if absent and (self.match == "all" or not index_by_text):
            verb = "says" if self.said_by == "anyone" else "never says"
            which = f"any of {listed([*map(repr, absent)])}" if self.match == "any" else ""
            return [f"{who} {verb} {which or listed([*map(repr, absent)])}"]
        return []


def _speaker(role: str) -> str:
    canonical_role = role_of(role)
    return "system" if canonical_role == "developer" else canonical_role


@with_options_of(RequiredText)
def create_required_text_evaluator(**options: Any) -> RequiredText:
    """Create an evaluator that searches messages for texts.

    Args:
        **options: The options of `RequiredText`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return RequiredText(**options)
