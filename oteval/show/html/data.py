"""What a report shows.

An **item** is one run with its verdicts: a stored trajectory, or a run of an experiment. Items of
one **case** stand in one row. **Groups** are what is compared: versions, times, experiments; the
first is the baseline. A **column** is an evaluator in a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...evaluators.gates import GateResult
from ...model import Feedback, Score, Status, Trajectory

__all__ = [
    "Bars",
    "Cell",
    "Change",
    "Column",
    "Comparison",
    "Duel",
    "Evaluator",
    "Histogram",
    "Item",
    "Pairwise",
    "Report",
    "Row",
    "State",
    "Verdict",
    "Worth",
]

State = Literal["pass", "fail", "mixed", "score", "error", "none", "absent"]
Change = Literal["", "same", "regressed", "improved", "changed"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one evaluator said about one run.

    Attributes:
        evaluator: Its name.
        status: ``ok``, ``error`` or ``not_evaluated``.
        score: The number, or None.
        passed: Whether it is a pass; None when it has no such notion.
        label: The verdict as a word, or "".
        comment: Why.
        metadata: Figures.
        version: The evaluator's version.
    """

    evaluator: str
    status: Status
    score: float | None = None
    passed: bool | None = None
    label: str = ""
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    @classmethod
    def of(cls, found: Score | Feedback) -> Verdict:
        """Return the verdict that a score or feedback is."""
        name = found.evaluator if isinstance(found, Score) else found.key
        return cls(
            *(name, found.status, found.score, found.passed, found.label, found.comment),
            metadata=found.metadata,
            version=found.version,
        )

    def as_score(self, name: str = "") -> Score:
        """Return the score that says the same of the trajectory of an id."""
        return Score(
            *(name, "", "", self.evaluator, self.version, self.status),
            *(self.score, self.label, self.passed, self.comment),
        )

    @property
    def state(self) -> State:
        """The verdict in a word."""
        if self.status == "error":
            return "error"
        if self.status == "not_evaluated":
            return "none"
        if self.passed is None:
            return "score"
        return "pass" if self.passed else "fail"


@dataclass(frozen=True, slots=True)
class Item:
    """One run with its verdicts.

    Attributes:
        id: The trajectory's or the run's id.
        group: The group it stands in.
        case: What pairs it with the runs of other groups.
        label: How its row is called.
        verdicts: What the evaluators said.
        trajectory: The run's trajectory, where there is one.
        inputs: What an experiment's run was given.
        outputs: What came of an experiment's run, where that is not its trajectory.
        error: Why an experiment's run failed, or "".
        start_ns: When it began; 0 when that is not known.
        end_ns: When it ended.
        repetition: Which repetition of its case it is, from 0.
    """

    id: str
    group: str
    case: str
    label: str
    verdicts: tuple[Verdict, ...] = ()
    trajectory: Trajectory | None = None
    inputs: Any = None
    outputs: Any = None
    error: str = ""
    start_ns: int = 0
    end_ns: int = 0
    repetition: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """An evaluator in a group: a column of the matrix.

    Attributes:
        evaluator: The evaluator.
        group: The group.
        is_baseline: Whether the others are compared with it.
    """

    evaluator: str
    group: str
    is_baseline: bool = False


class Worth(NamedTuple):
    """What verdicts are compared by.

    Attributes:
        value: The share of passes, or the mean score where nothing passes or fails.
        is_share: Whether it is the former.
    """

    value: float
    is_share: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """What an evaluator said about the runs of a case in a group.

    Attributes:
        state: All of it in a word; ``absent`` where the group has no such run, or the evaluator
            did not look at it.
        text: What the cell shows.
        value: What it is sorted by: the mean score, or the share of passes; None without.
        worth: What it is compared by; None without.
        runs: The ids of the runs, the one to look at first.
        note: Why, in a line.
        change: How it differs from the baseline's cell.
    """

    state: State
    text: str = ""
    value: float | None = None
    worth: Worth | None = None
    runs: tuple[str, ...] = ()
    note: str = ""
    change: Change = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A case, or a run.

    Attributes:
        label: What it is called.
        detail: A second, smaller line.
        runs: The ids of its runs.
        cells: A cell for each column.
        change: The worst that happened against the baseline.
        badness: 0 if anything failed, 1 if a verdict is missing, 2 otherwise.
        diffs: For each group beside the baseline, the runs lined up; empty without.
        started_ns: When its latest run began.
        took_ns: How long its runs took, on average.
        tokens: The tokens they used, on average.
        failures: How many of their tool calls failed.
        gaps: The codes of what their traces do not hold.
        words: What a search finds it by.
    """

    label: str
    detail: str
    runs: tuple[str, ...]
    cells: tuple[Cell, ...]
    change: Change = ""
    badness: int = 2
    diffs: tuple[Comparison, ...] = ()
    started_ns: int = 0
    took_ns: int = 0
    tokens: int = 0
    failures: int = 0
    gaps: tuple[str, ...] = ()
    words: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether anything failed or a verdict is missing."""
        return self.badness < 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs lined up, message by message.

    Attributes:
        left: The baseline's run.
        right: The other.
        group: The other's group.
        pairs: The index of a message of each side, or None, and whether both are the same.
        first: The index of the first pair that differs, or None.
    """

    left: str
    right: str
    group: str
    pairs: tuple[tuple[int | None, int | None, bool], ...]
    first: int | None


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator's verdicts in one group, counted.

    Attributes:
        name: The evaluator.
        group: The group, or "".
        passed: Runs that passed.
        failed: Runs that did not.
        unjudged: Runs with a verdict that is neither.
        errors: Runs on which the evaluator failed.
        not_evaluated: Runs that could not be judged.
        pass_rate: Passes over runs that were judged or failed to be; None where nothing passed
            or failed.
        low: The lower end of its 95% interval.
        high: The upper end.
        mean: The mean score; None without.
        better: Cases that are better than the baseline's.
        worse: Cases that are worse.
        paired: Cases that both have a verdict on.
        p_value: That of no difference: a paired permutation test over cases (of passes and fails
            the exact McNemar test), adjusted for all comparisons shown; None for the baseline.
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
    """Rates with intervals, by group or over time: a chart.

    Attributes:
        title: What it shows.
        labels: Below each place.
        series: By name, for each place ``(rate, low, high, count)``, or None.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[tuple[float, float, float, int] | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often values lie between edges: a chart.

    Attributes:
        title: What it shows.
        labels: Each bin's range.
        series: By group, how many values are in each bin.
        note: Its median and 95th percentile, or the like.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[int, ...]], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Duel:
    """One example on which a pairwise evaluator compared runs.

    Attributes:
        case: The example.
        runs: The ids of the runs that were compared.
        asked: For each answer, the names as they were shown and the scores in that order; scores
            are empty where the evaluator failed.
        winner: The name of the better one, "" for a tie, None where there is no answer.
        is_flipped: Whether the order in which they were shown changed the answer.
        note: The evaluator's reasons.
    """

    case: str
    runs: tuple[str, ...]
    asked: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...]
    winner: str | None
    is_flipped: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pairwise:
    """A comparison of two experiments by a pairwise evaluator.

    Attributes:
        key: The question's name.
        names: The two experiments; the second is held against the first.
        wins: The examples on which each was better; those with repetitions count as shares.
        ties: Those on which neither was.
        errors: Comparisons that failed.
        share: The second's wins and half the ties, over all examples; None without any.
        low: The lower end of its 95% interval.
        high: The upper end.
        p_value: That of no preference, adjusted for all pairs and questions.
        flip_rate: Of what was asked in both orders, the share that the order decided, or None.
        first_rate: How often the one shown first is preferred, ties aside, or None.
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
    duels: tuple[Duel, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All that a page shows.

    Attributes:
        title: Its heading.
        selection: What was chosen, as names and values.
        figures: The counts of the header, as names, values and remarks.
        groups: What is compared, the baseline first; one group without a name where nothing is.
        evaluators: The verdicts counted, by evaluator and group.
        columns: The matrix' columns.
        rows: Its rows.
        details: For each run shown, the JSON text of what the panel shows.
        charts: The distributions.
        pairwise: The pairwise comparisons.
        gates: For each group, whether each gate held.
        notes: What was left out, and why.
        static: The ids of the runs to print in full.
        made_ns: When the report was made.
        version: The version of oteval.
    """

    title: str
    selection: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str, str], ...]
    groups: tuple[str, ...]
    evaluators: tuple[Evaluator, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    details: Mapping[str, str]
    charts: tuple[Bars | Histogram, ...] = ()
    pairwise: tuple[Pairwise, ...] = ()
    gates: tuple[tuple[str, GateResult], ...] = ()
    notes: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    made_ns: int = 0
    version: str = ""

    @property
    def is_comparison(self) -> bool:
        """Whether there is a baseline to compare with."""
        return len(self.groups) > 1
