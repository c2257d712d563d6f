"""The names of `oteval.ingest` for other rooms; `__init__.py` loads them on first use."""

from . import (
    clickhouse as clickhouse,
)
from .clickhouse import (
    decode_span as decode_span,
    is_span as is_span,
)
from .containers import (
    decode as decode,
)
from .conversations.recorded_run import (
    FILE_VERSION as FILE_VERSION,
)
from .jaeger import (
    decode_trace as decode_trace,
    is_trace as is_trace,
)
from .otlp import (
    Decoded as Decoded,
    decode_json as decode_json,
    decode_protobuf as decode_protobuf,
    decode_protobuf_logs as decode_protobuf_logs,
    decode_protobuf_traces as decode_protobuf_traces,
    parse_json as parse_json,
)
from .otlp.wire_spans import (
    RequestSpans as RequestSpans,
    read_columns as read_columns,
    request_spans as request_spans,
)
from .parquet import (
    Table as Table,
    decode_rows as decode_rows,
)
from .receiver.auth import (
    Access as Access,
    Permission as Permission,
    Token as Token,
    digest_of as digest_of,
)
from .receiver.grpc import (
    GrpcReceiver as GrpcReceiver,
)
from .receiver.http import (
    HttpReceiver as HttpReceiver,
    HttpServer as HttpServer,
    refusal as refusal,
    refusal_of as refusal_of,
)
from .receiver.intake import (
    Intake as Intake,
)
from .receiver.redaction import (
    Redactor as Redactor,
)
from .receiver.responses import (
    RequestRefused as RequestRefused,
)
from .sdk_objects import (
    log_record_of as log_record_of,
    span_of as span_of,
)
from .spool import (
    QUOTA as QUOTA,
    Spool as Spool,
)
from .trace_files import (
    Batch as Batch,
    FilePart as FilePart,
    Problem as Problem,
    file_size as file_size,
    files_of as files_of,
    read as read,
    read_part as read_part,
    read_stream as read_stream,
    split_file as split_file,
)
