"""Every name of the package, once: `__init__.py` loads them from here on first use."""

from .decoded import Decoded as Decoded
from .from_json import (
    decode_json as decode_json,
    parse_json as parse_json,
    without_surrogates as without_surrogates,
)
from .from_protobuf import (
    decode_protobuf as decode_protobuf,
    decode_protobuf_logs as decode_protobuf_logs,
    decode_protobuf_traces as decode_protobuf_traces,
)
