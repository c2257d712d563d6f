"""Files of spans that are wider than DuckDB's memory allows for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from oteval.scoring import load
from oteval.store import Store

SPANS, ATTRIBUTES, SIZE = 240, 3, 200_000


def wide_span(number: int) -> dict[str, Any]:
    """Return a span of OTLP with long attributes that compress badly."""
    attributes = [
        {"key": f"page.{i}", "value": {"stringValue": os.urandom(SIZE // 2).hex()}}
        for i in range(ATTRIBUTES)
    ]
    return {
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "read",
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 1),
        "attributes": attributes,
    }


@pytest.mark.slow
def test_a_file_of_wide_spans_is_loaded_whole(tmp_path: Path) -> None:
    """Packing 144 MB of long texts in one row group needs more memory than loading may take."""
    file = tmp_path / "wide.jsonl"
    with file.open("w") as out:
        for number in range(SPANS):
            scope = {"scope": {"name": "pages"}, "spans": [wide_span(number)]}
            out.write(json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}) + "\n")
    with Store(tmp_path / "store.duckdb") as store:
        report = load(store, [file])
        spans, _ = store.spans.of_traces([f"{n + 1:032x}" for n in (0, SPANS - 1)])

    assert (report.stored, report.bad) == (SPANS, 0)
    assert {len(value) for span in spans for value in span.attributes.values()} == {SIZE}
