"""When a failed evaluation is repeated."""

from __future__ import annotations

import pytest

from oteval.serve.evaluations import evaluation_delay

MINUTE, HOUR = 60, 3600


@pytest.mark.parametrize(
    ("failures", "delay"),
    [(0, MINUTE), (1, MINUTE), (2, 10 * MINUTE), (5, 24 * HOUR), (6, 24 * HOUR)],
)
def test_the_last_delay_applies_to_all_later_failures(failures: int, delay: float):
    """Delays grow as listed and stay at the last."""
    assert evaluation_delay(100, failures) == delay


def test_attempts_are_counted():
    """Three attempts are a call and two repetitions."""
    assert [evaluation_delay(3, failures) is None for failures in (1, 2, 3)] == [False, False, True]
    assert evaluation_delay(1, 1) is None
