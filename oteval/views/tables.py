"""Tables for the terminal: trajectories, scores, references, variants, and the audit log.

A run's scores are in one cell, ``name ✓``: failures first, and none hidden when the cell is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from ..base.jsontext import dumps
from ..base.text import counted
from ..model import Prices, RunRow, Score, make_prices
from ..scoring import ScoreCounts, Tally, worst_first
from ..store import AuditEntry, DeletedRows
from .columns import Column, Columns, cut, one_row
from .run_texts import alignment_of, cell_text, head_of, mean_cost_text
from .terminal import verdict
from .text import SIGNS, ago, clean, clock, duration, failures_first, short_ids, shorten

__all__ = [
    "audit_table",
    "deleted_text",
    "judge_summary",
    "list_order_notes",
    "load_summary",
    "references_table",
    "score_marks",
    "scores_table",
    "tallies_table",
    "trajectories_table",
    "variants_table",
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
_MEANINGS = {"pass": "pass", "fail": "fail", "error": "error", "none": "not evaluated"}
_MARK_STYLES = {"pass": "green", "fail": "red", "error": "red", "none": "yellow", "score": ""}
_LONGEST_NAME = 24
_HOUR = 3600 * 10**9
_PERIODS = {1: "last hour", 24: "last day", 168: "last week", 672: "last 4 weeks"}
_NOUNS = {
    "traces": "trace",
    "spans": "span",
    "logs": "log record",
    "archived_spans": "archived span",
    "archived_logs": "archived log record",
    "trajectories": "revision of trajectories",
    "scores": "score",
    "labels": "label",
    "judge_calls": "cached judgement",
}
_PLURALS = {"trajectories": "revisions of trajectories"}


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
        columns: Names of `run_texts.CHOICES` to show; by default the usual columns that distinguish
            runs.
    """
    before = tuple(columns) or tuple(name for name in _BEFORE_SCORES if _is_needed(name, rows))
    after = () if columns else ("gap",)
    table = Columns(
        Column("id"),
        Column("started", rank=1),
        _column("agent"),
        *map(_column, before),
        Column("scores", rank=3, least=16, most=40, optional=True, fit=score_marks),
        *map(_column, after),
        Column("asked", rank=5, least=16, most=32, optional=True),
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


def score_marks(scores: Sequence[Score], width: int) -> Text:
    """Return scores as names with marks, as many as fit, and counts of the rest.

    Args:
        scores: The scores of one run.
        width: How many terminal cells there are.
    """
    ordered = failures_first(scores)
    for count in range(len(ordered), 0, -1):
        line = _line(ordered[:count], ordered[count:])
        if cell_len(line.plain) <= width:
            return line
    if len(ordered) == 1:
        return _only(ordered[0], width)
    return cut(_rest(ordered, ""), width)


def legend(scores: Iterable[Score]) -> Text:
    """The meaning of the marks that occur in some scores."""
    used = {score.state for score in scores}
    line = Text(style="dim")
    for state, meaning in _MEANINGS.items():
        if state in used:
            line.append(f"{'  ' if line.plain else ''}{SIGNS[state]} {meaning}")
    return line


def _value(score: Score) -> str:
    """The mark, or the number or label of a score without a mark."""
    if SIGNS[score.state]:
        return SIGNS[score.state]
    number = "" if score.score is None else f"{score.score:.3g}"
    return number or one_row(score.label or "-").plain


def _piece(score: Score, name_width: int) -> Text:
    name = cut(one_row(score.evaluator), name_width)
    return name.append(" ").append_text(cut(Text(_value(score), _MARK_STYLES[score.state]), 16))


def _line(scores: Sequence[Score], unshown: Sequence[Score]) -> Text:
    pieces = [_piece(score, _LONGEST_NAME) for score in scores]
    if unshown:
        pieces.append(_rest(unshown, "+"))
    return Text("  ").join(pieces)


def _rest(scores: Sequence[Score], sign: str) -> Text:
    """How many scores there are of each mark: ``+1 ✗ +9 ✓``."""
    counts = Counter(score.state for score in scores)
    pieces = (
        Text(f"{sign}{counts[state]} {mark or 'scores'}", _MARK_STYLES[state])
        for state, mark in SIGNS.items()
        if counts[state]
    )
    return Text(" ").join(pieces)


def _only(score: Score, width: int) -> Text:
    value = Text(_value(score), _MARK_STYLES[score.state])
    room = width - cell_len(value.plain) - 1
    if room < 2:
        return cut(value, width)
    return cut(one_row(score.evaluator), room).append(" ").append_text(value)


def variants_table(rows: Sequence[Mapping[str, Any]], now_ns: int, period_ns: int) -> Columns:
    """Return variants, one a line.

    Args:
        rows: The variants, as `oteval.scoring.variants` returns them.
        now_ns: The current time.
        period_ns: The length of the periods that they were counted in. The share in the last period
            is a column if there was an earlier period.
    """
    period = _PERIODS.get(period_ns // _HOUR, "last period")
    table = Columns(
        Column("runs", right=True),
        Column("share", rank=2, right=True),
        Column(period, rank=6, extra=True, right=True, optional=True),
        Column("failed calls", rank=4, right=True),
        Column("pass rate", rank=3, right=True),
        Column("95%", rank=5, extra=True, optional=True),
        Column("cost", rank=8, extra=True, right=True, optional=True),
        Column("tokens", rank=9, extra=True, right=True, optional=True),
        Column("time", rank=7, extra=True, right=True),
        Column("first seen", rank=11, extra=True),
        Column("last seen", rank=10, extra=True),
        Column("example", rank=1),
        Column("tools", least=20, most=48),
    )
    ids = short_ids(row["example"] for row in rows)
    for row in rows:
        rate, interval = row["pass_rate"], row["pass_rate_interval"]
        tokens = None if row["input_tokens"] is None else row["input_tokens"] + row["output_tokens"]
        table.add_row(
            str(row["count"]),
            f"{row['share']:.1%}",
            "" if row["earlier_share"] is None else f"{row['recent_share'] or 0:.1%}",
            str(row["errors"]),
            "-" if rate is None else f"{rate:.3f}",
            "" if interval is None else f"{interval[0]:.3f} - {interval[1]:.3f}",
            mean_cost_text(row["cost"], row["priced"], row["count"]),
            "" if tokens is None else f"{tokens:.0f}",
            duration(round(row["seconds"] * 1e9)) if row["seconds"] is not None else "",
            ago(row["first_seen_ns"], now_ns),
            ago(row["last_seen_ns"], now_ns),
            ids[row["example"]],
            one_row(" → ".join(row["tools"]) or "(no calls)"),
        )
    return table


def deleted_text(deleted: DeletedRows) -> str:
    """How much was deleted of each kind, in one line."""
    return f"deleted: {_counts(asdict(deleted)) or 'nothing'}"


def audit_table(entries: Iterable[AuditEntry]) -> Columns:
    """The entries of the audit log, one a line."""
    table = Columns(
        Column("time (UTC)"),
        Column("who", least=8, most=24),
        Column("action", rank=2),
        Column("chosen", rank=1, least=16, most=60),
        Column("deleted", least=20, wraps=True),
    )
    for entry in entries:
        deleted = entry.detail.get("deleted", {})
        table.add_row(
            clock(entry.time_ns),
            one_row(entry.actor),
            one_row(entry.action),
            one_row(dumps(entry.detail.get("chosen", {}))),
            _counts(deleted),
        )
    return table


def _counts(numbers: Mapping[str, Any]) -> str:
    count_texts = (
        counted(numbers[name], noun, _PLURALS.get(name, ""))
        for name, noun in _NOUNS.items()
        if numbers.get(name)
    )
    return ", ".join(count_texts)
