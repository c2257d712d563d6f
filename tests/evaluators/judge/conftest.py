"""A scripted server, and what remembers how servers were asked, emptied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY

from ...model_server import Server, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a running server that gives a passing verdict until its script is changed."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    OUTPUT_MODE_MEMORY.clear()
    with serving() as running:
        yield running
