"""Every kind of block and item in the types of OpenAI's and Anthropic's clients, and what it is.

A kind that a new version of a client adds fails here until it is classified.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from oteval import create_budget_evaluator, create_forbidden_tools_evaluator
from oteval.messages.kinds import is_reasoning, unknown_kind
from oteval.messages.parts import Result, read_parts
from oteval.model import PROVIDER, Message, ToolCall
from oteval.reconstruct import reconstruct

from .builders import agent, chat, codes, only, said, span, user

# What parts are: "own" is a call that the provider runs, "client" one that the agent runs.
TEXT, CLIENT, OWN, RESULT, REASONING, KEPT = "text", "client", "own", "result", "reasoning", "kept"
OPENAI = {
    "additional_tools": KEPT,
    "apply_patch_call": CLIENT,
    "apply_patch_call_output": RESULT,
    "code_interpreter_call": OWN,
    "compaction": KEPT,
    "compaction_trigger": KEPT,
    "computer_call": CLIENT,
    "computer_call_output": RESULT,
    "configuration_update": KEPT,
    "custom": CLIENT,
    "custom_tool_call": CLIENT,
    "custom_tool_call_output": RESULT,
    "file": KEPT,
    "file_search_call": OWN,
    "function": CLIENT,
    "function_call": CLIENT,
    "function_call_output": RESULT,
    "image_generation_call": OWN,
    "image_url": KEPT,
    "input_audio": KEPT,
    "input_file": KEPT,
    "input_image": KEPT,
    "input_text": TEXT,
    "local_shell_call": CLIENT,
    "local_shell_call_output": RESULT,
    "mcp_approval_request": KEPT,
    "mcp_approval_response": KEPT,
    "mcp_call": OWN,
    "mcp_list_tools": KEPT,
    "output_text": TEXT,
    "program": OWN,
    "program_output": RESULT,
    "reasoning": REASONING,
    "refusal": TEXT,
    "shell_call": CLIENT,
    "shell_call_output": RESULT,
    "text": TEXT,
    "tool_search_call": CLIENT,
    "tool_search_output": RESULT,
    "web_search_call": OWN,
    # Not there: a reference to an item that the provider keeps. It is a gap.
    "item_reference": "unknown",
}
ANTHROPIC = {
    "advisor_tool_result": RESULT,
    "bash_code_execution_tool_result": RESULT,
    "code_execution_tool_result": RESULT,
    "compaction": KEPT,
    "container_upload": KEPT,
    "document": KEPT,
    "fallback": KEPT,
    "image": KEPT,
    "mcp_tool_listing": KEPT,
    "mcp_tool_result": RESULT,
    "mcp_tool_use": OWN,
    "redacted_thinking": REASONING,
    "search_result": KEPT,
    "server_tool_use": OWN,
    "text": TEXT,
    "text_editor_code_execution_tool_result": RESULT,
    "thinking": REASONING,
    "tool_addition": KEPT,
    "tool_removal": KEPT,
    "tool_result": RESULT,
    "tool_search_tool_result": RESULT,
    "tool_use": CLIENT,
    "web_fetch_tool_result": RESULT,
    "web_search_tool_result": RESULT,
}
UNIONS = {
    "openai": [
        ("openai.types.responses", "ResponseInputItem"),
        ("openai.types.responses", "ResponseItem"),
        ("openai.types.responses", "ResponseOutputItem"),
        ("openai.types.responses.response_output_message", "Content"),
        ("openai.types.responses.response_input_content", "ResponseInputContent"),
        ("openai.types.chat", "ChatCompletionContentPartParam"),
        ("openai.types.chat", "ChatCompletionMessageToolCallUnionParam"),
    ],
    "anthropic": [
        ("anthropic.types", "ContentBlock"),
        ("anthropic.types", "ContentBlockParam"),
        ("anthropic.types.beta", "BetaContentBlock"),
        ("anthropic.types.beta", "BetaContentBlockParam"),
    ],
}
KNOWN = {"openai": OPENAI, "anthropic": ANTHROPIC}
# Values of fields, by their names; other fields are texts.
FIELDS = {
    "action": {"type": "search", "query": "q"},
    "call_id": "c1",
    "content": "some text",
    "custom": {"name": "look", "input": "x"},
    "environment": None,
    "error": None,
    "execution": "client",
    "function": {"name": "look", "arguments": "{}"},
    "input": {"x": 1},
    "is_error": False,
    "operation": {"type": "create_file"},
    "queries": ["q"],
    "status": "completed",
    "tools": [],
}


def members(kind: Any) -> Iterator[Any]:
    """Yield the classes in a union, however deep."""
    if get_origin(kind) is Annotated:
        yield from members(get_args(kind)[0])
    elif isinstance(kind, type) and get_origin(kind) is None:
        yield kind
    else:
        for inner in get_args(kind):
            yield from members(inner)


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the annotations of a model's or a typed dict's fields."""
    if hasattr(kind, "model_fields"):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind)


def literals(annotation: Any) -> list[str]:
    """Return the texts that an annotation allows."""
    if isinstance(annotation, str):
        return [annotation]
    return [text for inner in get_args(annotation) for text in literals(inner)]


def items(package: str) -> dict[str, dict[str, Any]]:
    """Return an item of each kind in a package's unions, with all of its fields."""
    pytest.importorskip(package)
    found: dict[str, dict[str, Any]] = {}
    for module, name in UNIONS[package]:
        for kind in members(getattr(importlib.import_module(module), name)):
            fields = fields_of(kind)
            for text in literals(fields.get("type")):
                made = {field: FIELDS.get(field, "x") for field in fields}
                found.setdefault(text, {**made, "type": text})
    found.pop("message", None)
    return found


def classified(item: dict[str, Any]) -> str:
    """Return what the first part that an item is read as is."""
    part = read_parts(item)[0]
    if isinstance(part, str):
        return TEXT
    if isinstance(part, ToolCall):
        return OWN if part.executed_by == PROVIDER else CLIENT
    if isinstance(part, Result):
        return RESULT
    if is_reasoning(part):
        return REASONING
    return "unknown" if unknown_kind(part) else KEPT


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_every_kind_of_the_clients_types_is_classified(package: str):
    """Each is a text, a call, a result, reasoning, or is kept, as the table here says."""
    assert {kind: classified(item) for kind, item in items(package).items()} == KNOWN[package]


def test_a_kind_that_no_client_has_yet_is_a_call_if_its_name_says_so():
    """An item without the id that a client's result repeats is run by the provider."""
    (call,) = read_parts({"type": "holiday_booking_call", "id": "h1", "city": "Rome"})

    assert call == ToolCall("holiday_booking", {"city": "Rome"}, "h1", executed_by=PROVIDER)


DELETES = [
    {"type": "server_tool_call", "id": "s", "name": "delete_repo", "server_tool_call": {"x": 1}},
    {"type": "server_tool_call", "id": "s", "name": "delete_repo", "args": {"x": 1}},
    {"type": "server_tool_use", "id": "s", "name": "delete_repo", "input": {"x": 1}},
    {"type": "mcp_tool_use", "id": "s", "name": "delete_repo", "input": {"x": 1}},
    {"type": "mcp_call", "id": "s", "name": "delete_repo", "arguments": '{"x": 1}'},
    {"type": "tool_call", "id": "s", "name": "delete_repo", "arguments": {"x": 1}, "builtin": True},
    {"type": "tool_call", "id": "srvtoolu_s", "name": "delete_repo", "arguments": {"x": 1}},
    {"part_kind": "builtin-tool-call", "tool_call_id": "s", "tool_name": "delete_repo",
     "args": {"x": 1}},
    {"type": "tool-call", "toolCallId": "s", "toolName": "delete_repo", "input": {"x": 1},
     "providerExecuted": True},
    {"toolUse": {"toolUseId": "s", "name": "delete_repo", "input": {"x": 1},
                 "type": "server_tool_use"}},
    {"toolCall": {"id": "s", "toolType": "DELETE_REPO", "args": {"x": 1}}},
]  # fmt: skip


@pytest.mark.parametrize("part", DELETES, ids=lambda part: str(part)[:50])
def test_checks_see_what_the_provider_ran(part: dict[str, Any]):
    """A forbidden tool is forbidden, and counts, whoever runs it; no result of it is expected."""
    answer = {"role": "assistant", "parts": [part, {"type": "text", "content": "done"}]}

    found = only(agent("a", end=9), chat("c", 2, [user("q")], answer, parent="a"))

    (call,) = found.messages[1].tool_calls
    assert (call.name, call.arguments, call.executed_by) == ("delete_repo", {"x": 1}, PROVIDER)
    assert found.gaps == ()
    assert not create_forbidden_tools_evaluator(forbidden=["delete_*"])(outputs=found)["score"]
    assert not create_budget_evaluator(max_tool_calls=0)(outputs=found)["score"]


@pytest.mark.parametrize(
    ("parts", "content", "is_error"),
    [
        ([{"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}],
         '[{"url":"u"}]', False),
        ([{"type": "mcp_tool_result", "tool_use_id": "s", "is_error": True,
           "content": [{"type": "text", "text": "locked"}]}], "locked", True),
        ([{"type": "code_execution_tool_result", "tool_use_id": "s",
           "content": {"type": "code_execution_tool_result_error", "error_code": "x"}}],
         '{"type":"code_execution_tool_result_error","error_code":"x"}', True),
        ([{"type": "server_tool_result", "tool_call_id": "s", "status": "error", "output": "no"}],
         "no", True),
        ([{"type": "server_tool_call_response", "id": "s",
           "server_tool_call_response": {"r": 1}}], '{"r":1}', False),
        ([{"codeExecutionResult": {"id": "s", "outcome": "OUTCOME_FAILED", "output": "boom"}}],
         "boom", True),
    ],
)  # fmt: skip
def test_results_of_the_providers_tools(parts: list[dict[str, Any]], content: str, is_error: bool):
    """A result stands between its call and what the model says then, with whether it failed."""
    call = {"type": "server_tool_use", "id": "s", "name": "t", "input": {}}
    answer = {"role": "assistant", "parts": [call, *parts, {"type": "text", "content": "done"}]}

    found = only(agent("a", end=9), chat("c", 2, [user("q")], answer, parent="a"))

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    result = found.messages[2]
    assert (result.content, result.is_error, result.tool_call_id) == (content, is_error, "s")
    assert found.messages[3].content == "done"


def test_a_client_that_leaves_the_providers_steps_out_of_the_history():
    """The next call repeats only the text: the story stays whole, and nothing is rewritten."""
    search = {"type": "web_search_call", "id": "w", "status": "completed",
              "action": {"type": "search", "query": "q"}}  # fmt: skip
    text = {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes"}]}  # fmt: skip
    attributes = {"gen_ai.output.messages": json.dumps([search, text])}

    found = only(
        agent("a", end=9),
        chat("c", 2, [user("q")], parent="a", attributes=attributes),
        chat("d", 4, [user("q"), said("Yes"), user("r")], said("No"), parent="a"),
    )

    texts = [(m.role, m.content) for m in found.messages]
    assert texts[1:3] == [("assistant", None), ("assistant", "Yes")]
    assert texts[3:] == [("user", "r"), ("assistant", "No")]
    assert (found.gaps, found.rewrites) == ((), ())
    assert found.messages[1].client_calls == ()


def test_the_executor_survives_the_store_and_is_left_out_by_default():
    """Stored calls of agents look as before; a provider's call says who ran it."""
    from oteval.store.trajectory_rows import message_fields, message_of

    calls = (ToolCall("f", {}, "a"), ToolCall("g", {}, "b", executed_by=PROVIDER))
    message = Message("assistant", tool_calls=calls)

    fields = message_fields(message)

    assert ["executed_by" in call for call in fields["tool_calls"]] == [False, True]
    assert message_of(json.loads(json.dumps(fields))) == message
    assert [call.get("executed_by") for call in message.as_dict()["tool_calls"]] == [None, PROVIDER]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "parts": [{"type": "refusal", "content": "I cannot say"}]},
        {"role": "assistant", "content": None, "refusal": "I cannot say"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot say"}]},
        {"type": "message", "role": "assistant",
         "content": [{"type": "refusal", "refusal": "I cannot say"}]},
    ],
)  # fmt: skip
def test_a_refusal_is_what_the_assistant_says(message: dict[str, Any]):
    """Checks find its text; a mark tells that it is one."""
    found = only(chat("c", 1, [user("q")], message))

    answer = found.messages[-1]
    assert (answer.content, answer.parts) == ("I cannot say", ({"type": "refusal"},))
    assert codes(found) == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "parts": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "text", "text": None}]},
        {"role": "user", "parts": [{"type": "text", "content": ""}]},
        {"role": "system", "parts": [{"type": "text"}]},
        {"role": "assistant"},
        {"role": "assistant", "parts": [{"type": "text"}]},
    ],
)
def test_a_message_without_its_content_is_a_gap(message: dict[str, Any]):
    """Content that is not there is no empty content."""
    found = only(chat("c", 1, [user("q"), message, user("r")], said("a")))

    assert codes(found) == ["content_not_captured"]
    assert all(m.content or m.content is None for m in found.messages)


def test_arguments_of_a_recording_without_content_are_not_known():
    """Where texts are left out, a call without arguments may have had some."""
    parts = [{"type": "text"}, {"type": "tool_call", "id": "c", "name": "f"}]
    asked = {"role": "assistant", "parts": parts}

    found = only(chat("c", 1, [{"role": "user", "parts": [{"type": "text"}]}], asked))

    assert "content_not_captured" in codes(found)
    assert [call.arguments for call in found.messages[-1].tool_calls] == [None]


def test_an_answer_without_any_part_is_empty():
    """A model may say nothing; that is known, and no gap."""
    found = only(chat("c", 1, [user("q")], {"role": "assistant", "content": []}))

    assert (found.messages[-1].content, codes(found)) == ("", [])


REASONING_ITEM = {"role": "assistant", "finish_reason": "stop",
                  "parts": [{"type": "reasoning", "content": "hm"}]}  # fmt: skip
SEARCH_ITEM = {"role": "assistant", "finish_reason": "stop",
               "parts": [{"type": "server_tool_call", "id": "s", "name": "web_search",
                          "server_tool_call": {"query": "q"}}]}  # fmt: skip
TEXT_ITEM = {"role": "assistant", "finish_reason": "stop",
             "parts": [{"type": "text", "content": "It is."}]}  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [[REASONING_ITEM, TEXT_ITEM], [SEARCH_ITEM, TEXT_ITEM], [TEXT_ITEM, REASONING_ITEM],
     [REASONING_ITEM, SEARCH_ITEM, TEXT_ITEM]],
)  # fmt: skip
def test_items_of_one_answer_are_no_choices(items: list[dict[str, Any]]):
    """Each item of the Responses API is a message with a reason of its own; all are one answer."""
    attributes = {"gen_ai.output.messages": json.dumps(items)}

    found = only(chat("c", 1, [user("q")], attributes=attributes))

    assert "It is." in [m.content for m in found.messages]
    assert (codes(found), found.rewrites) == ([], ())


def test_indices_tell_choices():
    """Answers with different indices are choices, also where one of them calls a tool."""
    asked = {"role": "assistant", "finish_reason": "tool_call", "index": 1,
             "parts": [{"type": "tool_call", "id": "k", "name": "f", "arguments": {}}]}  # fmt: skip
    attributes = {"gen_ai.output.messages": json.dumps([{**TEXT_ITEM, "index": 0}, asked])}

    found = reconstruct([span("c", attributes={"gen_ai.operation.name": "chat", **attributes})])

    assert "several_choices" in codes(found[0])


def glued(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    """Return an answer whose streamed calls were put together as one."""
    call = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [call]}


TOOLS = [{"type": "function", "name": name} for name in ("look", "look_up", "find")]


@pytest.mark.parametrize(
    ("name", "ids", "calls"),
    [
        ("looklook", "call_1call_2", [("look", "call_1"), ("look", "call_2")]),
        ("look_upfind", "call_1", [("look_up", "call_1"), ("find", "")]),
        ("findlook_up", "", [("find", ""), ("look_up", "")]),
    ],
)
def test_streamed_calls_that_were_glued_are_taken_apart(
    name: str, ids: str, calls: list[tuple[str, str]]
):
    """Their arguments tell how many there are, and equal names or the tools offered which."""
    answer = glued(name, '{"x": 1}{"x": 2}', ids)
    attributes = {
        "gen_ai.tool.definitions": json.dumps(TOOLS),
        "gen_ai.output.messages": json.dumps([answer]),
    }

    found = only(chat("c", 1, [user("q")], attributes=attributes))

    asked = found.messages[-1].tool_calls
    assert [(call.name, call.id) for call in asked] == calls
    assert [call.arguments for call in asked] == [{"x": 1}, {"x": 2}]


def test_glued_calls_that_cannot_be_told_apart_are_a_gap():
    """The call stays as it was recorded, and the gap names it."""
    found = only(chat("c", 1, [user("q")], glued("lookfind", '{"x": 1}{"x": 2}', "k")))

    assert "content_unreadable" in codes(found)
    assert [call.name for call in found.messages[-1].tool_calls] == ["lookfind"]
