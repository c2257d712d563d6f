"""Spans to test with, by hand: agents, model calls and tools in the current GenAI conventions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oteval.ingest import decode_json, parse_json
from oteval.model import LogRecord, Message, Span, Trajectory
from oteval.reconstruct import reconstruct

DATA = Path(__file__).parents[1] / "data"
CAPTURES = DATA / "traces"
TRACE = "a" * 32


def names(folder: Path, without: str) -> list[str]:
    """Return the names of the captures in a folder, `without` the file that describes them."""
    stems = {path.stem for path in folder.glob("*.json")} - {without}
    return sorted(stem for stem in stems if not stem.endswith(".logs"))


NAMES = names(CAPTURES, without="gold")


def capture(name: str, folder: Path = CAPTURES) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records of a capture."""
    spans: list[Span] = []
    logs: list[LogRecord] = []
    for path in (folder / f"{name}.json", folder / f"{name}.logs.json"):
        if path.exists():
            found = decode_json(parse_json(path.read_bytes()))
            spans += found.spans
            logs += found.logs
    return spans, logs


def span(name: str, start: int = 1, *, parent: str = "", trace: str = TRACE, **fields: Any) -> Span:
    """Return a span; its id is its name, and it takes one nanosecond unless told otherwise."""
    attributes = fields.pop("attributes", {})
    resource = {"service.name": fields.pop("service", "svc")}
    end = fields.pop("end", start + 1)
    return Span(
        trace,
        name,
        parent,
        fields.pop("title", name),
        start_ns=start,
        end_ns=end,
        attributes=attributes,
        resource=resource,
        **fields,
    )


def agent(
    name: str, start: int = 1, *, of: str = "helper", session: str = "", **fields: Any
) -> Span:
    """Return an agent's span."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": of}
    if session:
        attributes["gen_ai.conversation.id"] = session
    return span(name, start, attributes={**attributes, **fields.pop("attributes", {})}, **fields)


def chat(
    name: str,
    start: int = 1,
    sent: Sequence[dict[str, Any]] | None = None,
    got: dict[str, Any] | None = None,
    *,
    session: str = "",
    delta: bool = False,
    **fields: Any,
) -> Span:
    """Return a model call's span with what was sent and what came back."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if sent is not None:
        attributes["gen_ai.input.messages"] = json.dumps(sent)
    if got is not None:
        attributes["gen_ai.output.messages"] = json.dumps([got])
    if session:
        attributes["gen_ai.conversation.id"] = session
    if delta:
        attributes["gen_ai.request.previous_response.id"] = "resp"
    return span(name, start, attributes={**attributes, **fields.pop("attributes", {})}, **fields)


def tool(
    name: str,
    start: int = 1,
    *,
    of: str = "look",
    id: str = "",  # noqa: A002
    args: Any = None,
    result: Any = None,
    **fields: Any,
) -> Span:
    """Return a tool's span."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": of}
    if id:
        attributes["gen_ai.tool.call.id"] = id
    if args is not None:
        attributes["gen_ai.tool.call.arguments"] = args
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result
    return span(name, start, attributes=attributes, **fields)


def system(text: str) -> dict[str, Any]:
    """Return a system prompt."""
    return {"role": "system", "parts": [{"type": "text", "content": text}]}


def user(text: str) -> dict[str, Any]:
    """Return what a user says."""
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def said(text: str) -> dict[str, Any]:
    """Return what a model answers."""
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def asks(*calls: tuple[Any, ...]) -> dict[str, Any]:
    """Return an answer that asks for tools: each a name, arguments, and the call's id if any."""
    parts = []
    for name, arguments, *id_ in calls:
        part = {"type": "tool_call", "name": name, "arguments": arguments}
        parts.append({**part, "id": id_[0]} if id_ else part)
    return {"role": "assistant", "parts": parts}


def gives(result: Any, id: str = "") -> dict[str, Any]:  # noqa: A002
    """Return a tool's result."""
    part = {"type": "tool_call_response", "response": result}
    return {"role": "tool", "parts": [{**part, "id": id} if id else part]}


def only(*spans: Span, logs: Sequence[LogRecord] = ()) -> Trajectory:
    """Return the one trajectory that some spans make."""
    found = reconstruct(spans, logs)
    assert len(found) == 1, [t.as_dict() for t in found]
    return found[0]


def brief(messages: Sequence[Message]) -> list[Any]:
    """Return messages as one can write them down: role with text, or the names of the calls."""
    return [
        (m.role, [(c.name, c.arguments) for c in m.tool_calls])
        if m.tool_calls
        else (m.role, m.content)
        for m in messages
    ]


def texts(trajectory: Trajectory) -> list[str | None]:
    """Return the contents of a trajectory's messages."""
    return [m.content for m in trajectory.messages]


def codes(trajectory: Trajectory) -> list[str]:
    """Return the codes of a trajectory's gaps."""
    return [gap.code for gap in trajectory.gaps]
