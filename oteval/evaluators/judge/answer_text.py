"""Parse a judge's answer from the text that a model wrote.

Only a finished answer counts: one JSON object that is the whole text, or the whole of one code
fence, optionally after reasoning in a closed ``<think>`` block. JSON inside reasoning or prose may
be a draft or a quotation from the run, and is never used.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .answer_schema import InvalidAnswer

__all__ = ["parse_answer", "parse_json"]

# The tags that reasoning models put around their reasoning. Kimi writes triangles.
_TAGS = (
    r"(?:[\w-]{1,20}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|"
    r"scratchpad|inner_monologue|chain_of_thought|cot)"
)
_OPENING_TAG = re.compile(rf"\s*(?:<(?P<angle>{_TAGS})>|\[(?P<square>{_TAGS})\]|◁think▷)", re.I)
_CLOSING_TAG = re.compile(rf"</{_TAGS}>|\[/{_TAGS}\]|◁/think▷", re.I)
_FENCES = frozenset({"```", "```json"})


def parse_answer(text: str | None) -> Any:
    """The JSON object that is a model's whole answer.

    Args:
        text: The model's text; None means empty.

    Raises:
        InvalidAnswer: The text is anything else.
    """
    answer = (text or "").strip()
    if not answer:
        raise InvalidAnswer("the answer is empty")
    if not answer.startswith("{"):
        answer = _without_fence(_without_reasoning(answer))
    return parse_json(answer)


def parse_json(text: str) -> Any:
    """The object that a JSON text encodes.

    Raises:
        InvalidAnswer: The text is not one JSON object, or an object repeats a key.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise InvalidAnswer(f"the answer is not a JSON object: {_shortened(text)}") from None
    if not isinstance(value, dict):
        raise InvalidAnswer(f"the answer is JSON but not an object: {_shortened(text)}")
    return value


def _without_fence(text: str) -> str:
    """The content of a code fence that is the whole text; other text unchanged."""
    first, _, body = text.partition("\n")
    is_fenced = first.strip().lower() in _FENCES and body.endswith("```")
    return body.removesuffix("```").strip() if is_fenced else text


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise InvalidAnswer(f"the answer repeats the key {key!r}")
        unique[key] = value
    return unique


def _without_reasoning(text: str) -> str:
    """The text after the closed reasoning blocks at its beginning."""
    while (opening := _OPENING_TAG.match(text)) is not None:
        if opening["angle"]:
            end = f"</{re.escape(opening['angle'])}>"
        elif opening["square"]:
            end = rf"\[/{re.escape(opening['square'])}\]"
        else:
            end = "◁/think▷"
        closing = re.compile(end, re.I).search(text, opening.end())
        if closing is None:
            raise InvalidAnswer(f"the answer's reasoning is not closed: {_shortened(text)}")
        text = text[closing.end() :].strip()
    if _CLOSING_TAG.search(text) and not text.startswith("{"):
        raise InvalidAnswer(
            "the answer closes reasoning that it never opened, so the two cannot be told apart; "
            "configure the server to return reasoning separately"
        )
    if not text:
        raise InvalidAnswer("the answer is only reasoning")
    return text


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:77]}...")
