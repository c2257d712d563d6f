"""Every name of the package, once: `__init__.py` loads them from here on first use."""

from .file_parts import FilePart as FilePart
from .file_parts import read_part as read_part
from .file_parts import split_file as split_file
from .otlp import Decoded as Decoded
from .otlp import decode_json as decode_json
from .otlp import decode_protobuf as decode_protobuf
from .otlp import decode_protobuf_logs as decode_protobuf_logs
from .otlp import decode_protobuf_traces as decode_protobuf_traces
from .otlp import parse_json as parse_json
from .parquet import Table as Table
from .trace_files import Batch as Batch
from .trace_files import Problem as Problem
from .trace_files import file_size as file_size
from .trace_files import read as read
from .trace_folders import files_of as files_of
