"""Commands on the captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..commands import Done, Prepare, Run
from ..make import TRACES

__all__ = ["Done", "Prepare", "Run"]


CHAT = TRACES / "genai_openai_chat.json"


@pytest.fixture
def chat() -> Path:
    """Return a capture of three runs: two turns, and a model call that failed."""
    return CHAT


def _ingest(oteval: Run) -> None:
    assert oteval("ingest", CHAT).status == 0


@pytest.fixture
def filled(prepare: Prepare) -> Run:
    """Return the command in a folder whose database holds the capture."""
    return prepare(_ingest)
