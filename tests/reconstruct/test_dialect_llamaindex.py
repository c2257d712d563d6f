"""LlamaIndex's agents under OpenLLMetry: the steps of a workflow, by hand."""

from __future__ import annotations

import json
from typing import Any

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, chat, codes, only, said, span, user

SCOPE = "opentelemetry.instrumentation.llamaindex"


def text(role: str, content: str, **extra: Any) -> dict[str, Any]:
    blocks = [{"block_type": "text", "text": content}] if content else []
    return {"role": role, "additional_kwargs": extra, "blocks": blocks}


def step(name: str, start: int, event: Any = None, **fields: Any) -> Span:
    attributes = {"traceloop.span.kind": "task", "traceloop.entity.name": "BaseWorkflowAgent.task"}
    if event is not None:
        attributes["traceloop.entity.output"] = json.dumps(event)
    fields.setdefault("parent", "w")
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def ran(name: str, start: int, id_: str, *, is_error: bool = False, **fields: Any) -> Span:
    output = {"raw_output": f"r{id_}", "is_error": is_error, "blocks": []}
    event = {"tool_name": "look", "tool_kwargs": {"x": id_}, "tool_id": id_, "tool_output": output}
    return step(name, start, event, **fields)


def turn(history: list[Any], **fields: Any) -> list[Span]:
    """Return a run: set up twice, two tools, set up again, and the answer."""
    asked = {"input": [*history, text("user", "q")], "current_agent_name": "desk"}
    whole = {"input": [text("system", "s"), *asked["input"]]}
    kind = {"traceloop.span.kind": "workflow", "traceloop.entity.name": "FunctionAgent.workflow"}
    return [
        span("w", 1, scope=SCOPE, attributes=kind, end=99, **fields),
        step("init", 2, asked, **fields),
        step("setup", 3, whole, **fields),
        step("ask", 4, **fields),
        ran("t1", 6, "k1", **fields),
        ran("t2", 8, "k2", is_error=True, **fields),
        step("setup2", 10, whole, **fields),
        step("ask2", 12, **fields),
        step("stop", 14, {"result": {"response": text("assistant", "a")}}, **fields),
    ]


TOLD = [
    ("system", "s"),
    ("user", "q"),
    ("assistant", [("look", {"x": "k1"}), ("look", {"x": "k2"})]),
    ("tool", "rk1"),
    ("tool", "rk2"),
    ("assistant", "a"),
]


def test_a_run_is_put_together_from_its_steps():
    """Messages, calls, results and the answer come from the events that the steps returned."""
    found = only(*turn([]))

    assert brief(found.messages) == TOLD
    assert [m.is_error for m in found.messages if m.role == "tool"] == [False, True]
    assert (found.gaps, found.dialects) == ((), ("traceloop", "llamaindex"))


def test_the_next_turn_goes_on():
    """A turn whose messages begin with another's goes on from it, in any order of arrival."""
    calls = [
        {"id": k, "type": "function", "function": {"name": "look", "arguments": f'{{"x": "{k}"}}'}}
        for k in ("k1", "k2")
    ]
    history = [
        text("user", "q"),
        text("assistant", "", tool_calls=calls),
        text("tool", "rk1", tool_call_id="k1"),
        text("tool", "rk2", tool_call_id="k2"),
        text("assistant", "a"),
    ]
    spans = [*turn([]), *turn(history, trace="b" * 32)]
    first, second = reconstruct(spans[::-1])

    assert (first.turn, second.turn, second.new_from) == (1, 2, 6)
    assert brief(second.messages)[:6] == TOLD


def test_the_model_clients_own_spans_count():
    """Where the model client is instrumented too, no call is put together."""
    client = chat(
        "c", 4, [user("q")], said("a"), parent="ask", attributes={"gen_ai.request.model": "m"}
    )
    found = only(*turn([]), client)

    assert found.models == ("m",)
    assert found.usage.model_calls == 1


def test_an_answer_that_is_not_there_is_a_gap():
    """A run that was cut before its answer says so."""
    found = only(*turn([])[:4])

    assert codes(found) == ["content_not_captured"]
