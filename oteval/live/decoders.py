"""The children that decode, as the process that stores has them: one, in a burst one more.

A child that ends or falls silent is replaced, and what it had is decoded again, a request at a
time. A request that ends its child twice on its own is set aside in ``rejected/``, so that it
blocks no other.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .. import machine
from ..ingest.spool_reader import SpoolReader, Stretch
from ..ingest.spool_segments import Position, SpoolMissing
from .decoder import Chunk, keep, receive

__all__ = ["Decoders"]

_log = logging.getLogger(__name__)
# Bytes of the spool that a child decodes at once, and the backlog that is worth another child.
_SIZE = 16 << 20
_BURST = 4 * _SIZE
_MOST = min(2, machine.processors())
# Stretches under way for each child: one that it decodes, and one that is next.
_UNDER_WAY = 2
_IDLE = 0.02
# Seconds without a burst after which the other child ends, and its memory is free.
_REST = 30.0
# Seconds of silence after which a child is replaced; a request on its own has longer, by its size.
PATIENCE = 30.0
_ALONE_TIMES, _SECONDS_A_MB = 4, 2.0
# How often a request may end its child while it is decoded on its own.
_TRIES = 2
# How often children are started in a row before anything was decoded.
_MOST_RESTARTS = 8


class _Child:
    """One child: told of stretches, it gives their chunks."""

    def __init__(self, folder: Path) -> None:
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603  none of it comes from outside
            # Without -P, files of the working folder would be imported.
            [sys.executable, "-P", "-m", "oteval.live.decoder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, stretch: Stretch) -> None:
        """Tell it of a stretch.

        Raises:
            EOFError: It has ended.
        """
        tell = self._process.stdin
        assert tell is not None
        try:
            tell.write(json.dumps([stretch.start, stretch.end]).encode() + b"\n")
            tell.flush()
        except BrokenPipeError:
            raise EOFError("the decoding process has ended") from None

    def receive(self, patience: float) -> Chunk:
        """Return its next chunk.

        Args:
            patience: After how many seconds it counts as stuck, and is ended.

        Raises:
            EOFError: It has ended.
        """
        out = self._process.stdout
        assert out is not None
        watchdog = threading.Timer(patience, self._process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            return receive(out)
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def release(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class _Task(NamedTuple):
    """A stretch that a child has."""

    child: _Child
    stretch: Stretch


class Decoders:
    """Gives what comes into a spool as chunks of rows, in its order.

    All but `close` is for one thread.
    """

    def __init__(
        self,
        folder: Path,
        start: Position,
        age: float,
        *,
        lost: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        """Start the first child.

        Args:
            folder: The spool.
            start: Where to begin.
            age: After how many seconds what has come is decoded, however little.
            lost: Segments before which some are known to be missing.
            clock: Seconds that only ever grow.
            patience: After how many seconds of silence a child is replaced.
        """
        self._folder, self._age, self._clock = folder, age, clock
        self._patience = patience
        self._spool = SpoolReader(folder, start, lost=lost)
        self._young: tuple[Position, float] = (start, 0.0)
        self._lock = threading.Lock()
        self._is_closed = False
        self._children = [_Child(folder)]
        self._under_way: deque[_Task] = deque()
        self._burst = 0.0
        # Up to where chunks were given, and up to where requests are decoded one by one.
        self._given = self._suspect = start
        self._tries = self._restarts = 0

    @property
    def pids(self) -> list[int]:
        """The children's processes."""
        return [child.pid for child in self._children]

    def next(self) -> Chunk | None:
        """Return the next chunk; None where nothing is to be decoded now.

        Raises:
            EOFError: Children end whatever they are given, or all were closed.
            SpoolMissing: What comes next is acknowledged and cannot be found.
        """
        if self._given < self._suspect:
            return self._next_alone()
        try:
            self._hand_out()
        except SpoolMissing:
            if not self._under_way:
                raise
        except EOFError:
            self._replace()
            return None
        if not self._under_way:
            if any(child.has_ended for child in self._children):
                self._replace()
            return None
            time.sleep(_IDLE)
            return None
        child, stretch = self._under_way[0]
        try:
            chunk = child.receive(self._patience)
        except EOFError:
            self._replace()
            return None
        if chunk.end == stretch.end:
            self._under_way.popleft()
        self._given = chunk.end
        self._restarts = 0
        return chunk

    def close(self) -> None:
        """End the children; `next` then raises EOFError. Any thread may."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                child.kill()

    def release(self) -> None:
        """Close what is left, when `next` is not called any more."""
        for child in self._children:
            child.release()
        self._spool.close()

    def _replace(self) -> None:
        """Start anew, a request at a time up to the end of what was under way first."""
        if self._under_way:
            self._suspect = max(self._suspect, self._under_way[0].stretch.end)
            self._tries = 0
        _log.warning("a decoding process ended or was silent; it is replaced")
        self._restart()

    def _restart(self) -> None:
        """Have one new child, and nothing under way.

        Raises:
            EOFError: All were closed, or children end whatever they do.
        """
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise EOFError("decoding processes end as soon as they are started")
        with self._lock:
            for child in self._children:
                child.kill()
                child.release()
            if self._is_closed:
                raise EOFError("the decoding processes were closed")
            self._children = [_Child(self._folder)]
        self._under_way.clear()
        self._spool.position = self._given

    def _next_alone(self) -> Chunk | None:
        """Return the chunk of the next request, which its child has on its own."""
        stretch = self._spool.skip(1)
        if stretch is None:
            self._suspect = self._given
            return None
        child = self._children[0]
        if child.has_ended:
            self._restart()
            return None
        nothing = stretch._replace(end=stretch.start, size=0)
        # What cannot even do nothing does not end because of a request.
        try:
            child.send(nothing)
            child.receive(self._alone(nothing))
        except EOFError:
            self._restart()
            return None
        try:
            child.send(stretch)
            chunk = child.receive(self._alone(stretch))
        except EOFError:
            self._tries += 1
            self._restart()
            if self._tries < _TRIES:
                return None
            chunk = self._set_aside(stretch)
            self._spool.position = stretch.end
        self._tries = self._restarts = 0
        self._given = chunk.end
        return chunk

    def _alone(self, stretch: Stretch) -> float:
        return _ALONE_TIMES * self._patience + _SECONDS_A_MB * stretch.size / (1 << 20)

    def _set_aside(self, stretch: Stretch) -> Chunk:
        """Return the chunk of a request that no child survives: kept, and not decoded."""
        chunk = Chunk.empty()
        reader = SpoolReader(self._folder, stretch.start)
        for record in reader.records(stretch.end):
            path = keep(record, self._folder / "rejected")
            chunk.first_ns = record.time_ns
            chunk.requests += 1
            chunk.rejected += 1
            chunk.problems.append(f"kept in {path}: decoding it ended {_TRIES} processes")
        chunk.end, chunk.lost = stretch.end, reader.lost
        reader.close()
        return chunk

    def _hand_out(self) -> None:
        """Tell children of what has come, as much as they should have under way."""
        self._adapt()
        while len(self._under_way) < _UNDER_WAY * len(self._children):
            stretch = self._due()
            if stretch is None:
                return
            child = self._least_busy()
            self._under_way.append(_Task(child, stretch))
            child.send(stretch)

    def _due(self) -> Stretch | None:
        """Return the next stretch, once it is large or old enough."""
        position = self._spool.position
        stretch = self._spool.skip(_SIZE)
        if stretch is None:
            return None
        if stretch.size < _SIZE and self._is_young(stretch.start):
            self._spool.position = position
            return None
        return stretch

    def _is_young(self, start: Position) -> bool:
        """Return whether what begins at a position was seen first less than the age ago."""
        # Not the time of receipt: clocks are set.
        now = self._clock()
        if self._young[0] != start or not self._young[1]:
            self._young = (start, now)
        return now - self._young[1] < self._age

    def _least_busy(self) -> _Child:
        busy = [task.child for task in self._under_way]
        return min(self._children, key=busy.count)

    def _adapt(self) -> None:
        """Have as many children as the backlog is worth."""
        now = time.monotonic()
        if self._spool.left() >= _BURST:
            self._burst = now
            with self._lock:
                if len(self._children) < _MOST and not self._is_closed:
                    self._children.append(_Child(self._folder))
        elif len(self._children) > 1 and now - self._burst > _REST and not self._under_way:
            child = self._children.pop()
            child.kill()
            child.release()
