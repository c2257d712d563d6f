from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from oteval.model.identities import name_attribute
from oteval.store import Store

from ..ingest.containers import jaeger, lines, log_row, parquet, trace_row
from ..make import capture
from ..reconstruct.builders import said, user
from .conftest import Run


def test_a_file_is_counted_and_reconstructed(oteval: Run, chat: Path):
    """The summary counts spans read, stored, duplicate and bad, and the runs."""
    first = oteval("ingest", chat)
    again = oteval("ingest", chat)

    assert (first.status, again.status) == (0, 0)
    assert first.out.startswith("read 10  stored 10  duplicate 0  bad 0")
    assert "3 trajectories new or changed" in first.out
    assert again.out.strip() == "read 10  stored 0  duplicate 10  bad 0"
    assert (first.err, again.err) == ("", "")


def test_json_has_a_line_for_each_file(oteval: Run, chat: Path, tmp_path: Path):
    """JSON has the content of the summary and more."""
    (tmp_path / "bad.jsonl").write_text(chat.read_text().replace("\n", "") + "\n{broken\n")

    done = oteval("ingest", chat, "bad.jsonl", "none.json", "--json")

    good, bad, missing = done.rows
    assert done.status == 2
    assert good == {
        "path": str(chat),
        "spans": 10,
        "logs": 0,
        "stored": 10,
        "duplicate": 0,
        "conflicts": [],
        "bad": 0,
        "problems": [],
        "error": None,
    }
    assert (bad["duplicate"], bad["bad"], bad["problems"][0]["line"]) == (10, 1, 2)
    assert missing["error"].startswith("none.json: ")


def test_standard_input_is_read(oteval: Run, chat: Path, monkeypatch: pytest.MonkeyPatch):
    """A dash reads standard input, compressed or not."""
    data = gzip.compress(chat.read_bytes())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    done = oteval("ingest", "-")

    assert (done.status, done.out.split("\n")[0]) == (0, "read 10  stored 10  duplicate 0  bad 0")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n \n", "the file contains only white space"),
        (b"\xff\xfe\x00", "cannot be read; supported are"),
        (b"just text\n", "cannot be read; supported are"),
        (b"{broken\n", "x.json:1: "),
        (b'{"some": "json"}', "is not an OTLP request"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image cannot be read"),
    ],
    ids=["empty", "space", "bytes", "text", "broken", "other", "image"],
)
def test_a_file_of_which_nothing_can_be_read_is_named(
    oteval: Run, chat: Path, tmp_path: Path, content: bytes, reason: str
):
    """The error is one line, the exit status is 2, and the good file beside it is stored."""
    (tmp_path / "x.json").write_bytes(content)

    done = oteval("ingest", "x.json", chat)

    assert done.status == 2
    assert done.err.startswith("oteval: x.json")
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert "stored 10" in done.out
    assert "bad 1" in done.out


def test_a_folder_and_a_missing_file_are_named(oteval: Run, tmp_path: Path):
    """Each path that cannot be read is reported on one line."""
    done = oteval("ingest", tmp_path, "none.json")

    assert done.status == 2
    assert f"oteval: {tmp_path}: no file in it ends in .json, " in done.err
    assert "oteval: none.json: cannot be opened (No such file or directory)" in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "none.json"),
        ("init", "none.json"),
        ("score", "--db", "runs.duckdb", "none.json"),
        ("dataset", "add", "questions", "none.jsonl"),
        ("eval", "--data", "none.jsonl", "--target", "builtins:len"),
    ],
    ids=lambda command: command[0],
)
def test_missing_files_leave_no_empty_database(
    oteval: Run, tmp_path: Path, command: tuple[str, ...]
):
    """A command that reports a missing file creates nothing."""
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: errors, type: tool_errors}]")

    done = oteval(*command, *(["--force"] if command[0] == "init" else []))

    assert done.status == 2
    assert "none.json" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["oteval.yaml"]


def test_bad_lines_are_named_and_the_rest_is_stored(oteval: Run, chat: Path, tmp_path: Path):
    """The first ten go to standard error; the exit status is 0, as for any file that was read."""
    (tmp_path / "x.jsonl").write_text(
        "garbage\n" + chat.read_text().replace("\n", "") + "\n" + "{broken\n" * 15
    )

    done = oteval("ingest", "x.jsonl")

    assert done.status == 0
    assert "read 10  stored 10  duplicate 0  bad 16" in done.out
    assert done.err.startswith("oteval: x.jsonl:1: ")
    assert "oteval: x.jsonl:3: " in done.err
    assert "oteval: x.jsonl: 6 more bad parts (--json lists them)" in done.err


def test_a_truncated_file_gives_what_came_before(oteval: Run, chat: Path, tmp_path: Path):
    """A truncated gzip file is read up to its end, with a warning."""
    text = chat.read_text().replace("\n", "")
    data = gzip.compress((text + "\n" + "x" * 10).encode() * 40)
    (tmp_path / "x.gz").write_bytes(data[:-200])

    done = oteval("ingest", "x.gz")

    assert done.status == 0
    assert "stored 10" in done.out
    assert "oteval: x.gz" in done.err


def test_other_content_under_the_same_ids_is_told(oteval: Run, chat: Path, tmp_path: Path):
    """A span that appears again with different content is named; the first one is kept."""
    oteval("ingest", chat)
    text = chat.read_text()
    (tmp_path / "x.json").write_text(text.replace("weather in Paris", "weather in Lyon"))

    done = oteval("ingest", "x.json")

    assert done.status == 0
    assert "appears again with different content; the first one is kept" in done.err
    assert "Lyon" not in oteval("trajectories", "--json").out


def test_a_file_without_spans_says_so(oteval: Run, tmp_path: Path):
    """A valid but empty request is not an error, but is mentioned."""
    (tmp_path / "x.json").write_text('{"resourceSpans": []}')

    done = oteval("ingest", "x.json")

    assert (done.status, done.err) == (
        0,
        "oteval: x.json: contains no spans, log records or conversations\n",
    )


def test_log_records_without_a_trace_are_mentioned(oteval: Run, tmp_path: Path):
    """Agents that write log records alone, such as Codex, give no run; the load says so."""
    attributes = [{"key": "event.name", "value": {"stringValue": "codex.user_prompt"}}]
    records = [{"timeUnixNano": "1", "attributes": attributes}]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    (tmp_path / "x.json").write_text(json.dumps(logs))

    done = oteval("ingest", "x.json")

    assert done.status == 0
    assert "contains no spans, and 1 log record without a trace id, so without a run" in done.err


def test_the_database_is_where_it_was_asked_for(
    oteval: Run, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """--db, else OTEVAL_DB, else oteval.duckdb names the file."""
    oteval("ingest", chat)
    monkeypatch.setenv("OTEVAL_DB", "variable.duckdb")
    oteval("ingest", chat)
    oteval("ingest", chat, "--db", "option.duckdb")

    names = sorted(path.name for path in tmp_path.glob("*.duckdb"))
    assert names == ["option.duckdb", "oteval.duckdb", "variable.duckdb"]
    monkeypatch.delenv("OTEVAL_DB")
    assert oteval("trajectories", "--db", "variable.duckdb", "--json").rows != []


def test_file_names_are_shown_as_text(oteval: Run, tmp_path: Path):
    """A name with control characters or invalid bytes has no effect on the terminal."""
    done = oteval("ingest", tmp_path / "\x1b[31m\ud800")

    assert done.status == 2
    assert "\\x1b[31m\\ud800: cannot be opened" in done.err


def test_a_load_that_was_stopped_is_made_up_for(oteval: Run):
    """A database whose last load was not reconstructed is brought up to date when opened."""
    with Store("oteval.duckdb") as store:
        store.spans.write(*capture("genai_openai_chat"))

    assert len(oteval("trajectories", "--json").rows) == 3


def messages(oteval: Run, db: str) -> list[object]:
    """Return the id and the messages of each trajectory of a database."""
    rows = oteval("trajectories", "--json", "--db", db).rows
    return [(row["trajectory_id"], row["messages"]) for row in rows]


def test_every_container_gives_the_same_agents(oteval: Run, chat: Path, tmp_path: Path):
    """Jaeger's download and ClickHouse's rows, lines or Parquet, are loaded as OTLP is."""
    spans, _ = capture("genai_openai_chat")
    files = {
        "jaeger": json.dumps(jaeger(spans), indent=1).encode(),
        "rows": gzip.compress(lines(map(trace_row, spans))),
        "parquet": parquet([trace_row(item) for item in spans]),
    }
    oteval("ingest", chat)
    expected = messages(oteval, "oteval.duckdb")

    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        done = oteval("ingest", name, "--db", f"{name}.duckdb")
        again = oteval("ingest", name, "--db", f"{name}.duckdb")

        assert (done.status, done.err) == (0, "")
        assert done.out.startswith("read 10  stored 10  duplicate 0  bad 0")
        assert again.out.strip() == "read 10  stored 0  duplicate 10  bad 0"
        assert messages(oteval, f"{name}.duckdb") == expected != []


def test_logs_out_of_clickhouse_join_their_spans(oteval: Run, tmp_path: Path):
    """The messages of a dialect that keeps them in log records are there after both files."""
    spans, logs = capture("v2_legacy_chat")
    (tmp_path / "traces").write_bytes(parquet([trace_row(item) for item in spans]))
    (tmp_path / "logs").write_bytes(parquet([log_row(item) for item in logs]))

    oteval("ingest", "traces")
    before = messages(oteval, "oteval.duckdb")
    done = oteval("ingest", "logs")

    assert (done.status, done.err) == (0, "")
    assert messages(oteval, "oteval.duckdb") != before
    assert "weather in Paris" in json.dumps(messages(oteval, "oteval.duckdb"))


def test_what_was_exported_is_loaded_again(oteval: Run, chat: Path, tmp_path: Path):
    """The spans of an exported folder give another database the same trajectories."""
    oteval("ingest", chat)
    oteval("ingest", chat.with_name("v2_legacy_chat.json"))
    oteval("ingest", chat.with_name("v2_legacy_chat.logs.json"))
    oteval("export", "--parquet", "out")

    done = oteval("ingest", "out/spans.parquet", "out/logs.parquet", "--db", "new.duckdb")

    assert (done.status, done.err) == (0, "")
    assert messages(oteval, "new.duckdb") == messages(oteval, "oteval.duckdb")
    with Store("oteval.duckdb") as old, Store("new.duckdb") as new:
        assert old.spans.count() == new.spans.count()


def test_bad_rows_are_named(oteval: Run, tmp_path: Path):
    """An unreadable row of a Parquet file is reported with its number."""
    rows = [trace_row(item) for item in capture("genai_openai_chat")[0]]
    rows[3]["SpanId"] = "?"
    (tmp_path / "x.parquet").write_bytes(parquet(rows))

    done = oteval("ingest", "x.parquet")

    assert done.status == 0
    assert done.out.startswith("read 9  stored 9  duplicate 0  bad 1")
    assert done.err.startswith("oteval: x.parquet: row 4: span ")


def test_a_file_of_only_bad_parts_is_not_read(oteval: Run, tmp_path: Path):
    """If no span is left, the exit status is 2, as for an unreadable file."""
    row = trace_row(capture("genai_openai_chat")[0][0]) | {"TraceId": "?"}
    for name, data in {"rows": lines([row]), "x.parquet": parquet([row])}.items():
        (tmp_path / name).write_bytes(data)

        done = oteval("ingest", name)

        assert done.status == 2
        assert "TraceId '?' is not a valid id in hex" in done.err
        assert done.err.count("\n") == 1


@pytest.mark.usefixtures("own_attribute_unset")
@pytest.mark.parametrize("way", ["option", "environment", "file", "option over file"])
def test_the_applications_attribute_names_the_conversation(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    """An option, the environment or oteval.yaml names it, and later commands know the result."""
    spans = []
    for number in (1, 2):
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([user(f"q{number}")]),
            "gen_ai.output.messages": json.dumps([said("a")]),
            "my.thread": "t-1",
            "other": f"o-{number}",
        }
        spans.append(
            {
                "traceId": f"{number:032x}",
                "spanId": f"{number:016x}",
                "startTimeUnixNano": str(number * 100),
                "endTimeUnixNano": str(number * 100 + 50),
                "attributes": [
                    {"key": key, "value": {"stringValue": value}}
                    for key, value in attributes.items()
                ],
            }
        )
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "two.json").write_text(json.dumps(document))
    if "file" in way:
        named = "other" if "option" in way else "my.thread"
        (tmp_path / "oteval.yaml").write_text(f"conversation:\n  attribute: {named}\n")
    if way == "environment":
        monkeypatch.setenv("OTEVAL_CONVERSATION_ATTRIBUTE", "my.thread")
    options = ("--conversation-attribute", "my.thread") if "option" in way else ()

    assert oteval("ingest", "two.json", *options).status == 0

    name_attribute("conversation", "")
    runs = oteval("trajectories", "--json").rows
    assert [(run["conversation_id"], run["turn"]) for run in runs] == [("t-1", 1), ("t-1", 2)]


def test_an_empty_name_of_the_conversations_attribute_is_refused(oteval: Run, tmp_path: Path):
    """The error names the line and the key."""
    (tmp_path / "oteval.yaml").write_text("conversation:\n  attribute: ''\n")

    done = oteval("config", "check")

    assert done.status == 2
    assert "oteval.yaml:2: " in done.err
    assert "conversation.attribute" in done.err


@pytest.mark.usefixtures("own_attribute_unset")
@pytest.mark.parametrize("way", ["option", "environment", "file", "option over file"])
def test_the_applications_attributes_name_user_version_and_prompt(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    """They are filters of later commands, whether a span or its resource has them."""
    names = {"user": "my.user", "version": "my.release", "prompt": "my.prompt"}
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([user("q")]),
        "gen_ai.output.messages": json.dumps([said("a")]),
        "user.id": "other",
        "my.user": "u-1",
        "my.prompt": "greet@3",
    }
    spans = [
        {
            "traceId": "1" * 32,
            "spanId": "2" * 16,
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "9",
            "attributes": _otlp(texts),
        }
    ]
    resource = {"attributes": _otlp({"service.version": "9", "my.release": "2026-11"})}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "one.json").write_text(json.dumps(document))
    if "file" in way:
        wrong = "wrong." if "option" in way else ""
        text = "".join(f"{kind}:\n  attribute: {wrong}{key}\n" for kind, key in names.items())
        (tmp_path / "oteval.yaml").write_text(text)
    options: list[str] = []
    for kind, key in names.items():
        if way == "environment":
            monkeypatch.setenv(f"OTEVAL_{kind.upper()}_ATTRIBUTE", key)
        if "option" in way:
            options += [f"--{kind}-attribute", key]

    assert oteval("ingest", "one.json", *options).status == 0

    for kind in names:
        name_attribute(kind, "")
    (tmp_path / "oteval.yaml").unlink(missing_ok=True)
    where = ("user=u-1", "version=2026-11", "prompt=greet", "prompt=greet@3")
    (run,) = oteval("trajectories", "--json", *(f"--where={condition}" for condition in where)).rows
    assert (run["user"], run["version"], run["prompts"]) == ("u-1", "2026-11", ["greet@3"])
    assert oteval("trajectories", "--json", "--where=user=other").rows == []


def _otlp(texts: dict[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]


@pytest.mark.parametrize("key", ["user", "version", "prompt"])
def test_an_unknown_key_beside_a_name_is_refused(oteval: Run, tmp_path: Path, key: str):
    """The error names the line, the key and the one that was meant."""
    (tmp_path / "oteval.yaml").write_text(f"{key}:\n  atribute: my.one\n")

    done = oteval("config", "check")

    assert done.status == 2
    assert "oteval.yaml:2: " in done.err
    assert "'atribute'" in done.err
    assert "attribute" in done.err
