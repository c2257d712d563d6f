"""Tables of trajectories, scores and references for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..base.text import counted
from ..model import Prices, RunRow, Score, make_prices
from ..scoring import ScoreCounts, Tally, worst_first
from .columns import Column, Columns, one_row
from .marks import legend, score_marks
from .run_cells import alignment_of, cell_text, head_of
from .terminal import verdict
from .text import ago, clean, short_ids, shorten

__all__ = [
    "judge_summary",
    "list_order_notes",
    "load_summary",
    "references_table",
    "scores_table",
    "tallies_table",
    "trajectories_table",
]

# The most characters of a text from a trace that a cell is made of.
_LONGEST = 400


# How the columns of runs share the width. Others are shown if they are chosen.
_LAYOUTS = {
    "agent": {"rank": 2, "least": 10, "most": 20},
    "service": {"rank": 4, "least": 10, "most": 20},
    "turn": {"rank": 10, "extra": True},
    "messages": {"rank": 11, "extra": True},
    "calls": {"rank": 8, "extra": True},
    "errors": {"rank": 6},
    "tokens": {"rank": 12, "extra": True},
    "seconds": {"rank": 9, "extra": True},
    "gap": {"rank": 7, "extra": True, "least": 20, "most": 24},
}
_CHOSEN = {"rank": 5, "least": 8, "most": 40}
_STYLES = {"errors": "red", "gap": "yellow"}
_BEFORE_SCORES = ("service", "turn", "messages", "calls", "errors", "tokens", "seconds")
_SCORES = Column("scores", rank=3, least=16, most=40, optional=True, fit=score_marks)
_ASKED = Column("asked", rank=5, least=16, most=32, optional=True)


def trajectories_table(
    rows: Sequence[RunRow],
    scores: Mapping[str, Sequence[Score]],
    now_ns: int,
    columns: Sequence[str] = (),
) -> RenderableType:
    """Return trajectories, one per line, and a legend for the marks of their scores.

    Args:
        rows: The trajectories.
        scores: Their scores by id.
        now_ns: The current time.
        columns: Names of `run_cells.CHOICES` to show; by default the usual columns that distinguish
            runs.
    """
    before = tuple(columns) or tuple(name for name in _BEFORE_SCORES if _is_needed(name, rows))
    after = () if columns else ("gap",)
    table = Columns(
        Column("id"),
        Column("started", rank=1),
        _column("agent"),
        *map(_column, before),
        _SCORES,
        *map(_column, after),
        _ASKED,
    )
    ids, prices = short_ids(row.id for row in rows), make_prices(own=None)
    for row in rows:
        table.add_row(
            ids[row.id],
            ago(row["started"], now_ns),
            one_row(row["agent"][0]),
            *(_cell(row, name, prices) for name in before),
            scores.get(row.id, ()),
            *(_cell(row, name, prices) for name in after),
            one_row(shorten(row["asked"] or "", _LONGEST)),
        )
    marks = legend(score for row in rows for score in scores.get(row.id, ()))
    return Group(table, Text(), marks) if marks.plain else table


def _is_needed(name: str, rows: Sequence[RunRow]) -> bool:
    """Whether a column distinguishes runs."""
    if name == "service":
        return any(not row["agent"][0] for row in rows)
    return name != "turn" or any(row["turn"] > 1 for row in rows)


def _column(name: str) -> Column:
    layout: dict[str, Any] = _LAYOUTS.get(name, _CHOSEN)
    is_right = alignment_of(name) == "right"
    return Column(head_of(name), right=is_right, optional=True, **layout)


def _cell(row: RunRow, name: str, prices: Prices) -> Text:
    text = cell_text(row, name, prices)
    return Text("" if name == "errors" and text == "0" else text, style=_STYLES.get(name, ""))


def scores_table(scores: Sequence[Score], *, wraps: bool = False) -> Columns:
    """Return scores, one a line.

    Args:
        scores: The scores.
        wraps: Whether to show reasons whole, over several lines.
    """
    table = Columns(
        Column("id"),
        Column("evaluator", rank=1, least=10, most=24),
        Column("version", rank=4, optional=True),
        Column("verdict", rank=2, least=8, most=16),
        Column("why", rank=3, least=20, optional=True, wraps=wraps),
    )
    ids = short_ids(score.trajectory_id for score in scores)
    versions = _versions(scores)
    for score in scores:
        table.add_row(
            ids[score.trajectory_id],
            one_row(score.evaluator),
            versions.get((score.evaluator, score.version), ""),
            verdict(score),
            one_row(shorten(score.comment, _LONGEST)),
        )
    return table


def _versions(scores: Iterable[Score]) -> dict[tuple[str, str], str]:
    """Return short versions, by evaluator and version, of evaluators that have several here."""
    by_evaluator: dict[str, set[str]] = {}
    for score in scores:
        by_evaluator.setdefault(score.evaluator, set()).add(score.version)
    return {
        (evaluator, version): clean(short)
        for evaluator, versions in by_evaluator.items()
        if len(versions) > 1
        for version, short in short_ids(versions).items()
    }


def tallies_table(tallies: Iterable[Tally]) -> Columns:
    """The counts by evaluator; failing evaluators come first."""
    table = Columns(
        Column("evaluator", least=12, most=40),
        Column("passed", rank=1, right=True),
        Column("failed", rank=1, right=True),
        Column("errors", rank=1, right=True),
        Column("not evaluated", rank=1, right=True),
        Column("pass rate", rank=2, right=True),
        Column("mean score", rank=3, right=True),
    )
    for tally in worst_first(tallies):
        rate, mean = tally.pass_rate, tally.mean
        table.add_row(
            one_row(tally.evaluator, "bold"),
            Text(str(tally.passed), style="green" if tally.passed else ""),
            Text(str(tally.failed), style="red" if tally.failed else ""),
            Text(str(tally.errors), style="red" if tally.errors else ""),
            Text(str(tally.not_evaluated), style="yellow" if tally.not_evaluated else ""),
            "-" if rate is None else f"{rate:.3f}",
            "-" if mean is None else f"{mean:.3f}",
        )
    return table


def judge_summary(run: ScoreCounts) -> str:
    """Summarise the calls to language models in one line; "" if there were none.

    Args:
        run: The scoring, finished or under way.
    """
    if not run.asked and not run.reused:
        return ""
    parts = [f"{run.asked} asked", counted(run.errors, "error"), f"{run.cache_hits} from the cache"]
    if run.reused:
        parts.append(f"{run.reused} judged before")
    return ", ".join([*parts, f"${run.cost:.4f}"])


def list_order_notes(run: ScoreCounts) -> Iterator[str]:
    """Yield a line for each evaluator that failed runs over the order of a list.

    Args:
        run: The finished scoring.
    """
    for name, list_order in run.list_order.items():
        runs = counted(list_order.runs, "failed run")
        sets = ", ".join(clean(path) for path in sorted(list_order.lists))
        yield (
            f"{clean(name)}: {runs} with calls that differ only in the order of a list; "
            f"to ignore it: tool_args: {{tolerant: {{sets: [{sets}]}}}}"
        )


def references_table(rows: Iterable[Mapping[str, Any]], now_ns: int) -> Columns:
    """Return references, one a line.

    Args:
        rows: The references.
        now_ns: The current time.
    """
    table = Columns(
        Column("name", least=16, most=40),
        Column("messages", rank=1, right=True),
        Column("source", rank=3, least=16, most=40),
        Column("added", rank=2),
    )
    for row in rows:
        table.add_row(
            one_row(row["name"]),
            str(row["messages"]),
            one_row(row["source"] or ""),
            ago(row["created_ns"], now_ns),
        )
    return table


def load_summary(read: int, stored: int, duplicate: int, bad: int) -> Text:
    """Return how many spans and log records were read, stored and rejected, in one line."""
    return Text.assemble(
        (f"read {read}", "bold"),
        f"  stored {stored}",
        f"  duplicate {duplicate}",
        (f"  bad {bad}", "red" if bad else ""),
    )
