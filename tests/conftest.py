"""What tests of several parts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oteval.store import Store

from .reconstruct.summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary", "store"]


@pytest.fixture
def store() -> Iterator[Store]:
    """Return an empty store in memory."""
    with Store() as opened:
        yield opened
