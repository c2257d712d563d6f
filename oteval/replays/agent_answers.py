"""The answers of agents: how their runs ended in a replay, compared with the recording.

`@oteval.agent` reports each end of its function: the value as the messages that its span would
have, the value's type, or the exception. Each end is compared with the recorded run of the same
agent with the same question. If no such function ran, for example with agents of frameworks, the
text that the replay's target returned is compared: it must contain the agent's recorded answer.

Answers are compared at the end of a replay, and only if nothing else differs: a different answer is
mostly the consequence of another difference.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ..base.jsontext import canonical, dumps, loads_exact, to_jsonable
from ..base.patterns import Pattern
from ..model import RecordedAnswer
from ..record import OF_OBJECTS, AgentEnd
from .divergence import Divergence
from .text_comparison import is_same_text, without_variable_parts

__all__ = ["AgentAnswers"]

_NORMALIZE = "if it varies in every run: --normalize PATTERN"
_DECORATE = (
    "if this function returns something else than the agent's answer: decorate it with "
    "@oteval.agent, and record the session again"
)
_NONE = "builtins:NoneType"
# Objects of libraries have ids and times that differ in every run: uuids, and ISO 8601 times.
_VARIABLE = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
CLOSED = "closed"
"""The type of a generator that its consumer did not read to its end; it has no answer."""


class AgentAnswers:
    """The recorded ends of agents' runs, and the ends in a replay.

    Args:
        recorded: The recorded ends.
        normalize: Patterns of parts that vary.
    """

    def __init__(
        self, recorded: Sequence[RecordedAnswer], normalize: Sequence[Pattern] = ()
    ) -> None:
        self._recorded = recorded
        self._normalize = normalize
        self._lock = threading.Lock()
        self._ends: list[AgentEnd] = []
        self._returned: list[Any] = []
        self._target_line = ""

    def ended(self, end: AgentEnd) -> None:
        """Take note of the end of a decorated agent's run."""
        with self._lock:
            self._ends.append(end)

    def target_returned(self, value: Any, line: str = "") -> None:
        """Take note of the result of the target for a turn.

        Args:
            value: The value; for a generator, the list of its chunks.
            line: The line of the target, or "".
        """
        with self._lock:
            self._returned.append(value)
            self._target_line = line

    @property
    def returned(self) -> tuple[Any, ...]:
        """The results of the target, by turn."""
        return tuple(self._returned)

    def is_recorded_error(self, error: BaseException) -> bool:
        """Whether a recorded run ended with the same exception as the agent's run.

        An exception that an agent caught in the recording did not end its run.
        """
        text = error_text(error)
        has_ended = any(end.error == text for end in self._ends) or not self._ends
        was_caught = any(
            end.error == text and not self._is_same(answer.error, text)
            for answer, end in self._pairs()
        )
        return (
            has_ended
            and not was_caught
            and any(
                bool(answer.error) and self._is_same(answer.error, text)
                for answer in self._recorded
            )
        )

    def divergences(self) -> list[Divergence]:
        """Compare the answers with the recorded answers."""
        with self._lock:
            divergences = [self._difference(answer, end) for answer, end in self._pairs()]
            if not self._ends and self._returned:
                divergences += self._target_differences()
        return [divergence for divergence in divergences if divergence is not None]

    def not_compared(self) -> list[str]:
        """The reason why no recorded answer was compared, as a list of one line; else []."""
        with self._lock:
            has_answer = any(answer.answer or answer.error for answer in self._recorded)
            if not has_answer or self._ends or self._returned:
                return []
        return [
            "the agent's answer was not compared: decorate the function that returns it with "
            "@oteval.agent"
        ]

    def _pairs(self) -> Iterator[tuple[RecordedAnswer, AgentEnd]]:
        """Yield each end of the replay with the recorded answer that it is compared with."""
        unused = [answer for answer in self._recorded if answer.is_decorated]
        unmatched: list[AgentEnd] = []
        for end in self._ends:
            answer = self._best([answer for answer in unused if answer.agent == end.agent], end)
            if answer is None:
                unmatched.append(end)
                continue
            unused = [candidate for candidate in unused if candidate is not answer]
            yield answer, end
        # An agent with another name than recorded.
        if len(unused) == len(unmatched) == 1:
            yield unused[0], unmatched[0]

    def _best(self, candidates: list[RecordedAnswer], end: AgentEnd) -> RecordedAnswer | None:
        """The answer to the same question, and if possible the same answer."""
        question = self._normalized(end.question)
        same_question = [
            answer
            for answer in candidates
            if is_same_text(self._normalized(answer.question), question)
        ]
        same = (answer for answer in same_question if self._difference(answer, end) is None)
        return next(same, next(iter(same_question or candidates), None))

    def _difference(self, recorded: RecordedAnswer, end: AgentEnd) -> Divergence | None:
        if CLOSED in (recorded.type, end.type):
            return None
        if recorded.answer is None and not recorded.error and recorded.type != _NONE:
            return None  # the recording does not contain it
        before, after = _shown(recorded), _shown(end)
        pair = before, after
        if recorded.type.endswith(OF_OBJECTS):
            pair = _VARIABLE.sub("*", before), _VARIABLE.sub("*", after)
        is_same = bool(recorded.error) == bool(end.error) and self._is_same(*pair)
        if is_same and (not recorded.type or recorded.type == end.type):
            return None
        if is_same:
            before, after = f"{before} ({recorded.type})", f"{after} ({end.type})"
        how = "raised" if end.error else "returned"
        was = "raised" if recorded.error else "returned"
        return Divergence(
            "answer",
            f"the agent {end.agent} {how} another answer"
            if how == was
            else f"the agent {end.agent} {how}, but {was} in the recording",
            recorded=before,
            actual=after,
            line=end.line,
            suggestion=_NORMALIZE,
        )

    def _target_differences(self) -> list[Divergence]:
        """Compare the results of the target with the answers of the agents that it called."""
        recorded, returned = [answer for answer in self._recorded if answer.answer], self._returned
        if len(recorded) != len(returned):
            # The first of nested agents has the answer, but the last of several agents in a row.
            is_nested = bool(recorded) and recorded[0].is_decorated
            recorded = recorded[:1] if is_nested else recorded[-1:]
            returned = returned[-1:] if len(returned) == 1 or not is_nested else []
        divergences = []
        for answer, value in zip(recorded, returned, strict=False):
            before = _shown(answer)
            text = _comparable(value, before)
            if text is not None and not self._is_within(before, text):
                summary = f"the target did not return the answer of the agent {answer.agent}"
                divergences.append(
                    Divergence(
                        "answer",
                        summary.rstrip(),
                        recorded=before,
                        actual=text,
                        line=self._target_line,
                        suggestion=_DECORATE,
                    )
                )
        return divergences

    def _is_same(self, recorded: str, actual: str) -> bool:
        return is_same_text(self._normalized(recorded), self._normalized(actual))

    def _normalized(self, text: str) -> str:
        return without_variable_parts(text, self._normalize)

    def _is_within(self, recorded: str, actual: str) -> bool:
        """Whether a text contains a recorded one, or is the JSON of the same value."""
        if self._is_same(recorded, actual):
            return True
        before, after = self._normalized(recorded).strip(), self._normalized(actual).strip()
        inside, outside = _value(before), _value(after)
        is_json = not isinstance(inside, str) and not isinstance(outside, str)
        return before in after or (is_json and canonical(inside) == canonical(outside))


def error_text(error: BaseException) -> str:
    """The text of an exception in spans: ``ValueError: text``."""
    return f"{type(error).__name__}: {error}"


def _comparable(value: Any, recorded: str) -> str | None:
    """The result of a target as text; None if it may contain the answer in another form.

    Args:
        value: The value.
        recorded: The recorded answer.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(chunk, str) for chunk in value):
        return "".join(value)
    before, plain = _value(recorded), to_jsonable(value)
    is_same_form = isinstance(before, dict) and isinstance(plain, dict) and before and plain
    return dumps(plain) if is_same_form and before.keys() == plain.keys() else None


def _value(text: str) -> Any:
    try:
        return loads_exact(text)
    except ValueError:
        return text


def _shown(end: RecordedAnswer | AgentEnd) -> str:
    """An answer as text: the text of its only message, or all messages as JSON."""
    if end.error:
        return end.error
    if end.answer is None:
        return "None"
    messages = _value(end.answer)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return end.answer
    plain = [_plain_message(message) for message in messages]
    if len(plain) == 1 and isinstance(plain[0], str):
        return plain[0]
    return dumps(plain)


def _plain_message(message: dict[str, Any]) -> Any:
    """A message without ids: its text, or its role and parts."""
    parts = message.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return to_jsonable(message)
    texts = [part.get("content") for part in parts if part.get("type") == "text"]
    if len(texts) == len(parts) and message.get("role") == "assistant":
        return "".join(str(text) for text in texts)
    return {"role": message.get("role"), "parts": [_without_id(part) for part in parts]}


def _without_id(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "id"}
