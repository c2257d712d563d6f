"""oteval reads the files of the exporter in docs/how-to/trace-files.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oteval.ingest import read
from oteval.ingest.sdk_objects import span_of

from ..make import ROOT


def test_files_of_the_documented_exporter_are_read(tmp_path: Path):
    """Spans of several exports to one file are unchanged."""
    page = (ROOT / "docs" / "how-to" / "trace-files.md").read_text()
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class" in block
    )
    names: dict[str, Any] = {}
    exec(code, names)
    path, memory, provider = tmp_path / "traces.pb", InMemorySpanExporter(), TracerProvider()
    for exporter in (names["FileExporter"](path), memory):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("scope")

    with tracer.start_as_current_span("agent"), tracer.start_as_current_span("tool") as span:
        span.set_attribute("text", "日本")

    assert [one for batch in read(path) for one in batch.spans] == [
        span_of(one) for one in memory.get_finished_spans()
    ]
