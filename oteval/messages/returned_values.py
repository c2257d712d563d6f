"""Return values of tools, as instrumentations record them.

A framework's tool returns the value itself, or a message or an envelope around it. The envelope has
the call's id or records whether the tool failed: LangChain's ``ToolMessage``, LlamaIndex's
``ToolOutput`` or Agno's ``FunctionExecutionResult``. `mcp_results` reads MCP's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .call_outcome import recorded_outcome
from .langchain import tool_message
from .mcp_results import content_of
from .parts import Result
from .python_reprs import printed_fields
from .values import text_of

__all__ = ["returned_value"]


def returned_value(value: Any, as_recorded: Any) -> Result:
    """A tool's result.

    Args:
        value: The parsed return value.
        as_recorded: The value to show if no message or envelope is around it.
    """
    message = tool_message(value) or _envelope(value)
    if message is None:
        return Result("", text_of(as_recorded))
    call_id = str(message.get("tool_call_id") or "")
    content = text_of(message.get("content"))
    return Result(call_id, content, is_error=recorded_outcome(message.get))


def _envelope(value: Any) -> Mapping[str, Any] | None:
    """The fields of a result in an envelope, or None without an envelope."""
    if isinstance(value, str) and value.startswith("status="):
        return _of_agno(printed_fields(value, "FunctionExecutionResult"))
    if not isinstance(value, Mapping):
        return None
    if "raw_output" not in value or {"blocks", "tool_name"}.isdisjoint(value):
        return None
    content = value.get("content", value.get("blocks"))
    content = value["raw_output"] if content in (None, []) else content
    if isinstance(content, list):
        blocks = [{"type": "text", **block} for block in content if isinstance(block, Mapping)]
        text = content_of(blocks)[0] if len(blocks) == len(content) else None
        content = text if isinstance(text, str) else content
    # LlamaIndex writes False for each tool that did not raise, whatever it returned.
    return {**value, "content": content, "is_error": value.get("is_error") or None}


def _of_agno(fields: Any) -> Mapping[str, Any] | None:
    """The fields of an Agno tool's result, which is recorded as a repr."""
    if not isinstance(fields, Mapping) or not {"result", "status"} <= fields.keys():
        return None
    if fields["status"] != "failure":
        return {"content": fields["result"]}
    return {"content": f"Error: {fields.get('error')}", "status": "error"}
