"""OpenInference: handwritten spans in the forms of its instrumentations."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span, texts

KIND = "openinference.span.kind"
SENT, RECEIVED = "llm.input_messages", "llm.output_messages"
PARIS = ("get_weather", {"city": "Paris"})
TOKYO = ("get_weather", {"city": "Tokyo"})
ASKED = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}


def flat(prefix: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return messages as flat attributes; a key that is dotted already is taken as it is."""
    attributes = {}
    for i, message in enumerate(messages):
        calls = message.get("calls", [])
        fields = {key: value for key, value in message.items() if key != "calls"}
        for j, (id_, (name, arguments)) in enumerate(calls):
            call = f"tool_calls.{j}.tool_call"
            fields[f"{call}.id"] = id_
            fields[f"{call}.function.name"] = name
            fields[f"{call}.function.arguments"] = json.dumps(arguments)
        attributes |= {
            f"{prefix}.{i}.{'' if key.startswith('function.') else 'message.'}{key}": value
            for key, value in fields.items()
        }
    return attributes


def model(
    name: str,
    start: int = 1,
    sent: list[dict[str, Any]] | None = None,
    got: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> Span:
    attributes = {KIND: "LLM", **flat(SENT, sent or []), **flat(RECEIVED, got or [])}
    return span(name, start, attributes=attributes | fields.pop("attributes", {}), **fields)


def raw(input_value: Any, output_value: Any, **attributes: Any) -> Span:
    values = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (("input.value", input_value), ("output.value", output_value))
        if value is not None
    }
    return span("c", attributes={KIND: "LLM", **values, **attributes})


def used(name: str, start: int, of: tuple[str, Any], result: Any, **fields: Any) -> Span:
    attributes = {
        KIND: "TOOL",
        "tool.name": of[0],
        "input.value": json.dumps(of[1]),
        "output.value": result if isinstance(result, str) else json.dumps(result),
    }
    return span(name, start, attributes=attributes | fields.pop("attributes", {}), **fields)


CALLED = {"role": "assistant", "calls": [("k1", PARIS), ("k2", TOKYO)]}


@pytest.mark.parametrize(
    ("input_value", "output_value"),
    [
        ("q", "a"),
        ({"prompt": "q"}, {"choices": [{"text": "a"}]}),
        ({"question": "q"}, {"text": "a"}),
        ({"args": [], "kwargs": {"messages": [ASKED]}}, ["a"]),
        ([ASKED], [{"role": "assistant", "content": "a"}]),
        ({"model": "m", "input": "q"}, {"id": "r", "output": [{"type": "message", "role":
         "assistant", "content": [{"type": "output_text", "text": "a"}]}]}),
        ({"messages": [ASKED]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}),
        ({"messages": [ASKED]}, {"message": {"role": "assistant", "content": "a"}}),
        (
            {"messages": ["ChatMessage(role=<MessageRole.USER: 'user'>, additional_kwargs={}, "
                          "blocks=[TextBlock(block_type='text', text='q')])"]},
            {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
        ),
    ],
)  # fmt: skip
def test_raw_and_plain_values_are_the_question_and_the_answer(input_value: Any, output_value: Any):
    """Without flat messages, the request and the response are read in any client's form."""
    trajectory = only(raw(input_value, output_value))

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]
    assert codes(trajectory) == []


@pytest.mark.parametrize(
    "system",
    [
        {"system": "s"},
        {"system": [{"type": "text", "text": "s"}]},
        {"instructions": "s"},
        {"config": {"system_instruction": "s"}},
        {"system_instruction": {"parts": [{"text": "s"}], "role": "user"}},
    ],
)
def test_a_raw_requests_system_prompt_comes_first(system: dict[str, Any]):
    """Every client has its own place for the prompt."""
    trajectory = only(raw({"messages": [ASKED], **system}, "a"))

    assert texts(trajectory) == ["s", "q", "a"]


def test_text_that_is_said_to_be_plain_is_not_taken_apart():
    """An answer of JSON text, as of structured output, stays as it is."""
    trajectory = only(raw("q", '{"text": "a"}', **{"output.mime_type": "text/plain"}))

    assert texts(trajectory) == ["q", '{"text": "a"}']


@pytest.mark.parametrize(
    ("sent", "got", "side"), [([ASKED], [], "output"), ([], [{"role": "assistant"}], "input")]
)
def test_a_missing_side_is_named(sent: list[Any], got: list[Any], side: str):
    """The gap of a call without its question or answer names the side and the remedy."""
    got = [{"role": "assistant", "content": "a"}] if got else []

    trajectory = only(model("c", sent=sent, got=got))

    assert len(trajectory.messages) == 1
    assert f"no {side} of the model call" in trajectory.gaps[0].detail


def test_calls_that_stand_among_the_contents_too_are_one_message():
    """Anthropic's blocks repeat the calls; the answer and its echo are the same message."""
    block = "contents.0.message_content.type"
    called = {**CALLED, block: "tool_use", "contents.0.tool_call.id": "k1"}
    results = [
        {"role": "tool", "tool_call_id": id_, "content": text}
        for id_, text in (("k1", "sunny"), ("k2", "rainy"))
    ]
    trajectory = only(
        model("c", 1, [ASKED], [called], attributes={"session.id": "s"}),
        model("d", 2, [ASKED, called, *results], [{"role": "assistant", "content": "a"}],
              parent="", attributes={"session.id": "s"}),
    )  # fmt: skip

    assert brief(trajectory.messages) == [
        ("user", "q"), ("assistant", [PARIS, TOKYO]), ("tool", "sunny"), ("tool", "rainy"),
        ("assistant", "a"),
    ]  # fmt: skip
    assert codes(trajectory) == []


def test_a_call_may_stand_only_among_the_contents_or_in_the_oldest_form():
    """Calls are found in each field that the convention has used for them."""
    part = "contents.0.tool_call"
    new = {"role": "assistant", f"{part}.id": "k1", f"{part}.function.name": "get_weather",
           f"{part}.function.arguments": '{"city": "Paris"}'}  # fmt: skip
    old = {"role": "assistant", "function_call_name": "get_weather",
           "function_call_arguments_json": '{"city": "Paris"}'}  # fmt: skip

    for message in (new, old):
        trajectory = only(model("c", 1, [ASKED], [message]))
        assert brief(trajectory.messages)[1] == ("assistant", [PARIS])


def test_autogens_function_messages_are_results():
    """A message of role "function" holds all results of a step, each with its id and flag."""
    results = [
        {"name": "get_weather", "content": text, "call_id": id_, "is_error": failed}
        for id_, text, failed in (("k1", "sunny", False), ("k2", "no such city", True))
    ]
    message = {"role": "function", "function.0": json.dumps(results[0]),
               "function.1": json.dumps(results[1])}  # fmt: skip

    trajectory = only(model("c", 1, [ASKED, CALLED, message], [ANSWER]))

    tools = [m for m in trajectory.messages if m.role == "tool"]
    assert [(m.tool_call_id, m.content, m.is_error) for m in tools] == [
        ("k1", "sunny", False), ("k2", "no such city", True),
    ]  # fmt: skip


@pytest.mark.parametrize(("thought", "text"), [("I look", "I look"), (None, None)])
def test_autogens_thought_is_the_text_beside_the_calls(thought: str | None, text: str | None):
    """It is in the raw answer, and beside the message in the next request."""
    output = {"finish_reason": "function_calls", "content": [], "thought": thought}
    echo = {f"{SENT}.1.thought": thought} if thought else {}
    result = {"role": "tool", "content": "sunny", "tool_call_id": "k1"}

    first = model("c1", 1, [ASKED], [CALLED], attributes={"output.value": json.dumps(output)})
    second = model("c2", 9, [ASKED, CALLED, result], [ANSWER], attributes=echo)

    for spans in ([first, second], [second]):
        trajectory = only(*spans)
        assert texts(trajectory) == ["q", text, "sunny", "a"]


def test_results_that_were_merged_are_told_by_the_tools_spans():
    """A processor that writes all results under the last call's id does not mix them up."""
    merged = {"role": "tool", "tool_call_id": "k2", "content": "sunny rainy"}
    spans = [
        model("c", 1, [ASKED], [CALLED], parent="root"),
        used("t", 3, PARIS, "sunny", parent="root", attributes={"tool.call_id": "k1"}),
        used("u", 4, TOKYO, "rainy", parent="root", attributes={"tool.id": "k2"}),
        model("d", 6, [ASKED, CALLED, merged], [ANSWER], parent="root"),
        span("root", 1, end=20, attributes={KIND: "AGENT"}),
    ]

    trajectory = only(*spans)

    assert [m.content for m in trajectory.messages if m.role == "tool"] == ["sunny", "rainy"]
    assert codes(trajectory) == []


def test_merged_results_without_tool_spans_are_a_gap():
    """Which part of the text is which result is not guessed."""
    merged = {"role": "tool", "tool_call_id": "k2", "content": "sunny rainy"}
    spans = [
        span("root", 1, end=20, attributes={KIND: "AGENT"}),
        model("c", 1, [ASKED], [CALLED], parent="root"),
        model("d", 6, [ASKED, CALLED, merged], [ANSWER], parent="root"),
    ]

    trajectory = only(*spans)

    assert [m.content for m in trajectory.messages if m.role == "tool"] == [None, None]
    assert codes(trajectory) == ["content_not_captured"]


def test_merged_results_in_parts_are_the_calls_in_order():
    """Parts as many as the calls are their results."""
    parts = {f"contents.{i}.message_content.text": text for i, text in enumerate(["sun", "rain"])}
    merged = {"role": "tool", "tool_call_id": "k2", **parts}

    trajectory = only(model("c", 1, [ASKED, CALLED, merged], [ANSWER]))

    tools = [m for m in trajectory.messages if m.role == "tool"]
    assert [(m.tool_call_id, m.content) for m in tools] == [("k1", "sun"), ("k2", "rain")]


@pytest.mark.parametrize(("provider", "recorded"), [("google", True), ("openai", False)])
def test_a_google_response_that_is_an_error_is_flagged(provider: str, recorded: bool):
    """Only Google's client records a tool that raised so; elsewhere the tool reports it itself."""
    result = {"role": "tool", "name": "get_weather", "content": '{"error": "no such city"}'}
    called = {"role": "model", "calls": [("", PARIS)]}
    call = model("c", 1, [ASKED, called, result], [{"role": "model", "content": "a"}],
                 attributes={"llm.provider": provider})  # fmt: skip

    trajectory = only(call)

    (answer,) = (m for m in trajectory.messages if m.role == "tool")
    assert answer.is_error
    assert answer.is_outcome_recorded is recorded


@pytest.mark.parametrize(
    "output",
    [
        {"tool_name": "look", "raw_output": "no", "blocks": [{"text": "no"}], "is_error": True},
        {"content": [{"type": "text", "text": "no"}], "isError": True},
    ],
)
def test_a_results_envelope_says_whether_the_tool_failed(output: dict[str, Any]):
    """LlamaIndex's and MCP's results are unwrapped, with their flag."""
    trajectory = only(
        model("c", 1, [ASKED], [{"role": "assistant", "calls": [("k", ("look", {}))]}]),
        used("t", 2, ("look", {}), output, parent="c"),
    )

    assert (trajectory.messages[2].content, trajectory.messages[2].is_error) == ("no", True)


def test_a_span_that_only_prepares_a_request_is_no_model_call():
    """LlamaIndex writes a private method beside the call, with the same messages as reprs."""
    prepared = {KIND: "LLM", "input.value": '{"chat_history": []}', "output.value": "{}"}
    trajectory = only(
        span("run", 1, end=9, attributes={KIND: "CHAIN"}),
        span("p", 2, parent="run", title="OpenAI._prepare_chat_with_tools", attributes=prepared),
        model("c", 3, [ASKED], [{"role": "assistant", "content": "a"}], parent="run"),
    )

    assert texts(trajectory) == ["q", "a"]
    assert trajectory.usage.model_calls == 1


def instructor(**fields: Any) -> Span:
    attributes = {KIND: "CHAIN", "llm.model_name": "m", "output.value": '{"city": "Paris"}'}
    return span("i", 1, end=9, attributes=attributes | flat(SENT, [ASKED]), **fields)


def test_a_chain_with_a_models_messages_is_a_model_call():
    """Instructor's span holds the question, and only the parsed part of the answer."""
    trajectory = only(instructor())

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", '{"city": "Paris"}')]
    assert codes(trajectory) == ["content_not_captured"]
    assert "instrument the model's client" in trajectory.gaps[0].detail


def test_a_chain_around_model_calls_is_not_one_of_them():
    """With the client instrumented as well, the calls inside are all there is."""
    trajectory = only(
        instructor(),
        model("c", 2, [ASKED], [{"role": "assistant", "calls": [("k", PARIS)]}], parent="i"),
    )

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", [PARIS])]
    assert "content_not_captured" not in codes(trajectory)
    assert trajectory.usage.model_calls == 1


def test_an_answers_id_tells_that_two_spans_are_one_call():
    """The client's own span of the same call, in a trace of its own, does not double it."""
    answer = '{"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "a"}]}'
    own = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_1"}
    trajectories = reconstruct(
        [
            model("c", 1, [ASKED], [{"role": "assistant", "content": "a"}], end=9,
                  attributes={"output.value": answer}, scope="openinference.x"),
            span("d", 2, end=8, trace="b" * 32, attributes=own, scope="com.anthropic.sdk"),
        ]
    )  # fmt: skip

    assert [texts(trajectory) for trajectory in trajectories] == [["q", "a"]]


def test_what_a_framework_wrote_itself_goes_before_its_translation():
    """A processor that adds OpenInference's attributes loses details of the framework's own."""
    attributes = {
        **flat(SENT, [ASKED, CALLED, {"role": "tool", "content": "sunny rainy"}]),
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "own"}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "a"}]),
    }
    trajectory = only(span("c", attributes={KIND: "LLM", **attributes}, scope="framework"))
    translated = only(span("c", attributes={KIND: "LLM", **attributes}, scope="openinference.x"))

    assert texts(trajectory) == ["own", "a"]
    assert translated.dialects == ("openinference",)


def test_cut_arguments_are_a_gap():
    """Arguments that a limit cut in half do not count as complete."""
    call = "tool_calls.0.tool_call.function"
    cut = {"role": "assistant", f"{call}.name": "look", f"{call}.arguments": '{"city": "Par'}

    trajectory = only(model("c", 1, [ASKED], [cut]))

    assert "content_truncated" in codes(trajectory)


def test_a_flat_answer_without_its_calls_is_read_from_the_response():
    """Portkey's instrumentation writes the role of an answer alone, where it asks for tools."""
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "k", "function": function}],
    }
    answer = json.dumps({"choices": [{"message": message}]})

    trajectory = only(
        model("c", 1, [ASKED], [{"role": "assistant"}], attributes={"output.value": answer})
    )

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", [PARIS])]


def test_flat_messages_that_are_only_roles_are_read_from_the_request():
    """The raw request has the calls and results that the flat messages lack."""
    call = {"id": "k", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    request = {
        "messages": [
            ASKED,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "k", "content": "sunny"},
        ]
    }
    sent = [ASKED, {"role": "assistant"}, {"role": "tool"}]

    trajectory = only(
        model("c", 1, sent, [ANSWER], attributes={"input.value": json.dumps(request)})
    )

    assert brief(trajectory.messages) == [
        ("user", "q"), ("assistant", [PARIS]), ("tool", "sunny"), ("assistant", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "output",
    [
        {"llm_output": {"id": "msg_1"}, "generations": []},
        {"generations": [[{"message": {"kwargs": {"id": "run-1", "response_metadata":
                                                  {"id": "msg_1"}}}}]]},
    ],
)  # fmt: skip
def test_langchains_result_tells_the_providers_id(output: dict[str, Any]):
    """The client's own span of the call is known by it; LangChain's own id is another."""
    own = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_1"}
    trajectories = reconstruct(
        [
            model("c", 1, [ASKED], [ANSWER], end=9, scope="openinference.x",
                  attributes={"output.value": json.dumps(output)}),
            span("d", 2, end=8, trace="b" * 32, attributes=own, scope="com.anthropic.sdk"),
        ]
    )  # fmt: skip

    assert len(trajectories) == 1


def test_a_clients_span_without_content_is_the_call_around_it():
    """A span that only names the model, inside the time of one other call, is that call."""
    own = {"gen_ai.operation.name": "chat", "gen_ai.response.model": "m"}
    named = {"llm.model_name": "m"}
    around = model("c", 1, [ASKED], [ANSWER], end=9, scope="openinference.x", attributes=named)
    inner = span("d", 2, end=8, trace="b" * 32, attributes=own, scope="com.anthropic.sdk")
    other = model("e", 1, [ASKED], [ANSWER], end=9, scope="openinference.x", attributes=named,
                  trace="c" * 32)  # fmt: skip

    assert len(reconstruct([around, inner])) == 1
    # Of two calls at the same time, which one it is cannot be told.
    assert len(reconstruct([around, inner, other])) == 3


def test_a_span_that_marks_a_moment_of_a_run_is_not_an_agent():
    """BeeAI writes a span of kind AGENT, of no duration, for each requirement that applies."""
    trajectory = only(
        span("root", 1, end=9, attributes={KIND: "AGENT", "agent.name": "desk"}),
        span("mark", 2, end=2, parent="root", title="final_answer", attributes={KIND: "AGENT"}),
        model("c", 3, [ASKED], [ANSWER], parent="root"),
    )

    assert trajectory.agent == "desk"


def test_an_empty_result_leaves_a_request_as_it_is():
    """A tool may return an empty text: the flat messages count, not the raw request around them."""
    empty = {"role": "tool", "tool_call_id": "k1", "content": ""}
    value = json.dumps({"messages": ["ChatMessage(role=<MessageRole.USER: 'user'>)"], "kwargs": {}})
    call = model("c", 1, [ASKED, {"role": "assistant", "calls": [("k1", PARIS)]}, empty], [ANSWER])
    call = dataclasses.replace(call, attributes={**call.attributes, "input.value": value})

    trajectory = only(call)

    assert [(m.role, m.content) for m in trajectory.messages if m.role in ("user", "tool")] == [
        ("user", ASKED["content"]),
        ("tool", ""),
    ]
