"""Parts of a message's content in the form of any provider or library.

This module reads OpenTelemetry's parts, OpenAI's chat and Responses API, Anthropic's blocks,
Bedrock's blocks, Gemini parts, the AI SDK from version 4 to 7, Pydantic AI, Semantic Kernel and
Haystack. A part is a text, a tool call, a tool's result, or a mapping that stays as it is: an
image, a thought, or a part of an unknown kind (see `kinds.unknown_kind`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..model import ToolCall
from .call_outcome import recorded_outcome
from .kinds import TEXTS, TYPES, first_of, is_missing_text, kind_of, plain_name
from .provider_tools import as_parts, executor_of
from .python_objects import literal_of, plain_data
from .values import parse_arguments, text_of

__all__ = [
    "Part",
    "Result",
    "is_explicit",
    "read_call",
    "read_parts",
    "read_result",
]


class Result(NamedTuple):
    """A tool's answer to a call.

    Attributes:
        call_id: The call's id, or "".
        content: The result as text, or None if it is missing.
        name: The tool's name, or "".
        is_error: Whether the tool failed, as the fields next to the content record it; None if they
            do not record it.
        parts: Content other than text, such as an image.
    """

    call_id: str
    content: str | None
    name: str = ""
    is_error: bool | None = None
    parts: tuple[Mapping[str, Any], ...] = ()


Part = str | ToolCall | Result | Mapping[str, Any]

_CALLS = frozenset(
    {
        "chatcompletionmessagefunctiontoolcall",
        "chatcompletionmessagetoolcall",
        "custom",
        "customtoolcall",
        "function",
        "functioncall",
        "responsecustomtoolcall",
        "responsefunctiontoolcall",
        "toolcall",
        "tooluse",
    }
)
_RESULTS = frozenset(
    {
        "functioncalloutput",
        "functionresponse",
        "functionresult",
        "toolcallresponse",
        "toolcallresult",
        "toolerror",
        "tooloutput",
        "toolresponse",
        "toolresult",
        "toolreturn",
    }
)
_MEDIA = frozenset(
    {
        *("audio", "document", "file", "image", "imageurl", "inputaudio", "inputfile"),
        *("inputimage", "reasoning", "redactedthinking", "refusal", "thinking", "video"),
        # AI SDK's
        *("media", "filedata", "fileid", "fileurl", "imagedata", "imagefileid"),
    }
)
# The assistant declines to answer; the text is in one of two fields.
_REFUSAL = "refusal"
_NAMES = ("name", "toolName", "tool_name", "functionName", "FunctionName", "function_name")
_OTHER_NAMES = frozenset(_NAMES) - {"name"}
_ARGUMENTS = ("arguments", "args", "input", "parameters", "Arguments", "tool_kwargs")
_PLUGINS = ("pluginName", "PluginName")
_PLUGIN_KEYS = frozenset(_PLUGINS)
_FAILURES = frozenset({"error", "isError", "is_error", "status"})
_ACTIONS = ("action", "actions", "operation")
_CALL_IDS = (
    "call_id",
    "callId",
    "tool_call_id",
    "toolCallId",
    "tool_use_id",
    "toolUseId",
    "id",
    "Id",
)
_OTHER_IDS = frozenset(_CALL_IDS) - {"id"}
_VALUES = ("response", "result", "output", "content", "Result")
_VALUE_KEYS = frozenset(_VALUES)
# AI SDK's typed results: text, json, content, and the two errors.
DENIED = "Tool execution denied."


def is_explicit(item: Any) -> bool:
    """Whether an item is marked as a part, and is therefore not an application's data."""
    if not isinstance(item, dict):
        return False
    kind = kind_of(item)
    if kind in TEXTS or (not kind and set(item) == {"text"}):
        return isinstance(first_of(item, ("text", "content")), str)
    if kind in _CALLS or kind in _RESULTS:
        return True
    return kind in _MEDIA or (not kind and _inner(item) is not None)


def read_parts(value: Any) -> Sequence[Part]:
    """The parts in one item of a message's content.

    Args:
        value: The item: a text, or a part in any form; anything else is a part of unknown kind.
    """
    if type(value) is str:
        return (value,)
    if type(value) is dict:
        return _read(value)
    fields = plain_data(value)
    if isinstance(fields, dict):
        return _read(fields)
    if isinstance(value, ToolCall):
        return (value,)
    return () if value is None else ({"type": "unknown", "value": value},)


def _read(part: Mapping[str, Any]) -> Sequence[Part]:
    kind = kind_of(part)
    if kind in TEXTS:
        text = part.get("content", part.get("text"))
        if type(text) is str and "thought" not in part:
            return (text,)
        return (part if is_missing_text(part) else _text(part),)
    if kind in _CLIENT_CALLS and "state" not in part and (call := read_call(part)):
        return (call,)
    if kind in _CLIENT_RESULTS and not _VALUE_KEYS.isdisjoint(part):
        return (read_result(part),)
    inner = _inner(part)
    if inner is not None:
        return inner
    if not kind and isinstance(part.get("text"), str):
        return (_text(part),)
    own = None if kind in _CLIENT_CALLS or kind in _CLIENT_RESULTS else as_parts(part, kind)
    if own is not None:
        return _of_provider(own)
    if kind == _REFUSAL:
        return _of_refusal(part)
    if kind == "document" and (text := _text_of_document(part)) is not None:
        return (text,)
    if kind in _RESULTS or kind.endswith("calloutput") or (not kind and _is_result(part)):
        return (read_result(part),)
    if "toolCallId" in part and "state" in part and _is_interface_call(kind):
        return _of_interface(part, kind)
    if kind == "dynamictool":
        return _of_interface(part, "")
    if kind in _CALLS or _is_client_call(part, kind) or (not kind and _is_call(part)):
        return (read_call(part) or read_call(_printed(part)) or part,)
    if kind == "retryprompt":
        return (Result(_id(part), text_of(part.get("content")), _name(part), is_error=True),)
    if kind in ("userprompt", "systemprompt"):
        return _of_prompt(part.get("content"))
    if not kind and isinstance(part.get("content"), str):
        return (part["content"],)
    return (_named(part),) if set(part) - {"cachePoint"} else ()


# Parts of calls that the agent runs. They are not compared with the provider's tools.
_CLIENT_CALLS = frozenset({"toolcall", "tooluse"})
_CLIENT_RESULTS = frozenset({"toolcallresponse", "toolresult"})


def _of_provider(parts: Sequence[Mapping[str, Any]]) -> Sequence[Part]:
    """Return calls and results of a tool that the provider runs."""
    return [
        (read_call(part) or part) if part["type"] == "tool_call" else read_result(part)
        for part in parts
    ]


def _of_refusal(part: Mapping[str, Any]) -> Sequence[Part]:
    """A refusal's text, and the mark of a refusal."""
    text = next((part[key] for key in ("refusal", "content", "text") if part.get(key)), None)
    mark = {"type": _REFUSAL}
    return (text, mark) if isinstance(text, str) else (mark,)


def _text_of_document(part: Mapping[str, Any]) -> str | None:
    """The text of a document that is data, such as Cohere's results; None for a file."""
    document = part.get("document")
    return text_of(document.get("data")) if isinstance(document, Mapping) else None


def _is_interface_call(kind: str) -> bool:
    return kind.startswith("tool") and "approval" not in kind


def _printed(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call in a part whose content is a dict of the call's fields, as Python prints it."""
    content = part.get("content")
    literal = literal_of(content) if isinstance(content, str) else None
    return literal if isinstance(literal, dict) else {}


def _of_prompt(content: Any) -> Sequence[Part]:
    items = content if isinstance(content, list) else [content]
    return [part for item in items for part in read_parts(item)]


def _text(part: Mapping[str, Any]) -> Part:
    content = part.get("content", part.get("text", part.get("value")))
    if isinstance(content, dict) and "value" in content:
        content = content["value"]
    text = text_of(content) or ""
    return {"type": "reasoning", "content": text} if part.get("thought") is True else text


def _inner(part: Mapping[str, Any]) -> Sequence[Part] | None:
    """The parts in a part that names its kind by its only key, as Gemini and Bedrock do."""
    for key, value in part.items():
        if not isinstance(value, dict):
            continue
        name = plain_name(str(key))
        if name in _PROVIDER_KEYS and (own := as_parts(value, name)) is not None:
            return _of_provider(own)
        if name == "toolinvocation":
            return _of_interface(value, "")
        if "ref" in value:
            value = {**value, "id": value["ref"]}  # Genkit's
        if name in ("functionresponse", "toolresult", "toolcallresult", "toolresponse"):
            return (_inner_result(value, name),)
        if name in ("functioncall", "tooluse", "toolcall", "toolrequest"):
            call = read_call(value)
            return None if call is None else (call,)
    return None


# Keys of Gemini's parts for tools of the provider; two of them are also used for other tools.
_PROVIDER_KEYS = ("executablecode", "codeexecutionresult", "toolcall", "toolresponse")


def _inner_result(value: Mapping[str, Any], name: str) -> Result:
    """A result under a key for results."""
    if name == "functionresponse":
        result = read_result({"call_id": value.get("id"), **value})
        response = value.get("response")
        failed = isinstance(response, dict) and response.get("error") not in (None, "", False)
        return result._replace(is_error=failed or result.is_error)
    if isinstance(value.get("content"), list):
        value = {**value, "content": [_block(block) for block in value["content"]]}
    return read_result(value)


def _block(block: Any) -> Any:
    """Return one block of a Bedrock result with its kind as a field."""
    if not isinstance(block, dict) or "type" in block:
        return block
    return {"type": next(iter(block), ""), **block}


def _named(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part that stays as it is, with the kind that its only key names."""
    if kind_of(part):
        return part
    keys = [key for key, value in part.items() if value is not None and key != "metadata"]
    key = next((key for key in keys if isinstance(part[key], dict)), next(iter(keys), "unknown"))
    return {"type": "reasoning" if key == "reasoningContent" else key, **part}


def _is_call(part: Mapping[str, Any]) -> bool:
    return first_of(part, _NAMES) is not None and first_of(part, _ARGUMENTS) is not None


def _is_result(part: Mapping[str, Any]) -> bool:
    has_id = first_of(part, _CALL_IDS[:-2]) is not None
    return has_id and first_of(part, _VALUES) is not None


def _is_client_call(part: Mapping[str, Any], kind: str) -> bool:
    """Whether an item of the Responses API is a call that the client runs itself."""
    is_call = kind.endswith("call") and not kind.startswith("server")
    return is_call and part.get("call_id") is not None


def _name(fields: Mapping[str, Any]) -> str:
    name = fields.get("name")
    if name is None:
        if _OTHER_NAMES.isdisjoint(fields):
            return ""
        name = first_of(fields, _NAMES)
    if name and not _PLUGIN_KEYS.isdisjoint(fields):
        return f"{first_of(fields, _PLUGINS)}-{name}"
    return str(name or "")


def _id(fields: Mapping[str, Any]) -> str:
    if _OTHER_IDS.isdisjoint(fields):
        return str(fields.get("id") or "")
    return str(first_of(fields, _CALL_IDS) or "")


def read_call(value: Any) -> ToolCall | None:
    """A call of a tool in any form, or None if nothing names the tool."""
    if isinstance(value, ToolCall):
        return value
    value = value if isinstance(value, dict) else plain_data(value)
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("payload"), dict) and "toolName" in value["payload"]:
        value = value["payload"]  # Mastra's
    function = value.get("function", value.get("custom"))
    source = function if isinstance(function, dict) else value
    name = function if isinstance(function, str) else _name(source)
    if not name and _is_client_call(value, kind_of(value)):
        name = str(first_of(value, TYPES)).removesuffix("_call")
    if not name:
        return None
    arguments = source.get("arguments")
    if arguments is None:
        arguments = first_of(source, _ARGUMENTS)
        if arguments is None and source is value:
            arguments = first_of(value, _ACTIONS)
    if isinstance(arguments, dict):
        if "properties" in arguments and "description" in source:
            return None  # the definition of a tool
        if len(arguments) == 1:
            arguments = arguments.get("args_dict", arguments.get("args_json", arguments))
    if not isinstance(arguments, dict):
        arguments = parse_arguments(arguments)
    call_id = _id(value)
    return ToolCall(str(name), arguments, call_id, executed_by=executor_of(value, call_id))


def read_result(part: Mapping[str, Any], text: str | None = None) -> Result:
    """A tool's result in any form.

    Args:
        part: The result: a part, or a message of a tool.
        text: The result's text, if it is known already.
    """
    origin = part.get("origin")
    if isinstance(origin, dict):
        # Haystack writes False for each tool that did not raise.
        identity = {"id": origin.get("id"), "name": origin.get("tool_name")}
        part = {**part, **identity, "error": part.get("error") or None}
    value, failed = _outcome(part) if text is None else (text, False)
    content, blocks = (value, ()) if type(value) is str else _content(value)
    recorded = True if failed else None
    if not failed and not _FAILURES.isdisjoint(part):
        recorded = recorded_outcome(part.get)
    return Result(_id(part), content, _name(part), recorded, blocks)


def _outcome(part: Mapping[str, Any]) -> tuple[Any, bool]:
    """A result's value, and whether it reports a failure."""
    for key in _VALUES:
        if part.get(key) is not None:
            break
    else:
        error = part.get("error", part.get("errorText"))
        return (error, True) if isinstance(error, (str, Mapping)) and error else (None, False)
    value = part[key]
    if key == "response" and isinstance(value, dict):
        return value, _is_failure(value)
    if key != "output" or not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return value, False
    kind = value["type"]
    if kind == "execution-denied":
        return value.get("reason") or DENIED, False
    return (value["value"], kind.startswith("error")) if "value" in value else (value, False)


def _is_failure(response: Mapping[str, Any]) -> bool:
    """Whether a function response reports a failure: Gemini's then has only the error."""
    return set(response) == {"error"} and bool(response["error"])


def _content(value: Any) -> tuple[str | None, tuple[Mapping[str, Any], ...]]:
    """A result as text, and its parts that are not text."""
    if not isinstance(value, list) or not value or not all(map(_is_block, value)):
        return text_of(value), ()
    texts: list[str] = []
    blocks: list[Mapping[str, Any]] = []
    for block in value:
        if kind_of(block) == "json" and "json" in block:
            texts.append(text_of(block["json"]) or "")
        elif kind_of(block) in TEXTS:
            text = _text(block)
            texts.append(text if isinstance(text, str) else "")
        else:
            blocks.append(block)
    return ("\n".join(texts) if texts else None), tuple(blocks)


def _is_block(item: Any) -> bool:
    """Whether an item of a result is a block of content, and not the tool's own data."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return False
    kind = kind_of(item)
    if kind in TEXTS:
        return isinstance(item.get("text", item.get("content")), str)
    return kind in _MEDIA or kind in ("json", "resource")


def _of_interface(part: Mapping[str, Any], kind: str) -> Sequence[Part]:
    """The call of an AI SDK message for an interface, and its result if there is one."""
    name = _name(part) or (str(part.get("type"))[len("tool-") :] if kind else "")
    call = read_call({**part, "name": name, "function": None})
    if call is None:
        return (part,)
    value = part.get("errorText") or first_of(part, ("output", "result"))
    if value is None:
        return (call,)
    failed = bool(part.get("errorText")) or part.get("state") == "output-error"
    return (call, Result(call.id, text_of(value), name, is_error=failed or None))
