"""Who says a message, whatever spelling the emitter uses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["ROLES", "role_of"]

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_SPELLINGS = {
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "function": "tool",
    "functionresponse": "tool",
    "gpt": "assistant",
    "human": "user",
    "ipython": "tool",
    "llm": "assistant",
    "model": "assistant",
    "observation": "tool",
    "toolresult": "tool",
}
# Serialised enumerations: ``{"Label": "user"}`` of Semantic Kernel, ``{"value": ...}`` of others.
_ENUM_KEYS = ("value", "Value", "label", "Label", "name")


def role_of(value: Any) -> str:
    """Return one of `ROLES` for any of its spellings; a role that is not known stays as it is.

    Args:
        value: The role, such as ``user``, ``Human``, ``MessageRole.USER`` or ``HumanMessage``.

    Returns:
        The role, or "" where the value names none.
    """
    if isinstance(value, dict):
        value = next((value[key] for key in _ENUM_KEYS if key in value), "")
    return _role_of_text(value) if isinstance(value, str) else ""


@lru_cache(maxsize=1024)
def _role_of_text(text: str) -> str:
    text = text.strip()
    name = text.rpartition(".")[2].lower().removeprefix("role_")
    name = name.removesuffix("chunk").removesuffix("message").strip("_-")
    found = _SPELLINGS.get(name, name)
    return found if found in ROLES else text
