"""Lines of ``oteval export --jsonl`` and ``oteval trajectories --json`` to runs with their scores.

A line is a reconstructed run without its spans. It lacks the service, the available tools and the
attributes, so a run that is read back has none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import InputError
from ..base.jsontext import dumps, loads
from ..messages import decided
from ..model import (
    Gap,
    Message,
    RetrievedDocument,
    Score,
    ScoredRun,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
)
from .otlp.decoded import short_repr
from .otlp.json_fields import json_kind

__all__ = ["decode_run", "is_run"]

_KEYS = frozenset({"trajectory_id", "root_span", "trace_ids", "messages", "new_from"})
_MAX_INT64 = (1 << 63) - 1


def is_run(document: Mapping[str, Any]) -> bool:
    """Whether an object is an exported run."""
    return document.keys() >= _KEYS


def decode_run(document: Mapping[str, Any]) -> ScoredRun:
    """Decode an exported run.

    Raises:
        InputError: A field is missing or has the wrong type; the message names it.
    """
    read = _Fields(document)
    root = _Fields(read.get("root_span", dict), "root_span.")
    messages = tuple(_message(message, at) for at, message in enumerate(read.get("messages", list)))
    new_from = read.integer("new_from")
    if new_from > len(messages):
        raise InputError(f"new_from {new_from} is beyond the {len(messages)} messages")
    usage = _Fields(read.get("usage", dict), "usage.")
    names = Usage.__dataclass_fields__
    run = Trajectory(
        read.get("trajectory_id", str),
        SpanRef(root.get("trace_id", str), root.get("span_id", str)),
        trace_ids=read.texts("trace_ids"),
        tail=messages,
        new_from=new_from,
        conversation_id=read.text("conversation_id"),
        turn=read.integer("turn"),
        user=read.text("user"),
        version=read.text("version"),
        agent=read.text("agent"),
        agents=read.texts("agents", missing=[]),
        parent_id=read.text("parent_id"),
        steps=tuple(tuple(map(str, step)) for step in read.get("steps", list)),
        models=read.texts("models"),
        usage=Usage(**{name: usage.integer(name, missing=0) for name in names}),
        finish_reasons=read.texts("finish_reasons", missing=[]),
        prompts=read.texts("prompts", missing=[]),
        documents=tuple(map(_document, read.items("documents"))),
        start_ns=read.integer("start_ns"),
        end_ns=read.integer("end_ns"),
        gaps=tuple(_gap(gap) for gap in read.get("gaps", list)),
    )
    if not run.id or not run.root_span.trace_id:
        raise InputError("trajectory_id and root_span.trace_id must not be empty")
    scores = document.get("scores") or []
    return ScoredRun(run, tuple(_score(_Fields(score, "scores."), run) for score in scores))


class _Fields:
    """Typed access to the fields of an object."""

    def __init__(self, document: Any, path: str = "") -> None:
        if not isinstance(document, Mapping):
            raise InputError(f"{path.rstrip('.')} is {json_kind(document)} instead of an object")
        self._document = document
        self._path = path

    def get(self, key: str, kind: type) -> Any:
        """A value of the given type."""
        value = self._document.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            expected = {str: "text", list: "a list", dict: "an object", int: "a whole number"}[kind]
            raise InputError(f"{self._path}{key} is {json_kind(value)} instead of {expected}")
        return value

    def text(self, key: str) -> str:
        """A string; "" for null and a missing field."""
        return "" if self._document.get(key) is None else str(self.get(key, str))

    def texts(self, key: str, *, missing: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of strings; `missing` if files of earlier versions have none."""
        if missing is not None and key not in self._document:
            return tuple(missing)
        return tuple(map(str, self.get(key, list)))

    def items(self, key: str) -> Sequence[Any]:
        """A list; an empty one for null and a missing field."""
        values: list[Any] = [] if self._document.get(key) is None else self.get(key, list)
        return values

    def integer(self, key: str, *, missing: int | None = None) -> int:
        """A whole number that is not negative and fits into 64 bits.

        Args:
            key: The field.
            missing: The number if files of earlier versions have none.
        """
        if missing is not None and key not in self._document:
            return missing
        value = int(self.get(key, int))
        if not 0 <= value <= _MAX_INT64:
            raise InputError(
                f"{self._path}{key} {short_repr(value)} is not a number from 0 to {_MAX_INT64}"
            )
        return value


def _message(document: Any, at: int) -> Message:
    read = _Fields(document, f"messages[{at}].")
    content = document.get("content")
    parts: Sequence[Any] = ()
    if isinstance(content, list):
        is_text = bool(content) and isinstance(content[0], dict) and "text" in content[0]
        is_text = is_text and content[0].get("type") == "text"
        parts = content[1:] if is_text else content
        content = content[0]["text"] if is_text else None
    if content is not None and not isinstance(content, str):
        raise InputError(f"messages[{at}].content is {json_kind(content)}")
    calls = document.get("tool_calls") or []
    message = Message(
        read.get("role", str),
        content,
        tuple(_call(call, f"messages[{at}].tool_calls.") for call in calls),
        read.text("tool_call_id"),
        read.text("name"),
        is_error=document.get("is_error") is True,
        parts=tuple(part for part in parts if isinstance(part, dict)),
        is_outcome_recorded=isinstance(document.get("is_error"), bool),
    )
    return decided(message)


def _call(document: Any, path: str) -> ToolCall:
    read = _Fields(document, path)
    function = _Fields(read.get("function", dict), f"{path}function.")
    return ToolCall(
        function.get("name", str),
        _arguments(function.text("arguments")),
        read.text("id"),
        executed_by=read.text("executed_by"),
    )


def _arguments(text: str) -> Any:
    """The arguments in JSON text; the text itself if it is not JSON, None if it is empty."""
    if not text:
        return None
    try:
        value = loads(text)
        # Keep integers of more than 64 bits, which `loads` rounds.
        return value if dumps(value) == text else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _document(document: Any) -> RetrievedDocument:
    read = _Fields(document, "documents.")
    return RetrievedDocument(read.get("text", str), read.text("id"), read.text("span_id"))


def _gap(document: Any) -> Gap:
    read = _Fields(document, "gaps.")
    return Gap(read.get("code", str), read.text("detail"), read.text("span_id"))


def _score(read: _Fields, run: Trajectory) -> Score:
    fields = read._document
    number, passed, status = (fields.get(key) for key in ("score", "passed", "status"))
    if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
        raise InputError(f"scores.score is {json_kind(number)} instead of a number")
    if passed is not None and not isinstance(passed, bool):
        raise InputError(f"scores.passed is {json_kind(passed)} instead of true or false")
    if status not in ("ok", "error", "not_evaluated"):
        raise InputError(f"scores.status {short_repr(status)} is not ok, error or not_evaluated")
    try:
        return Score(
            run.id,
            run.root_span.trace_id,
            run.root_span.span_id,
            read.get("evaluator", str),
            read.get("version", str),
            status=status,
            score=None if number is None else float(number),
            label=read.text("label"),
            passed=passed,
            comment=read.text("comment"),
            metadata=fields.get("metadata") or {},
            time_ns=run.end_ns,
        )
    except ValueError as error:
        raise InputError(f"scores: {error}") from None
