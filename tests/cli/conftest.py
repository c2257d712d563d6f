"""Commands on the captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..commands import Done, Run
from ..make import TRACES

__all__ = ["Done", "Run"]


@pytest.fixture
def chat() -> Path:
    """Return a capture of three runs: two turns, and a model call that failed."""
    return TRACES / "genai_openai_chat.json"


@pytest.fixture
def filled(oteval: Run, chat: Path) -> Run:
    """Return the command in a folder whose database holds the capture."""
    assert oteval("ingest", chat).status == 0
    return oteval
