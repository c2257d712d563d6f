"""The path of a request from its body to the spool, shared by HTTP and gRPC.

`Intake.accept` runs the steps in order: count its parts, parse it, check every span, set the
resource attributes of the sender's token, redact it, and append it to the spool. The spool
contains the request as it was received, unless it had to be changed. Decoded spans are not kept:
JSON is decoded only to check it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ...base.errors import InputError
from ..otlp import decode_json, parse_json
from ..spool import Encoding, Kind, Record, Spool, SpoolFull
from .limits import MAX_RECORDS, check_part_count, too_many
from .redaction import Redactor, json_bytes
from .responses import RequestRefused, too_busy

__all__ = ["Accepted", "Contents", "Intake", "Observer"]

_NO_ATTRIBUTES: Mapping[str, str] = {}
_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_log = logging.getLogger(__name__)

Observer = Callable[[str, str, int, int, float], None]
"""Called after each request with its kind, its outcome, the number of valid and of rejected spans
or log records, and the seconds it took."""


class Contents(NamedTuple):
    """The number of spans or log records in a request.

    Attributes:
        valid: How many of them can be stored.
        rejected: How many of them cannot be stored.
        message: Why the first rejected one cannot be stored, or "".
    """

    valid: int
    rejected: int = 0
    message: str = ""


class Accepted(NamedTuple):
    """A request that was accepted.

    Attributes:
        contents: The number of its spans or log records.
        durable: Done once the request is on disk.
    """

    contents: Contents
    durable: Future[None]


class Intake:
    """Accepts or refuses requests, and appends them to the spool.

    Attributes:
        redactor: The redaction rules; may be replaced at any time.
        observe: Called after each request.
    """

    def __init__(self, spool: Spool, redactor: Redactor, observe: Observer) -> None:
        self.redactor = redactor
        self.observe = observe
        self._spool = spool

    def refuse_when_full(self, size: int) -> None:
        """Refuse a request before its body is read, if the spool cannot take it.

        Args:
            size: The declared bytes of the body.

        Raises:
            RequestRefused: The spool is full.
        """
        if reason := self._spool.full(size):
            raise too_busy(reason)

    def accept(
        self,
        kind: Kind,
        encoding: Encoding,
        body: bytes,
        attributes: Mapping[str, str] = _NO_ATTRIBUTES,
    ) -> Accepted:
        """Check and redact a request, and append it to the spool.

        Args:
            kind: The kind of its records.
            encoding: The encoding of its body.
            body: The decompressed body.
            attributes: Resource attributes to set on all its records.

        Raises:
            RequestRefused: It is malformed, too large or cannot be redacted, or the spool is full.
        """
        check_part_count(kind, encoding, body)
        request = _parsed(kind, encoding, body)
        contents = _check(kind, encoding, request)
        if contents.valid + contents.rejected > MAX_RECORDS:
            raise too_many("spans" if kind == "traces" else "log records", MAX_RECORDS)
        if attributes:
            _set_attributes(encoding, request, attributes)
        if redactor := self.redactor:
            body = _redacted(redactor, encoding, request)
        elif attributes:
            body = _body(encoding, request)
        if not contents.valid:
            done: Future[None] = Future()
            done.set_result(None)
            return Accepted(contents, done)
        try:
            durable = self._spool.append(Record(kind, encoding, time.time_ns(), body))
        except SpoolFull as error:
            raise too_busy(str(error)) from None
        return Accepted(contents, durable)


def _parsed(kind: Kind, encoding: Encoding, body: bytes) -> Any:
    """The request in a body: a protobuf message or a JSON value.

    Raises:
        RequestRefused: The body is malformed.
    """
    try:
        if encoding == "json":
            return parse_json(body)
        if kind == "traces":
            return ExportTraceServiceRequest.FromString(body)
        return ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise _malformed(f"the body is not a valid OTLP protobuf request for {kind}") from None
    except (ValueError, RecursionError) as error:
        raise _malformed(f"the body is not valid JSON: {error}") from None


def _malformed(reason: str) -> RequestRefused:
    return RequestRefused(400, "malformed", reason)


def _check(kind: Kind, encoding: Encoding, request: Any) -> Contents:
    """Count the records of a request that can be stored, and the records that cannot.

    Raises:
        RequestRefused: It is not a request of this kind.
    """
    if encoding == "json":
        return _check_json(kind, request)
    if kind == "logs":
        groups = [g for resource in request.resource_logs for g in resource.scope_logs]
        return Contents(sum(len(group.log_records) for group in groups))
    count = rejected = 0
    message = ""
    for resource in request.resource_spans:
        for group in resource.scope_spans:
            for span in group.spans:
                count += 1
                trace_id, span_id = span.trace_id, span.span_id
                if (
                    len(trace_id) != 16
                    or len(span_id) != 8
                    or trace_id == _NO_TRACE
                    or span_id == _NO_SPAN
                ):
                    rejected += 1
                    message = message or f"span {span.name[:60]!r} has no valid trace or span id"
    return Contents(count - rejected, rejected, message)


def _check_json(kind: Kind, request: Any) -> Contents:
    key, old = ("resourceSpans", "resource_spans")
    if kind == "logs":
        key, old = ("resourceLogs", "resource_logs")
    if not isinstance(request, dict) or (request and not {key, old} & set(request)):
        raise _malformed(f"the body is not an OTLP/JSON request: it has no {key!r}")
    if not request:
        return Contents(0)
    try:
        decoded = decode_json(request)
    except InputError as error:
        raise _malformed(f"the body is not an OTLP/JSON request: {error}") from None
    count = len(decoded.spans) if kind == "traces" else len(decoded.logs)
    return Contents(count, decoded.skipped, decoded.skip_reason or next(iter(decoded.problems), ""))


def _set_attributes(encoding: Encoding, request: Any, attributes: Mapping[str, str]) -> None:
    """Set attributes on every resource of a parsed request; they replace the sender's."""
    if encoding == "json":
        for group in _json_groups(request):
            _set_json_attributes(group, attributes)
        return
    is_traces = hasattr(request, "resource_spans")
    for group in request.resource_spans if is_traces else request.resource_logs:
        resource = group.resource
        foreign = [
            attribute for attribute in resource.attributes if attribute.key not in attributes
        ]
        del resource.attributes[:]
        resource.attributes.extend(foreign)
        for key, value in attributes.items():
            resource.attributes.add(key=key).value.string_value = value


def _json_groups(request: Any) -> list[Any]:
    names = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
    lists = (request.get(name) for name in names)
    return [group for groups in lists if isinstance(groups, list) for group in groups]


def _set_json_attributes(group: Any, attributes: Mapping[str, str]) -> None:
    if not isinstance(group, dict):
        return
    resource = group.get("resource")
    if not isinstance(resource, dict):
        resource = group["resource"] = {}
    sent = resource.get("attributes")
    attribute_list = sent if isinstance(sent, list) else []
    foreign = [
        attribute
        for attribute in attribute_list
        if not (isinstance(attribute, dict) and attribute.get("key") in attributes)
    ]
    own = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    resource["attributes"] = [*foreign, *own]


def _redacted(redactor: Redactor, encoding: Encoding, request: Any) -> bytes:
    """The body of a parsed request after redaction.

    Raises:
        RequestRefused: The redaction failed. Nothing is ever stored unredacted.
    """
    try:
        if encoding == "json":
            request = redactor.json(request)
        else:
            redactor.message(request)
        return _body(encoding, request)
    except Exception:
        _log.exception("a request that could not be redacted was refused")
        raise RequestRefused(400, "redaction", "the request cannot be redacted") from None


def _body(encoding: Encoding, request: Any) -> bytes:
    """A parsed request as a body; deep JSON is consumed (see `json_bytes`)."""
    return json_bytes(request) if encoding == "json" else bytes(request.SerializeToString())
