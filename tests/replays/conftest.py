"""What the tests of replays share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _few_objects() -> None:
    """Hide the objects of earlier tests from replays, which look for tools among all objects.

    After 10,000 tests there are so many that the start of a replay takes a second.
    """
    gc.collect()
    gc.freeze()
