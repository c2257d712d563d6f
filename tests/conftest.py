"""Fixtures and settings that tests of several packages share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from oteval.store import Store

from .commands import oteval
from .reconstruct.summary import pytest_terminal_summary

__all__ = ["oteval", "pytest_terminal_summary", "store"]

# Properties use the same examples in every run, however busy the machine is.
settings.register_profile(
    "oteval", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("oteval")


# A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def store() -> Iterator[Store]:
    """Return an empty store in memory."""
    with Store() as opened:
        yield opened
