"""Checks and graph matches from oteval.yaml, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..make import TRACES
from .conftest import Run

CHECKS = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: loops, type: loops, max_repeats: 1, ignore_tools: [wait]}
  - {name: budget, type: budget, max_tool_calls: 1, max_total_tokens: 1000}
  - {name: fast, type: latency, max: 10s, max_tool: 5s}
  - {name: cheap, type: cost, max_cost: 0.01, prices: {gpt-4o-mini: {input: 1, output: 2}}}
  - {name: polite, type: required_text, texts: [paris, rome], match: any, ignore_case: true}
  - {name: answer, type: final_answer, mode: numeric, expected: 17}
  - {name: schema, type: tool_schema}
  - {name: safe, type: forbidden_tools, forbidden: ["refund_*"]}
  - {name: order, type: tool_order, rules: get_weather before lookup_order}
"""


@pytest.fixture
def scored(oteval: Run, tmp_path: Path) -> Any:
    """Return a function that scores a capture under a configuration and returns the scores."""

    def run(text: str, capture: str, status: int = 0) -> dict[tuple[str, int], dict[str, Any]]:
        (tmp_path / "oteval.yaml").write_text(text)
        done = oteval("score", TRACES / f"{capture}.json", "--json")
        assert done.status == status, done.err
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for row in done.rows:
            turn = sum(name == row["evaluator"] for name, _ in found)
            found[row["evaluator"], turn] = row
        return found

    return run


def test_every_check_scores_real_runs(scored: Any) -> None:
    """Each type of check judges two runs of a capture as their traces have it."""
    found = scored(CHECKS, "genai_openai_chat")

    verdicts = {name: (found[name, 0]["passed"], found[name, 1]["passed"]) for name, _ in found}
    assert verdicts == {
        "errors": (True, False),
        "loops": (True, True),
        "budget": (False, True),
        "fast": (True, True),
        "cheap": (True, True),
        "polite": (True, False),
        "answer": (True, False),
        "schema": (True, True),
        "safe": (True, True),
        "order": (True, False),
    }
    assert "tool calls 2 (at most 1)" in found["budget", 0]["comment"]
    assert found["cheap", 0]["metadata"]["cost"] == pytest.approx((170 + 2 * 34) / 1e6)
    assert all(row["status"] == "ok" for (_, turn), row in found.items() if turn < 2)


def test_a_trace_without_content_passes_no_check_that_needs_it(scored: Any) -> None:
    """Checks that need messages are not evaluated if none were captured."""
    found = scored(CHECKS, "genai_openai_chat_nocontent")

    unknown = {name for (name, turn), row in found.items() if turn == 0 and row["passed"] is None}
    assert unknown == {"errors", "loops", "polite", "answer", "schema"}
    assert all(
        row["status"] == "not_evaluated" and row["comment"]
        for (name, turn), row in found.items()
        if turn == 0 and name in unknown
    )


GRAPH = """
evaluators:
  - name: path
    type: graph_match
    mode: %s
    reference: %s
    scope: %s
"""


def test_graphs_are_matched_with_a_file(scored: Any, tmp_path: Path) -> None:
    """Each run's nodes are compared with the file's steps; the comment names the difference."""
    steps = {"steps": [["__start__", "model", "tools", "tools", "model"]]}
    (tmp_path / "g.json").write_text(json.dumps(steps))

    found = scored(GRAPH % ("strict", "g.json", "turn"), "langgraph_openinference")

    assert [found["path", turn]["passed"] for turn in range(2)] == [True, False]
    assert found["path", 1]["comment"].startswith("turn 0: node 3: 'model' in the output")


def test_runs_without_nodes_are_not_evaluated(scored: Any, tmp_path: Path) -> None:
    """A trace that shows no nodes passes no graph match, not even subset."""
    (tmp_path / "g.json").write_text('[["a"]]')

    found = scored(GRAPH % ("subset", "g.json", "turn"), "v2_legacy_chat", 3)

    assert {row["status"] for row in found.values()} == {"not_evaluated"}


def test_graphs_are_matched_with_stored_runs(oteval: Run, tmp_path: Path) -> None:
    """A trajectory id or the name of a reference provides the steps."""
    oteval("ingest", TRACES / "langgraph_openinference.json")
    first = oteval("trajectories", "--json").rows[0]["trajectory_id"]
    assert oteval("reference", "add", first, "--name", "kept").status == 0

    for reference in (f"{{trajectory: {first}}}", "{name: kept}"):
        for scope in ("turn", "conversation"):
            (tmp_path / "oteval.yaml").write_text(GRAPH % ("strict", reference, scope))
            rows = {row["trajectory_id"]: row for row in oteval("score", "--json").rows}
            assert rows[first]["passed"] is True
            assert not all(row["passed"] for row in rows.values())


def test_graphs_are_matched_by_case(oteval: Run, tmp_path: Path) -> None:
    """A dataset's line has steps; an attribute of the run selects the line."""
    steps = [["__start__", "model", "tools", "tools", "model"]]
    case = {"service.name": "langgraph_openinference", "steps": steps}
    (tmp_path / "d.jsonl").write_text(json.dumps(case))
    oteval("ingest", TRACES / "langgraph_openinference.json")
    text = GRAPH % ("strict", "{dataset: d.jsonl, key: service.name}", "turn")
    (tmp_path / "oteval.yaml").write_text(text)

    rows = oteval("score", "--json").rows

    assert [row["status"] for row in rows] == ["ok"] * len(rows)
    assert {row["passed"] for row in rows} == {True, False}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{name: a, type: latency}", "give max or max_tool"),
        ("{name: a, type: forbidden_tools}", "give forbidden or allowed"),
        ("{name: a, type: final_answer}", "give either expected or reference"),
        ("{name: a, type: loops, max_repeat: 1}", "did you mean 'max_repeats'?"),
        (
            "{name: a, type: cost, max_cost: 1, prices: {m: {inputs: 1, input: 1, output: 1}}}",
            "did you mean 'input'?",
        ),
        ("{name: a, type: tool_error}", "did you mean 'tool_errors'?"),
        ("{name: a, type: tool_order, rules: a after b}", "rule 'a after b' is not known"),
        ("{name: a, type: tool_errors, error_pattern: '('}", "not a valid pattern"),
        ("{name: a, type: tool_errors, reference: x}", "unknown key 'reference'"),
        ("{name: a, type: budget}", "give at least one limit"),
        ("{name: a, type: graph_match, reference: no.json}", "no.json: no such file"),
        ("{name: a, type: graph_match, reference: bad.json}", "bad.json: reference has no steps"),
        ("{name: a, type: tool_schema, definitions: bad.json}", "bad.json: tools is"),
    ],
)
def test_wrong_rules_are_named(oteval: Run, tmp_path: Path, rule: str, message: str) -> None:
    """A wrong configuration gives exit status 2 and one line with the remedy."""
    (tmp_path / "oteval.yaml").write_text(f"evaluators:\n  - {rule}\n")
    (tmp_path / "bad.json").write_text('{"messages": []}')

    done = oteval("score", TRACES / "genai_openai_chat.json")

    assert done.status == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
