"""Jaeger's JSON gives the original spans, except for information that it cannot represent."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import InputError
from oteval.ingest import json_documents, read
from oteval.ingest.containers import decode
from oteval.model import Event, Link, Span

from .containers import jaeger, jaeger_documents, lines, tag

T = 1_700_000_000_000_000  # µs
FULL = Span(
    "0" * 15 + "5b8efff798038103d",
    "0ee19b7ec3c1b174",
    "00000000000000aa",
    "chat",
    3,
    T * 1000,
    T * 1000 + 7000,
    2,
    "it broke",
    {
        "s": "x",
        "n": 12,
        "f": 0.5,
        "b": True,
        "bytes": {"bytesValue": "AAE="},
        "nan": {"doubleValue": "NaN"},
    },
    (Event("exception", T * 1000 + 1000, {"exception.message": "m"}),),
    (Link("a" * 32, "b" * 16),),
    "lib",
    "1.2",
    resource={"service.name": "svc", "pid": 5},
    trace_state="k=v",
    flags=1,
    dropped_attributes=3,
)


def span(**fields: Any) -> dict[str, Any]:
    """Return a span of Jaeger's with these fields."""
    return {"traceID": "1", "spanID": "2", "operationName": "n", "processID": "p1", **fields}


def trace(*spans: dict[str, Any], **fields: Any) -> dict[str, Any]:
    processes = {"p1": {"serviceName": "svc", "tags": []}}
    return {"traceID": "1", "spans": list(spans), "processes": processes, **fields}


def only(document: Any) -> Span:
    """Return the one span of a document that has no problems."""
    decoded = decode(document)
    assert decoded.problems == []
    (found,) = decoded.spans
    return found


def load(path: Path, data: bytes) -> tuple[list[Span], list[str]]:
    """Return the spans of a file with this content, and its problems."""
    file = path / "traces"
    file.write_bytes(data)
    batches = list(read(file))
    problems = [str(p).removeprefix(f"{path}/") for batch in batches for p in batch.problems]
    return [span for batch in batches for span in batch.spans], problems


@pytest.mark.parametrize("short_ids", [False, True])
def test_every_field_comes_back(short_ids: bool) -> None:
    """Kind, status, scope, trace state and counts are tags to Jaeger, and fields again."""
    document = jaeger([FULL], short_ids=short_ids)
    document["data"][0]["spans"][0]["tags"][-2:-1] = [
        {"key": "nan", "type": "float64", "value": "NaN"}
    ]

    assert only(document) == FULL


@pytest.mark.parametrize(
    "form",
    [
        lambda answer: answer,
        lambda answer: {"data": answer["data"]},
        lambda answer: answer["data"][0],
        lambda answer: answer["data"],
    ],
    ids=["api", "download", "trace", "list"],
)
@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2], ids=["line", "pretty"])
def test_every_form_gives_the_same(tmp_path: Path, form: Any, option: int) -> None:
    """The API's answer, the page's download, a bare trace and a list of them are read alike."""
    data = orjson.dumps(form(jaeger([FULL])), option=option)

    spans, told = load(tmp_path, data + b"\n" + data)

    assert [item.span_id for item in spans] == [FULL.span_id] * 2
    assert spans[0].resource == FULL.resource
    assert told == []


def test_documents_of_elasticsearch() -> None:
    """A span that Jaeger stored by itself has its process in it, and texts for numbers."""
    plain = jaeger_documents([FULL])[0]

    assert only(plain) == only({"_index": "jaeger-span", "_source": plain})
    found = only(plain)
    assert (found.attributes["n"], found.attributes["b"], found.attributes["f"]) == (12, True, 0.5)
    assert (found.resource, found.scope, found.kind) == (FULL.resource, "lib", 3)


def test_old_names_of_the_scope_and_of_events() -> None:
    """Spans of the Jaeger exporters before the scope got its name have it all the same."""
    tags = [tag("otel.library.name", "lib"), tag("otel.library.version", "1")]
    logs = [{"timestamp": 5, "fields": [tag("message", "hello"), tag("a", 1)]}]

    found = only(trace(span(tags=tags, logs=logs)))

    assert (found.scope, found.scope_version, found.attributes) == ("lib", "1", {})
    assert found.events == (Event("hello", 5000, {"a": 1}),)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([], (0, "")),
        ([tag("error", True)], (2, "")),
        ([{"key": "error", "type": "string", "value": "true"}], (2, "")),
        ([tag("error", False)], (0, "")),
        ([tag("otel.status_code", "OK")], (1, "")),
        ([tag("otel.status_code", "ERROR"), tag("otel.status_description", "why")], (2, "why")),
        ([tag("error", True), tag("otel.status_description", "why")], (2, "why")),
        ([tag("otel.status_code", "OK"), tag("error", True)], (2, "")),
    ],
)
def test_the_status(tags: list[Any], expected: tuple[int, str]) -> None:
    """A span has failed if its error tag is true or its status code is ERROR."""
    found = only(trace(span(tags=tags)))

    assert (found.status_code, found.status_message) == expected


def test_a_description_without_a_status_stays() -> None:
    """Only the description of a status is removed from the tags."""
    found = only(trace(span(tags=[tag("otel.status_description", "why")])))

    assert found.status_message == ""
    assert found.attributes == {"otel.status_description": "why"}


def test_fields_are_limited_to_the_range_of_a_span() -> None:
    """No span ends after the last time there is; only the flag "sampled" is OpenTelemetry's."""
    last = (2**63 - 1) // 1000

    found = only(trace(span(startTime=last, duration=last, flags=3)))

    assert (found.end_ns, found.flags) == (2**63 - 1, 1)


def test_an_error_tag_with_another_value_is_kept() -> None:
    """An attribute named error that is not a boolean stays as it is."""
    assert only(trace(span(tags=[tag("error", "disk full")]))).attributes == {"error": "disk full"}


def test_references() -> None:
    """The first parent in the same trace is the parent; all other references are links."""
    references = [
        {"refType": "FOLLOWS_FROM", "traceID": "1", "spanID": "5"},
        {"refType": "CHILD_OF", "traceID": "9", "spanID": "6"},
        {"refType": "CHILD_OF", "traceID": "1", "spanID": "7"},
        {"refType": "CHILD_OF", "traceID": "1", "spanID": "8"},
    ]

    found = only(trace(span(references=references)))

    child = {"opentracing.ref_type": "child_of"}
    assert found.parent_id == f"{7:016}"
    assert found.links == (
        Link(f"{1:032}", f"{5:016}"),
        Link(f"{9:032}", f"{6:016}", child),
        Link(f"{1:032}", f"{8:016}", child),
    )


def test_the_parent_of_the_oldest_versions() -> None:
    """Before Jaeger had references, a separate field named the parent."""
    assert only(trace(span(parentSpanID="7"))).parent_id == f"{7:016}"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int64", "12", 12),
        ("int64", 12.0, 12),
        ("bool", "true", True),
        ("float64", "1.5", 1.5),
        ("float64", "Inf", {"doubleValue": "Infinity"}),
        ("binary", "AAE", {"bytesValue": "AAE="}),
        ("", [1], [1]),
        ("STRING", "x", "x"),
        ("string", None, None),
    ],
)
def test_types_of_tags(kind: str, value: Any, expected: Any) -> None:
    """A tag's value is converted to its declared type."""
    found = only(trace(span(tags=[{"key": "a", "type": kind, "value": value}])))

    assert found.attributes == {"a": expected}
    assert type(found.attributes["a"]) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[("int64", "x"), ("int64", 2**63), ("int64", 1.5), ("bool", 2), ("float64", [])],
        *[("string", 5), ("binary", "?"), ("float64", 10**400), ("int64", True)],
    ],
)
def test_a_tag_of_another_type_is_reported_and_kept(kind: str, value: Any) -> None:
    """A value that does not match its type is reported and kept."""
    decoded = decode(trace(span(tags=[{"key": "a", "type": kind, "value": value}])))

    assert decoded.spans[0].attributes == {"a": value}
    assert len(decoded.problems) == 1
    assert "trace '1': span 'n': tag 'a'" in decoded.problems[0]


@pytest.mark.parametrize(
    "wrong",
    [{"traceID": "xyz"}, {"traceID": "0"}, {"spanID": ""}, {"spanID": "1" * 17}, {"spanID": 5}],
)
def test_a_span_without_ids_is_reported_and_skipped(wrong: dict[str, Any]) -> None:
    """Such a span is one problem, and the others of its trace are read."""
    decoded = decode(trace(span(**wrong), span(spanID="3")))

    assert [item.span_id for item in decoded.spans] == [f"{3:016}"]
    assert len(decoded.problems) == 1
    assert "is not a valid id in hex; span skipped" in decoded.problems[0]


def test_a_process_that_is_not_there() -> None:
    """The spans are read without a service, and their number is reported once."""
    decoded = decode(trace(span(processID="p9"), span(spanID="3", processID=None)))

    assert [item.service for item in decoded.spans] == ["", ""]
    assert decoded.problems == [
        "trace '1': 2 spans without a process of the trace; service unknown"
    ]


def test_errors_of_the_api_are_reported(tmp_path: Path) -> None:
    """An error in the response is a problem, whether it is parsed whole or in parts."""
    answer = {"data": None, "errors": [{"code": 404, "msg": "trace not found"}]}
    told = "Jaeger answered with an error ('trace not found')"

    assert decode(answer).problems == [told]
    for option in (0, orjson.OPT_INDENT_2):
        part = {**answer, "data": [trace(span())]}
        spans, problems = load(tmp_path, orjson.dumps(part, option=option))
        assert (len(spans), problems) == (1, [f"traces:1: {told}"])


def test_an_answer_without_traces() -> None:
    """A query without results is not an error."""
    assert decode({"data": [], "total": 0, "errors": None}).problems == []


def test_the_api_with_otlp() -> None:
    """Version 3 of the API answers in OTLP, which is read as such."""
    one = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "n"}
    request = {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}

    assert only({"result": request}).name == "n"


def test_truncation_keeps_the_spans_before_the_cut(tmp_path: Path) -> None:
    """Of a trace that breaks off the whole spans are kept, though their service is not known."""
    data = orjson.dumps({"data": [trace(*[span(spanID=str(n)) for n in range(1, 10)])]})
    cut = data[: data.index(b'"spanID":"8"')]

    spans, told = load(tmp_path, cut)

    assert [int(item.span_id) for item in spans] == list(range(1, 8))
    assert len(told) == 2
    assert "7 spans without a process of the trace" in told[0]
    assert "7 spans and log records before it are kept" in told[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda one: {"data": [trace(one)]},
        trace,
        lambda one: one | {"process": {"serviceName": "s", "tags": []}, "tags": [tag("a", {})]},
    ],
    ids=["answer", "trace", "document"],
)
def test_a_truncated_line_does_not_affect_the_next(tmp_path: Path, make: Any) -> None:
    """If a response is truncated anywhere in its line, the response in the next line is read."""
    one, two = (orjson.dumps(make(span(spanID=n))) for n in ("4", "5"))

    for cut in range(1, len(one)):
        spans, told = load(tmp_path, one[:cut] + b"\n" + two)

        assert f"{5:016}" in [item.span_id for item in spans], one[:cut]
        assert told, one[:cut]


def test_memory_does_not_grow_with_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spans of one huge trace wait on disk for the processes, which follow them."""
    monkeypatch.setattr(json_documents, "LONG_LINE", 1 << 20)
    monkeypatch.setattr(json_documents, "_MEMORY", 1 << 20)
    # A temporary file of its own, in which memory is not counted, is what holds them.
    one = orjson.dumps(span(tags=[tag("a", "x" * 2000)]))
    head = b'{"data":[{"traceID":"1","spans":['
    tail = b'],"processes":{"p1":{"serviceName":"svc","tags":[]}}}]}'
    file = tmp_path / "big.json"
    file.write_bytes(head + b",".join([one] * 10_000) + tail)
    assert file.stat().st_size > 20 << 20

    tracemalloc.start()
    count = 0
    for batch in read(file, chunk=256):
        count += len(batch.spans)
        assert {item.service for item in batch.spans} == {"svc"}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 10_000
    assert peak < 10 << 20


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "error", "true", "OK", "client", "CHILD_OF", "int64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["key", "type", "value", "traceID", "spanID", "refType", "fields", "tags"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FIELDS = ["traceID", "spanID", "operationName", "references", "startTime", "duration", "tags"]
FIELDS += ["logs", "processID", "process", "flags", "parentSpanID", "warnings", "tag"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), junk, max_size=5),
    st.dictionaries(st.sampled_from(["traceID", "processes", "errors", "status"]), junk),
    junk,
)
def test_arbitrary_fields_never_raise(
    fields: dict[str, Any], outer: dict[str, Any], data: Any
) -> None:
    """Arbitrary values in a span, a trace or a response are read or reported."""
    valid = decode(trace(span(**fields)))
    assert len(valid.spans) == 1 or valid.problems
    for document in (
        trace(span(**fields), **outer),
        {"data": [trace(**outer), data], **outer},
        {"data": data, **outer},
        span(**fields),
    ):
        try:
            decoded = decode(document)
        except InputError:
            continue
        for item in decoded.spans:
            assert (len(item.trace_id), len(item.span_id)) == (32, 16)
            assert 0 <= item.start_ns <= item.end_ns < 2**63
            assert all(isinstance(key, str) for key in item.attributes)


def test_lines_of_traces(tmp_path: Path) -> None:
    """Traces, one per line, are read line by line; a damaged one does not affect the others."""
    data = lines([trace(span(spanID=str(n))) for n in (1, 2, 3)])
    first, second, third = data.splitlines()

    spans, told = load(tmp_path, b"\n".join([first, second[:30], third]))

    assert [int(item.span_id) for item in spans] == [1, 3]
    assert len(told) == 1
    assert told[0].startswith("traces:2: ")
