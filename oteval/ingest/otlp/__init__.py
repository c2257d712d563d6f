"""OTLP requests to spans and log records: pure functions without files, clock or network.

A **request** is an ExportTraceServiceRequest or ExportLogsServiceRequest, which a file calls
TracesData or LogsData. A request gives equal spans in JSON (`from_json`, with `json_fields` and
`json_values`) and in protobuf (`from_protobuf`).

An invalid part of a request is left out, and one line in `Decoded.problems` names it; the rest is
decoded. Only data that is not a request at all raises `InputError`. Metrics are ignored, and
duplicate spans are kept.
"""

from __future__ import annotations

from .decoded import Decoded
from .from_json import decode_json, parse_json, without_surrogates
from .from_protobuf import decode_protobuf, decode_protobuf_logs, decode_protobuf_traces

__all__ = [
    "Decoded",
    "decode_json",
    "decode_protobuf",
    "decode_protobuf_logs",
    "decode_protobuf_traces",
    "parse_json",
    "without_surrogates",
]
