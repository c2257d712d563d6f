"""The content of a report: runs counted, aligned and compared.

Every run counts in the figures. When there are too many runs for the matrix, runs that did not pass
are kept first, then the latest. A higher score is better. An error is never a 0 and not evaluated
is never a pass: a run without a verdict is neither better nor worse than the baseline.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ... import __version__
from ...base.errors import ConfigError, NothingEvaluated
from ...base.jsontext import dumps
from ...model import COLUMNS
from ...scoring import Gate, Tally, align, first_divergence
from ...store import SelectedRuns
from ..run_changes import ShownComparison
from ..text import clean, clock, one_line, shorten
from .details import details, shown_messages
from .model import (
    MatrixCell,
    MatrixColumn,
    MatrixRow,
    PairwiseSummary,
    Report,
    ReportRun,
    RunPair,
    cell_of,
    changed,
)
from .statistics import ReportStatistics
from .tool_graph import ToolGraphCounts

__all__ = ["ReportOptions", "build", "build_stored", "stored_tallies"]

_MOST_GROUPS = 12
_EMPTY = "no run was there to report; oteval trajectories lists them"
_WORST = ("regressed", "changed", "improved", "same", "")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How a report is to be made.

    Attributes:
        title: Its heading.
        selection: The filters in force, as names and values.
        baseline: The group that the others are compared with; the first group when "".
        evaluators: The evaluators to show; all when empty.
        gates: The gates to check, of the evaluators shown.
        is_grouped: Whether the runs' groups are to be compared.
        most_rows: How many rows to show.
        most_bytes: How much the details may take.
        longest: How many characters of a text to show.
        static: How many runs to show in full where no script runs, and on paper.
    """

    title: str = "oteval report"
    selection: tuple[tuple[str, str], ...] = ()
    baseline: str = ""
    evaluators: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    is_grouped: bool = False
    most_rows: int = 1000
    most_bytes: int = 50_000_000
    longest: int = 20_000
    static: int = 40

    @property
    def shown_gates(self) -> tuple[Gate, ...]:
        """The gates of the evaluators that are shown."""
        chosen = self.evaluators
        return tuple(gate for gate in self.gates if not chosen or gate.evaluator in chosen)


def build(
    items: Iterable[ReportRun],
    options: ReportOptions,
    pairwise: Sequence[PairwiseSummary] = (),
    made_ns: int | None = None,
    comparisons: Sequence[ShownComparison] = (),
) -> Report:
    """The report on some runs.

    Args:
        items: The runs.
        options: How to make it.
        pairwise: PairwiseSummary comparisons to show.
        made_ns: Now.
        comparisons: The changes against the baseline to show.

    Raises:
        NothingEvaluated: No runs were given.
        ConfigError: The baseline is none of the groups, or there are too many groups.
    """
    counting = ReportStatistics(options.is_grouped)
    matrix_runs = _KeptRuns(options.most_rows)
    tools = ToolGraphCounts()
    for item in items:
        chosen = _shown(item, options)
        counting.add(chosen)
        if chosen.trajectory:
            tools.add(chosen.trajectory)
        matrix_runs.add(chosen)
    report = _report(counting, matrix_runs.items(), tools, options, pairwise, made_ns)
    return replace(report, comparisons=tuple(comparisons))


def build_stored(
    runs: SelectedRuns,
    items: Iterable[ReportRun],
    options: ReportOptions,
    made_ns: int | None = None,
) -> Report:
    """The report on stored runs, counted without reading them.

    Args:
        runs: The runs.
        items: The runs to show, by start: from `SelectedRuns.worst`.
        options: How to make it.
        made_ns: Now.

    Raises:
        NothingEvaluated: The selection is empty.
        ConfigError: The baseline is none of the groups, or there are too many groups.
    """
    groups = _groups(runs.groups, options)
    counting, tools = ReportStatistics(options.is_grouped), ToolGraphCounts()
    counting.add_stored(runs, tools)
    if options.is_grouped:
        counting.compare_stored(runs, groups[0])
    matrix_runs = [_shown(item, options) for item in items]
    return _report(counting, matrix_runs, tools, options, (), made_ns)


def stored_tallies(runs: SelectedRuns) -> dict[str, Tally]:
    """The counts of verdicts on stored runs, by evaluator."""
    counting = ReportStatistics(is_grouped=False)
    counting.add_stored_verdicts(runs)
    return counting.tallies


def _shown(item: ReportRun, options: ReportOptions) -> ReportRun:
    """A run with the verdicts that are shown."""
    if not options.evaluators:
        return item
    verdicts = tuple(
        verdict for verdict in item.verdicts if verdict.evaluator in options.evaluators
    )
    return replace(item, verdicts=verdicts)


def _report(
    counting: ReportStatistics,
    matrix_runs: Sequence[ReportRun],
    tools: ToolGraphCounts,
    options: ReportOptions,
    pairwise: Sequence[PairwiseSummary],
    made_ns: int | None,
) -> Report:
    if not counting.runs:
        raise NothingEvaluated(_EMPTY)
    groups = _groups(list(counting.groups), options)
    columns = _columns(counting.ordered_names(), groups)
    rows = _rows(matrix_runs, columns, groups, options)
    notes = list(_notes(counting.runs, options.most_rows))
    rows = rows[: options.most_rows]
    details_of, left_out = _details(matrix_runs, rows, options)
    if left_out:
        notes.append(
            f"The details of {left_out:,} of {len(details_of) + left_out:,} runs are left out to "
            f"keep the file below its limit (--max-size); oteval show ID shows them."
        )
    selection = [*options.selection, *([("period", counting.period)] if counting.period else [])]
    return Report(
        title=clean(options.title),
        selection=tuple((name, clean(value)) for name, value in selection),
        figures=tuple(counting.figures()),
        groups=tuple(clean(group) for group in groups),
        evaluators=tuple(counting.evaluators(groups)),
        columns=tuple(
            replace(column, evaluator=clean(column.evaluator), group=clean(column.group))
            for column in columns
        ),
        rows=tuple(rows),
        details=details_of,
        charts=tuple(counting.charts(groups)),
        tools=tools.graph(),
        pairwise=tuple(pairwise),
        gates=tuple(counting.gates(options.shown_gates, groups)),
        notes=tuple(notes),
        static=_static(rows, details_of, options.static),
        made_ns=time.time_ns() if made_ns is None else made_ns,
        version=__version__,
    )


class _KeptRuns:
    """The runs to show: failures, then runs that were not evaluated, then the latest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: deque[tuple[int, ReportRun]] = deque(maxlen=most)
        self._missing: deque[tuple[int, ReportRun]] = deque(maxlen=most)
        self._good: deque[tuple[int, ReportRun]] = deque(maxlen=most)
        self._seen = 0

    def add(self, item: ReportRun) -> None:
        states = {verdict.state for verdict in item.verdicts}
        if item.error or states & {"fail", "error"}:
            queue = self._failed
        else:
            queue = self._missing if "none" in states else self._good
        queue.append((self._seen, item))
        self._seen += 1
        # The number of worse runs only grows, so that a run without a place now gets none later.
        if len(self._failed) + len(self._missing) + len(self._good) > self._most:
            (self._good or self._missing).popleft()

    def items(self) -> list[ReportRun]:
        """The runs kept, in the order that they were added."""
        numbered_runs: list[tuple[int, ReportRun]] = []
        for queue in (self._failed, self._missing, self._good):
            free = self._most - len(numbered_runs)
            numbered_runs += list(queue)[-free:] if free else []
        return [item for _, item in sorted(numbered_runs, key=lambda pair: pair[0])]


def _notes(total: int, most: int) -> Iterable[str]:
    if total > most:
        yield (
            f"The matrix shows {most:,} of {total:,} runs: those that did not pass, then "
            f"the latest. All of them count in the figures and charts. {total - most:,} are left "
            "out: oteval scores --status fail lists all that failed, --max-rows shows more, and "
            "filters such as --since or --where choose others."
        )


def _groups(run_groups: Sequence[str], options: ReportOptions) -> tuple[str, ...]:
    """The groups, the baseline first."""
    if not options.is_grouped:
        return ("",)
    if not run_groups:
        raise NothingEvaluated(_EMPTY)
    baseline = options.baseline or run_groups[0]
    if baseline not in run_groups:
        names = ", ".join(one_line(group) for group in run_groups[:_MOST_GROUPS])
        raise ConfigError(f"--baseline {baseline!r} is not one of the compared groups: {names}")
    if len(run_groups) > _MOST_GROUPS:
        raise ConfigError(
            f"{len(run_groups)} groups to compare, at most {_MOST_GROUPS} can be; choose fewer "
            "with --since or --where, or compare by something else"
        )
    return (baseline, *(group for group in run_groups if group != baseline))


def _columns(names: Sequence[str], groups: Sequence[str]) -> list[MatrixColumn]:
    compared = len(groups) > 1
    return [
        MatrixColumn(name, group, compared and at == 0)
        for name in names
        for at, group in enumerate(groups)
    ]


def _rows(
    items: Sequence[ReportRun],
    columns: Sequence[MatrixColumn],
    groups: Sequence[str],
    options: ReportOptions,
) -> list[MatrixRow]:
    cases: dict[str, list[ReportRun]] = {}
    for item in items:
        cases.setdefault(item.case if options.is_grouped else item.id, []).append(item)
    rows = [_row(members, columns, groups) for members in cases.values()]
    return sorted(rows, key=lambda row: (_WORST.index(row.change), row.badness, -row.started_ns))


def _row(
    members: Sequence[ReportRun], columns: Sequence[MatrixColumn], groups: Sequence[str]
) -> MatrixRow:
    by_group: dict[str, list[ReportRun]] = {}
    for item in members:
        by_group.setdefault(item.group, []).append(item)
    cells: list[MatrixCell] = []
    base: MatrixCell | None = None
    for column in columns:
        cell = cell_of(by_group.get(column.group, ()), column.evaluator)
        if column.is_baseline:
            base = cell
        elif base is not None:
            cell = replace(cell, change=changed(base, cell))
        cells.append(cell)
    changes = [cell.change for cell in cells if cell.change]
    runs = [item.trajectory for item in members if item.trajectory]
    took = [item.end_ns - item.start_ns for item in members if item.end_ns]
    tokens = [n for run in runs if (n := COLUMNS["tokens"].value(run)) is not None]
    gaps = dict.fromkeys(gap.code for run in runs for gap in run.gaps)
    first = members[0]
    return MatrixRow(
        label=shorten(first.label, 160),
        detail=_detail(members, len(groups) > 1),
        runs=tuple(item.id for item in members),
        cells=tuple(cells),
        change=min(changes, key=_WORST.index) if changes else "",
        badness=_badness(cells, members),
        diffs=tuple(_diffs(by_group, groups)),
        started_ns=max(item.start_ns for item in members),
        took_ns=sum(took) // len(took) if took else 0,
        tokens=sum(tokens) // len(tokens) if tokens else 0,
        failures=sum(message.is_error for run in runs for message in run.own_messages),
        gaps=tuple(clean(code) for code in gaps),
        words=_words(members),
    )


def _badness(cells: Sequence[MatrixCell], members: Sequence[ReportRun]) -> int:
    """0 for a row with a failure, 1 for one with a missing verdict, 2 for the others."""
    states = {cell.state for cell in cells}
    if states & {"fail", "mixed", "error"} or any(item.error for item in members):
        return 0
    return 1 if "none" in states else 2


def _detail(members: Sequence[ReportRun], compared: bool) -> str:
    first = members[0]
    case = first.case if first.case != first.label else ""
    if compared:
        return shorten(case, 100)
    run = first.trajectory
    when = clock(first.start_ns) if first.start_ns else ""
    parts = [case, run.agent if run else "", when, first.id]
    return clean(" · ".join(part for part in parts if part))


def _words(members: Sequence[ReportRun]) -> str:
    """Additional search terms for a row."""
    terms: Counter[str] = Counter()
    for item in members[:20]:
        terms.update([item.id, item.case[:200]])
        if run := item.trajectory:
            terms.update([run.agent, run.service, run.conversation_id, *run.models])
            terms.update(run.trace_ids[:3])
            terms.update(call.name for m in run.own_messages for call in m.tool_calls)
        terms.update(verdict.comment[:120] for verdict in item.verdicts)
    return clean(" ".join(word for word in terms if word))[:600].lower()


def _diffs(by_group: dict[str, list[ReportRun]], groups: Sequence[str]) -> Iterable[RunPair]:
    """Yield the baseline's run lined up with a run of each other group."""
    left = _example(by_group.get(groups[0], ()))
    for group in groups[1:]:
        right = _example(by_group.get(group, ()))
        if left is None or right is None:
            continue
        pairs = align(shown_messages(left), shown_messages(right))
        lined = tuple((pair.left_at, pair.right_at, pair.same) for pair in pairs)
        yield RunPair(left.id, right.id, clean(group), lined, first_divergence(pairs))


def _example(members: Sequence[ReportRun]) -> ReportRun | None:
    """The run of a group to compare: the first that did not pass, or the first."""
    traced = [item for item in members if item.trajectory]
    bad = (item for item in traced if any(v.state in ("fail", "error") for v in item.verdicts))
    return next(bad, traced[0] if traced else None)


def _details(
    items: Sequence[ReportRun], rows: Sequence[MatrixRow], options: ReportOptions
) -> tuple[dict[str, str], int]:
    """The details by run, in the rows' order until they are too much; and how many are left out."""
    by_id = {item.id: item for item in items}
    details_by_run: dict[str, str] = {}
    size, left_out = 0, 0
    for run in (run for row in rows for run in row.runs):
        text = dumps(details(by_id[run], options.longest)) if size < options.most_bytes else ""
        size += len(text)
        if not text or size > options.most_bytes:
            left_out += 1
        else:
            details_by_run[run] = text
    return details_by_run, left_out


def _static(
    rows: Sequence[MatrixRow], details_by_run: dict[str, str], most: int
) -> tuple[str, ...]:
    """The runs to show in full without a script; runs that did not pass come first."""
    first = [run for row in rows if row.badness < 2 for run in row.runs]
    order = dict.fromkeys([*first, *(run for row in rows for run in row.runs)])
    return tuple(run for run in order if run in details_by_run)[:most]
