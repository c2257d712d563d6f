"""The runs that broke between two experiments, first: one line each, then their details.

The terminal, Markdown, the report and the pages show the same rows in the same order: those of
`oteval.scoring.RunChanges`, as `shown_changes` words them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from ..base.errors import NothingEvaluated
from ..base.text import counted
from ..model import Example, Message
from ..scoring import (
    SESSIONS,
    AlignedPair,
    Comparison,
    ExperimentResults,
    RunChange,
    Unevaluated,
    compare,
)
from .text import call_text, one_line, question_names, shared_start, short_ids, shorten

__all__ = [
    "ShownChange",
    "ShownComparison",
    "changes_summary",
    "changes_view",
    "compared_runs",
    "shown_changes",
    "shown_comparison",
    "unevaluated_lines",
]

_SIGNS = {"broke": ("✗", "red"), "better": ("✓", "green")}
_WORDS = {"broke": "broke", "better": "got better"}
# How many runs have a line, and how many have details. --json lists all.
_MOST_LINES, _MOST_DETAILS, _MOST_NAMES = 20, 10, 3
_MOST_ROWS = 100  # of a page
_QUESTION, _REASON, _MESSAGE = 60, 400, 300  # characters


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A run that broke or got better, in words.

    Attributes:
        kind: ``broke`` or ``better``.
        sign: Its mark.
        question: The question, unique among the runs of the comparison.
        name: The id of the example, shortened.
        reason: The change, by the first figure that shows it.
        figures: Each figure with its change and its reason.
        position: The numbers of the messages that differ first, or "".
        before: The message of the first run there, "" without any.
        now: The message of the second run.
        run_before: The id of the first run's trajectory, or "".
        run_now: The id of the second run's trajectory, or "".
    """

    kind: str
    sign: str
    question: str
    name: str
    reason: str
    figures: tuple[str, ...]
    position: str
    before: str
    now: str
    run_before: str
    run_now: str

    @property
    def has_details(self) -> bool:
        """Whether there is more to show than fits into a line."""
        return bool(self.position) or self.reason != self.figures[0]

    @property
    def line(self) -> str:
        """The change in one line."""
        return f"{self.sign} {self.question}: {self.reason}{self.position and f'; {self.position}'}"


@dataclass(frozen=True, slots=True)
class ShownComparison:
    """The changes between two experiments, in words.

    Attributes:
        first: The name of the first experiment.
        second: The name of the second.
        summary: How many runs broke, got better and did not change.
        changes: The runs that broke, then the runs that got better.
        unevaluated: The figures and runs that could not be compared, one line each.
        left_out: How many changed runs are left out.
    """

    first: str
    second: str
    summary: str
    changes: tuple[ShownChange, ...] = ()
    unevaluated: tuple[str, ...] = ()
    left_out: int = 0


def shown_comparison(
    first: ExperimentResults, second: ExperimentResults, most: int = _MOST_ROWS
) -> tuple[ShownComparison, Comparison | None]:
    """The changes between two experiments, and their comparison if they have scores in common.

    Args:
        first: The baseline.
        second: The experiment.
        most: How many changed runs to show.
    """
    names = one_line(first.name), one_line(second.name)
    try:
        comparison = compare(first, second)
    except NothingEvaluated as error:
        return ShownComparison(*names, one_line(str(error))), None
    return compared_runs(comparison, most), comparison


def compared_runs(comparison: Comparison, most: int = _MOST_ROWS) -> ShownComparison:
    """The changes of a comparison.

    Args:
        comparison: The comparison.
        most: How many changed runs to show.
    """
    changes = shown_changes(comparison)
    return ShownComparison(
        one_line(comparison.a.name),
        one_line(comparison.b.name),
        summary=changes_summary(comparison),
        changes=tuple(changes[:most]),
        unevaluated=tuple(unevaluated_lines(comparison)),
        left_out=max(0, len(changes) - most),
    )


def shown_changes(comparison: Comparison) -> list[ShownChange]:
    """The runs that broke, then the runs that got better."""
    changes = comparison.changes
    names, ids = _names(comparison), short_ids(group.id for group in comparison.groups)
    return [
        _shown(change, names[change.id], one_line(ids[change.id]))
        for change in (*changes.broke, *changes.better)
    ]


def changes_summary(comparison: Comparison) -> str:
    """How many runs broke, got better and did not change, in one sentence."""
    changes = comparison.changes
    groups = comparison.groups
    is_repeated = any(len(side) > 1 for group in groups for side in (group.before, group.now))
    unit = "example" if is_repeated else "run"
    total = counted(len(groups), unit)
    first = f"{len(changes.broke)} of {total} broke" if changes.broke else f"None of {total} broke"
    compared = len(changes.broke) + len(changes.better) + changes.same
    left = len(groups) - compared
    parts = [
        first,
        f"{len(changes.better)} got better" if changes.better else "",
        f"{changes.same} did not change",
        f"{left} could not be compared" if left else "",
    ]
    return f"{', '.join(filter(None, parts))}."


def unevaluated_lines(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each figure that could not be compared, and each reason."""
    names = _names(comparison)
    for row in comparison.changes.unevaluated:
        yield f"? {_unevaluated(row, names)}"


def changes_view(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the runs that broke with their details, then all other changes, and their counts."""
    changes = shown_changes(comparison)
    broke = [change for change in changes if change.kind == "broke"]
    better = [change for change in changes if change.kind == "better"]
    yield from _lines(broke)
    # A single figure without a reason is in the line already.
    detailed = [change for change in broke if change.has_details]
    for change in detailed[:_MOST_DETAILS]:
        yield Text()
        yield from _details(change)
    if broke:
        yield Text()
    yield from _lines(better)
    unevaluated = list(unevaluated_lines(comparison))
    yield from (Text(line, style="yellow") for line in unevaluated[:_MOST_LINES])
    if len(unevaluated) > _MOST_LINES:
        yield Text(f"and {len(unevaluated) - _MOST_LINES} more (--json lists all)", style="dim")
    yield Text(changes_summary(comparison), style="bold")


def _lines(changes: Sequence[ShownChange]) -> Iterator[Text]:
    for change in changes[:_MOST_LINES]:
        # A line each, however narrow the terminal is: the details are below.
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{change.sign} ", style=_SIGNS[change.kind][1])
        line.append(change.question, style="bold")
        yield line.append(change.line.removeprefix(f"{change.sign} {change.question}"))
    if len(changes) > _MOST_LINES:
        more = f"and {len(changes) - _MOST_LINES} more that {_WORDS[changes[0].kind]}"
        yield Text(f"{more} (--json lists all)", style="dim")


def _details(change: ShownChange) -> Iterator[Text]:
    line = Text(f"{change.sign} {change.question}", style="bold")
    if change.name not in change.question:
        line.append(f"  {change.name}", "not bold dim")
    yield line
    for figure in change.figures:
        yield Text(f"  {figure}")
    if change.position:
        yield Text(f"  {change.position}:", style="dim")
        yield Text(f"    before  {change.before}", style="red")
        yield Text(f"    now     {change.now}", style="green")


def _names(comparison: Comparison) -> Mapping[str, str]:
    """The questions by the ids of examples, with the id where a question repeats."""
    are_sessions = comparison.b.dataset.name == SESSIONS
    return question_names(
        {
            group.id: _title((group.now or group.before)[0].example, is_session=are_sessions)
            for group in comparison.groups
        }
    )


def _title(example: Example, *, is_session: bool) -> str:
    """The question of an example, after the name that people gave it."""
    question = one_line(example.question)
    if len(question) > _QUESTION:
        question = f"{question[: _QUESTION - 1].rstrip()}…"
    has_name = example.has_own_id and not is_session
    return f"{one_line(example.id)}: {question}" if has_name else question


def _shown(change: RunChange, question: str, name: str) -> ShownChange:
    sign, _ = _SIGNS[change.kind]
    figures = [_figure_line(figure.key, figure.before, figure.now) for figure in change.figures]
    reasons = [shorten(one_line(figure.reason), _REASON) for figure in change.figures]
    keys = ", ".join(one_line(figure.key) for figure in change.figures)
    was = "was: " if change.kind == "better" else ""
    reason = next((f"{was}{reason} [{keys}]" for reason in reasons if reason), ", ".join(figures))
    again = f" in {change.changed_runs} of {change.runs} runs" if change.runs > 1 else ""
    pair = change.divergence
    return ShownChange(
        kind=change.kind,
        sign=sign,
        question=question,
        name=name,
        reason=f"{reason}{again}",
        figures=tuple(
            f"{figure}{f': {was}{reason}' if reason else ''}"
            for figure, reason in zip(figures, reasons, strict=True)
        ),
        position="" if pair is None else _position(pair),
        before="" if pair is None else _message(pair.left, shared_start(pair.left, pair.right)),
        now="" if pair is None else _message(pair.right, shared_start(pair.left, pair.right)),
        run_before=change.before.run.trajectory_id,
        run_now=change.now.run.trajectory_id,
    )


def _figure_line(key: str, before: float, now: float) -> str:
    return f"{one_line(key)} {before:.3g} → {now:.3g}"


def _position(pair: AlignedPair) -> str:
    """The number of the messages, as `oteval show` and `oteval diff` count them."""
    if pair.left_at == pair.right_at or pair.right_at is None:
        return f"message {pair.left_at}"
    return f"message {pair.right_at}" + ("" if pair.left_at is None else f" (was {pair.left_at})")


def _message(message: Message | None, start: int) -> str:
    if message is None:
        return "(no such message)"
    content = (message.content or "")[start:]
    parts = [f"{'… ' if start else ''}{shorten(content, _MESSAGE)}" if content else ""]
    parts += [f"→ {shorten(call_text(call), _MESSAGE)}" for call in message.tool_calls]
    return one_line(f"{message.role}: {' '.join(filter(None, parts)) or '(empty)'}")


def _unevaluated(row: Unevaluated, names: Mapping[str, str]) -> str:
    listed = [names[name] for name in row.ids[:_MOST_NAMES]]
    more = f" and {len(row.ids) - len(listed)} more" if len(row.ids) > len(listed) else ""
    figure = f"{one_line(row.key)}: not evaluated" if row.key else "not compared"
    reason = shorten(one_line(row.reason), _REASON) or "no reason given"
    where = f"{counted(len(row.ids), 'example')} of {one_line(row.experiment)}"
    return f"{figure} on {where}: {reason}: {', '.join(listed)}{more}"
