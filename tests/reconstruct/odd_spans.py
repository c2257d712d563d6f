"""Hostile spans from a seed: what the captures hold, mutated, on trees that should not be."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from oteval.base.jsontext import dumps, restore
from oteval.model import Event, LogRecord, Span

from .builders import CAPTURES, capture

__all__ = [
    "Spans",
    "clean",
    "examples",
    "few_or_many",
    "forest",
    "mutant",
    "shuffled",
    "together",
]

Spans = tuple[list[Span], list[LogRecord]]


def examples(count: int) -> pytest.MarkDecorator:
    """Return a mark that runs a test with a third of the examples, and as a slow one with all."""
    few = pytest.param(count // 3, id="few")
    return pytest.mark.parametrize(
        "count", [few, pytest.param(count, id="many", marks=pytest.mark.slow)]
    )


def few_or_many(count: int) -> settings:
    """Return Hypothesis settings for a number of examples, the same ones in every run."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count, deadline=None, derandomize=True, suppress_health_check=checks
    )


_ODD: list[Any] = [
    *(None, True, False, 0, -1, 7, 2**63 - 1, -(2**63), 10**30, 0.5, -0.0, 1e308, 1e-9),
    *("", " ", "null", "true", "0", "NaN", "[]", "{}", '""', "[", "{", '"', "[[]]", "[null]", "}]"),
    *("<elided>", "__REDACTED__", "<REDACTED>", "[REDACTED]", "redacted-by-litellm"),
    *("\ud800", 'a\udfffb\0\x1b[31m\u2028\n\r"', '"\\ud800"', '{"a": "\\udfff"}', "x" * 5000),
    *([], {}, [[]], [None], [[["a"]]], {"": {}}, [1, "a", None, {}], {"role": 5, "content": [5]}),
    *("[" * 300, "[" * 300 + "]" * 300, '{"a":' * 300, '[{"role": "user", "parts": [{"t'),
    *("9" * 5000, "{'a': (1, None)}", "[{'role': 'user', 'content': 'x'}]", "{'a'}"),
    *('[[{"role": "user", "content": [[1]]}]]', '{"messages": 5, "choices": [5], "kwargs": 5}'),
    *("invoke_agent", "chat", "execute_tool", "AGENT", "LLM", "TOOL", "CHAIN", "workflow"),
    *('{"bytesValue": "AA=="}', {"bytesValue": "AA=="}, {"doubleValue": "NaN"}),
]


@cache
def captures() -> tuple[tuple[str, Spans], ...]:
    """Return the captures by name."""
    names = sorted(path.stem for path in CAPTURES.glob("*.json"))
    names = [name for name in names if not name.endswith(".logs") and name != "gold"]
    return tuple((name, capture(name)) for name in names)


@cache
def _pool() -> tuple[list[Span], list[LogRecord], list[tuple[str, Any]], list[Event]]:
    """Return all captured spans and records, their different attributes, and their events."""
    spans = [span for _, (found, _) in captures() for span in found]
    logs = [record for _, (_, found) in captures() for record in found]
    pairs = {
        (key, type(value)): (key, value)
        for item in (*spans, *logs)
        for key, value in item.attributes.items()
    }
    return spans, logs, list(pairs.values()), [event for span in spans for event in span.events]


def _nested(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """Return a parsed value with something inside it replaced, dropped, repeated or renamed."""
    if depth > 6 or not isinstance(value, (list, dict)) or not value or chance.random() < 0.15:
        return chance.choice(_ODD)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        way = chance.randrange(5)
        if way == 0:
            return value[:at] + value[at + 1 :]
        if way == 1:
            return [*value, value[at]]
        return [*value[:at], _nested(value[at], chance, depth + 1), *value[at + 1 :]]
    key = chance.choice(list(value))
    way = chance.randrange(6)
    if way == 0:
        return {name: item for name, item in value.items() if name != key}
    if way == 1:
        return {**value, chance.choice(["role", "type", "content", "id", "name", "x"]): value[key]}
    return {**value, key: _nested(value[key], chance, depth + 1)}


def mutated(value: Any, chance: random.Random) -> Any:
    """Return an attribute's value as no emitter should write it."""
    way = chance.randrange(9)
    if way == 0:
        return chance.choice(_ODD)
    if way == 1 and isinstance(value, str):
        return value[: chance.randrange(len(value) + 1)]
    if way == 2:
        return dumps(value)
    parsed = value
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return chance.choice(_ODD) if way < 6 else value + chance.choice(['"', "\0", "\ud800"])
    if way == 3:
        return repr(parsed)
    if way == 4:
        return parsed
    for _ in range(chance.choice([1, 1, 2, 4])):
        parsed = _nested(parsed, chance)
    return dumps(parsed) if isinstance(value, str) or way == 5 else parsed


def _mutated_attributes(attributes: Any, chance: random.Random, changes: int) -> dict[str, Any]:
    found = dict(attributes)
    _, _, pairs, _ = _pool()
    for _ in range(changes):
        way = chance.randrange(5)
        if way == 0 and found:
            del found[chance.choice(list(found))]
        elif way == 1 or not found:
            key, value = chance.choice(pairs)
            found[key] = value if chance.random() < 0.5 else mutated(value, chance)
        else:
            key = chance.choice(list(found))
            found[key] = mutated(found[key], chance)
    return found


def _mutated_span(span: Span, chance: random.Random, changes: int) -> Span:
    events = tuple(
        replace(event, attributes=_mutated_attributes(event.attributes, chance, 1))
        if chance.random() < 0.4
        else event
        for event in span.events
    )
    if chance.random() < 0.15:
        events = (*events, chance.choice(_pool()[3]))
    return replace(
        span,
        attributes=_mutated_attributes(span.attributes, chance, changes),
        events=events,
        status_code=chance.choice([span.status_code, 0, 2]),
        status_message=chance.choice([span.status_message, "a\nb", "\ud800", "Traceback"]),
        dropped_attributes=chance.choice([0, 0, 0, 3]),
    )


def _mutated_record(record: LogRecord, chance: random.Random) -> LogRecord:
    way = chance.randrange(4)
    if way == 0:
        return replace(record, body=mutated(record.body, chance))
    if way == 1:
        return replace(record, attributes=_mutated_attributes(record.attributes, chance, 2))
    if way == 2:
        return replace(record, event_name=chance.choice(["", "gen_ai.choice", "x", "\ud800"]))
    return record


def mutant(seed: int) -> Spans:
    """Return a capture with values mutated, spans dropped and repeated, times and parents moved."""
    chance = random.Random(seed)
    _, (spans, logs) = chance.choice(captures())
    spans, logs = list(spans), list(logs)
    for _ in range(chance.choice([0, 0, 1, 3])):
        if len(spans) > 1:
            del spans[chance.randrange(len(spans))]
    for at in range(len(spans)):
        if chance.random() < 0.4:
            spans[at] = _mutated_span(spans[at], chance, chance.choice([0, 1, 1, 2, 5]))
        if chance.random() < 0.05:
            other = chance.choice(spans)
            times = {"start_ns": other.end_ns, "end_ns": other.start_ns}
            spans[at] = replace(spans[at], parent_id=other.span_id, **times)
    for _ in range(chance.choice([0, 0, 1, 2])):
        again = chance.choice(spans)
        spans.append(_mutated_span(again, chance, chance.choice([0, 1])))
    logs = [_mutated_record(r, chance) if chance.random() < 0.2 else r for r in logs]
    logs = [record for record in logs if chance.random() > 0.03]
    return shuffled((spans, logs), seed)


def forest(seed: int) -> Spans:
    """Return spans of any dialects on odd trees of some traces, and log records of theirs."""
    chance = random.Random(seed)
    pool, records, _, _ = _pool()
    traces = [f"{n:032x}" for n in range(1, chance.choice([1, 1, 2, 4]) + 1)]
    count = chance.choice([1, 2, 4, 8, 20])
    names = [f"{n:016x}" for n in range(1, count + 2)]
    shape = chance.choice(["any", "deep", "wide", "circle"])
    instants = chance.choice([[0], [5], [0, 1, 2, 3], range(1, 40), [0, 2**62, 2**63 - 1]])
    shared = chance.choice([{}, {"gen_ai.conversation.id": "s"}, {"session.id": "s"}])
    spans = []
    for at in range(count):
        like = chance.choice(pool)
        parent = {
            "any": chance.choice(["", *names]),
            "deep": names[at - 1] if at else "",
            "wide": names[0] if at else "",
            "circle": names[(at + 1) % count],
        }[shape]
        spans.append(
            replace(
                _mutated_span(like, chance, chance.choice([0, 0, 1, 3])),
                trace_id=chance.choice(traces),
                span_id=chance.choice(names) if chance.random() < 0.1 else names[at],
                parent_id=parent,
                start_ns=chance.choice(instants),
                end_ns=chance.choice(instants),
            )
        )
    if shared:
        spans = [replace(s, attributes={**s.attributes, **shared}) for s in spans]
    logs = [
        replace(
            _mutated_record(chance.choice(records), chance),
            trace_id=chance.choice([*traces, ""]),
            span_id=chance.choice(names),
            time_ns=chance.choice(instants),
        )
        for _ in range(chance.choice([0, 0, 2, 6]))
    ]
    return spans, logs


def shuffled(found: Spans, seed: int) -> Spans:
    """Return spans in another order; records keep theirs, which counts where times are equal."""
    spans = list(found[0])
    random.Random(seed).shuffle(spans)
    return spans, found[1]


def together(many: Sequence[Spans]) -> Spans:
    """Return several as one, their traces told apart; conversations may be shared."""
    spans: list[Span] = []
    logs: list[LogRecord] = []
    for number, (found, records) in enumerate(many):
        spans += [replace(s, trace_id=_renamed(s.trace_id, number)) for s in found]
        logs += [replace(r, trace_id=_renamed(r.trace_id, number)) for r in records]
    return spans, logs


def _renamed(trace_id: str, number: int) -> str:
    return f"{number:08x}{trace_id[8:]}" if trace_id else ""


def _text(value: Any) -> Any:
    return restore(dumps(value))


def clean(found: Spans) -> Spans:
    """Return spans as a store hands them back: values that JSON holds, ids once, numbered."""
    distinct: dict[tuple[str, str], Span] = {}
    for span in found[0]:
        distinct.setdefault((span.trace_id, span.span_id), span)
    spans = [
        replace(
            span,
            status_message=_text(span.status_message),
            attributes=_text(span.attributes),
            events=tuple(
                replace(event, name=_text(event.name), attributes=_text(event.attributes))
                for event in span.events
            ),
            seq=seq,
        )
        for seq, span in enumerate(distinct.values(), 1)
    ]
    logs = [
        replace(
            record,
            event_name=_text(record.event_name),
            body=_text(record.body),
            attributes=_text(record.attributes),
            seq=seq,
        )
        for seq, record in enumerate(_different(found[1]), len(spans) + 1)
    ]
    return spans, logs


def _different(logs: Sequence[LogRecord]) -> list[LogRecord]:
    """Return records less those that a store takes for one it has."""
    return list(
        {
            (r.trace_id, r.span_id, r.time_ns, r.observed_ns, r.event_name, repr(r.body)): r
            for r in reversed(logs)
        }.values()
    )[::-1]
