"""The records that make up a report, and how the cells of its matrix are made and compared.

A **run** is a stored trajectory or a run of an experiment, with its verdicts. Runs of one **case**
share a row. **Groups** are compared with each other: versions, periods, experiments; the first one
is the baseline. A **column** is an evaluator in a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from ...evaluators import GateResult
from ...model import EvaluationResult, Feedback, Score, Trajectory, record
from ..run_changes import ShownComparison
from ..text import shorten
from .tool_graph import ToolGraph

__all__ = [
    "Bars",
    "CellValue",
    "Change",
    "EvaluatorSummary",
    "Histogram",
    "MatrixCell",
    "MatrixColumn",
    "MatrixRow",
    "PairwiseExample",
    "PairwiseSummary",
    "Report",
    "ReportRun",
    "RunPair",
    "RunVerdict",
    "State",
    "cell_of",
    "changed",
    "direction",
    "worth_of",
]

State = Literal["pass", "fail", "mixed", "score", "error", "none", "absent"]
Change = Literal["", "same", "regressed", "improved", "changed"]
_WORST: tuple[State, ...] = ("error", "fail", "none", "score", "pass")
_WORDS: dict[State, str] = {"pass": "pass", "fail": "fail", "error": "error", "none": "n/e"}
# Shares closer than `_SAME` are equal. Scores that neither pass nor fail must differ by `_NOTICED`
# (relative to the baseline's, if that is above 1): a judge rarely repeats a number exactly.
_SAME = 1e-9
_NOTICED = 0.05


@record
class RunVerdict(EvaluationResult):
    """An evaluator's verdict on one run.

    Attributes:
        evaluator: Its name.
        version: Its version.
    """

    evaluator: str
    version: str = ""

    @classmethod
    def of(cls, evaluation: Score | Feedback) -> RunVerdict:
        """The verdict of a stored score or of an experiment's feedback."""
        name = evaluation.evaluator if isinstance(evaluation, Score) else evaluation.key
        return cls(name, evaluation.version, **_result(evaluation))

    def as_score(self, name: str) -> Score:
        """The verdict as a score of the trajectory with this id."""
        return Score(name, "", "", self.evaluator, self.version, **_result(self))


def _result(evaluation: EvaluationResult) -> dict[str, Any]:
    return {option.name: getattr(evaluation, option.name) for option in fields(EvaluationResult)}


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One run with its verdicts.

    Attributes:
        id: The trajectory's or the run's id.
        group: Its group.
        case: Its case; runs of the same case are compared across groups.
        label: The label of its row.
        verdicts: The evaluators' verdicts.
        trajectory: Its trajectory, if known.
        inputs: The inputs of an experiment's run.
        outputs: The outputs of an experiment's run, unless they are its trajectory.
        error: Why an experiment's run failed, or "".
        start_ns: When it began (ns since the epoch); 0 if unknown.
        end_ns: When it ended (ns since the epoch); 0 if unknown.
        repetition: Which repetition of its case it is, from 0.
    """

    id: str
    group: str
    case: str
    label: str
    verdicts: tuple[RunVerdict, ...] = ()
    trajectory: Trajectory | None = None
    inputs: Any = None
    outputs: Any = None
    error: str = ""
    start_ns: int = 0
    end_ns: int = 0
    repetition: int = 0


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """An evaluator in a group: a column of the matrix.

    Attributes:
        evaluator: The evaluator.
        group: The group.
        is_baseline: Whether the others are compared with it.
    """

    evaluator: str
    group: str
    is_baseline: bool = False


class CellValue(NamedTuple):
    """The value by which cells are compared.

    Attributes:
        value: The share of passes, or the mean score if nothing passes or fails.
        is_share: Whether `value` is a share of passes.
    """

    value: float
    is_share: bool


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """An evaluator's verdicts on the runs of a case in a group.

    Attributes:
        state: The verdicts in a word; ``absent`` if the group has no run of this case, or the
            evaluator did not score it.
        text: The text of the cell.
        value: The sort key: the mean score, or the share of passes; None if unknown.
        worth: The value to compare by; None if unknown.
        runs: The ids of the runs, the one to open first.
        note: The reason, in one line.
        change: How it differs from the baseline's cell.
    """

    state: State
    text: str = ""
    value: float | None = None
    worth: CellValue | None = None
    runs: tuple[str, ...] = ()
    note: str = ""
    change: Change = ""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A case, or a run.

    Attributes:
        label: Its name.
        detail: A second, smaller line.
        runs: The ids of its runs.
        cells: A cell for each column.
        change: The worst change from the baseline.
        badness: 0 if anything failed, 1 if a verdict is missing, 2 otherwise.
        diffs: For each group but the baseline, its run aligned with the baseline's.
        started_ns: When its latest run began (ns since the epoch).
        took_ns: The mean duration of its runs (ns).
        tokens: The mean number of tokens of its runs.
        failures: The number of failed tool calls.
        gaps: The codes of the runs' gaps.
        words: Additional search terms.
    """

    label: str
    detail: str
    runs: tuple[str, ...]
    cells: tuple[MatrixCell, ...]
    change: Change = ""
    badness: int = 2
    diffs: tuple[RunPair, ...] = ()
    started_ns: int = 0
    took_ns: int = 0
    tokens: int = 0
    failures: int = 0
    gaps: tuple[str, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs, aligned message by message.

    Attributes:
        left: The id of the baseline's run.
        right: The id of the other run.
        group: The group of the other run.
        pairs: Per row, the message index on each side (or None) and whether both are the same.
        first: The index of the first row that differs, or None.
    """

    left: str
    right: str
    group: str
    pairs: tuple[tuple[int | None, int | None, bool], ...]
    first: int | None


@dataclass(frozen=True, slots=True)
class EvaluatorSummary:
    """An evaluator's verdicts in one group, counted.

    Attributes:
        name: The evaluator.
        group: The group, or "".
        passed: Runs that passed.
        failed: Runs that failed.
        unjudged: Runs with a verdict that neither passes nor fails.
        errors: Runs on which the evaluator raised an error.
        not_evaluated: Runs that could not be evaluated.
        pass_rate: Passes over passes, fails and errors; None if nothing passed or failed.
        low: The lower end of its 95% interval.
        high: The upper end.
        mean: The mean score; None if unknown.
        better: Cases that improved over the baseline.
        worse: Cases that regressed.
        paired: Cases with a verdict in both groups.
        p_value: The p-value for no difference between the cases, adjusted for all comparisons
            shown. For passes and fails, it is from the exact McNemar test. None for the baseline,
            and if the cases are too few or too similar.
    """

    name: str
    group: str
    passed: int
    failed: int
    unjudged: int
    errors: int
    not_evaluated: int
    pass_rate: float | None
    low: float
    high: float
    mean: float | None
    better: int = 0
    worse: int = 0
    paired: int = 0
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of rates with intervals, by group or over time.

    Attributes:
        title: Its title.
        labels: The labels of the x axis.
        series: By name, for each label ``(rate, low, high, count)``, or None.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[tuple[float, float, float, int] | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram.

    Attributes:
        title: Its title.
        labels: The range of each bin.
        series: By group, the number of values in each bin.
        note: A remark, such as the median and the 95th percentile.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[int, ...]], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class PairwiseExample:
    """An example on which a pairwise evaluator compared runs.

    Attributes:
        case: The example.
        runs: The ids of the runs that were compared.
        asked: For each answer, the names in the order shown and their scores; the scores are
            empty if the evaluator failed.
        winner: The name of the better one, "" for a tie, None if the evaluator failed.
        is_flipped: Whether the answer depended on the order shown.
        note: The evaluator's reasons.
    """

    case: str
    runs: tuple[str, ...]
    asked: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...]
    winner: str | None
    is_flipped: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class PairwiseSummary:
    """A comparison of two experiments by a pairwise evaluator.

    Attributes:
        key: The question's name.
        names: The two experiments; the second is compared with the first.
        wins: The number of examples each experiment won; repetitions count as shares.
        ties: The number of tied examples.
        errors: The number of failed comparisons.
        share: The second's win rate, a tie as half; None without examples.
        low: The lower end of its 95% interval.
        high: The upper end.
        p_value: For the hypothesis of no preference, adjusted for all pairs and questions.
        flip_rate: The share of comparisons asked in both orders that the order decided, or None.
        first_rate: How often the answer shown first is preferred, without ties, or None.
        duels: The examples.
    """

    key: str
    names: tuple[str, str]
    wins: tuple[float, float]
    ties: float
    errors: int
    share: float | None
    low: float
    high: float
    p_value: float
    flip_rate: float | None
    first_rate: float | None
    duels: tuple[PairwiseExample, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report.

    Attributes:
        title: Its heading.
        selection: The filters in force, as names and values.
        figures: The figures of the header, as names, values and remarks.
        groups: The compared groups, the baseline first; [""] without a comparison.
        evaluators: Counts of verdicts by evaluator and group.
        columns: The columns of the matrix.
        rows: Its rows.
        details: For each run shown, its details as JSON text.
        charts: The distributions.
        tools: The graph of tools; None without calls.
        pairwise: The pairwise comparisons.
        comparisons: The changes of each other experiment against the baseline.
        gates: The result of each gate in each group.
        notes: Remarks on runs and details left out.
        static: The ids of the runs to print in full.
        made_ns: When the report was made (ns since the epoch).
        version: The version of oteval.
    """

    title: str
    selection: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str, str], ...]
    groups: tuple[str, ...]
    evaluators: tuple[EvaluatorSummary, ...]
    columns: tuple[MatrixColumn, ...]
    rows: tuple[MatrixRow, ...]
    details: Mapping[str, str]
    charts: tuple[Bars | Histogram, ...] = ()
    tools: ToolGraph | None = None
    pairwise: tuple[PairwiseSummary, ...] = ()
    comparisons: tuple[ShownComparison, ...] = ()
    gates: tuple[tuple[str, GateResult], ...] = ()
    notes: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    made_ns: int = 0
    version: str = ""

    @property
    def is_comparison(self) -> bool:
        """Whether there is a baseline to compare with."""
        return len(self.groups) > 1


def cell_of(items: Sequence[ReportRun], evaluator: str) -> MatrixCell:
    """The cell of an evaluator for the runs of a case in a group."""
    run_verdicts = [(item, v) for item in items for v in _said(item, evaluator)]
    if not run_verdicts:
        return MatrixCell("absent", runs=tuple(item.id for item in items))
    run_verdicts.sort(key=lambda pair: _WORST.index(pair[1].state))
    verdicts = [verdict for _, verdict in run_verdicts]
    states = {verdict.state for verdict in verdicts}
    state: State = verdicts[0].state if len(states) == 1 else "mixed"
    value = _value(verdicts)
    text = _text(verdicts, state, value)
    note = next((shorten(v.comment, 160) for v in verdicts if v.comment), "")
    runs = tuple(item.id for item, _ in run_verdicts)
    return MatrixCell(state, text, value, worth_of(verdicts), runs, note)


def _value(verdicts: Sequence[RunVerdict]) -> float | None:
    """The sort key of a cell: the mean score, else the share of passes."""
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    if scores:
        return sum(scores) / len(scores)
    worth = worth_of(verdicts)
    return worth.value if worth else None


def _text(verdicts: Sequence[RunVerdict], state: State, value: float | None) -> str:
    first = verdicts[0]
    if len(verdicts) == 1:
        if first.score is not None and first.score not in (0.0, 1.0):
            return f"{first.score:.3g}"
        if state == "score":
            number = "" if first.score is None else f"{first.score:.3g}"
            return number or shorten(first.label, 24)
        return _WORDS[state]
    if state in ("error", "none"):
        return f"{_WORDS[state]} ×{len(verdicts)}"
    judged = [verdict for verdict in verdicts if verdict.passed is not None]
    if judged:
        return f"{sum(bool(verdict.passed) for verdict in judged)}/{len(verdicts)}"
    return "" if value is None else f"{value:.3g}"


def _said(item: ReportRun, evaluator: str) -> list[RunVerdict]:
    """An evaluator's verdicts on a run; an error if the run itself failed."""
    verdicts = [verdict for verdict in item.verdicts if verdict.evaluator == evaluator]
    if not verdicts and item.error:
        return [RunVerdict(evaluator, status="error", comment=f"the run failed: {item.error}")]
    return verdicts


def worth_of(verdicts: Sequence[RunVerdict]) -> CellValue | None:
    """The value to compare verdicts by: the share of passes, else the mean score.

    Errors and runs that were not evaluated do not count.
    """
    judged = [verdict.passed for verdict in verdicts if verdict.passed is not None]
    if judged:
        return CellValue(sum(judged) / len(judged), is_share=True)
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    return CellValue(sum(scores) / len(scores), is_share=False) if scores else None


def direction(base: CellValue | None, now: CellValue | None) -> int | None:
    """1 for an improvement, -1 for a regression, 0 for neither; None if unknown."""
    if base is None or now is None or base.is_share != now.is_share:
        return None
    least = _SAME if base.is_share else _NOTICED * max(1.0, abs(base.value))
    difference = now.value - base.value
    return 0 if abs(difference) <= least else 1 if difference > 0 else -1


def changed(base: MatrixCell, cell: MatrixCell) -> Change:
    """How a cell differs from the baseline's."""
    if "absent" in (base.state, cell.state):
        return ""
    sign = direction(base.worth, cell.worth)
    if sign:
        return "improved" if sign > 0 else "regressed"
    if sign is None:
        return "same" if base.state == cell.state and base.text == cell.text else "changed"
    # As good as it was, but perhaps with errors beside it.
    mixed = "mixed" in (base.state, cell.state)
    return "changed" if mixed and base.text != cell.text else "same"
