"""Builders of spans, trajectories and scores, and readers of the captures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oteval.ingest import read
from oteval.model import (
    Gap,
    LogRecord,
    Message,
    Score,
    Span,
    SpanRef,
    ToolCall,
    Trajectory,
    trajectory_id as id_of,
)
from oteval.store import Store

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "tests" / "data" / "traces"
_SECOND = 1_000_000_000
CAPTURES = sorted(
    path.name.removesuffix(".json")
    for path in TRACES.glob("*.json")
    if path.name != "gold.json" and not path.name.endswith(".logs.json")
)
# For tests that take a second per capture: the fast suite runs captures with duplicates and every
# fourth of the others, `make test-slow` the rest.
ALL_WHEN_SLOW = [
    name
    if name.startswith("dup_") or index % 4 == 0
    else pytest.param(name, marks=pytest.mark.slow)
    for index, name in enumerate(CAPTURES)
]

SOME_SEEDS = [seed if seed < 1 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(8)]


def capture(name: str) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records of a capture."""
    paths = [TRACES / f"{name}.json", TRACES / f"{name}.logs.json"]
    batches = [batch for path in paths if path.exists() for batch in read(path)]
    return [s for b in batches for s in b.spans], [r for b in batches for r in b.logs]


def span(trace: int, number: int, start_ns: int = 0, **fields: Any) -> Span:
    """Return a span with ids made of numbers; the start is its number unless given."""
    start = start_ns or number
    return Span(f"{trace:032x}", f"{number:016x}", start_ns=start, end_ns=start + 1, **fields)


def chat(
    trace: int, number: int, messages: Sequence[tuple[str, str]], answer: str, **attributes: Any
) -> Span:
    """Return the span of a model call with its input messages and its answer."""
    content = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([_parts(role, text) for role, text in messages]),
        "gen_ai.output.messages": json.dumps([_parts("assistant", answer)]),
    }
    return span(trace, number, attributes={**content, **attributes}, resource={"service.name": "s"})


def alike(count: int, chance: random.Random) -> list[Span]:
    """Return the spans of chats without ids that mostly say the same, each turn in a trace."""
    spans: list[Span] = []
    for talk in range(count):
        messages: list[tuple[str, str]] = []
        for turn in range(chance.randrange(1, 4)):
            number = 10 * talk + turn + 1
            messages.append(("user", f"question {turn}"))
            spans += _turn(number, chance.randrange(1, 50) * 100 + number, messages, chance)
    return spans


def _turn(
    number: int, start: int, messages: list[tuple[str, str]], chance: random.Random
) -> Iterator[Span]:
    """Yield an agent's span and those of its model calls, whose answers extend the messages."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    root = span(number, 100 * number, start * _SECOND, attributes=attributes)
    yield replace(root, end_ns=root.start_ns + _SECOND, resource={"service.name": "s"})
    for at in range(1, chance.randrange(2, 4)):
        answer = f"answer {chance.randrange(2)}"
        model_call = chat(number, 100 * number + at, messages, answer)
        begin = root.start_ns + at * _SECOND // 10
        yield replace(model_call, parent_id=root.span_id, start_ns=begin, end_ns=begin + 1)
        messages.append(("assistant", answer))


def retried(count: int, chance: random.Random) -> list[Span]:
    """Return the spans of requests of two processes, each in a trace; half of them failed."""
    spans = []
    for number in range(1, count + 1):
        request = chat(1000 + number, number, [("user", f"question {chance.randrange(2)}")], "so")
        start = chance.randrange(20 * count) * _SECOND + number
        process = {**request.resource, "process.pid": str(chance.randrange(2))}
        if chance.random() < 0.5:
            input_attributes = {
                k: v for k, v in request.attributes.items() if k != "gen_ai.output.messages"
            }
            request = replace(request, attributes=input_attributes, status_code=2)
        spans.append(replace(request, start_ns=start, end_ns=start + _SECOND, resource=process))
    return spans


def _parts(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def call(name: str, arguments: Any = None, call_id: str = "", **fields: Any) -> ToolCall:
    """Return a tool call; without arguments they are not known."""
    return ToolCall(name, arguments, call_id, **fields)


def asks(*calls: ToolCall, text: str | None = None) -> Message:
    """Return an assistant's message."""
    return Message("assistant", text, calls)


def run(number: int, *messages: Message, **fields: Any) -> Trajectory:
    """Return a trajectory whose trace and root span are made of a number.

    Its version is that of its attributes unless told otherwise, as in the runs of spans.
    """
    root = SpanRef(f"{number:032x}", f"{number:016x}")
    defaults = {"start_ns": number, "end_ns": number + 1, "agent": "a", "service": "s"}
    defaults["version"] = fields.get("attributes", {}).get("service.version", "")
    return Trajectory(
        id_of(root.trace_id, root.span_id),
        root,
        trace_ids=(root.trace_id,),
        tail=messages,
        **{**defaults, **fields},
    )


def keep(store: Store, *trajectories: Trajectory) -> None:
    """Store trajectories as the result of reconstructing their traces."""
    store.trajectories.write(trajectories, [t.root_span.trace_id for t in trajectories])


def told(trajectory: Trajectory) -> Any:
    """Return all that a trajectory says, its revision and the order of gaps aside."""
    plain = replace(trajectory, history=None, rev=1, gaps=(), tail=trajectory.messages)
    return plain, sorted(map(repr, trajectory.gaps))


def score(number: int = 1, **fields: Any) -> Score:
    """Return a score of the trajectory that `run` makes of the same number; a pass."""
    trajectory = run(number)
    defaults = {"evaluator": "e", "version": "v", "status": "ok", "score": 1.0, "passed": True}
    fields = {**defaults, **fields}
    if fields["status"] != "ok":
        fields |= {"score": None, "passed": None}
    return Score(
        trajectory.id, trajectory.root_span.trace_id, trajectory.root_span.span_id, **fields
    )


def gap(code: str = "content_not_captured") -> Gap:
    """Return a gap."""
    return Gap(code, "why", "0" * 16)
