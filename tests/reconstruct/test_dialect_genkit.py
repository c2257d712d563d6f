"""Genkit: spans by hand, as its tracer writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span

Q = {"role": "user", "content": [{"text": "q"}]}


def action(
    name: str, start: int, kind: str, input_value: Any, output_value: Any, **fields: Any
) -> Span:
    """Return an action's span; `prefix` is what Genkit's attributes begin with."""
    prefix = fields.pop("prefix", "genkit:")
    attributes = {
        f"{prefix}type": "action" if kind in ("model", "tool") else kind,
        f"{prefix}name": fields.pop("of", name),
        f"{prefix}input": json.dumps(input_value),
        f"{prefix}output": json.dumps(output_value),
        **fields.pop("attributes", {}),
    }
    if kind in ("model", "tool"):
        attributes[f"{prefix}metadata:subtype".replace(":", prefix[-1])] = kind
    fields.setdefault("parent", "root")
    return span(name, start, attributes=attributes, scope="genkit-tracer", **fields)


def calls(*names: str) -> dict[str, Any]:
    content = [{"toolRequest": {"name": n, "ref": f"ref-{n}", "input": {"x": n}}} for n in names]
    return {"role": "model", "content": content}


def results(*names: str) -> dict[str, Any]:
    content = [{"toolResponse": {"name": n, "ref": f"ref-{n}", "output": f"r{n}"}} for n in names]
    return {"role": "tool", "content": content}


@pytest.mark.parametrize("prefix", ["genkit:", "genkit/"])
def test_a_flow_is_an_agents_run(prefix: str):
    """Models, tools and nested generations make one run, whichever exporter wrote them."""
    answer = {"role": "model", "content": [{"text": "done"}]}
    used = {"usage": {"inputTokens": 5, "outputTokens": 2, "cachedContentTokens": 1}}
    trajectory = only(
        action("root", 1, "flow", "q", "done", parent="", of="desk", prefix=prefix, end=99),
        action("g", 2, "util", {}, {}, prefix=prefix, end=90),
        action(
            "m",
            3,
            "model",
            {"messages": [Q]},
            {"message": calls("a", "b"), **used},
            parent="g",
            prefix=prefix,
            of="ai/m",
        ),
        action("ta", 5, "tool", {"x": "a"}, "ra", parent="g", prefix=prefix, of="a"),
        action("tb", 6, "tool", {"x": "b"}, "rb", parent="g", prefix=prefix, of="b"),
        action(
            "n",
            8,
            "model",
            {"messages": [Q, calls("a", "b"), results("a", "b")]},
            {"message": answer},
            parent="g",
            prefix=prefix,
        ),
    )

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("a", {"x": "a"}), ("b", {"x": "b"})]),
        ("tool", "ra"),
        ("tool", "rb"),
        ("assistant", "done"),
    ]
    assert (trajectory.agent, trajectory.dialects, trajectory.gaps) == ("desk", ("genkit",), ())
    assert (
        trajectory.models[0],
        trajectory.usage.input_tokens,
        trajectory.usage.cached_tokens,
    ) == ("ai/m", 5, 1)
    assert trajectory.messages[1].tool_calls[0].span_id == "ta"


def test_a_failed_tool_is_an_error():
    """The state, or the span's status, says that a tool failed."""
    trajectory = only(
        action("m", 1, "model", {"messages": [Q]}, {"message": calls("a")}, parent=""),
        span(
            "t",
            3,
            parent="m",
            attributes={
                "genkit:type": "action",
                "genkit:metadata:subtype": "tool",
                "genkit:name": "a",
                "genkit:input": '{"x": "a"}',
                "genkit:state": "error",
            },
            status_code=2,
            status_message="boom",
        ),
    )

    assert (trajectory.messages[-1].content, trajectory.messages[-1].is_error) == (
        "Error: boom",
        True,
    )


def test_the_oldest_answers_are_candidates():
    """Before, an answer was a list of candidates."""
    answer = {
        "candidates": [{"index": 0, "message": {"role": "model", "content": [{"text": "a"}]}}]
    }
    trajectory = only(action("m", 1, "model", {"messages": [Q]}, answer, parent=""))

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_side_that_is_missing_is_a_gap(side: str):
    """A redacted or absent side of a model call is named."""
    whole = action("m", 1, "model", {"messages": [Q]}, {"message": calls("a")}, parent="")
    attributes = {k: v for k, v in whole.attributes.items() if k != f"genkit:{side}"}

    assert "content_not_captured" in codes(only(span("m", 1, attributes=attributes)))


def test_turns_are_linked_by_their_messages():
    """A turn that repeats another's messages goes on from it, in any order of arrival."""
    answer = {"role": "model", "content": [{"text": "a"}]}
    again = {"messages": [Q, answer, Q]}
    spans = [
        action("m", 1, "model", {"messages": [Q]}, {"message": answer}, parent="", trace="a" * 32),
        action("n", 5, "model", again, {"message": answer}, parent="", trace="b" * 32),
    ]

    assert [t.turn for t in reconstruct(spans[::-1])] == [1, 2]


def test_what_a_redaction_left_is_not_said():
    """A placeholder is a gap in every dialect, also in one that writes none itself."""
    request = {"messages": [{"role": "user", "content": [{"text": "[REDACTED]"}]}]}
    response = {"message": {"role": "model", "content": [{"text": "done"}]}}
    trajectory = only(
        action("root", 1, "flow", "q", "done", parent="", end=9),
        action("m", 3, "model", request, response),
    )

    assert [(m.role, m.content) for m in trajectory.messages] == [
        ("user", None),
        ("assistant", "done"),
    ]
    assert "redacted" in codes(trajectory)
