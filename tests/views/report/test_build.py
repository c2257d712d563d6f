"""What a report says: figures, cells, changes, and what it leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import ConfigError, NothingEvaluated
from oteval.model import Message
from oteval.scoring.config import Gate
from oteval.views.report import Report, ReportOptions, ReportRun, RunVerdict, build
from oteval.views.report.charts import axis_labels
from oteval.views.report.model import cell_of, changed, direction, worth_of

from ...make import asks, call, run

VERDICTS = {
    "pass": RunVerdict("e", score=1.0, passed=True),
    "fail": RunVerdict("e", score=0.0, passed=False, comment="why not"),
    "error": RunVerdict("e", status="error", comment="it broke"),
    "none": RunVerdict("e", status="not_evaluated", comment="not captured"),
    "half": RunVerdict("e", score=0.5),
    "most": RunVerdict("e", score=0.9),
}


def item(number: int, group: str, *names: str, case: str = "", **fields: object) -> ReportRun:
    """Return a run with verdicts by their names above."""
    trajectory = run(
        number, Message("user", f"question {case or number}"), Message("assistant", group)
    )
    run_fields = {"trajectory": trajectory, "start_ns": number, "end_ns": number + 10, **fields}
    case = case or trajectory.id
    verdicts = tuple(VERDICTS[name] for name in names)
    return ReportRun(trajectory.id, group, case, f"question {case}", verdicts, **run_fields)  # type: ignore[arg-type]


def compared(*items: ReportRun, **fields: object) -> Report:
    """Return the report that compares the groups of some runs."""
    return build(items, ReportOptions(is_grouped=True, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "state", "text"),
    [
        (["pass"], "pass", "pass"),
        (["fail"], "fail", "fail"),
        (["error"], "error", "error"),
        (["none"], "none", "n/e"),
        (["half"], "score", "0.5"),
        (["pass", "fail"], "mixed", "1/2"),
        (["pass", "error"], "mixed", "1/2"),
        (["error", "error"], "error", "error ×2"),
        (["half", "most"], "score", "0.7"),
        ([], "absent", ""),
    ],
)
def test_a_cell_says_what_the_verdicts_come_to(names: list[str], state: str, text: str) -> None:
    """One verdict is its word or number, several are counted, and none is no verdict."""
    items = [item(at, "g", name) for at, name in enumerate(names, 1)]

    cell = cell_of(items, "e")

    assert (cell.state, cell.text) == (state, text)


def test_an_error_or_nothing_evaluated_has_no_value() -> None:
    """Neither an error nor what was not evaluated is ever taken for a 0 or a pass."""
    for name in ("error", "none"):
        assert cell_of([item(1, "g", name)], "e").value is None
        assert worth_of([VERDICTS[name]]) is None


def test_a_run_that_failed_is_an_error_of_every_evaluator() -> None:
    """Where a run failed and nobody judged it, its cell is an error and not empty."""
    cell = cell_of([item(1, "g", error="TimeoutError: 60 s")], "e")

    assert (cell.state, cell.value) == ("error", None)
    assert "TimeoutError" in cell.note


def test_the_worst_run_of_a_cell_is_opened_first() -> None:
    """A click leads to the run that explains the cell."""
    good, bad = item(1, "g", "pass"), item(2, "g", "fail")

    assert cell_of([good, bad], "e").runs == (bad.id, good.id)


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (["pass"], ["fail"], "regressed"),
        (["fail"], ["pass"], "improved"),
        (["pass", "pass"], ["pass", "fail"], "regressed"),
        (["pass"], ["pass"], "same"),
        (["pass"], ["error"], "changed"),
        (["none"], ["pass"], "changed"),
        (["error"], ["error"], "same"),
        (["most"], ["half"], "regressed"),
        (["pass"], ["half"], "changed"),
        (["pass"], [], ""),
    ],
)
def test_a_change_is_judged_by_passes_then_scores(
    before: list[str], now: list[str], change: str
) -> None:
    """What lost its verdict changed, but is neither better nor worse."""
    cells = [
        cell_of([item(at, "g", name) for at, name in enumerate(names, 1)], "e")
        for names in (before, now)
    ]

    assert changed(*cells) == change


@given(st.floats(0, 1), st.floats(0, 1))
def test_direction_turns_around_with_its_sides(left_score: float, right_score: float) -> None:
    """What is better one way is worse the other, and a near miss is neither."""
    left, right = (
        worth_of([RunVerdict("e", score=left_score)]),
        worth_of([RunVerdict("e", score=right_score)]),
    )

    there, back = direction(left, right), direction(right, left)

    assert there is not None
    assert back is not None
    assert there == -back
    assert abs(left_score - right_score) > 0.0499 or there == 0


def test_regressions_come_first() -> None:
    """Rows are in the order: regressed, changed, improved, the same."""
    report = compared(
        *(item(1, "v1", "pass", case="same"), item(2, "v2", "pass", case="same")),
        *(item(3, "v1", "fail", case="better"), item(4, "v2", "pass", case="better")),
        *(item(5, "v1", "pass", case="worse"), item(6, "v2", "fail", case="worse")),
        *(item(7, "v1", "pass", case="lost"), item(8, "v2", "error", case="lost")),
    )

    assert [row.change for row in report.rows] == ["regressed", "changed", "improved", "same"]
    assert next(row.label for row in report.rows) == "question worse"


def test_the_evaluators_are_compared_by_case() -> None:
    """Better and worse are counted over the cases that both groups have a verdict on."""
    report = compared(
        *(item(1, "v1", "pass", case="a"), item(2, "v2", "fail", case="a")),
        *(item(3, "v1", "pass", case="b"), item(4, "v2", "error", case="b")),
        *(item(5, "v1", "pass", case="c"), item(6, "v2", "pass", case="c")),
    )

    base, other = report.evaluators
    assert (base.pass_rate, base.p_value) == (1.0, None)
    assert (other.passed, other.failed, other.errors) == (1, 1, 1)
    assert (other.better, other.worse, other.paired) == (0, 1, 2)
    assert other.pass_rate == pytest.approx(1 / 3)
    assert other.low < 1 / 3 < other.high


def test_repetitions_do_not_make_an_interval_narrower() -> None:
    """Cases are what is counted: the same case ten times over says as much as once."""
    once = compared(*(item(n, "v1", "pass", case=str(n)) for n in range(1, 6)), item(99, "v2"))
    often = compared(
        *(item(n * 100 + r, "v1", "pass", case=str(n)) for n in range(1, 6) for r in range(10)),
        item(9999, "v2"),
    )

    assert once.evaluators[0].low == pytest.approx(often.evaluators[0].low)


def test_runs_side_by_side_name_their_first_divergence() -> None:
    """The pairs index the messages of both runs, and the first that differs is marked."""
    greeting = Message("user", "hello")
    left = item(
        1, "v1", case="x", trajectory=run(1, greeting, asks(call("a")), Message("assistant"))
    )
    right = item(2, "v2", case="x", trajectory=run(2, greeting, asks(call("b"))))

    (row,) = compared(left, right).rows

    (diff,) = row.diffs
    assert diff.pairs == ((0, 0, True), (1, 1, False), (2, None, False))
    assert diff.first == 1


def test_the_baseline_can_be_chosen() -> None:
    """The named group stands first; one that is not there is an error that lists them."""
    items = [item(1, "v1", "pass", case="x"), item(2, "v2", "fail", case="x")]

    assert compared(*items, baseline="v2").groups == ("v2", "v1")
    with pytest.raises(ConfigError, match="'v3' is not one of the compared groups: v1, v2"):
        compared(*items, baseline="v3")


def test_too_many_groups_are_refused() -> None:
    """A matrix of a hundred versions helps nobody; the error says what to do."""
    with pytest.raises(ConfigError, match="100 groups to compare, at most 12"):
        compared(*(item(n, f"v{n}", "pass") for n in range(1, 101)))


def test_nothing_to_report_is_said() -> None:
    """No runs is an error and not an empty page."""
    with pytest.raises(NothingEvaluated, match="no run was there"):
        build([], ReportOptions())


def test_of_many_runs_those_that_did_not_pass_are_kept() -> None:
    """All count in the figures; the rows keep what failed, and a note says so."""
    items = [item(n, "", "fail" if n % 10 == 0 else "pass") for n in range(1, 101)]

    report = build(items, ReportOptions(most_rows=15))

    assert len(report.rows) == 15
    assert sum(row.badness < 2 for row in report.rows) == 10
    assert report.evaluators[0].passed == 90
    assert "15 of 100 runs" in report.notes[0]


def test_details_stop_at_the_limit_and_say_so() -> None:
    """The file's limit leaves out details, from the end of the rows, and never a row."""
    items = [item(n, "", "pass") for n in range(1, 51)]

    report = build(items, ReportOptions(most_bytes=5000))

    assert len(report.rows) == 50
    assert 0 < len(report.details) < 50
    assert report.rows[0].runs[0] in report.details
    assert "--max-size" in report.notes[0]


def test_only_the_evaluators_asked_for_count() -> None:
    """A choice of evaluators leaves the others out of figures, columns and details."""
    verdicts = (RunVerdict("e", score=1.0, passed=True), RunVerdict("f", score=0.0, passed=False))
    unscored = item(1, "")
    report_run = ReportRun(
        unscored.id, "", unscored.case, unscored.label, verdicts, unscored.trajectory
    )

    report = build([report_run], ReportOptions(evaluators=("e",)))

    assert [column.evaluator for column in report.columns] == ["e"]
    assert report.rows[0].badness == 2
    assert '"f"' not in report.details[unscored.id]


def test_an_evaluator_that_only_failed_has_no_pass_rate() -> None:
    """Errors alone are not a rate of 0; beside verdicts they lower it."""
    only = build([item(1, "", "error")], ReportOptions())
    beside = build([item(1, "", "error"), item(2, "", "pass")], ReportOptions())

    assert only.evaluators[0].pass_rate is None
    assert only.evaluators[0].errors == 1
    assert beside.evaluators[0].pass_rate == 0.5


def test_failures_come_before_missing_verdicts() -> None:
    """A newer run that was not evaluated does not push a failure down."""
    items = [item(1, "", "fail"), item(2, "", "pass"), item(3, "", "none"), item(4, "", "error")]

    report = build(items, ReportOptions())

    states = [row.cells[0].state for row in report.rows]
    assert states == ["error", "fail", "none", "pass"]


def test_failures_are_kept_before_missing_verdicts() -> None:
    """Where not all rows fit, those left out are not the failures."""
    items = [item(n, "", "fail" if n <= 3 else "none") for n in range(1, 21)]

    report = build(items, ReportOptions(most_rows=5))

    assert [row.cells[0].state for row in report.rows] == ["fail"] * 3 + ["none"] * 2


@given(st.lists(st.sampled_from(["pass", "fail", "none", "half"]), min_size=1, max_size=30))
def test_the_rows_are_those_of_all_runs_sorted(names: list[str]) -> None:
    """Whatever the order of the runs, rows are failures, then missing verdicts, then the latest."""
    items = [item(number, "", name) for number, name in enumerate(names, 1)]
    order = {"fail": 0, "none": 1}
    best = sorted(range(len(names)), key=lambda at: (order.get(names[at], 2), -at))[:7]

    report = build(items, ReportOptions(most_rows=7))

    assert sorted(row.runs[0] for row in report.rows) == sorted(items[at].id for at in best)


def test_the_evaluators_that_fail_come_first() -> None:
    """In the table of evaluators and in the matrix, whatever the order of the verdicts."""
    unscored = item(1, "")
    verdicts = (
        RunVerdict("good", score=1.0, passed=True),
        RunVerdict("bad", score=0.0, passed=False),
    )

    report = build(
        [ReportRun(unscored.id, "", unscored.case, unscored.label, verdicts)], ReportOptions()
    )

    assert [evaluator.name for evaluator in report.evaluators] == ["bad", "good"]
    assert [column.evaluator for column in report.columns] == ["bad", "good"]


def test_gates_are_checked_for_each_group() -> None:
    """A gate holds or not by the runs of a group; one of an evaluator without scores fails."""
    gates = (Gate(evaluator="e", min_pass_rate=0.9), Gate(evaluator="gone"))

    report = compared(item(1, "a", "pass"), item(2, "b", "fail"), gates=gates)

    outcomes = [(group, gate.evaluator, gate.passed) for group, gate in report.gates]
    assert outcomes == [
        ("a", "e", True),
        ("a", "gone", False),
        ("b", "e", False),
        ("b", "gone", False),
    ]


@pytest.mark.parametrize("seconds", [0.05, 5, 300, 50_000, 500_000, 5_000_000])
def test_the_labels_of_an_axis_of_times_differ(seconds: float) -> None:
    """Runs within a tenth of a second or two months: no two places have the same label."""
    begin = 1_763_800_000_000_000_000
    step = int(seconds * 1e9 / 20)
    items = [item(n, "", "pass", start_ns=begin + n * step, end_ns=0) for n in range(20)]

    [chart] = [
        chart for chart in build(items, ReportOptions()).charts if "over time" in chart.title
    ]

    assert len(set(chart.labels)) == len(chart.labels)


def test_the_labels_of_a_histogram_differ() -> None:
    """Scores that differ in the fifth place have edges that say so."""
    near = [RunVerdict("e", score=0.5 + n / 1_000_000) for n in range(20)]
    unscored = item(1, "")
    items = [
        ReportRun(f"{n}", "", f"{n}", "q", (verdict,), unscored.trajectory)
        for n, verdict in enumerate(near)
    ]

    [chart] = [
        chart for chart in build(items, ReportOptions()).charts if chart.title == "Scores: e"
    ]

    edges = [label.partition(" – ")[0] for label in chart.labels]
    assert len(set(edges)) == len(edges)


def test_the_labels_of_long_groups_differ() -> None:
    """Names that only differ at their end, or in the middle, stay apart on the axis."""
    end = ["gpt-5-mini-2026-08-07-a", "gpt-5-mini-2026-08-07-b"]
    middle = ["gpt-5-mini-a-2026-08-07-long", "gpt-5-mini-b-2026-08-07-long"]

    assert len(set(axis_labels(end))) == 2
    assert len(set(axis_labels([*end, *middle]))) == 4
    assert all(len(label) <= 18 for label in axis_labels([*end, *middle]))
