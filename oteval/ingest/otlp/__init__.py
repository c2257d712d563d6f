"""OTLP documents and messages to spans and log records; no files, clock or network here.

A **request** is what OTLP calls ExportTraceServiceRequest or ExportLogsServiceRequest (a file
calls the same thing TracesData or LogsData). The same request gives equal spans whether it
comes as JSON or as protobuf.

What a request holds wrong never stops the rest: the part is left out, and one line in
`Decoded.problems` names it. Only something that is no request at all raises `InputError`.
Metrics are not stored, and duplicates are not looked for.
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
