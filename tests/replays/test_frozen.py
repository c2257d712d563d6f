"""Frozen time, random numbers and uuids during a replay."""

from __future__ import annotations

import random
import secrets
import time
import uuid
from datetime import UTC, date, datetime
from time import time as imported_time
from uuid import uuid4

import numpy as np
import pytest

from oteval.base.errors import ConfigError
from oteval.replays.frozen import FREEZABLE, freeze

START = 1_700_000_000_123_456_000


def test_the_clock_follows_the_recorded_times() -> None:
    """It starts with the recording, stands still, and jumps to the end of each answered call."""
    before = time.time()

    with freeze(["clock"], session="s", start_ns=START) as frozen:
        first = time.time_ns()
        stands = time.time_ns()
        frozen.answered(START + 5_000_000_000)
        second = time.time_ns()
        frozen.answered(START)
        third = time.time_ns()
        names = imported_time(), datetime.now(UTC), date.today()

    assert first == stands == START
    assert second == third == START + 5_000_000_000
    assert names[0] == second / 1e9
    assert names[1] == datetime(2023, 11, 14, 22, 13, 25, 123456, tzinfo=UTC)
    assert names[2].year == 2023
    assert time.time() >= before


def test_monotonic_time_is_left_alone() -> None:
    """Timeouts of event loops and HTTP clients need the real one."""
    with freeze(["clock"], session="s", start_ns=START):
        before = time.monotonic()
        while time.monotonic() == before:
            pass


def numbers(session: str) -> list[object]:
    with freeze(["random", "uuid"], session=session, start_ns=START) as frozen:
        drawn: list[object] = [random.random(), float(np.random.rand()), uuid4(), uuid.uuid1()]
        random.random()
        frozen.answered(START)
        return [*drawn, random.random(), uuid.uuid4()]


def test_random_numbers_and_uuids_depend_on_the_session_and_the_call() -> None:
    """Two replays of a session draw the same numbers, and those of another session others."""
    first, again, second = numbers("a"), numbers("a"), numbers("b")

    assert first == again
    assert not set(first) & set(second)
    assert len(set(first)) == len(first)


def test_uuids_are_valid() -> None:
    """They have their version, and differ within a call."""
    with freeze(["uuid"], session="s", start_ns=START):
        uuids = [uuid.uuid4(), uuid.uuid4(), uuid.uuid1()]

    assert [value.version for value in uuids] == [4, 4, 1]
    assert len(set(uuids)) == 3


def test_generators_are_restored() -> None:
    """The program's own sequence of random numbers goes on as if nothing had happened."""
    random.seed(1)
    np.random.seed(1)
    expected = [random.random(), np.random.rand()]
    random.seed(1)
    np.random.seed(1)

    def fail() -> None:
        with freeze(FREEZABLE, session="s", start_ns=START):
            random.random()
            np.random.rand()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [random.random(), np.random.rand()] == expected
    assert uuid.uuid4() != uuid.uuid4()
    with freeze(FREEZABLE, session="s", start_ns=START):
        pass  # the sources can be frozen again


def test_secrets_stay_random() -> None:
    """A key that a replayed agent makes must not be predictable."""
    with freeze(FREEZABLE, session="s", start_ns=START):
        token = secrets.token_hex()
    with freeze(FREEZABLE, session="s", start_ns=START):
        assert secrets.token_hex() != token


def test_one_replay_at_a_time_freezes() -> None:
    """Two would move each other's clock."""
    with (
        freeze(["random"], session="s", start_ns=START),
        pytest.raises(ConfigError, match="one replay at a time"),
        freeze(["uuid"], session="t", start_ns=START),
    ):
        pass


def test_unknown_sources_are_refused() -> None:
    """The message names those that exist."""
    with pytest.raises(ConfigError, match="'dice'; use clock, random, uuid"):
        freeze(["dice"], session="s", start_ns=START).__enter__()
