"""Filters for trajectories, from the command line and from ``where`` in oteval.yaml.

`Selection.matches` tests one trajectory; the store translates a selection to a query. `select`
makes one of the filters of the command line, which other interfaces take by the same names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .errors import ConfigError
from .model import Trajectory
from .patterns import PatternError, compile_pattern

__all__ = [
    "EVERYTHING",
    "FIELDS",
    "Condition",
    "Selection",
    "parse_asked",
    "parse_condition",
    "select",
    "time_of",
]

_AGO = re.compile(r"(\d+)\s*([smhdw])$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CONDITION = re.compile(r"([\w.\-:/]+)\s*(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)

# The fields that a condition may name, besides ``attributes.KEY``.
FIELDS: Mapping[str, Callable[[Trajectory], Any]] = {
    "agent": lambda t: t.agents or t.agent,
    "service": lambda t: t.service,
    "conversation": lambda t: t.conversation_id,
    "user": lambda t: t.user,
    "version": lambda t: t.version,
    "model": lambda t: t.models,
    "dialect": lambda t: t.dialects,
    "gap": lambda t: tuple(gap.code for gap in t.gaps),
    "finish_reason": lambda t: t.finish_reasons,
    "prompt": lambda t: tuple(
        dict.fromkeys(name for prompt in t.prompts for name in prompt_names(prompt))
    ),
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


_NUMBERS = ("turn", "calls", "errors", "input_tokens", "output_tokens", "seconds")


def prompt_names(prompt: str) -> tuple[str, ...]:
    """Return the names by which a prompt is found: with its version, and without it."""
    name = prompt.rpartition("@")[0]
    return (prompt, name) if name else (prompt,)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison: a field, an operator and a value.

    Attributes:
        name: A name of `FIELDS`, or ``attributes.KEY``.
        operator: One of ``= != ~ > < >= <=``; ``~`` searches for a regular expression.
        value: The value to compare with, as text.
    """

    name: str
    operator: str
    value: str

    def holds(self, trajectory: Trajectory) -> bool:
        """Return whether the comparison is true for the field, or for any of its values."""
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
    """Parse the argument of ``--where``, such as ``errors>0``.

    Raises:
        ConfigError: The text is not a condition, or its field is unknown.
    """
    # Strip first: a pattern with optional trailing spaces takes quadratic time.
    match = _CONDITION.match(text.strip())
    if match is None:
        raise ConfigError(f"--where {text!r}: write FIELD OPERATOR VALUE, for instance errors>0")
    name, operator, value = match[1], match[2], match[3].strip()
    if name not in FIELDS and not name.startswith("attributes."):
        known = ", ".join([*FIELDS, "attributes.KEY"])
        raise ConfigError(f"--where {text!r}: unknown field {name!r}; the fields are {known}")
    if operator == "~":
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ConfigError(f"--where {text!r}: invalid regular expression: {error}") from error
    if operator[0] in "<>" or (operator != "~" and name in _NUMBERS):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise ConfigError(f"--where {text!r}: {operator} compares with a number")
    return Condition(name, operator, value)


def parse_asked(text: str) -> Condition:
    """Parse a condition on the question of a run.

    ``~refund`` searches for a regular expression. Any other text must equal the whole question; a
    leading "=" allows a question that itself begins with "~" or "=".

    Raises:
        ConfigError: The text is empty, or its regular expression is invalid.
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
    """A filter for trajectories. All its fields must match; an empty field matches everything.

    Attributes:
        ids: Trajectory ids or prefixes of them, of which one must match.
        since_ns: The earliest start of a run, in nanoseconds since the Unix epoch.
        until_ns: The time before which a run must start, in the same unit.
        agents: Agent names, of which one must match.
        services: Service names, of which one must match.
        conversations: Conversation ids, of which one must match.
        models: Models, of which a run must have used one.
        attributes: Attributes of the root span or its resource, each with the allowed values.
        conditions: Further comparisons, which must all be true.
        asked: Conditions on the question, of which one must be true. A run whose question was not
            captured does not match.
        excluded: A filter that must not match.
        limit: The most trajectories to select, the latest first; None for all.
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
        """Return whether the filter, without its `limit`, matches a trajectory."""
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
            and (not self.agents or bool(set(self.agents) & {*(t.agents or (t.agent,))}))
            and (not self.services or t.service in self.services)
            and (not self.conversations or t.conversation_id in self.conversations)
            and (not self.models or bool(set(self.models) & set(t.models)))
        )

    @property
    def needs_python(self) -> bool:
        """Whether it has a restriction that is not a column of the store."""
        return bool(self.attributes or self.conditions or self.asked or self.excluded)


EVERYTHING = Selection()


def select(**given: Any) -> Selection:
    """Return the selection that filters describe.

    Args:
        given: The filters by the names of the command line: ``since`` and ``until`` as texts (see
            `time_of`); ``service``, ``agent``, ``conversation``, ``model`` and ``where`` as lists
            of texts; ``limit`` as a number. Other names are ignored.

    Raises:
        ConfigError: A filter cannot be parsed.
    """
    return Selection(
        since_ns=time_of(given.get("since"), "--since"),
        until_ns=time_of(given.get("until"), "--until"),
        services=tuple(given.get("service") or ()),
        agents=tuple(given.get("agent") or ()),
        conversations=tuple(given.get("conversation") or ()),
        models=tuple(given.get("model") or ()),
        conditions=tuple(parse_condition(text) for text in given.get("where") or ()),
        limit=given.get("limit"),
    )


def time_of(text: str | None, option: str) -> int | None:
    """Return a time in nanoseconds, from an ISO date or time (UTC by default) or an age ("2h")."""
    if not text:
        return None
    ago = _AGO.match(text.removesuffix(" ago").strip())
    try:
        if ago:
            when = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        else:
            when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{option} {text!r}: write a date, a time (2026-11-20T08:00) or an age (2h)"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000
