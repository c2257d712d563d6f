"""Fixtures of the tests of oteval.serve.publish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...otlp_endpoint import Downstream, listening


@pytest.fixture
def downstream() -> Iterator[Downstream]:
    """An OTLP/HTTP endpoint."""
    with listening() as state:
        yield state
