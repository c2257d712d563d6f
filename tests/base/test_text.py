"""Text for people: nothing in it acts on a terminal, and counts agree with their nouns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from oteval.base.text import counted, listed, printable, printable_json
from oteval.cli import cli

HOSTILE = "a\x1b[2J\x07\x7f\x85\x9b31m\u202eevil\u2066\u2069\u200f\u061c\u2028\U000e0041\n"
SEEN = set("\x1b\x07\x7f\x85\x9b\u202e\u2066\u2069\u200f\u061c\u2028\U000e0041")


def test_control_characters_in_text_are_escaped() -> None:
    """Control characters are escaped; newlines and tabs are kept."""
    assert SEEN.isdisjoint(printable(HOSTILE))
    assert printable("a\tb\nc é 字 😀") == "a\tb\nc é 字 😀"


def test_json_keeps_its_value() -> None:
    """The printed JSON has the same value, without control characters."""
    text = printable_json(json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=False))

    assert SEEN.isdisjoint(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE]}


@pytest.mark.database
@pytest.mark.parametrize(
    "arguments",
    [
        ("trajectories",),
        ("trajectories", "--json"),
        ("show", "ID"),
        ("show", "ID", "--json"),
        ("export", "--jsonl", "-"),
        ("scores", "--json"),
        ("explain", "ID"),
    ],
    ids=" ".join,
)
def test_no_command_prints_control_characters(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """All commands that show a run are safe for one whose every text is hostile."""
    said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": HOSTILE}]}])
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": HOSTILE,
        "gen_ai.input.messages": said,
        "gen_ai.output.messages": said.replace("user", "assistant"),
        "gen_ai.conversation.id": HOSTILE,
        HOSTILE: HOSTILE,
    }
    span = {
        "traceId": "11" * 16,
        "spanId": "22" * 8,
        "name": HOSTILE,
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "status": {"code": 2, "message": HOSTILE},
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in attributes.items()
        ],
    }
    group = {"scope": {"name": HOSTILE}, "spans": [span]}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": HOSTILE}}]}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [group]}]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    db = str(tmp_path / "x.duckdb")
    run = CliRunner().invoke
    loaded = run(cli, ["ingest", str(tmp_path / "t.json"), "--db", db])
    listed = run(cli, ["trajectories", "--json", "--db", db])
    known = json.loads(listed.stdout)["trajectory_id"]

    found = run(cli, [known if one == "ID" else one for one in arguments] + ["--db", db])

    assert loaded.exit_code == 0, loaded.output
    assert found.exit_code == 0, found.output
    assert SEEN.isdisjoint(found.output)


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (0, "run", "0 runs"),
        (1, "model call", "1 model call"),
        (2, "trajectory", "2 trajectories"),
        (1, "trajectory", "1 trajectory"),
        (3, "day", "3 days"),
        (1200, "span", "1,200 spans"),
    ],
)
def test_nouns_agree_with_their_counts(number: int, noun: str, expected: str):
    """The noun is singular for 1 and plural for any other count."""
    assert counted(number, noun) == expected


def test_an_irregular_plural():
    """The caller can give an irregular plural."""
    assert counted(2, "person", "people") == "2 people"


def test_long_lists_end_with_a_count():
    """The names beyond the first five are counted."""
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
