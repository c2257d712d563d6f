"""The columns of a run: each figure to select, group, list and watch runs by, defined once.

A column has a name, a meaning and a value. `COLUMNS` defines the fields of ``--where`` and of the
search of the pages, the measures of monitors, and the columns of lists in the terminal, on pages
and for agents. `oteval.store.column_sql` has the same values in SQL, under the same names.

To add a column, write an entry here and its SQL there; to store more of a run than now, follow the
steps in `oteval.store` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ..base.times import seconds_between
from .trajectory import Message, ToolCall, Trajectory
from .usage import Usage

__all__ = [
    "COLUMNS",
    "FIELDS",
    "GROUPS",
    "LISTED",
    "LONGEST_ASKED",
    "MEASURES",
    "RowColumn",
    "RunColumn",
    "RunRow",
    "RunValues",
    "call_errors",
    "call_results",
    "column_values",
    "group_text",
    "items_of",
]

LONGEST_ASKED = 1500
"""The maximum length (characters) of a run's question in a list."""
_HOUR = 3600 * 10**9

RunValues = Callable[[str], Any]
"""Returns the value of a run's column by its name, or of an attribute by ``attributes.KEY``."""


def _same_text(text: str) -> tuple[str, ...]:
    return (text,)


def _prompt_names(prompt: str) -> tuple[str, ...]:
    """The names by which a prompt is found: with its version, and without it."""
    name = prompt.rpartition("@")[0]
    return (prompt, name) if name else (prompt,)


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of a table that `oteval.open` gives.

    Attributes:
        name: Its name.
        meaning: Its meaning, a noun phrase.
        kind: Whether its value is a text that is "" if it is unknown, a content that may be "", a
            tuple of texts, a number, a time in nanoseconds since the Unix epoch, or a flag that is
            True or False.
        value: Returns its value for a row's object; None if the object lacks it.
        unit: The unit of a number: ``s``, ``tokens``, ``share``, ``score``, ``usd`` or "". Numbers
            without a unit and tokens are integers.
    """

    name: str
    meaning: str
    kind: Literal["text", "content", "texts", "number", "time", "flag"]
    value: Callable[[Any], Any]
    unit: Literal["", "s", "tokens", "share", "score", "usd"] = ""

    @property
    def is_integer(self) -> bool:
        """Whether its values are integers."""
        return self.kind == "number" and self.unit in ("", "tokens")


@dataclass(frozen=True, slots=True)
class RunColumn(RowColumn):
    """A column of a run.

    Attributes:
        title: The head of its column in lists, if not its name.
        is_field: Whether ``--where`` accepts it.
        measure: Its name as a measure of monitors, or "".
        spellings: Returns all texts that equal one of its texts.
        group: The group of a run with several texts, if runs are grouped by it: the group of the
            ``first`` text, or of ``all`` together. "" if runs are not grouped by it.
    """

    title: str = ""
    is_field: bool = True
    measure: str = ""
    spellings: Callable[[str], tuple[str, ...]] = _same_text
    group: Literal["", "first", "all"] = ""

    @property
    def head(self) -> str:
        """The head of its column in lists."""
        return self.title or self.name.replace("_", " ")

    @property
    def is_share(self) -> bool:
        """Whether the mean of its values is a share."""
        return self.unit == "share"

    @property
    def has_spellings(self) -> bool:
        """Whether other spellings also find a value."""
        return self.spellings is not _same_text


def call_results(messages: Sequence[Message]) -> tuple[Message | None, ...]:
    """The result of each call, None if unknown; results are paired by id, then by order."""
    paired: list[Message | None] = []
    for at, message in enumerate(messages):
        results = []
        for later in messages[at + 1 :] if message.tool_calls else ():
            if later.role == "assistant":
                break
            if later.role == "tool":
                results.append(later)
        for call in message.tool_calls:
            match = next((r for r in results if r.tool_call_id == call.id), None)
            if match is not None:
                results.remove(match)
            paired.append(match)
    return tuple(paired)


def call_errors(messages: Sequence[Message]) -> tuple[bool | None, ...]:
    """Whether each call failed; None without its result."""
    return tuple(None if result is None else result.is_error for result in call_results(messages))


def _calls(run: Trajectory) -> list[ToolCall]:
    return [call for message in run.own_messages for call in message.tool_calls]


def _question(run: Trajectory) -> str | None:
    question = run.question
    return question.content if question else None


def _seconds(run: Trajectory) -> float | None:
    return seconds_between(run.start_ns, run.end_ns)


def _tokens(run: Trajectory, *kinds: str) -> int | None:
    """A sum of kinds of tokens; None if the trace does not report the input."""
    return sum(getattr(run.usage, kind) for kind in kinds) if run.usage.is_known else None


def _failed_share(run: Trajectory) -> float | None:
    errors = call_errors(run.own_messages)
    return sum(map(bool, errors)) / len(errors) if errors and None not in errors else None


_ALL = (
    RunColumn(
        "agent",
        "the agent, or the agents of a run that was handed over",
        "texts",
        lambda run: run.agents or (run.agent,),
        group="first",
    ),
    RunColumn(
        "service",
        "the service that emitted the spans",
        "text",
        lambda run: run.service,
        group="all",
    ),
    RunColumn("conversation", "the conversation's id", "text", lambda run: run.conversation_id),
    RunColumn("user", "the user's id", "text", lambda run: run.user, group="all"),
    RunColumn(
        "version",
        "the version of the agent or its service",
        "text",
        lambda run: run.version,
        group="all",
    ),
    RunColumn("model", "the models that answered", "texts", lambda run: run.models, group="all"),
    RunColumn(
        "dialect",
        "the dialects by which the spans were read",
        "texts",
        lambda run: run.dialects,
        group="all",
    ),
    RunColumn(
        "gap",
        "the codes of gaps: the information that the trace lacks",
        "texts",
        lambda run: tuple(dict.fromkeys(gap.code for gap in run.gaps)),
        title="gaps",
    ),
    RunColumn(
        "finish_reason",
        "why the model stopped, for each call that tells it",
        "texts",
        lambda run: run.finish_reasons,
    ),
    RunColumn(
        "prompt",
        "the prompts that were used, as name or name@version",
        "texts",
        lambda run: run.prompts,
        spellings=_prompt_names,
        group="all",
    ),
    RunColumn("turn", "the number of the run in its conversation", "number", lambda run: run.turn),
    RunColumn("parent", "the run that called it", "text", lambda run: run.parent_id),
    RunColumn(
        "tool",
        "the tools called, in order",
        "texts",
        lambda run: tuple(call.name for call in _calls(run)),
        title="tools",
    ),
    RunColumn("calls", "the number of tool calls", "number", lambda run: len(_calls(run))),
    RunColumn(
        "errors",
        "the number of tool results that are failures",
        "number",
        lambda run: sum(message.is_error for message in run.own_messages),
        title="failed",
    ),
    RunColumn(
        "input_tokens",
        "the input tokens, including cached ones",
        "number",
        lambda run: _tokens(run, "input_tokens"),
        unit="tokens",
    ),
    RunColumn(
        "output_tokens",
        "the output tokens, including reasoning",
        "number",
        lambda run: _tokens(run, "output_tokens"),
        unit="tokens",
    ),
    RunColumn(
        "cached_tokens",
        "the input tokens that came from a cache",
        "number",
        lambda run: _tokens(run, "cached_tokens"),
        unit="tokens",
    ),
    RunColumn(
        "seconds",
        "how long the run took, if its times are known",
        "number",
        _seconds,
        unit="s",
        title="time",
        measure="latency",
    ),
    RunColumn(
        "tokens",
        "the input and output tokens",
        "number",
        lambda run: _tokens(run, "input_tokens", "output_tokens"),
        unit="tokens",
        measure="tokens",
    ),
    RunColumn(
        "tool_errors",
        "the share of tool calls that failed, if the result of each call is known",
        "number",
        _failed_share,
        unit="share",
    ),
    RunColumn(
        "messages",
        "the number of the run's own messages",
        "number",
        lambda run: len(run.own_messages),
        title="msgs",
        measure="length",
    ),
    RunColumn("asked", "the question, if it was captured", "text", _question),
    RunColumn("id", "the run's id", "text", lambda run: run.id, is_field=False),
    RunColumn("started", "when the run began", "time", lambda run: run.start_ns, is_field=False),
    RunColumn(
        "hour",
        "the start of the hour in which the run began",
        "time",
        lambda run: run.start_ns // _HOUR * _HOUR,
        is_field=False,
    ),
)
COLUMNS: Mapping[str, RunColumn] = {column.name: column for column in _ALL}
"""The columns by name, in their order in lists."""
FIELDS = tuple(column.name for column in _ALL if column.is_field)
"""The columns that a condition may name, besides ``attributes.KEY``."""
GROUPS = tuple(column.name for column in _ALL if column.group)
"""The columns by which runs are grouped, besides ``attributes.KEY``."""
LISTED = tuple(name for name in COLUMNS if name != "hour")
"""The columns of lists."""
MEASURES: Mapping[str, RunColumn] = {column.measure: column for column in _ALL if column.measure}
"""The columns that monitors watch, by the names of their measures."""


def column_values(run: Trajectory) -> RunValues:
    """The function that returns the values of a run's columns."""
    return partial(_column_value, run)


def _column_value(run: Trajectory, name: str) -> Any:
    key = name.removeprefix("attributes.")
    return run.attributes.get(key) if key != name else COLUMNS[name].value(run)


def items_of(name: str, values: RunValues) -> tuple[Any, ...]:
    """Everything that equals a value of a run's column; nothing if the run lacks it."""
    value = values(name)
    if value is None:
        return ()
    if name not in COLUMNS or COLUMNS[name].kind != "texts":
        return (value,)
    spellings = COLUMNS[name].spellings
    return tuple(text for item in value for text in spellings(item))


def group_text(name: str, values: RunValues) -> str:
    """The name of the group of runs with equal values of a column; "" without a value."""
    value = values(name)
    if name not in COLUMNS or COLUMNS[name].kind != "texts":
        return "" if value is None else str(value)
    return ", ".join(value[:1] if COLUMNS[name].group == "first" else value)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in a list: the values of some columns, from its row in the store or from the run.

    Attributes:
        values: The values by name, always with ``id`` and ``started``; a question is cut.
        usage: Its tokens and model calls, for its cost.
    """

    values: Mapping[str, Any]
    usage: Usage

    @classmethod
    def of(
        cls, run: Trajectory, names: Sequence[str] = LISTED, longest: int = LONGEST_ASKED
    ) -> RunRow:
        """The row of a run that was read already.

        Args:
            run: The run.
            names: The columns.
            longest: The maximum length of its question.
        """
        values = {name: COLUMNS[name].value(run) for name in ("id", "started", *names)}
        if values.get("asked"):
            values["asked"] = values["asked"][:longest]
        return cls(values, run.usage)

    def __getitem__(self, name: str) -> Any:
        """The value of a column.

        Raises:
            KeyError: It was not read.
        """
        return self.values[name]

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.values["id"])

    @property
    def agent(self) -> str:
        """The first agent, else the service, or ""."""
        return next((name for name in self.values["agent"] if name), str(self.values["service"]))
