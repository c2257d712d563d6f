"""One conversation for each thing that a message can hold, in every form of messages.

`EXPECTED` has the meaning of each case; `FORMS` writes it as each provider or library does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from oteval.messages.kinds import is_reasoning, reasoning_text
from oteval.model import Message

Items = list[Any]
Case = dict[str, Items]

ARGUMENTS = {"city": "Toronto"}
OTHER_ARGUMENTS = {"city": "Umea"}
TEXT, OTHER_TEXT = json.dumps(ARGUMENTS), json.dumps(OTHER_ARGUMENTS)
URL = "https://example.com/cat.png"
PNG = "iVBORw0KGgo="

ASKED = ("user", "weather?", (), False, "", 0)
FIRST = ("w", TEXT, "")
SECOND = ("w", OTHER_TEXT, "")


def _calls(*calls: tuple[str, str, str]) -> tuple[Any, ...]:
    return ("assistant", None, calls, False, "", 0)


def _result(text: str, *, is_error: bool = False) -> tuple[Any, ...]:
    return ("tool", text, (), is_error, "", 0)


EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "text": [ASKED, ("assistant", "fine", (), False, "", 0)],
    "system": [("system", "be brief", (), False, "", 0), ASKED],
    "call": [ASKED, _calls(FIRST)],
    "text and call": [ASKED, ("assistant", "let me see", (FIRST,), False, "", 0)],
    "parallel calls": [
        ASKED,
        _calls(FIRST, SECOND),
        _result("sunny"),
        _result("rain"),
    ],
    "result": [ASKED, _calls(FIRST), _result("sunny")],
    "error": [ASKED, _calls(FIRST), _result("no", is_error=True)],
    "reasoning": [ASKED, ("assistant", "fine", (), False, "hm", 0)],
    "image": [("user", "what is it?", (), False, "", 1)],
    "refusal": [ASKED, ("assistant", "I cannot", (), False, "", 1)],
    "provider's tool": [
        ASKED,
        ("assistant", None, (("web_search", '{"query":"x"}', "provider"),), False, "", 0),
        ("tool", '["found"]', (), False, "", 0),
        ("assistant", "fine", (), False, "", 0),
    ],
}
"""The result of `brief` for the messages of each case."""


def brief(message: Message) -> tuple[Any, ...]:
    """Return a message's role, text, calls, failure, reasoning and number of other parts."""
    calls = tuple(
        (call.name, _shown(call.name, call.arguments), call.executed_by)
        for call in message.tool_calls
    )
    reasoning = "".join(map(reasoning_text, filter(is_reasoning, message.parts)))
    others = sum(not is_reasoning(part) for part in message.parts)
    text = message.content or None
    return (message.role, text, calls, message.is_error, reasoning, others)


def _shown(name: str, arguments: Any) -> str:
    separators = (", ", ": ") if name == "w" else (",", ":")
    return json.dumps(arguments, separators=separators)


def _chat_call(call_id: str, text: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "w", "arguments": text}}


_USER = {"role": "user", "content": "weather?"}
_CHAT_CALL = {"role": "assistant", "content": None, "tool_calls": [_chat_call("c1", TEXT)]}

CHAT: Case = {
    "text": [_USER, {"role": "assistant", "content": "fine", "refusal": None}],
    "system": [{"role": "system", "content": "be brief"}, _USER],
    "call": [_USER, _CHAT_CALL],
    "text and call": [_USER, {**_CHAT_CALL, "content": "let me see"}],
    "parallel calls": [
        _USER,
        {
            "role": "assistant",
            "tool_calls": [_chat_call("c1", TEXT), _chat_call("c2", OTHER_TEXT)],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "rain"}]},
    ],
    "result": [_USER, _CHAT_CALL, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}],
    "error": [
        _USER,
        _CHAT_CALL,
        {"role": "tool", "tool_call_id": "c1", "content": "no", "is_error": True},
    ],
    "reasoning": [_USER, {"role": "assistant", "content": "fine", "reasoning_content": "hm"}],
    "image": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is it?"},
                {"type": "image_url", "image_url": {"url": URL}},
            ],
        }
    ],
    "refusal": [_USER, {"role": "assistant", "content": None, "refusal": "I cannot"}],
}
CHAT_REFUSAL_PART: Case = {
    "refusal": [
        _USER,
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot"}]},
    ]
}
_CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "w", "input": TEXT}}
CHAT_CUSTOM_TOOL: Case = {
    "call": [_USER, {"role": "assistant", "content": None, "tool_calls": [_CUSTOM]}]
}
_OLD_CALL = {"role": "assistant", "function_call": {"name": "w", "arguments": TEXT}}
CHAT_FUNCTIONS: Case = {
    "call": [_USER, _OLD_CALL],
    "result": [_USER, _OLD_CALL, {"role": "function", "name": "w", "content": "sunny"}],
}
OPENROUTER: Case = {
    "reasoning": [_USER, {"role": "assistant", "content": "fine", "reasoning": "hm"}]
}


def _item_call(call_id: str, text: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "w",
        "arguments": text,
    }


def _item_result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _item_text(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


RESPONSES: Case = {
    "text": [_USER, _item_text("fine")],
    "system": [{"role": "system", "content": "be brief"}, _USER],
    "call": [_USER, _item_call("c1", TEXT)],
    "text and call": [_USER, _item_text("let me see"), _item_call("c1", TEXT)],
    "parallel calls": [
        _USER,
        _item_call("c1", TEXT),
        _item_call("c2", OTHER_TEXT),
        _item_result("c1", "sunny"),
        _item_result("c2", [{"type": "input_text", "text": "rain"}]),
    ],
    "result": [_USER, _item_call("c1", TEXT), _item_result("c1", "sunny")],
    "reasoning": [
        _USER,
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        _item_text("fine"),
    ],
    "image": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "what is it?"},
                {"type": "input_image", "image_url": URL},
            ],
        }
    ],
    "refusal": [
        _USER,
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "I cannot"}],
        },
    ],
    "provider's tool": [
        _USER,
        {
            "type": "mcp_call",
            "id": "m1",
            "name": "web_search",
            "server_label": "s",
            "arguments": '{"query":"x"}',
            "output": '["found"]',
        },
        _item_text("fine"),
    ],
}
RESPONSES_CUSTOM_TOOL: Case = {
    "result": [
        _USER,
        {"type": "custom_tool_call", "call_id": "c1", "name": "w", "input": TEXT},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "sunny"},
    ]
}


def _block_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "w", "input": arguments}


def _block_result(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def _blocks(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_BLOCK_CALL = _blocks("assistant", _block_call("c1", ARGUMENTS))
ANTHROPIC: Case = {
    "text": [_USER, _blocks("assistant", _text("fine"))],
    "system": [_blocks("system", _text("be brief")), _USER],
    "call": [_USER, _BLOCK_CALL],
    "text and call": [
        _USER,
        _blocks("assistant", _text("let me see"), _block_call("c1", ARGUMENTS)),
    ],
    "parallel calls": [
        _USER,
        _blocks("assistant", _block_call("c1", ARGUMENTS), _block_call("c2", OTHER_ARGUMENTS)),
        _blocks("user", _block_result("c1", "sunny"), _block_result("c2", [_text("rain")])),
    ],
    "result": [_USER, _BLOCK_CALL, _blocks("user", _block_result("c1", [_text("sunny")]))],
    "error": [_USER, _BLOCK_CALL, _blocks("user", _block_result("c1", "no", is_error=True))],
    "reasoning": [
        _USER,
        _blocks(
            "assistant", {"type": "thinking", "thinking": "hm", "signature": "s"}, _text("fine")
        ),
    ],
    "image": [
        _blocks(
            "user",
            _text("what is it?"),
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            },
        )
    ],
    "provider's tool": [
        _USER,
        _blocks(
            "assistant",
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "x"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": ["found"],
            },
            _text("fine"),
        ),
    ],
}


def _gemini(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _gemini_call(arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": "w", "args": arguments}}


def _gemini_result(response: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"functionResponse": {"id": call_id, "name": "w", "response": response}}


_GEMINI_USER = _gemini("user", {"text": "weather?"})
GEMINI: Case = {
    "text": [_GEMINI_USER, _gemini("model", {"text": "fine"})],
    "system": [_gemini("system", {"text": "be brief"}), _GEMINI_USER],
    "call": [_GEMINI_USER, _gemini("model", _gemini_call(ARGUMENTS))],
    "text and call": [
        _GEMINI_USER,
        _gemini("model", {"text": "let me see"}, _gemini_call(ARGUMENTS)),
    ],
    "parallel calls": [
        _GEMINI_USER,
        _gemini("model", _gemini_call(ARGUMENTS), _gemini_call(OTHER_ARGUMENTS, "c2")),
        _gemini("user", _gemini_result("sunny"), _gemini_result("rain", "c2")),
    ],
    "result": [
        _GEMINI_USER,
        _gemini("model", _gemini_call(ARGUMENTS)),
        _gemini("user", _gemini_result("sunny")),
    ],
    "reasoning": [
        _GEMINI_USER,
        _gemini("model", {"text": "hm", "thought": True}, {"text": "fine"}),
    ],
    "image": [
        _gemini(
            "user",
            {"text": "what is it?"},
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
        )
    ],
}


def _every_field(item: dict[str, Any]) -> dict[str, Any]:
    """Return a Gemini content as its client dumps it: in snake case, with every field."""
    names = {
        "functionCall": "function_call",
        "functionResponse": "function_response",
        "inlineData": "inline_data",
        "text": "text",
        "thought": "thought",
    }
    empty = dict.fromkeys(names.values())
    parts = [
        {**empty, **{names[key]: value for key, value in part.items()}} for part in item["parts"]
    ]
    return {"role": item["role"], "parts": parts}


GEMINI_DUMPED: Case = {name: [*map(_every_field, items)] for name, items in GEMINI.items()}


def _converse_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": "w", "input": arguments}}


def _converse_result(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "content": content, **fields}}


def _text_and_call_cases(role: str, call: Callable[[str, Any], dict[str, Any]]) -> Case:
    """Return the cases that differ only in the assistant's role and in the form of a call."""
    return {
        "text": [_BLOCK_USER, _blocks(role, {"text": "fine"})],
        "system": [_blocks("system", {"text": "be brief"}), _BLOCK_USER],
        "call": [_BLOCK_USER, _blocks(role, call("c1", ARGUMENTS))],
        "text and call": [
            _BLOCK_USER,
            _blocks(role, {"text": "let me see"}, call("c1", ARGUMENTS)),
        ],
    }


_BLOCK_USER = _blocks("user", {"text": "weather?"})
_CONVERSE_CALL = _blocks("assistant", _converse_call("c1", ARGUMENTS))
BEDROCK: Case = {
    **_text_and_call_cases("assistant", _converse_call),
    "parallel calls": [
        _BLOCK_USER,
        _blocks(
            "assistant", _converse_call("c1", ARGUMENTS), _converse_call("c2", OTHER_ARGUMENTS)
        ),
        _blocks(
            "user",
            _converse_result("c1", [{"text": "sunny"}]),
            _converse_result("c2", [{"text": "rain"}]),
        ),
    ],
    "result": [
        _BLOCK_USER,
        _CONVERSE_CALL,
        _blocks("user", _converse_result("c1", [{"text": "sunny"}], status="success")),
    ],
    "error": [
        _BLOCK_USER,
        _CONVERSE_CALL,
        _blocks("user", _converse_result("c1", [{"text": "no"}], status="error")),
    ],
    "reasoning": [
        _BLOCK_USER,
        _blocks(
            "assistant",
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"text": "fine"},
        ),
    ],
    "image": [
        _blocks(
            "user",
            {"text": "what is it?"},
            {"image": {"format": "png", "source": {"bytes": PNG}}},
        )
    ],
}


def _langchain(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "content": content, "additional_kwargs": {}, **fields}


def _langchain_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"name": "w", "args": arguments, "id": call_id, "type": "tool_call"}


_HUMAN = _langchain("human", "weather?")
_AI_CALL = _langchain("ai", "", tool_calls=[_langchain_call("c1", ARGUMENTS)])
LANGCHAIN: Case = {
    "text": [_HUMAN, _langchain("ai", "fine", tool_calls=[], invalid_tool_calls=[])],
    "system": [_langchain("system", "be brief"), _HUMAN],
    "call": [_HUMAN, _AI_CALL],
    "text and call": [
        _HUMAN,
        _langchain(
            "ai",
            [_text("let me see"), {**_block_call("c1", {}), "partial_json": TEXT}],
            tool_calls=[_langchain_call("c1", ARGUMENTS)],
        ),
    ],
    "parallel calls": [
        _HUMAN,
        _langchain(
            "ai",
            "",
            tool_calls=[_langchain_call("c1", ARGUMENTS), _langchain_call("c2", OTHER_ARGUMENTS)],
        ),
        _langchain("tool", "sunny", tool_call_id="c1"),
        _langchain("tool", "rain", tool_call_id="c2"),
    ],
    "result": [
        _HUMAN,
        _AI_CALL,
        _langchain("tool", "sunny", tool_call_id="c1", status="success"),
    ],
    "error": [_HUMAN, _AI_CALL, _langchain("tool", "no", tool_call_id="c1", status="error")],
    "reasoning": [
        _HUMAN,
        _langchain("ai", [{"type": "reasoning", "reasoning": "hm"}, _text("fine")]),
    ],
    "image": [
        _langchain(
            "human",
            [_text("what is it?"), {"type": "image_url", "image_url": {"url": URL}}],
        )
    ],
}
_CLASSES = {
    "human": "HumanMessage",
    "ai": "AIMessage",
    "system": "SystemMessage",
    "tool": "ToolMessage",
}


def _constructor(item: dict[str, Any]) -> dict[str, Any]:
    path = ["langchain", "schema", "messages", _CLASSES[item["type"]]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": item}


def _with_data(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": item["type"], "data": item}


LANGCHAIN_CONSTRUCTORS: Case = {n: [*map(_constructor, i)] for n, i in LANGCHAIN.items()}
LANGCHAIN_DATA: Case = {n: [*map(_with_data, i)] for n, i in LANGCHAIN.items()}


def _parts(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _genai_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "w", "arguments": arguments}


def _genai_result(call_id: str, response: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": call_id, "response": response, **fields}


_GENAI_USER = _parts("user", _said("weather?"))
_GENAI_CALL = _parts("assistant", _genai_call("c1", ARGUMENTS))
GENAI: Case = {
    "text": [_GENAI_USER, {**_parts("assistant", _said("fine")), "finish_reason": "stop"}],
    "system": [_parts("system", _said("be brief")), _GENAI_USER],
    "call": [_GENAI_USER, _GENAI_CALL],
    "text and call": [
        _GENAI_USER,
        _parts("assistant", _said("let me see"), _genai_call("c1", TEXT)),
    ],
    "parallel calls": [
        _GENAI_USER,
        _parts("assistant", _genai_call("c1", ARGUMENTS), _genai_call("c2", OTHER_ARGUMENTS)),
        _parts("tool", _genai_result("c1", "sunny"), _genai_result("c2", "rain")),
    ],
    "result": [_GENAI_USER, _GENAI_CALL, _parts("tool", _genai_result("c1", "sunny"))],
    "error": [
        _GENAI_USER,
        _GENAI_CALL,
        _parts("tool", _genai_result("c1", "no", is_error=True)),
    ],
    "reasoning": [
        _GENAI_USER,
        _parts("assistant", {"type": "reasoning", "content": "hm"}, _said("fine")),
    ],
    "image": [
        _parts("user", _said("what is it?"), {"type": "uri", "modality": "image", "uri": URL})
    ],
    "provider's tool": [
        _GENAI_USER,
        _parts(
            "assistant",
            {
                "type": "server_tool_call",
                "id": "s1",
                "name": "web_search",
                "server_tool_call": {"type": "web_search", "arguments": {"query": "x"}},
            },
            {
                "type": "server_tool_call_response",
                "id": "s1",
                "server_tool_call_response": ["found"],
            },
            _said("fine"),
        ),
    ],
}


def _sdk_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "w", "input": arguments}


def _sdk_result(call_id: str, kind: str, value: Any) -> dict[str, Any]:
    head = {"type": "tool-result", "toolCallId": call_id, "toolName": "w"}
    return {**head, "output": {"type": kind, "value": value}}


_SDK_CALL = _blocks("assistant", _sdk_call("c1", ARGUMENTS))
AI_SDK: Case = {
    "text": [_blocks("user", _text("weather?")), _blocks("assistant", _text("fine"))],
    "system": [{"role": "system", "content": "be brief"}, _USER],
    "call": [_USER, _SDK_CALL],
    "text and call": [
        _USER,
        _blocks("assistant", _text("let me see"), _sdk_call("c1", ARGUMENTS)),
    ],
    "parallel calls": [
        _USER,
        _blocks("assistant", _sdk_call("c1", ARGUMENTS), _sdk_call("c2", OTHER_ARGUMENTS)),
        _blocks("tool", _sdk_result("c1", "text", "sunny"), _sdk_result("c2", "text", "rain")),
    ],
    "result": [_USER, _SDK_CALL, _blocks("tool", _sdk_result("c1", "text", "sunny"))],
    "error": [_USER, _SDK_CALL, _blocks("tool", _sdk_result("c1", "error-text", "no"))],
    "reasoning": [_USER, _blocks("assistant", {"type": "reasoning", "text": "hm"}, _text("fine"))],
    "image": [_blocks("user", _text("what is it?"), {"type": "image", "image": URL})],
    "provider's tool": [
        _USER,
        _blocks(
            "assistant",
            {
                "type": "tool-call",
                "toolCallId": "s1",
                "toolName": "web_search",
                "input": {"query": "x"},
                "providerExecuted": True,
            },
            {
                "type": "tool-result",
                "toolCallId": "s1",
                "toolName": "web_search",
                "output": {"type": "json", "value": ["found"]},
            },
            _text("fine"),
        ),
    ],
}
AI_SDK_4: Case = {
    "result": [
        _USER,
        _blocks(
            "assistant",
            {"type": "tool-call", "toolCallId": "c1", "toolName": "w", "args": ARGUMENTS},
        ),
        _blocks(
            "tool",
            {"type": "tool-result", "toolCallId": "c1", "toolName": "w", "result": "sunny"},
        ),
    ],
    "error": [
        _USER,
        _SDK_CALL,
        _blocks("tool", {"type": "tool-error", "toolCallId": "c1", "error": "no"}),
    ],
}


def _interface(state: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool-w", "toolCallId": "c1", "state": state, "input": ARGUMENTS, **fields}


AI_SDK_INTERFACE: Case = {
    "text": [_parts("user", _text("weather?")), _parts("assistant", _text("fine"))],
    "call": [_USER, _parts("assistant", _interface("input-available"))],
    "result": [_USER, _parts("assistant", _interface("output-available", output="sunny"))],
    "error": [_USER, _parts("assistant", _interface("output-error", errorText="no"))],
    "reasoning": [
        _USER,
        _parts("assistant", {"type": "reasoning", "text": "hm"}, _text("fine")),
    ],
}
AI_SDK_INTERFACE_4: Case = {
    "result": [
        _USER,
        _parts(
            "assistant",
            {
                "type": "tool-invocation",
                "toolInvocation": {
                    "state": "result",
                    "toolCallId": "c1",
                    "toolName": "w",
                    "args": ARGUMENTS,
                    "result": "sunny",
                },
            },
        ),
    ]
}


def _request(*parts: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts)}


def _response(*parts: Any) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts)}


def _prompt(kind: str, content: Any) -> dict[str, Any]:
    return {"part_kind": f"{kind}-prompt", "content": content}


def _returned(call_id: str, content: Any) -> dict[str, Any]:
    head = {"part_kind": "tool-return", "tool_name": "w", "tool_call_id": call_id}
    return {**head, "content": content}


def _pydantic_call(call_id: str, arguments: Any) -> dict[str, Any]:
    head = {"part_kind": "tool-call", "tool_name": "w", "tool_call_id": call_id}
    return {**head, "args": arguments}


_PYDANTIC_USER = _request(_prompt("user", "weather?"))
_PYDANTIC_CALL = _response(_pydantic_call("c1", TEXT))
PYDANTIC_AI: Case = {
    "text": [_PYDANTIC_USER, _response({"part_kind": "text", "content": "fine"})],
    "system": [_request(_prompt("system", "be brief"), _prompt("user", "weather?"))],
    "call": [_PYDANTIC_USER, _PYDANTIC_CALL],
    "parallel calls": [
        _PYDANTIC_USER,
        _response(_pydantic_call("c1", TEXT), _pydantic_call("c2", OTHER_ARGUMENTS)),
        _request(_returned("c1", "sunny"), _returned("c2", "rain")),
    ],
    "result": [_PYDANTIC_USER, _PYDANTIC_CALL, _request(_returned("c1", "sunny"))],
    "error": [
        _PYDANTIC_USER,
        _PYDANTIC_CALL,
        _request(
            {
                "part_kind": "retry-prompt",
                "content": "no",
                "tool_name": "w",
                "tool_call_id": "c1",
            }
        ),
    ],
    "reasoning": [
        _PYDANTIC_USER,
        _response(
            {"part_kind": "thinking", "content": "hm"}, {"part_kind": "text", "content": "fine"}
        ),
    ],
    "image": [
        _request(_prompt("user", ["what is it?", {"kind": "image-url", "url": URL}])),
    ],
}
AUTOGEN: Case = {
    "result": [
        _USER,
        {"role": "assistant", "content": [{"id": "c1", "name": "w", "arguments": TEXT}]},
        {"role": "tool", "content": [{"content": "sunny", "call_id": "c1", "is_error": False}]},
    ],
    "error": [
        _USER,
        {"role": "assistant", "content": [{"id": "c1", "name": "w", "arguments": TEXT}]},
        {"role": "tool", "content": [{"content": "no", "call_id": "c1", "is_error": True}]},
    ],
}
LLAMAINDEX: Case = {
    "text": [
        {"role": "user", "blocks": [{"block_type": "text", "text": "weather?"}]},
        {"role": "assistant", "blocks": [{"block_type": "text", "text": "fine"}]},
    ],
    "call": [
        {"role": "user", "blocks": [{"block_type": "text", "text": "weather?"}]},
        {
            "role": "assistant",
            "blocks": [
                {
                    "block_type": "tool_call",
                    "tool_call_id": "c1",
                    "tool_name": "w",
                    "tool_kwargs": ARGUMENTS,
                }
            ],
        },
    ],
}
HAYSTACK: Case = {
    "text": [_blocks("user", {"text": "weather?"}), _blocks("assistant", {"text": "fine"})],
    "result": [
        _blocks("user", {"text": "weather?"}),
        _blocks(
            "assistant",
            {"tool_call": {"id": "c1", "tool_name": "w", "arguments": ARGUMENTS}},
        ),
        _blocks(
            "tool",
            {
                "tool_call_result": {
                    "result": "sunny",
                    "error": False,
                    "origin": {"id": "c1", "tool_name": "w", "arguments": ARGUMENTS},
                }
            },
        ),
    ],
    "error": [
        _blocks("user", {"text": "weather?"}),
        _blocks(
            "assistant",
            {"tool_call": {"id": "c1", "tool_name": "w", "arguments": ARGUMENTS}},
        ),
        _blocks(
            "tool",
            {
                "tool_call_result": {
                    "result": "no",
                    "error": True,
                    "origin": {"id": "c1", "tool_name": "w", "arguments": ARGUMENTS},
                }
            },
        ),
    ],
}
PAIRS: Case = {
    "text": [["human", "weather?"], ["ai", "fine"]],
    "system": [["system", "be brief"], ["user", "weather?"]],
}
_REPR = (
    f"ResponseFunctionToolCall(arguments='{TEXT}', call_id='c1', name='w', type='function_call')"
)


def _genkit_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"toolRequest": {"name": "w", "ref": call_id, "input": arguments}}


def _genkit_result(call_id: str, output: Any) -> dict[str, Any]:
    return {"toolResponse": {"name": "w", "ref": call_id, "output": output}}


_GENKIT_CALL = _blocks("model", _genkit_call("c1", ARGUMENTS))
GENKIT: Case = {
    **_text_and_call_cases("model", _genkit_call),
    "text": [_BLOCK_USER, _blocks("model", {"text": "fine", "metadata": {}})],
    "parallel calls": [
        _BLOCK_USER,
        _blocks("model", _genkit_call("c1", ARGUMENTS), _genkit_call("c2", OTHER_ARGUMENTS)),
        _blocks("tool", _genkit_result("c1", "sunny"), _genkit_result("c2", "rain")),
    ],
    "result": [_BLOCK_USER, _GENKIT_CALL, _blocks("tool", _genkit_result("c1", "sunny"))],
    "reasoning": [
        _BLOCK_USER,
        _blocks("model", {"reasoning": "hm", "metadata": {"signature": "s"}}, {"text": "fine"}),
    ],
    "image": [
        _blocks(
            "user", {"text": "what is it?"}, {"media": {"url": URL, "contentType": "image/png"}}
        )
    ],
}


def _mastra_call(call_id: str, arguments: Any) -> dict[str, Any]:
    payload = {"toolCallId": call_id, "toolName": "w", "args": arguments}
    return {"type": "tool-call", "runId": "r", "from": "AGENT", "payload": payload}


MASTRA: Case = {
    "call": [
        _USER,
        {"role": "assistant", "content": None, "toolCalls": [_mastra_call("c1", ARGUMENTS)]},
    ],
    "text and call": [_USER, _blocks("assistant", _text("let me see"), _mastra_call("c1", TEXT))],
}


def _before_haystack_2_12(item: dict[str, Any]) -> dict[str, Any]:
    return {f"_{key}": value for key, value in item.items()}


HAYSTACK_OLD: Case = {n: [*map(_before_haystack_2_12, items)] for n, items in HAYSTACK.items()}

REPRS: Case = {
    "text": [
        "ChatMessage(role=<MessageRole.USER: 'user'>, content='weather?')",
        "ChatMessage(role=<MessageRole.ASSISTANT: 'assistant'>, content='fine')",
    ],
    "call": [_USER, {"role": "assistant", "content": _REPR}],
    "text and call": [
        _USER,
        {
            "role": "assistant",
            "content": "[TextBlock(citations=None, text='let me see', type='text'), "
            f"ToolUseBlock(id='c1', input={ARGUMENTS}, name='w', type='tool_use')]",
        },
    ],
    "result": [
        _USER,
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

FORMS: dict[str, Case] = {
    "openai chat": CHAT,
    "openai chat, a refusal as a part": CHAT_REFUSAL_PART,
    "openai chat, a custom tool": CHAT_CUSTOM_TOOL,
    "openai chat, the old functions": CHAT_FUNCTIONS,
    "openrouter": OPENROUTER,
    "responses": RESPONSES,
    "responses, a custom tool": RESPONSES_CUSTOM_TOOL,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "gemini, with every field": GEMINI_DUMPED,
    "bedrock": BEDROCK,
    "langchain": LANGCHAIN,
    "langchain, constructors": LANGCHAIN_CONSTRUCTORS,
    "langchain, data": LANGCHAIN_DATA,
    "genai": GENAI,
    "ai sdk": AI_SDK,
    "ai sdk 4": AI_SDK_4,
    "ai sdk, for an interface": AI_SDK_INTERFACE,
    "ai sdk 4, for an interface": AI_SDK_INTERFACE_4,
    "pydantic ai": PYDANTIC_AI,
    "autogen": AUTOGEN,
    "llamaindex": LLAMAINDEX,
    "haystack": HAYSTACK,
    "genkit": GENKIT,
    "mastra": MASTRA,
    "pairs": PAIRS,
}
"""Every form that a caller, a span or a request may have, with the cases that it can express."""
CASES = [(form, case) for form, cases in FORMS.items() for case in cases]
