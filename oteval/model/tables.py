"""The tables that `oteval.open` gives: the columns of runs, messages, calls, scores, and others.

`TABLES` defines each column once: its name, its meaning, its type and its value. Data frames, CSV
files and docs/reference/tables.md follow it. The columns of runs are those of ``--where``.

To add a column, write an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from ..base.jsontext import dumps, dumps_exact
from ..base.times import datetime_of, seconds_between
from .columns import COLUMNS, LISTED, RowColumn, RunColumn, group_text
from .experiment import Example, Experiment, Feedback, Run
from .trajectory import Message, ToolCall, Trajectory

__all__ = [
    "TABLES",
    "CallRow",
    "ExperimentResultRow",
    "MessageRow",
    "TableName",
    "cell",
    "is_list",
]

TableName = Literal["runs", "messages", "calls", "scores", "experiments", "labels"]


class MessageRow(NamedTuple):
    """A message of a run.

    Attributes:
        run: The run.
        number: The message's number in its conversation, from 0.
        message: The message.
    """

    run: Trajectory
    number: int
    message: Message


class CallRow(NamedTuple):
    """A tool call of a run.

    Attributes:
        run: The run.
        message: The number of its message in the conversation, from 0.
        number: Its number in the run, from 0.
        call: The call.
        result: The message with its result, if the trace has it.
    """

    run: Trajectory
    message: int
    number: int
    call: ToolCall
    result: Message | None


@dataclass(frozen=True, slots=True)
class ExperimentResultRow:
    """A result of an evaluator on a run of an experiment.

    Attributes:
        experiment: The experiment.
        example: The example, None if the dataset lacks it.
        run: The run.
        feedback: The result; None for a run without one.
    """

    experiment: Experiment
    example: Example | None
    run: Run
    feedback: Feedback | None


def _arguments(row: CallRow) -> str | None:
    arguments = row.call.arguments
    return arguments if arguments is None or isinstance(arguments, str) else dumps_exact(arguments)


def _feedback(name: str) -> Any:
    """The function that returns a field of a row's feedback."""
    return lambda row: None if row.feedback is None else getattr(row.feedback, name)


def _of_run(row: MessageRow | CallRow) -> str:
    return row.run.id


_RUN = "the run's id, the `id` of runs"
_PASSED = "whether it is a pass; empty for an error, and for a result that neither passes nor fails"
_STATUS = "ok, error or not_evaluated"
_MESSAGES = (
    RowColumn("run", _RUN, "text", _of_run),
    RowColumn(
        "number", "the message's number in its conversation, from 0", "number", lambda r: r.number
    ),
    RowColumn(
        "role", "system, developer, user, assistant or tool", "text", lambda r: r.message.role
    ),
    RowColumn(
        "content", "the text; empty if the trace lacks it", "content", lambda r: r.message.content
    ),
    RowColumn("name", "the name of the tool or participant", "text", lambda r: r.message.name),
    RowColumn(
        "calls", "the number of its tool calls", "number", lambda r: len(r.message.tool_calls)
    ),
    RowColumn(
        "call_id", "the id of the call that it answers", "text", lambda r: r.message.tool_call_id
    ),
    RowColumn(
        "failed",
        "whether a tool's result is a failure; empty for other messages",
        "flag",
        lambda r: r.message.is_error if r.message.role == "tool" else None,
    ),
    RowColumn(
        "parts",
        "the number of its images, files and other parts that are not text",
        "number",
        lambda r: len(r.message.parts),
    ),
    RowColumn("trace", "the id of its trace", "text", lambda r: r.message.trace_id),
    RowColumn("span", "the id of its span", "text", lambda r: r.message.span_id),
)
_CALLS = (
    RowColumn("run", _RUN, "text", _of_run),
    RowColumn("number", "the call's number in the run, from 0", "number", lambda r: r.number),
    RowColumn(
        "message",
        "the number of its message in the conversation, from 0",
        "number",
        lambda r: r.message,
    ),
    RowColumn("tool", "the tool's name", "text", lambda r: r.call.name),
    RowColumn("arguments", "the arguments as JSON; empty if unknown", "content", _arguments),
    RowColumn(
        "result",
        "the text of the result; empty if unknown",
        "content",
        lambda r: r.result.content if r.result else None,
    ),
    RowColumn(
        "failed",
        "whether the result is a failure; empty without a result",
        "flag",
        lambda r: r.result.is_error if r.result else None,
    ),
    RowColumn("started", "when the tool began", "time", lambda r: r.call.start_ns),
    RowColumn(
        "seconds",
        "how long the tool took",
        "number",
        lambda r: seconds_between(r.call.start_ns, r.call.end_ns),
        "s",
    ),
    RowColumn(
        "by_provider",
        "whether the model's provider ran the tool",
        "flag",
        lambda r: bool(r.call.executed_by),
    ),
    RowColumn("call_id", "the call's id", "text", lambda r: r.call.id),
    RowColumn("span", "the id of the span of its execution", "text", lambda r: r.call.span_id),
)
_SCORES = (
    RowColumn("run", _RUN, "text", lambda s: s.trajectory_id),
    RowColumn("evaluator", "the evaluator's name", "text", lambda s: s.evaluator),
    RowColumn("status", _STATUS, "text", lambda s: s.status),
    RowColumn("passed", _PASSED, "flag", lambda s: s.passed),
    RowColumn("score", "the number", "number", lambda s: s.score, "score"),
    RowColumn("label", "the verdict as a word", "text", lambda s: s.label),
    RowColumn("comment", "the reason", "text", lambda s: s.comment),
    RowColumn("cost", "the cost of the evaluation", "number", lambda s: s.cost, "usd"),
    RowColumn(
        "metadata",
        "further figures, as JSON",
        "text",
        lambda s: dumps(s.metadata) if s.metadata else None,
    ),
    RowColumn(
        "sampled", "the rate at which the run was drawn", "number", lambda s: s.sample_p, "share"
    ),
    RowColumn("scored", "when it was evaluated", "time", lambda s: s.time_ns),
    RowColumn("version", "the version of the evaluator", "text", lambda s: s.version),
    RowColumn("trace", "the id of the run's trace", "text", lambda s: s.trace_id),
    RowColumn("span", "the id of the run's root span", "text", lambda s: s.span_id),
)
_EXPERIMENTS = (
    RowColumn("experiment", "the experiment's name", "text", lambda r: r.experiment.name),
    RowColumn("dataset", "the dataset's name", "text", lambda r: r.experiment.dataset),
    RowColumn("created", "when the experiment began", "time", lambda r: r.experiment.created_ns),
    RowColumn("example", "the example's id", "text", lambda r: r.run.example_id),
    RowColumn(
        "question",
        "the example's question, or its explicit id",
        "text",
        lambda r: r.example.title if r.example else None,
    ),
    RowColumn("repetition", "the repetition, from 0", "number", lambda r: r.run.repetition),
    RowColumn(
        "run", f"{_RUN}; empty for a run without a trace", "text", lambda r: r.run.trajectory_id
    ),
    RowColumn("error", "why the run failed; empty if it did not", "text", lambda r: r.run.error),
    RowColumn(
        "seconds",
        "how long the run took",
        "number",
        lambda r: seconds_between(r.run.start_ns, r.run.end_ns),
        "s",
    ),
    RowColumn(
        "key", "the name of the result; empty for a run without one", "text", _feedback("key")
    ),
    RowColumn("evaluator", "the evaluator's name", "text", _feedback("evaluator")),
    RowColumn("status", _STATUS, "text", _feedback("status")),
    RowColumn("passed", _PASSED, "flag", _feedback("passed")),
    RowColumn("score", "the number", "number", _feedback("score"), "score"),
    RowColumn("label", "the verdict as a word", "text", _feedback("label")),
    RowColumn("comment", "the reason", "text", _feedback("comment")),
)
_LABELS = (
    RowColumn("run", _RUN, "text", lambda label: label.trajectory_id),
    RowColumn(
        "evaluator",
        "the evaluator whose question a person answered; empty for any",
        "text",
        lambda label: label.evaluator,
    ),
    RowColumn("passed", "whether the run passes", "flag", lambda label: label.passed),
    RowColumn(
        "score", "the number that the person set", "number", lambda label: label.score, "score"
    ),
    RowColumn("person", "the person's name", "text", lambda label: label.person),
    RowColumn("note", "the reason", "text", lambda label: label.note),
    RowColumn("labelled", "when the label was stored", "time", lambda label: label.time_ns),
)
TABLES: Mapping[TableName, tuple[RowColumn, ...]] = {
    # The id first: the other tables refer to it.
    "runs": (COLUMNS["id"], *(COLUMNS[name] for name in LISTED if name != "id")),
    "messages": _MESSAGES,
    "calls": _CALLS,
    "scores": _SCORES,
    "experiments": _EXPERIMENTS,
    "labels": _LABELS,
}
"""The columns of each table, in their order."""
assert get_args(TableName) == tuple(TABLES)


def is_list(column: RowColumn) -> bool:
    """Whether a column's cells are lists: texts by which runs are not grouped."""
    return column.kind == "texts" and not (isinstance(column, RunColumn) and column.group)


def cell(column: RowColumn, value: Any) -> Any:
    """A column's value as a cell of a table: None if it is empty, a time as a datetime in UTC.

    Texts by which runs are grouped are one text, the name of the group.
    """
    if column.kind == "time":
        return datetime_of(value) if value and value > 0 else None
    if column.kind == "texts":
        if not is_list(column):
            return group_text(column.name, {column.name: value or ()}.__getitem__) or None
        return [text for text in value or () if text]
    if column.kind == "text":
        return value or None
    return value
