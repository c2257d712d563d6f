"""When a failed evaluation is repeated."""

from __future__ import annotations

import pytest

from oteval.serve.pending_evaluations import RetryPolicy


@pytest.mark.parametrize(("failures", "delay"), [(0, 1.0), (1, 1.0), (2, 5.0), (3, 5.0)])
def test_the_last_delay_applies_to_all_later_failures(failures: int, delay: float):
    """Delays grow as listed and stay at the last."""
    assert RetryPolicy(attempts=3, delays=(1.0, 5.0)).delay(failures) == delay


def test_a_policy_counts_attempts():
    """Three attempts are a call and two repetitions."""
    policy = RetryPolicy(attempts=3)

    assert [policy.allows_another(failures) for failures in (1, 2, 3)] == [True, True, False]
    assert not RetryPolicy(attempts=1).allows_another(1)
