"""The statistics of a report: verdicts by evaluator and group, times, tokens, costs, charts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...base.text import counted
from ...evaluators import (
    GateResult,
    Tally,
    benjamini_hochberg,
    clopper_pearson,
    difference_p_value,
    worst_first,
)
from ...model import Usage, call_errors, has_unknown_cost, make_prices
from ...scoring import Gate, check_gates
from ...store import CaseComparison, SelectedRuns, usage_of, usages_of
from ..text import clean, clock, duration
from .histograms import (
    SortedNumbers,
    extend_numbers,
    histogram,
    plain,
    seconds_text,
    short,
    time_labels,
)
from .model import (
    Bars,
    CellValue,
    EvaluatorSummary,
    Histogram,
    ReportRun,
    RunVerdict,
    direction,
    worth_of,
)
from .tool_graph import ToolGraphCounts

__all__ = ["ReportStatistics"]

_TIMES = 10
_MOST_CHARTED = 6
_OUTCOMES = ("passed", "failed", "unjudged", "errors", "not_evaluated")

Place = tuple[str, str]
# A group, and whether a gate held in it.
Held = tuple[str, GateResult]


def _numbers(values: Sequence[float] = ()) -> array[float]:
    """An array: 8 bytes a number, because every run of a large store adds some."""
    return array("d", values)


@dataclass
class _VerdictSeries:
    """One evaluator's verdicts in one group.

    Attributes:
        tally: Their counts.
        by_case: The verdicts by case, where groups of runs that were read are compared.
        share_total: The sum of the shares of passes of runs or cases, unless they are in `by_case`.
        shares: The number of these shares.
        scores: The scores.
    """

    tally: Tally
    by_case: dict[str, list[RunVerdict]] = field(default_factory=dict)
    share_total: float = 0.0
    shares: int = 0
    scores: array[float] = field(default_factory=_numbers)


@dataclass
class _Differences:
    """How the cases of a group differ from the baseline's cases, by one evaluator.

    Attributes:
        better: The cases that improved.
        worse: The cases that regressed.
        values: The differences of all cases with a value in both groups.
        are_bounded: Whether all values are in 0 to 1.
    """

    better: int = 0
    worse: int = 0
    values: array[float] = field(default_factory=_numbers)
    are_bounded: bool = True

    def add(self, comparison: CaseComparison) -> None:
        """Count the cases of stored runs."""
        for before, now, cases in zip(
            comparison.base_values, comparison.values, comparison.cases, strict=True
        ):
            is_share = comparison.is_share
            self.count(CellValue(before, is_share), CellValue(now, is_share), cases)

    def count(self, before: CellValue, now: CellValue, cases: int) -> None:
        """Count cases with a value in the baseline and one in the group."""
        way = direction(before, now)
        self.better += cases * (way == 1)
        self.worse += cases * (way == -1)
        self.values.extend(_numbers([now.value - before.value]) * cases)
        self.are_bounded &= 0 <= before.value <= 1 and 0 <= now.value <= 1

    def added_to(self, summary: EvaluatorSummary) -> EvaluatorSummary:
        """A summary with the differences."""
        return replace(
            summary,
            better=self.better,
            worse=self.worse,
            paired=len(self.values),
            p_value=difference_p_value(self.values, bounded=self.are_bounded),
        )


def _usage() -> dict[str, array[float]]:
    return {"seconds": _numbers(), "tokens": _numbers()}


class ReportStatistics:
    """Accumulates the statistics of a report, run by run."""

    def __init__(self, is_grouped: bool) -> None:
        self._is_grouped = is_grouped
        self.runs = 0
        # By group, the durations and token counts of its runs.
        self.groups: dict[str, dict[str, array[float]]] = {}
        self.names: dict[str, None] = {}
        self._seen: dict[Place, _VerdictSeries] = {}
        # By evaluator, when the judged runs began, and whether they passed.
        self._timed: dict[str, tuple[array[int], bytearray]] = {}
        self._agents: set[str] = set()
        self._conversations: set[str] = set()
        self._stored_conversations = 0
        # By evaluator, the passes and the judged runs of each stretch of time, if stored runs were
        # counted.
        self._stored_times: dict[str, list[list[int]]] = {}
        self._cases: set[str] = set()
        self._stored_cases = 0
        self._differences: dict[Place, _Differences] = {}
        self._unpaired = 0
        self._times = [0, 0]
        self._tokens = Usage()
        self._counted = 0
        self._failed_calls = 0
        self._runs_with_failures = 0
        self._runs_with_gaps = 0
        self._runs_failed = 0
        self._prices = make_prices(own=None)
        self._cost: float | None = None
        self._unpriced = 0
        self._spent = 0.0
        self._priced = 0

    def add(self, item: ReportRun) -> None:
        """Count a run."""
        self.runs += 1
        if self._is_grouped:
            self._cases.add(item.case)
            self._unpaired += item.case == item.id
        self._runs_failed += bool(item.error)
        group = self.groups.setdefault(item.group, _usage())
        if item.start_ns:
            first = self._times[0]
            self._times[0] = min(first, item.start_ns) if first else item.start_ns
            self._times[1] = max(self._times[1], item.start_ns)
        if 0 < item.start_ns <= item.end_ns:
            group["seconds"].append((item.end_ns - item.start_ns) / 1e9)
        self._add_run(item, group)
        for verdict in item.verdicts:
            self._add_verdict(item, verdict)
        if not self._is_grouped:
            self._add_shares(item)

    def _add_shares(self, item: ReportRun) -> None:
        """Add the run's share of passes by each evaluator."""
        for name in dict.fromkeys(verdict.evaluator for verdict in item.verdicts):
            share = _passes([verdict for verdict in item.verdicts if verdict.evaluator == name])
            if share is not None:
                series = self._seen[name, item.group]
                series.share_total += share
                series.shares += 1

    def _add_run(self, item: ReportRun, group: dict[str, array[float]]) -> None:
        run = item.trajectory
        if run is None:
            return
        self._agents.add(run.agent)
        if run.conversation_id:
            self._conversations.add(f"{run.service}\0{run.conversation_id}")
        usage = run.usage
        if usage.is_known:
            group["tokens"].append(usage.input_tokens + usage.output_tokens)
            self._tokens += usage
            self._counted += 1
        cost = self._prices.cost(run.models, usage)
        if cost is not None:
            self._priced += 1
            self._spent += cost
        failed = sum(error is True for error in call_errors(run.own_messages))
        self._failed_calls += failed
        self._runs_with_failures += failed > 0
        self._runs_with_gaps += bool(run.gaps)

    def _add_verdict(self, item: ReportRun, verdict: RunVerdict) -> None:
        name = verdict.evaluator
        self.names.setdefault(name)
        series = self._seen.setdefault((name, item.group), _VerdictSeries(Tally(name)))
        series.tally.add(verdict)
        if self._is_grouped:
            series.by_case.setdefault(item.case, []).append(verdict)
        if verdict.score is not None:
            series.scores.append(verdict.score)
        judged = verdict.passed is not None or verdict.status == "error"
        if judged and item.start_ns:
            starts, passes = self._timed.setdefault(name, (array("q"), bytearray()))
            starts.append(item.start_ns)
            passes.append(bool(verdict.passed))
        self._unpriced += has_unknown_cost(verdict.metadata)
        if verdict.cost is not None:
            self._cost = (self._cost or 0.0) + verdict.cost

    def add_stored(self, runs: SelectedRuns, tools: ToolGraphCounts) -> None:
        """Count stored runs and their calls, without reading them.

        Args:
            runs: The runs; no other runs may be counted.
            tools: Counts their calls.
        """
        figures = runs.figures()
        self.runs = figures["runs"]
        for name in runs.groups:
            self.groups[name] = _usage()
        self._stored_cases, self._unpaired = runs.cases()
        self._times = [figures["first_ns"] or 0, figures["last_ns"] or 0]
        self._agents.update(figures["agents"] or ())
        self._stored_conversations = figures["conversations"]
        self._tokens = usage_of(figures)
        self._counted = figures["counted"]
        self._runs_with_gaps = figures["runs_with_gaps"]
        for name, batch in runs.numbers():
            for kind, numbers in self.groups[name].items():
                extend_numbers(numbers, batch[kind])
        for shape in runs.shapes():
            tools.add_shape(shape)
            failed = sum(error is True for error in shape["call_errors"])
            self._failed_calls += failed * shape["runs"]
            self._runs_with_failures += shape["runs"] if failed else 0
        cost = self._prices.total(usages_of(runs.usages()), self.runs)
        self._spent, self._priced = cost.dollars, cost.priced
        self.add_stored_verdicts(runs)

    def add_stored_verdicts(self, runs: SelectedRuns) -> None:
        """Count the verdicts on stored runs, as `add_stored` does."""
        first, last = self._times
        table = runs.verdicts(first, max(1.0, (last - first) / _TIMES), _TIMES)
        scores = table["scores"]
        for at, row in enumerate(table.drop_columns(["scores"]).to_pylist()):
            name = row["evaluator"]
            self.names.setdefault(name)
            series_key = (name, row["group"])
            series = self._seen.setdefault(series_key, _VerdictSeries(Tally(name)))
            before = len(series.scores)
            if scores[at].is_valid:
                extend_numbers(series.scores, scores[at].values)
            counts = {kind: row[kind] for kind in _OUTCOMES}
            added = math.fsum(series.scores[before:])
            series.tally.merge(
                Tally(name, **counts, total=added, scored=len(series.scores) - before)
            )
            passed, judged = row["judged_passed"], row["judged"]
            if not self._is_grouped:
                series.share_total += passed
                series.shares += judged
            if row["place"] is not None:
                times = self._stored_times.setdefault(name, [[0, 0] for _ in range(_TIMES)])
                times[row["place"]][0] += passed
                times[row["place"]][1] += judged
            self._unpriced += row["unpriced"]
            if row["cost"] is not None:
                self._cost = (self._cost or 0.0) + row["cost"]

    def compare_stored(self, runs: SelectedRuns, baseline: str) -> None:
        """Compare the cases of stored runs in each group with the baseline's."""
        for row in runs.shares():
            series = self._seen[row["evaluator"], row["group"]]
            series.share_total, series.shares = row["total"], row["cases"]
        for comparison in runs.comparisons(baseline):
            differences = self._differences.setdefault(
                (comparison.evaluator, comparison.group), _Differences()
            )
            differences.add(comparison)

    def figures(self) -> Iterator[tuple[str, str, str]]:
        """Yield the counts of the header: a name, a value, a remark."""
        case_count = len(self._cases) + self._stored_cases
        cases = counted(case_count, "case") if self._is_grouped else ""
        conversations = len(self._conversations) + self._stored_conversations
        chats = counted(conversations, "conversation") if conversations else ""
        remark = cases or chats
        yield "runs", f"{self.runs:,}", f"of {remark}" if remark else ""
        if self._is_grouped and self._unpaired:
            yield "unpaired runs", f"{self._unpaired:,}", "no question captured, and no case id"
        agents = sorted(clean(agent) for agent in self._agents if agent)
        if agents:
            names = ", ".join(agents[:3]) + (" …" if len(agents) > 3 else "")
            yield "agents", f"{len(agents):,}", names
        counts = [series.tally for series in self._seen.values()]
        errors = sum(tally.errors for tally in counts)
        missing = sum(tally.not_evaluated for tally in counts)
        verdicts = sum(tally.evaluated for tally in counts)
        yield "verdicts", f"{verdicts:,}", f"by {counted(len(self.names), 'evaluator')}"
        yield "evaluator errors", f"{errors:,}", "never counted as a 0"
        yield "not evaluated", f"{missing:,}", "never counted as a pass"
        if self._runs_failed:
            yield "runs that failed", f"{self._runs_failed:,}", ""
        remark = f"in {counted(self._runs_with_failures, 'run')}" if self._failed_calls else ""
        yield "failed tool calls", f"{self._failed_calls:,}", remark
        if self._runs_with_gaps:
            yield "runs with gaps", f"{self._runs_with_gaps:,}", "missing from the traces"
        seconds = SortedNumbers.merged(
            SortedNumbers(group["seconds"]) for group in self.groups.values()
        )
        if seconds:
            remark = f"95% below {seconds_text(seconds.quantile(0.95))}"
            yield "median time", duration(round(seconds.median * 1e9)), remark
        if self._counted:
            tokens = self._tokens
            cached = f", {short(tokens.cached_tokens)} cached" if tokens.cached_tokens else ""
            remark = f"{short(tokens.input_tokens)} in, {short(tokens.output_tokens)} out{cached}"
            total = short(tokens.input_tokens + tokens.output_tokens)
            yield "tokens", *_partly(total, remark, self.runs - self._counted, "run")
        if self._priced:
            remark = f"{counted(self._priced, 'run')} at list prices"
            unknown = self.runs - self._priced
            yield "models' cost", *_partly(_dollars(self._spent), remark, unknown, "run")
        if self._cost is not None:
            yield "judges' cost", *_partly(_dollars(self._cost), "", self._unpriced, "verdict")

    @property
    def period(self) -> str:
        """From when to when the runs began, or ""."""
        if not self._times[1]:
            return ""
        first, last = (clock(time)[:16] for time in self._times)
        return f"{first} – {last} UTC"

    def ordered_names(self) -> list[str]:
        """The evaluators' names; evaluators that fail in any group come first."""
        return [tally.evaluator for tally in worst_first(self.tallies.values())]

    @property
    def tallies(self) -> dict[str, Tally]:
        """The counts of each evaluator over all groups."""
        totals = {name: Tally(name) for name in self.names}
        for (name, _), series in self._seen.items():
            totals[name].merge(series.tally)
        return totals

    def gates(self, gates: Iterable[Gate], groups: Sequence[str]) -> Iterator[Held]:
        """Yield whether each gate held in each group."""
        for group in groups:
            of_group = {
                name: series.tally for (name, at), series in self._seen.items() if at == group
            }
            for result in check_gates(gates, of_group):
                printable = replace(result, evaluator=clean(result.evaluator))
                yield clean(group), printable

    def evaluators(self, groups: Sequence[str]) -> Iterator[EvaluatorSummary]:
        """Yield each evaluator's counts in each group, compared with the first group."""
        summaries: list[EvaluatorSummary] = []
        for name in self.ordered_names():
            base = self._seen.get((name, groups[0]))
            for at, group in enumerate(groups):
                series = self._seen.get((name, group)) or _VerdictSeries(Tally(name))
                summary = _counted(series, group)
                if at and base:
                    differences = self._differences.get((name, group)) or _differences(base, series)
                    summary = differences.added_to(summary)
                summaries.append(summary)
        p_values = [summary.p_value for summary in summaries if summary.p_value is not None]
        adjusted = iter(benjamini_hochberg(p_values))
        for summary in summaries:
            yield summary if summary.p_value is None else replace(summary, p_value=next(adjusted))

    def charts(self, groups: Sequence[str]) -> Iterator[Bars | Histogram]:
        """Yield the distributions worth a chart."""
        names = self.ordered_names()[:_MOST_CHARTED]
        if len(groups) > 1:
            yield from self._rates_by_group(names, groups)
        else:
            yield from self._rates_over_time(names)
        for name in names:
            by_group = {
                g: SortedNumbers(s.scores) for g in groups if (s := self._seen.get((name, g)))
            }
            if not all(map(_is_binary, by_group.values())):
                title = f"Scores: {clean(name)}"
                yield histogram(title, by_group, plain)
        for title, kind, form in (
            ("Time per run", "seconds", seconds_text),
            ("Tokens per run", "tokens", short),
        ):
            by_group = {group: SortedNumbers(self.groups[group][kind]) for group in groups}
            if sum(map(len, by_group.values())) > 1:
                yield histogram(title, by_group, form, is_logarithmic=True)

    def _rates_by_group(self, names: Sequence[str], groups: Sequence[str]) -> Iterator[Bars]:
        by_place = {
            (evaluator.name, evaluator.group): evaluator for evaluator in self.evaluators(groups)
        }
        series = []
        for name in names:
            places = [by_place[clean(name), clean(group)] for group in groups]
            if any(summary.pass_rate is not None for summary in places):
                series.append((clean(name), tuple(map(_rate, places))))
        if series:
            yield Bars("Pass rate", tuple(clean(group) for group in groups), tuple(series))

    def _rates_over_time(self, names: Sequence[str]) -> Iterator[Bars]:
        first, last = self._times
        if last <= first:
            return
        step = (last - first) / _TIMES
        labels = time_labels([first + step * at for at in range(_TIMES)])
        for name in names:
            counts = self._stored_times.get(name) or [[0, 0] for _ in range(_TIMES)]
            for start, passed in zip(*self._timed.get(name, ((), ())), strict=True):
                bucket = counts[min(int((start - first) / step), _TIMES - 1)]
                bucket[0] += passed
                bucket[1] += 1
            if any(total for _, total in counts):
                series = (clean(name), tuple(_share(*pair) for pair in counts))
                yield Bars(f"Pass rate over time: {clean(name)}", labels, (series,))


def _counted(series: _VerdictSeries, group: str) -> EvaluatorSummary:
    tally = series.tally
    by_case = map(_passes, series.by_case.values())
    shares = [share for share in by_case if share is not None]
    number = series.shares + len(shares)
    interval = clopper_pearson(min(series.share_total + math.fsum(shares), number), number)
    return EvaluatorSummary(
        name=clean(tally.evaluator),
        group=clean(group),
        passed=tally.passed,
        failed=tally.failed,
        unjudged=tally.unjudged,
        errors=tally.errors,
        not_evaluated=tally.not_evaluated,
        # An evaluator that only failed has an unknown rate: 0 would be a verdict.
        pass_rate=tally.pass_rate if tally.passed or tally.failed else None,
        low=interval.low,
        high=interval.high,
        mean=tally.mean,
    )


def _passes(verdicts: Sequence[RunVerdict]) -> float | None:
    """A case's share of passes over its judged runs and its runs with an error."""
    judged = [v for v in verdicts if v.passed is not None or v.status == "error"]
    return sum(bool(v.passed) for v in judged) / len(judged) if judged else None


def _differences(base: _VerdictSeries, series: _VerdictSeries) -> _Differences:
    """The differences between cases that were read."""
    differences = _Differences()
    for case, verdicts in series.by_case.items():
        before, now = worth_of(base.by_case.get(case, ())), worth_of(verdicts)
        if before is not None and now is not None and before.is_share == now.is_share:
            differences.count(before, now, 1)
    return differences


def _rate(summary: EvaluatorSummary) -> tuple[float, float, float, int] | None:
    if summary.pass_rate is None:
        return None
    return (
        summary.pass_rate,
        summary.low,
        summary.high,
        summary.passed + summary.failed + summary.errors,
    )


def _share(passed: int, total: int) -> tuple[float, float, float, int] | None:
    if not total:
        return None
    interval = clopper_pearson(passed, total)
    return passed / total, interval.low, interval.high, total


def _is_binary(values: SortedNumbers) -> bool:
    """Whether all numbers are 0 or 1."""
    zeros, up_to_zero = values.below(0.0), values.below(math.nextafter(0.0, 1.0))
    below_one, above = values.below(1.0), values.below(math.nextafter(1.0, 2.0))
    return zeros == 0 and up_to_zero == below_one and above == len(values)


def _partly(value: str, remark: str, unknown: int, noun: str) -> tuple[str, str]:
    """A sum and a remark: if some of its parts are unknown, it is a lower bound."""
    if not unknown:
        return value, remark
    parts = (remark, f"unknown for {counted(unknown, noun)}")
    return f"at least {value}", "; ".join(filter(None, parts))


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"
