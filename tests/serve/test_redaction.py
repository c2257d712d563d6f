"""Redaction by a running server fails closed, and finds text however it is encoded."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.served import Served, until
from oteval.base.redaction import RedactionRule
from oteval.ingest.receiver.redaction import Redactor
from oteval.model import LogRecord, Span
from oteval.store import Store

pytestmark = pytest.mark.slow

JSON = "application/json"
RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 200ms}
redact:
  - pattern: 'sesame\\d'
"""
ALIASES = "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))])


@pytest.fixture
def server(served: Served) -> Served:
    """Return a server whose rules are those of `RULES`."""
    use(served, RULES)
    return served


def use(server: Served, text: str) -> None:
    """Have other rules in force."""
    loads = server.state()["redaction"]["loads"]
    write(server, f"{text}\n# {loads}\n")
    until(lambda: server.state()["redaction"]["loads"] > loads)


def named(name: str) -> bytes:
    """Return a request of one span with a name."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name=name)
    span.trace_id, span.span_id = random.randbytes(16), random.randbytes(8)
    return request.SerializeToString()


def write(server: Served, text: str | None) -> None:
    """Replace the configuration, as an editor does; None removes it."""
    if text is None:
        (server.db.parent / "oteval.yaml").unlink()
        return
    partial = server.db.parent / "partial.yaml"
    partial.write_text(text)
    partial.replace(server.db.parent / "oteval.yaml")


def stored(server: Served) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records that are stored."""
    with Store(server.db) as store:
        spans = [span for page in store.spans.pages() for span in page]
        return spans, [log for page in store.spans.log_pages() for log in page]


def post(server: Served, *names: str) -> set[str]:
    """Send spans with names; return the names under which they are stored."""
    before = {span.span_id for span in stored(server)[0]}
    assert {server.post("/v1/traces", named(name))[0] for name in names} == {200}

    def new() -> set[str] | None:
        found = [span for span in stored(server)[0] if span.span_id not in before]
        return {span.name for span in found} if len(found) == len(names) else None

    return set(until(new, 60))


BROKEN = {
    "a tag": RULES.replace("sesame", "open") + "salt: !!timestamp x",
    "aliases": RULES.replace("sesame", "open") + ALIASES,
    "depth": RULES.replace("sesame", "open") + f"gates: {'[' * 2000}",
    "a key": RULES.replace("pattern", "patern"),
    "a section": RULES.replace("redact:", "redacts:"),
    "a pattern": RULES.replace("sesame\\d", "(?=x)"),
    "nothing": "",
    "no file": None,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_configuration_that_cannot_be_read_changes_nothing(
    server: Served, text: str | None
) -> None:
    """The last good rules hold, /readyz says so, nothing restarts; a mended file is in force."""
    restarts = server.state()["restarts"]
    write(server, text)
    state = until(lambda: (s := server.state())["redaction"]["error"] and s)
    status = server.get("/readyz")[0]
    under_the_old = post(server, "sesame1 open1")
    use(server, RULES.replace("sesame", "open"))
    under_the_new = post(server, "sesame1 open1")

    assert status == 503
    assert not state["redaction"]["is_current"]
    assert any("the last good rules" in reason for reason in state["reasons"])
    assert under_the_old == {"[redacted] open1"}
    assert under_the_new == {"sesame1 [redacted]"}
    assert server.state()["restarts"] == restarts


def test_a_fault_elsewhere_in_the_file_leaves_the_server_ready(server: Served) -> None:
    """Where the rules can be read and are the same, only a warning says that the file is broken."""
    write(server, RULES.replace("tool_errors", "tool_erors"))
    state = until(lambda: (s := server.state())["redaction"]["error"] and s)

    assert state["redaction"]["is_current"]
    assert any("tool_erors" in warning or "type" in warning for warning in state["warnings"])
    assert server.get("/readyz")[0] == 200


def test_a_storing_process_that_starts_again_uses_the_last_good_file(server: Served) -> None:
    """With a broken file, it stores and scores as before instead of starting in a loop."""
    write(server, RULES.replace("sesame", "open") + "salt: !!timestamp x")
    until(lambda: server.state()["redaction"]["error"])
    restarts = server.state()["restarts"]
    server.kill("storage")
    until(lambda: server.state()["restarts"] > restarts and server.state()["is_storing"])

    assert post(server, "a sesame1") == {"a [redacted]"}
    assert server.state()["restarts"] == restarts + 1


def test_a_server_does_not_start_with_rules_that_it_cannot_read(tmp_path: Path) -> None:
    """It says the reason in one line and ends."""
    (tmp_path / "oteval.yaml").write_text(RULES + "gates: !!int x")
    command = [sys.executable, "-m", "oteval", "serve", "--http", "127.0.0.1:0", "--grpc", ""]

    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert found.returncode == 2
    assert "oteval.yaml: a value cannot be read" in found.stderr


SECRET = "4111-1111-1111-1111"
CARD = RedactionRule((), r"\b\d{4}-?\d{4}-?\d{4}-?\d{4}\b", "[card]")
NUMBER = int(SECRET.replace("-", ""))
TIMES = (1_700_000_000_000_000_000, 4111111111111111)


def hidden_spans() -> ExportTraceServiceRequest:
    """Return a request with the secret in every place that a sender can write."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add(schema_url=SECRET)
    resource.resource.attributes.add(key="r").value.string_value = SECRET
    entity = resource.resource.entity_refs.add(type=SECRET)
    entity.id_keys.append(SECRET)
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = SECRET, SECRET
    span = scope.spans.add(name=SECRET, trace_state=f"a={SECRET}")
    span.trace_id, span.span_id = b"4111111111111111", b"41111111"
    span.start_time_unix_nano, span.end_time_unix_nano = TIMES
    span.status.message = SECRET
    span.events.add(name=SECRET).attributes.add(key="e").value.string_value = SECRET
    link = span.links.add(trace_id=b"4111111111111111", span_id=b"41111111", trace_state=SECRET)
    link.attributes.add(key="l").value.int_value = NUMBER
    values = span.attributes
    values.add(key=f"key {SECRET}").value.string_value = "x"
    values.add(key="int").value.int_value = NUMBER
    values.add(key="double").value.double_value = float(NUMBER)
    values.add(key="bytes").value.bytes_value = SECRET.encode()
    values.add(key="odd bytes").value.bytes_value = b"\xff\xfe " + SECRET.encode()
    values.add(key="utf-16").value.bytes_value = SECRET.encode("utf-16")
    values.add(key="escaped").value.string_value = SECRET.replace("-", r"\u002d")
    inner = json.dumps({"note": SECRET.replace("1-", "1\u002d")}).replace("-", r"\u002d")
    values.add(key="twice").value.string_value = json.dumps({"arguments": inner})
    values.add(key="cut").value.string_value = '{"a": "' + SECRET.replace("-", r"\u002d")
    values.add(key="repr").value.string_value = SECRET.replace("-", r"\x2d")
    deep = values.add(key="deep").value
    for _ in range(10):
        deep = deep.array_value.values.add().kvlist_value.values.add(key=SECRET).value
        deep = deep.array_value.values.add()
    deep.string_value = SECRET
    return request


def holds(text: str) -> bool:
    """Return whether the secret can be read in a text, however it is escaped."""
    for _ in range(5):
        text = text.replace("\\\\", "\\").replace(r"\u002d", "-").replace(r"\x2d", "-")
    return SECRET in text or str(NUMBER) in text


def test_every_place_is_covered_and_otlp_s_own_fields_stay(server: Served) -> None:
    """Protobuf and JSON, spans and logs: no secret is stored; ids and times are as they were."""
    use(server, RULES + f"  - {{pattern: '{CARD.pattern}', replace: '[card]'}}\n")
    before = {span.span_id for span in stored(server)[0]}
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=TIMES[1])
    record.body.kvlist_value.values.add(key=SECRET).value.int_value = NUMBER
    record.event_name = record.severity_text = SECRET

    answers = [
        server.post("/v1/traces", hidden_spans().SerializeToString())[0],
        server.post("/v1/logs", logs.SerializeToString())[0],
        server.post("/v1/traces", json.dumps(hidden_json()).encode(), JSON)[0],
    ]
    until(lambda: len(stored(server)[0]) == len(before) + 2 and stored(server)[1], 60)
    spans, records = stored(server)
    spans = [span for span in spans if span.span_id not in before]

    assert answers == [200, 200, 200]
    assert {(s.start_ns, s.end_ns) for s in spans} == {TIMES}
    assert {s.trace_id for s in spans} == {b"4111111111111111".hex(), "4" + "1" * 30 + "4"}
    assert not any(holds(repr(span).replace(str(TIMES[1]), "")) for span in spans)
    assert [log.time_ns for log in records] == [TIMES[1]]
    assert not any(holds(repr(log).replace(str(TIMES[1]), "")) for log in records)


def hidden_json() -> dict[str, object]:
    """Return the same as OTLP/JSON, with what only JSON can hold."""
    attributes = [
        {"key": "int", "value": {"intValue": str(NUMBER)}},
        {"key": "plain int", "value": {"intValue": NUMBER}},
        {"key": "double", "value": {"doubleValue": float(NUMBER)}},
        {"key": "bytes", "value": {"bytesValue": "NDExMS0xMTExLTExMTEtMTExMQ=="}},
        {"key": SECRET, "value": {"stringValue": SECRET}, "unknown": SECRET},
        {"key": "escaped", "value": {"stringValue": SECRET.replace("-", r"\u002d")}},
        {"key": "nested", "value": nested(20)},
    ]
    span = {
        "traceId": "4" + "1" * 30 + "4",
        "spanId": "4111111111111111",
        "startTimeUnixNano": str(TIMES[0]),
        "endTimeUnixNano": TIMES[1],
        "traceState": SECRET,
        "name": SECRET,
        "kind": "SPAN_KIND_CLIENT",
        "attributes": attributes,
        SECRET: NUMBER,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def nested(depth: int) -> dict[str, object]:
    """Return an AnyValue of lists in lists."""
    value: dict[str, object] = {"stringValue": SECRET}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    return value


@pytest.mark.parametrize("rule", ["pattern: 'sesame'", "keys: ['user.*']"], ids=["pattern", "keys"])
def test_any_rule_takes_lists_as_deep_as_no_rule_does(server: Served, rule: str) -> None:
    """A request that is taken without rules is taken with them, whatever its nesting."""
    use(server, RULES.partition("redact")[0] + f"redact: [{{{rule}}}]")
    before = len(stored(server)[0])
    depths = (1, 50, 90, 200, 300)
    answers = []
    for depth in depths:
        ids = {"traceId": "11" * 16, "spanId": random.randbytes(8).hex()}
        span = {**ids, "attributes": [{"key": "x", "value": nested(depth)}]}
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
        answers.append(server.post("/v1/traces", body, JSON)[0])
    until(lambda: len(stored(server)[0]) == before + len(depths), 60)

    assert answers == [200] * len(depths)


def test_a_file_that_is_half_written_is_not_taken(server: Served) -> None:
    """A moment in which the file ends before its rules leaves them in force."""
    path = server.db.parent / "oteval.yaml"
    for _ in range(20):
        path.write_text(RULES.partition("redact")[0])
        time.sleep(0.02)
        path.write_text(RULES)
        time.sleep(0.05)
        assert server.state()["redaction"]["rules"] == 1


def test_globs_may_hold_brackets() -> None:
    """A key with brackets is named by itself, and brackets are a set as well."""
    redactor = Redactor([RedactionRule(("m[0].c", "*.pass?"))])
    document = {"a": [{"key": key, "value": 1} for key in ("m[0].c", "m0.c", "x.pass1", "other")]}

    found = redactor.json(document)

    assert [item["value"] for item in found["a"]] == [{"stringValue": "[redacted]"}] * 3 + [1]
