"""Recordings are saved and loaded without loss; damaged files name the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from oteval.base.errors import InputError
from oteval.model import Message, ToolCall
from oteval.model.recording import (
    Chunk,
    Exchange,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
)
from oteval.replays.recording_files import load, save

EXCHANGE = Exchange(
    "POST",
    "https://model/v1/chat/completions",
    request_headers={"content-type": "application/json"},
    request_body='{"text": "\u00e9\u2028\\n"}'.encode(),
    status=200,
    chunks=(Chunk(b"data: \xff\x00", 5), Chunk(b"\r\n", 9)),
    is_complete=False,
    start_ns=10,
    span_id="a",
)
ANSWER = Message(
    "assistant",
    "two\nlines \ud83d",
    tool_calls=(ToolCall("f", {"x": [1, 1.5, None, float("inf")]}, "id", start_ns=3),),
    parts=({"type": "reasoning", "content": ""},),
)
WHOLE = Recording(
    session="s",
    fidelity="semconv",
    reasons=("why",),
    inputs=("Hi",),
    model_calls=(
        RecordedModelCall(
            RecordedRequest(
                "chat_completions",
                "m",
                (Message("user", ""), Message("tool", None, tool_call_id="id", is_error=True)),
                tools=({"name": "f"},),
                response_format={"type": "text"},
                settings={"temperature": 0.0},
                is_stream=True,
            ),
            ANSWER,
            EXCHANGE,
            choices=(Message("assistant", "or"),),
            start_ns=1,
        ),
        RecordedModelCall(RecordedRequest(), error="failed", status=429),
    ),
    tool_calls=(
        RecordedToolCall("f", {"x": 1}, "r", runs_agent=True),
        RecordedToolCall("g", 0, None, is_error=True),
        RecordedToolCall("h", False),
    ),
    exchanges=(EXCHANGE,),
    trajectory_ids=("t",),
)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    """Bytes, lone surrogates, infinities, empty texts and missing values stay as they are."""
    path = tmp_path / name
    save(WHOLE, path)
    assert load(path) == WHOLE
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    before = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == before


def test_an_empty_recording(tmp_path: Path) -> None:
    """A recording without calls is a header."""
    path = tmp_path / "a.jsonl"
    save(Recording("s", "wire"), path)
    assert load(path) == Recording("s", "wire")
    assert len(path.read_text("utf-8").splitlines()) == 1


def test_damage_is_named(tmp_path: Path) -> None:
    """The message has the file and the line."""
    path = tmp_path / "a.jsonl"
    save(WHOLE, path)
    lines = path.read_text("utf-8").rstrip("\n").split("\n")

    def message(content: str | bytes) -> str:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError) as raised:
            load(path)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "line 3: damaged" in message("\n".join([*lines[:2], "{", *lines[3:]]))
    assert "line 2: damaged" in message("\n".join([lines[0], '{"other": {}}', *lines[2:]]))
    assert "the file was cut" in message("\n".join(lines[:3]))
    assert "line 1: not a recording" in message("{}")
    assert "line 1: not a recording" in message("")
    newer = json.dumps({**json.loads(lines[0]), "version": 9})
    assert "version 9" in message(newer)
    assert "line 1: the header is damaged" in message(
        json.dumps({"format": "oteval recording", "version": 1})
    )
    assert "cannot be read" in message(gzip.compress(b"x" * 100)[:-4])
    assert "cannot be read" in message(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "missing.jsonl")


def test_fields_of_later_versions_are_left_out(tmp_path: Path) -> None:
    """A file with more fields than this version knows is read."""
    path = tmp_path / "a.jsonl"
    save(Recording("s", "wire", tool_calls=(RecordedToolCall("f"),)), path)
    header, line = map(json.loads, path.read_text("utf-8").splitlines())
    line["tool_call"]["later"] = 1
    path.write_text(f"{json.dumps({**header, 'later': 2})}\n{json.dumps(line)}\n", "utf-8")
    assert load(path).tool_calls == (RecordedToolCall("f"),)


def test_the_folder_is_created_or_the_file_is_named(tmp_path: Path) -> None:
    """`save` makes missing folders; where it cannot, the error is one line with the path."""
    path = tmp_path / "recordings" / "one.jsonl"
    save(WHOLE, path)

    assert load(path) == WHOLE
    with pytest.raises(InputError, match=r"one\.jsonl/two\.jsonl: cannot be written: "):
        save(WHOLE, path / "two.jsonl")
