"""`oteval.model_call`: requests and answers of every provider's form, as trajectories."""

import json
import weakref

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

import oteval

from .conftest import story

QUESTION = [{"role": "user", "content": "Refund order 7"}]
ARGUMENTS = {"order": 7}
CALLED = [
    ("user", "Refund order 7"),
    ("calls", ("refund", ARGUMENTS)),
    ("result", "refunded"),
    ("assistant", "Done."),
]


@oteval.tool
def refund(order: int) -> str:
    return "refunded"


def chat(message, reason):
    """Return a chat completion of OpenAI's library."""
    return ChatCompletion.model_validate(
        {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5-2026",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": reason,
                    "logprobs": None,
                    "message": {"role": "assistant", "content": None, "refusal": None, **message},
                }
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
        }
    )


def response(*output):
    """Return a response of OpenAI's Responses API."""
    return Response.model_construct(
        id="resp-1",
        object="response",
        model="gpt-5-2026",
        output=list(output),
        usage={"input_tokens": 10, "output_tokens": 4, "total_tokens": 14},
    )


def claude(reason, *content):
    """Return a message of Anthropic's API."""
    return {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": "claude-5",
        "content": list(content),
        "stop_reason": reason,
        "usage": {"input_tokens": 2, "cache_read_input_tokens": 8, "output_tokens": 4},
    }


FUNCTION = {"name": "refund", "arguments": json.dumps(ARGUMENTS)}
CHAT_CALL = {"id": "c1", "type": "function", "function": FUNCTION}
TURNS = {
    "chat": (
        chat({"tool_calls": [CHAT_CALL]}, "tool_calls"),
        [
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "refunded"},
        ],
        chat({"content": "Done."}, "stop"),
    ),
    "responses": (
        response(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "f1", "call_id": "c1", **FUNCTION},
        ),
        [
            {"type": "function_call", "id": "f1", "call_id": "c1", **FUNCTION},
            {"type": "function_call_output", "call_id": "c1", "output": "refunded"},
        ],
        response(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
            }
        ),
    ),
    "anthropic": (
        claude("tool_use", {"type": "tool_use", "id": "c1", "name": "refund", "input": ARGUMENTS}),
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "refund", "input": ARGUMENTS}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "refunded"}],
            },
        ],
        claude("end_turn", {"type": "text", "text": "Done."}),
    ),
    "objects of pydantic": (
        chat({"tool_calls": [CHAT_CALL]}, "tool_calls"),
        [
            chat({"tool_calls": [CHAT_CALL]}, "tool_calls").choices[0].message,
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "text", "text": "refunded"}],
            },
        ],
        "Done.",
    ),
}


@pytest.mark.parametrize("api", TURNS)
def test_a_loop_of_model_and_tool_calls(run, api):
    """The trajectory is the conversation, whichever API the agent uses, with ids and usage."""
    first, history, last = TURNS[api]

    @oteval.agent
    def clerk(question: str) -> str:
        messages = list(QUESTION)
        with oteval.model_call(model="gpt-5", messages=messages) as call:
            assert call.answer(first) is first
        messages += history
        with oteval.tool_call("c1"):
            refund(**ARGUMENTS)
        with oteval.model_call(model="gpt-5", messages=messages) as call:
            call.answer(last)
        return "Done."

    clerk("Refund order 7")

    trajectory = run.trajectory
    assert story(trajectory) == CALLED
    assert trajectory.gaps == ()
    assert trajectory.messages[1].tool_calls[0].id == "c1"
    assert trajectory.usage.input_tokens in (10, 20)
    assert trajectory.usage.model_calls == 2


def test_a_failed_model_call(run):
    """The error is recorded and reaches the agent; the trajectory has the gap."""

    @oteval.agent
    def clerk(question: str) -> str:
        with pytest.raises(TimeoutError), oteval.model_call(model="m", messages=question):
            raise TimeoutError("too slow")
        return "sorry"

    clerk("hi")

    assert "model_call_failed" in {gap.code for gap in run.trajectory.gaps}
    assert story(run.trajectory) == [("user", "hi"), ("assistant", "sorry")]


def chunk(delta, reason=None, usage=None):
    """Return a chunk of a chat completion."""
    return ChatCompletionChunk.model_validate(
        {
            "id": "chat-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-5-2026",
            "choices": []
            if delta is None
            else [{"index": 0, "delta": delta, "finish_reason": reason}],
            "usage": usage,
        }
    )


def piece(**fields):
    """Return a delta with a piece of a call."""
    return {"tool_calls": [{"index": 0, **fields}]}


STREAMS = {
    "chat": [
        chunk({"role": "assistant", "content": "On "}),
        chunk({"content": "it"}),
        chunk(piece(id="c1", type="function", function={"name": "refund", "arguments": ""})),
        chunk(piece(function={"arguments": '{"ord'})),
        chunk(piece(function={"arguments": 'er": 7}'})),
        chunk({}, "tool_calls"),
        chunk(delta=None, usage={"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}),
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "r1", "model": "gpt-5-2026"}},
        {"type": "response.output_text.delta", "delta": "On it"},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": "c1", "name": "refund"},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"order":'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "7}"},
    ],
    "responses, completed": [
        {"type": "response.output_text.delta", "delta": "not read twice"},
        {
            "type": "response.completed",
            "response": response(
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "On it"}],
                },
                {"type": "function_call", "call_id": "c1", **FUNCTION},
            ),
        },
    ],
    "anthropic": [
        {"type": "message_start", "message": claude(reason=None)},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "On it"},
        },
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "refund", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"order": 7}'},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ],
}


@pytest.mark.parametrize("api", STREAMS)
def test_streamed_answers_are_put_together(run, api):
    """The agent gets every chunk, and the span the whole answer."""
    with oteval.model_call(model="gpt-5", messages=QUESTION) as call:
        assert list(call.stream(STREAMS[api])) == STREAMS[api]

    assert [(m.content, m.tool_calls[0].arguments) for m in run.trajectory.messages[1:]] == [
        ("On it", ARGUMENTS)
    ]
    assert run.spans[0].attributes["gen_ai.request.stream"] is True


@pytest.mark.parametrize("api", STREAMS)
def test_a_text_among_the_events_of_a_stream_drops_none(run, api):
    """The answer consists of the events, whatever else the stream contains."""
    with oteval.model_call(model="gpt-5", messages=QUESTION) as call:
        list(call.stream([*STREAMS[api][:1], ": keep alive", *STREAMS[api][1:]]))

    assert [(m.content, m.tool_calls[0].arguments) for m in run.trajectory.messages[1:]] == [
        ("On it", ARGUMENTS)
    ]


def test_the_chunks_of_a_stream_are_not_kept(run):
    """A long stream keeps its data, but none of the provider's objects."""

    class Chunk:
        def __init__(self, text: str) -> None:
            self.choices = [{"index": 0, "delta": {"content": text}}]

    with oteval.model_call(model="gpt-5", messages=QUESTION) as call:
        seen = [weakref.ref(call.chunk(Chunk(text))) for text in ("On ", "it")]
        assert [chunk() for chunk in seen] == [None, None]

    assert run.trajectory.messages[-1].content == "On it"


def test_every_choice_and_the_reasoning_of_a_stream_are_recorded(run):
    """A stream is assembled in the same way as a recorded stream in a replay."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"reasoning_content": "hm", "content": "On"}}]},
        {"choices": [{"index": 1, "delta": {"content": "No"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": " it"}, "finish_reason": "stop"}]},
    ]
    with oteval.model_call(model="gpt-5", messages=QUESTION) as call:
        assert list(call.stream(chunks)) == chunks

    answer = run.trajectory.messages[-1]
    assert (answer.content, [part["type"] for part in answer.parts]) == ("On it", ["reasoning"])
    assert {gap.code for gap in run.trajectory.gaps} == {"several_choices"}


async def test_asynchronous_streams(run):
    """`async with` and `astream` do the same."""

    async def chunks():
        for text in ("On ", "it"):
            yield text

    async with oteval.model_call(model="m", messages="hi", stream=True) as call:
        assert [part async for part in call.astream(chunks())] == ["On ", "it"]
        call.finish_reason("stop")
        call.usage(input_tokens=5, output_tokens=2, cached_tokens=1)

    assert story(run.trajectory) == [("user", "hi"), ("assistant", "On it")]
    assert run.trajectory.usage.cached_tokens == 1
    assert run.spans[0].attributes["gen_ai.response.finish_reasons"] == ["stop"]


def test_a_broken_stream_keeps_the_chunks_that_came(run):
    """An interrupted answer is recorded up to the interruption, with the error."""

    def chunks():
        yield "half an "
        raise ConnectionError("reset")

    with (
        pytest.raises(ConnectionError),
        oteval.model_call(model="m", messages="hi") as call,
    ):
        list(call.stream(chunks()))

    assert story(run.trajectory)[-1] == ("assistant", "half an ")
    assert run.spans[0].is_error


def test_settings_system_and_tools_are_attributes(run):
    """Options of the conventions, instructions and definitions are in their current form."""
    parameters = {"type": "object", "properties": {}}
    definitions = [
        {
            "type": "function",
            "function": {"name": "a", "description": "A", "parameters": parameters},
        },
        {"type": "function", "name": "a", "description": "A", "parameters": parameters},
        {"name": "a", "description": "A", "input_schema": parameters},
    ]

    with oteval.model_call(
        model="claude-5",
        messages="hi",
        system="Be brief",
        tools=[*definitions, refund],
        temperature=0.5,
        max_completion_tokens=9,
        stop="x",
        unknown=object(),
    ) as call:
        call.answer("ok")

    attributes = run.spans[0].attributes
    assert attributes["gen_ai.provider.name"] == "anthropic"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.request.max_tokens"] == 9
    assert attributes["gen_ai.request.stop_sequences"] == ["x"]
    first, second, third, last = json.loads(attributes["gen_ai.tool.definitions"])
    assert first == second == third
    assert last == {"type": "function", "name": "refund"}
    assert story(run.trajectory)[0] == ("system", "Be brief")


def test_content_can_be_left_out(run):
    """Without content the span still has the model, the usage and the reason."""
    with oteval.model_call(model="gpt-5", messages="secret", capture_content=False) as call:
        call.answer(chat({"content": "secret"}, "stop"))

    attributes = run.spans[0].attributes
    assert "secret" not in str(attributes)
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 8
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 3
    assert attributes["gen_ai.response.model"] == "gpt-5-2026"


@pytest.mark.parametrize("value", [object(), 7, [], {"odd": 1}, [None], b"x", {"choices": [None]}])
def test_unknown_answers_never_break_the_agent(run, value):
    """An answer in an unknown form is recorded as JSON, or not at all."""
    with oteval.model_call(model="m", messages=value, tools=[value], system=value) as call:
        assert call.answer(value) is value
        assert call.chunk(value) is value

    assert len(run.spans) == 1
