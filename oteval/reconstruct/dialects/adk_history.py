"""What Google ADK sends to a model: Gemini contents, and other agents' turns retold as user text.

An agent that takes over from another is told what the other did in user contents that begin with
"For context:", one part a text, call or result. Since ADK 2.8 what is retold stands between
markers; before, it follows on the same line. Where each part can be parsed exactly, the content
becomes again the message that it retells, with the other agent's name; else it stays as it is.

Facts: https://github.com/google/adk-python (``flows/llm_flows/contents.py`` and ``_fencing.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..values import parse

__all__ = ["definitions", "from_contents", "retold"]

_PREAMBLE = "For context:"
_BEGIN, _END = "<<<BEGIN_QUOTED_AGENT_CONTENT>>>", "<<<END_QUOTED_AGENT_CONTENT>>>"
_LINE = re.compile(
    r"\[(?P<agent>[^\]\n]+)\] (?:(?P<said>said|thought)"
    r"|called tool `(?P<call>[^`\n]+)` with parameters"
    r"|`(?P<result>[^`\n]+)` tool returned result):"
    rf"(?: (?P<plain>.*)|\n{_BEGIN}\n(?P<quoted>.*)\n{_END})",
    re.DOTALL,
)
_CALLS = ("function_call", "functionCall")
_RESULTS = ("function_response", "functionResponse")
_PARAMETERS = ("parameters_json_schema", "parametersJsonSchema", "parameters")
_DECLARATIONS = ("function_declarations", "functionDeclarations")


def from_contents(value: Any) -> list[Any]:
    """Return Gemini contents, or the text of one, in the form of parts."""
    if isinstance(value, (Mapping, str)):
        value = [value]
    return [_from_content(item) for item in (value if isinstance(value, list) else [])]


def _from_content(item: Any) -> Any:
    if isinstance(item, str):
        return {"parts": [{"type": "text", "content": item}]}
    if not isinstance(item, Mapping):
        return item
    parts = item.get("parts", [item] if "text" in item else None)
    parts = parts if isinstance(parts, list) else [parts]
    told = [_from_part(part) for part in parts if isinstance(part, (Mapping, str))]
    return {"role": item.get("role"), "parts": told}


def _from_part(part: Mapping[str, Any] | str) -> Any:
    if isinstance(part, str):
        return part
    if part.get("text") is not None:
        kind = "reasoning" if part.get("thought") is True else "text"
        return {"type": kind, "content": part["text"]}
    call, result = _first(part, _CALLS), _first(part, _RESULTS)
    if isinstance(call, Mapping):
        arguments = call.get("args")
        return _call(call.get("name"), {} if arguments is None else arguments, call.get("id"))
    if isinstance(result, Mapping):
        return _result(result.get("name"), result.get("response"), result.get("id"))
    kind = next((key for key, value in part.items() if isinstance(value, Mapping)), "unknown")
    return {"type": kind, **part}


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((fields[key] for key in keys if key in fields), None)


def _call(name: Any, arguments: Any, id_: Any = None) -> dict[str, Any]:
    return {"type": "tool_call", "id": id_, "name": name, "arguments": arguments}


def _result(name: Any, response: Any, id_: Any = None) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": id_, "name": name, "response": response}


def definitions(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the definitions of the functions that a Gemini request's config offers."""
    tools = config.get("tools")
    found = []
    for tool in tools if isinstance(tools, list) else []:
        declared = _first(tool, _DECLARATIONS) if isinstance(tool, Mapping) else None
        for item in declared if isinstance(declared, list) else []:
            if isinstance(item, Mapping):
                found.append(_definition(item))
    return found


def _definition(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": item.get("name"),
        "description": item.get("description"),
        "parameters": _first(item, _PARAMETERS),
    }


def retold(messages: Any) -> list[Any]:
    """Return messages of parts with those that retell another agent's turn told as they were.

    Args:
        messages: The parsed list; anything else gives no messages.
    """
    return [_untold(item) or item for item in (messages if isinstance(messages, list) else [])]


def _untold(item: Any) -> dict[str, Any] | None:
    """Return the message that a user's message retells, or None where it is not that exactly."""
    parts = item.get("parts") if isinstance(item, Mapping) else None
    if not isinstance(parts, list) or len(parts) < 2 or item.get("role") != "user":
        return None
    opening = _text(parts[0])
    if opening is None or not (opening == _PREAMBLE or _is_long_preamble(opening)):
        return None
    agent = ""
    told = []
    for part in parts[1:]:
        text = _text(part)
        found = None if text is None else _LINE.fullmatch(text)
        if text is not None and found is None:
            return None
        if found is None:
            told.append(part)
            continue
        agent = found["agent"]
        meant = _meant(found)
        if meant is None:
            return None
        told.append(meant)
    return {"role": "assistant", "name": agent, "parts": told} if agent else None


def _is_long_preamble(text: str) -> bool:
    return text.startswith(_PREAMBLE) and _BEGIN in text and _END in text


def _text(part: Any) -> str | None:
    if isinstance(part, Mapping):
        part = part.get("content") if part.get("type") == "text" else None
    return part if isinstance(part, str) else None


def _meant(found: re.Match[str]) -> dict[str, Any] | None:
    """Return the part that one line retells, or None where its value is not exact."""
    text = found["quoted"] if found["quoted"] is not None else found["plain"]
    if found["said"]:
        kind = "text" if found["said"] == "said" else "reasoning"
        return {"type": kind, "content": text}
    parsed = parse(text)
    value = None if text == "None" else parsed.value
    if parsed.truncated or isinstance(value, str):
        return None
    if found["call"]:
        return _call(found["call"], {} if value is None else value)
    return _result(found["result"], value)
