"""One trajectory, or two side by side, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..jsontext import dumps
from ..model import Gap, Message, Score, ToolCall, Trajectory
from ..pipeline import Pair, first_divergence
from .text import call_text, clean, clock, duration, shorten

__all__ = ["diff_view", "trajectory_view"]

ROLE_STYLES = {
    "system": "magenta",
    "developer": "magenta",
    "user": "bold cyan",
    "assistant": "bold green",
    "tool": "yellow",
}
STATUS_STYLES = {"pass": "green", "fail": "bold red"}


def trajectory_view(
    trajectory: Trajectory,
    scores: Sequence[Score] = (),
    *,
    whole: bool = False,
    length: int = 1000,
) -> RenderableType:
    """Return a trajectory with its calls, results, gaps and scores.

    Args:
        trajectory: The trajectory.
        scores: Its scores.
        whole: Whether to show the messages of the turns before, too.
        length: How many characters of a message to show.
    """
    parts: list[RenderableType] = [_header(trajectory)]
    messages = trajectory.messages if whole else trajectory.own_messages
    earlier = trajectory.new_from
    if earlier and not whole:
        parts.append(Text(f"  … {earlier} earlier messages (--all shows them)", style="dim"))
    for index, message in enumerate(messages, 0 if whole else earlier):
        if whole and earlier and index == earlier:
            parts.append(Rule(f"turn {trajectory.turn}", style="dim"))
        parts.append(_message(index, message, length))
    parts.extend(_rewrites(trajectory))
    parts.extend(_gaps(trajectory.gaps))
    parts.extend(_scores(scores))
    return Group(*parts)


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
    usage = t.usage
    rows = [
        ("when", f"{clock(t.start_ns)}, {duration(t.end_ns - t.start_ns)}"),
        ("conversation", f"{t.conversation_id}, turn {t.turn}" if t.conversation_id else ""),
        ("service", t.service),
        ("models", ", ".join(t.models)),
        (
            "tokens",
            f"{usage.input_tokens} in, {usage.output_tokens} out, {usage.model_calls} model calls"
            if usage.model_calls
            else "",
        ),
        ("dialect", ", ".join(t.dialects)),
        ("called by", f"{t.parent_id} {t.parent_call_id}".strip()),
        ("root span", f"{t.root_span.trace_id}/{t.root_span.span_id}"),
    ]
    for name, value in rows:
        if value:
            grid.add_row(name, Text(clean(value)))
    return Group(Rule(style="dim"), title, Padding(grid, (0, 0, 1, 2)))


def _message(index: int, message: Message, length: int) -> RenderableType:
    style = ROLE_STYLES.get(message.role, "bold")
    if message.is_error:
        style = "bold red"
    head = Text.assemble((f"{index:>4} ", "dim"), (f"{clean(message.role):<10}", style))
    if message.is_error:
        head.append("failed  ", "bold red")
    if message.role == "tool":
        head.append(clean(f"{message.name} {message.tool_call_id}".strip()), "dim")
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
    if any(_overlap(call, other) for other in calls if other is not call):
        text.append("  in parallel", "dim")
    return text


def _overlap(one: ToolCall, other: ToolCall) -> bool:
    timed = one.end_ns and other.end_ns
    return bool(timed) and one.start_ns < other.end_ns and other.start_ns < one.end_ns


def _rewrites(trajectory: Trajectory) -> list[RenderableType]:
    return [
        Text(
            f"  history rewritten at message {rewrite.at}: {len(rewrite.messages)} messages "
            f"were replaced (--json holds them)",
            style="yellow",
        )
        for rewrite in trajectory.rewrites
    ]


def _gaps(gaps: Sequence[Gap]) -> list[RenderableType]:
    """Return the gaps, those alike on one line with the number of their spans."""
    if not gaps:
        return []
    spans: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        spans.setdefault((gap.code, gap.detail), []).append(gap.span_id)
    lines: list[RenderableType] = [Text("Gaps", style="bold yellow")]
    for (code, detail), ids in spans.items():
        where = f"span {ids[0]}" if len(ids) == 1 else f"{len(ids)} spans"
        lines.append(
            Padding(
                Text.assemble((code, "yellow"), f"  {clean(detail)}  ", (where, "dim")),
                (0, 0, 0, 2),
            )
        )
    return lines


def verdict(score: Score) -> Text:
    """Return a score in a word or a number, coloured."""
    if score.status != "ok":
        return Text(score.status.replace("_", " "), style="yellow")
    word = clean(score.label) or ("" if score.passed is None else str(score.passed))
    number = "" if score.score is None or word in ("pass", "fail") else f"{score.score:.3g} "
    return Text(f"{number}{word}".strip(), style=STATUS_STYLES.get(word, ""))


def _scores(scores: Sequence[Score]) -> list[RenderableType]:
    if not scores:
        return []
    grid = Table.grid(padding=(0, 2))
    for score in scores:
        comment = Text(shorten(score.comment, 600))
        grid.add_row("", Text(clean(score.evaluator), style="bold"), verdict(score), comment)
    return [Text("Scores", style="bold"), grid]


def diff_view(
    left: Trajectory, right: Trajectory, pairs: Sequence[Pair], length: int = 300
) -> RenderableType:
    """Return two trajectories side by side, the first divergence marked.

    Args:
        left: The first.
        right: The second.
        pairs: Their messages lined up.
        length: How many characters of a message to show.
    """
    first = first_divergence(pairs)
    table = Table(expand=True, show_lines=False, pad_edge=False)
    table.add_column("", width=2)
    for side in (left, right):
        name = clean(side.agent) or "(no agent span)"
        table.add_column(Text(f"{name} {side.id}"), ratio=1, overflow="fold")
    for index, pair in enumerate(pairs):
        mark = Text("=" if pair.same else "≠", style="dim" if pair.same else "bold red")
        if index == first:
            mark = Text("▶", style="bold red")
        style = "dim" if pair.same else ""
        cells = [_cell(message, length, style) for message in (pair.left, pair.right)]
        table.add_row(mark, *cells)
    if first is None:
        return Group(table, Text(f"No difference in {len(pairs)} messages.", style="green"))
    differing = sum(not pair.same for pair in pairs)
    note = f"First divergence at message {first}; {differing} of {len(pairs)} rows differ."
    return Group(table, Text(note, style="bold red"))


def _cell(message: Message | None, length: int, style: str) -> RenderableType:
    if message is None:
        return Text("—", style="dim")
    text = Text(f"{clean(message.role)}: ", style=style or ROLE_STYLES.get(message.role, ""))
    if message.is_error:
        text.append("failed ", style="red")
    text.append(shorten(message.content or "", length), style=style)
    for call in message.tool_calls:
        text.append(f"\n→ {shorten(call_text(call), length)}", style=style or "blue")
    return text
