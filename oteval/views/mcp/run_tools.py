"""The tools that find and show runs: list_runs, show_run and explain_run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ...base.errors import ConfigError
from ...base.jsontext import dumps, restore
from ...base.text import counted
from ...evaluators import encode_data
from ...model import FIELDS, Message, Score, Trajectory
from ...scoring import Explanation, explain as explain_trace
from ...store import Outcome, RunKey, VerdictFilter
from ..pages.run_scores import missing_scores
from ..pages.search import RunSearch, find_runs
from ..text import clock, tool_names
from .arguments import McpTool, RunFilters, RunName, Texts, ToolArguments
from .results import LISTED_COLUMNS, DataBlock, fitting, given, message_row, run_head, run_row
from .workspace import Workspace

__all__ = ["RUN_TOOLS"]

# The characters of a row: a run in a list, the head of a run, a message, and a failed message.
_LISTED, _HEAD, _MESSAGE, _FAILED = 1500, 8000, 600, 1500
_SPAN, _GAP = 400, 800
# Seconds for a search that reads runs one by one.
_PATIENCE = 5.0
_KEY = re.compile(r"(-?\d{1,19})-([0-9a-f]{1,64})", re.ASCII)
# Below this, the rest of a block is too short to begin a message in it.
_LEAST_ROOM = 1000


class _ListRuns(RunFilters):
    outcome: Outcome | None = Field(
        None, description="Runs for which the newest score of an evaluator has this outcome."
    )
    evaluator: Texts = Field(
        [], max_length=50, description="Only scores by these evaluators count for outcome."
    )
    columns: Texts = Field(
        [], max_length=20, description="Further fields of where to show of each run."
    )
    count: int = Field(20, ge=1, le=100, description="The most runs to return.")
    after: str = Field("", max_length=100, description="Where the last page ended.")


def _list_runs(workspace: Workspace, arguments: _ListRuns) -> str:
    if unknown := sorted(set(arguments.columns) - {*FIELDS}):
        raise ConfigError(f"columns: {unknown[0][:40]!r} is unknown; there are {', '.join(FIELDS)}")
    verdict = None
    if arguments.outcome is not None or arguments.evaluator:
        verdict = VerdictFilter(arguments.outcome, tuple(arguments.evaluator))
    search = RunSearch(selection=arguments.selection(), verdict=verdict)
    with workspace.store() as store:
        matches = find_runs(
            store, search, arguments.count, after=_key_of(arguments.after), patience=_PATIENCE
        )
        rows = store.run_list.rows(matches.keys, [*LISTED_COLUMNS, *arguments.columns])
        scores = store.scores.of([row.id for row in rows])
    block, after, row_count = DataBlock("runs"), matches.after, 0
    for row in rows:
        if not block.add(run_row(row, scores[row.id], arguments.columns), _LISTED):
            after = RunKey.of(rows[row_count - 1])
            break
        row_count += 1
    lines = [f"{counted(row_count, 'run')}, the newest first."]
    if not row_count and after is None:
        lines = [_nothing_found(arguments)]
    if after is not None:
        none = (
            f" None of {counted(matches.looked_at, 'run')} matched so far." if not row_count else ""
        )
        ended = f"{after.start_ns}-{after.id}"
        lines.append(f'There may be more:{none} call again with after="{ended}".')
    return block.text(*lines)


def _key_of(text: str) -> RunKey | None:
    """The key that a page ended with, None without text.

    Raises:
        ConfigError: The text is not a key.
    """
    if not text:
        return None
    match = _KEY.fullmatch(text.strip())
    if match is None or abs(int(match[1])) >= 1 << 63:
        raise ConfigError(f"after {text!r}: use the text with which a page ended")
    return RunKey(int(match[1]), match[2])


def _nothing_found(arguments: _ListRuns) -> str:
    if arguments.outcome is None and not arguments.evaluator:
        return "No run matches."
    return "No run matches. Only runs with stored scores have an outcome; score_runs scores runs."


class _ShowRun(ToolArguments):
    run: RunName
    full: bool = Field(False, description="Do not shorten messages; read on with start and offset.")
    earlier: bool = Field(False, description="Begin with the earlier turns of the conversation.")
    start: int | None = Field(None, ge=0, description="The number n of the message to begin with.")
    offset: int = Field(0, ge=0, description="With full: begin at this character of the message.")


def _show_run(workspace: Workspace, arguments: _ShowRun) -> str:
    with workspace.store() as store:
        run = store.trajectories.get(arguments.run)
        scores = store.scores.of([run.id])[run.id]
    start = arguments.start
    block = DataBlock("run")
    if start is None:
        start = 0 if arguments.earlier else run.new_from
        block.add(run_head(run, scores, _unscored(workspace, run, scores)), _HEAD)
    elif start >= len(run.messages):
        raise ConfigError(f"start: the run has messages 0 to {len(run.messages) - 1}")
    following = (_whole if arguments.full else _short)(block, run, start, arguments.offset)
    count = counted(len(run.messages), "message")
    lines = [f"Run {run.id}: {count}, of which the run's own begin at n={run.new_from}."]
    if start == run.new_from > 0:
        lines.append("earlier=true begins with the turns before.")
    if following:
        lines.append(f"There is more: call again with {following}.")
    elif not arguments.full:
        lines.append("Long texts are shortened; full=true with start=N shows all of message N.")
    return block.text(*lines)


def _unscored(workspace: Workspace, run: Trajectory, scores: Sequence[Score]) -> dict[str, str]:
    """Why evaluators of the configuration gave a run no score; empty without a file."""
    try:
        config = workspace.config()
    except ConfigError:
        return {}
    scored = {score.evaluator for score in scores}
    return missing_scores(config, run, scored)


def _short(block: DataBlock, run: Trajectory, start: int, offset: int) -> str:
    """Add shortened messages to a block, and return the arguments that continue."""
    del offset
    messages, tools = run.messages, tool_names(run.messages)
    for number in range(start, len(messages)):
        message = messages[number]
        row = message_row(number, message, tools, message.content)
        if not block.add(row, _FAILED if message.is_error else _MESSAGE):
            return f"start={number}"
    return ""


def _whole(block: DataBlock, run: Trajectory, start: int, offset: int) -> str:
    """Add whole messages to a block, and return the arguments that continue."""
    messages, tools = run.messages, tool_names(run.messages)
    for number in range(start, len(messages)):
        message, room = messages[number], block.left
        if room < _LEAST_ROOM:
            return f"full=true, start={number}"
        row = message_row(number, message, tools, message.content)
        if not offset and _size_at_most(row, room):
            block.add(row, room)
            continue
        if number > start:
            return f"full=true, start={number}"
        body = _body(message)
        part = fitting(body[offset:], room - _LEAST_ROOM // 2)
        block.add(
            {"n": number, "role": message.role, "from": offset, "of": len(body), "body": part}
        )
        offset += len(part)
        if offset < len(body):
            return f"full=true, start={number}, offset={offset}"
        offset = 0
    return ""


def _size_at_most(row: dict[str, Any], size: int) -> bool:
    """Whether the JSON of a row has at most so many characters."""
    text = row.get("text") or ""
    return len(text) <= size and len(encode_data(row)) <= size


def _body(message: Message) -> str:
    """A message as text: its content, or its JSON if it has calls or parts.

    The base64 of files is left out, as in all blocks.
    """
    fields = restore(encode_data(message.as_dict()))
    is_text = not message.tool_calls and not message.parts
    return str(fields["content"] or "") if is_text else dumps(fields)


class _ExplainRun(ToolArguments):
    run: RunName
    start: int = Field(0, ge=0, description="The number n of the span to begin with.")


def _explain_run(workspace: Workspace, arguments: _ExplainRun) -> str:
    with workspace.store() as store:
        explanation = explain_trace(store, arguments.run)
    block = DataBlock("spans")
    if not arguments.start:
        for (code, detail), spans in explanation.gaps.items():
            row = {"gap": code, "detail": detail, "spans": len(spans), "first": spans[0]}
            if not block.add(row, _GAP) or block.left < _LEAST_ROOM:
                break
    following = _spans(block, explanation, arguments.start)
    counts = (
        counted(len(explanation.accounts), "span"),
        counted(explanation.log_records, "log record"),
        counted(len(explanation.trajectories), "run"),
        counted(len(explanation.gaps), "gap"),
    )
    lines = [f"Trace {explanation.trace_id}: {', '.join(counts)}."]
    if not explanation.accounts:
        lines.append("Its spans are not stored.")
    if following:
        lines.append(f"There are more spans: call again with start={following}.")
    return block.text(*lines)


def _spans(block: DataBlock, explanation: Explanation, start: int) -> int:
    """Add spans to a block, and return the number of the next one; 0 if there is none."""
    for number, account in enumerate(explanation.accounts[start:], start):
        row = given(
            {
                "n": number,
                "depth": account.depth,
                "span": account.span.span_id,
                "name": account.span.name,
                "failed": account.span.is_error or None,
                "started": clock(account.span.start_ns),
                "read_as": account.kind,
                "dialect": account.dialect,
                "holds": account.holds,
                "run": account.trajectory_id,
                "messages": list(account.messages),
                "note": account.note,
                "gaps": sorted({gap.code for gap in account.gaps}),
            }
        )
        if not block.add(row, _SPAN):
            return number
    return 0


RUN_TOOLS = (
    McpTool(
        "list_runs",
        "List or search agent runs, the newest first: question, tools called, failed calls, gaps, "
        "and the reason of each score that did not pass. Begin here: outcome=fail lists the runs "
        "that fail, with the reasons.",
        _ListRuns,
        _list_runs,
    ),
    McpTool(
        "show_run",
        "Show one run: scores with reasons and figures, gaps, and its messages with tool calls, "
        "arguments and results. Texts are shortened unless full is true.",
        _ShowRun,
        _show_run,
    ),
    McpTool(
        "explain_run",
        "Explain how each span of a run's trace was read: the dialect, the messages it gave or why "
        "none, and for missing content (gaps) the setting that captures it.",
        _ExplainRun,
        _explain_run,
    ),
)
