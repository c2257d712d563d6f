"""Messages and their parts in the form of any provider or library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message
from oteval.reconstruct import reconstruct

from .builders import span

ASKED = {"role": "user", "content": "weather?"}
ARGUMENTS = {"city": "T"}
TEXT = json.dumps(ARGUMENTS)
REPR = f"ResponseFunctionToolCall(arguments='{TEXT}', call_id='c1', name='w', type='function_call')"


def read(*items: Any, answer: Any = "fine") -> tuple[Message, ...]:
    """Return the messages of one model call that was sent some items."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(items),
        "gen_ai.output.messages": json.dumps(answer),
    }
    [found] = reconstruct([span("a", 1, attributes=attributes)])
    assert found.gaps == ()
    return found.messages


OPENAI = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "w", "arguments": TEXT}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
FORMS = {
    "openai": OPENAI,
    "openai, the old function call": [
        {"role": "assistant", "function_call": {"name": "w", "arguments": TEXT}},
        {"role": "function", "name": "w", "content": "sunny"},
    ],
    "responses, bare": [
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "w", "arguments": TEXT},
        {"type": "function_call_output", "id": "fo", "call_id": "c1", "output": "sunny"},
    ],
    "responses, a result of parts": [
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": TEXT},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "sunny"}],
        },
    ],
    "responses, a custom tool": [
        {"type": "custom_tool_call", "call_id": "c1", "name": "w", "input": TEXT},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "sunny"},
    ],
    "anthropic": [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "w", "input": ARGUMENTS}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "sunny"}],
                }
            ],
        },
    ],
    "bedrock": [
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "c1", "name": "w", "input": ARGUMENTS}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sunny"}]}}],
        },
    ],
    "bedrock, as text": [
        {
            "role": "assistant",
            "content": json.dumps(
                [{"toolUse": {"toolUseId": "c1", "name": "w", "input": ARGUMENTS}}]
            ),
        },
        {
            "role": "user",
            "content": json.dumps(
                [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sunny"}]}}]
            ),
        },
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "w", "args": ARGUMENTS}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "w", "response": "sunny"}}]},
    ],
    "gemini, with every field": [
        {
            "role": "model",
            "parts": [
                {
                    "text": None,
                    "thought": None,
                    "function_call": {"id": "c1", "name": "w", "args": ARGUMENTS},
                    "function_response": None,
                }
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "text": None,
                    "function_call": None,
                    "function_response": {"id": "c1", "name": "w", "response": "sunny"},
                }
            ],
        },
    ],
    "ai sdk 4": [
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "c1", "toolName": "w", "args": ARGUMENTS}
            ],
        },
        {
            "role": "tool",
            "content": [
                {"type": "tool-result", "toolCallId": "c1", "toolName": "w", "result": "sunny"}
            ],
        },
    ],
    "ai sdk 6": [
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "c1", "toolName": "w", "input": ARGUMENTS}
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c1",
                    "toolName": "w",
                    "output": {"type": "text", "value": "sunny"},
                }
            ],
        },
    ],
    "ai sdk, for an interface, 4": [
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "tool-invocation",
                    "toolInvocation": {
                        "state": "result",
                        "toolCallId": "c1",
                        "toolName": "w",
                        "args": ARGUMENTS,
                        "result": "sunny",
                    },
                }
            ],
        }
    ],
    "ai sdk, for an interface, 6": [
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "tool-w",
                    "state": "output-available",
                    "toolCallId": "c1",
                    "input": ARGUMENTS,
                    "output": "sunny",
                }
            ],
        }
    ],
    "langchain, constructors": [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "AIMessage"],
            "kwargs": {"content": "", "tool_calls": [{"id": "c1", "name": "w", "args": ARGUMENTS}]},
        },
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "ToolMessage"],
            "kwargs": {"content": "sunny", "tool_call_id": "c1"},
        },
    ],
    "langchain, fields": [
        {
            "type": "ai",
            "content": [{"type": "tool_use", "id": "c1", "name": "w", "input": {}}],
            "tool_calls": [{"id": "c1", "name": "w", "args": ARGUMENTS}],
        },
        {"type": "tool", "content": "sunny", "tool_call_id": "c1"},
    ],
    "pydantic ai": [
        {
            "kind": "response",
            "parts": [
                {"part_kind": "tool-call", "tool_name": "w", "args": TEXT, "tool_call_id": "c1"}
            ],
        },
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "tool-return",
                    "tool_name": "w",
                    "content": "sunny",
                    "tool_call_id": "c1",
                }
            ],
        },
    ],
    "autogen": [
        {"role": "assistant", "content": [{"id": "c1", "name": "w", "arguments": TEXT}]},
        {"role": "tool", "content": [{"content": "sunny", "call_id": "c1", "is_error": False}]},
    ],
    "python objects": [
        {"role": "assistant", "content": REPR},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
    "a list of python objects": [
        {
            "role": "assistant",
            "content": "[TextBlock(citations=None, text='', type='text'), "
            f"ToolUseBlock(id='c1', input={ARGUMENTS}, name='w', type='tool_use')]",
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
    "calls as python objects": [
        {
            "role": "assistant",
            "tool_calls": [
                f"ChatCompletionMessageToolCall(id='c1', function=Function(arguments='{TEXT}', "
                "name='w'), type='function')"
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_a_call_and_its_result_are_read_in_every_form(name: str):
    """Whatever form a call and its result have, both are told, and nothing else."""
    asked, call, result, answer = read(ASKED, *FORMS[name])

    assert [m.role for m in (asked, call, result, answer)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (asked.content, answer.content) == ("weather?", "fine")
    assert (call.content or None, call.parts) == (None, ())
    [asked_for] = call.tool_calls
    assert (asked_for.name, asked_for.arguments) == ("w", ARGUMENTS)
    assert (result.content, result.is_error, result.parts) == ("sunny", False, ())
    assert result.tool_call_id == asked_for.id


@pytest.mark.parametrize(
    "result",
    [
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "w", "response": {"error": "no"}}}],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "status": "error"}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": True}],
        },
        {"role": "tool", "content": [{"type": "tool-error", "toolCallId": "c1", "error": "no"}]},
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c1",
                    "output": {"type": "error-text", "value": "no"},
                }
            ],
        },
        {"role": "tool", "content": [{"content": "no", "call_id": "c1", "is_error": True}]},
        {"type": "tool", "content": "no", "tool_call_id": "c1", "status": "error"},
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "retry-prompt",
                    "content": "no",
                    "tool_name": "w",
                    "tool_call_id": "c1",
                }
            ],
        },
    ],
)
def test_a_failed_call_is_flagged_in_every_form(result: dict[str, Any]):
    """A result that says it is an error is one, in each provider's own way of saying so."""
    *_, answer, _ = read(ASKED, OPENAI[0], result)

    assert (answer.role, answer.is_error) == ("tool", True)


@pytest.mark.parametrize(
    ("role", "wanted"),
    [
        ("Human", "user"),
        ("USER", "user"),
        ("MessageRole.USER", "user"),
        ("HumanMessage", "user"),
        ({"Label": "user"}, "user"),
        ("AI", "assistant"),
        ("model", "assistant"),
        ("AIMessageChunk", "assistant"),
        ("ROLE_MODEL", "assistant"),
        ("CHATBOT", "assistant"),
        ("developer", "developer"),
        ("SystemMessage", "system"),
    ],
)
def test_a_role_is_known_in_every_spelling(role: Any, wanted: str):
    """Spellings of a role in any library are that role."""
    found = read({"role": role, "content": "x"}, ASKED)

    assert [m.role for m in found] == [wanted, "user", "assistant"]


def test_reasoning_belongs_to_the_answer_after_it():
    """The Responses API writes reasoning as an item of its own; it is a part of the answer."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a"}],
    }

    _, answer = read(ASKED, answer=[thought, said])

    assert (answer.role, answer.content, answer.parts) == ("assistant", "a", (thought,))


def test_parts_of_content_written_as_text_keep_their_image():
    """Content that is the JSON text of its parts gives the text and the image, not the JSON."""
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    content = json.dumps([{"type": "text", "text": "what is it?"}, image])

    asked, _ = read({"role": "user", "content": content})

    assert (asked.content, asked.parts) == ("what is it?", (image,))


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "f", "arguments": {}}]',
        '[{"text": "a", "score": 1}]',
        '[{"type": "flight", "from": "A"}]',
        '{"type": "text", "text": "a"}',
        "Point(x=1, y=2)",
        "[1, 2]",
    ],
)
def test_an_answer_that_is_data_stays_as_it_is(text: str):
    """Structured answers of a model are its words, however much they look like an object."""
    _, answer = read(ASKED, answer=[{"role": "assistant", "content": text}])

    assert (answer.content, answer.tool_calls, answer.parts) == (text, (), ())


def test_parallel_calls_that_each_end_are_one_message():
    """Two messages that both ended with a call are one answer with two calls, not two choices."""
    calls = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": f"c{n}", "name": "w", "arguments": {"n": n}}],
            "finish_reason": "tool_call",
        }
        for n in (1, 2)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"r{n}"} for n in (1, 2)]
    first = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([ASKED]),
        "gen_ai.output.messages": json.dumps(calls),
    }
    second = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([ASKED, *calls, *results]),
        "gen_ai.output.messages": json.dumps("fine"),
    }

    [found] = reconstruct(
        [span("a", 1, parent="r", attributes=first), span("b", 2, parent="r", attributes=second)]
    )

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [call.arguments for call in found.messages[1].tool_calls] == [{"n": 1}, {"n": 2}]
    assert {gap.code for gap in found.gaps} <= {"missing_parent"}


@pytest.mark.parametrize(
    "text",
    [
        "content='sunny' name='w' tool_call_id='c1'",
        "content='sunny' additional_kwargs={} name='w' id='x' tool_call_id='c1' status='success'",
        "content=\"sunny\" name='w' id='a b=c' tool_call_id='c1' artifact={'k': [1]}",
    ],
)
def test_a_tools_message_printed_by_langchain_is_its_result(text: str):
    """A tool span whose output is the printed message gives the content and the call's id."""
    kind = "openinference.span.kind"
    asked = {
        kind: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "weather?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "w",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": TEXT,
    }
    ran = {kind: "TOOL", "tool.name": "w", "input.value": TEXT, "output.value": text}
    root = span("r", 1, attributes={kind: "AGENT"}, end=9)

    [found] = reconstruct(
        [
            root,
            span("a", 2, parent="r", attributes=asked),
            span("b", 4, parent="r", attributes=ran),
        ]
    )

    result = found.messages[-1]
    assert (result.role, result.content, result.tool_call_id) == ("tool", "sunny", "c1")


def test_flat_contents_of_openllmetry_keep_their_image():
    """Content that is JSON text in an indexed attribute gives its text and its image."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    content = json.dumps([{"type": "text", "text": "what is it?"}, image])
    flat = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": content,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "a cat",
    }

    [found] = reconstruct([span("a", 1, attributes=flat)])

    assert (found.messages[0].content, found.messages[0].parts) == ("what is it?", (image,))
    assert found.gaps == ()


def test_objects_among_plain_values_are_read():
    """A dict with the reprs of messages in it is read like one with messages."""
    said = "{'messages': [HumanMessage(content='q', id='1'), AIMessage(content='a', id='2')]}"
    attributes = {"langfuse.observation.type": "generation", "langfuse.observation.input": said}
    attributes["langfuse.observation.output"] = "b"

    [found] = reconstruct([span("a", 1, attributes=attributes)])

    assert [(m.role, m.content) for m in found.messages] == [
        ("user", "q"),
        ("assistant", "a"),
        ("assistant", "b"),
    ]
