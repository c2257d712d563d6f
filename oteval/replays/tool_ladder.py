"""Recorded results for the tool calls of an agent that may behave differently.

A call is answered by the first rung that has a result:

1. **exact**: the same tool with the same arguments.
2. **normalized**: the arguments are equal but for upper and lower case, blanks, the form of
   numbers, matches of the given patterns, and recorded text that was redacted.
3. **policy**: by the policy. ``nearest`` takes the recorded call of the same tool with the most
   similar arguments; ``error`` answers with an error.

Of several equal calls, each gets the next recorded result, so that an agent that polls sees the
recorded states. Further calls get the last one again.
"""

from __future__ import annotations

import difflib
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..base.errors import ConfigError
from ..base.jsontext import canonical
from ..base.patterns import Pattern
from ..model import RecordedToolCall
from .redacted_text import is_same_text

__all__ = ["TOOL_POLICIES", "LadderAnswer", "Rung", "ToolLadder", "ToolPolicy"]

ToolPolicy = Literal["error", "nearest"]
Rung = Literal["exact", "normalized", "policy", "missing"]
TOOL_POLICIES: tuple[ToolPolicy, ...] = get_args(ToolPolicy)


@dataclass(frozen=True, slots=True)
class LadderAnswer:
    """The answer to a tool call.

    Attributes:
        rung: How it was found.
        call: The recorded execution that answers; None if it is missing.
    """

    rung: Rung
    call: RecordedToolCall | None = None


class ToolLadder:
    """Finds recorded results for tool calls.

    Attributes:
        counts: How many calls were answered by each rung.
    """

    def __init__(
        self,
        calls: Sequence[RecordedToolCall],
        *,
        policy: ToolPolicy = "error",
        normalize: Sequence[Pattern] = (),
    ) -> None:
        """Take the recorded executions.

        Args:
            calls: The executions, in order; those without a known result are left out.
            policy: The last rung.
            normalize: Patterns of text that is ignored in arguments.

        Raises:
            ConfigError: The policy is unknown.
        """
        if policy not in TOOL_POLICIES:
            raise ConfigError(f"policy={policy!r}: choose one of {', '.join(TOOL_POLICIES)}")
        self._policy, self._normalize = policy, normalize
        self._calls = [call for call in calls if call.result is not None or call.is_error]
        self._given: Counter[int] = Counter()
        self.counts: Counter[Rung] = Counter()

    def take(self, name: str, arguments: Any) -> LadderAnswer:
        """Find the recorded result for a call."""
        same_tool = [at for at, call in enumerate(self._calls) if call.name == name]
        answer = (
            self._equal("exact", same_tool, arguments)
            or self._equal("normalized", same_tool, arguments)
            or self._nearest(same_tool, arguments)
            or LadderAnswer("missing")
        )
        self.counts[answer.rung] += 1
        return answer

    def _equal(self, rung: Rung, places: Sequence[int], arguments: Any) -> LadderAnswer | None:
        key = self._key(rung, arguments)
        keys = ((at, self._key(rung, self._calls[at].arguments)) for at in places)
        is_same = operator.eq if rung == "exact" else is_same_text
        equal = [at for at, recorded in keys if is_same(recorded, key)]
        if not equal:
            return None
        return self._give(rung, next((at for at in equal if not self._given[at]), equal[-1]))

    def _nearest(self, places: Sequence[int], arguments: Any) -> LadderAnswer | None:
        if self._policy != "nearest" or not places:
            return None
        text = self._key("normalized", arguments)

        def distance(at: int) -> tuple[float, int, int]:
            recorded_text = self._key("normalized", self._calls[at].arguments)
            same = difflib.SequenceMatcher(None, text, recorded_text, autojunk=False).ratio()
            return -same, self._given[at], at

        return self._give("policy", min(places, key=distance))

    def _give(self, rung: Rung, at: int) -> LadderAnswer:
        self._given[at] += 1
        return LadderAnswer(rung, self._calls[at])

    def _key(self, rung: Rung, arguments: Any) -> str:
        arguments_by_name = {} if arguments is None else arguments
        if rung == "exact":
            return canonical(arguments_by_name)
        text = canonical(_plain(arguments_by_name))
        for pattern in self._normalize:
            text = pattern.replace(text, "*")
        return text


def _plain(value: Any) -> Any:
    """Fold the case, the blanks and the form of numbers of a value."""
    if isinstance(value, Mapping):
        values_by_name = {str(key).casefold(): _plain(item) for key, item in value.items()}
        return {key: item for key, item in values_by_name.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return _number(str(value))
    text = " ".join(str(value).split()).casefold()
    return _number(text)


def _number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text
