"""The kind of a part of a message, as its provider or library names it.

Kinds are compared in lower case, without "-" and "_".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = [
    "TEXTS",
    "TYPES",
    "first_of",
    "is_fragment",
    "is_missing_text",
    "is_reasoning",
    "is_written_by_model",
    "kind_of",
    "plain_name",
    "reasoning_text",
    "transcript_of",
    "unknown_kind",
]

TEXTS = frozenset({"text", "inputtext", "outputtext"})
TYPES = ("type", "$type", "part_kind", "content_type", "block_type", "kind")
# Known kinds that a message has no field for: kept as parts.
_KEPT = (
    *("additionaltools", "annotation", "approval", "audio", "binary", "blob", "citation"),
    *("compaction", "configurationupdate", "container", "document", "fallback", "file", "guard"),
    *("image", "inlinedata"),
    *("inputjsondelta", "json", "mcp", "media", "memory", "reason", "refusal", "search"),
    *("servertool", "skill", "source", "stepstart", "think", "tooladdition", "toolremoval"),
    *("uri", "url", "video"),
)


def first_of(fields: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The first value under some keys that is not None, or None."""
    for key in keys:
        value = fields.get(key)
        if value is not None:
            return value
    return None


# The kind of every part is looked up several times, and there are few kinds.
@lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """A name in lower case, without separators."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


@lru_cache(maxsize=1024)
def _bare(name: str) -> str:
    kind = plain_name(name)
    for suffix in ("content", "block", "part", "param"):
        kind = kind.removesuffix(suffix) or kind
    return kind


def kind_of(part: Mapping[str, Any]) -> str:
    """A part's kind, "" if it names none."""
    type_name = part.get("type")
    if type(type_name) is str and type_name:
        return _bare(type_name)
    return _bare(str((first_of(part, TYPES) if type_name is None else type_name) or ""))


def unknown_kind(part: Mapping[str, Any]) -> str:
    """The kind of a part if no known provider writes it, or "" for a known kind."""
    kind = kind_of(part)
    if kind in TEXTS or any(word in kind for word in _KEPT):
        return ""
    return str(first_of(part, TYPES) or ", ".join(map(str, part)) or "an empty part")


def is_missing_text(part: Mapping[str, Any]) -> bool:
    """Whether a part announces a text that it does not contain."""
    if part.get("text") is not None or part.get("content") is not None:
        return False
    return kind_of(part) in TEXTS and part.get("value") is None


def is_reasoning(part: Mapping[str, Any]) -> bool:
    """Whether a part is the model's reasoning."""
    kind = kind_of(part)
    return "reason" in kind or "think" in kind


_REASONING_TEXTS = (
    *("content", "thinking", "text", "reasoning", "summary"),
    *("reasoningContent", "reasoningText"),
)


def reasoning_text(part: Mapping[str, Any]) -> str:
    """The text of a reasoning part in any provider's form."""
    for key in _REASONING_TEXTS:
        value = part.get(key)
        if isinstance(value, Mapping):
            value = reasoning_text(value)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            texts = [item.get("text") for item in value if isinstance(item, Mapping)]
            joined = "\n\n".join(text for text in texts if isinstance(text, str))
            if joined:
                return joined
    return ""


def is_written_by_model(part: Mapping[str, Any]) -> bool:
    """Whether only a model writes parts of a part's kind."""
    kind = kind_of(part)
    return (
        kind == "outputtext"
        or kind.endswith("call")
        or kind.startswith("mcp")
        or is_reasoning(part)
    )


def transcript_of(part: Mapping[str, Any]) -> str:
    """The transcript of a part of audio, or "" if it has none."""
    transcript = part.get("transcript")
    return transcript if isinstance(transcript, str) and "audio" in kind_of(part) else ""


def is_fragment(part: Mapping[str, Any]) -> bool:
    """Whether a part is a piece of a streamed call's arguments."""
    return kind_of(part) == "inputjsondelta"
