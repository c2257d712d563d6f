"""Large files that several processes decode in parts give the same as one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oteval import Store, load
from oteval.ingest import split_file
from oteval.scoring import loader

TRACES = Path(__file__).parents[1] / "data" / "traces"
NAMES = ("genai_openai_chat", "openinference_chat", "v2_legacy_chat.logs", "langgraph_genai")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the sizes, so that small files are decoded in parts."""
    monkeypatch.setattr(loader, "PARALLEL_SIZE", 10_000)
    monkeypatch.setattr(loader, "PART_SIZE", 20_000)


def lines() -> list[str]:
    """Return captures as JSON lines."""
    return [json.dumps(json.loads((TRACES / f"{name}.json").read_text())) for name in NAMES]


def rows(path: Path) -> tuple[list[object], list[str]]:
    """Load a file; return the stored content and the problems."""
    with Store() as store:
        report = load(store, [path])
        traces = [batch.column("trace_id").to_pylist() for batch in store.spans.export()]
        spans, logs = store.spans.of_traces([trace for found in traces for trace in found])
        stored = sorted(repr(item).split(", seq=")[0] for item in [*spans, *logs])
        file = report.files[0]
        counts = (file.spans, file.logs, file.written.stored, file.written.duplicate)
        return [counts, stored, file.written.conflicts], [str(p) for p in file.problems]


def test_parts_give_the_same_as_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans, log records, duplicates and the lines of problems are the same."""
    path = tmp_path / "big.jsonl"
    good = lines()
    path.write_text("\n".join([*good, "{broken", good[0], '{"resourceSpans": [1]}', *good]) + "\n")
    whole = rows(path)

    monkeypatch.setattr(loader, "PARALLEL_SIZE", 10_000)
    monkeypatch.setattr(loader, "PART_SIZE", 20_000)
    parts = rows(path)

    assert len(split_file(path, 20_000)) > 3
    assert parts == whole
    assert whole[1][0].startswith(f"{path}:5: ")


def test_parts_begin_only_before_requests(tmp_path: Path) -> None:
    """Parts cover the whole file, and each begins with a request."""
    path = tmp_path / "big.jsonl"
    path.write_text("\n".join(lines() * 3) + "\n")

    parts = split_file(path, 30_000)

    content = path.read_bytes()
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(content)
    assert all(content[part.start :].startswith(b'{"resource') for part in parts)


@pytest.mark.parametrize("content", [b"", b"[1]" * 20_000, b'{"resourceSpans": [\n' * 9_000])
def test_other_files_have_no_parts(tmp_path: Path, content: bytes) -> None:
    """A file that is not JSON lines, or too small, has no parts."""
    path = tmp_path / "file"
    path.write_bytes(content.replace(b"\n", b"\n "))

    assert split_file(path, 10_000) == []


@pytest.mark.usefixtures("small_parts")
def test_a_process_that_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a decoding process ends unexpectedly, the file is reported as incomplete."""
    path = tmp_path / "big.jsonl"
    path.write_text("\n".join(lines() * 3) + "\n")
    monkeypatch.setattr("oteval.base.child_process.sys.executable", "/bin/true")

    with Store() as store:
        report = load(store, [path])

    assert "decoding process ended" in report.files[0].error
    assert report.stored == 0
