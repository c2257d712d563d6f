"""Results of tools in the form of MCP: blocks of content, with or without the flag of a failure.

Some instrumentations write the result object as JSON, others as Python prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .call_outcome import recorded_outcome
from .kinds import TEXTS, kind_of
from .python_reprs import object_of, printed_fields
from .values import parse

__all__ = ["content_of"]

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
    texts = [_text_of(block) for block in blocks] if isinstance(blocks, list) else []
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


def _text_of(block: Any) -> str | None:
    """The text of a block, or None for data and for any other kind of content."""
    if not isinstance(block, Mapping) or kind_of(block) not in TEXTS:
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None
