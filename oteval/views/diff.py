"""Two trajectories side by side in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..base.text import counted
from ..model import Message, Trajectory
from ..scoring import AlignedPair, first_divergence
from .columns import cut, one_row
from .terminal import ROLE_STYLES
from .text import call_text, clean, shared_start, short_ids, shorten

__all__ = ["diff_view"]

_LONGEST = 300  # characters of a message


def diff_view(
    left: Trajectory,
    right: Trajectory,
    pairs: Sequence[AlignedPair],
    *,
    starts: tuple[int, int] = (0, 0),
) -> RenderableType:
    """Two trajectories side by side, the first divergence marked.

    Args:
        left: The first.
        right: The second.
        pairs: Their messages, aligned.
        starts: For each side, the number of its first message in `oteval show`.
    """
    first = first_divergence(pairs)
    table = Table(expand=True, show_lines=False, pad_edge=False)
    table.add_column("", width=1)
    ids = short_ids((left.id, right.id))
    for side in (left, right):
        name = cut(one_row(side.agent or side.service or "(no agent span)"), 40)
        table.add_column(name.append(f" {ids[side.id]}"), ratio=1, overflow="fold")
    for index, pair in enumerate(pairs):
        if not pair.is_system:
            cells = _cells(pair, _numbers(pair, starts))
            table.add_row(_mark(pair, is_first=index == first), *cells)
    parts = [*_system(pairs), *([table] if table.row_count else [])]
    return Group(*parts, *_notes(pairs, first, starts))


def _system(pairs: Sequence[AlignedPair]) -> Iterator[RenderableType]:
    """Yield how the system messages differ."""
    system = [pair for pair in pairs if pair.is_system]
    if not system:
        return
    if all(pair.same for pair in system):
        yield Text("System messages are the same.", style="dim")
        return
    yield Text("System messages differ (they are the setting and do not count):", style="yellow")
    for pair in system:
        if not pair.same:
            cut_at = shared_start(pair.left, pair.right)
            for sign, message in (("<", pair.left), (">", pair.right)):
                yield Text(f"{sign} ").append_text(_said(message, cut_at, ""))


def _numbers(pair: AlignedPair, starts: tuple[int, int]) -> tuple[str, str]:
    """The numbers of a pair's messages, as `oteval show` prints them."""
    places = zip((pair.left_at, pair.right_at), starts, strict=True)
    left, right = ("" if at is None else str(at + start) for at, start in places)
    return left, right


def _mark(pair: AlignedPair, *, is_first: bool) -> Text:
    if is_first:
        return Text("▶", style="bold red")
    return Text("=", style="dim") if pair.same else Text("≠", style="bold red")


def _cells(pair: AlignedPair, numbers: tuple[str, str]) -> Iterator[Text]:
    style = "dim" if pair.same else ""
    start = 0 if pair.same else shared_start(pair.left, pair.right)
    for message, number in zip((pair.left, pair.right), numbers, strict=True):
        head = Text(f"{number} " if number else "", style="dim")
        yield head.append_text(_said(message, start, style))


def _said(message: Message | None, start: int, style: str) -> Text:
    """A message's content from `start` on, with its calls."""
    if message is None:
        return Text("—", style="dim")
    text = Text(f"{clean(message.role)}: ", style=style or ROLE_STYLES.get(message.role, ""))
    if message.is_error:
        text.append("failed ", style="red")
    if start:
        text.append(f"({counted(start, 'equal character')}) … ", style="dim")
    text.append(shorten((message.content or "")[start:], _LONGEST), style=style)
    if message.content is None and not message.tool_calls and not message.parts:
        text.append("(content not captured)", style="dim italic")
    for part in message.parts:
        text.append(f"\n[{clean(str(part.get('type', 'part')))}]", style="dim")
    for call in message.tool_calls:
        text.append(f"\n→ {shorten(call_text(call), _LONGEST)}", style=style or "blue")
    return text


def _notes(
    pairs: Sequence[AlignedPair], first: int | None, starts: tuple[int, int]
) -> Iterator[RenderableType]:
    """Yield where the runs diverge, and how much could not be compared."""
    compared = [pair for pair in pairs if not pair.is_system]
    if first is None:
        yield Text(f"No difference in {counted(len(compared), 'message')}.", style="green")
    else:
        differing = sum(not pair.same for pair in compared)
        verb = "differs" if differing == 1 else "differ"
        where = _place(_numbers(pairs[first], starts))
        yield Text(
            f"First divergence at {where}; {differing} of {counted(len(compared), 'row')} {verb}.",
            style="bold red",
        )
    unknown = sum(not pair.is_captured for pair in compared)
    if unknown:
        rows = counted(unknown, "row")
        yield Text(
            f"{rows} could not be compared in full: a trace does not hold the content.",
            style="yellow",
        )


def _place(numbers: tuple[str, str]) -> str:
    left, right = numbers
    if left == right:
        return f"message {left}"
    if not left or not right:
        return f"message {left or right} of the {'first' if left else 'second'} run"
    return f"message {left} of the first run, {right} of the second"
