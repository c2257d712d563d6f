from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from oteval.base.errors import NotFound
from oteval.model import Message, Rewrite, Trajectory, Usage
from oteval.model.selection import Selection, parse_condition
from oteval.reconstruct import reconstruct
from oteval.scoring import refresh
from oteval.store import Store, trajectories
from oteval.store.trajectory_rows import TRAJECTORY_SCHEMA, trajectory_row

from ..make import CAPTURES, asks, call, capture, gap, keep, run, told

USER = Message("user", "hi")


def chain(length: int) -> list[Trajectory]:
    """Return runs of one conversation, each with the previous one as its history."""
    runs: list[Trajectory] = []
    for number in range(1, length + 1):
        said = Message("user", f"question {number}"), Message("assistant", f"answer {number}")
        before = runs[-1] if runs else None
        known = 2 * len(runs)
        runs.append(run(number, *said, new_from=known, history=before, turn=number))
    return runs


@pytest.mark.parametrize("name", CAPTURES)
def test_trajectories_of_captures_survive_the_store(store: Store, name: str):
    """Reconstructed trajectories are read unchanged, with histories and gaps."""
    made = reconstruct(*capture(name))

    keep(store, *made)

    assert {t.id: t for t in store.trajectories.read()} == {t.id: t for t in made}


def full_run() -> Trajectory:
    """Return a trajectory with a value in every field."""
    message = Message("tool", "no", (), "c1", "f", True, ({"type": "image"},), "a" * 16, "b" * 32)
    return run(
        1,
        USER,
        asks(call("f", {"a": [1, None]}, "c1", span_id="c" * 16, start_ns=1, end_ns=2), call("g")),
        message,
        Message("assistant", ""),
        new_from=1,
        conversation_id="conversation",
        turn=3,
        parent_id="p",
        parent_call_id="c9",
        steps=(("a", "b"), ()),
        tools=({"name": "f"},),
        models=("m", "n"),
        dialects=("genai",),
        usage=Usage(1, 2, 3, 4),
        gaps=(gap(), gap("redacted")),
        rewrites=(Rewrite(1, (USER,), "d" * 16),),
        attributes={"x": 1, "y": True, "z": "s"},
        chain="chain",
        follows="follows",
    )


def test_every_field_survives_the_store(store: Store):
    """A trajectory with a value in every field is read unchanged."""
    made = full_run()

    keep(store, made)

    assert store.trajectories.get(made.id) == made


def test_fingerprints_stay_the_same():
    """The fingerprint of a trajectory is that of earlier versions, so it gets no new revision."""
    with_history = chain(2)[1]

    found = [trajectory_row(made)["fingerprint"] for made in (full_run(), with_history)]

    assert found == ["06dfcd2299905e2547a57116", "7cb7f7b20c27bedf9eafcd3b"]


def test_a_new_column_makes_no_revision(store: Store, monkeypatch: pytest.MonkeyPatch):
    """A column that was added to the table, at any place, is stored without new revisions."""
    keep(store, run(1, USER))
    store._connection.execute("ALTER TABLE trajectories ADD COLUMN extra VARCHAR")
    schema = TRAJECTORY_SCHEMA.insert(0, pa.field("extra", pa.string()))
    monkeypatch.setattr(trajectories, "TRAJECTORY_SCHEMA", schema)
    monkeypatch.setattr(
        trajectories, "trajectory_row", lambda made: {**trajectory_row(made), "extra": "x"}
    )

    keep(store, run(1, USER), run(2, USER))

    rows = store._connection.execute("SELECT rev, agent, extra FROM trajectories ORDER BY start_ns")
    assert rows.fetchall() == [(1, "a", None), (1, "a", "x")]


@pytest.mark.parametrize(
    "odd",
    [
        {"agent": "\ud800"},
        {"tail": (Message("user", "\ud83d"), Message("\ud800"))},
        {"tail": (asks(call("\ud800", {"a": "\ud83d", "\udfff": 1})),)},
        {"tail": (asks(call("f", json.loads('{"a":' * 250 + "1" + "}" * 250))),)},
        {"tail": (asks(call("f", 10**40), call("f", float("inf"))),)},
        {"usage": Usage(2**70, -(2**70), 0, 0)},
    ],
    ids=["agent", "text", "arguments", "depth", "numbers", "tokens"],
)
def test_hostile_content_is_stored(store: Store, odd: dict[str, Any]):
    """Content that no column or encoder accepts unchanged does not prevent storing a trajectory."""
    keep(store, replace(run(1), **odd))

    assert store.trajectories.count() == 1
    assert [t.id for t in store.trajectories.read()] == [run(1).id]


def test_unchanged_content_writes_nothing(store: Store):
    """Writing the same trajectory again makes no revision."""
    keep(store, run(1, USER))

    written = store.trajectories.write([run(1, USER)], [run(1).root_span.trace_id])

    assert written == []
    assert store.trajectories.get(run(1).id).rev == 1


def test_changed_content_is_a_new_revision(store: Store):
    """The changed trajectory supersedes the last one, which stays in the table."""
    keep(store, run(1, USER))
    keep(store, run(1, USER, USER))
    keep(store, run(1, USER))

    found = store.trajectories.get(run(1).id)

    assert (found.rev, len(found.messages)) == (3, 1)
    assert store.trajectories.count() == 1
    rows = store._connection.execute("SELECT count(*) FROM trajectories").fetchall()
    assert rows == [(3,)]


def test_a_missing_trajectory_is_superseded(store: Store):
    """A stored trajectory of the traces that is not written again is superseded."""
    keep(store, run(1, USER), run(2, USER))
    traces = [run(1).root_span.trace_id]

    store.trajectories.write([], traces)

    assert [t.id for t in store.trajectories.read()] == [run(2).id]


def test_a_trajectory_that_returns_is_current_again(store: Store):
    """A superseded trajectory that is written again gets a new revision."""
    keep(store, run(1, USER))
    traces = [run(1).root_span.trace_id]
    store.trajectories.write([], traces)
    store.trajectories.write([], traces)

    store.trajectories.write([run(1, USER)], traces)

    assert [(t.id, t.rev) for t in store.trajectories.read()] == [(run(1).id, 2)]


def test_trajectories_of_other_traces_are_kept(store: Store):
    """Only trajectories that are rooted in the given traces are superseded."""
    keep(store, run(1, USER), run(2, USER))

    store.trajectories.write([run(1, USER, USER)], [run(1).root_span.trace_id])

    assert store.trajectories.get(run(2).id).rev == 1


def test_a_failed_write_changes_nothing(store: Store):
    """Superseding and inserting happen in one transaction."""
    keep(store, run(1, USER))

    with pytest.raises(OverflowError):
        keep(store, replace(run(1, USER, USER), start_ns=2**70))

    assert store.trajectories.get(run(1).id).rev == 1
    keep(store, run(1, USER, USER))
    assert store.trajectories.get(run(1).id).rev == 2


def test_histories_are_joined_when_read(store: Store):
    """The last turn of a long conversation has all messages, although rows hold one turn each."""
    runs = chain(60)
    keep(store, *runs)

    last = store.trajectories.get(runs[-1].id)

    assert last == runs[-1]
    assert len(last.messages) == 120
    assert [m.content for m in last.own_messages] == ["question 60", "answer 60"]
    rows = store._connection.execute(
        "SELECT max(json_array_length(messages)) FROM trajectories"
    ).fetchall()
    assert rows == [(2,)]


def test_histories_are_joined_across_pages(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Each turn has its history, wherever a page begins."""
    monkeypatch.setattr("oteval.store.trajectories._MAX_PAGE", 7)
    runs = chain(20)
    keep(store, *runs)

    assert list(store.trajectories.read()) == runs


def test_a_trajectory_is_found_by_id_and_by_span(store: Store):
    """The id, its beginning, the trace id and the span id find the trajectory."""
    made = run(1, USER)
    keep(store, made, run(2, USER))

    for name in (made.id, made.id[:12], made.root_span.trace_id, made.root_span.span_id):
        assert store.trajectories.get(name) == made


def test_an_ambiguous_name_lists_the_trajectories(store: Store):
    """A common beginning of several ids is refused, with the ids in the message."""
    keep(store, run(1), run(2))

    with pytest.raises(NotFound, match=f"'' means several trajectories: {run(1).id}, {run(2).id}"):
        store.trajectories.get("")


def test_a_missing_name_says_how_to_list_them(store: Store):
    """An unknown id is NotFound, a LookupError."""
    with pytest.raises(LookupError, match="no trajectory 'x'; oteval trajectories lists them"):
        store.trajectories.get("x")


def test_trajectories_are_read_by_start(store: Store):
    """Trajectories are read in the order of their starts, not of writing."""
    keep(store, run(3), run(1), run(2))

    assert [t.start_ns for t in store.trajectories.read()] == [1, 2, 3]


@pytest.mark.parametrize("condition", [[], ["calls=0"]])
def test_a_limit_takes_the_latest(store: Store, condition: list[str]):
    """The latest runs are taken by SQL and by Python alike, in the order of their starts."""
    keep(store, *(run(number) for number in range(1, 6)))
    conditions = tuple(parse_condition(text) for text in condition)

    found = store.trajectories.read(Selection(conditions=conditions, limit=2))

    assert [t.start_ns for t in found] == [4, 5]


def test_revisions_do_not_change_the_result(store: Store):
    """A late span gives the same trajectories as loading everything at once."""
    spans, logs = capture("genai_openai_chat")
    spans.sort(key=lambda item: item.start_ns)
    store.spans.write(spans[:2], logs)
    refresh(store)
    store.spans.write(spans[2:])
    refresh(store)

    with Store() as whole:
        whole.spans.write(spans, logs)
        refresh(whole)
        expected = [told(t) for t in whole.trajectories.read()]

    assert [told(t) for t in store.trajectories.read()] == expected
    assert max(t.rev for t in store.trajectories.read()) > 1
