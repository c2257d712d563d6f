"""What became of a trace, as a tree in the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..pipeline import Explanation, SpanAccount
from .text import clean, one_line

__all__ = ["explanation_view"]

_KIND_STYLES = {"agent": "bold cyan", "model call": "bold green", "tool": "yellow"}
_MAX_INDENT = 12
_MAX_NAME = 60


def explanation_view(explanation: Explanation) -> RenderableType:
    """Return a trace's spans as a tree, with what each gave, and what is missing.

    Args:
        explanation: What became of the trace.
    """
    return Group(_head(explanation), _tree(explanation), *_missing(explanation))


def _head(found: Explanation) -> RenderableType:
    counts = (
        _count(len(found.accounts), "span", "spans"),
        _count(found.log_records, "log record", "log records"),
        _count(len(found.trajectories), "trajectory", "trajectories"),
    )
    return Text.assemble(("trace ", "dim"), (found.trace_id, "bold"), f"  {', '.join(counts)}")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _tree(found: Explanation) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("span", "read as", "dialect", "holds", "gives"):
        table.add_column(name, header_style="dim", overflow="fold")
    for account in found.accounts:
        table.add_row(
            _name(account),
            Text(account.kind or "–", style=_KIND_STYLES.get(account.kind, "dim")),
            Text(account.dialect or "–", style="" if account.dialect else "dim"),
            Text(one_line(account.holds)),
            _gives(account),
        )
    return Padding(table, (1, 0))


def _name(account: SpanAccount) -> Text:
    name = one_line(account.span.name)
    if len(name) > _MAX_NAME:
        name = f"{name[:_MAX_NAME]}…"
    indent = "  " * min(account.depth, _MAX_INDENT)
    style = "red" if account.span.is_error else ""
    return Text.assemble(indent, (name, style), (f" {account.span.span_id}", "dim"))


def _gives(account: SpanAccount) -> Text:
    text = Text()
    if account.messages:
        first, last = account.messages[0], account.messages[-1]
        places = f"{first}" if first == last else f"{first}-{last}"
        noun = "message" if len(account.messages) == 1 else "messages"
        text.append(f"{noun} {places} of {account.trajectory_id}")
    elif account.note:
        text.append(account.note, "dim")
    elif account.trajectory_id:
        text.append(f"trajectory {account.trajectory_id}")
    codes = ", ".join(dict.fromkeys(gap.code for gap in account.gaps))
    if codes:
        text.append(f"{'; ' if text else ''}{codes}", "yellow")
    return text


def _missing(found: Explanation) -> list[RenderableType]:
    if not found.gaps:
        return [Text("Nothing is missing.", style="green")]
    lines: list[RenderableType] = [Text("What is missing, and what would bring it", style="bold")]
    for (code, detail), spans in found.gaps.items():
        where = _count(len(spans), "span", "spans")
        line = Text.assemble((code, "yellow"), f"  {clean(detail)}  ", (where, "dim"))
        lines.append(Padding(line, (0, 0, 0, 2)))
    return lines
