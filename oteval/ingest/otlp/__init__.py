"""OTLP requests to spans and log records: pure functions without files, clock or network.

A **request** is an ExportTraceServiceRequest or ExportLogsServiceRequest; in files, it is called
TracesData or LogsData. A request decodes to equal spans in JSON (`from_json`, with `json_fields`)
and in protobuf (`from_protobuf`).

An invalid part of a request is left out, and one line in `Decoded.problems` names it; the rest is
decoded. Only data that is not a request at all raises `InputError`. Metrics are ignored, and
duplicate spans are kept.
"""

import lazy_loader

# Only readers of protobuf import it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
