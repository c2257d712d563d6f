"""Lists of things as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..model import Score, Trajectory
from ..pipeline import ScoreRun, Tally, worst_first
from .terminal import verdict
from .text import clean, clock, duration, shorten

__all__ = [
    "judging",
    "load_summary",
    "references_table",
    "scores_table",
    "tallies_table",
    "trajectories_table",
    "variants_table",
]


def _table(*columns: str | Text, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in columns:
        justify = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def trajectories_table(
    trajectories: Iterable[Trajectory], scores: Mapping[str, Sequence[Score]]
) -> Table:
    """Return trajectories, one a line.

    Args:
        trajectories: The trajectories.
        scores: Their scores by id.
    """
    right = ("turn", "msgs", "calls", "failed", "tokens", "took")
    columns = ("trajectory", "started", "agent", "turn", "msgs", "calls", "failed", "tokens")
    table = _table(*columns, "took", "scores", "gaps", "asked", right=right)
    for t in trajectories:
        own = t.own_messages
        asked = next((m.content for m in own if m.role == "user" and m.content), "")
        failed = sum(message.is_error for message in own)
        table.add_row(
            t.id,
            clock(t.start_ns),
            Text(clean(t.agent) or "-"),
            str(t.turn),
            str(len(own)),
            str(sum(len(message.tool_calls) for message in own)),
            Text(str(failed), style="red" if failed else ""),
            str(t.usage.input_tokens + t.usage.output_tokens),
            duration(t.end_ns - t.start_ns),
            _marks(scores.get(t.id, ())),
            Text(", ".join(sorted({gap.code for gap in t.gaps})), style="yellow"),
            Text(shorten(asked, 40).split(" … ")[0].replace("\n", " ")),
        )
    return table


def _marks(scores: Sequence[Score]) -> Text:
    text = Text()
    for score in scores:
        if score.status != "ok":
            text.append("?", style="yellow")
        elif score.passed is None:
            text.append("·")
        else:
            text.append("✓" if score.passed else "✗", style="green" if score.passed else "red")
    return text


def scores_table(scores: Iterable[Score]) -> Table:
    """Return scores, one a line."""
    table = _table("trajectory", "evaluator", "verdict", "why")
    for score in scores:
        why = Text(shorten(score.comment, 400))
        table.add_row(score.trajectory_id, Text(clean(score.evaluator)), verdict(score), why)
    return table


def tallies_table(tallies: Iterable[Tally]) -> Table:
    """Return the counts by evaluator, those that fail first."""
    names = ("passed", "failed", "errors", "not evaluated", "pass rate", "mean score")
    table = _table("evaluator", *names, right=names)
    for counted in worst_first(tallies):
        rate, mean = counted.pass_rate, counted.mean
        table.add_row(
            Text(clean(counted.evaluator), style="bold"),
            Text(str(counted.passed), style="green" if counted.passed else ""),
            Text(str(counted.failed), style="red" if counted.failed else ""),
            Text(str(counted.errors), style="red" if counted.errors else ""),
            Text(str(counted.not_evaluated), style="yellow" if counted.not_evaluated else ""),
            "-" if rate is None else f"{rate:.3f}",
            "-" if mean is None else f"{mean:.3f}",
        )
    return table


def judging(run: ScoreRun) -> str:
    """Return how language models were asked, in one line; "" where none was.

    Args:
        run: What scoring has come to so far.
    """
    if not run.asked and not run.reused:
        return ""
    parts = [f"{run.asked} asked", f"{run.errors} errors", f"{run.cache_hits} from the cache"]
    if run.reused:
        parts.append(f"{run.reused} judged before")
    return ", ".join([*parts, f"${run.cost:.4f}"])


def variants_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return tool sequences, one a line."""
    right = ("runs", "share", "failed calls", "pass rate")
    table = _table(*right, "example", "tools", right=right)
    for row in rows:
        rate = f"{row['passed'] / row['judged']:.3f}" if row["judged"] else "-"
        tools = " → ".join(row["tools"]) or "(no calls)"
        share, errors = f"{row['share']:.1%}", str(row["errors"])
        table.add_row(str(row["count"]), share, errors, rate, row["example"], Text(clean(tools)))
    return table


def references_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return references, one a line."""
    table = _table("name", "messages", "source", "added", right=("messages",))
    for row in rows:
        cells = Text(clean(row["name"])), str(row["messages"]), Text(clean(row["source"] or ""))
        table.add_row(*cells, clock(row["created_ns"]))
    return table


def load_summary(read: int, stored: int, duplicate: int, bad: int) -> Text:
    """Return what became of the spans and log records of some files, in one line."""
    return Text.assemble(
        (f"read {read}", "bold"),
        f"  stored {stored}",
        f"  duplicate {duplicate}",
        (f"  bad {bad}", "red" if bad else ""),
    )
