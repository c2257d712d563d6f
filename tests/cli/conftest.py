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


def _ingest_all(oteval: Run) -> None:
    paths = sorted(path for path in TRACES.glob("*.json") if path.name != "gold.json")
    assert oteval("ingest", *paths).status == 0


@pytest.fixture
def captured(prepare: Prepare) -> Run:
    """Return the command in a folder whose database holds all captures."""
    return prepare(_ingest_all)


@pytest.fixture
def filled(prepare: Prepare) -> Run:
    """Return the command in a folder whose database holds the capture."""
    return prepare(_ingest)
