"""Conversations are loaded, scored and exported like traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oteval.model import CONTENT_GAPS

from ..ingest.test_conversations import CHAT, SAID, claude, lines, load, said
from ..make import TRACES
from .conftest import Run

LOOKED_UP = json.dumps(CHAT[:2])
RULES = """
evaluators:
  - name: looked_up
    type: trajectory_match
    mode: superset
    tool_args: ignore
    reference: looked_up.json
"""


def rules(folder: Path) -> None:
    """Write a configuration that asks for one call of `look_up`."""
    (folder / "oteval.yaml").write_text(RULES)
    (folder / "looked_up.json").write_text(LOOKED_UP)


def test_a_folder_of_conversations_and_traces_is_loaded_and_scored(oteval: Run, tmp_path: Path):
    """Files are found by their names; hidden ones and others are left aside."""
    folder = tmp_path / "runs"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "a.json").write_text(json.dumps(CHAT))
    (folder / "deep" / "b.jsonl").write_text(lines(CHAT[:1], CHAT))
    (folder / "notes.md").write_text("no trace")
    (folder / ".hidden" / "c.json").write_text("no json")
    capture = sorted(path for path in TRACES.glob("*.json") if path.name != "gold.json")[0]
    (folder / "capture.json").write_bytes(capture.read_bytes())
    rules(tmp_path)

    loaded = oteval("ingest", folder)
    oteval("score")

    assert (loaded.status, loaded.err) == (0, "")
    scores = oteval("scores", "--json", "--where", "service=messages").rows
    assert sorted(score["passed"] for score in scores) == [False, True, True]


def test_a_folder_without_traces_says_so(oteval: Run, tmp_path: Path):
    """Nothing loaded is no success."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(CHAT))

    done = oteval("ingest", tmp_path / "empty", "a.json")

    assert done.status == 2
    assert "no file in it ends in .json" in done.err
    assert done.out.startswith("read 1  stored 1")


def test_a_session_that_went_on_gets_the_rest(oteval: Run, tmp_path: Path):
    """Loading it again renews its last run, and its verdict."""
    question = claude("1", None, {"role": "user", "content": "What did I pay for order 17?"})
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"order": 17}}
    answers = [
        {"id": name, "model": "claude", "role": "assistant", "content": [block]}
        for name, block in (("m1", {"type": "text", "text": "I look."}), ("m2", call))
    ]
    session = [question, *(claude(str(at), "1", each) for at, each in enumerate(answers, 2))]
    file = tmp_path / "session.jsonl"
    rules(tmp_path)

    file.write_text(lines(*session[:2]))
    oteval("ingest", file)
    oteval("score")
    before = oteval("scores", "--json").rows
    file.write_text(lines(*session))
    again = oteval("ingest", file)
    oteval("score")
    after = oteval("scores", "--json").rows

    assert again.out.startswith("read 1  stored 1  duplicate 0  bad 0")
    assert [score["passed"] for score in before] == [False]
    assert [score["passed"] for score in after] == [True]
    assert oteval("ingest", file).out == "read 1  stored 0  duplicate 1  bad 0\n"


def test_examples_for_fine_tuning(oteval: Run, tmp_path: Path):
    """Only runs that pass, as they were; a run that lacks content makes no example."""
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    (tmp_path / "runs.jsonl").write_text(
        lines({"messages": CHAT, "tools": tools}, {"messages": [CHAT[0], CHAT[3]]})
    )
    rules(tmp_path)
    oteval("ingest", "runs.jsonl")
    oteval("score")

    done = oteval("export", "--sft", "sft.jsonl", "--passed", "looked_up")
    failed = oteval("export", "--sft", "-", "--failed", "looked_up")

    assert (done.status, done.err) == (0, "oteval: sft.jsonl: 1 example\n")
    example = json.loads((tmp_path / "sft.jsonl").read_text())
    assert example["tools"] == tools
    assert [message["role"] for message in example["messages"]] == [each["role"] for each in CHAT]
    assert said(load((tmp_path / "sft.jsonl").read_bytes())[0][0]) == SAID
    assert len(json.loads(failed.out)["messages"]) == 2
    assert oteval("export", "--passed", "looked_up", "--jsonl", "x").status == 2


def test_atif_comes_back_as_it_was(captured: Run, tmp_path: Path):
    """Exported runs of all captures are loaded again with the same calls and results."""
    runs = captured("trajectories", "--json").rows

    done = captured("export", "--atif", "atif")
    captured("ingest", "atif", "--db", "copy.duckdb")
    copies = captured("trajectories", "--json", "--db", "copy.duckdb").rows

    def calls_and_results(rows: list[dict[str, Any]]) -> list[list[str]]:
        # What was not captured has no place in the format; the gap says so there too.
        return sorted(
            sorted(
                json.dumps([[call["function"] for call in message.get("tool_calls", ())], result])
                for message in row["messages"]
                if (result := message["role"] == "tool" and message["content"])
                or message.get("tool_calls")
            )
            for row in rows
            if CONTENT_GAPS.isdisjoint(gap["code"] for gap in row["gaps"]) and row["messages"]
        )

    assert done.status == 0
    assert len(list((tmp_path / "atif").iterdir())) == len(copies)
    assert calls_and_results(copies) == calls_and_results(runs)
