"""Filters for trajectories, from the command line and from ``where`` in oteval.yaml.

A filter compares the columns of runs (`oteval.model.columns`). `Selection.matches` tests one
trajectory, and the store translates a selection to a query. `select` makes a selection of the
command line's filters. Other interfaces accept them by the same names.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ..base.errors import ConfigError
from ..base.patterns import PatternError, compile_pattern
from ..base.times import ns_of_datetime
from .columns import COLUMNS, FIELDS, RunValues, column_values, items_of
from .trajectory import Trajectory

__all__ = [
    "EVERYTHING",
    "Condition",
    "Selection",
    "parse_asked",
    "parse_condition",
    "select",
    "time_of",
]

_AGO = re.compile(r"(\d+)\s*([smhdw])$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CONDITION = re.compile(r"([\w.\-:/]+)\s*(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison: a field, an operator and a value.

    Attributes:
        name: One of `oteval.model.columns.FIELDS`, or ``attributes.KEY``.
        operator: One of ``= != ~ > < >= <=``; ``~`` searches for a regular expression.
        value: The value to compare with, as text.
    """

    name: str
    operator: str
    value: str

    def holds(self, trajectory: Trajectory) -> bool:
        """Whether the comparison is true for a trajectory."""
        return self.accepts(column_values(trajectory))

    def accepts(self, values: RunValues) -> bool:
        """Whether the comparison is true for the run's column, or for any of its texts.

        It is false if the column is unknown. An attribute that a run lacks is known to differ.
        """
        if self.operator == "!=":
            if self.name in COLUMNS and values(self.name) is None:
                return False
            return not any(_equal(item, self.value) for item in items_of(self.name, values))
        actual = items_of(self.name, values)
        return any(_compare(item, self.operator, self.value) for item in actual)


def _equal(actual: Any, expected: str) -> bool:
    if isinstance(actual, bool):
        return str(actual).lower() == expected.lower()
    if isinstance(actual, (int, float)):
        try:
            return actual == float(expected)
        except ValueError:
            return False
    return str(actual) == expected


def _compare(actual: Any, operator: str, expected: str) -> bool:
    if operator == "=":
        return _equal(actual, expected)
    if operator == "~":
        return compile_pattern(expected).search(str(actual)) is not None
    try:
        left, right = float(actual), float(expected)
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
        near = difflib.get_close_matches(name, FIELDS, 1)
        hint = f", perhaps {near[0]!r}" if near else ""
        field_names = ", ".join([*FIELDS, "attributes.KEY"])
        raise ConfigError(
            f"--where {text!r}: unknown field {name!r}{hint}; the fields are {field_names}"
        )
    if operator == "~":
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ConfigError(f"--where {text!r}: invalid regular expression: {error}") from error
    if operator[0] in "<>" or (operator != "~" and _is_number(name)):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise ConfigError(f"--where {text!r}: {operator} compares with a number")
    return Condition(name, operator, value)


def _is_number(name: str) -> bool:
    return name in COLUMNS and COLUMNS[name].kind == "number"


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
        ids: Trajectory ids or prefixes; one must match.
        since_ns: The earliest start of a run, in nanoseconds since the Unix epoch.
        until_ns: The time before which a run must start, in the same unit.
        agents: Agent names; one must match.
        services: Service names; one must match.
        conversations: Conversation ids; one must match.
        models: Models; a run must have used one.
        attributes: Attributes of the root span or its resource, each with the allowed values.
        conditions: Further comparisons, which must all be true.
        asked: Conditions on the question; one must be true. A run whose question was not captured
            does not match.
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
        """Whether the filter, without its `limit`, matches a trajectory."""
        return self.accepts(column_values(trajectory))

    def accepts(self, values: RunValues) -> bool:
        """Whether the filter, without its `limit`, matches a run with these columns."""
        if not self._accepts_columns(values):
            return False
        for key, accepted in self.attributes.items():
            actual = values(f"attributes.{key}")
            if actual is None or not any(_equal(actual, value) for value in accepted):
                return False
        if not all(condition.accepts(values) for condition in self.conditions):
            return False
        if self.asked and not any(condition.accepts(values) for condition in self.asked):
            return False
        return self.excluded is None or not self.excluded.accepts(values)

    def _accepts_columns(self, values: RunValues) -> bool:
        if self.ids and not values("id").startswith(self.ids):
            return False
        if self.since_ns is not None and values("started") < self.since_ns:
            return False
        if self.until_ns is not None and values("started") >= self.until_ns:
            return False
        return all(set(accepted) & set(items_of(name, values)) for name, accepted in self.texts())

    def narrowed(self, other: Selection) -> Selection:
        """The runs that match both filters, and of these the latest up to a limit.

        Raises:
            ConfigError: Both have values for the same text or limit, which one filter cannot have.
        """
        for name in ("agents", "services", "conversations", "models", "limit"):
            if getattr(self, name) and getattr(other, name):
                raise ConfigError(
                    f"{name.removesuffix('s')}: filtered twice; give all values at once"
                )
        starts = [ns for ns in (self.since_ns, other.since_ns) if ns is not None]
        ends = [ns for ns in (self.until_ns, other.until_ns) if ns is not None]
        return replace(
            self,
            since_ns=max(starts, default=None),
            until_ns=min(ends, default=None),
            agents=self.agents or other.agents,
            services=self.services or other.services,
            conversations=self.conversations or other.conversations,
            models=self.models or other.models,
            conditions=(*self.conditions, *other.conditions),
            limit=self.limit or other.limit,
        )

    def texts(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each filtered text column with its accepted texts."""
        for name, accepted in (
            ("agent", self.agents),
            ("service", self.services),
            ("conversation", self.conversations),
            ("model", self.models),
        ):
            if accepted:
                yield name, accepted

    def columns(self) -> Iterator[str]:
        """Yield the names of the tested columns, as `RunValues` accepts them."""
        yield from (condition.name for condition in (*self.conditions, *self.asked))
        yield from (f"attributes.{key}" for key in self.attributes)
        yield from (name for name, _ in self.texts())
        yield from ("id",) if self.ids else ()
        yield from () if self.since_ns is None and self.until_ns is None else ("started",)
        yield from self.excluded.columns() if self.excluded is not None else ()


EVERYTHING = Selection()


def select(**filters: Any) -> Selection:
    """The selection that filters describe.

    Args:
        filters: The filters by the names of the command line: ``since`` and ``until`` as texts (see
            `time_of`); ``service``, ``agent``, ``conversation``, ``model`` and ``where`` as lists
            of texts; ``limit`` as a number. Other names are ignored.

    Raises:
        ConfigError: A filter cannot be parsed.
    """
    return Selection(
        since_ns=time_of(filters.get("since"), "--since"),
        until_ns=time_of(filters.get("until"), "--until"),
        services=tuple(filters.get("service") or ()),
        agents=tuple(filters.get("agent") or ()),
        conversations=tuple(filters.get("conversation") or ()),
        models=tuple(filters.get("model") or ()),
        conditions=tuple(parse_condition(text) for text in filters.get("where") or ()),
        limit=filters.get("limit"),
    )


def time_of(text: str | None, option: str) -> int | None:
    """A time in nanoseconds, from an ISO date or time (UTC by default) or an age ("2h")."""
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
    return ns_of_datetime(when)
