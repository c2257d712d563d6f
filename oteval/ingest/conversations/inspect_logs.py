"""Logs of Inspect (``inspect_ai``): a run for each sample and epoch, with its scores.

A log is a JSON object, or an ``.eval`` archive. The members ``header.json`` and ``samples/*.json``
of an archive are read as documents. Facts from inspect_ai's ``log`` and ``scorer`` packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.errors import InputError
from ...model import Gap, Usage, read_tokens
from ..otlp.json_fields import json_kind
from .recorded_run import RecordedRun, read_messages, short_attributes, time_ns

__all__ = ["is_header", "is_log", "is_sample", "run_of_sample"]

_FORMAT = "inspect"
_SAMPLE_KEYS = frozenset({"id", "epoch", "input", "target", "messages"})
_ATTACHMENT = "attachment://"
_VALUES: Mapping[Any, tuple[float, bool | None]] = {
    "C": (1.0, True),
    "I": (0.0, False),
    "P": (0.5, None),
    "N": (0.0, False),
}


def is_log(document: Mapping[str, Any]) -> bool:
    """Whether an object is a whole log, or a part of one."""
    return "eval" in document and isinstance(document.get("samples"), list)


def is_header(document: Mapping[str, Any]) -> bool:
    """Whether an object is the header of a log without its samples."""
    return isinstance(document.get("eval"), Mapping) and {"plan", "version"} <= document.keys()


def is_sample(document: Mapping[str, Any]) -> bool:
    """Whether an object is a sample."""
    return document.keys() >= _SAMPLE_KEYS


def run_of_sample(sample: Any, log: Mapping[str, Any]) -> RecordedRun:
    """The run of a sample.

    Args:
        sample: The sample.
        log: The log or its header with the names of the task and the model; may be empty.

    Raises:
        InputError: Its messages cannot be read; the error names the sample.
    """
    if not isinstance(sample, Mapping):
        raise InputError(f"a sample is {json_kind(sample)} instead of an object")
    evaluation = _mapping(log.get("eval"))
    attached = _mapping(sample.get("attachments"))
    items = _with_attachments(sample.get("messages"), attached)
    source = f"sample {sample.get('id')}, epoch {sample.get('epoch')}"
    name = f"{sample.get('id')}:{sample.get('epoch')}"
    run_name = str(evaluation.get("run_id") or evaluation.get("eval_id") or "")
    key = str(sample.get("uuid") or f"{run_name}:{name}")
    error = _mapping(sample.get("error")).get("message")
    limit = _mapping(sample.get("limit")).get("type")
    facts = {
        "task": evaluation.get("task"),
        "sample": str(sample.get("id")),
        "epoch": sample.get("epoch"),
        "limit": limit,
        "target": sample.get("target"),
    }
    return RecordedRun(
        _FORMAT,
        key,
        read_messages([_plain(item) for item in items], f"{source}: messages"),
        conversation_id=key,
        agent=str(evaluation.get("task") or ""),
        models=(str(_mapping(sample.get("output")).get("model") or evaluation.get("model") or ""),),
        usage=_usage(sample, items),
        start_ns=time_ns(sample.get("started_at")),
        end_ns=time_ns(sample.get("completed_at")),
        gaps=(Gap("model_call_failed", f"the sample ended with an error: {error}"),)
        if isinstance(error, str)
        else (),
        attributes=short_attributes({**_mapping(sample.get("metadata")), **facts}),
        scores={name: _score(value) for name, value in _mapping(sample.get("scores")).items()},
    )


def _plain(item: Any) -> Any:
    """A message in OpenAI's form."""
    if not isinstance(item, Mapping):
        return item
    calls = [
        {"id": call.get("id"), "name": call.get("function"), "arguments": call.get("arguments")}
        for call in item.get("tool_calls") or []
        if isinstance(call, Mapping)
    ]
    plain = {"role": item.get("role"), "content": item.get("content"), "tool_calls": calls}
    if item.get("role") != "tool":
        return plain
    error = _mapping(item.get("error")).get("message")
    if error and not item.get("content"):
        plain["content"] = error
    name, call_id = item.get("function"), item.get("tool_call_id")
    return {**plain, "name": name, "tool_call_id": call_id, "is_error": bool(error)}


def _with_attachments(value: Any, attached: Mapping[str, Any]) -> Any:
    """A value with its long texts; a sample stores them separately."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attached.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_with_attachments(item, attached) for item in value]
    if isinstance(value, Mapping):
        return {name: _with_attachments(item, attached) for name, item in value.items()}
    return value


def _usage(sample: Mapping[str, Any], items: list[Any]) -> Usage:
    """The tokens of all models; a log has no counts of calls."""
    models = _mapping(sample.get("model_usage")).values()
    total = Usage.total(read_tokens(usage).usage for usage in models)
    answers = sum(_mapping(item).get("role") == "assistant" for item in items)
    return replace(total, model_calls=answers)


def _score(score: Any) -> tuple[float | None, bool | None, str]:
    fields = _mapping(score)
    value, why = fields.get("value"), fields.get("explanation")
    comment = why if isinstance(why, str) else ""
    if isinstance(value, bool):
        return float(value), value, comment
    if isinstance(value, (int, float)):
        return float(value), None, comment
    number, passed = _VALUES.get(value, (None, None)) if isinstance(value, str) else (None, None)
    return number, passed, comment or ("" if number is not None else str(value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
