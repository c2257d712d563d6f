"""What an evaluator's return value means: figures by key, or an error.

An evaluator may return a bool, a number, a text, a dict with ``score`` (and perhaps ``key``,
``comment``, ``label``, ``metadata``), a list of such dicts, or ``{"results": [...]}``. Objects
with those attributes (LangSmith's results) are taken like dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..evaluators.functions import result_of
from ..model import EvaluationResult, Score, Status
from .calling import reason
from .plain import plain

__all__ = ["Outcome", "failed", "outcomes_of"]


@dataclass(frozen=True)
class Outcome:
    """One figure of an evaluator.

    Attributes:
        key: Its name.
        status: ``ok``, ``error`` or ``not_evaluated``.
        score: The number, or None.
        passed: Whether it is a pass; None when there is no such notion.
        label: The verdict as a word, or "".
        comment: Why.
        metadata: Figures that reproduce it.
    """

    key: str
    status: Status = "ok"
    score: float | None = None
    passed: bool | None = None
    label: str = ""
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def failed(key: str, error: BaseException | str) -> Outcome:
    """Return the outcome of an evaluator that failed."""
    return Outcome(key, "error", comment=error if isinstance(error, str) else reason(error))


def outcomes_of(value: Any, name: str) -> list[Outcome]:
    """Return the figures that a return value means; nonsense is an outcome with an error.

    Args:
        value: What the evaluator returned.
        name: The key of figures that have none: the evaluator's name.
    """
    results = value.get("results") if isinstance(value, Mapping) else None
    if results is None and not isinstance(value, Mapping):
        results = getattr(value, "results", None)
    items = results if isinstance(results, (list, tuple)) else value
    if not isinstance(items, (list, tuple)):
        return [_outcome(items, name)]
    if not items:
        return [failed(name, "returned an empty list, which is no score")]
    if not all(_is_result(item) for item in items):
        return [failed(name, f"returned a list of what are no results: {_short(value)}")]
    return [_outcome(item, name) for item in items]


def _is_result(item: Any) -> bool:
    return isinstance(item, Mapping) or (hasattr(item, "key") and hasattr(item, "score"))


def _outcome(item: Any, name: str) -> Outcome:
    if isinstance(item, Score):
        return Outcome(
            *(item.evaluator, item.status, item.score, item.passed, item.label, item.comment),
            item.metadata,
        )
    if not isinstance(item, Mapping) and hasattr(item, "key") and hasattr(item, "score"):
        names = ("key", "score", "value", "label", "comment", "metadata")
        item = {each: getattr(item, each, None) for each in names}
    try:
        return _from_dict(item, name) if isinstance(item, Mapping) else _from_value(item, name)
    except (TypeError, ValueError) as error:
        return failed(name, str(error))


def _from_value(value: Any, name: str) -> Outcome:
    return _of_result(name, result_of(_number(value)))


def _of_result(name: str, found: EvaluationResult) -> Outcome:
    return Outcome(
        *(name, "ok", found.score, found.passed, found.label, found.comment), found.metadata
    )


def _from_dict(item: Mapping[str, Any], name: str) -> Outcome:
    key = str(item.get("key") or name)
    comment = str(item.get("comment") or "")
    metadata = plain(item.get("metadata") or {})
    if not isinstance(metadata, dict):
        return failed(key, f"returned metadata that is no dict: {_short(metadata)}")
    if not {"score", "value", "label"} & set(item):
        return failed(key, f"returned a dict without 'score': {_short(dict(item))}")
    score = _number(item.get("score"))
    if score is None and metadata.get("error"):
        # A judge whose budget is spent has not failed.
        spent = metadata.get("status") == "not_evaluated"
        why = comment or str(metadata["error"])
        return Outcome(key, "not_evaluated" if spent else "error", comment=why, metadata=metadata)
    value = score if score is not None else _number(item.get("value"))
    label = str(item.get("label") or "")
    if value is None and not label:
        return Outcome(key, "not_evaluated", comment=comment or "no score", metadata=metadata)
    found = result_of(label if value is None else value)
    passed = item.get("passed")
    if passed is not None and not isinstance(passed, bool):
        return failed(key, f"returned 'passed' that is no bool: {_short(passed)}")
    return Outcome(
        *(key, "ok", found.score, found.passed if passed is None else passed),
        *(label or found.label, comment, metadata),
    )


def _number(value: Any) -> Any:
    """Return a number of numpy's or another package's as Python's."""
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, (str, bool, int, float, Mapping)):
        return item()
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
