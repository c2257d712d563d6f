"""The Vercel AI SDK, versions 3 to 7."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, Message, Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, capture, chat, codes, gives, only, said, span, texts, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

CAPTURES = ("vercel_ai4_generate", "vercel_ai6_stream", "vercel_ai7_generate")
SWITCH = "experimental_telemetry: {recordInputs: true, recordOutputs: true}"
NAMES = {"getWeather": "get_weather", "lookupOrder": "lookup_order"}


def snake(found: Trajectory) -> tuple[Message, ...]:
    """Return a capture's messages with the tools named as in gold."""
    return tuple(
        replace(m, tool_calls=tuple(replace(c, name=NAMES[c.name]) for c in m.tool_calls))
        for m in found.messages
    )


def op(operation: str, name: str, start: int, **fields: Any) -> Span:
    attributes = {"ai.operationId": operation, **fields.pop("attributes", {})}
    return span(name, start, scope="ai", attributes=attributes, **fields)


def root(name: str = "r", start: int = 1, operation: str = "generateText", **fields: Any) -> Span:
    return op(f"ai.{operation}", name, start, **fields)


def model(
    name: str, start: int, sent: Any = None, *, call: str = "generateText.doGenerate", **got: Any
) -> Span:
    """Return a model call; what it got is named by the end of its attribute."""
    parent = got.pop("parent", "r")
    fields = {key: got.pop(key) for key in ("status_code", "events", "end") if key in got}
    attributes = {f"ai.response.{key}": value for key, value in got.items()}
    if sent is not None:
        attributes["ai.prompt.messages"] = sent if isinstance(sent, str) else json.dumps(sent)
    return op(f"ai.{call}", name, start, parent=parent, attributes=attributes, **fields)


def tool(name: str, start: int, *, of: str = "look", id: str = "k1", **fields: Any) -> Span:  # noqa: A002
    attributes = {"ai.toolCall.name": of, "ai.toolCall.id": id}
    for key in ("args", "result"):
        if key in fields:
            attributes[f"ai.toolCall.{key}"] = fields.pop(key)
    return op(
        "ai.toolCall",
        name,
        start,
        parent=fields.pop("parent", "r"),
        attributes=attributes,
        **fields,
    )


def parts(role: str, *found: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(found)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(name: str, arguments: Any, id: str = "k1") -> dict[str, Any]:  # noqa: A002
    return {"type": "tool-call", "toolCallId": id, "toolName": name, "input": arguments}


def result(output: Any, id: str = "k1", **fields: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool-result", "toolCallId": id, "toolName": "look", **fields, **output}


HI = parts("user", text("hi"))
CALLS = json.dumps([{"toolCallId": "k1", "toolName": "look", "input": {"x": 1}}])


@pytest.mark.parametrize("name", CAPTURES)
def test_a_turn_holds_golds_messages(name: str):
    """Turn 1 has gold's messages, ids and error marks, with nothing missing, in one trajectory."""
    first, second = trajectories(name)

    assert_gold(snake(first), GOLD[:6])
    for found in (first, second):
        assert_joined(found.messages)
        assert found.gaps == ()
        assert (found.agent, found.dialects) == ("support_agent", ("vercel-ai",))
        assert found.models == ("gpt-4o-mini-2026-01-01",)
        assert [tool["name"] for tool in found.tools] == ["getWeather", "lookupOrder"]
        assert all(c.span_id for m in found.own_messages for c in m.tool_calls)
    assert (first.usage.input_tokens, first.usage.output_tokens) == (170, 34)
    assert (first.usage.cached_tokens, first.usage.model_calls) == (16, 2)


@pytest.mark.parametrize(("name", "length"), [(CAPTURES[0], 9), (CAPTURES[1], 10)])
def test_turns_are_stitched_by_the_session_in_the_metadata(name: str, length: int):
    """Turn 2 goes on from turn 1; version 4 ends it where the tool fails, without an answer."""
    first, second = trajectories(name)

    assert_gold(snake(second), GOLD[:length])
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert first.conversation_id == second.conversation_id == "conv-001"


def test_version_7_shows_turn_2_as_its_input_says():
    """The capture's turn 2 was sent less than turn 1 said, and has no id to stitch it by."""
    _, second = trajectories("vercel_ai7_generate")

    assert [m.role for m in second.messages] == [
        *("system", "user", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]
    assert (second.turn, second.new_from, second.history) == (2, 3, None)
    assert_gold(snake(second)[3:], GOLD[6:])


def test_version_7_with_a_session_stitches_and_names_the_rewrite():
    """Were the turns of one session, the messages that turn 2 was not sent would be a gap."""
    spans, _ = capture("vercel_ai7_generate")
    same = {"ai.settings.context.sessionId": "s1"}
    first, second = reconstruct([replace(s, attributes={**s.attributes, **same}) for s in spans])

    assert first.conversation_id == second.conversation_id == "s1"
    assert codes(second) == ["history_rewritten"]
    assert (second.turn, second.new_from) == (2, 3)


@pytest.mark.parametrize("key", ["sessionId", "threadId", "conversationId", "chatId"])
def test_the_conversation_id_is_metadata(key: str):
    """Any of the usual names of a conversation in the telemetry's metadata is its id."""
    found = only(
        root(attributes={f"ai.telemetry.metadata.{key}": "c9"}), model("m", 2, [HI], text="a")
    )

    assert found.conversation_id == "c9"


@pytest.mark.parametrize(
    ("output", "content", "failed"),
    [
        ({"output": {"type": "text", "value": "fine"}}, "fine", False),
        ({"output": {"type": "json", "value": {"t": 1}}}, '{"t":1}', False),
        ({"output": {"type": "json", "value": None}}, None, False),
        ({"output": {"type": "error-text", "value": "no"}}, "no", True),
        ({"output": {"type": "error-json", "value": {"code": 5}}}, '{"code":5}', True),
        ({"output": {"type": "execution-denied", "reason": "not now"}}, "not now", False),
        ({"output": {"type": "execution-denied"}}, "Tool execution denied.", False),
        ({"output": {"type": "content", "value": [text("a")]}}, "a", False),
        ({"output": "bare"}, "bare", False),
        ({"result": {"type": "json", "value": 1}}, '{"type":"json","value":1}', False),
        ({"result": "bad", "isError": True}, "bad", True),
        ({"result": None}, None, False),
        ({}, None, False),
    ],
)
def test_results_in_history(output: dict[str, Any], content: str | None, failed: bool):
    """A result's content and error mark come out of every form that versions 4 to 6 write."""
    history = [HI, parts("assistant", call("look", {})), parts("tool", result(output))]

    found = only(root(), model("m", 2, history, text="done"))

    answer = found.messages[2]
    assert (answer.role, answer.content, answer.is_error) == ("tool", content, failed)
    assert (answer.tool_call_id, answer.name) == ("k1", "look")


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ({"input": {"x": 1}}, {"x": 1}),
        ({"input": '{"x":1}'}, {"x": 1}),
        ({"args": '{"x":1}'}, {"x": 1}),
        ({"input": "{}"}, {}),
        ({}, {}),
        ({"input": '{"x":'}, '{"x":'),
        ({"input": [1]}, [1]),
    ],
)
def test_arguments_of_calls(written: dict[str, Any], arguments: Any):
    """Arguments are parsed whether they are text or not; broken ones stay as they are."""
    calls = json.dumps([{"toolCallId": "k1", "toolName": "look", **written}])

    found = only(root(), model("m", 2, [HI], toolCalls=calls))

    assert found.messages[1].tool_calls[0].arguments == arguments
    assert codes(found) == ["missing_tool_result"]


def test_version_3_names_its_answer_a_result():
    """Text and calls are read under their older names as well."""
    sent = json.dumps([HI])
    spans = [
        root(),
        op(
            "ai.generateText.doGenerate",
            "m",
            2,
            parent="r",
            attributes={
                "ai.prompt.messages": sent,
                "ai.result.text": "let me see",
                "ai.result.toolCalls": CALLS,
                "ai.usage.promptTokens": 7,
                "ai.usage.completionTokens": 3,
                "ai.model.id": "m-1",
            },
        ),
        tool("t", 3, args='{"x":1}', result='"fine"'),
    ]

    found = only(*spans)

    assert found.messages[1].content == "let me see"
    assert brief(found.messages[1:]) == [("assistant", [("look", {"x": 1})]), ("tool", "fine")]
    assert (found.usage.input_tokens, found.usage.output_tokens) == (7, 3)
    assert found.models == ("m-1",)


@pytest.mark.parametrize("operation", ["generateObject.doGenerate", "streamObject.doStream"])
def test_objects_are_the_answer(operation: str):
    """A generated object is the text of the model's answer, and the schema is no tool."""
    top = root(operation=operation.split(".")[0], attributes={"ai.schema": "{}"})

    found = only(top, model("m", 2, [HI], call=operation, object='{"mood":"good"}'))

    assert brief(found.messages) == [("user", "hi"), ("assistant", '{"mood":"good"}')]
    assert (found.gaps, found.tools) == ((), ())


def test_reasoning_images_and_files_are_kept_as_parts():
    """What is not text stands in the messages' parts as written; reasoning is no difference."""
    image = {"type": "image", "image": "https://x/y.png"}
    file = {"type": "file", "mediaType": "application/pdf", "data": "AA=="}
    made = {"type": "file", "mediaType": "image/png", "data": "BB=="}
    thought = {"type": "reasoning", "text": "hm", "providerOptions": {"p": {"signature": "s"}}}
    ask = parts("user", text("look"), image, file)
    spans = [
        root(),
        model("m", 2, [ask], reasoning="hm", text="here", files=json.dumps([made])),
        root("r2", 10),
        model(
            "m2",
            11,
            [ask, parts("assistant", thought, text("here"), made), parts("user", text("ok"))],
            parent="r2",
            text="bye",
        ),
    ]

    first, second = reconstruct(spans)

    assert first.messages[0].parts == (image, file)
    assert first.messages[1].parts == ({"type": "reasoning", "text": "hm"}, made)
    assert (second.history, second.gaps) == (first, ())
    assert texts(second) == ["look", "here", "ok", "bye"]


@pytest.mark.parametrize("operation", ["ai.embed", "ai.embedMany", "ai.rerank", "ai.generateImage"])
def test_embeddings_are_no_model_calls(operation: str):
    """A trace of other operations is no run."""
    inner = {"ai.embed": "ai.embed.doEmbed"}.get(operation, f"{operation}.doGenerate")

    assert reconstruct([op(operation, "e", 1), op(inner, "i", 2, parent="e")]) == []


def test_embeddings_beside_model_calls_change_nothing():
    """A retrieval inside a tool leaves no trace in the conversation."""
    spans = [
        root(),
        model("m", 2, [HI], toolCalls=CALLS),
        tool("t", 4, args='{"x":1}', result='"r"'),
        op("ai.embed", "e", 4, parent="t"),
        op("ai.embed.doEmbed", "d", 4, parent="e"),
    ]

    found = only(*spans)

    assert [m.role for m in found.messages] == ["user", "assistant", "tool"]
    assert (found.usage.model_calls, found.gaps) == (1, ())


def streamed(first: dict[str, Any], second: dict[str, Any], **ran: Any) -> Trajectory:
    """Return what comes of a streamed answer with a tool that starts before the stream ends."""
    how = "streamText.doStream"
    return only(
        root(operation="streamText", end=40),
        model("m", 2, first.pop("sent", None), call=how, end=20, **first),
        tool("t", 10, end=12, **ran),
        model("n", 22, second.pop("sent", None), call=how, end=30, **second),
    )


def test_without_content_the_structure_is_had():
    """With inputs and outputs off, calls and results are the tools' spans, and the switch is named.

    That holds for streams too, whose tools start while the answer still comes in.
    """
    found = streamed({"finishReason": "tool-calls"}, {"finishReason": "stop"})

    assert [m.role for m in found.messages] == ["assistant", "tool", "assistant"]
    (made,) = found.messages[0].tool_calls
    assert (made.name, made.arguments, made.id, made.span_id) == ("look", None, "k1", "t")
    assert found.messages[1].content is None
    assert set(codes(found)) == {"content_not_captured"}
    assert all(SWITCH in gap.detail for gap in found.gaps)


def test_inputs_alone_show_the_question_and_what_the_history_repeats():
    """With outputs off, the next call's input tells the answer before; the last is not known."""
    history = [HI, parts("assistant", call("look", {"x": 1})), parts("tool", result({"result": 4}))]

    found = streamed({"sent": [HI]}, {"sent": history})

    assert brief(found.messages) == [
        ("user", "hi"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "4"),
        ("assistant", None),
    ]
    assert set(codes(found)) == {"content_not_captured"}


def test_outputs_alone_show_the_answers():
    """With inputs off, answers, calls and results are had, and the gap says what is missing."""
    found = streamed(
        {"text": "", "toolCalls": CALLS}, {"text": "done"}, args='{"x":1}', result='"r"'
    )

    assert brief(found.messages) == [
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "done"),
    ]
    assert set(codes(found)) == {"content_not_captured"}


def test_a_captured_empty_answer_is_no_gap():
    """A stream that brought no text was captured all the same."""
    found = only(root(), model("m", 2, [HI], text=""))

    assert [m.role for m in found.messages] == ["user", "assistant"]
    assert found.gaps == ()


@pytest.mark.parametrize("status", [0, 2])
def test_a_failed_tool_is_an_error(status: int):
    """The tool's span fails with its exception's message, and so does the result."""
    events = (Event("exception", 3, {"exception.message": "order not found"}),)
    ran = tool("t", 3, args='{"x":1}', status_code=status, events=events if status else ())

    found = only(root(status_code=status), model("m", 2, [HI], toolCalls=CALLS), ran)

    answer = found.messages[2]
    assert answer.is_error is bool(status)
    assert answer.content == ("Error: order not found" if status else None)


def test_a_failed_model_call_says_why():
    """A call that the provider refused is a gap of its own, not one of missing content."""
    events = (Event("exception", 3, {"exception.message": "overloaded"}),)
    failed = model("m", 2, [HI], status_code=2, events=events)

    found = only(root(status_code=2), failed, model("n", 4, [HI], text="now"))

    assert brief(found.messages) == [("user", "hi"), ("assistant", "now")]
    assert codes(found) == ["model_call_failed"]
    assert "overloaded" in found.gaps[0].detail


def test_tools_that_the_provider_runs_have_their_result_from_the_history():
    """A provider's result stands in the assistant's message, and comes after its call."""
    ran = {**call("web_search", {"q": "x"}, "s1"), "providerExecuted": True}
    came = result({"output": {"type": "json", "value": [1]}}, "s1")
    spans = [
        root(),
        model("m", 2, [HI], text="found", toolCalls=json.dumps([ran])),
        root("r2", 10),
        model(
            "m2",
            11,
            [HI, parts("assistant", ran, came, text("found")), parts("user", text("ok"))],
            parent="r2",
            text="bye",
        ),
    ]

    first, second = reconstruct(spans)

    assert [m.role for m in second.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert (second.messages[2].tool_call_id, second.messages[2].content) == ("s1", "[1]")
    assert second.history == first
    assert (first.gaps, second.gaps) == ((), ())
    assert codes(reconstruct(spans[:2])[0]) == []


def test_approvals_are_no_results():
    """The user's yes to a call is left out; the result that follows is not."""
    approval = {"type": "tool-approval-response", "approvalId": "a1", "approved": True}
    history = [
        HI,
        parts("assistant", call("look", {})),
        parts("tool", approval),
        parts("tool", result({"output": {"type": "text", "value": "r"}})),
    ]

    found = only(root(), model("m", 2, history, text="a"))

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_sub_agent_in_a_tool_is_linked_to_its_call():
    """A generateText inside a tool is a trajectory of its own, started by the call."""
    inner = root("r2", 4, parent="t", attributes={"ai.telemetry.functionId": "expert"})
    outer, sub = reconstruct(
        [
            root(attributes={"ai.telemetry.functionId": "boss"}),
            model("m", 2, [HI], toolCalls=CALLS),
            tool("t", 3, end=9, args='{"x":1}', result='"sunny"'),
            inner,
            model("m2", 5, [parts("user", text("sub"))], parent="r2", text="sunny"),
            model("n", 10, [HI, parts("assistant", call("look", {"x": 1}))], text="done"),
        ]
    )

    assert (sub.agent, sub.parent_id, sub.parent_call_id) == ("expert", outer.id, "k1")
    assert texts(sub) == ["sub", "sunny"]
    assert outer.agent == "boss"


@pytest.mark.parametrize(
    "prompt",
    [
        {"system": "s", "prompt": "q"},
        {
            "system": {"role": "system", "content": "s"},
            "messages": [{"role": "user", "content": "q"}],
        },
        {"system": [{"role": "system", "content": "s"}], "prompt": [parts("user", text("q"))]},
    ],
)
def test_a_root_alone_shows_what_was_asked_and_answered(prompt: dict[str, Any]):
    """Without model calls, the root's prompt and text are the conversation."""
    top = root(attributes={"ai.prompt": json.dumps(prompt), "ai.response.text": "a"})

    found = only(top)

    assert brief(found.messages) == [("system", "s"), ("user", "q"), ("assistant", "a")]
    assert codes(found) == ["no_model_spans"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("__REDACTED__", "redacted"),
        (json.dumps([HI, HI])[:-4], "content_truncated"),
        ("[5, null]", "content_unreadable"),
        ("[]", "content_unreadable"),
    ],
)
def test_prompts_that_cannot_be_read_say_why(sent: str, code: str):
    """A placeholder, a cut value and one without messages each name their own gap."""
    found = only(root(), model("m", 2, sent, text="a"))

    assert codes(found) == [code]
    assert found.messages[-1].content == "a"


@pytest.mark.parametrize("odd", [None, 5, 1.5, True, [], [None], {}, "", "{", "[[", b"x", {"a": 1}])
def test_odd_values_are_survived(odd: Any):
    """Whatever an attribute holds, something comes out and nothing is raised."""
    keys = (
        *("ai.prompt", "ai.prompt.messages", "ai.prompt.tools", "ai.response.text"),
        *("ai.response.toolCalls", "ai.response.reasoning", "ai.response.files"),
        *("ai.response.object", "ai.response.providerMetadata", "ai.toolCall.name"),
        *("ai.toolCall.id", "ai.toolCall.args", "ai.toolCall.result", "ai.usage.inputTokens"),
    )
    attributes = dict.fromkeys(keys, odd)

    (found,) = reconstruct(
        [
            root(attributes=attributes),
            op("ai.generateText.doGenerate", "m", 2, parent="r", attributes=attributes),
            op("ai.toolCall", "t", 3, parent="r", attributes=attributes),
        ]
    )

    assert found.usage.model_calls == 1
    json.dumps(found.as_dict(), default=str)


@pytest.mark.parametrize("odd", [None, 5, [], "x", [None, 5, "t"], [{}], [{"type": "tool-result"}]])
def test_odd_messages_are_survived(odd: Any):
    """Contents and parts of the wrong form are left out or kept, never raised."""
    sent = [{"role": role, "content": odd} for role in ("user", "assistant", "tool", None)]

    found = only(root(), model("m", 2, [*sent, HI], text="a"))

    assert found.messages[-2].content == "hi"


def step_7(*spans: Span) -> Trajectory:
    return only(*(replace(s, scope="gen_ai") for s in spans))


def test_version_7_without_outputs_names_its_switch():
    """The current conventions' spans of the SDK name the SDK's own setting."""
    found = step_7(agent("a", 1), chat("c", 2, [user("hi")], parent="a"))

    assert [m.role for m in found.messages] == ["user", "assistant"]
    assert codes(found) == ["content_not_captured"]
    assert "telemetry: {recordInputs: true, recordOutputs: true}" in found.gaps[0].detail


def test_version_7_roots_give_their_text_only():
    """A root's answer puts its text before the calls; alone, it shows the question and the text."""
    mixed = {**said("end"), "role": "assistant"}
    mixed["parts"] = [*mixed["parts"], *asks(("look", {}, "k"))["parts"], *gives("r", "k")["parts"]]
    top = agent(
        "a",
        1,
        attributes={
            "gen_ai.input.messages": json.dumps([user("q")]),
            "gen_ai.output.messages": json.dumps([mixed]),
        },
    )

    found = step_7(top)

    assert brief(found.messages) == [("user", "q"), ("assistant", "end")]
    assert codes(found) == ["no_model_spans"]


def test_version_7_steps_embeddings_and_rerankings_are_wrappers():
    """Only the root, the chats and the tools make a trajectory."""
    other = [
        span(name, 2, parent="a", attributes={"gen_ai.operation.name": name})
        for name in ("agent_step", "embeddings", "rerank", "ai.transcribe")
    ]
    found = step_7(agent("a", 1), *other, chat("c", 3, [user("q")], said("a"), parent="agent_step"))

    assert (texts(found), found.usage.model_calls, found.gaps) == (["q", "a"], 1, ())


@pytest.mark.parametrize("kind", ["tool-approval-response", "tool_approval_response"])
def test_version_7_approvals_are_no_results(kind: str):
    """A tool's message that only approves a call is left out."""
    approval = {"role": "tool", "parts": [{"type": kind}]}
    history = [user("q"), asks(("look", {}, "k1")), approval, gives("r", "k1")]

    found = step_7(agent("a", 1), chat("c", 2, history, said("a"), parent="a"))

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.messages[2].content == "r"


def test_version_7_without_a_function_id_has_no_agents_name():
    """The root is named for its model, which is not taken for the agent."""
    top = span(
        "a", 1, title="invoke_agent m-1", attributes={"gen_ai.operation.name": "invoke_agent"}
    )

    assert step_7(top, chat("c", 2, [user("q")], said("a"), parent="a")).agent == ""
