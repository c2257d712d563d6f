"""A judge's answer out of the text it wrote.

Taken is a JSON object that is the whole answer, the one fenced block in it, or the one object in
it; of several objects none, since then one may be a quotation from what was judged.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .schema import Unusable

__all__ = ["parse_answer"]

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_FENCE = re.compile(r"^```[\w-]*[ \t]*\n(.*?)\n?```[ \t]*$", re.DOTALL | re.MULTILINE)
_DECODER = json.JSONDecoder()


def parse_answer(text: str | None) -> Any:
    """Return the object that an answer holds.

    Args:
        text: The answer's text; a reasoning model's thoughts at its beginning are left out.

    Raises:
        Unusable: It holds none, or more than one.
    """
    text = _THOUGHTS.sub("", text or "").strip()
    if not text:
        raise Unusable("the answer is empty")
    fenced = _FENCE.findall(text)
    for candidate in (text, fenced[0] if len(fenced) == 1 else ""):
        is_json, found = _whole(candidate)
        if isinstance(found, dict):
            return found
        if is_json:
            raise Unusable(f"the answer is JSON but no object: {_short(candidate)}")
    objects = _objects(text)
    if len(objects) > 1:
        raise Unusable(f"the answer holds {len(objects)} JSON objects; one was asked for")
    if not objects:
        raise Unusable(f"the answer is no JSON object: {_short(text)}")
    return objects[0]


def _whole(text: str) -> tuple[bool, Any]:
    """Return whether a text is JSON, and what it says."""
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def _objects(text: str) -> list[Any]:
    """Return the JSON objects that stand in a text, those inside others aside."""
    found: list[Any] = []
    at = text.find("{")
    while at >= 0 and len(found) < 10:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        found.append(value)
        at = text.find("{", end)
    return found


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:77]}...")
