"""Frozen time and randomness: agents that put them into prompts can then be replayed.

Each source is opt-in, and restored at the end:

- ``clock``: `time.time`, `time.time_ns`, `datetime.now`, ... show the recorded times: the start of
  the recording, then the end of each model call that was answered. `time.monotonic` and
  `time.sleep` are real, because timeouts and event loops need them. This needs the package
  ``time-machine``, which also reaches names that were imported before the replay.
- ``random``: the module `random`, and NumPy's global generator if NumPy is loaded, are seeded
  again by the session's id and the number of the model call. Generators with a seed from the
  operating system stay random: `random.SystemRandom`, `secrets`, ``numpy.random.default_rng()``.
- ``uuid``: `uuid.uuid4` and `uuid.uuid1` count up from the session's id and the number of the call.

All three are states of the process: only one replay at a time can freeze them.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from ..base.errors import ConfigError

__all__ = ["FREEZABLE", "FrozenSources", "freezable", "freeze"]

FREEZABLE = ("clock", "random", "uuid")

_MICROSECOND = 1000  # ns; the precision of `datetime`
_in_use = threading.Lock()


class FrozenSources:
    """The frozen sources of one replay.

    Attributes:
        names: The names of the sources.
        session: The id of the session; random numbers and uuids derive from it.
    """

    def __init__(self, names: Collection[str], session: str) -> None:
        self.names = frozenset(names)
        self.session = session
        self._call = 0
        self._clock: _Clock | None = None
        self._uuids = itertools.count()

    def answered(self, end_ns: int) -> None:
        """Move on after a model call was answered.

        Args:
            end_ns: The recorded end of the call; the clock never moves back.
        """
        self._call += 1
        self._uuids = itertools.count()
        if self._clock is not None:
            self._clock.advance_to(end_ns)
        if "random" in self.names:
            self._seed()

    def _seed(self) -> None:
        seed = self.digest("random")
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(int.from_bytes(seed[:4]))

    def digest(self, purpose: str) -> bytes:
        """16 bytes for a purpose, derived from the session and the number of the call."""
        text = f"{self.session}\0{self._call}\0{purpose}"
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def next_uuid(self, version: int) -> uuid.UUID:
        """The next uuid."""
        return uuid.UUID(bytes=self.digest(f"uuid{next(self._uuids)}"), version=version)


@contextmanager
def freeze(names: Collection[str], *, session: str, start_ns: int) -> Iterator[FrozenSources]:
    """Freeze sources for a block.

    Args:
        names: Names out of `FREEZABLE`.
        session: The id of the session.
        start_ns: The start of the recording: the first time that the clock shows.

    Yields:
        The sources; call `FrozenSources.answered` after each model call.

    Raises:
        ConfigError: A name is unknown, ``time-machine`` is missing, or another replay has frozen
            sources in this process.
    """
    sources = FrozenSources(freezable(names), session)
    if not sources.names:
        yield sources
        return
    if not _in_use.acquire(blocking=False):
        raise ConfigError(
            "freeze: another replay has frozen the clock or random numbers of this process; run "
            "one replay at a time, or several processes"
        )
    with ExitStack() as undo:
        undo.callback(_in_use.release)
        if "clock" in sources.names:
            sources._clock = undo.enter_context(_frozen_clock(start_ns))
        if "random" in sources.names:
            undo.enter_context(_kept_generators())
            sources._seed()
        if "uuid" in sources.names:
            undo.enter_context(_counted_uuids(sources))
        yield sources


def freezable(names: Collection[str]) -> tuple[str, ...]:
    """Check the names of sources.

    Raises:
        ConfigError: A name is unknown.
    """
    for name in names:
        if name not in FREEZABLE:
            raise ConfigError(f"freeze: unknown source {name!r}; use {', '.join(FREEZABLE)}")
    return tuple(names)


class _Clock:
    """A clock that does not move until it is moved forward."""

    def __init__(self, traveller: Any, start_ns: int) -> None:
        self._traveller = traveller
        self._now = 0
        self.advance_to(start_ns)

    def advance_to(self, time_ns: int) -> None:
        """Show a time, unless the clock is already past it."""
        # A shift is exact to the microsecond, and keeps the time zone.
        now = time_ns // _MICROSECOND
        if now > self._now:
            self._traveller.shift(timedelta(microseconds=now - self._now))
            self._now = now


@contextmanager
def _frozen_clock(start_ns: int) -> Iterator[_Clock]:
    try:
        import time_machine
    except ImportError:
        raise ConfigError(
            'freeze: the clock needs time-machine; install it with: pip install "oteval[replay]"'
        ) from None
    with time_machine.travel(0, tick=False) as traveller:
        yield _Clock(traveller, start_ns)


@contextmanager
def _kept_generators() -> Iterator[None]:
    """Restore the global random generators after a block."""
    state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


class _CountedRandom:
    """The module `os` as `uuid` sees it, with bytes that the sources determine."""

    def __init__(self, real: Any, sources: FrozenSources) -> None:
        self._real = real
        self._sources = sources

    def urandom(self, size: int) -> bytes:
        """Bytes for a uuid."""
        return self._sources.next_uuid(4).bytes[:size]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def _counted_uuids(sources: FrozenSources) -> Iterator[None]:
    """Replace the random bytes of `uuid.uuid4`, and `uuid.uuid1`, for a block."""
    module: Any = uuid
    real_os, real_uuid1 = module.os, module.uuid1

    def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        del node, clock_seq
        return sources.next_uuid(1)

    # Agents often import the function uuid4 itself, so the function must stay the same.
    module.os = _CountedRandom(real_os, sources)
    module.uuid1 = uuid1
    try:
        yield
    finally:
        module.os, module.uuid1 = real_os, real_uuid1
