"""Which trajectories are meant: the filters of the command line and of ``where`` in oteval.yaml.

A `Selection` can be asked about one trajectory here; the store turns it into a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ConfigError
from .model import Trajectory
from .patterns import PatternError, compile_pattern

__all__ = ["EVERYTHING", "Condition", "Selection", "parse_asked", "parse_condition"]

_CONDITION = re.compile(r"([\w.\-:/]+)\s*(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)

# What a condition can name, beside `attributes.KEY`.
FIELDS: Mapping[str, Callable[[Trajectory], Any]] = {
    "agent": lambda t: t.agent,
    "service": lambda t: t.service,
    "conversation": lambda t: t.conversation_id,
    "model": lambda t: t.models,
    "dialect": lambda t: t.dialects,
    "gap": lambda t: tuple(gap.code for gap in t.gaps),
    "turn": lambda t: t.turn,
    "parent": lambda t: t.parent_id,
    "tool": lambda t: tuple(call.name for m in t.own_messages for call in m.tool_calls),
    "calls": lambda t: sum(len(m.tool_calls) for m in t.own_messages),
    "errors": lambda t: sum(m.is_error for m in t.own_messages),
    "input_tokens": lambda t: t.usage.input_tokens,
    "output_tokens": lambda t: t.usage.output_tokens,
    "seconds": lambda t: (t.end_ns - t.start_ns) / 1e9,
    "asked": lambda t: (t.question.content,) if t.question else (),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison: a field, an operator and a value.

    Attributes:
        name: A name of `FIELDS`, or ``attributes.KEY``.
        operator: One of ``= != ~ > < >= <=``; ``~`` searches a regular expression, in linear time.
        value: What to compare with, as text.
    """

    name: str
    operator: str
    value: str

    def holds(self, trajectory: Trajectory) -> bool:
        """Return whether the comparison holds; of a field with several values, for any of them."""
        actual = self._actual(trajectory)
        if self.operator == "!=":
            return not any(_equal(item, self.value) for item in actual)
        return any(_compare(item, self.operator, self.value) for item in actual)

    def _actual(self, trajectory: Trajectory) -> tuple[Any, ...]:
        key = self.name.removeprefix("attributes.")
        if key != self.name:
            found = trajectory.attributes.get(key)
            return () if found is None else (found,)
        found = FIELDS[self.name](trajectory)
        return found if isinstance(found, tuple) else (found,)


def _equal(actual: Any, wanted: str) -> bool:
    if isinstance(actual, bool):
        return str(actual).lower() == wanted.lower()
    if isinstance(actual, (int, float)):
        try:
            return actual == float(wanted)
        except ValueError:
            return False
    return str(actual) == wanted


def _compare(actual: Any, operator: str, wanted: str) -> bool:
    if operator == "=":
        return _equal(actual, wanted)
    if operator == "~":
        return compile_pattern(wanted).search(str(actual)) is not None
    try:
        left, right = float(actual), float(wanted)
    except (TypeError, ValueError):
        return False
    if operator in (">", ">="):
        return left > right or (operator == ">=" and left == right)
    return left < right or (operator == "<=" and left == right)


def parse_condition(text: str) -> Condition:
    """Return the condition that a ``--where`` text spells out, such as ``errors>0``.

    Raises:
        ConfigError: The text is no condition, or names a field that is not known.
    """
    # Stripped beforehand: a pattern that strips takes quadratic time.
    match = _CONDITION.match(text.strip())
    if match is None:
        raise ConfigError(f"--where {text!r}: write FIELD OPERATOR VALUE, for instance errors>0")
    name, operator, value = match[1], match[2], match[3].strip()
    if name not in FIELDS and not name.startswith("attributes."):
        known = ", ".join([*FIELDS, "attributes.KEY"])
        raise ConfigError(f"--where {text!r}: no field {name!r}; there are {known}")
    if operator == "~":
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ConfigError(f"--where {text!r}: no regular expression: {error}") from error
    if operator[0] in "<>":
        try:
            float(value)
        except ValueError:
            raise ConfigError(f"--where {text!r}: {operator} compares with a number") from None
    return Condition(name, operator, value)


def parse_asked(text: str) -> Condition:
    """Return the condition on a run's question that a text spells out.

    ``~refund`` searches a regular expression; any other text is the whole question, after "=" also
    one that begins with "~" or "=".

    Raises:
        ConfigError: The text is empty, or its regular expression cannot be used.
    """
    operator, value = (text[0], text[1:]) if text.startswith(("~", "=")) else ("=", text)
    if not value.strip():
        raise ConfigError(f"asked {text!r}: write a question, or ~ and a regular expression")
    if operator == "~":
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ConfigError(f"asked {text!r}: {error}") from error
    return Condition("asked", operator, value)


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of trajectories; all that is given must hold, an empty field does not restrict.

    Attributes:
        ids: Trajectory ids, or beginnings of them.
        since_ns: Runs that began at this time or later.
        until_ns: Runs that began before this time.
        agents: Agent names, any of them.
        services: Service names, any of them.
        conversations: Conversation ids, any of them.
        models: Models, any of them.
        attributes: Attribute values of the root span or its resource; a tuple means any of them.
        conditions: Further comparisons.
        asked: What the question must be, any of them; a run without a captured question is none.
        excluded: What must not hold.
        limit: At most so many, the latest.
    """

    ids: tuple[str, ...] = ()
    since_ns: int | None = None
    until_ns: int | None = None
    agents: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    asked: tuple[Condition, ...] = ()
    excluded: Selection | None = None
    limit: int | None = None

    def matches(self, trajectory: Trajectory) -> bool:
        """Return whether a trajectory is among those meant, `limit` aside."""
        if not self._matches_columns(trajectory):
            return False
        for key, wanted in self.attributes.items():
            actual = trajectory.attributes.get(key)
            if actual is None or not any(_equal(actual, value) for value in wanted):
                return False
        if not all(condition.holds(trajectory) for condition in self.conditions):
            return False
        if self.asked and not any(condition.holds(trajectory) for condition in self.asked):
            return False
        return self.excluded is None or not self.excluded.matches(trajectory)

    def _matches_columns(self, t: Trajectory) -> bool:
        return (
            (not self.ids or t.id.startswith(self.ids))
            and (self.since_ns is None or t.start_ns >= self.since_ns)
            and (self.until_ns is None or t.start_ns < self.until_ns)
            and (not self.agents or t.agent in self.agents)
            and (not self.services or t.service in self.services)
            and (not self.conversations or t.conversation_id in self.conversations)
            and (not self.models or bool(set(self.models) & set(t.models)))
        )

    @property
    def needs_python(self) -> bool:
        """Whether something restricts it that is no column of the store."""
        return bool(self.attributes or self.conditions or self.asked or self.excluded)


EVERYTHING = Selection()
