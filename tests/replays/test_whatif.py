"""``oteval whatif``: sessions with a live model, which a scripted server stands for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.model import RecordedToolCall

from ..commands import Done, Run, oteval
from ..model_server import Body, Reply, Server, completion, error, serving
from .clerk import CLERK, clerk, clerk_file, write_clerk
from .recorded import tool_request

__all__ = ["oteval"]

SAME_CALLS = """
evaluators:
  - name: same-calls
    type: trajectory_match
    mode: strict
    reference: {example: true}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a live model; the current folder has the agent and the evaluators."""
    write_clerk(tmp_path)
    (tmp_path / "oteval.yaml").write_text(SAME_CALLS)
    with serving(clerk) as model_server:
        monkeypatch.setenv("MODEL_URL", model_server.url)
        yield model_server


WhatIf = Callable[..., Done]


def rows_of(done: Done, kind: str) -> list[Any]:
    """Return the rows of a kind that the command printed."""
    return [row for row in done.rows if row["row"] == kind]


@pytest.fixture
def whatif(oteval: Run) -> WhatIf:
    """Return a function that runs the command with the agent ``clerk:target``."""

    def run(*arguments: Any, target: str = "clerk:target") -> Done:
        agent = () if "--" in arguments else ("--target", target)
        return oteval("whatif", *agent, "--json", "--workers", "1", *arguments)

    return run


def without_ids(messages: list[dict[str, Any]]) -> str:
    """Return messages as text, with the ids of tool calls replaced."""
    text = json.dumps(messages)
    ids = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    for call_id in ids:
        text = text.replace(call_id, "ID")
    return text


def test_an_equal_model_gives_equal_trajectories(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """Tools are answered by the arguments that the model gave, and never run."""
    (tmp_path / "prompt.txt").write_text("Be brief.")
    files = [clerk_file(tmp_path, name) for name in ("Refund 17", "helped")]

    done = whatif(
        *(*files, "--model", "new", "--prompt", "prompt.txt"),
        *("--set", "temperature=0", "--name", "new-model"),
    )

    assert done.status == 0, done
    rows, scores = rows_of(done, "session"), rows_of(done, "score")
    assert [row["status"] for row in rows] == ["ran", "ran"]
    for row in rows:
        new, recorded = row["new"]["messages"], row["recorded"]["messages"]
        assert without_ids(new[1:]) == without_ids(recorded[1:])
        assert (recorded[0]["content"], new[0]["content"]) == ("You refund orders.", "Be brief.")
        assert (row["coverage"]["exact"], row["coverage"]["missing"]) == (1, 0)
    assert [(score["key"], score["mean_b"]) for score in scores] == [("same-calls", 1.0)]
    assert not (tmp_path / "refunds").exists()
    assert {body["model"] for body in server.requests} == {"new"}
    assert {body["temperature"] for body in server.requests} == {0}
    # The sub-agent keeps its prompt.
    prompts = [body["messages"][0]["content"] for body in server.requests]
    assert prompts.count("You help.") == 1
    assert "2 runs, 0 failed; tools: 2 exact" in done.err


def test_checks_see_why_the_model_stopped(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """The answers of the live model contain their finish reasons."""
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: finish, type: finish_reason}]\n")

    done = whatif(clerk_file(tmp_path, "Refund 17"))

    # The recording lacks them.
    (unevaluated,) = rows_of(done, "not_evaluated")
    assert unevaluated["experiment"].endswith("-recorded")
    assert rows_of(done, "session")[0]["new"]["finish_reasons"] == ["tool_call", "stop"]


def differs(body: Body, number: int) -> Reply:
    """Script: a model that calls tools in other ways, by the question."""
    question = body["messages"][1]["content"]
    if body["messages"][-1]["role"] == "tool" or question == "says":
        return completion("Done.")
    arguments = {
        "form": {"order": 17, "reason": " None "},
        "nearest": {"order": 18},
        "unknown": {"order": 17},
    }
    name = "lookup" if question == "unknown" else "refund"
    return tool_request((name, json.dumps(arguments.get(question, {"order": 17}))))


def test_coverage_is_counted(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """Results come by equal, then by normalized arguments, then by the policy; others fail."""
    server.script = differs
    spoken = RecordedToolCall("refund", {"order": "17", "reason": "none"}, "refunded")
    names = ("form", "nearest", "unknown", "says", "network")
    files = [clerk_file(tmp_path, name, tools=[spoken]) for name in names]

    done = whatif(*files, "--tool-policy", "nearest")

    rows = {row["session"]: row for row in rows_of(done, "session")}
    counts = {
        name: {key for key, value in row["coverage"].items() if value == 1 or value == [value]}
        for name, row in rows.items()
    }
    assert counts["form"] == {"normalized"}
    assert counts["nearest"] == {"policy"}
    assert counts["unknown"] == {"missing"}
    assert counts["says"] == set()
    assert "oteval replay: the recording has no result of lookup" in json.dumps(rows["unknown"])
    assert rows["network"]["coverage"]["blocked"] == [
        "the agent sent GET http://127.0.0.1:9/orders, which is not recorded"
    ]
    assert done.status == 1
    assert {row["id"] for row in rows_of(done, "broke")} == {"form", "nearest", "unknown", "says"}
    assert "3 runs only partly covered" in done.err
    assert not (tmp_path / "refunds").exists()


def test_a_model_that_fails_is_an_error_and_never_a_score(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """A retry repairs a session; an agent that hides the error has failed nevertheless."""
    files = [clerk_file(tmp_path, name) for name in ("once", "always", "Refund 17")]
    trace_ids: set[str] = set()

    def breaks(body: Body, number: int) -> Reply:
        question = body["messages"][1]["content"]
        if question == "always" or (question == "once" and question not in trace_ids):
            trace_ids.add(question)
            return error(500, "overloaded")
        return clerk(body, number)

    server.script = breaks
    done = whatif(*files, "--name", "flaky", target="clerk:hides")
    rows, scores = rows_of(done, "session"), rows_of(done, "score")
    server.script = clerk
    request_count = len(server.requests)
    resumed = whatif(*files, "--name", "flaky", "--resume", target="clerk:hides")

    assert [row["status"] for row in rows] == ["ran", "failed", "ran"]
    assert rows[0]["new"]["usage"]["model_calls"] == 3
    assert len(rows[0]["new"]["messages"]) == 5
    assert rows[1]["error"].startswith("not run: the model did not answer: overloaded")
    assert {score["key"]: score["pairs"] for score in scores} == {"same-calls": 2}
    assert rows_of(done, "broke") == []
    (row,) = rows_of(done, "not_evaluated")
    assert row["ids"] == ["always"]
    assert row["reason"].startswith("not run: the model did not answer: overloaded")
    assert done.status == 3
    assert [row["status"] for row in rows_of(resumed, "session")] == ["ran"] * 3
    assert len(server.requests) == request_count + 2


def test_a_tool_without_a_function_is_not_a_broken_run(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """The replay stopped before the agent could differ: the run is not made, with the remedy."""
    (tmp_path / "offers.py").write_text(
        "import clerk\n"
        "tools = [{'type': 'function', 'function': {'name': 'close'}}]\n"
        "body_of = clerk.body_of\n"
        "clerk.body_of = lambda messages: body_of(messages, tools=tools)\n"
        "target = clerk.target\n"
    )

    done = whatif(clerk_file(tmp_path, "Refund 17"), target="offers:target")

    assert done.status == 3, done
    assert rows_of(done, "broke") == []
    assert "--run-tool close" in done.err


def test_a_tool_that_no_request_offers_never_runs(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """The agent offers no tools, and two of its functions may be the recorded one."""
    again = "class Desk:\n    def refund(self, order: int) -> str:\n        return refund(order)\n"
    (tmp_path / "plain.py").write_text(CLERK.replace("@tool\n", "") + again)

    done = whatif(clerk_file(tmp_path, "Refund 17"), target="plain:target")

    assert done.status == 3, done
    assert "--tool refund=" in done.err
    assert not (tmp_path / "refunds").exists()


def test_an_empty_folder_stays_empty(whatif: WhatIf, tmp_path: Path) -> None:
    """Without a database there are no sessions, and none is created."""
    done = whatif("--db", "none.duckdb")

    assert done.status == 2
    assert "none.duckdb: no such database" in done.err
    assert not (tmp_path / "none.duckdb").exists()


@pytest.mark.slow
def test_a_model_that_is_down(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """Nothing was repeated: status 3, with the reason."""
    file = clerk_file(tmp_path, "Refund 17")
    server.stop()

    done = whatif(file)

    assert done.status == 3
    assert "no session could be repeated: the model did not answer: ConnectError" in done.err


@pytest.mark.slow
def test_other_edits_are_another_experiment(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """Sessions of two models never mix in one experiment."""
    file = clerk_file(tmp_path, "Refund 17")
    first = whatif(file, "--name", "a", "--model", "one")

    again = whatif(file, "--name", "a", "--model", "one")
    renamed = whatif(file, "--name", "a", "--model", "two", "--resume")
    nameless = whatif(file, "--resume")

    assert (first.status, again.status, renamed.status, nameless.status) == (0, 2, 2, 2)
    assert "experiment 'a' exists already" in again.err
    assert "experiment 'a' had another model" in renamed.err
    assert "--resume needs the --name" in nameless.err


@pytest.mark.slow
def test_sessions_share_the_connections_of_a_module(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """An asynchronous client keeps connections that belong to an event loop."""
    files = [clerk_file(tmp_path, name) for name in ("Refund 17", "Refund 18")]

    done = whatif(*files, target="clerk:later")

    assert [row["status"] for row in rows_of(done, "session")] == ["ran", "ran"], done


@pytest.mark.slow
def test_another_recording_answers(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """Without a live model: the agent's code now, with the answers of that recording."""
    file, silent = clerk_file(tmp_path, "Refund 17"), clerk_file(tmp_path)

    done = whatif(file, "--answers", file)
    nothing = whatif(silent)

    row = rows_of(done, "session")[0]
    assert (done.status, row["status"]) == (0, "ran")
    assert row["new"]["messages"] == row["recorded"]["messages"]
    assert server.requests == []
    assert nothing.status == 3
    assert "the recording has no model calls" in nothing.err


@pytest.mark.slow
def test_a_command(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """The live model is asked by the processes of the command."""
    good, bad = (clerk_file(tmp_path, name) for name in ("Refund 17", "always"))

    def breaks(body: Body, number: int) -> Reply:
        return error(500, "overloaded") if "always" in str(body) else clerk(body, number)

    server.script = breaks
    done = whatif(good, bad, "--", sys.executable, "clerk.py", "{input}")

    ran, failed = rows_of(done, "session")
    assert (ran["status"], ran["coverage"]["exact"]) == ("ran", 1)
    assert failed["status"] == "failed"
    assert "overloaded" in failed["error"]
    assert not (tmp_path / "refunds").exists()


def test_the_old_name_is_an_alias(oteval: Run) -> None:
    """``oteval replay whatif`` still works, and no list of commands has it."""
    old, new = oteval("replay", "whatif", "--help"), oteval("whatif", "--help")

    texts = [help_page.out.partition("\n\n")[2] for help_page in (old, new)]
    assert texts[0] == texts[1] != ""
    assert "whatif" not in oteval("replay", "--help").out
    assert "whatif" in oteval("--help").out
