"""Recorded results for the tool calls of an agent that may behave differently, and their coverage.

A call is answered by the first rung that has a result:

1. **exact**: the same tool with the same arguments.
2. **normalized**: the arguments differ only in upper and lower case, blanks, the form of numbers,
   matches of the given patterns, and recorded text that was redacted.
3. **policy**: by the policy. ``nearest`` takes the recorded call of the same tool with the most
   similar arguments; ``error`` answers with an error.

Each of several equal calls receives the next recorded result, so that an agent that polls sees the
recorded states. Further calls receive the last result again.
"""

from __future__ import annotations

import difflib
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ..base.errors import ConfigError
from ..base.jsontext import canonical
from ..base.patterns import Pattern
from ..model import RecordedToolCall
from .text_comparison import is_same_text, without_variable_parts

__all__ = ["TOOL_POLICIES", "Coverage", "LadderAnswer", "Rung", "ToolLadder", "ToolPolicy"]

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
            calls: The executions, in order; executions without a known result are left out.
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

    def peek(self, name: str, arguments: Any) -> RecordedToolCall | None:
        """The recorded execution that would answer a call; it is not used up."""
        given, counts = self._given.copy(), self.counts.copy()
        answer = self.take(name, arguments)
        self._given, self.counts = given, counts
        return answer.call

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
        return without_variable_parts(canonical(_plain(arguments_by_name)), self._normalize)


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


@dataclass(frozen=True, slots=True)
class Coverage:
    """The answers to the tool calls of a new run, and to its other requests.

    Attributes:
        exact: Tool calls with a recorded result of equal arguments.
        normalized: Tool calls with a result of arguments that differ only in their form.
        policy: Tool calls with the result of the most similar recorded call.
        missing: Tool calls without a recorded result; the agent received an error.
        ran: Tool calls that the replay could not intercept, so the tools ran.
        served: HTTP requests besides model calls that the recording answered.
        blocked: Requests and connections that were refused, one line each.
        approximate: Model requests that were answered although the answering recording has another
            request.
        replaced: Tool calls that a change answered in place of the recording.
        changed: The changes of answers that were put in, as their options, one for each call.
    """

    exact: int = 0
    normalized: int = 0
    policy: int = 0
    missing: int = 0
    ran: int = 0
    served: int = 0
    blocked: tuple[str, ...] = ()
    approximate: int = 0
    replaced: int = 0
    changed: tuple[str, ...] = ()

    @property
    def tool_calls(self) -> int:
        """The number of tool calls."""
        answered = self.exact + self.normalized + self.policy + self.missing
        return answered + self.ran + self.replaced

    @property
    def is_full(self) -> bool:
        """Whether the recording has a result for every call and request of the agent."""
        return not (self.policy or self.missing or self.blocked)

    @property
    def text(self) -> str:
        """The counts that are not 0, such as ``5 exact, 1 missing``."""
        counts = [
            (self.exact, "exact"),
            (self.normalized, "normalized"),
            (self.policy, "by policy"),
            (self.missing, "missing"),
            (self.ran, "ran"),
            (len(self.blocked), "blocked"),
            (len(self.changed), "changed"),
        ]
        return ", ".join(f"{count} {name}" for count, name in counts if count) or "no tools"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "blocked": list(self.blocked), "changed": list(self.changed)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Coverage:
        """Read the JSON form."""
        names = {field.name for field in fields(cls)}
        values = {name: item for name, item in value.items() if name in names}
        lists = {name: tuple(values.get(name, ())) for name in ("blocked", "changed")}
        return cls(**{**values, **lists})

    @classmethod
    def total(cls, parts: Iterable[Coverage]) -> Coverage:
        """Add up coverages."""
        all_of_them = list(parts)
        sums = {
            field.name: sum(getattr(part, field.name) for part in all_of_them)
            for field in fields(cls)
            if field.name not in ("blocked", "changed")
        }
        lines = dict.fromkeys(line for part in all_of_them for line in part.blocked)
        changed = tuple(text for part in all_of_them for text in part.changed)
        return cls(**sums, blocked=tuple(lines), changed=changed)
