"""Short ways to make spans, trajectories and scores, and the captures as spans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oteval.ingest import read
from oteval.model import Gap, LogRecord, Message, Score, Span, SpanRef, ToolCall, Trajectory
from oteval.model import trajectory_id as id_of
from oteval.store import Store

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "tests" / "data" / "traces"
CAPTURES = sorted(
    path.name.removesuffix(".json")
    for path in TRACES.glob("*.json")
    if path.name != "gold.json" and not path.name.endswith(".logs.json")
)


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
    trace: int, number: int, said: Sequence[tuple[str, str]], answer: str, **attributes: Any
) -> Span:
    """Return the span of a model call: what was said by role, and what it answered."""
    content = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([_parts(role, text) for role, text in said]),
        "gen_ai.output.messages": json.dumps([_parts("assistant", answer)]),
    }
    return span(trace, number, attributes={**content, **attributes}, resource={"service.name": "s"})


def _parts(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def call(name: str, arguments: Any = None, call_id: str = "", **fields: Any) -> ToolCall:
    """Return a tool call; without arguments they are not known."""
    return ToolCall(name, arguments, call_id, **fields)


def asks(*calls: ToolCall, text: str | None = None) -> Message:
    """Return an assistant's message."""
    return Message("assistant", text, calls)


def run(number: int, *messages: Message, **fields: Any) -> Trajectory:
    """Return a trajectory whose trace and root span are made of a number."""
    root = SpanRef(f"{number:032x}", f"{number:016x}")
    known = {"start_ns": number, "end_ns": number + 1, "agent": "a", "service": "s"}
    return Trajectory(
        id_of(root.trace_id, root.span_id),
        root,
        trace_ids=(root.trace_id,),
        tail=messages,
        **{**known, **fields},
    )


def keep(store: Store, *trajectories: Trajectory) -> None:
    """Store trajectories as what their traces came to."""
    store.trajectories.write(trajectories, [t.root_span.trace_id for t in trajectories])


def told(trajectory: Trajectory) -> Any:
    """Return all that a trajectory says, its revision and the order of gaps aside."""
    plain = replace(trajectory, history=None, rev=1, gaps=(), tail=trajectory.messages)
    return plain, sorted(map(repr, trajectory.gaps))


def score(number: int = 1, **fields: Any) -> Score:
    """Return a score of the trajectory that `run` makes of the same number; a pass."""
    made = run(number)
    known = {"evaluator": "e", "version": "v", "status": "ok", "score": 1.0, "passed": True}
    known = {**known, **fields}
    if known["status"] != "ok":
        known |= {"score": None, "passed": None}
    return Score(made.id, made.root_span.trace_id, made.root_span.span_id, **known)


def gap(code: str = "content_not_captured") -> Gap:
    """Return a gap."""
    return Gap(code, "why", "0" * 16)
