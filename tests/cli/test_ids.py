"""Ids as tables show them are ids that commands take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oteval.model import Message
from oteval.store import Store

from ..make import asks, call, keep, run, score
from .conftest import Prepare, Run


def write_runs(_: Run) -> None:
    """Write two runs with scores into a database."""
    with Store("oteval.duckdb") as store:
        keep(store, *(run(n, Message("user", f"q{n}"), asks(call("f", {}))) for n in (1, 2)))
        store.scores.write([score(1), score(2, passed=False, score=0.0, comment="no")])


@pytest.fixture
def made(prepare: Prepare) -> Run:
    """Return the command with a database of two runs, scored."""
    return prepare(write_runs)


def first_ids(text: str) -> list[str]:
    """Return the first word of each line of a table, its heading aside."""
    return [line.split()[0] for line in text.splitlines()[1:] if line and line[0].isalnum()]


def test_tables_show_short_ids_that_every_command_takes(made: Run, tmp_path: Path):
    """Every command that takes an id accepts those that trajectories, scores and variants show."""
    one, other = first_ids(made("trajectories").out)
    example = made("variants").out.splitlines()[1].split()[-2]
    (tmp_path / "labels.jsonl").write_text(json.dumps({"trajectory_id": one, "label": "pass"}))

    assert [one, other] == [run(1).id[:8], run(2).id[:8]]
    assert first_ids(made("scores").out) == [one, other]
    assert made("show", one, example).status == 0
    assert "not stored" in made("explain", one).out  # a made-up run has no spans
    assert made("diff", one, other).status == 1
    assert made("reference", "add", other, "--name", "r").status == 0
    assert made("judge", "label", other, "fail").status == 0
    assert made("judge", "calibrate", "e", "--labels", "labels.jsonl").status == 0
    (tmp_path / "oteval.yaml").write_text(
        "evaluators:\n- name: m\n  type: trajectory_match\n  mode: superset\n"
        f"  reference: {{trajectory: '{one}'}}\n"
    )
    assert made("score", "--json").rows[0]["status"] == "ok"


def test_explain_takes_short_ids_of_runs_traces_and_spans(filled: Run):
    """The ids that explain itself shows are ids that it takes."""
    (row, *_) = filled("trajectories", "--json", "--limit", "1").rows
    trace, span = row["root_span"]["trace_id"], row["root_span"]["span_id"]

    for name in (row["trajectory_id"][:8], trace[:8], span[:8], trace, span):
        assert f"trace {trace}" in filled("explain", name).out
    for name in (trace[:8], span[:8]):
        assert f"trajectory {row['trajectory_id']}" in filled("show", name).out


@pytest.mark.parametrize(
    "command",
    [
        ("show", "0"),
        ("diff", "0", "0"),
        ("reference", "add", "0"),
        ("judge", "label", "0", "pass"),
    ],
)
def test_a_beginning_of_several_ids_is_refused_with_them(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    """One line names the candidates; nothing is guessed."""
    alike = {number: f"0{number}{'a' * 14}" for number in range(1, 8)}
    monkeypatch.setattr("tests.make.id_of", lambda trace, _: alike[int(trace, 16)])
    with Store("oteval.duckdb") as store:
        keep(store, *(run(number, Message("user", "q")) for number in alike))

    done = oteval(*command)

    assert done.status == 2
    assert done.err == (
        f"oteval: '0' means several trajectories: {', '.join(list(alike.values())[:5])}"
        " and 2 more\n"
    )


def test_all_conversations_that_a_name_may_mean_are_counted(oteval: Run):
    """Five are named, and the line says how many more there are."""
    with Store("oteval.duckdb") as store:
        keep(
            store,
            *(run(n, Message("user", "q"), conversation_id=f"chat-{n:02}") for n in range(1, 13)),
        )

    for command in (("show", "chat"), ("replay", "verify", "chat", "--target", "shop:target")):
        done = oteval(*command)
        assert done.status == 2
        assert "'chat' means several conversations: chat-01, chat-02" in done.err
        assert "chat-05 and 7 more" in done.err


def test_ids_that_begin_alike_are_shown_longer(oteval: Run, monkeypatch: pytest.MonkeyPatch):
    """Every table distinguishes two runs whose ids share their first ten characters."""
    alike = {number: f"0123456789{number}aaaaa" for number in (1, 2)}
    monkeypatch.setattr("tests.make.id_of", lambda trace, _: alike[int(trace, 16)])
    with Store("oteval.duckdb") as store:
        keep(store, *(run(number, Message("user", "q")) for number in alike))

    shown = first_ids(oteval("trajectories").out)

    assert shown == ["01234567891", "01234567892"]
    assert all(oteval("show", name).status == 0 for name in shown)


def test_a_conversation_is_shown_with_its_turns(oteval: Run):
    """By its id, or the beginning of one conversation's id."""
    with Store("oteval.duckdb") as store:
        keep(
            store,
            run(1, Message("user", "first"), conversation_id="chat-1"),
            run(2, Message("user", "second"), conversation_id="chat-1"),
            run(3, Message("user", "other"), conversation_id="chat-22"),
        )

    shown = oteval("show", "chat-1").out
    assert "first" in shown
    assert "second" in shown
    assert "other" in oteval("show", "chat-2").out
    assert "means several conversations: chat-1, chat-22" in oteval("show", "chat").err
    assert "no trajectory 'talk'" in oteval("show", "talk").err
