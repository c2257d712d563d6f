"""The tools that read: lists, single runs, explanations, comparisons, variants and alerts."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.model import Message
from oteval.monitor.monitor_checks import check
from oteval.scoring import load, refresh
from oteval.store import Store
from oteval.views.mcp.workspace import Workspace

from ...make import TRACES, asks, call, keep, run, score
from ...monitor.histories import History, config
from .conftest import BAD, BLIND, GOOD, LATER, Ask, connected


async def test_the_failing_run_its_reason_and_its_first_divergence_take_two_calls(ask: Ask) -> None:
    """The list of failing runs has the reasons, and a comparison has the divergence."""
    listed = await ask("list_runs", outcome="fail")
    [failing] = listed.rows
    compared = await ask("diff_runs", run=failing["run"])

    assert failing["run"] == BAD.id
    assert failing["scores"] == [
        {
            "evaluator": "refunds",
            "outcome": "fail",
            "score": 0.0,
            "reason": "argument 'amount' is 420.0",
        }
    ]
    assert compared.rows[0] == {
        "first_different_call": 2,
        "expected": {"tool": "refund", "arguments": {"amount": 42.0}},
        "run": {"tool": "refund", "arguments": {"amount": 420.0}},
        "calls": {"expected": 2, "run": 2},
    }


async def test_runs_are_listed_page_by_page(ask: Ask) -> None:
    """Pages follow each other without a gap or a repetition, the newest run first."""
    listed_ids, after = [], ""
    while True:
        page = await ask("list_runs", count=1, after=after)
        listed_ids += [row["run"] for row in page.rows]
        if "after=" not in page.outside:
            break
        after = page.outside.split('after="')[1].split('"')[0]

    assert listed_ids == [BLIND.id, LATER.id, BAD.id, GOOD.id]


async def test_columns_of_runs_can_be_added(ask: Ask) -> None:
    """A run in the list has any further field of ``where``, as far as the run has a value."""
    [row] = (
        await ask("list_runs", outcome="fail", columns=["messages", "tool_errors", "user"])
    ).rows

    assert row["messages"] == len(BAD.own_messages)
    assert row["tool_errors"] == 0.0
    assert "user" not in row


async def test_filters_are_those_of_the_command_line(ask: Ask) -> None:
    """Conditions with and without a column of the store select the same runs as the commands."""
    by_tool = await ask("list_runs", where=["tool=refund"])
    by_question = await ask("list_runs", where="asked~order [12]")
    by_gap = await ask("list_runs", where=["gap=content_not_captured"], agent="a")
    none = await ask("list_runs", agent=["b"])

    assert [row["run"] for row in by_tool.rows] == [LATER.id, BAD.id, GOOD.id]
    assert [row["run"] for row in by_question.rows] == [BAD.id, GOOD.id]
    assert [row["run"] for row in by_gap.rows] == [BLIND.id]
    assert none.text == "No run matches."


async def test_a_replaced_score_is_not_an_outcome(workspace: Workspace, ask: Ask) -> None:
    """Only the newest score of an evaluator counts."""
    with Store(workspace.db) as store:
        store.scores.write([score(2, evaluator="refunds", time_ns=9)])

    assert (await ask("list_runs", outcome="fail")).rows == []
    assert len((await ask("list_runs", outcome="pass", evaluator="refunds")).rows) == 3
    assert (await ask("list_runs", outcome="pass", evaluator="other")).rows == []


async def test_a_run_is_shown_with_scores_and_messages(ask: Ask) -> None:
    """The first row describes the run, and each further row is a message."""
    head, *messages = (await ask("show_run", run=BAD.id[:8])).rows

    assert head["run"] == BAD.id
    assert head["scores"][0]["reason"] == "argument 'amount' is 420.0"
    assert "Not scored yet" in head["not_scored"]["no-errors"]
    assert [row["role"] for row in messages] == [message.role for message in BAD.messages]
    assert messages[3]["calls"] == [{"tool": "refund", "arguments": {"amount": 420.0}}]
    assert messages[4] == {"n": 4, "role": "tool", "tool": "refund", "text": "refunded"}


async def test_earlier_turns_are_shown_on_request(workspace: Workspace) -> None:
    """A run's own messages are shown by default, under their numbers in the conversation."""
    first = run(11, Message("user", "one"), asks(text="eins"), conversation_id="c")
    second = run(
        12, Message("user", "two"), asks(text="zwei"), history=first, new_from=2, turn=2,
        conversation_id="c",
    )  # fmt: skip
    with Store(workspace.db) as store:
        keep(store, first, second)

    async with connected(workspace) as ask:
        own = await ask("show_run", run=second.id)
        whole = await ask("show_run", run=second.id, earlier=True)
        listed = await ask("list_runs", conversation="c")

    assert [(row["n"], row["text"]) for row in own.rows[1:]] == [(2, "two"), (3, "zwei")]
    assert [row["text"] for row in whole.rows[1:]] == ["one", "eins", "two", "zwei"]
    assert [row["run"] for row in listed.rows] == [second.id, first.id]


async def test_a_run_is_compared_with_another_run(ask: Ask) -> None:
    """Without a difference in calls, there are no rows of calls, and the first message counts."""
    same_calls = await ask("diff_runs", run=LATER.id, other=GOOD.id)
    stored = await ask("diff_runs", run=BAD.id, reference="good")

    assert "first divergence in row 0" in same_calls.outside
    assert "Tool call" not in same_calls.outside
    assert same_calls.rows[0]["first_divergence"] is True
    assert "Tool call 2 is the first that differs" in stored.outside


async def test_the_order_of_calls_is_named(workspace: Workspace) -> None:
    """Runs that make the same calls in another order say so."""
    first = run(21, asks(call("a", {}, "1"), call("b", {}, "2")))
    second = run(22, asks(call("b", {}, "1"), call("a", {}, "2")))
    with Store(workspace.db) as store:
        keep(store, first, second)

    async with connected(workspace) as ask:
        comparison = await ask("diff_runs", run=second.id, other=first.id)

    assert comparison.rows[0]["same_calls_in_another_order"] is True


async def test_spans_are_explained_with_the_remedy_of_gaps(tmp_path: Path) -> None:
    """Each span has the dialect that read it, and each gap the setting that closes it."""
    path = tmp_path / "traces.duckdb"
    with Store(path) as store:
        load(store, [TRACES / "genai_openai_chat.json"])
        refresh(store)
        [trajectory, *_] = store.trajectories.read()

    async with connected(Workspace(str(path), "oteval.yaml")) as ask:
        explanation = await ask("explain_run", run=trajectory.id)

    spans = [row for row in explanation.rows if "span" in row]
    assert f"Trace {trajectory.root_span.trace_id}" in explanation.outside
    assert {row["dialect"] for row in spans if "dialect" in row} == {"genai"}
    assert any(row.get("messages") for row in spans)


async def test_traces_that_wait_are_reconstructed(tmp_path: Path) -> None:
    """A tool also sees runs of traces that are not reconstructed yet."""
    path = tmp_path / "traces.duckdb"
    with Store(path) as store:
        load(store, [TRACES / "genai_openai_chat.json"])

    async with connected(Workspace(str(path), "oteval.yaml")) as ask:
        assert len((await ask("list_runs")).rows) == 3


async def test_variants_are_counted(ask: Ask) -> None:
    """Runs are grouped by the tools that they called, and further variants are on further pages."""
    listed = await ask("list_variants", count=1)
    rest = await ask("list_variants", start=1)

    assert listed.rows[0]["calls"] == ["get_order", "refund"]
    assert (listed.rows[0]["runs"], listed.rows[0]["pass_rate"]) == (3, 0.6667)
    assert "start=1" in listed.outside
    assert [row["calls"] for row in rest.rows] == [["(no calls)"]]


async def test_alerts_have_the_state_of_monitors(workspace: Workspace, ask: Ask) -> None:
    """Groups without an alert are listed on request, and a missing monitor is an error."""
    quiet = await ask("list_alerts")
    every = await ask("list_alerts", all=True)
    Path(workspace.config_path).write_text("evaluators: [{name: e, type: tool_errors}]")
    without = await ask("list_alerts")

    assert quiet.text.startswith("0 alerts in 1 group")
    assert [row["monitor"] for row in every.rows] == ["refunds"]
    assert without.is_error
    assert "no monitors" in without.text


async def test_several_databases_are_read_as_one(workspace: Workspace, tmp_path: Path) -> None:
    """Runs of each are listed and shown; monitors have the state of each database."""
    other = tmp_path / "other.duckdb"
    with Store(other) as store:
        keep(store, run(7))
    combined = Workspace(workspace.db, workspace.config_path, more=(str(other),))
    async with connected(combined) as ask:
        listed = await ask("list_runs", count=10)
        run_answer = await ask("show_run", run=run(7).id)
        alerts = await ask("list_alerts", all=True)

    assert {GOOD.id, run(7).id} < {row["run"] for row in listed.rows}
    assert not run_answer.is_error
    assert [row["database"] for row in alerts.rows] == [workspace.db, str(other)]


async def test_an_alert_says_since_when_and_names_runs(tmp_path: Path) -> None:
    """A group that got worse has its episode with readable times, and runs to show."""
    path = tmp_path / "alerts.duckdb"
    rules = config("{evaluator: e, group_by: agent}")
    with Store(path) as store:
        history = History(store)
        history.scored(400, 0.95)
        history.scored(40, 0.3)
        check(store, rules, history.now)
    (tmp_path / "oteval.yaml").write_text(
        "evaluators: [{name: e, type: tool_errors}]\nmonitors: [{evaluator: e, group_by: agent}]\n"
    )

    async with connected(Workspace(str(path), str(tmp_path / "oteval.yaml"))) as ask:
        listed = await ask("list_alerts")
        [alert] = listed.rows
        [episode] = alert["episodes"]
        run_answer = await ask("show_run", run=episode["runs"][0])

    assert listed.text.startswith("1 alert in 1 group")
    assert (alert["state"], alert["group"]) == ("alert", {"agent": "a"})
    assert alert["since"].startswith("2026-")
    assert episode["change"].startswith("2026-")
    assert not run_answer.is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("show_run", {"run": "ffffffff"}, "no trajectory 'ffffffff'"),
        ("show_run", {"run": "f"}, "run: String should have at least 4 characters"),
        ("show_run", {}, "run: Field required"),
        ("show_run", {"run": GOOD.id, "start": 99}, "start: the run has messages 0 to 5"),
        ("show_run", {"run": "\u202e\x1b[2J'; DROP TABLE spans"}, "no trajectory"),
        ("list_runs", {"count": 0}, "count: Input should be greater than or equal to 1"),
        ("list_runs", {"columns": ["colour"]}, "columns: 'colour' is unknown; there are agent"),
        ("list_runs", {"colour": "red"}, "colour: Extra inputs are not permitted"),
        ("list_runs", {"after": "yesterday"}, "use the text with which a page ended"),
        ("list_runs", {"after": "9" * 19 + "-ab"}, "use the text with which a page ended"),
        ("list_runs", {"where": ["erors>0"]}, "unknown field 'erors'"),
        ("list_runs", {"where": ["asked~("]}, "invalid regular expression"),
        ("list_runs", {"since": "soon"}, "write a date"),
        ("list_runs", {"outcome": "bad"}, "outcome: Input should be"),
        ("list_runs", {"agent": 7}, "agent: Input should be a valid list"),
        ("explain_run", {"run": "ffffffff"}, "no trace, span or trajectory"),
        ("diff_runs", {"run": GOOD.id, "other": GOOD.id, "reference": "x"}, "give one of other"),
        ("diff_runs", {"run": GOOD.id, "reference": "x"}, "no reference 'x'"),
        ("diff_runs", {"run": GOOD.id, "evaluator": "no-errors"}, "give other (a run)"),
        ("no_tool", {}, "no tool 'no_tool'; there are list_runs"),
    ],
)
async def test_a_bad_argument_is_a_tool_error_of_one_line(
    ask: Ask, tool: str, arguments: dict[str, object], expected: str
) -> None:
    """The error names the argument or the remedy, and has neither control characters nor lines."""
    answer = await ask(tool, **arguments)

    assert answer.is_error
    assert expected in answer.text
    assert "\n" not in answer.text
    assert answer.text.isprintable()


async def test_a_missing_database_is_an_error_of_the_call(tmp_path: Path) -> None:
    """The server starts without a database, and finds it once it is there."""
    path = tmp_path / "later.duckdb"
    async with connected(Workspace(str(path), "oteval.yaml")) as ask:
        missing = await ask("list_runs")
        with Store(path) as store:
            keep(store, GOOD)
        listed = await ask("list_runs")

    assert missing.is_error
    assert "no such database" in missing.text
    assert [row["run"] for row in listed.rows] == [GOOD.id]


async def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "notes.duckdb"
    path.write_text("notes")
    async with connected(Workspace(str(path), "oteval.yaml")) as ask:
        answer = await ask("list_runs")

    assert answer.is_error
    assert str(path) in answer.text
