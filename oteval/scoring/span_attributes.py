"""Scores as attributes of the span that they are about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ..model import SCORE_ATTRIBUTES, Score

__all__ = ["PREFIX", "as_fields", "as_json", "score_attributes"]

PREFIX = SCORE_ATTRIBUTES


def score_attributes(scores: Iterable[Score]) -> dict[str, str | float | bool]:
    """The attributes that scores add to their span; only scores with status "ok" add any."""
    attributes: dict[str, str | float | bool] = {}
    for score in scores:
        if score.status != "ok":
            continue
        name = PREFIX + score.evaluator
        if score.score is not None and math.isfinite(score.score):
            attributes[name] = float(score.score)
        if score.label:
            attributes[f"{name}.label"] = score.label
        if score.passed is not None:
            attributes[f"{name}.passed"] = score.passed
        if score.comment:
            attributes[f"{name}.explanation"] = score.comment
    return attributes


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes as OTLP protobuf messages."""
    return [
        KeyValue(key=key.encode("utf-8", "replace").decode(), value=_any_value(value))
        for key, value in attributes.items()
    ]


def _any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[_any_value(item) for item in value]))
    return AnyValue(string_value=str(value).encode("utf-8", "replace").decode())


def as_fields(attributes: Mapping[str, Any]) -> bytes:
    """Attributes as a serialized span with nothing else, to be merged into a span."""
    return Span(attributes=key_values(attributes)).SerializeToString()


def as_json(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes in OTLP/JSON."""
    encoded: list[dict[str, Any]] = []
    for key, value in attributes.items():
        kind = "boolValue" if isinstance(value, bool) else "doubleValue"
        kind = "stringValue" if isinstance(value, str) else kind
        encoded.append({"key": key, "value": {kind: value}})
    return encoded
