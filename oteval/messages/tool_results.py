"""Results of tools, as instrumentations record them.

A result in the form of MCP consists of blocks of content, with or without the flag of a failure;
some instrumentations write the result object as JSON, others as Python prints it. A framework's
tool returns the value itself, or a message or an envelope around it. The envelope has the call's id
or records whether the tool failed: LangChain's ``ToolMessage``, LlamaIndex's ``ToolOutput`` or
Agno's ``FunctionExecutionResult``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .call_outcome import recorded_outcome
from .kinds import TEXTS, kind_of
from .langchain import tool_message
from .parts import Result
from .python_objects import object_of, printed_fields
from .values import parse, text_of

__all__ = [
    "content_of",
    "returned_value",
]

_FLAGS = ("isError", "is_error")
_PRINTED = ("_meta=", "meta=", "content=[")


def content_of(result: Any) -> tuple[Any, bool | None]:
    """The text of a result that consists of blocks of text, and whether the call failed.

    Args:
        result: The result as recorded in its span.

    Returns:
        The text, or the result itself if it has another form; and the flag of the failure, None if
        it has none.
    """
    value = _fields(result) if isinstance(result, str) else result
    if value is None:
        return result, None
    blocks, flag = value, None
    if isinstance(value, Mapping) and any(isinstance(value.get(key), bool) for key in _FLAGS):
        blocks, flag = value.get("content"), recorded_outcome(value.get)
    texts = [_block_text(block) for block in blocks] if isinstance(blocks, list) else []
    plain_texts = [text for text in texts if text is not None]
    return (
        "\n".join(plain_texts) if plain_texts and len(plain_texts) == len(texts) else result
    ), flag


def _fields(text: str) -> Any:
    """The blocks in a text, or the object that contains them."""
    if text[:1] in ("{", "["):
        parsed = parse(text)
        value = None if parsed.truncated else parsed.value
        return value if isinstance(value, (list, Mapping)) else object_of(text)
    if text.startswith(_PRINTED):
        return printed_fields(text, "CallToolResult")
    return object_of(text) if "Result(" in text[:_LONGEST_NAME] else None


_LONGEST_NAME = 40


def _block_text(block: Any) -> str | None:
    """The text of a block, or None for data and for any other kind of content."""
    if not isinstance(block, Mapping) or kind_of(block) not in TEXTS:
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


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
