"""Haystack's own tracing, versions 2 and 3."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, Span
from oteval.reconstruct import reconstruct

from .builders import brief, capture, codes, only, span, texts
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

SWITCH = "HAYSTACK_CONTENT_TRACING_ENABLED=true"


def msg(role: str, *parts: Any, **meta: Any) -> dict[str, Any]:
    """Return a serialised message; a text alone is a part of text."""
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"role": role, "meta": meta, "name": None, "content": content}


def call(name: str, arguments: Any, id: str | None = "k1") -> dict[str, Any]:  # noqa: A002
    return {"tool_call": {"tool_name": name, "arguments": arguments, "id": id, "extra": None}}


def gave(result: Any, *, error: bool = False) -> dict[str, Any]:
    origin = call("look", {"x": 1})["tool_call"]
    return {"tool_call_result": {"result": result, "origin": origin, "error": error}}


def haystack(title: str, name: str, start: int, **fields: Any) -> Span:
    attributes = {
        key: json.dumps(value) if isinstance(value, (dict, list)) else value
        for key, value in fields.pop("attributes", {}).items()
    }
    return span(name, start, title=title, attributes=attributes, **fields)


def run(name: str = "r", start: int = 1, sent: Any = None, got: Any = None, **fields: Any) -> Span:
    attributes: dict[str, Any] = {"haystack.agent.max_steps": 9}
    if sent is not None:
        attributes["haystack.agent.input"] = {"messages": sent}
    if got is not None:
        attributes["haystack.agent.output"] = {"messages": got}
    return haystack("haystack.agent.run", name, start, attributes=attributes, **fields)


def llm(name: str, start: int, sent: Any = None, got: Any = None, **fields: Any) -> Span:
    key = "haystack.agent.step.llm."
    attributes = {}
    if sent is not None:
        attributes[f"{key}input"] = {"messages": sent, **fields.pop("more", {})}
    if got is not None:
        attributes[f"{key}output"] = {"replies": [got]}
    fields.setdefault("parent", "r")
    return haystack("haystack.agent.step.llm", name, start, attributes=attributes, **fields)


def tool(name: str, start: int, *, failed: bool = False, **fields: Any) -> Span:
    attributes: dict[str, Any] = {"haystack.tool.name": fields.pop("of", "look")}
    for key in ("input", "output"):
        if key in fields:
            attributes[f"haystack.agent.step.tool.{key}"] = fields.pop(key)
    if failed:
        attributes["haystack.tool.error"] = True
    fields.setdefault("parent", "r")
    return haystack("haystack.agent.step.tool", name, start, attributes=attributes, **fields)


def component(name: str, start: int, kind: str, sent: Any, got: Any, **fields: Any) -> Span:
    attributes = {
        "haystack.component.name": name,
        "haystack.component.type": kind,
        "haystack.component.input": sent,
        "haystack.component.output": got,
    }
    return haystack("haystack.component.run", name, start, attributes=attributes, **fields)


HI = msg("user", "hi")


def test_the_capture_holds_golds_turns():
    """Both turns have gold's messages, ids, errors and tools, and nothing is missing."""
    first, second = trajectories("haystack_native")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    for found in (first, second):
        assert_joined(found.messages)
        assert (found.gaps, found.dialects) == ((), ("haystack",))
        assert found.models == ("gpt-4o-mini-2026-01-01",)
        assert [definition["name"] for definition in found.tools] == ["get_weather", "lookup_order"]
        assert {"type", "name", "description", "parameters"} == set(found.tools[0])
        assert all(c.span_id for m in found.own_messages for c in m.tool_calls)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    usage = first.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (170, 34, 16)
    assert usage.model_calls == 2


@pytest.mark.parametrize("turn", [0, 1])
def test_a_run_alone_knows_which_messages_are_its_own(turn: int):
    """A turn that arrives without the other has its history and where its own part begins."""
    whole = trajectories("haystack_native")[turn]
    spans, _ = capture("haystack_native")

    alone = only(*(s for s in spans if s.trace_id in whole.trace_ids))

    assert_gold(alone.messages, GOLD[: len(alone.messages)])
    assert (alone.turn, alone.new_from) == (whole.turn, whole.new_from)


def test_the_runs_output_makes_up_for_model_calls_that_are_missing():
    """Without the steps' spans, the run's own account is the conversation."""
    spans, _ = capture("haystack_native")

    first, second = reconstruct([s for s in spans if s.name == "haystack.agent.run"])

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert codes(first) == ["no_model_spans"]


def test_without_content_the_structure_is_had():
    """With content tracing off, tools and errors are known, and the variable is named."""
    tools = json.dumps([{"type": "Tool", "data": {"name": "look"}}])
    top = run()
    top = replace(top, attributes={**top.attributes, "haystack.agent.tools": tools})

    found = only(top, llm("m", 2), tool("t", 4, failed=True), llm("n", 6))

    assert [definition["name"] for definition in found.tools] == ["look"]
    assert [m.role for m in found.messages] == ["assistant", "tool", "assistant"]
    (made,) = found.messages[0].tool_calls
    assert (made.name, made.arguments) == ("look", None)
    assert found.messages[1].is_error
    assert set(codes(found)) == {"content_not_captured"}
    assert all(SWITCH in gap.detail for gap in found.gaps)


def test_a_failed_tool_is_an_error():
    """The tag marks the failure, and the error's text is the result."""
    asked = msg("assistant", call("look", {"x": 1}))
    ran = tool("t", 4, failed=True, input={"x": 1}, output={"error": "no such order"})

    found = only(run(), llm("m", 2, [HI], asked), ran)

    answer = found.messages[2]
    assert (answer.content, answer.is_error, answer.tool_call_id) == ("no such order", True, "k1")
    assert found.messages[1].tool_calls[0].span_id == "t"


@pytest.mark.parametrize("output", [None, "boom", {"detail": 1}])
def test_a_tool_whose_span_failed_is_an_error(output: Any):
    """An exception on the span fails the call, whatever its output."""
    events = (Event("exception", 4, {"exception.message": "boom"}),)
    fields = {} if output is None else {"output": output}
    ran = tool("t", 4, input={"x": 1}, status_code=2, events=events, **fields)

    found = only(run(), llm("m", 2, [HI], msg("assistant", call("look", {"x": 1}))), ran)

    assert found.messages[2].is_error
    assert found.messages[2].content is not None


def test_parts_that_are_not_text_are_kept():
    """Images, files and reasoning stay, and reasoning makes no difference to the history."""
    image = {"image": {"base64_image": "AA==", "mime_type": "image/png"}}
    thought = {"reasoning": {"reasoning_text": "hm", "extra": {}}}
    ask = msg("user", "look", image, {"file": {"base64_data": "BB=="}})
    first, second = reconstruct(
        [
            run(),
            llm("m", 2, [ask], msg("assistant", thought, "here")),
            run("r2", 10),
            llm("n", 11, [ask, msg("assistant", "here"), HI], msg("assistant", "bye"), parent="r2"),
        ]
    )

    assert [part["type"] for part in first.messages[0].parts] == ["image", "file"]
    assert first.messages[0].parts[0]["image"] == image["image"]
    assert first.messages[1].parts == ({"type": "reasoning", **thought},)
    assert (second.history, second.gaps) == (first, ())


def test_several_replies_are_choices():
    """The first reply goes on; the others are no further messages."""
    both = {"replies": [msg("assistant", "a"), msg("assistant", "b")]}

    found = only(component("g", 1, "OpenAIChatGenerator", {"messages": [HI]}, both))

    assert texts(found) == ["hi", "a"]


def test_results_of_several_parts_and_errors_in_history():
    """A result is text or a list of parts, and tells whether it is an error."""
    asked = msg("assistant", call("look", {"x": 1}), call("look", {"x": 2}, "k2"))
    second = gave("bad", error=True)
    second["tool_call_result"]["origin"]["id"] = "k2"
    sent = [HI, asked, msg("tool", gave([{"text": "a"}])), msg("tool", second)]

    found = only(run(), llm("m", 2, sent, msg("assistant", "done")))

    results = [(m.content, m.is_error, m.tool_call_id) for m in found.messages if m.role == "tool"]
    assert results == [('[{"text":"a"}]', False, "k1"), ("bad", True, "k2")]


def test_an_agent_in_a_tool_is_linked_to_its_call():
    """A run inside a tool's span is a trajectory of its own, started by the call."""
    outer, inner = reconstruct(
        [
            run(),
            llm("m", 2, [HI], msg("assistant", call("ask", {"q": "sub"}))),
            tool("t", 3, of="ask", input={"q": "sub"}, output="sunny", end=9),
            run("r2", 4, parent="t"),
            llm("n", 5, [msg("user", "sub")], msg("assistant", "sunny"), parent="r2"),
        ]
    )

    assert (inner.parent_id, inner.parent_call_id) == (outer.id, "k1")
    assert texts(inner) == ["sub", "sunny"]
    assert outer.messages[-1].content == "sunny"


def test_version_2_runs_its_agents_with_components():
    """A chat generator's component is a model call; the invoker of tools is in the next input."""
    asked = msg("assistant", call("look", {"x": 1}), model="m-1", usage={"prompt_tokens": 3})
    sent = [HI, asked, msg("tool", gave("r"))]
    done = msg("assistant", "done", model="m-1", usage={"prompt_tokens": 4, "completion_tokens": 2})
    spans = [
        haystack("haystack.pipeline.run", "p", 1),
        component("agent", 1, "Agent", {"messages": [HI]}, {}, parent="p"),
        run("r", 1, [HI], [*sent, done], parent="agent"),
        component(
            "c1", 2, "OpenAIChatGenerator", {"messages": [HI]}, {"replies": [asked]}, parent="r"
        ),
        component("t", 4, "ToolInvoker", {"messages": [asked]}, {"tool_messages": []}, parent="r"),
        component(
            "c2", 6, "OpenAIChatGenerator", {"messages": sent}, {"replies": [done]}, parent="r"
        ),
    ]

    found = only(*spans)

    assert brief(found.messages) == [
        ("user", "hi"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "done"),
    ]
    assert (found.gaps, found.models, found.usage.input_tokens) == ((), ("m-1",), 7)


def test_generators_of_plain_text_are_model_calls():
    """A pipeline's prompt and reply, plain texts, are a conversation of two messages."""
    found = only(
        haystack("haystack.pipeline.run", "p", 1),
        component("b", 2, "PromptBuilder", {"q": "x"}, {"prompt": "hi"}, parent="p"),
        component(
            "g",
            3,
            "OpenAIGenerator",
            {"prompt": "hi"},
            {"replies": ["ho"], "meta": [{"model": "m-1", "usage": {"prompt_tokens": 3}}]},
            parent="p",
        ),
    )

    assert brief(found.messages) == [("user", "hi"), ("assistant", "ho")]
    assert (found.models, found.usage.input_tokens, found.gaps) == (("m-1",), 3, ())


def test_generators_of_images_are_no_model_calls():
    """A component that makes images has no conversation."""
    made = component("g", 1, "DALLEImageGenerator", {"prompt": "a cat"}, {"images": ["AA=="]})

    assert reconstruct([made]) == []


def test_messages_of_older_versions():
    """Fields that begin with "_", and contents that are plain text, are read as well."""
    old = {"_role": "assistant", "_content": [{"text": "ho"}], "_name": None, "_meta": {}}
    older = {"role": "user", "content": "hi", "name": None, "meta": {}}

    found = only(run(), llm("m", 2, [older, old, HI], msg("assistant", "a")))

    assert brief(found.messages)[:2] == [("user", "hi"), ("assistant", "ho")]


def test_tools_of_tool_sets_are_listed():
    """A tool set is as many definitions as it has tools."""
    tools = [{"type": "Tool", "data": {"name": n, "parameters": {}, "function": "f"}} for n in "ab"]
    sets = [{"type": "Toolset", "data": {"tools": tools}}, {"type": "X", "data": {"name": "c"}}, 5]

    found = only(run(), llm("m", 2, [HI], msg("assistant", "a"), more={"tools": sets}))

    assert [definition["name"] for definition in found.tools] == ["a", "b", "c"]
    assert found.tools[0] == {"type": "function", "name": "a", "parameters": {}}


def test_one_span_for_all_of_a_steps_tools_is_a_wrapper():
    """Version 3.0's first form of a tool's span names no tool; the next input has the results."""
    asked = msg("assistant", call("look", {"x": 1}))
    grouped = haystack("haystack.agent.step.tool", "t", 4, parent="r")
    last = llm("n", 6, [HI, asked, msg("tool", gave("r"))], msg("assistant", "a"))

    found = only(run(), llm("m", 2, [HI], asked), grouped, last)

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.gaps == ()


def test_a_failed_model_call_says_why():
    """A call that raised has its question, and a gap with the exception's message."""
    events = (Event("exception", 3, {"exception.message": "429"}),)

    found = only(run(), llm("m", 2, [HI], status_code=2, events=events))

    assert (texts(found), codes(found)) == (["hi"], ["model_call_failed"])


@pytest.mark.parametrize(
    ("behind", "kept"), [({}, ["one"]), ({"tools": [{"data": {}}]}, ["one", "two"])]
)
def test_cut_values_lose_only_what_the_cut_goes_through(behind: dict[str, Any], kept: list[str]):
    """The message in which a value ends is left out; one that lies before the cut is whole."""
    whole = llm(
        "m", 2, [msg("user", "one"), msg("user", "two")], msg("assistant", "a"), more=behind
    )
    key = "haystack.agent.step.llm.input"
    cut = replace(whole, attributes={**whole.attributes, key: whole.attributes[key][:-8]})

    found = only(run(), cut)

    assert texts(found)[:-1] == kept
    assert codes(found) == ["content_truncated"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("__REDACTED__", "redacted"),
        ("[ChatMessage(_role=<ChatRole.USER>)]", "content_unreadable"),
        (5, "content_unreadable"),
        ("{}", "content_unreadable"),
    ],
)
def test_inputs_that_cannot_be_read_say_why(value: Any, code: str):
    """What is there and tells no messages is a gap; the answer is kept."""
    whole = llm("m", 2, [HI], msg("assistant", "a"))
    key = "haystack.agent.step.llm.input"

    found = only(run(), replace(whole, attributes={**whole.attributes, key: value}))

    assert codes(found) == [code]
    assert found.messages[-1].content == "a"


@pytest.mark.parametrize("odd", [None, 5, True, [], [None, 3], {}, "", "{", "x", {"messages": 5}])
def test_odd_values_are_survived(odd: Any):
    """Whatever a tag holds, something comes out and nothing is raised."""
    names = ("agent.", "agent.step.llm.", "agent.step.tool.", "component.")
    attributes = {f"haystack.{name}{end}": odd for name in names for end in ("input", "output")}
    attributes |= {"haystack.tool.name": odd, "haystack.tool.error": odd}
    titles = ("agent.run", "agent.step.llm", "agent.step.tool", "component.run")

    found = only(
        *(
            span(
                title,
                i,
                title=f"haystack.{title}",
                parent="agent.run" if i else "",
                attributes=attributes,
            )
            for i, title in enumerate(titles)
        )
    )

    assert found.usage.model_calls == 1
    json.dumps(found.as_dict(), default=str)


@pytest.mark.parametrize(
    "odd", [None, 5, "x", [], [None], [{}], [{"text": None}], [{"tool_call": 3}]]
)
def test_odd_messages_are_survived(odd: Any):
    """Contents of the wrong form are left out or kept, never raised."""
    sent = [{"role": role, "content": odd} for role in ("user", "assistant", "tool", None, 5)]
    results = [{"tool_call_result": value} for value in (None, 5, {}, {"origin": 5})]

    found = only(run(), llm("m", 2, [*sent, msg("tool", *results), HI], msg("assistant", "a")))

    assert found.messages[-2].content == "hi"
