"""`oteval explain`: how each span of a trace was read, as a tree."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..base.text import counted
from ..scoring import Explanation, SpanAccount
from .columns import Column, Columns, cut, one_row
from .text import clean, short_ids

__all__ = ["explanation_view"]

_KIND_STYLES = {"agent": "bold cyan", "model call": "bold green", "tool": "yellow"}
_MAX_INDENT = 12
_MAX_NAME = 60


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
        where = counted(len(spans), "span")
        line = Text.assemble((code, "yellow"), f"  {clean(detail)}  ", (where, "dim"))
        lines.append(Padding(line, (0, 0, 0, 2)))
    return lines
