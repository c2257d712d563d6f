"""The tool diff_runs: where a run first diverges from another one, or from its reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import Field

from ...base.errors import ConfigError, NotFound
from ...base.jsontext import canonical
from ...base.text import counted
from ...evaluators import to_messages
from ...model import Message, ToolCall
from ...scoring import AlignedPair, align, first_divergence, reference_of_run
from ...store import Store
from ..text import shared_start, tool_names
from .arguments import McpTool, RunName, ToolArguments
from .results import DataBlock, given, message_row
from .workspace import Workspace

__all__ = ["DIFF_TOOL"]

# The characters of a row that differs, of an equal row, and of the first calls that differ.
_DIFFERENT, _SAME, _CALLS = 3000, 300, 4000
# Rows before the first divergence, and characters before the first difference of two texts.
_ROWS_BEFORE, _LEAD = 2, 60


class _DiffRuns(ToolArguments):
    run: RunName
    other: str = Field(
        "", max_length=128, description="The run to compare with, instead of a reference."
    )
    reference: str = Field(
        "", max_length=500, description="A stored reference to compare with; see add_reference."
    )
    evaluator: str = Field(
        "", max_length=500, description="Compare with the reference of this evaluator."
    )
    earlier: bool = Field(False, description="Compare earlier turns as well.")
    start: int | None = Field(
        None,
        ge=0,
        description="The row to begin with; by default just before the divergence.",
    )


class _DiffSide(NamedTuple):
    """A side of the comparison.

    Attributes:
        name: Its description, without text of a trace.
        messages: Its messages.
        start: The number of the first message.
        is_run: Whether it is a run rather than a reference.
    """

    name: str
    messages: Sequence[Message]
    start: int = 0
    is_run: bool = False


def _diff_runs(workspace: Workspace, arguments: _DiffRuns) -> str:
    with workspace.store() as store:
        right = _run_side(store, arguments.run, arguments.earlier)
        left = _other_side(workspace, store, arguments)
    pairs = align(left.messages, right.messages)
    first = first_divergence(pairs)
    block = DataBlock("diff")
    same, lines = _same_calls(left, right), [f"Expected: {left.name}. Compared: {right.name}."]
    if same is not None:
        block.add(_different_calls(left, right, same), _CALLS)
        lines.append(f"Tool call {same + 1} is the first that differs: see the first line of data.")
    lines.append(_summary(pairs, first))
    start = arguments.start
    if start is None:
        # Many references have neither results nor answers, so that all their messages differ.
        call_at = None if left.is_run or same is None else _row_of_call(pairs, right, same)
        start = max(0, (first or 0 if call_at is None else call_at) - _ROWS_BEFORE)
    following = _rows(block, pairs, start, first, left, right)
    if following:
        lines.append(f"There are more rows: call again with start={following}.")
    return block.text(*lines)


def _run_side(store: Store, name: str, earlier: bool) -> _DiffSide:
    run = store.trajectories.get(name)
    if earlier:
        return _DiffSide(f"run {run.id}", run.messages, is_run=True)
    return _DiffSide(f"run {run.id}", run.own_messages, run.new_from, is_run=True)


def _other_side(workspace: Workspace, store: Store, arguments: _DiffRuns) -> _DiffSide:
    """The side that the run is compared with.

    Raises:
        ConfigError: More than one was given, or no configuration names a reference.
        NotFound: The other side does not exist.
    """
    if sum(map(bool, (arguments.other, arguments.reference, arguments.evaluator))) > 1:
        raise ConfigError("give one of other, reference and evaluator, or none of them")
    if arguments.other:
        return _run_side(store, arguments.other, arguments.earlier)
    if arguments.reference:
        reference = store.references.get(arguments.reference)
        return _DiffSide("the reference", to_messages(list(reference.messages)))
    run = store.trajectories.get(arguments.run)
    try:
        _, reference = reference_of_run(
            run, workspace.config(), store, workspace.folder, arguments.evaluator
        )
    except (ConfigError, NotFound) as error:
        raise NotFound(f"{error}; give other (a run) or reference (a name)") from error
    name = f"the reference {reference.name} of an evaluator"
    return _DiffSide(name, to_messages(list(reference.messages)))


def _summary(pairs: Sequence[AlignedPair], first: int | None) -> str:
    compared = [pair for pair in pairs if not pair.is_system]
    unknown = sum(not pair.is_captured for pair in compared)
    text = f"Messages: no difference in {counted(len(compared), 'row')}."
    if first is not None:
        differing = sum(not pair.same for pair in compared)
        rows = f"{differing} of {counted(len(compared), 'row')}"
        text = f"Messages: first divergence in row {first}; {rows} differ."
    if unknown:
        text += f" {counted(unknown, 'row')} could not be compared in full (content not captured)."
    return text


def _same_calls(left: _DiffSide, right: _DiffSide) -> int | None:
    """How many calls are the same at the beginning, or None if all calls are."""
    ours, theirs = _calls(left), _calls(right)
    pairs = zip(ours, theirs, strict=False)
    differing = (
        at
        for at, (left_call, right_call) in enumerate(pairs)
        if _key(left_call) != _key(right_call)
    )
    same = next(differing, min(len(ours), len(theirs)))
    return None if same == len(ours) == len(theirs) else same


def _different_calls(left: _DiffSide, right: _DiffSide, same: int) -> dict[str, Any]:
    """The row of the first calls that differ."""
    ours, theirs = _calls(left), _calls(right)
    in_another_order = sorted(map(_key, ours)) == sorted(map(_key, theirs))
    return given(
        {
            "first_different_call": same + 1,
            "expected": _call_row(ours, same),
            "run": _call_row(theirs, same),
            "calls": {"expected": len(ours), "run": len(theirs)},
            "same_calls_in_another_order": in_another_order or None,
        }
    )


def _row_of_call(pairs: Sequence[AlignedPair], side: _DiffSide, number: int) -> int | None:
    """The row of the right side's call with a number; None if the side has fewer."""
    calls = _calls(side)
    if number >= len(calls):
        return None
    target_call = calls[number]
    rows = enumerate(pair.right for pair in pairs)
    return next(
        (
            at
            for at, message in rows
            if message and any(call is target_call for call in message.tool_calls)
        ),
        None,
    )


def _calls(side: _DiffSide) -> list[ToolCall]:
    return [call for message in side.messages for call in message.tool_calls]


def _key(call: ToolCall) -> str:
    return f"{call.name} {canonical(call.arguments)}"


def _call_row(calls: Sequence[ToolCall], at: int) -> Any:
    if at >= len(calls):
        return "(no further call)"
    arguments = calls[at].arguments
    row_arguments = "(not captured)" if arguments is None else arguments
    return {"tool": calls[at].name, "arguments": row_arguments}


def _rows(
    block: DataBlock,
    pairs: Sequence[AlignedPair],
    start: int,
    first: int | None,
    left: _DiffSide,
    right: _DiffSide,
) -> int:
    """Add rows of messages to a block, and return the number of the next one; 0 at the end."""
    names = (tool_names(left.messages), tool_names(right.messages))
    for number, pair in enumerate(pairs[start:], start):
        cut_at = 0 if pair.same else shared_start(pair.left, pair.right, _LEAD)
        row = {"row": number, "first_divergence": number == first or None, "same": pair.same}
        if pair.same:
            row["both"] = _message(pair.right_at, right, pair.right, names[1], cut_at)
        else:
            row["expected"] = _message(pair.left_at, left, pair.left, names[0], cut_at)
            row["run"] = _message(pair.right_at, right, pair.right, names[1], cut_at)
        if not block.add(given(row), _SAME if pair.same else _DIFFERENT):
            return number
    return 0


def _message(
    at: int | None, side: _DiffSide, message: Message | None, names: dict[str, str], cut_at: int
) -> Any:
    if message is None:
        return "(no such message)"
    text = message.content
    if text and cut_at:
        text = f"({counted(cut_at, 'equal character')}) … {text[cut_at:]}"
    return message_row(None if at is None else at + side.start, message, names, text)


DIFF_TOOL = McpTool(
    "diff_runs",
    "Compare a run with its reference (of the evaluators in oteval.yaml, by default), with another "
    "run, or with a stored reference: the first tool call and the first message that differ. "
    "Without a reference, give a run that passes the same question as other.",
    _DiffRuns,
    _diff_runs,
)
