from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oteval.cli import score
from oteval.cli.common import store_in_turn
from oteval.store import Store

from ..make import asks, call, keep, run
from .conftest import Run

ORDER = {
    "role": "assistant",
    "tool_calls": [{"function": {"name": "lookup_order", "arguments": '{"order_id": "9999"}'}}],
}


@pytest.fixture
def rules(tmp_path: Path) -> Any:
    """Return a function that writes oteval.yaml; by default it has one match rule."""
    (tmp_path / "r.json").write_text(json.dumps([ORDER]))

    def write(gates: Any = (), rules: Any = (), **fields: Any) -> None:
        match = {"name": "order", "type": "trajectory_match", "mode": "superset", **fields}
        match = {"reference": "r.json", "tool_args": "ignore", **match}
        text = json.dumps({"evaluators": [match, *rules], "gates": list(gates)}, indent=1)
        (tmp_path / "oteval.yaml").write_text(text)

    return write


def test_gates_decide_the_exit_status(filled: Run, rules: Any):
    """0 if all gates pass, 1 if one fails; each is printed with its figures."""
    rules(gates=[{"evaluator": "order", "min_pass_rate": 0.3}])
    passed = filled("score")
    rules(
        gates=[
            {"evaluator": "order", "min_pass_rate": 0.3},
            {"evaluator": "order", "min_pass_rate": 0.9},
        ]
    )
    failed = filled("score")

    assert (passed.status, failed.status) == (0, 1)
    assert "gate order: passed: evaluated 3 (at least 1), pass rate 0.333" in passed.err
    assert (
        "gate order: FAILED: evaluated 3 (at least 1), pass rate 0.333 (at least 0.9)" in failed.err
    )
    assert "missing 1 call: lookup_order" in passed.out
    assert passed.out.splitlines()[-1].split() == ["order", "1", "2", "0", "0", "0.333", "0.333"]


def test_without_gates_the_status_says_little(filled: Run, rules: Any):
    """Scores without gates give exit status 0 and a warning."""
    rules()

    done = filled("score")

    assert done.status == 0
    assert "no gates are configured, so exit status 0 only means that scoring worked" in done.err


def test_nothing_to_evaluate_is_status_3(filled: Run, rules: Any):
    """No trajectory, no verdict, or fewer than required: exit status 3, never a pass."""
    rules(gates=[{"evaluator": "order"}])
    nobody = filled("score", "--agent", "nobody")
    few = filled("score", "--min-evaluated", "4")
    enough = filled("score", "--min-evaluated", "3")
    rules(reference={"dataset": "d.jsonl"})
    Path("d.jsonl").write_text('{"test.case.id": 1, "messages": []}')
    none = filled("score")

    assert (nobody.status, few.status, enough.status, none.status) == (3, 3, 0, 3)
    assert nobody.err == ("oteval: no trajectories to score; oteval trajectories lists them\n")
    assert "3 verdicts on 3 trajectories; expected at least 4" in few.err
    assert "0 verdicts on 3 trajectories; expected at least 1" in none.err
    assert "the run has no attribute 'test.case.id' that names its case" in none.out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "oteval.yaml: no such file; oteval init writes one that fits your runs"),
        ("evaluators:\n  - nmae: x\n", "oteval.yaml:2: "),
        ("evaluators: [\n", "oteval.yaml:2: no valid YAML"),
        (
            "evaluators:\n  - {name: a, type: trajectory_match, reference: none.json}\n",
            "oteval.yaml:2: evaluator 'a': none.json: no such file",
        ),
        (
            "evaluators:\n  - {name: a, type: python, call: 'no_such_module_at_all:f'}\n",
            "oteval.yaml:2: evaluator 'a': call 'no_such_module_at_all:f': cannot import",
        ),
    ],
)
def test_a_broken_configuration_is_status_2(
    filled: Run, tmp_path: Path, text: str | None, reason: str
):
    """One line names the file and the line, or the evaluator; nothing is scored."""
    if text is not None:
        (tmp_path / "oteval.yaml").write_text(text)

    done = filled("score")

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"oteval: {reason}")
    assert done.err.count("\n") == 1


def test_json_has_a_line_for_each_score(filled: Run, rules: Any):
    """Lines have the documented keys; everything else is on standard error."""
    rules(gates=[{"evaluator": "order"}])

    done = filled("score", "--json")

    assert done.status == 0
    assert len(done.rows) == 3
    for row in done.rows:
        assert list(row) == [
            *("trajectory_id", "trace_id", "span_id", "evaluator", "version"),
            *("score", "label", "passed", "status", "comment", "metadata"),
        ]
    assert [row["passed"] for row in done.rows] == [False, True, False]


def test_files_are_scored_in_memory(oteval: Run, rules: Any, chat: Path, tmp_path: Path):
    """Scoring trace files leaves no database behind."""
    rules(gates=[{"evaluator": "order", "min_pass_rate": 0.3}])

    done = oteval("score", chat)

    assert done.status == 0
    assert list(tmp_path.glob("*.duckdb*")) == []


def test_files_are_kept_when_a_database_is_named(
    oteval: Run, rules: Any, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With --db they are loaded there first and the scores are kept; OTEVAL_DB is left alone."""
    rules()
    monkeypatch.setenv("OTEVAL_DB", "y.duckdb")
    oteval("score", chat, "--db", "x.duckdb")
    oteval("score", chat)

    assert sorted(p.name for p in tmp_path.glob("*.duckdb")) == ["x.duckdb"]
    assert len(oteval("scores", "--json", "--db", "x.duckdb").rows) == 3


def test_a_file_that_cannot_be_read_is_not_scored(oteval: Run, rules: Any, chat: Path):
    """A gate does not pass when only half of the files were read."""
    rules()

    done = oteval("score", chat, "none.json")

    assert (done.status, done.out) == (2, "")
    assert "none.json: cannot be opened" in done.err
    assert "nothing was scored, because a file could not be read" in done.err


def test_reports_are_written(filled: Run, rules: Any, tmp_path: Path):
    """JUnit XML has every score, and Markdown the runs that did not pass."""
    rules(gates=[{"evaluator": "order", "min_pass_rate": 0.9}])

    done = filled("score", "--junit", "j.xml", "--md", "r.md", "--json")

    assert done.status == 1
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("order", "3", "2")
    text = (tmp_path / "r.md").read_text()
    assert "| order | 1 | 2 | 0 | 0 | 0.333 |" in text
    assert "- order: **failed**" in text
    assert text.count("| order | fail |") == 2


@pytest.mark.parametrize("option", ["--junit", "--md"])
def test_a_report_that_cannot_be_written_is_named(filled: Run, rules: Any, option: str):
    """A missing folder is exit status 2 with the path."""
    rules()

    done = filled("score", option, "none/x")

    assert done.status == 2
    assert "oteval: none/x: cannot be written: No such file or directory" in done.err


def test_scores_without_a_verdict_are_no_failures(filled: Run, rules: Any, tmp_path: Path):
    """A function's number appears in the counts of reports, not among failures."""
    (tmp_path / "my_numbers_of_test.py").write_text("def half(): return 0.5\n")
    rules(rules=[{"name": "half", "type": "python", "call": "my_numbers_of_test:half"}])

    done = filled("score", "--md", "r.md")

    assert done.status == 0
    assert "half" not in (tmp_path / "r.md").read_text().split("## Not passed")[1]
    assert done.out.splitlines()[-1].split() == ["half", "0", "0", "0", "0", "-", "0.500"]


def test_functions_stand_beside_the_configuration(oteval: Run, chat: Path, tmp_path: Path):
    """A module in the configuration's folder is found from other folders."""
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "my_functions_of_test.py").write_text("def yes(): return True\n")
    (folder / "c.yaml").write_text(
        "evaluators:\n  - {name: a, type: python, call: 'my_functions_of_test:yes'}\n"
    )

    done = oteval("score", "-c", "evals/c.yaml", chat, "--json")

    assert [row["passed"] for row in done.rows] == [True, True, True]


def test_scores_are_listed_and_filtered(filled: Run, rules: Any):
    """The newest scores are listed, by evaluator, outcome and the filters of trajectories."""
    rules(rules=[{"name": "bad", "type": "python", "call": "json:loads"}])
    filled("score")
    filled("score")

    def listed(*arguments: str) -> int:
        done = filled("scores", "--json", *arguments)
        assert done.status == 0
        return len(done.rows)

    assert listed() == 6
    assert listed("--evaluator", "order") == 3
    assert listed("--status", "pass") == 1
    assert listed("--status", "fail") == 2
    assert listed("--status", "error") == 3
    assert listed("--status", "not_evaluated") == 0
    assert listed("--where", "calls>1") == 2
    assert listed("--limit", "1") == 2
    assert "6 scores" in filled("scores").err


def test_a_configuration_is_checked(oteval: Run, rules: Any):
    """Checking prints each evaluator's version, or the error with its line."""
    rules(gates=[{"evaluator": "order"}])
    good = oteval("config", "check")
    rules(moed="strict")
    bad = oteval("config", "check")

    assert (good.status, bad.status) == (0, 2)
    assert good.out.startswith("order  version ")
    assert good.err == "oteval.yaml: 1 evaluator, 1 gate\n"
    assert bad.err == (
        "oteval: oteval.yaml:9: evaluator 'order': unknown key 'moed'; did you mean 'mode'?\n"
    )


def test_all_faults_of_a_configuration_are_printed(oteval: Run, tmp_path: Path):
    """Keys and missing references each have a line with the evaluator's name and its place."""
    entries = (
        "  - {name: order, type: trajectory_match, reference: none.json}\n"
        "  - {name: calls, type: python, call: 'no_module:f'}\n"
    )
    (tmp_path / "oteval.yaml").write_text(f"evaluators:\n{entries}")
    unprepared = oteval("config", "check")
    broken = entries.replace("type: python", "typ: python").replace("reference", "refrence")
    (tmp_path / "oteval.yaml").write_text(f"evaluators:\n{broken}")

    assert [line[:48] for line in unprepared.err.splitlines()] == [
        "oteval: oteval.yaml:2: evaluator 'order': none.j"[:48],
        "oteval: oteval.yaml:3: evaluator 'calls': call '"[:48],
    ]
    for command in (("config", "check"), ("score",)):
        done = oteval(*command)
        assert done.status == 2
        assert [line.split(": ")[1:3] for line in done.err.splitlines()] == [
            ["oteval.yaml:2", "evaluator 'order'"],
            ["oteval.yaml:3", "evaluator 'calls'"],
        ]


def test_the_schema_is_json(oteval: Run):
    """The command prints a JSON schema with the file's keys."""
    done = oteval("config", "schema")

    assert done.status == 0
    assert json.loads(done.out)["properties"].keys() == {
        *("evaluators", "gates", "salt", "completion", "budgets", "retention"),
        *("forward", "push", "events", "metrics", "redact"),
        *("monitors", "notify", "tools", "conversation", "user", "version", "prompt"),
    }


def test_junit_cases_are_named_by_question_and_agent(filled: Run, rules: Any, tmp_path: Path):
    """A case keeps its name when the run is repeated, so that CI can follow it."""
    rules()

    filled("score", "--junit", "j.xml")

    names = [
        case.get("name", "") for case in ElementTree.parse(tmp_path / "j.xml").iter("testcase")
    ]
    assert names == [
        "support_agent · What is the weather in Paris and Tokyo?",
        "support_agent · Where is my order 9999?",
        "hi",  # its spans name no agent
    ]


def test_runs_that_fail_over_the_order_of_a_list_are_counted(
    oteval: Run, rules: Any, tmp_path: Path
):
    """The summary counts failed runs whose calls differ only in a list's order, and says how."""
    ids = {"ids": ["1", "2"]}, {"ids": ["2", "1"]}, {"ids": ["3"]}, {"ids": ["2", "1"]}
    with Store(tmp_path / "oteval.duckdb") as store:
        keep(
            store,
            *(run(at, asks(call("refund", arguments))) for at, arguments in enumerate(ids, 1)),
        )
    calls = [{"name": "refund", "args": {"ids": ["1", "2"]}}]
    Path("r.json").write_text(json.dumps([{"role": "assistant", "tool_calls": calls}]))

    rules(tool_args="exact")
    done = oteval("score")
    rules(tool_args={"tolerant": {"sets": ["ids"]}})
    tolerant = oteval("score")

    assert (
        "order: 2 failed runs with calls that differ only in the order of a list; to ignore it: "
        "tool_args: {tolerant: {sets: [ids]}}" in done.err
    )
    assert done.out.splitlines()[-1].split()[:3] == ["order", "1", "3"]
    assert tolerant.out.splitlines()[-1].split()[:3] == ["order", "3", "1"]
    assert "order of a list" not in tolerant.err


def test_an_argument_mode_in_the_configuration_is_checked(oteval: Run, rules: Any, chat: Path):
    """A misspelt mode or option is one line with the evaluator and the remedy."""
    for wrong in ("tolerent", {"tolerant": {"set": ["ids"]}}):
        rules(tool_args=wrong)
        done = oteval("score", chat)

        assert done.status == 2
        assert "tool_args" in done.err
        assert done.err.count("\n") == 1


def test_large_files_are_scored_from_a_database_that_is_deleted(
    oteval: Run, chat: Path, rules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The scores match a database in memory, and the temporary folder is empty afterwards."""
    rules()
    expected = oteval("score", chat, "--json")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(score, "_LARGE", 1)
    opened: list[str] = []

    def open_store(path: str) -> Store:
        opened.append(path)
        return store_in_turn(path)

    monkeypatch.setattr(score, "store_in_turn", open_store)

    large = oteval("score", chat, "--json")

    def rows(done: Any) -> Any:
        return [{k: v for k, v in row.items() if k != "time_ns"} for row in done.rows]

    assert rows(large) == rows(expected) != []
    assert opened[0].startswith(str(temporary))
    assert list(temporary.iterdir()) == []
