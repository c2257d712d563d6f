from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oteval.model import Message, Usage
from oteval.store import Store

from ..make import asks, call, gap, keep, run, score
from .conftest import Prepare, Run

KEYS = {
    *("trajectory_id", "trace_ids", "root_span", "conversation_id", "agent"),
    *("parent_id", "turn", "new_from", "start_ns", "end_ns", "models", "usage", "messages"),
    *("finish_reasons", "prompts", "steps", "gaps", "user", "version"),
}
HOSTILE = "[/bold][red]x[/red]\x1b[2J"


def write_runs(_: Run) -> None:
    """Write made-up runs into a database."""
    first = run(1, Message("user", "one"), asks(call("f", {"a": 1}, "c1")), conversation_id="c")
    second = run(
        2,
        Message("user", "two"),
        asks(call("g", {}, "c2")),
        Message("tool", "no", (), "c2", "g", is_error=True),
        history=first,
        new_from=2,
        turn=2,
        conversation_id="c",
        agent="b",
        gaps=(gap(),),
    )
    hostile = run(3, Message("user", HOSTILE), asks(call(HOSTILE, {"k": HOSTILE})), agent=HOSTILE)
    with Store("oteval.duckdb") as store:
        keep(store, first, second, hostile)


@pytest.fixture
def with_runs(prepare: Prepare) -> Run:
    """Return the command with a database of made-up runs."""
    return prepare(write_runs)


def test_json_lines_have_the_documented_keys(captured: Run):
    """Every line of every capture has exactly these keys, and messages in OpenAI's shape."""
    rows = captured("trajectories", "--json").rows

    assert len(rows) > 100
    for row in rows:
        assert row.keys() - {"agents"} == KEYS
        assert row["root_span"].keys() == {"trace_id", "span_id"}
        assert row["trace_ids"][0] == row["root_span"]["trace_id"]
        for row_gap in row["gaps"]:
            assert row_gap.keys() == {"code", "detail", "span_id"}
        for message in row["messages"]:
            check_message(message)


def check_message(message: dict[str, Any]) -> None:
    """Assert that a message has OpenAI's shape."""
    extra = {"tool_calls", "tool_call_id", "name", "is_error"}
    assert {"role", "content"} <= message.keys() <= {"role", "content"} | extra
    assert (message["role"] == "tool") == ("tool_call_id" in message)
    for tool_call in message.get("tool_calls", ()):
        assert (tool_call.keys(), tool_call["type"]) == ({"id", "type", "function"}, "function")
        assert tool_call["function"].keys() == {"name", "arguments"}
        assert isinstance(tool_call["function"]["arguments"], str)


def test_an_empty_database_lists_nothing(oteval: Run):
    """An empty database is not an error; a missing one is."""
    assert oteval("trajectories").status == 2
    Store("oteval.duckdb").close()

    done = oteval("trajectories")

    assert (done.status, done.out, done.err) == (0, "", "oteval: 0 trajectories\n")


@pytest.mark.parametrize(
    ("filters", "starts"),
    [
        ([], [1, 2, 3]),
        (["--agent", "b"], [2]),
        (["--agent", "b", "--agent", "a"], [1, 2]),
        (["--service", "s"], [1, 2, 3]),
        (["--service", "none"], []),
        (["--conversation", "c"], [1, 2]),
        (["--model", "m"], []),
        (["--where", "errors>0"], [2]),
        (["--where", "tool=f", "--where", "turn=1"], [1]),
        (["--where", "gap=content_not_captured"], [2]),
        (["--limit", "1"], [3]),
        (["--where", "turn=1", "--limit", "1"], [3]),
        (["--since", "1970-01-01", "--until", "1970-01-02T00:00:00+00:00"], [1, 2, 3]),
        (["--until", "1970-01-01"], []),
        (["--since", "2h ago"], []),
        (["--until", "5m"], [1, 2, 3]),
    ],
)
def test_filters_choose_trajectories(with_runs: Run, filters: list[str], starts: list[int]):
    """Each filter restricts the list; several filters restrict it further."""
    done = with_runs("trajectories", "--json", *filters)

    assert done.status == 0
    assert [row["start_ns"] for row in done.rows] == starts


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        (
            ["--since", "yesterday"],
            "--since 'yesterday': write a date, a time",
        ),
        (["--since", "99999999999w"], "--since '99999999999w': write a date"),
        (
            ["--where", "eror>0"],
            "--where 'eror>0': unknown field 'eror', perhaps 'errors'; the fields are agent",
        ),
        (["--where", "x"], "--where 'x': write FIELD OPERATOR VALUE"),
    ],
)
def test_a_filter_that_says_nothing_is_an_error(with_runs: Run, filters: list[str], reason: str):
    """One line names the option and the remedy; the exit status is 2."""
    done = with_runs("trajectories", *filters)

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"oteval: {reason}")
    assert done.err.count("\n") == 1


def test_the_table_is_plain_text(with_runs: Run):
    """Agents and questions out of traces are shown as they are, control characters visible."""
    done = with_runs("trajectories")

    assert "[/bold][red]x[/red]\\x1b[2J" in done.out
    assert "\x1b" not in done.out
    assert "3 trajectories; oteval show ID shows one" in done.err


def test_the_columns_of_the_table_can_be_chosen(with_runs: Run):
    """Any filter column can be shown, and an unknown name lists all."""
    lines = with_runs(
        "trajectories", "--columns", "conversation,tool,parent,tool_errors"
    ).out.splitlines()
    refused = with_runs("trajectories", "--columns", "colour")

    assert lines[0].split() == [
        "id",
        "started",
        "agent",
        "conversation",
        "tools",
        "tool",
        "errors",
        "asked",
    ]
    assert [line.split()[-4:] for line in lines[1:3]] == [
        ["a", "c", "f", "one"],  # the call has no result
        ["c", "g", "100%", "two"],
    ]
    assert refused.status == 2
    assert refused.err.startswith("oteval: --columns=colour: there are service, conversation, ")


def test_columns_as_json_have_the_values(with_runs: Run):
    """With --json, a line has the id and the values of the columns, without the messages."""
    rows = with_runs(
        "trajectories", "--json", "--columns", "agent,turn,asked,errors,tokens,cost"
    ).rows

    assert [row.pop("trajectory_id") for row in rows] == [run(number).id for number in (1, 2, 3)]
    values = {"agent": ["b"], "turn": 2, "asked": "two", "errors": 1}
    assert rows[1] == {**values, "tokens": None, "cost": None}


def test_a_list_says_why_runs_have_no_cost(oteval: Run):
    """The column of costs names the reasons for empty cells, with the number of runs."""
    tokens = Usage(input_tokens=1000, output_tokens=10, model_calls=1)
    ask = Message("user", "one")
    with Store("oteval.duckdb") as store:
        keep(
            store,
            run(1, ask, usage=tokens, models=("gpt-4o",)),
            run(2, ask, usage=Usage(model_calls=1), models=("gpt-4o",)),
            run(3, ask, usage=tokens, models=("house-model",)),
            run(4, ask, usage=tokens, models=("house-model",)),
            run(5, ask, usage=tokens, models=("gpt-4o", "house-model")),
            run(6, ask, usage=tokens),
        )

    listed, rows = oteval("trajectories", "--columns", "cost"), oteval("trajectories", "--json")
    costs = oteval("trajectories", "--json", "--columns", "cost").rows

    assert listed.err.startswith(
        "oteval: no cost: the price of 'house-model' is not known (2 runs); "
        "the trace has no tokens (1 run); several models answered (1 run); "
        "the trace does not name the model (1 run)\n"
    )
    assert [row["cost"] is not None for row in costs] == [True, *[False] * 5]
    assert "no cost" not in rows.err


def test_tables_of_large_stores_are_their_latest_lines(oteval: Run):
    """Of 1,003 runs and scores, tables show the latest 1,000 and say so; --json has all."""
    runs = [run(number, Message("user", f"question {number}")) for number in range(1, 1004)]
    with Store("oteval.duckdb") as store:
        keep(store, *runs)
        store.scores.write([score(number) for number in range(1, 1004)])

    default, more = oteval("trajectories"), oteval("trajectories", "--limit", "1002")
    lines, scores = oteval("trajectories", "--json"), oteval("scores")

    assert default.out.count("question") == 1000
    assert "question 3\n" not in default.out
    assert "question 1003" in default.out
    assert "the latest 1,000 trajectories; --limit N or --json lists more" in default.err
    assert more.out.count("question") == 1002
    assert "oteval: 1,002 trajectories; oteval show" in more.err
    assert len(lines.rows) == 1003
    assert len(scores.out.splitlines()) == 1001
    assert scores.err == "oteval: 1,003 scores, the latest 1,000 of them listed\n"
    assert len(oteval("scores", "--json").rows) == 1003


@pytest.mark.parametrize("name", ["id", "beginning", "trace", "span"])
def test_show_takes_every_kind_of_id(with_runs: Run, name: str):
    """A trajectory is found by its id, the beginning of it, its trace and its root span."""
    trajectory = run(2)
    ids = {
        "id": trajectory.id,
        "beginning": trajectory.id[:10],
        "trace": trajectory.root_span.trace_id,
        "span": trajectory.root_span.span_id,
    }

    done = with_runs("show", ids[name])

    assert done.status == 0
    assert f"trajectory {trajectory.id}" in done.out
    assert "→ g()" in done.out
    assert "failed" in done.out
    assert "content_not_captured" in done.out
    assert "2 earlier messages" in done.out


def test_show_has_a_longer_form(with_runs: Run):
    """--all shows the turns before, --json the whole object with its scores."""
    assert "→ f(a=1)" in with_runs("show", run(2).id, "--all").out

    (row,) = with_runs("show", run(2).id, "--json").rows

    assert row.keys() == KEYS | {"scores"}
    assert len(row["messages"]) == 5


def test_show_shows_several(with_runs: Run):
    """Ids are shown in the order given."""
    ids = [row["trajectory_id"] for row in with_runs("show", run(2).id, run(1).id, "--json").rows]

    assert ids == [run(2).id, run(1).id]


def test_show_names_what_it_cannot_find(with_runs: Run):
    """An unknown id and an ambiguous one each give a one-line error."""
    missing, several = with_runs("show", "nothing"), with_runs("show", "")

    assert missing.status == several.status == 2
    assert missing.err == "oteval: no trajectory 'nothing'; oteval trajectories lists them\n"
    assert several.err.startswith("oteval: '' means several trajectories: ")


def test_show_makes_hostile_content_visible(with_runs: Run):
    """Markup is shown literally, escape sequences as text."""
    done = with_runs("show", run(3).id)

    assert done.out.count("[/bold][red]x[/red]\\x1b[2J") >= 3
    assert "\x1b" not in done.out


def test_full_shows_messages_whole(oteval: Run):
    """Long messages are cut unless --full is given."""
    with Store("oteval.duckdb") as store:
        keep(store, run(1, Message("user", "x" * 1500)))

    assert "… (500 more characters)" in oteval("show", run(1).id).out
    assert "more characters" not in oteval("show", run(1).id, "--full").out


def test_diff_says_whether_runs_differ(with_runs: Run):
    """The exit status is 1, with a mark at the divergence, or 0 when the runs are equal."""
    differs = with_runs("diff", run(1).id, run(2).id)
    same = with_runs("diff", run(1).id, run(1).id)

    assert (differs.status, same.status) == (1, 0)
    assert "First divergence at message 0" in differs.out
    assert "▶" in differs.out
    assert "No difference in 2 messages." in same.out


def test_diff_compares_whole_conversations_on_demand(with_runs: Run):
    """With --all, earlier turns are rows as well, including equal ones."""
    alone, whole = (
        with_runs("diff", run(1).id, run(2).id, "--json", *more).rows[0] for more in ([], ["--all"])
    )

    assert (alone["left"], alone["right"]) == (run(1).id, run(2).id)
    assert (alone["first_divergence"], whole["first_divergence"]) == (0, 2)
    assert [row["same"] for row in whole["rows"]] == [True, True, False, False, False]
    assert whole["rows"][2]["left"] is None


def test_diff_holds_several_against_the_first(with_runs: Run):
    """Each further run is lined up with the first; any difference counts."""
    done = with_runs("diff", run(1).id, run(1).id, run(2).id, "--json")

    assert done.status == 1
    assert [row["first_divergence"] for row in done.rows] == [None, 0]


def test_diff_shows_markup_literally(with_runs: Run):
    """An agent's name that looks like markup is printed literally."""
    done = with_runs("diff", run(3).id, run(1).id)

    assert done.status == 1
    assert "[/bold]" in done.out
    assert "\x1b" not in done.out


def test_diff_needs_two(with_runs: Run):
    """One id is a usage error."""
    done = with_runs("diff", run(1).id)

    assert done.status == 2
    assert "give at least two trajectory ids" in done.err


def test_variants_count_sequences(filled: Run):
    """The sequences of tools are listed with their counts, as a table and as lines."""
    done = filled("variants", "--json")

    assert [(row["tools"], row["count"]) for row in done.rows] == [
        (["get_weather", "get_weather"], 1),
        (["lookup_order"], 1),
        ([], 1),
    ]
    assert done.err == "oteval: 3 variants in 3 runs\n"
    assert "get_weather → get_weather" in filled("variants").out
    assert [row["tools"] for row in filled("variants", "--json", "--where", "calls=1").rows] == [
        ["lookup_order"]
    ]


def test_variants_are_limited_to_the_top(filled: Run):
    """The counts cover all variants, and a line announces the rest."""
    done = filled("variants", "--top", "1")

    assert len(done.out.splitlines()) == 2
    assert done.err == "oteval: 3 variants in 3 runs; listed: the first 1; --top N lists more\n"
    assert len(filled("variants", "--json", "--top", "2").rows) == 2


def test_export_writes_lines_and_parquet(filled: Run, tmp_path: Path):
    """Lines go to a file or standard output, tables to a folder; counts go to standard error."""
    to_file = filled("export", "--jsonl", "x.jsonl", "--limit", "2")
    to_out = filled("export", "--jsonl", "-", "--where", "calls>0")
    to_folder = filled("export", "--parquet", "tables")

    assert (to_file.status, to_out.status, to_folder.status) == (0, 0, 0)
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2
    assert to_file.err == "oteval: x.jsonl: 2 trajectories\n"
    assert [row.keys() for row in to_out.rows] == [KEYS | {"scores"}] * 2
    assert "tables/spans.parquet: 10 rows" in to_folder.err
    assert (tmp_path / "tables" / "scores.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give --jsonl FILE, --parquet DIR, --csv DIR, --sft FILE, --atif DIR or --otlp URL"),
        (["--jsonl", "none/x.jsonl"], "none/x.jsonl: cannot be written: No such file or directory"),
        (["--parquet", "oteval.duckdb"], "oteval.duckdb: cannot be written: File exists"),
    ],
)
def test_an_export_that_cannot_be_written_says_where(
    filled: Run, arguments: list[str], reason: str
):
    """A missing or unwritable destination gives exit status 2."""
    done = filled("export", *arguments)

    assert done.status == 2
    assert reason in done.err
