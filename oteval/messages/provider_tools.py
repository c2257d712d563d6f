"""Calls of tools that the model's provider runs itself, such as a web search, and their results.

Each API has other blocks or items for them. `as_parts` returns them in the form of
OpenTelemetry's ``tool_call`` and ``tool_call_response`` parts, which `parts` reads. Facts from the
types of OpenAI's, Anthropic's and Google's Python clients, from Bedrock's ``ContentBlock``, and
from the sources of LangChain, Pydantic AI and the AI SDK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..model import PROVIDER
from .kinds import first_of

__all__ = ["PROVIDER_IDS", "as_parts", "executor_of"]

PROVIDER_IDS = ("srvtoolu_", "mcptoolu_")
"""How Anthropic's ids of such calls begin; often nothing else shows who runs the tool."""

# Kinds in lower case, without "_" and "-".
_CALLS = frozenset({"builtintoolcall", "mcptooluse", "servertoolcall", "servertooluse"})
_RESULTS = frozenset({"builtintoolreturn", "servertoolcallresponse", "servertoolresult"})
_CODE, _CODE_RESULT = "executablecode", "codeexecutionresult"
_CODE_TOOL = "code_execution"
_GEMINI = ("toolcall", "toolresponse")
_OUTPUTS = frozenset({"programoutput", "toolsearchoutput"})
# Items of calls that the agent runs, even if they have no id that the result repeats.
_CLIENT_ITEMS = frozenset(
    {
        *("applypatchcall", "computercall", "customtoolcall", "functioncall"),
        *("localshellcall", "toolcall"),
    }
)
_HOSTED = ("container_auto", "container_reference")
_FLAGS = frozenset({"builtin", "providerExecuted", "provider_executed"})
_MARKS = _FLAGS | {"executed_by"}
_TYPES = ("server_tool_use", "mcp_tool_use", "server_tool_call", "builtin-tool-call")
# A list of tools is not a call, though one instrumentation writes it as one.
_LISTS = ("mcp_list_tools", "mcp_tool_listing")
_ARGUMENTS = ("arguments", "args", "input")
_VALUES = ("output", "outputs", "result", "results")
# Results whose kind does not name the tool.
_NAMELESS = ("mcp_tool_result", "server_tool_call_response", "server_tool_result")
_PAYLOADS = ("server_tool_call_response", "response", "result", "output", "content")
# Fields of an item that are neither its arguments nor its result.
_OTHERS = frozenset(
    {
        *("annotations", "approval_request_id", "async_", "call_id", "caller", "container_id"),
        *("created_by", "environment", "error", "execution", "extras", "fingerprint", "id"),
        *("index", "name", "namespace", "role", "server_label", "server_name", "status", "type"),
        *_VALUES,
    }
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDS = ("_block", "_param", "_tool_result", "_output", "_call")


def executor_of(fields: Mapping[str, Any], call_id: str) -> str:
    """`PROVIDER` if a call states that the provider runs it, else "".

    Args:
        fields: The call.
        call_id: Its id.
    """
    if call_id.startswith(PROVIDER_IDS) or fields.get("type") in _TYPES:
        return PROVIDER
    if _MARKS.isdisjoint(fields):
        return ""
    is_flagged = any(fields.get(flag) is True for flag in _FLAGS)
    return PROVIDER if is_flagged or fields.get("executed_by") == PROVIDER else ""


def as_parts(part: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]] | None:
    """The call, the result, or both, in a part of a provider's own tool.

    Args:
        part: The part, or the fields inside a part that names its kind by its only key.
        kind: Its kind, in lower case, without "_" and "-".

    Returns:
        The parts in OpenTelemetry's form; None if the part is of another kind.
    """
    if kind in _CALLS:
        return None if part.get("name") in _LISTS else _of_call(part)
    if kind in _RESULTS or (kind.endswith("toolresult") and kind != "toolresult"):
        return (_of_result(part),)
    if kind == _CODE:
        return (_call(part.get("id"), _CODE_TOOL, _rest(part)),)
    if kind == _CODE_RESULT:
        return (_of_code_result(part),)
    if kind in _GEMINI and part.get("tool_type", part.get("toolType")):
        return (_of_gemini(part, kind),)
    if kind in _OUTPUTS:
        value = part.get("tools", part.get("result"))
        return (_result(part.get("call_id"), _named(part), value, is_error=_failed(part)),)
    return _of_item(part) if _is_item(part, kind) else None


def _is_item(part: Mapping[str, Any], kind: str) -> bool:
    """Whether an item of the Responses API is a call that the provider runs.

    A call that the agent runs has an id that its result repeats, ``call_id``. An unknown item
    without a ``call_id`` counts as the provider's.
    """
    if kind == "program" or part.get("execution") == "server":
        return True
    if kind == "shellcall":
        environment = part.get("environment")
        return isinstance(environment, Mapping) and environment.get("type") in _HOSTED
    if not kind.endswith("call") or kind in _CLIENT_ITEMS or part.get("execution") == "client":
        return False
    return part.get("call_id") is None and "tool_call_id" not in part


def _of_call(part: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The call in a block, with the result if its payload contains one."""
    payload = part.get("server_tool_call")
    call_id = part.get("id", part.get("tool_call_id"))
    name = part.get("name", part.get("tool_name"))
    if not isinstance(payload, Mapping):
        arguments = payload if payload is not None else first_of(part, _ARGUMENTS)
        return (_call(call_id, name or _named(part), arguments),)
    return _of_item(payload, name=str(name or ""), call_id=call_id)


def _of_item(
    item: Mapping[str, Any], *, name: str = "", call_id: Any = None
) -> Sequence[Mapping[str, Any]]:
    """The call in an item, and its result if it contains one.

    Args:
        item: The fields.
        name: The tool's name, if the item does not have it.
        call_id: The call's id, if the item does not have it.
    """
    call_id = call_id or item.get("call_id") or item.get("id")
    name = name or _named(item)
    action = item.get("action")
    action = action if isinstance(action, Mapping) else {}
    arguments = first_of(item, _ARGUMENTS)
    if arguments is None:
        arguments = {key: value for key, value in action.items() if key != "sources"}
        arguments = _known(arguments) if action else _rest(item)
    call = _call(call_id, name, arguments)
    value = first_of(item, _VALUES)
    value = action.get("sources") if value is None else value
    if name == "image_generation" and isinstance(value, str):
        value = [{"type": "image", "data": value}]
    failed = _failed(item)
    if value is None and not failed:
        return (call,)
    value = (item.get("error") or value or item.get("status")) if failed else value
    return call, _result(call_id, name, value, is_error=failed)


def _of_result(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result in a block."""
    value = first_of(part, _PAYLOADS)
    call_id = next((part[key] for key in ("tool_use_id", "tool_call_id") if part.get(key)), None)
    failed = _failed(part) or (isinstance(value, Mapping) and _failed(value))
    name = part.get("name", part.get("tool_name"))
    name = name or ("" if part.get("type") in _NAMELESS else _named(part))
    return _result(call_id or part.get("id"), name, value, is_error=failed)


def _of_code_result(part: Mapping[str, Any]) -> Mapping[str, Any]:
    outcome = str(part.get("outcome") or "").rpartition(".")[2]
    failed = outcome not in ("", "OUTCOME_OK", "OUTCOME_UNSPECIFIED")
    output = part.get("output")
    text = (outcome if failed else "") if output is None else output
    return _result(part.get("id"), _CODE_TOOL, text, is_error=failed)


def _of_gemini(part: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A call or a result of one of Gemini's tools, which a type names."""
    tool = part.get("tool_type", part.get("toolType"))
    name = str(tool).rpartition(".")[2].lower()
    if kind.endswith("response"):
        return _result(part.get("id"), name, part.get("response"), is_error=_failed(part))
    return _call(part.get("id"), name, part.get("args"))


def _failed(fields: Mapping[str, Any]) -> bool:
    """Whether an item or a payload reports that the tool failed."""
    is_error = str(fields.get("type") or "").endswith("_error")
    return (
        is_error
        or fields.get("is_error") is True
        or fields.get("status") in ("error", "failed")
        or fields.get("error") not in (None, "", False)
    )


def _call(call_id: Any, name: Any, arguments: Any) -> Mapping[str, Any]:
    call = {"type": "tool_call", "id": call_id, "name": name, "executed_by": PROVIDER}
    return {**call, "arguments": arguments}


def _result(call_id: Any, name: Any, value: Any, *, is_error: bool) -> Mapping[str, Any]:
    fields = {"type": "tool_call_response", "id": call_id, "name": name}
    # A provider reports failures only.
    return {**fields, "result": value, **({"is_error": True} if is_error else {})}


def _named(item: Mapping[str, Any]) -> str:
    """The tool's name: an item's own, or else the name in its kind."""
    name = item.get("name")
    if isinstance(name, str) and name:
        return name
    return _tool_of(str(item.get("type") or "tool"))


@lru_cache(maxsize=256)
def _tool_of(kind: str) -> str:
    name = _CAPITAL.sub("_", kind).lower().replace("-", "_")
    for end in _ENDS:
        name = name.removesuffix(end) or name
    return name


def _rest(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that are its arguments."""
    return _known({key: value for key, value in item.items() if key not in _OTHERS})


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
