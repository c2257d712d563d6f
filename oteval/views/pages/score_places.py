"""The messages that a score refers to, so that its reason is shown beside them.

Matches list the calls that they aligned. Checks name the calls that they object to by number,
``call 2 refund({...})``, and the final answer that they compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...model import Message, Trajectory
from ..report.model import RunVerdict

__all__ = ["places_of"]

_CALL = re.compile(r"\bcall (\d{1,6}) ([^\s(]{1,200})\(")
_MOST = 20


def places_of(verdict: RunVerdict, run: Trajectory) -> tuple[int, ...]:
    """The numbers of the messages that a verdict refers to, as the run counts them.

    Args:
        verdict: The verdict.
        run: The run.
    """
    if verdict.state == "pass":
        return ()
    own = run.own_messages
    calls = [(at, call.name) for at, message in enumerate(own) for call in message.tool_calls]
    indexes = [
        *_named_calls(verdict.comment, calls),
        *_extra_calls(verdict, calls),
        *_answers(verdict.metadata, own),
    ]
    return tuple(run.new_from + at for at in sorted(set(indexes))[:_MOST])


def _named_calls(comment: str, calls: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the messages of the calls that a comment names by number."""
    for match in _CALL.finditer(comment[:20_000]):
        number = int(match[1])
        # A check of the whole conversation counts earlier calls as well, so the names may differ.
        if number < len(calls) and calls[number][1] == match[2]:
            yield calls[number][0]


def _extra_calls(verdict: RunVerdict, calls: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the messages of the calls that a match could not align with the reference."""
    alignment, extra = verdict.metadata.get("alignment"), verdict.metadata.get("extra")
    if not isinstance(alignment, (list, tuple)) or not isinstance(extra, int) or not extra:
        return
    aligned = {pair[0] for pair in alignment if isinstance(pair, (list, tuple)) and pair}
    unaligned = [call for number, call in enumerate(calls) if number not in aligned]
    if len(unaligned) != extra:
        # A match of some tools does not align the calls of others; the comment names the calls it
        # saw.
        extra_text = verdict.comment.partition("extra ")[2]
        unaligned = [call for call in unaligned if f" {call[1]}(" in extra_text]
    if len(unaligned) == extra:
        yield from (at for at, _ in unaligned)


def _answers(metadata: Mapping[str, Any], own: Sequence[Message]) -> Iterator[int]:
    """Yield the message with the answer that a check compared."""
    answer = metadata.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        return
    for at in range(len(own) - 1, -1, -1):
        if own[at].role == "assistant" and (own[at].content or "").strip().startswith(
            answer.strip()
        ):
            yield at
            return
