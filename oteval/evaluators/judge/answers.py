"""Read a judge's answer from the text that a model wrote.

Only a finished answer counts: one JSON object that is the whole text, or the whole of one code
fence. Reasoning in a closed ``<think>`` block before it is left out. JSON inside reasoning or prose
may be a draft or a quotation of the run, so it is never taken.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .schema import Unusable

__all__ = ["parse_answer", "parse_json"]

# The tags with which reasoning models mark their reasoning; Kimi writes triangles.
_NAMES = (
    r"(?:[\w-]{1,20}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|"
    r"scratchpad|inner_monologue|chain_of_thought|cot)"
)
_OPENING = re.compile(rf"\s*(?:<(?P<name>{_NAMES})>|\[(?P<square>{_NAMES})\]|◁think▷)", re.I)
_CLOSING = re.compile(rf"</{_NAMES}>|\[/{_NAMES}\]|◁/think▷", re.I)
_FENCES = frozenset({"```", "```json"})


def parse_answer(text: str | None) -> Any:
    """Return the JSON object that is a model's whole answer.

    Args:
        text: The text; None counts as empty.

    Raises:
        Unusable: The text is anything else.
    """
    answer = (text or "").strip()
    if not answer:
        raise Unusable("the answer is empty")
    if not answer.startswith("{"):
        answer = _without_fence(_without_reasoning(answer))
    return parse_json(answer)


def parse_json(text: str) -> Any:
    """Return the object that a JSON text spells out.

    Raises:
        Unusable: The text is not one JSON object, or an object names a key twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise Unusable(f"the answer is no JSON object: {_short(text)}") from None
    if not isinstance(value, dict):
        raise Unusable(f"the answer is JSON but no object: {_short(text)}")
    return value


def _without_fence(text: str) -> str:
    """Return what stands in a code fence that is the whole text; any other text as it is."""
    first, _, rest = text.partition("\n")
    is_fenced = first.strip().lower() in _FENCES and rest.endswith("```")
    return rest.removesuffix("```").strip() if is_fenced else text


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Unusable(f"the answer has the key {key!r} twice")
        found[key] = value
    return found


def _without_reasoning(text: str) -> str:
    """Return what follows the closed reasoning blocks at the beginning of a text."""
    while (opening := _OPENING.match(text)) is not None:
        if opening["name"]:
            end = f"</{re.escape(opening['name'])}>"
        elif opening["square"]:
            end = rf"\[/{re.escape(opening['square'])}\]"
        else:
            end = "◁/think▷"
        closing = re.compile(end, re.I).search(text, opening.end())
        if closing is None:
            raise Unusable(f"the answer's reasoning has no end: {_short(text)}")
        text = text[closing.end() :].strip()
    if _CLOSING.search(text) and not text.startswith("{"):
        raise Unusable(
            "the answer's reasoning has no beginning, so it cannot be told from the answer; "
            "have the server return reasoning apart from the answer"
        )
    if not text:
        raise Unusable("the answer is nothing but reasoning")
    return text


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:77]}...")
