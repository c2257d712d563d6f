"""Bad input, end to end: each is reported by a line or a gap, and everything else is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .commands import Run
from .make import TRACES

GOOD = (TRACES / "genai_openai_chat.json").read_text()
GOOD_RUNS = 3


def trajectories(oteval: Run) -> list[dict[str, Any]]:
    """Return the output of `oteval trajectories --json`, parsed."""
    done = oteval("trajectories", "--json")
    assert done.status == 0, done.err
    return done.rows


def attribute(key: str, value: Any) -> dict[str, Any]:
    """Return an OTLP attribute."""
    kind = "intValue" if isinstance(value, int) else "stringValue"
    return {"key": key, "value": {kind: value if isinstance(value, str) else str(value)}}


def span(number: int, parent: int = 0, name: str = "span", **attributes: Any) -> dict[str, Any]:
    """Return an OTLP span of the trace `bad`; dots in attribute names are written as `__`."""
    return {
        "traceId": b"bad".hex().zfill(32),
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "startTimeUnixNano": str(1_000_000_000 * number),
        "endTimeUnixNano": str(1_000_000_000 * number + 500),
        "attributes": [attribute(key.replace("__", "."), v) for key, v in attributes.items()],
    }


def request(*spans: dict[str, Any]) -> str:
    """Return spans as one line of OTLP/JSON."""
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def good_line() -> str:
    """Return the good capture as one line."""
    return json.dumps(json.loads(GOOD))


def truncated(path: Path) -> None:
    """Write two good documents, of which the second is truncated in the middle."""
    path.write_text(good_line() + "\n" + good_line()[: len(good_line()) // 2])


def garbage(path: Path) -> None:
    """Write a line of garbage before a good one."""
    path.write_text("{this is not JSON}\n" + good_line() + "\n")


def not_utf8(path: Path) -> None:
    """Write a line that is not UTF-8 before a good one."""
    path.write_bytes(b"{\xff\xfe\xfa\n" + good_line().encode() + b"\n")


def zero_spans(path: Path) -> None:
    """Write a request without spans before a good one."""
    path.write_text('{"resourceSpans": []}\n' + good_line() + "\n")


@pytest.mark.parametrize(
    ("write", "status", "message"),
    [
        (truncated, 0, "bad.json:2: "),
        (garbage, 0, "bad.json:1: "),
        (not_utf8, 0, "bad.json:1: "),
        (zero_spans, 0, ""),
    ],
)
def test_a_bad_part_is_reported_and_the_rest_is_stored(
    tmp_path: Path, oteval: Run, write: Callable[[Path], None], status: int, message: str
) -> None:
    """A bad line, a truncated document and an empty request affect nothing else."""
    write(tmp_path / "bad.json")

    done = oteval("ingest", "bad.json")

    assert done.status == status
    assert message in done.err
    assert "Traceback" not in done.err
    runs = trajectories(oteval)
    assert len(runs) == GOOD_RUNS
    assert len(runs[1]["messages"]) == 10


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", b"", "empty"),
        ("folder", None, "no file in it ends in .json"),
        ("latin.json", b"\xe4\xf6\xfc this is no UTF-8 text \xff\xfe\n" * 3, "latin.json: "),
        ("missing.json", b"-", "missing.json: "),
    ],
)
def test_an_unreadable_file_is_one_line_and_the_others_are_stored(
    tmp_path: Path, oteval: Run, name: str, content: bytes | None, message: str
) -> None:
    """An unreadable file is reported with exit status 2, and the others are still loaded."""
    if content is None:
        (tmp_path / name).mkdir()
    elif content != b"-":
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.json").write_text(GOOD)

    done = oteval("ingest", name, "good.json")

    assert done.status == 2
    complaints = [line for line in done.err.splitlines() if name in line]
    assert len(complaints) == 1
    assert message in complaints[0]
    assert len(trajectories(oteval)) == GOOD_RUNS


CHAT = {"gen_ai__operation__name": "chat", "gen_ai__provider__name": "x"}


@pytest.mark.parametrize(
    ("spans", "code"),
    [
        ([span(1, 2, **CHAT), span(2, 1)], "cyclic_parents"),
        ([{**span(1, **CHAT), "endTimeUnixNano": "5"}], "negative_duration"),
        ([span(1, name="x", lmnr__span__type="LLM")], "unknown_dialect"),
        ([span(1, 9, **CHAT)], "missing_parent"),
        ([span(1, gen_ai__operation__name="invoke_agent")], "no_model_spans"),
    ],
)
def test_a_malformed_trace_has_a_gap(
    tmp_path: Path, oteval: Run, spans: list[dict[str, Any]], code: str
) -> None:
    """A malformed trace gives a trajectory with the right gap, and the others are unaffected."""
    (tmp_path / "odd.json").write_text(request(*spans) + "\n" + good_line() + "\n")

    done = oteval("ingest", "odd.json")

    assert done.status == 0, done.err
    runs = trajectories(oteval)
    codes = [gap["code"] for run in runs for gap in run["gaps"]]
    assert code in codes
    assert len(runs) == GOOD_RUNS + 1


def test_of_duplicate_span_ids_the_first_is_kept(tmp_path: Path, oteval: Run) -> None:
    """A repeated span id with other content is counted and reported, and the first span is kept."""
    second = {**span(1, name="second", **CHAT)}
    lines = [request(span(1, name="first", **CHAT), second), good_line()]
    (tmp_path / "twice.json").write_text("\n".join(lines) + "\n")

    done = oteval("ingest", "twice.json")

    assert "duplicate 1" in done.out
    assert f"{span(1)['traceId']}/{span(1)['spanId']}" in done.err
    assert len(trajectories(oteval)) == GOOD_RUNS + 1


def test_arguments_that_are_not_json_are_kept_as_text(tmp_path: Path, oteval: Run) -> None:
    """A tool call with invalid arguments keeps their text."""
    answer = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": "{city: Paris"}],
        }
    ]
    chat = span(1, **CHAT, gen_ai__output__messages=json.dumps(answer))
    (tmp_path / "odd.json").write_text(request(chat) + "\n" + good_line() + "\n")

    oteval("ingest", "odd.json")

    runs = trajectories(oteval)
    calls = [c for run in runs for m in run["messages"] for c in m.get("tool_calls", [])]
    assert {"name": "f", "arguments": "{city: Paris"} in [call["function"] for call in calls]
    assert len(runs) == GOOD_RUNS + 1
