"""`oteval init` and `oteval learn` as a new user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from oteval.cli.common import store_in_turn
from oteval.model import Label, Message, Trajectory

from ..make import asks, call, keep, run
from .conftest import Done, Prepare, Run

DEMO = Path(str(resources.files("oteval.cli.bundled_demo"))) / "traces"


def _load_demo(oteval: Run) -> None:
    assert oteval("init", DEMO).status == 0


@pytest.fixture
def demo(prepare: Prepare) -> Run:
    """Return the command in a folder with the proposals for the bundled traces."""
    return prepare(_load_demo)


def entries(done: Done) -> dict[str, Any]:
    """Return the printed proposals by name, gates left out."""
    assert done.status == 0, done.err
    return {row["name"]: row for row in done.rows if row["kind"] == "evaluator"}


def test_a_folder_of_traces_becomes_a_configuration_that_scores_them(demo: Run, tmp_path: Path):
    """The written file loads, and the scores are those that the proposals had shown."""
    proposals = entries(demo("init", "--print", "--json"))
    checked, scored = demo("config", "check"), demo("score", "--json")

    assert checked.status == 0
    assert scored.status == 0, scored.err
    active = {name: row["runs"] for name, row in proposals.items() if row["active"]}
    counts = {name: dict.fromkeys(("pass", "fail", "error", "not_evaluated"), 0) for name in active}
    for row in scored.rows:
        state = "pass" if row["passed"] else "fail" if row["passed"] is False else row["status"]
        counts[row["evaluator"]][state] += 1
    assert counts == active


def test_the_wrong_refund_of_the_demo_is_named_without_a_label(demo: Run):
    """The runs of the case agree on the refund, except one; its reason is in the proposal."""
    match = entries(demo("init", "--print", "--json"))["reference-calls"]

    assert match["runs"] == {"pass": 3, "fail": 1, "error": 0, "not_evaluated": 1}
    assert "420.0" in match["failure"]
    assert match["entry"]["view"] == "effects"
    assert match["entry"]["effect_tools"] == ["refund_order"]


def test_an_order_that_one_run_breaks_is_a_comment(demo: Run, tmp_path: Path):
    """`check_policy before refund_order` is proposed, and left to a person."""
    order = entries(demo("init", "--print", "--json"))["usual-tool-order"]
    lines = (tmp_path / "oteval.yaml").read_text().splitlines()

    assert order["entry"]["rules"] == ["check_policy before refund_order"]
    assert not order["active"]
    assert order["runs"]["fail"] == 1
    assert any(line.strip().startswith("# - {name: usual-tool-order") for line in lines)


def test_tools_that_runs_call_legitimately_are_forbidden_only_as_a_comment(demo: Run):
    """The refund agent refunds, so the proposal against refunds does not count."""
    forbidden = entries(demo("init", "--print", "--json"))["forbidden-effects"]

    assert forbidden["entry"]["forbidden"] == ["refund_order"]
    assert not forbidden["active"]
    assert "refund_order in 5 runs" in forbidden["reasons"][0]


def test_proposals_are_deterministic(demo: Run, tmp_path: Path):
    """The same runs give the same files."""
    files = [tmp_path / "oteval.yaml", *sorted((tmp_path / "references").iterdir())]
    before = [path.read_bytes() for path in files]
    assert demo("init", "--force").status == 0

    assert [path.read_bytes() for path in files] == before


def test_an_existing_file_is_kept(demo: Run, tmp_path: Path):
    """Without --force the file stays, and nothing is loaded."""
    path = tmp_path / "oteval.yaml"
    path.write_text("evaluators: []\n")
    refused, printed = demo("init"), demo("init", "--print")

    assert refused.status == 2
    assert "exists already; --print shows the proposals, --force replaces it" in refused.err
    assert printed.status == 0
    assert "evaluators:" in printed.out
    assert path.read_text() == "evaluators: []\n"
    assert demo("init", "--force").status == 0
    assert "reference-calls" in path.read_text()


def test_an_agents_program_is_found_and_its_recording_shown(oteval: Run, tmp_path: Path):
    """Without runs, the checks that need none are written, and the next commands printed."""
    (tmp_path / "helper.py").write_text("import json\n")
    (tmp_path / "agent.py").write_text(
        "from openai import OpenAI\n\nif __name__ == '__main__':\n    OpenAI()\n"
    )
    done = oteval("init")

    assert done.status == 0
    assert "oteval run -- python agent.py" in done.out
    assert "oteval init --force" in done.out
    assert oteval("config", "check").status == 0
    assert not (tmp_path / "oteval.duckdb").exists()


def test_an_empty_database_gets_the_first_checks(oteval: Run, tmp_path: Path):
    """One sentence names a database without runs, and it is no error."""
    store_in_turn("oteval.duckdb").close()
    done = oteval("init")

    assert done.status == 0
    assert "oteval.duckdb: no runs, or none that the filters select" in done.err
    assert "Made of" not in done.err
    assert "tool-errors" in (tmp_path / "oteval.yaml").read_text()


def test_a_missing_folder_of_traces_writes_nothing(oteval: Run, tmp_path: Path):
    """A path that cannot be read is a one-line error."""
    done = oteval("init", "nowhere")

    assert done.status == 2
    assert "nowhere" in done.err
    assert not (tmp_path / "oteval.yaml").exists()


def test_the_number_of_runs_is_limited_and_said(demo: Run):
    """With --limit, the latest runs count, and the head of the file says how many."""
    done = demo("init", "--print", "--limit", "2")

    assert "# Made of the latest 2 of 5 runs in oteval.duckdb." in done.out


def test_all_captures_get_a_configuration_that_loads(captured: Run):
    """Traces of many frameworks, with gaps and several agents, give a file that scores them."""
    assert captured("init").status == 0
    assert captured("config", "check").status == 0
    assert captured("score").status in (0, 1)


def test_scoring_without_a_configuration_points_to_init(demo: Run, tmp_path: Path):
    """`oteval score` names the command that writes the file."""
    (tmp_path / "oteval.yaml").unlink()

    assert "oteval init writes one that fits your runs" in demo("score").err


def _sessions(count: int = 6) -> list[Trajectory]:
    """Return runs of several questions: the even ones cancel, the odd ones only look."""
    runs = []
    for number in range(1, 2 * count + 1):
        question = Message("user", f"Please cancel order {(number + 1) // 2}.")
        looks = asks(call("get_order", {"id": (number + 1) // 2}, "a"))
        cancels = asks(call("cancel_order", {"id": (number + 1) // 2}, "b"))
        results = [Message("tool", "done", tool_call_id=name) for name in ("a", "b")]
        parts = [looks, results[0], cancels, results[1]] if number % 2 == 0 else [looks, results[0]]
        runs.append(run(number, question, *parts, Message("assistant", "Done.")))
    return runs


@pytest.fixture
def labelled(oteval: Run) -> Run:
    """Return the command in a folder with labelled runs: those that cancel are good."""
    store_labelled(_sessions(), lambda number: number % 2 == 1)
    return oteval


def store_labelled(runs: Sequence[Trajectory], is_good: Callable[[int], bool]) -> None:
    """Store runs with a person's label on each, by its index."""
    labels = [Label(trajectory.id, is_good(at)) for at, trajectory in enumerate(runs)]
    with store_in_turn("oteval.duckdb") as store:
        keep(store, *runs)
        store.labels.add(labels, 1)


def test_learn_finds_the_rule_that_separates_good_and_bad_runs(labelled: Run):
    """The tool that only good runs call is found, and agrees on questions it was not chosen by."""
    done = labelled("learn", "--json")
    (rule,) = done.rows

    assert done.status == 0
    assert rule["agreement"] == 1.0
    assert rule["cases"] == 6
    assert rule["interval"][0] < 0.7 < rule["interval"][1]
    assert rule["constant"] == 0.5


def test_learn_writes_only_when_told_and_replaces_its_own_rule(labelled: Run, tmp_path: Path):
    """--write adds the rule between marks; a second time replaces it; the rest is kept."""
    path = tmp_path / "oteval.yaml"
    text = "# mine\nevaluators:\n- name: loops  # keep\n  type: loops\n\nsalt: x\n"
    path.write_text(text)
    assert labelled("learn").status == 0
    assert path.read_text() == text
    assert labelled("learn", "--write").status == 0
    first = path.read_text()
    assert labelled("learn", "--write").status == 0

    assert path.read_text() == first
    assert "- name: loops  # keep" in first
    assert first.startswith("# mine\n")
    assert first.endswith("\n\nsalt: x\n")
    assert first.count("# learned: begin") == 1
    assert labelled("config", "check").status == 0


def test_a_learned_rule_without_a_configuration_becomes_one(labelled: Run, tmp_path: Path):
    """--write creates a file that loads and scores."""
    assert labelled("learn", "--write").status == 0

    assert labelled("config", "check").status == 0
    rows = labelled("score", "--json").rows
    assert {row["passed"] for row in rows} == {True, False}


def test_init_with_labels_contains_the_learned_rule(labelled: Run, tmp_path: Path):
    """The rule and its cross-validated figure are in the file."""
    assert labelled("init").status == 0
    text = (tmp_path / "oteval.yaml").read_text()

    assert "name: learned" in text
    assert "Agrees with 12 of 12 labels that it was not" in text


def test_learn_renews_the_rule_of_init(labelled: Run, tmp_path: Path):
    """The file of init has the marks, and its gates still name an evaluator."""
    assert labelled("init").status == 0
    assert labelled("learn", "--write").status == 0
    text = (tmp_path / "oteval.yaml").read_text()

    assert text.count("# learned: begin") == 1
    assert "{evaluator: learned, min_pass_rate:" in text
    assert labelled("config", "check").status == 0


def test_few_labels_are_an_error_with_their_number(demo: Run):
    """Learning needs labels of both kinds, and says how many there are."""
    done = demo("learn")

    assert done.status == 3
    assert "0 runs labelled good and 0 bad" in done.err
    assert "oteval judge label" in done.err


def test_labels_that_nothing_explains_give_no_rule(oteval: Run, tmp_path: Path):
    """Equal runs with random labels give exit status 1, and --write writes nothing."""
    runs = [run(n, Message("user", f"q{n}"), Message("assistant", "a")) for n in range(1, 13)]
    store_labelled(runs, lambda number: number % 3 != 0)
    done = oteval("learn", "--write")

    assert done.status == 1
    assert "No rule agrees with the labels better" in done.err
    assert not (tmp_path / "oteval.yaml").exists()


def test_an_unknown_name_of_labels_is_an_error(demo: Run):
    """--evaluator names a person's labels or a score of a file."""
    done = demo("learn", "--evaluator", "helpful")

    assert done.status == 2
    assert "no run has a label for 'helpful'" in done.err


def test_evaluators_in_one_line_are_not_edited(labelled: Run, tmp_path: Path):
    """A list in brackets is refused with its line, and stays as it is."""
    text = "evaluators: [{name: loops, type: loops}]\n"
    (tmp_path / "oteval.yaml").write_text(text)
    done = labelled("learn", "--write")

    assert done.status == 2
    assert "oteval.yaml:1: write the evaluators one below the other" in done.err
    assert (tmp_path / "oteval.yaml").read_text() == text


def test_references_in_files_of_sessions_are_used(oteval: Run, tmp_path: Path):
    """Sessions with their tasks' calls need no labels and no option."""
    lines = []
    for number in range(4):
        calls = [{"name": "cancel_order", "arguments": {"id": number}}]
        made = number if number else 99
        lines.append(
            json.dumps(
                {
                    "task_id": f"t{number}",
                    "reference": calls,
                    "messages": [
                        {"role": "user", "content": f"cancel {number}"},
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {
                                    "id": "a",
                                    "function": {
                                        "name": "cancel_order",
                                        "arguments": json.dumps({"id": made}),
                                    },
                                }
                            ],
                        },
                        {"role": "tool", "tool_call_id": "a", "content": "ok"},
                    ],
                }
            )
        )
    (tmp_path / "sessions.jsonl").write_text("\n".join(lines))
    match = entries(oteval("init", "sessions.jsonl", "--json"))["task-calls"]

    assert match["runs"] == {"pass": 3, "fail": 1, "error": 0, "not_evaluated": 0}
    assert match["entry"]["reference"] == {"dataset": "references/tasks.jsonl", "key": "task_id"}


def test_a_named_database_that_is_missing_is_an_error(oteval: Run, tmp_path: Path):
    """Only the default database may be missing; a misspelt name is not an empty one."""
    done = oteval("init", "--db", "other.duckdb")

    assert done.status == 2
    assert "other.duckdb" in done.err
    assert not (tmp_path / "oteval.yaml").exists()


def test_a_file_of_references_that_is_not_ours_is_kept(demo: Run, tmp_path: Path):
    """A reference with other content is replaced only with --force."""
    (tmp_path / "oteval.yaml").unlink()
    path = tmp_path / "references" / "required-tools.json"
    path.write_text("[]")
    done = demo("init")

    assert done.status == 2
    assert "required-tools.json: exists already with other content" in done.err
    assert path.read_text() == "[]"
    assert not (tmp_path / "oteval.yaml").exists()
