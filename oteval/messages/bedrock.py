"""Messages of the Bedrock Converse API: lists of blocks, each identified by its only key.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Message
from .reader import from_messages
from .sources import MessageSource
from .values import hidden, parse, text_of

__all__ = ["from_blocks", "result_of"]


def from_blocks(role: str, value: Any, source: MessageSource) -> list[Message]:
    """The messages of one message's blocks.

    Args:
        role: The role of its author; results in a user's message become messages of tools.
        value: The blocks, as a list or as its JSON text; any other text is the message itself.
        source: Where they were read.
    """
    blocks = None if hidden(value) else parse(value).value
    content: Any = text_of(value)
    if isinstance(blocks, list) and all(isinstance(block, Mapping) for block in blocks):
        content = [block for block in blocks if block.keys() != {"cachePoint"}]
    return from_messages([{"role": role, "content": content}], source) if content else []


def result_of(value: Any) -> Any:
    """A tool's result: its one text or value, several texts joined, otherwise the blocks.

    Args:
        value: The result's blocks, as a list or as its JSON text.
    """
    blocks = None if hidden(value) else parse(value).value
    if not isinstance(blocks, list) or not blocks:
        return value
    if not all(isinstance(block, Mapping) for block in blocks):
        return value
    if len(blocks) == 1 and "json" in blocks[0]:
        return blocks[0]["json"]
    texts = [text_of(block.get("text", block.get("json"))) for block in blocks]
    parts = [text for text in texts if text is not None]
    return "\n".join(parts) if len(parts) == len(texts) else value
