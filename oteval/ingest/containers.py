"""What a parsed JSON document holds, in whichever container: told by its keys, in one place.

A document is an OTLP request (also in Tempo's and Jaeger's wrappers), a trace or a span of
Jaeger's, a row of ClickHouse's, a span or log record of the Python SDK's console exporters, a run
of `oteval export --jsonl`, or a list of any of them. No files, clock or network here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InputError
from . import clickhouse, console_exporter, exported_runs, jaeger
from .otlp import Decoded, decode_json
from .otlp.decoded import shown
from .otlp.json_fields import Object

__all__ = ["WRAPPERS", "decode"]

WRAPPERS = ("result", "trace", "_source")
"""Keys of an object that only holds a document: of Jaeger's query API v3, of Tempo's v2, and of
Elasticsearch."""
_DEPTH = 4


def decode(document: Any) -> Decoded:
    """Decode a parsed document.

    Returns:
        The spans and log records, and what was left out of them.

    Raises:
        InputError: It is nothing that is read; the message says what it is.
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
        # Traces of an answer of Jaeger's, or rows of one of ClickHouse's.
        data = document["data"]
        out = _several(data if isinstance(data, list) else [], depth + 1)
        out.problems += _told(document)
    elif wrapped := [document[key] for key in WRAPPERS if isinstance(document.get(key), dict)]:
        out = _one(wrapped[0], depth + 1)
        out.problems += _told(document)
    else:
        return decode_json(document)
    return out


def _told(answer: Object) -> Iterator[str]:
    """Yield what Jaeger and Tempo say beside their traces about what is not among them."""
    errors = answer.get("errors")
    for error in errors if isinstance(errors, list) else ():
        reason = error.get("msg") if isinstance(error, dict) else error
        yield f"Jaeger answered with an error ({shown(reason)})"
    if answer.get("status") == "PARTIAL":
        yield f"Tempo answered with a part of the trace ({shown(answer.get('message'))})"


def _several(documents: list[Any], depth: int) -> Decoded:
    out = Decoded()
    refused = 0
    for number, document in enumerate(documents, start=1):
        try:
            found = _one(document, depth)
        except InputError as error:
            out.problems.append(f"element {number}: {error}")
            refused += 1
            continue
        out.spans += found.spans
        out.logs += found.logs
        out.runs += found.runs
        out.problems += found.problems
    if refused and refused == len(documents):
        raise InputError(out.problems[0])
    return out
