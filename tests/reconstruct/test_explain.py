from __future__ import annotations

import pytest

from oteval.reconstruct import explain, reconstruct

from .builders import (
    NAMES,
    TRACE,
    agent,
    capture,
    chat,
    said,
    span,
    tool,
    user,
)


@pytest.mark.parametrize("name", NAMES)
def test_every_span_of_a_capture_is_accounted_for(name: str):
    """Each span is listed once, with what it gives, why it gives nothing, or what is missing."""
    spans, logs = capture(name)

    for trace_id in {s.trace_id for s in spans}:
        found = explain(trace_id, spans, logs)

        wanted = sorted(s.span_id for s in spans if s.trace_id == trace_id)
        assert sorted(account.span.span_id for account in found.accounts) == wanted
        for account in found.accounts:
            told = account.messages or account.note or account.gaps or account.trajectory_id
            assert told, account


@pytest.mark.parametrize("name", NAMES)
def test_the_messages_are_those_of_the_trajectories(name: str):
    """Together the accounts name each own message of each trajectory exactly once."""
    spans, logs = capture(name)

    told = [
        (account.trajectory_id, index)
        for trace_id in {s.trace_id for s in spans}
        for account in explain(trace_id, spans, logs).accounts
        for index in account.messages
    ]

    own = [
        (t.id, index)
        for t in reconstruct(spans, logs)
        for index in range(t.new_from, len(t.messages))
    ]
    assert sorted(told) == sorted(own)


def test_what_no_dialect_reads_says_what_it_is():
    """An HTTP request, a database call and anything else are told apart."""
    found = explain(
        TRACE,
        [
            agent("g", 1, end=90),
            span("h", 2, parent="g", attributes={"http.request.method": "POST",
                                                 "url.full": "http://x/v1?key=secret"}),
            span("d", 3, parent="g", attributes={"db.system": "postgresql"}),
            span("o", 4, parent="g"),
        ],
    )  # fmt: skip

    notes = {account.span.span_id: account.note for account in found.accounts}
    assert notes["h"] == "ignored: an HTTP request to http://x/v1, without content"
    assert notes["d"] == "ignored: a database call"
    assert notes["o"] == "ignored: no dialect reads it"


def test_what_counts_once_says_so():
    """A second recording, and a tool span inside another, are named as such."""
    found = explain(
        TRACE,
        [
            agent("g", 1, end=90),
            chat("outer", 2, [user("q")], said("a"), end=30, parent="g", scope="one"),
            chat("inner", 3, [user("q")], said("a"), end=29, parent="outer", scope="two"),
            tool("t", 40, args={}, result="r", parent="g", end=60),
            tool("u", 41, args={}, result="r", parent="t", end=59),
        ],
    )

    notes = {account.span.span_id: account.note for account in found.accounts}
    told_twice = "another span records the same call; it is counted once"
    assert (notes["inner"], notes["u"]) == (told_twice, told_twice)
    assert [code for code, _ in found.gaps] == ["unmatched_tool_span"]


def test_spans_are_listed_as_a_tree():
    """Parents stand before what is inside of them, with its depth."""
    found = explain(
        TRACE,
        [
            tool("t", 5, parent="g", end=60),
            agent("s", 6, parent="t", end=50),
            chat("c", 7, [user("q")], said("a"), parent="s"),
            agent("g", 1, end=90),
        ],
    )

    rows = [(a.span.span_id, a.depth, a.kind) for a in found.accounts]
    assert rows == [
        ("g", 0, "agent"),
        ("t", 1, "tool"),
        ("s", 2, "agent"),
        ("c", 3, "model call"),
    ]
    assert found.accounts[3].holds == "1 message sent, 1 received"
