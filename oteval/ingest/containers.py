"""Recognise the format of a parsed JSON document by its keys, and decode it.

A document is an OTLP request (also in the wrappers of Tempo and Jaeger), a Jaeger trace or span, a
ClickHouse row, a span or log record of the Python SDK's console exporters, a run that
`oteval export --jsonl` wrote, or a list of these. Pure: no files, clock or network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base.errors import InputError
from . import clickhouse, console_exporter, exported_runs, jaeger
from .otlp import Decoded, decode_json
from .otlp.decoded import short_repr
from .otlp.json_fields import Object

__all__ = ["WRAPPERS", "decode"]

WRAPPERS = ("result", "trace", "_source")
"""Keys of objects that wrap a document: in Jaeger's query API v3, in Tempo's API v2, and in
Elasticsearch."""
_DEPTH = 4


def decode(document: Any) -> Decoded:
    """Decode a parsed document.

    Returns:
        The spans, log records and runs, and the problems.

    Raises:
        InputError: The document has an unknown format; the message describes it.
    """
    if isinstance(document, list):
        return _several(document, 0)
    return _one(document, 0)


def _one(document: Any, depth: int) -> Decoded:
    out = Decoded()
    if not isinstance(document, dict) or depth > _DEPTH:
        return decode_json(document)
    if jaeger.is_trace(document):
        jaeger.decode_trace(document, out)
    elif jaeger.is_span(document):
        jaeger.decode_span(document, out)
    elif exported_runs.is_run(document):
        out.runs.append(exported_runs.decode_run(document))
    elif console_exporter.is_span(document):
        console_exporter.decode_span(document, out)
    elif console_exporter.is_log(document):
        console_exporter.decode_log(document, out)
    elif clickhouse.is_span(document):
        clickhouse.decode_span(document, out)
    elif clickhouse.is_log(document):
        clickhouse.decode_log(document, out)
    elif "data" in document and (isinstance(document["data"], list) or document.get("errors")):
        # Traces in a response of Jaeger, or rows in a response of ClickHouse.
        data = document["data"]
        out = _several(data if isinstance(data, list) else [], depth + 1)
        out.problems += _api_errors(document)
    elif wrapped := [document[key] for key in WRAPPERS if isinstance(document.get(key), dict)]:
        out = _one(wrapped[0], depth + 1)
        out.problems += _api_errors(document)
    else:
        return decode_json(document)
    return out


def _api_errors(answer: Object) -> Iterator[str]:
    """Yield the errors in a response of Jaeger or Tempo; they may be why it lacks traces."""
    errors = answer.get("errors")
    for error in errors if isinstance(errors, list) else ():
        reason = error.get("msg") if isinstance(error, dict) else error
        yield f"Jaeger answered with an error ({short_repr(reason)})"
    if answer.get("status") == "PARTIAL":
        yield f"Tempo answered with a part of the trace ({short_repr(answer.get('message'))})"


def _several(documents: list[Any], depth: int) -> Decoded:
    out = Decoded()
    refused = 0
    for number, document in enumerate(documents, start=1):
        try:
            decoded = _one(document, depth)
        except InputError as error:
            out.problems.append(f"element {number}: {error}")
            refused += 1
            continue
        out.spans += decoded.spans
        out.logs += decoded.logs
        out.runs += decoded.runs
        out.problems += decoded.problems
    if refused and refused == len(documents):
        raise InputError(out.problems[0])
    return out
