"""Reading what spans repeat only once gives the trajectories that reading all of it gives."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from oteval.messages.read_cache import ReadCache, reading_once
from oteval.messages.reader import from_messages
from oteval.messages.values import parse
from oteval.model import Event, LogRecord, Span, Trajectory
from oteval.reconstruct import explain, reconstruct
from oteval.reconstruct.readers.flat_lists import has_prefix, nested

from .builders import NAMES, agent, asks, capture, chat, gives, said, system, tool, user

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


@pytest.fixture(autouse=True)
def few_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for short texts and lists as well."""
    monkeypatch.setattr("oteval.messages.values._LONG", 512)
    monkeypatch.setattr("oteval.messages.reader._LEAST_REPEATED", 3)


def in_full(spans: list[Span], logs: list[LogRecord] | None = None) -> list[Trajectory]:
    """Return the trajectories, each value read as if it were the first."""
    with patch("oteval.reconstruct.reconstruction.reading_once", nullcontext):
        return reconstruct(spans, logs or [])


@pytest.mark.parametrize("name", NAMES)
def test_captures_give_the_same_trajectories(name: str) -> None:
    """What a real instrumentation writes is read the same, and so is its account."""
    spans, logs = capture(name)
    trace_ids = sorted({span.trace_id for span in spans})

    found = reconstruct(spans, logs), [explain(one, spans, logs).as_dict() for one in trace_ids]

    with patch("oteval.reconstruct.reconstruction.reading_once", nullcontext):
        accounts = [explain(one, spans, logs).as_dict() for one in trace_ids]
    assert found == (in_full(spans, logs), accounts)


# Values that are equal in Python and not in JSON, calls with empty arguments, messages that are
# joined to those before them, loose parts, and forms that no reader knows.
PIECES: list[Any] = [
    user("q"),
    user("a much longer question, " * 40),
    system("be brief, " * 80),
    said("a"),
    {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
    {"role": "assistant", "content": "", "parts": []},
    asks(("look", {"n": 1}, "k1")),
    asks(("look", {"n": True}, "k1")),
    asks(("look", {"n": 1.0}, "k2"), ("look", {}, "")),
    gives("r", "k1"),
    gives({"error": 1}, "k2"),
    gives("loose"),
    {"role": "tool", "content": None},
    {"role": "user", "content": "<elided>"},
    {"role": "narrator", "content": "once"},
    {"type": "function_call", "call_id": "k3", "name": "look", "arguments": '{"n": 1}'},
    {"type": "function_call_output", "call_id": "k3", "output": "r3"},
    {"type": "text", "text": "loose"},
    {"type": "made_up", "value": [1, None]},
    {"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "lc"}},
    {"role": "user", "content": 10**30},
    {"role": "user", "content": "half \ud83d"},
    5,
    [],
]
pieces = st.sampled_from(PIECES)
histories = st.lists(pieces, max_size=6)
CHANGES = ("extend", "extend", "extend", "repeat", "cut", "rewrite", "shuffle", "another")
changes = st.lists(
    st.tuples(st.sampled_from(CHANGES), histories, st.integers(0, 9)), min_size=1, max_size=6
)


def changed(history: list[Any], change: str, new: list[Any], seed: int) -> list[Any]:
    """Return the history of a later call, of which only some begin with the earlier one."""
    if change == "extend":
        return [*history, *new]
    if change == "cut":
        return history[: seed % (len(history) + 1)]
    if change == "rewrite" and history:
        return [*history[:-1], *new[:1], history[-1], *new[1:]]
    if change == "shuffle":
        return random.Random(seed).sample(history, len(history))
    return new if change == "another" else history


def as_text(history: list[Any], seed: int) -> dict[str, Any]:
    """Return JSON text, in one of the forms in which emitters write it."""
    text = json.dumps(history, indent=2 if seed % 3 == 1 else None, ensure_ascii=seed % 2 == 0)
    return {INPUT: f" {text}\n" if seed == 5 else text[:-9] if seed == 7 else text}


def as_values(history: list[Any], seed: int) -> dict[str, Any]:
    """Return OTLP's arrays, as they are decoded."""
    return {INPUT: json.loads(json.dumps(history))}


def flat(prefix: str, value: Any) -> dict[str, Any]:
    """Return a value as attributes with indices and names in their keys."""
    if not isinstance(value, (dict, list)):
        return {prefix: value}
    items = enumerate(value) if isinstance(value, list) else value.items()
    return {k: v for key, inner in items for k, v in flat(f"{prefix}.{key}", inner).items()}


def as_flat(history: list[Any], seed: int) -> dict[str, Any]:
    """Return OpenInference's flat messages, in any order of keys."""
    found = {"openinference.span.kind": "LLM"}
    for place, item in enumerate(history):
        fields = dict(item) if isinstance(item, dict) else {"content": item}
        calls = [p for p in fields.pop("parts", []) if p.get("type") == "tool_call"]
        if calls:
            fields["tool_calls"] = [
                {"tool_call": {"id": c.get("id"), "function": c}} for c in calls
            ]
        found |= flat(f"llm.input_messages.{place}.message", fields)
    keys = list(found)
    if seed % 4 == 3:
        random.Random(seed).shuffle(keys)
    return {key: found[key] for key in keys}


def as_events(history: list[Any], seed: int) -> tuple[Event, ...]:
    """Return span events, one a message."""
    found = []
    for item in history:
        body = item if isinstance(item, dict) else {"content": item}
        role = body.get("role") if body.get("role") in ("user", "system", "tool") else "assistant"
        fields = {"gen_ai.event.content": json.dumps(body)} if seed % 2 else body
        found.append(Event(f"gen_ai.{role}.message", 0, fields))
    return tuple(found)


def as_body(item: Any) -> dict[str, Any]:
    """Return a message as the body of a log record, with its text and calls beside its role."""
    if not isinstance(item, dict) or "parts" not in item:
        return item if isinstance(item, dict) else {"content": item}
    body = {"role": item["role"]}
    for part in item["parts"]:
        if part["type"] == "tool_call":
            function = {"name": part["name"], "arguments": json.dumps(part["arguments"])}
            body.setdefault("tool_calls", []).append({"id": part.get("id"), "function": function})
        else:
            body["content"] = part.get("content", part.get("response"))
            body["id"] = part.get("id")
    return body


def as_records(history: list[Any], seed: int, call: Span) -> list[LogRecord]:
    """Return log records, one a message, of the call's span or only of its trace."""
    events = as_events([as_body(item) for item in history], 0)
    span_id = "" if seed == 4 else call.span_id
    return [
        LogRecord(
            call.trace_id, span_id, call.start_ns, event_name=event.name, body=event.attributes
        )
        for event in events
    ]


def as_details(history: list[Any], seed: int, call: Span) -> list[LogRecord]:
    """Return one log record that holds the whole history."""
    name = "gen_ai.client.inference.operation.details"
    keys = (as_values if seed % 2 else as_text)(history, seed)
    attributes = {**call.attributes, **keys}
    return [
        LogRecord(
            call.trace_id, call.span_id, call.start_ns, event_name=name, attributes=attributes
        )
    ]


ENCODINGS = {"text": as_text, "values": as_values, "flat": as_flat}


@pytest.mark.parametrize("encoding", [*ENCODINGS, "events", "records", "details"])
@settings(max_examples=40, deadline=None)
@given(first=histories, later=changes, agents=st.lists(st.integers(0, 1), min_size=7, max_size=7))
def test_histories_of_any_kind_give_the_same_trajectories(
    encoding: str, first: list[Any], later: list[tuple[str, list[Any], int]], agents: list[int]
) -> None:
    """Calls of two agents repeat, extend, cut, shuffle and rewrite a history, in turns."""
    history, logs = first, list[LogRecord]()
    spans = [agent("a0", end=99), agent("a1", 2, parent="a0", end=99)]
    for number, (change, new, seed) in enumerate([("repeat", [], 0), *later]):
        history = changed(history, change, new, seed)
        at = 4 * number + 3
        call = chat(f"c{number}", at, [], said(f"x{seed}"), parent=f"a{agents[number]}")
        if encoding == "details":
            logs += as_details(history, seed, call)
            call = replace(call, attributes={"gen_ai.operation.name": "chat"})
        elif encoding in ("events", "records"):
            attributes = {"gen_ai.system": "s", "gen_ai.operation.name": "chat"}
            call = replace(call, attributes=attributes)
            if encoding == "events":
                call = replace(call, events=as_events(history, seed))
            else:
                logs += as_records(history, seed, call)
        else:
            given_keys = ENCODINGS[encoding](history, seed)
            call = replace(call, attributes={**call.attributes, **given_keys})
        spans += [call, tool(f"t{number}", at + 2, id="k1", parent=f"a{agents[number]}")]
        history = [*history, said(f"x{seed}")] if seed % 2 else history

    assert repr(reconstruct(spans, logs)) == repr(in_full(spans, logs))  # 1 is not True


@given(text=st.lists(pieces, min_size=1, max_size=4).map(json.dumps), more=st.text(max_size=12))
def test_a_text_is_not_taken_for_the_beginning_of_one_that_goes_on_otherwise(
    text: str, more: str
) -> None:
    """Whatever follows the items of a list, the value is the one that the text alone has."""
    long = json.dumps([user("q" * 600)])[:-1] + ", " + text[1:]
    for end in (
        f"{long[:-1]}{more}",
        f"{long[:-1]},{more}]",
        f"{long}{more}",
        f"{long[:-1]}, {more}",
    ):
        alone = parse(end)
        with reading_once():
            parse(long)
            again = parse(end)
        assert repr(again) == repr(alone)


def test_a_number_that_goes_on_is_another_number() -> None:
    """The last item of a known list may be the beginning of a longer one."""
    head = json.dumps(["x" * 600])[:-1]
    with reading_once():
        parse(f"{head}, 1]")
        assert parse(f"{head}, 12, 3]").value[1:] == [12, 3]
        assert parse(f"{head}, 1, 3]").value[1:] == [1, 3]


def test_python_text_does_not_begin_a_json_text() -> None:
    """A list as Python prints it may end where JSON goes on, which is then invalid."""
    printed = str([{"role": "user", "content": "x" * 600}])
    longer = f"{printed[:-1]}, true]"
    alone = parse(longer)
    with reading_once():
        parse(printed)
        assert repr(parse(longer)) == repr(alone)


def test_shared_messages_count_as_read_from_the_span_that_repeats_them() -> None:
    """A second run that begins with the first one's history has its own span's ids."""
    sent = [user("q"), asks(("look", {}, "k")), gives("r" * 600, "k"), user("p")]
    spans = [
        chat("c", 2, sent, trace="1" * 32),
        chat("d", 5, [*sent, said("a"), user("o")], said("b"), trace="2" * 32),
    ]

    for span in spans:
        (found,) = (t for t in reconstruct(spans) if t.root_span.trace_id == span.trace_id)
        ids = {(message.trace_id, message.span_id) for message in found.own_messages}
        assert ids <= {(span.trace_id, span.span_id)}


def test_messages_read_before_are_the_same_objects() -> None:
    """Only the rest of a longer list is read."""
    first = [user("q"), said("a" * 600), user("p")]
    span = chat("c", 1)
    with reading_once():
        short = from_messages(parse(json.dumps(first)).value, span)
        long = from_messages(parse(json.dumps([*first, said("b")])).value, span)
        values = from_messages(json.loads(json.dumps([*first, said("b"), user("o")])), span)

    assert all(one is other for one, other in zip(short, long, strict=False))
    assert values[:4] == long


def test_flat_attributes_that_grow_give_lists_of_the_same_objects() -> None:
    """Items are read once, whatever the order of the keys; a changed text is another list."""
    small = {f"m.{place}.role": f"r{place}" for place in range(3)}
    large = {"x": 1, "m.3.role": "r3", **small, "m.4.role": "r4"}
    with reading_once():
        first, second = nested(small, "m."), nested(large, "m.")
        changed = nested({**large, "m.1.role": "other"}, "m.")

    assert [item["role"] for item in second] == ["r0", "r1", "r2", "r3", "r4"]
    assert all(one is other for one, other in zip(first, second, strict=False))
    assert [item["role"] for item in changed] == ["r0", "other", "r2", "r3", "r4"]


def test_lists_that_share_an_atom_by_chance_are_told_apart() -> None:
    """1 and True are different although they are equal, and end in the same object."""
    cache, end = ReadCache(), "end"

    first = cache.fold("kind", [1, end], lambda known, items: [*(known or []), *items])
    second = cache.fold("kind", [True, end, 3], lambda known, items: [*(known or []), *items])

    assert first[0] is not True
    assert second[0] is True


def test_names_of_known_lists_are_still_found_by_any_prefix() -> None:
    """Attributes that were read before are set apart, but not forgotten."""
    small = {"m.0.role": "r", "m.0.calls.0.name": "n"}
    large = {"kind": "x", **small, "m.1.role": "s", "n.0.role": "t"}
    with reading_once():
        nested(small, "m.")
        for prefix in ("m", "m.", "m.0.calls.", "m.1.role", "kind", "n."):
            assert has_prefix(large, prefix)
        for prefix in ("m.0.calls.1", "m.2", "l", "m.0.role."):
            assert not has_prefix(large, prefix)


def test_a_list_inside_of_a_known_list_is_read_in_full() -> None:
    """Two prefixes of the same attributes do not take them from each other."""
    small = {"m.0.calls.0.name": "a", "m.0.calls.1.name": "b"}
    large = {**small, "m.0.calls.2.name": "c", "m.1.role": "r"}
    found = []
    with reading_once():
        for attributes in (small, large, dict(large)):
            for prefix in ("m.", "m.0.calls."):
                found.append((nested(attributes, prefix), attributes, prefix))

    assert all(items == nested(attributes, prefix) for items, attributes, prefix in found)


def test_a_name_with_a_nul_is_not_taken_for_two_names() -> None:
    """Names are searched as one text, in which they are separated by NULs."""
    odd = {"m.0.role": "r", "x\0m.1.role": "s"}
    with reading_once():
        nested({"m.0.role": "r"}, "m.")
        assert nested(odd, "m.") == [{"role": "r"}]
