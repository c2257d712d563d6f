"""What the tests of attaching share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .endpoint import Downstream, listening


@pytest.fixture
def downstream() -> Iterator[Downstream]:
    """Return an endpoint to send to."""
    with listening() as state:
        yield state
