"""The records that make up a report.

A **run** is a stored trajectory or a run of an experiment, with its verdicts. Runs of one **case**
share a row. **Groups** are compared with each other: versions, periods, experiments; the first one
is the baseline. A **column** is an evaluator in a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from ...evaluators import GateResult
from ...model import EvaluationResult, Feedback, Score, Trajectory, record
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
]

State = Literal["pass", "fail", "mixed", "score", "error", "none", "absent"]
Change = Literal["", "same", "regressed", "improved", "changed"]


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
    gates: tuple[tuple[str, GateResult], ...] = ()
    notes: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    made_ns: int = 0
    version: str = ""

    @property
    def is_comparison(self) -> bool:
        """Whether there is a baseline to compare with."""
        return len(self.groups) > 1
