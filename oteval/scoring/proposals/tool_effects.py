"""Whether a tool changes something, by its hints, its name and its description.

MCP's hints in a tool's definition decide. Otherwise the verb in the name does, and for a name
without a known verb the first word of the description. A tool that is neither is `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

__all__ = ["ToolEffect", "effect_of"]


class ToolEffect(Enum):
    """The effect of a tool's calls."""

    READS = "reads"
    WRITES = "writes"
    DESTROYS = "destroys"
    UNKNOWN = "unknown"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS = _words(
    """
    analyze ask browse calculate check classify compare compute count describe detect estimate
    explain extract fetch find get has inspect is list load lookup look open parse plan predict
    preview query rank read recall recommend respond retrieve search select show status summarize
    summarise think translate validate verify view
    """
)
_DESTROYS = _words(
    """
    cancel clear deactivate delete destroy disable drop erase kill purge refund remove reset revoke
    shutdown terminate truncate uninstall void wipe
    """
)
_WRITES = _words(
    """
    activate add apply append approve assign authorize block book buy capture change charge commit
    confirm convert create credit deploy deposit disburse edit email enable exchange execute
    expire file grant insert install invite invoice issue log mark merge modify move notify order
    overwrite patch pay place post publish purchase push put register reject release rename
    replace reply reschedule reserve return run save schedule sell send set share ship sign store
    submit subscribe suspend swap tag transfer trigger unlock unsubscribe update upload upgrade
    withdraw write
    """
)
# A transfer to a person or to another agent ends the run and changes no data.
_HANDED_TO = _words("agent agents human humans operator person specialist support")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def effect_of(name: str, definition: Mapping[str, Any] | None = None) -> ToolEffect:
    """The effect of a tool's calls.

    Args:
        name: The tool's name.
        definition: Its definition without a wrapper, if the trace has it.
    """
    definition = definition or {}
    hints = definition.get("annotations")
    if isinstance(hints, Mapping):
        if hints.get("readOnlyHint") is True:
            return ToolEffect.READS
        if hints.get("destructiveHint") is True:
            return ToolEffect.DESTROYS
        if hints.get("readOnlyHint") is False:
            return ToolEffect.WRITES
    effect = _by_words([word.lower() for word in _WORD.findall(name)])
    description = definition.get("description")
    if effect is ToolEffect.UNKNOWN and isinstance(description, str):
        first = [word.lower() for word in _WORD.findall(description[:80])][:1]
        effect = _by_words([form for word in first for form in _verbs(word)])
    return effect


def _by_words(words: list[str]) -> ToolEffect:
    if not words or words[0] in _READS or (words[0] == "transfer" and _HANDED_TO & {*words}):
        return ToolEffect.READS if words else ToolEffect.UNKNOWN
    if _has_any(words, _DESTROYS):
        return ToolEffect.DESTROYS
    if _has_any(words, _WRITES):
        return ToolEffect.WRITES
    return ToolEffect.READS if _has_any(words, _READS) else ToolEffect.UNKNOWN


def _has_any(words: Iterable[str], verbs: frozenset[str]) -> bool:
    return not verbs.isdisjoint(words)


def _verbs(word: str) -> list[str]:
    """A word and its forms without the endings of the third person."""
    forms = [word]
    if word.endswith("s"):
        forms.append(word[:-1])
    if word.endswith("es"):
        forms.append(word[:-2])
    return forms
