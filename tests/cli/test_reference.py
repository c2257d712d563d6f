from __future__ import annotations

import json
from pathlib import Path

from .conftest import Run

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": []}]


def test_a_trajectory_becomes_a_reference(filled: Run, tmp_path: Path):
    """Its own messages are stored under a name, and the run matches them."""
    first = filled("trajectories", "--json").rows[1]["trajectory_id"]
    (tmp_path / "oteval.yaml").write_text(
        "evaluators:\n  - {name: a, type: trajectory_match, reference: {name: kept}}\n"
    )

    added = filled("reference", "add", first[:10], "--name", "kept")
    scores = filled("score", "--json").rows

    assert added.status == 0
    assert added.out == f"reference kept: 4 messages of {first}\n"
    assert [row["trajectory_id"] for row in scores if row["passed"]] == [first]


def test_a_file_becomes_a_reference(filled: Run, tmp_path: Path):
    """A JSON file with messages is stored under its name by default."""
    (tmp_path / "refund.json").write_text(json.dumps(MESSAGES))

    added = filled("reference", "add", "refund.json")
    listed = filled("reference", "list", "--json")

    assert added.out == "reference refund: 2 messages of refund.json\n"
    (row,) = listed.rows
    assert (row["name"], row["source"], row["messages"]) == ("refund", "refund.json", 2)
    assert "refund.json" in filled("reference", "list").out
    assert listed.err == "oteval: 1 reference\n"


def test_what_cannot_be_kept_is_named(filled: Run, tmp_path: Path):
    """An unknown id and a file without messages give exit status 2."""
    (tmp_path / "x.json").write_text('{"a": 1}')

    missing, wrong = (filled("reference", "add", name) for name in ("none", "x.json"))

    assert (missing.status, wrong.status) == (2, 2)
    assert missing.err == "oteval: no trajectory 'none'; oteval trajectories lists them\n"
    assert wrong.err.startswith("oteval: x.json: messages: a dict needs 'messages'")


def test_references_are_checked(filled: Run, tmp_path: Path):
    """Files, or the database's references, are read; the exit status is 1 if one cannot be."""
    (tmp_path / "good.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "bad.json").write_text('[{"role": "nobody"}]')
    filled("reference", "add", "good.json", "--name", "kept")

    stored = filled("reference", "check")
    good = filled("reference", "check", "good.json")
    bad = filled("reference", "check", "good.json", "bad.json", "none.json")

    assert (stored.status, good.status, bad.status) == (0, 0, 1)
    assert stored.out == "kept: 2 messages, 0 calls\n"
    assert "bad.json: messages[0]: unknown role 'nobody'" in bad.err
    assert "none.json: no such file" in bad.err


def test_a_file_with_several_references_is_checked_one_by_one(filled: Run, tmp_path: Path):
    """Each of several references of a file is counted, and a stored reference is one of them."""
    messages = [{"role": "user", "content": "x"}]
    (tmp_path / "both.json").write_text(json.dumps({"any": [messages, messages * 2]}))

    checked = filled("reference", "check", "both.json")
    added = filled("reference", "add", "both.json")

    assert checked.out == (
        "both.json any[0]: 1 message, 0 calls\nboth.json any[1]: 2 messages, 0 calls\n"
    )
    assert added.status == 2
    assert "both.json holds several references; add a file for each" in added.err
