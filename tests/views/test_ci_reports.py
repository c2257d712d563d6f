from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from oteval.model import Message
from oteval.scoring import GateResult, Tally
from oteval.views import junit_report, markdown_report, run_title

from ..make import run, score

HOSTILE = (
    "<script>&amp;]]> | `x` [a](b) ![i](j) **b** \x1b[31m\x00\ud800\uffff\u202e\nsecond\r\n| line"
)
SCORES = [
    score(1),
    score(2, passed=False, score=0.0, comment=HOSTILE),
    score(3, status="error", comment=HOSTILE, evaluator="<f> & \x1b"),
    score(4, status="not_evaluated", comment=HOSTILE),
    score(5, passed=None),
    score(6, passed=False, score=0.0),
]


def test_junit_has_a_case_for_each_score():
    """A fail is a failure, an error an error; what was not evaluated is skipped."""
    root = ElementTree.fromstring(junit_report(SCORES))

    first, second = root.findall("testsuite")
    assert (root.tag, root.get("name")) == ("testsuites", "oteval")
    assert first.attrib == {
        "name": "e",
        "tests": "5",
        "failures": "2",
        "errors": "0",
        "skipped": "1",
    }
    assert (second.get("tests"), second.get("errors")) == ("1", "1")
    outcomes = [[child.tag for child in case] for case in root.iter("testcase")]
    assert outcomes == [[], ["failure"], ["skipped"], [], ["failure"], ["error"]]
    assert [case.get("name") for case in first] == [
        score(number).trajectory_id for number in (1, 2, 4, 5, 6)
    ]


def test_junit_is_xml_whatever_a_trace_holds():
    """Control characters, markup and halves of characters neither break nor leave the text."""
    text = junit_report(SCORES)

    text.encode()
    root = ElementTree.fromstring(text)
    message = root.find(".//failure").get("message")  # type: ignore[union-attr]
    assert message is not None
    assert message.startswith("<script>&amp;]]> | `x`")
    assert message.endswith("\\x1b[31m\\x00\\ud800\\uffff\\u202e second\\x0d | line")
    assert root.find(".//failure[@message='failed']") is not None


def test_junit_of_nothing_is_a_file():
    """Without scores there is an empty suite list, not an error."""
    assert list(ElementTree.fromstring(junit_report([]))) == []


def test_markdown_shows_counts_gates_and_failures():
    """The report has a line for each evaluator, gate and failure."""
    tallies = {"e": Tally("e", passed=3, failed=1, not_evaluated=2), "f": Tally("f")}
    gates = [GateResult("e", True, "fine"), GateResult("f", False, "evaluated 0")]

    text = markdown_report(tallies, gates, [score(2, passed=False, label="fail", comment="why")])

    assert "| e | 3 | 1 | 0 | 2 | 0.750 | - |\n| f | 0 | 0 | 0 | 0 | - | - |\n" in text
    assert "- e: passed (fine)\n- f: **failed** (evaluated 0)\n" in text
    assert text.endswith(f"| {score(2).trajectory_id} | e | fail | why |\n")


def test_markdown_without_gates_and_failures_has_no_such_parts():
    """Nothing to say is not said."""
    assert "##" not in markdown_report({"e": Tally("e", passed=1)}, [], [])


def test_markdown_cells_hold_what_a_trace_says():
    """Text from a trace stays in its cell and is never markup."""
    text = markdown_report({}, [], [score(2, passed=False, comment=HOSTILE)])

    (line,) = [line for line in text.splitlines() if score(2).trajectory_id in line]
    assert line.count("|") - line.count("\\|") == 5
    assert "\\<script\\>" in line
    assert "\\[a\\](b) \\!\\[i\\](j) \\*\\*b\\*\\*" in line
    assert "\x1b" not in text


def test_junit_cases_are_named_by_titles():
    """Cases have their runs' names, numbered where one is repeated; a run without one its id."""
    titles = {score(1).trajectory_id: "clerk · refund", score(2).trajectory_id: "clerk · refund"}
    scores = [score(1), score(2), score(4)]

    root = ElementTree.fromstring(junit_report(scores, titles))

    names = [case.get("name") for case in root.iter("testcase")]
    assert names == ["clerk · refund", "clerk · refund #2", score(4).trajectory_id]


def test_a_runs_title_is_its_agent_case_and_question():
    """The title stays the same when a run is repeated; only an unknown run goes by its id."""
    question_run = run(1, Message("user", "Where is\nmy order?"), agent="clerk")
    named = replace(question_run, attributes={"test.case.id": "refund-1"})
    unknown = run(3, Message("assistant", "hi"))

    assert run_title(question_run) == "clerk · Where is my order?"
    assert run_title(named) == "clerk · refund-1 · Where is my order?"
    assert run_title(unknown).endswith(unknown.id)


def test_evaluators_that_fail_come_first():
    """Failures by pass rate, then evaluators without any verdict, then those that pass."""
    tallies = {
        "good": Tally("good", passed=3),
        "blind": Tally("blind", not_evaluated=3),
        "bad": Tally("bad", passed=2, failed=1),
        "broken": Tally("broken", errors=3),
    }

    text = markdown_report(tallies, [], [])

    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["| evaluator", "| broken", "| bad", "| blind", "| good"]
