"""What the tests of loading, scoring and exporting share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..make import TRACES


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that writes a file of OTLP/JSON lines, one span in each."""

    def write(count: int) -> Path:
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for number in range(1, count + 1):
                span = {
                    "traceId": f"{number:032x}",
                    "spanId": f"{number:016x}",
                    "startTimeUnixNano": str(number),
                    "endTimeUnixNano": str(number + 1),
                }
                request = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
                file.write(json.dumps(request) + "\n")
        return path

    return write


@pytest.fixture
def chat_file() -> Path:
    """Return a capture of three runs."""
    return TRACES / "genai_openai_chat.json"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Return a function that writes a module beside the configuration and returns its name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[str] = []

    def write(text: str) -> str:
        name = f"evaluators_of_test_{len(made)}"
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)
