"""Short ways to write trajectories."""

from __future__ import annotations

import json
from typing import Any

from oteval.evaluators import Verdict, compare, make_spec
from oteval.model import Message, ToolCall


def call(name: str, arguments: Any = None, call_id: str = "") -> dict[str, Any]:
    """Return an OpenAI tool call; arguments are a value, or text as it is."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def said(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    """Return an assistant's message."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def flat(*calls: Any) -> list[dict[str, Any]]:
    """Return a trajectory of one assistant message for each call: (name, arguments) or a name."""
    pairs = [(item, {}) if isinstance(item, str) else item for item in calls]
    return [said(call(name, arguments)) for name, arguments in pairs]


def user(text: str = "hello") -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": text}


def tool(content: str = "fine", call_id: str = "", **more: Any) -> dict[str, Any]:
    """Return a tool's message."""
    return {"role": "tool", "content": content, "tool_call_id": call_id, **more}


def timed(name: str, start: int, end: int, arguments: Any = None) -> Message:
    """Return an assistant's message whose call ran from start to end."""
    made = ToolCall(name, {} if arguments is None else arguments, start_ns=start, end_ns=end)
    return Message("assistant", tool_calls=(made,))


def verdict(outputs: Any, reference: Any, mode: str = "strict", **options: Any) -> Verdict:
    """Compare two trajectories."""
    return compare(outputs, reference, make_spec(trajectory_match_mode=mode, **options))


def passes(outputs: Any, reference: Any, mode: str = "strict", **options: Any) -> bool:
    """Return whether an output passes."""
    return verdict(outputs, reference, mode, **options).passed


def args_match(out: Any, ref: Any, rule: Any, **options: Any) -> bool:
    """Return whether one call's arguments match another's under a rule."""
    return passes(
        flat(("t", out)), flat(("t", ref)), tool_args_match_overrides={"t": rule}, **options
    )


def args_comment(out: Any, ref: Any, rule: Any, **options: Any) -> str:
    """Return why one call's arguments do not match another's."""
    options = {"tool_args_match_overrides": {"t": rule}, **options}
    found = verdict(flat(("t", out)), flat(("t", ref)), **options)
    assert found.comment is not None
    return found.comment
