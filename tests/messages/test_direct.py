"""Messages that callers pass: read strictly, as data or as objects, with nothing dropped."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from oteval import create_trajectory_match_evaluator
from oteval.base.errors import InputError
from oteval.evaluators import to_messages
from oteval.evaluators.checks.tool_order import create_forbidden_tools_evaluator
from oteval.messages.direct import read_direct
from oteval.messages.python_objects import plain_data
from oteval.model import Message, ToolCall
from oteval.reconstruct import reconstruct

from ..reconstruct.builders import span
from .forms import ARGUMENTS, CASES, FORMS, TEXT, brief

USER = {"role": "user", "content": "weather?"}
CALL = {"id": "c1", "function": {"name": "w", "arguments": TEXT}}


@pytest.mark.parametrize(
    ("form", "case"), [pair for pair in CASES if pair[1] in ("call", "parallel calls")]
)
def test_no_form_hides_a_forbidden_call(form: str, case: str):
    """A check that is called directly sees the call in every form."""
    check = create_forbidden_tools_evaluator(forbidden=["w"])

    result = check(outputs=FORMS[form][case])

    assert result["score"] is False


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "hologram"}]},
            r"outputs\[1\] block 1: .*'hologram'",
        ),
        ({"role": "user", "parts": [{"type": "odd", "x": 1}]}, r"outputs\[1\] block 0: .*'odd'"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "input": {}}]},
            r"outputs\[1\] block 0: a tool call needs a name",
        ),
        ({"role": "assistant", "tool_calls": [7]}, r"outputs\[1\].tool_calls\[0\]: a tool call"),
        (
            {"role": "assistant", "invalid_tool_calls": [{"args": "{"}]},
            r"outputs\[1\].invalid_tool_calls\[0\]: a tool call needs a name",
        ),
        ({"type": "metadata", "text": "x"}, r"outputs\[1\]: unknown role 'metadata'"),
        ("weather?", r"outputs\[1\]: a str without a role"),
        (7, r"outputs\[1\]: a int without a role"),
        ({}, r"outputs\[1\]: a dict without a role"),
        ([], r"outputs\[1\]"),
    ],
)
def test_what_no_codec_knows_is_an_error_that_names_it(message: Any, problem: str):
    """An unknown block, and an item that is no message, are never dropped."""
    with pytest.raises(InputError, match=problem):
        to_messages([USER, message], "outputs")


def test_the_same_block_is_kept_in_a_trace_with_a_gap():
    """A trace is what it is: the part stays in its message, and the gap names it."""
    message = {"role": "user", "content": [{"type": "hologram", "data": "x"}]}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([message]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "fine"}]),
    }

    [run] = reconstruct([span("a", 1, attributes=attributes)])

    assert run.messages[0].parts == ({"type": "hologram", "data": "x"},)
    assert ["hologram" in gap.detail for gap in run.gaps] == [True]


def test_our_own_messages_pass_unchanged():
    """A message of a trace is the same object, also with a part that no codec knows."""
    own = Message("user", "a", parts=({"type": "hologram"},))

    assert to_messages([own])[0] is own


def test_neighbours_of_a_caller_stay_apart():
    """Messages that an instrumentation would have split up are a caller's own messages."""
    said = [{"role": "assistant", "content": "a"}, {"role": "assistant", "tool_calls": [CALL]}]

    assert [message.role for message in to_messages([USER, *said])] == [
        "user",
        "assistant",
        "assistant",
    ]


def test_text_of_a_caller_is_text():
    """An answer that looks like the parts of a message is the words of the answer."""
    text = json.dumps([{"type": "tool_use", "id": "c1", "name": "w", "input": {}}])

    [message] = to_messages([{"role": "assistant", "content": text}])

    assert (message.content, message.tool_calls) == (text, ())


def test_equal_calls_of_a_caller_count_each():
    """A call is not a repetition of another one because both have the same id."""
    [message] = to_messages([{"role": "assistant", "tool_calls": [CALL, CALL], "refusal": None}])

    assert len(message.tool_calls) == 2


@pytest.mark.parametrize(
    "extra",
    [
        {"invalid_tool_calls": [{"name": "w", "args": TEXT, "id": "c1"}]},
        {"additional_kwargs": {"tool_calls": [CALL]}},
        {"function_call": {"name": "w", "arguments": TEXT}},
        {"toolCalls": [CALL]},
        {"blocks": [{"block_type": "tool_call", "tool_name": "w", "tool_kwargs": ARGUMENTS}]},
        {"toolInvocations": [{"state": "call", "toolName": "w", "args": ARGUMENTS}]},
        {"parts": [{"type": "tool_call", "name": "w", "arguments": ARGUMENTS}]},
    ],
)
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_a_match_sees_calls_in_every_field(extra: dict[str, Any], content: dict[str, Any]):
    """The fast way to read plain messages gives way where another field may hold calls."""
    reference = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    message = {"role": "assistant", **content, **extra}
    if "blocks" in extra and content.get("content") == "":
        del message["content"]

    verdict = create_trajectory_match_evaluator()(
        outputs=[USER, message], reference_outputs=reference
    )

    assert verdict["score"] is True


@pytest.mark.parametrize(
    "flag",
    [
        {"is_error": True},
        {"is_error": 1},
        {"is_error": "true"},
        {"isError": True},
        {"error": "boom"},
        {"error": {"code": 1}},
        {"status": "error"},
        {"status": "failed"},
    ],
)
def test_every_flag_of_a_failure_counts(flag: dict[str, Any]):
    """A tool's message says that it failed in the words of any library."""
    message = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    success = {"is_error": False, "error": None, "status": "success", "isError": "false"}

    assert to_messages([{**message, **flag}])[0].is_error
    assert not to_messages([{**message, **success}])[0].is_error


class _Color(Enum):
    RED = "red"


@dataclass
class _Inner:
    data: bytes
    color: _Color


@dataclass
class _Outer:
    inner: _Inner
    items: tuple[int, ...] = (1, 2)
    hidden: dict[str, Any] = field(default_factory=dict)


class _Private:
    def __init__(self) -> None:
        self._role = "user"

    def to_dict(self) -> dict[str, Any]:
        return {"role": self._role, "content": [{"text": "a"}]}


class _Slots:
    __slots__ = ("content", "role")

    def __init__(self) -> None:
        self.role, self.content = "user", "a"


def test_objects_become_data_by_their_fields():
    """Dataclasses, enumerations, bytes, slots, and objects with a `to_dict` of their own."""
    outer = _Outer(_Inner(b"\xff\x00", _Color.RED))

    assert plain_data(outer) == {
        "inner": {"data": "/wA=", "color": "red"},
        "items": [1, 2],
        "hidden": {},
    }
    assert [*map(brief, read_direct([_Private(), _Slots()], "messages"))] == [
        ("user", "a", (), False, "", 0)
    ] * 2


def test_own_calls_keep_what_only_they_can_say():
    """Arguments that were not captured stay unknown in a call of ours."""
    own = ToolCall("w", None, "c1", start_ns=1, end_ns=2)

    [message] = to_messages([SimpleNamespace(role="assistant", tool_calls=[own])])

    assert message.tool_calls[0] is own


def test_messages_of_langchain_are_read_as_objects():
    """A call, an invalid call, and a failed result of LangChain's classes."""
    messages = pytest.importorskip("langchain_core.messages")
    invalid = {"name": "w", "args": "{", "id": "c2", "error": "x", "type": "invalid_tool_call"}
    items = [
        messages.HumanMessage("weather?"),
        messages.AIMessage(
            "",
            tool_calls=[{"name": "w", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}],
            invalid_tool_calls=[invalid],
        ),
        messages.ToolMessage("no", tool_call_id="c1", status="error"),
        messages.AIMessageChunk("fine"),
    ]

    asked, calls, result, answer = to_messages(items)

    assert (asked.role, answer.content) == ("user", "fine")
    assert [(call.name, call.arguments) for call in calls.tool_calls] == [
        ("w", ARGUMENTS),
        ("w", "{"),
    ]
    assert (result.tool_call_id, result.is_error) == ("c1", True)


def test_messages_of_openai_are_read_as_objects():
    """A chat message, and items of the Responses API, as the client returns them."""
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    message = chat.ChatCompletionMessage.model_validate(
        {"role": "assistant", "tool_calls": [{**CALL, "type": "function"}]}
    )
    item = responses.ResponseFunctionToolCall(
        type="function_call", call_id="c1", name="w", arguments=TEXT
    )

    for asked in (message, item):
        _, calls = to_messages([USER, asked])
        assert brief(calls) == ("assistant", None, (("w", TEXT, ""),), False, "", 0)


def test_messages_of_pydantic_ai_are_read_as_objects():
    """Requests and responses hold the parts of several messages."""
    library = pytest.importorskip("pydantic_ai.messages")
    items = [
        library.ModelRequest(
            parts=[library.SystemPromptPart("be brief"), library.UserPromptPart("weather?")]
        ),
        library.ModelResponse(
            parts=[library.TextPart("see"), library.ToolCallPart("w", ARGUMENTS, "c1")]
        ),
        library.ModelRequest(parts=[library.ToolReturnPart("w", "sunny", "c1")]),
    ]

    assert [*map(brief, to_messages(items))] == [
        ("system", "be brief", (), False, "", 0),
        ("user", "weather?", (), False, "", 0),
        ("assistant", "see", (("w", TEXT, ""),), False, "", 0),
        ("tool", "sunny", (), False, "", 0),
    ]
