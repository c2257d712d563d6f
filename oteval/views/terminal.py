"""A run in the terminal: its messages and scores, and how each span of its trace was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..base.jsontext import dumps
from ..base.text import counted
from ..model import Gap, Message, Score, ToolCall, Trajectory, unusual_reasons
from ..scoring import Explanation, SpanAccount
from .columns import Column, Columns, cut, one_row
from .run_texts import tokens_text
from .text import (
    call_text,
    clean,
    clock,
    duration,
    ran_in_parallel,
    short_ids,
    shorten,
    size_of,
    spans_by_gap,
    tool_names,
)

__all__ = ["ROLE_STYLES", "explanation_view", "trajectory_view", "verdict"]

ROLE_STYLES = {
    "system": "magenta",
    "developer": "magenta",
    "user": "bold cyan",
    "assistant": "bold green",
    "tool": "yellow",
}
STATUS_STYLES = {"pass": "green", "fail": "bold red"}
_KIND_STYLES = {"agent": "bold cyan", "model call": "bold green", "tool": "yellow"}
_MAX_INDENT = 12
_MAX_NAME = 60


def trajectory_view(
    trajectory: Trajectory,
    scores: Sequence[Score] = (),
    *,
    whole: bool = False,
    length: int = 1000,
) -> RenderableType:
    """A trajectory with its calls, results, gaps and scores.

    Args:
        trajectory: The trajectory.
        scores: Its scores.
        whole: Whether to also show the messages of earlier turns.
        length: How many characters of a message to show.
    """
    parts: list[RenderableType] = [_header(trajectory)]
    if whole:
        parts.extend(_conversation(trajectory, length))
    else:
        parts.extend(_earlier(trajectory))
        tools = tool_names(trajectory.own_messages)
        for index, message in enumerate(trajectory.own_messages, trajectory.new_from):
            parts.append(_message(index, message, length, tools))
    parts.extend(_rewrites(trajectory))
    parts.extend(_gaps(trajectory.gaps))
    parts.extend(_scores(scores))
    return Group(*parts)


def _conversation(trajectory: Trajectory, length: int) -> Iterator[RenderableType]:
    """Yield all messages up to a run's end, each turn under its number."""
    runs = [trajectory]
    while (before := runs[-1].history) is not None:
        runs.append(before)
    turns = {run.new_from: run for run in reversed(runs)}
    tools = tool_names(trajectory.messages)
    for index, message in enumerate(trajectory.messages):
        if index in turns:
            yield _turn_rule(turns[index])
        yield _message(index, message, length, tools)


def _turn_rule(run: Trajectory) -> RenderableType:
    return Rule(Text(f"turn {run.turn}", style="dim"), style="dim", align="left")


def _earlier(run: Trajectory) -> Iterator[RenderableType]:
    """Yield a note on the earlier messages, and the number of the turn."""
    if run.new_from:
        note = f"  … {counted(run.new_from, 'earlier message')} (--all shows them)"
        yield Text(note, style="dim")
    if run.turn > 1:
        yield _turn_rule(run)


def _header(t: Trajectory) -> RenderableType:
    title = Text.assemble(
        (clean(t.agent) or "(no agent span)", "bold"),
        ("  trajectory ", "dim"),
        t.id,
        (f"  rev {t.rev}", "dim") if t.rev > 1 else "",
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    rows = [
        ("when", f"{clock(t.start_ns)}, {duration(t.end_ns - t.start_ns)}"),
        ("conversation", t.conversation_id),
        ("turn", str(t.turn)),
        ("user", t.user),
        ("version", t.version),
        ("service", t.service),
        ("models", ", ".join(t.models)),
        ("tokens", tokens_text(t.usage)),
        ("stopped by", ", ".join(unusual_reasons(t.finish_reasons))),
        ("prompts", ", ".join(t.prompts)),
        ("retrieved", counted(len(t.documents), "document") if t.documents else ""),
        ("dialect", ", ".join(t.dialects)),
        ("called by", f"{t.parent_id} {t.parent_call_id}".strip()),
        ("root span", f"{t.root_span.trace_id}/{t.root_span.span_id}"),
    ]
    for name, value in rows:
        if value:
            grid.add_row(name, Text(clean(value)))
    return Group(Rule(style="dim"), title, Padding(grid, (0, 0, 1, 2)))


def _message(index: int, message: Message, length: int, tools: Mapping[str, str]) -> RenderableType:
    style = ROLE_STYLES.get(message.role, "bold")
    if message.is_error:
        style = "bold red"
    head = Text.assemble((f"{index:>4} ", "dim"), (f"{clean(message.role):<10}", style))
    if message.is_error:
        head.append("failed  ", "bold red")
    if message.role == "tool":
        tool = message.name or tools.get(message.tool_call_id, "")
        head.append(clean(f"{tool} {message.tool_call_id}".strip()), "dim")
    body: list[RenderableType] = []
    if message.content:
        body.append(Text(shorten(message.content, length)))
    elif message.content is None and not message.tool_calls and not message.parts:
        body.append(Text("(content not captured)", style="dim italic"))
    for part in message.parts:
        kind = part.get("type", "part")
        body.append(Text(shorten(f"[{kind}] {dumps(part)}", min(length, 200)), style="dim"))
    body.extend(_call(call, message.tool_calls) for call in message.tool_calls)
    return Group(head, Padding(Group(*body), (0, 0, 0, 5)))


def _call(call: ToolCall, calls: Sequence[ToolCall]) -> Text:
    text = Text.assemble(("→ ", "bold blue"), (shorten(call_text(call), 600), "blue"))
    if call.start_ns and call.end_ns:
        text.append(f"  {duration(call.end_ns - call.start_ns)}", "dim")
    if ran_in_parallel(call, calls):
        text.append("  in parallel", "dim")
    return text


def _rewrites(trajectory: Trajectory) -> list[RenderableType]:
    return [
        Text(
            f"  history rewritten at message {rewrite.at}: "
            f"{counted(len(rewrite.messages), 'message')} "
            f"{'was' if len(rewrite.messages) == 1 else 'were'} replaced (--json holds "
            f"{'it' if len(rewrite.messages) == 1 else 'them'})",
            style="yellow",
        )
        for rewrite in trajectory.rewrites
    ]


def _gaps(gaps: Sequence[Gap]) -> list[RenderableType]:
    """The gaps; equal gaps are on one line, with the number of their spans."""
    if not gaps:
        return []
    head = Text("Gaps", style="bold yellow")
    return [
        head,
        *(
            _gap_line(code, detail, size_of(ids))
            for (code, detail), ids in spans_by_gap(gaps).items()
        ),
    ]


def _gap_line(code: str, detail: str, where: str) -> RenderableType:
    line = Text.assemble((code, "yellow"), f"  {clean(detail)}  ", (where, "dim"))
    return Padding(line, (0, 0, 0, 2))


def verdict(score: Score) -> Text:
    """A score in a word or a number, coloured."""
    if score.status != "ok":
        return Text(score.status.replace("_", " "), style="yellow")
    word = one_row(score.label).plain or ("" if score.passed is None else str(score.passed))
    number = "" if score.score is None or word in ("pass", "fail") else f"{score.score:.3g} "
    return Text(f"{number}{word}".strip(), style=STATUS_STYLES.get(word, ""))


def _scores(scores: Sequence[Score]) -> list[RenderableType]:
    if not scores:
        return []
    table = Columns(
        Column("evaluator", least=10, most=24),
        Column("verdict", rank=1, least=8, most=16),
        Column("why", rank=2, least=20, optional=True, wraps=True),
    )
    for score in scores:
        why = one_row(shorten(score.comment, 600))
        table.add_row(one_row(score.evaluator, "bold"), verdict(score), why)
    return [Text("Scores", style="bold"), Padding(table, (0, 0, 0, 2))]


def explanation_view(explanation: Explanation) -> RenderableType:
    """A trace's spans as a tree, with the messages from each span, and the gaps.

    Args:
        explanation: How the trace was read.
    """
    return Group(_head(explanation), _tree(explanation), *_missing(explanation))


def _head(explanation: Explanation) -> RenderableType:
    counts = (
        counted(len(explanation.accounts), "span"),
        counted(explanation.log_records, "log record"),
        counted(len(explanation.trajectories), "trajectory"),
    )
    return Text.assemble(
        ("trace ", "dim"), (explanation.trace_id, "bold"), f"  {', '.join(counts)}"
    )


def _tree(explanation: Explanation) -> RenderableType:
    table = Columns(
        Column("id", rank=1),
        Column("span", least=16, most=40),
        Column("read as", rank=2),
        Column("dialect", rank=4, extra=True, least=8, most=20),
        Column("holds", rank=5, extra=True, least=16, most=30, optional=True),
        Column("gives", rank=3, least=20, optional=True, wraps=True),
    )
    spans = short_ids(account.span.span_id for account in explanation.accounts)
    runs = short_ids(account.trajectory_id for account in explanation.accounts)
    for account in explanation.accounts:
        table.add_row(
            Text(spans[account.span.span_id], style="dim"),
            _name(account),
            Text(account.kind or "–", style=_KIND_STYLES.get(account.kind, "dim")),
            Text(account.dialect or "–", style="" if account.dialect else "dim"),
            one_row(account.holds),
            _gives(account, runs.get(account.trajectory_id, "")),
        )
    return Padding(table, (1, 0))


def _name(account: SpanAccount) -> Text:
    name = cut(one_row(account.span.name), _MAX_NAME).plain
    indent = "  " * min(account.depth, _MAX_INDENT)
    style = "red" if account.span.is_error else ""
    return Text.assemble(indent, (name, style))


def _gives(account: SpanAccount, run: str) -> Text:
    text = Text()
    if account.messages:
        first, last = account.messages[0], account.messages[-1]
        places = f"{first}" if first == last else f"{first}-{last}"
        noun = "message" if len(account.messages) == 1 else "messages"
        text.append(f"{noun} {places} of {run}")
    elif account.note:
        text.append(account.note, "dim")
    elif account.trajectory_id:
        text.append(f"trajectory {run}")
    codes = ", ".join(dict.fromkeys(gap.code for gap in account.gaps))
    if codes:
        text.append(f"{'; ' if text else ''}{codes}", "yellow")
    return text


def _missing(explanation: Explanation) -> list[RenderableType]:
    if not explanation.accounts:
        return [Text("The spans of this trace are not stored.", style="yellow")]
    if not explanation.gaps:
        return [Text("Nothing is missing.", style="green")]
    lines: list[RenderableType] = [Text("Missing content, and how to capture it", style="bold")]
    for (code, detail), spans in explanation.gaps.items():
        lines.append(_gap_line(code, detail, counted(len(spans), "span")))
    return lines
