"""OTLP requests to spans and log records: pure functions without files, clock or network.

A **request** is an ExportTraceServiceRequest or ExportLogsServiceRequest, which a file calls
TracesData or LogsData. A request gives equal spans in JSON (`from_json`, with `json_fields` and
`json_values`) and in protobuf (`from_protobuf`).

An invalid part of a request is left out, and one line in `Decoded.problems` names it; the rest is
decoded. Only data that is not a request at all raises `InputError`. Metrics are ignored, and
duplicate spans are kept.
"""

import lazy_loader

# Protobuf is imported by those who read it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
