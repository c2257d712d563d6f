"""Files of every format are read, whatever their name, and so are the valid parts of bad ones."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from oteval.base.errors import InputError
from oteval.ingest import (
    Batch,
    Problem,
    decode_json,
    file_size,
    incremental_json,
    json_documents,
    protobuf_stream,
    read,
)

from .builders import framed, line, log_message, log_request, message, request, span

TRACES = Path(__file__).parents[1] / "data" / "traces"
CAPTURES = sorted(path for path in TRACES.glob("*.json") if path.name != "gold.json")
PRETTY = orjson.OPT_INDENT_2

in_a_file = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def load(path: Path, data: bytes) -> tuple[list[int], list[str]]:
    """Return the numbers of the spans in a file with this content, and its problems."""
    file = path / "traces.jsonl"
    file.write_bytes(data)
    return numbers(read(file)), [str(p).removeprefix(f"{path}/") for p in problems(read(file))]


def numbers(batches: Iterator[Batch]) -> list[int]:
    return [int(span.span_id, 16) for batch in batches for span in batch.spans]


def problems(batches: Iterator[Batch]) -> list[Problem]:
    return [problem for batch in batches for problem in batch.problems]


def pretty(*spans: int) -> bytes:
    return orjson.dumps(request(*map(span, spans)), option=PRETTY)


FORMS = {
    "compact": line(1, 2, 3),
    "pretty": pretty(1, 2, 3),
    "concatenated": pretty(1) + b"\n" + pretty(2, 3) + b"\n",
    "concatenated_without_space": pretty(1) + pretty(2, 3),
    "two_on_a_line": line(1) + line(2, 3),
    "list": orjson.dumps([request(span(1)), request(span(2), span(3))]),
    "pretty_list": orjson.dumps([request(span(1)), request(span(2), span(3))], option=PRETTY),
    "list_of_lines": b"[\n" + line(1) + b",\n" + line(2, 3) + b"\n]\n",
    "lines": line(1) + b"\n" + line(2, 3) + b"\n",
    "lines_without_last_end": line(1) + b"\n" + line(2, 3),
    "windows_lines": line(1) + b"\r\n\r\n" + line(2, 3) + b"\r\n",
    "blank_lines": b"\n\n" + line(1) + b"\n \t\n" + line(2, 3) + b"\n\n",
    "empty_requests": b'{}\n{"resourceSpans":[]}\n' + line(1, 2, 3),
    "bom": b"\xef\xbb\xbf" + line(1, 2, 3),
    "bom_pretty": b"\xef\xbb\xbf" + pretty(1) + b"\n\xef\xbb\xbf" + pretty(2, 3),
    "message": message(1, 2, 3),
    "messages_in_a_row": message(1) + message(2, 3),
    "stream": framed(message(1), message(2, 3)),
    "stream_with_empty_messages": framed(b"", message(1), b"", message(2, 3), b""),
    "stream_of_zstd": framed(zstd(message(1)), zstd(message(2, 3))),
    "stream_of_zstd_json": framed(zstd(line(1)), zstd(line(2, 3))),
}
COMPRESSED = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip_members": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "gzip_padded": lambda data: gzip.compress(data) + bytes(100),
    "zstd": zstd,
    "zstd_frames": lambda data: zstd(data[:9]) + zstd(data[9:]),
    "zstd_after_skippable": lambda data: b"\x50\x2a\x4d\x18\x02\0\0\0ab" + zstd(data),
}


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("form", FORMS)
def test_every_form(tmp_path: Path, form: str, compression: str) -> None:
    """Every format gives the same spans with every compression, without a problem."""
    got = load(tmp_path, COMPRESSED[compression](FORMS[form]))

    assert got == ([1, 2, 3], [])


@pytest.mark.parametrize("form", [name for name in FORMS if "zstd" not in name])
def test_every_form_value_by_value(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that are read value by value give the same spans."""
    monkeypatch.setattr(json_documents, "LONG_LINE", 10)

    got = load(tmp_path, FORMS[form])

    assert got == ([1, 2, 3], [])


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_captures_value_by_value_are_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a capture value by value gives the same spans as parsing it whole."""
    document = orjson.loads(path.read_bytes())
    whole = decode_json(document)
    monkeypatch.setattr(json_documents, "_BATCH", 3)

    batches = list(read(path))

    assert [span for batch in batches for span in batch.spans] == whole.spans
    assert [log for batch in batches for log in batch.logs] == whole.logs
    assert not problems(iter(batches))


def test_logs_of_every_form(tmp_path: Path) -> None:
    """Log records are read from JSON and protobuf alike."""
    files = {
        "a": orjson.dumps(log_request(timeUnixNano=5)),
        "b": orjson.dumps(log_request(timeUnixNano=5), option=PRETTY),
        "c": log_message(5),
        "d": framed(log_message(5), message(1)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    times = {name: [log.time_ns for b in read(tmp_path / name) for log in b.logs] for name in files}

    assert times == {name: [5] for name in files}


def test_spans_and_logs_in_one_document(tmp_path: Path) -> None:
    """One document may contain both."""
    file = tmp_path / "both.json"
    file.write_bytes(orjson.dumps(request(span()) | log_request(timeUnixNano=5), option=PRETTY))

    batches = list(read(file))

    assert [(len(batch.spans), len(batch.logs)) for batch in batches] == [(1, 1)]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path "-" is standard input, which has no size."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(gzip.compress(line(1)))))

    assert numbers(read("-")) == [1]
    assert file_size("-") is None


def test_progress(tmp_path: Path) -> None:
    """`bytes_read` counts the bytes on disk and reaches the file's size."""
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"\n".join(line(n) for n in range(1, 2000))))

    counts = [batch.bytes_read for batch in read(file, chunk=500)]

    assert counts == sorted(counts)
    assert counts[-1] == file_size(file) == file.stat().st_size
    assert file_size(tmp_path) is None
    assert file_size(tmp_path / "missing") is None


def test_batches_have_the_requested_size(tmp_path: Path) -> None:
    """Lines are gathered until a batch is large enough; a larger document stays whole."""
    file = tmp_path / "a"
    file.write_bytes(b"\n".join([line(1, 2), line(3), line(4), line(*range(5, 15)), line(15)]))

    assert [len(batch.spans) for batch in read(file, chunk=3)] == [3, 11, 1]


def test_garbage_among_good_lines(tmp_path: Path) -> None:
    """Each bad line is one problem with its number, and every valid line is read."""
    data = b"\n".join(
        [b"hello", line(1), b'{"a": ', line(2), b"\xff\xfe", line(3), b'{"a": 1, "b": 2}', b"7"]
    )

    got, told = load(tmp_path, data)

    assert got == [1, 2, 3]
    assert told == [
        "traces.jsonl:1: not valid JSON (Expecting value at column 1); line skipped",
        "traces.jsonl:3: not valid JSON (cut at the end of line 3); line skipped",
        "traces.jsonl:5: not UTF-8 text (byte 0xff at column 1); line skipped",
        "traces.jsonl:7: a JSON object with the keys 'a', 'b' is not an OTLP request "
        "(it would have 'resourceSpans' or 'resourceLogs')",
        "traces.jsonl:8: JSON (the value 7) is not an OTLP request",
    ]


def test_a_line_with_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    """The spans of such a line are kept, and the replacement of the bytes is reported."""
    data = line(1) + b"\n" + line(2).replace(b'"n"', b'"\xe9\xff"') + b"\n" + line(3)

    file = tmp_path / "a.jsonl"
    file.write_bytes(data)
    batches = list(read(file))

    assert [s.name for batch in batches for s in batch.spans] == ["n", "��", "n"]
    assert [str(p) for p in problems(iter(batches))] == [
        f"{file}:2: bytes that are not UTF-8 were read as U+FFFD"
    ]


def test_a_character_on_the_edge_of_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters of several bytes are read correctly across the chunks of a file."""
    monkeypatch.setattr("oteval.ingest.compression._CHUNK", 7)
    file = tmp_path / "a.json"
    text = "é漢😀" * 20
    file.write_bytes(orjson.dumps(request(span(name=text), span(2)), option=PRETTY))

    spans = [span for batch in read(file) for span in batch.spans]

    assert [span.name for span in spans] == [text, "n"]
    assert not problems(read(file))


def test_metrics_are_reported(tmp_path: Path) -> None:
    """A line of metrics is one problem, pretty-printed or not."""
    metrics = {"resourceMetrics": [{"resource": {}}]}

    for option in (0, PRETTY):
        got, told = load(tmp_path, orjson.dumps(metrics, option=option) + b"\n" + line(1))

        assert got == [1]
        assert told == ["traces.jsonl:1: metrics are not stored"]


def test_a_bad_span_is_a_problem_of_its_line(tmp_path: Path) -> None:
    """A problem of the decoder is reported with file and line."""
    bad = orjson.dumps(request(span(1, traceId="x")))

    got, told = load(tmp_path, line(1) + b"\n" + bad)

    assert got == [1]
    assert told == ["traces.jsonl:2: span 'n': traceId 'x' is not a trace id in hex; span skipped"]


def test_a_truncated_document_keeps_its_complete_spans(tmp_path: Path) -> None:
    """The complete spans of a truncated document are read, and the place is reported."""
    compact, indented = line(1, 2, 3), pretty(1, 2, 3)

    assert load(tmp_path, compact[:-50]) == (
        [1, 2],
        [
            "traces.jsonl:1: not valid JSON (unexpected end of data at column "
            f"{len(compact) - 49}); 2 spans and log records before it are kept, "
            "the rest of the line skipped"
        ],
    )
    got, told = load(tmp_path, indented[: indented.index(b"0003")])
    assert got == [1, 2]
    assert len(told) == 1
    assert "before it are kept, the rest of the lines 1 to" in told[0]


def test_a_document_damaged_in_the_middle(tmp_path: Path) -> None:
    """Reading continues with the next document, and the skipped lines are reported."""
    damaged = (
        pretty(2, 3, 4)
        .replace(b'"name": "n"', b'"name" "n"', 2)
        .replace(b'name" "', b'name": "', 1)
    )

    got, told = load(tmp_path, pretty(1) + b"\n" + damaged + b"\n" + pretty(5) + b"\n" + line(6))

    assert got == [1, 2, 5, 6]
    assert len(told) == 1
    assert "Expecting ':' delimiter" in told[0]
    assert "the rest of the lines" in told[0]


def test_a_resource_after_its_spans(tmp_path: Path) -> None:
    """Spans have their resource and scope even if these are written after them."""
    document = request(span(1))
    group = document["resourceSpans"][0]
    scoped = group["scopeSpans"][0]
    turned = {"scopeSpans": [dict(reversed(scoped.items()))], "resource": group["resource"]}
    file = tmp_path / "a.json"
    file.write_bytes(orjson.dumps({"resourceSpans": [turned]}, option=PRETTY))

    (batch,) = read(file)

    assert (batch.spans[0].service, batch.spans[0].scope) == ("svc", "lib")


def test_invalid_objects_value_by_value(tmp_path: Path) -> None:
    """Invalid objects are reported in pretty-printed documents as in lines."""
    document = {
        "resourceSpans": [7, {"scopeSpans": 5}, {"resource": {}, "scopeSpans": [8, {}]}],
        "resourceLogs": None,
    }
    file = tmp_path / "a.json"
    file.write_bytes(orjson.dumps(document, option=PRETTY) + b"\n" + line(1))

    assert numbers(read(file)) == [1]
    assert [problem.reason for problem in problems(read(file))] == [
        "1 element of resourceSpans is not an object; left out",
        "scopeSpans is the value 5 instead of a list; left out",
        "1 element of scopeSpans is not an object; left out",
    ]


def test_numbers_and_surrogates_value_by_value(tmp_path: Path) -> None:
    """Lone surrogates are also replaced in pretty-printed documents."""
    file = tmp_path / "a.json"
    file.write_bytes(pretty(1).replace(b'"n"', rb'"\ud83d"'))

    (batch,) = read(file)

    assert batch.spans[0].name == "�"


def test_a_value_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span beyond the limit is a problem; the documents after it are read."""
    monkeypatch.setattr(incremental_json, "MAX_VALUE", 1 << 20)
    monkeypatch.setattr(json_documents, "LONG_LINE", 1 << 19)
    long = orjson.dumps(request(span(1), span(2, name="x" * (3 << 20))))

    got, told = load(tmp_path, long + b"\n" + line(3))

    assert got == [1, 3]
    assert len(told) == 1
    assert "a value longer than 1 MiB" in told[0]


def test_a_long_line_of_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage without line ends is skipped up to the next line, as one problem."""
    monkeypatch.setattr(json_documents, "LONG_LINE", 1 << 10)

    got, told = load(tmp_path, line(1) + b"\n" + b"x" * 5000 + b"\n" + line(2))

    assert got == [1, 2]
    assert told == ["traces.jsonl:2: not valid JSON (Expecting value at column 1); line skipped"]


def test_a_truncated_stream(tmp_path: Path) -> None:
    """Complete messages and complete spans are read, and the offset is reported."""
    whole = framed(message(1))

    got, told = load(tmp_path, whole + framed(message(2, 3))[:-5])

    assert got == [1, 2]
    assert told == [
        f"traces.jsonl: the message at byte {len(whole)} is cut; "
        "1 spans and log records before the cut are kept"
    ]


def test_a_truncated_message(tmp_path: Path) -> None:
    """The same is true for a file that is one message."""
    got, told = load(tmp_path, message(1, 2, 3)[:-5])

    assert got == [1, 2]
    assert told == [
        "traces.jsonl: the message is cut in the entry at byte 0; "
        "2 spans and log records before the cut are kept"
    ]


def test_bad_messages_in_a_stream(tmp_path: Path) -> None:
    """An invalid message is skipped; an invalid length ends the file."""
    start = framed(message(1), b"\xff\xff", message(2), zstd(message(3))[:9])

    got, told = load(tmp_path, start + framed(message(4)) + b"\xff" * 20)

    assert got == [1, 2, 4]
    assert len(told) == 3
    assert "the bytes are not an OTLP protobuf request" in told[0]
    assert "damaged zstd data" in told[1]
    assert "of 4294967295 bytes" in told[2]


def test_a_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small compressed message cannot exhaust the memory."""
    monkeypatch.setattr(protobuf_stream, "MAX_MESSAGE", 1 << 20)

    got, told = load(tmp_path, framed(message(1), zstd(bytes(2 << 20))))

    assert got == [1]
    assert "more than 1 MiB in a compressed message" in told[0]


def test_garbage_after_a_message(tmp_path: Path) -> None:
    """Bytes after a message that are not an entry are reported."""
    got, told = load(tmp_path, message(1) + b"garbage")

    assert got == [1]
    assert told == [
        f"traces.jsonl: no OTLP entry begins at byte {len(message(1))}; the rest is skipped"
    ]


def test_broken_gzip(tmp_path: Path) -> None:
    """The data up to the first damaged byte is used."""
    packed = gzip.compress(b"\n".join([line(1), line(2), b""]))
    wrong_sum = packed[:-8] + b"\0" * 4 + packed[-4:]

    assert load(tmp_path, packed[:-8]) == (
        [1, 2],
        ["traces.jsonl: the gzip stream ends early; the data before that is used"],
    )
    assert load(tmp_path, wrong_sum) == (
        [1, 2],
        [
            "traces.jsonl: the gzip stream is damaged (incorrect data check); "
            "the data before that is used"
        ],
    )
    got, told = load(tmp_path, packed + b"garbage")
    assert got == [1, 2]
    assert "the gzip stream is damaged (incorrect header check)" in told[0]


def test_broken_zstd(tmp_path: Path) -> None:
    """The data before the damage of a zstd stream is used."""
    packed = zstd(b"\n".join(line(n) for n in range(1, 1000)))

    for data, reason in [
        (packed + zstd(line(5000))[:-3], "the zstd stream ends early"),
        (packed + b"garbage", "the zstd stream is damaged"),
    ]:
        got, told = load(tmp_path, data)

        assert got == list(range(1, len(got) + 1))
        assert len(got) > 900
        assert reason in told[-1]


def test_nothing_left_of_a_compressed_file(tmp_path: Path) -> None:
    """A compressed file without any readable data is an InputError with the reason."""
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(line(1))[:10])

    with pytest.raises(InputError, match="the gzip stream ends early, and nothing could be"):
        list(read(file))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b" \r\n\n", "contains only white space"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "a PNG image cannot be read; supported are OTLP/JSON"),
        ('{"a"}'.encode("utf-16"), "UTF-16 text cannot be read"),
        (b"name,age\nx,5\n", "text that begins with 'name,age' cannot be read"),
        ("naïve\n".encode("latin-1"), "binary data that begins with 6e 61 ef"),
        (bytes(range(128, 200)), "binary data that begins with 80 81"),
        (b'{"data":[{"traceID":"1"}],"total":0}', "a JSON object with the keys 'traceID' is not"),
        (b'{\n "foo": 1\n}', ":1: a JSON object with the keys 'foo' is not an OTLP request"),
        (b"[1, 2]", "JSON .the value 1. is not an OTLP request"),
        (b'{"resourceSpans":[{"res', "unexpected end of data at column 24"),
        (b"{garbage\n{more\n", ":1: not valid JSON .expected a key at column 2"),
    ],
)
def test_a_file_of_no_known_format(tmp_path: Path, data: bytes, message: str) -> None:
    """A file of an unknown format is one InputError with its name and a description."""
    file = tmp_path / "a.json"
    file.write_bytes(data)

    with pytest.raises(InputError, match=message) as caught:
        list(read(file))

    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    """A missing file is an InputError that names it."""
    with pytest.raises(InputError, match=r"missing\.json: cannot be opened .No such file"):
        list(read(tmp_path / "missing.json"))


def test_a_directory(tmp_path: Path) -> None:
    """A directory is an InputError with the remedy."""
    with pytest.raises(InputError, match=r"is a directory; name its files, such as .*/\*\.json"):
        list(read(tmp_path))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read all")
def test_a_file_without_permission(tmp_path: Path) -> None:
    """A file without read permission is an InputError with the reason."""
    file = tmp_path / "a.json"
    file.write_bytes(line(1))
    file.chmod(0)

    with pytest.raises(InputError, match="Permission denied"):
        list(read(file))


def test_a_name_that_no_file_can_have() -> None:
    """A name with a zero byte is an InputError too."""
    with pytest.raises(InputError, match="cannot be opened"):
        list(read("a\0b"))
    assert file_size("a\0b") is None


@pytest.mark.parametrize("packed", [line(1), zstd(line(1))], ids=["plain", "zstd"])
def test_a_disk_that_fails(monkeypatch: pytest.MonkeyPatch, packed: bytes) -> None:
    """An error of the file system while reading is an InputError."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(size)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Failing(packed[:-5])))

    with pytest.raises(InputError, match=r"-: cannot be read \(Input/output error\)"):
        list(read("-"))


def test_very_many_bad_lines_come_in_batches(tmp_path: Path) -> None:
    """Problems do not gather in memory; a file with nothing else still ends in an InputError."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"{x\n" * 2500)
    batches = read(file)

    assert [len(next(batches).problems) for _ in range(2)] == [1000, 1000]
    with pytest.raises(InputError, match=r"a\.jsonl:1: not valid JSON"):
        next(batches)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Only a part of a file is in memory: of lines, of one document, and of messages."""
    text = "x" * 2000
    spans = [span(n, name=text) for n in range(1, 33)]
    one = orjson.dumps(request(*spans))
    head, tail = one[: one.index(b'"spans":[') + 9], b"]}]}]}"
    inner = one[len(head) : -len(tail)]
    files = {
        "lines": (one + b"\n") * 400,
        "document": head + b",\n".join([inner] * 400) + tail,
        "stream": framed(message(*range(1, 33), name=text)) * 400,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        assert len(data) > 10 << 20

    for name in files:
        tracemalloc.start()
        for _ in read(tmp_path / name, chunk=256):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 << 20, name


# What begins a compressed file would make all of it one, and a byte order mark is no garbage.
MARKS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf")
garbage = st.one_of(
    st.binary(max_size=20)
    .map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))
    .filter(lambda data: not data.startswith(MARKS)),
    st.text('{}[]",:1a ', max_size=12).map(str.encode),
    st.integers(0, 200).map(lambda cut: line(9, 9)[:cut]),
    st.just(pretty(9)[:300]),
)


@in_a_file
@given(st.lists(st.none() | garbage, max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_garbage_never_costs_a_good_line(
    tmp_path: Path, parts: list[bytes | None], end: bytes
) -> None:
    """However good lines and garbage are mixed, every span of the good ones is read once."""
    lines = [line(100 + n, 200 + n) if part is None else part for n, part in enumerate(parts)]
    lines.append(line(1))
    expected = [n for i, part in enumerate(parts) if part is None for n in (100 + i, 200 + i)]

    content = end.join(lines)
    # Bytes that begin with a line feed may be protobuf: its first tag is the same byte.
    assume(content.isascii() or content[:1] not in (b"\n", b"\r"))

    got, told = load(tmp_path, content)

    assert [number for number in got if number != 9] == [*expected, 1]
    assert told or not any(part and part.strip() for part in parts) or 9 in got or _empty(parts)


def _empty(parts: list[bytes | None]) -> bool:
    """Whether all garbage happens to be empty requests."""
    return all(part is None or part.strip() in (b"", b"{}", b"[]") for part in parts)


@in_a_file
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_an_input_error_at_worst(tmp_path: Path, data: bytes) -> None:
    """No content of a file raises anything but InputError."""
    for content in (
        data,
        b"\x1f\x8b" + data,
        b"\x28\xb5\x2f\xfd" + data,
        b"\x0a" + data,
        b"[" + data,
    ):
        file = tmp_path / "a"
        file.write_bytes(content)
        with suppress(InputError):
            assert all(batch.spans or batch.logs or batch.problems for batch in read(file))


TRUNCATED = {
    "compact": line(1, 2, 3),
    "pretty": pretty(1, 2, 3),
    "lines": b"\n".join([line(1), line(2), line(3)]),
    "message": message(1, 2, 3),
    "stream": framed(message(1), message(2, 3)),
    "gzip": gzip.compress(line(1, 2, 3)),
    "zstd": zstd(line(1, 2, 3)),
}


@pytest.mark.parametrize("form", TRUNCATED)
def test_truncation_at_any_byte(tmp_path: Path, form: str) -> None:
    """A file truncated anywhere gives its first spans, and reports the truncation."""
    data = TRUNCATED[form]
    boundaries = {len(data)}
    if form == "lines":
        boundaries |= {n * (len(line(1)) + 1) + less for n in (1, 2) for less in (0, -1)}
    if form == "stream":
        boundaries.add(len(framed(message(1))))
    file = tmp_path / "a"

    for cut in range(1, len(data) + 1):
        file.write_bytes(data[:cut])
        try:
            batches = list(read(file))
        except InputError:
            assert cut not in boundaries
            continue
        assert [1, 2, 3][: len(numbers(iter(batches)))] == numbers(iter(batches))
        assert bool(problems(iter(batches))) == (cut not in boundaries)
