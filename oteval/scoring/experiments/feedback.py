"""Interpret the return value of an evaluator: results by key, or an error.

An evaluator may return a bool, a number, a text, a dict with ``score`` (and optionally ``key``,
``comment``, ``label``, ``metadata``), a list of such dicts, or ``{"results": [...]}``. Objects with
these attributes, such as LangSmith's results, are read like dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...base.runner import describe_error
from ...evaluators import result_of
from ...model import EvaluationResult, Score
from .outputs import json_form

__all__ = ["KeyedResult", "failed", "keyed_results", "not_evaluated", "short_form"]


class KeyedResult(NamedTuple):
    """A result of an evaluator; an evaluator may have several.

    Attributes:
        key: The result's name.
        result: The result.
    """

    key: str
    result: EvaluationResult


def failed(key: str, error: BaseException | str) -> KeyedResult:
    """The result of an evaluator that failed."""
    text = error if isinstance(error, str) else describe_error(error)
    return KeyedResult(key, EvaluationResult(status="error", comment=text))


def not_evaluated(key: str, comment: str, metadata: Mapping[str, Any] | None = None) -> KeyedResult:
    """The result of an evaluator that has no verdict, although it did not fail."""
    result = EvaluationResult(status="not_evaluated", comment=comment, metadata=metadata or {})
    return KeyedResult(key, result)


def keyed_results(value: Any, name: str) -> list[KeyedResult]:
    """The results in a return value. A value that is not a result becomes an error.

    Args:
        value: The return value.
        name: The evaluator's name, the key of results without a key.
    """
    results = value.get("results") if isinstance(value, Mapping) else None
    if results is None and not isinstance(value, Mapping):
        results = getattr(value, "results", None)
    items = results if isinstance(results, (list, tuple)) else value
    if not isinstance(items, (list, tuple)):
        return [_keyed_result(items, name)]
    if not items:
        return [failed(name, "returned an empty list, which is not a score")]
    if not all(_is_result(item) for item in items):
        return [
            failed(name, f"returned a list of values that are not results: {short_form(value)}")
        ]
    return [_keyed_result(item, name) for item in items]


def _is_result(item: Any) -> bool:
    return isinstance(item, Mapping) or (hasattr(item, "key") and hasattr(item, "score"))


def _keyed_result(item: Any, name: str) -> KeyedResult:
    if isinstance(item, Score):
        return KeyedResult(item.evaluator, item)
    if not isinstance(item, Mapping) and hasattr(item, "key") and hasattr(item, "score"):
        names = ("key", "score", "value", "label", "comment", "metadata")
        item = {key: getattr(item, key, None) for key in names}
    try:
        if isinstance(item, Mapping):
            return _from_dict(item, name)
        return KeyedResult(name, result_of(_number(item)))
    except (TypeError, ValueError) as error:
        return failed(name, str(error))


def _from_dict(item: Mapping[str, Any], name: str) -> KeyedResult:
    key = str(item.get("key") or name)
    comment = str(item.get("comment") or "")
    metadata = json_form(item.get("metadata") or {})
    if not isinstance(metadata, dict):
        return failed(key, f"returned metadata that is not a dict: {short_form(metadata)}")
    if not {"score", "value", "label"} & set(item):
        return failed(key, f"returned a dict without 'score': {short_form(dict(item))}")
    score = _number(item.get("score"))
    if score is None and metadata.get("error"):
        text = comment or str(metadata["error"])
        # A judge with an exhausted budget has not failed.
        if metadata.get("status") == "not_evaluated":
            return not_evaluated(key, text, metadata)
        result = EvaluationResult(status="error", comment=text, metadata=metadata)
        return KeyedResult(key, result)
    value = score if score is not None else _number(item.get("value"))
    label = str(item.get("label") or "")
    if value is None and not label:
        return not_evaluated(key, comment or "no score", metadata)
    passed = item.get("passed")
    if passed is not None and not isinstance(passed, bool):
        return failed(key, f"returned 'passed' that is not a bool: {short_form(passed)}")
    result = result_of(label if value is None else value)
    result = replace(
        result,
        passed=result.passed if passed is None else passed,
        label=label or result.label,
        comment=comment,
        metadata=metadata,
    )
    return KeyedResult(key, result)


def _number(value: Any) -> Any:
    """A number of numpy or another package as a number of Python."""
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, (str, bool, int, float, Mapping)):
        return item()
    return value


def short_form(value: Any) -> str:
    """The Python form of a value, shortened."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
