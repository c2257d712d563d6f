"""The children that decode, as the process that stores has them: one, in a burst one more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from .. import machine
from ..ingest.spool_reader import SpoolReader, Stretch
from ..ingest.spool_segments import Position, SpoolMissing
from .decoder import Chunk, receive

__all__ = ["Decoders"]

# Bytes of the spool that a child decodes at once, and the backlog that is worth another child.
_SIZE = 16 << 20
_BURST = 4 * _SIZE
_MOST = min(2, machine.processors())
# Stretches under way for each child: one that it decodes, and one that is next.
_UNDER_WAY = 2
_IDLE = 0.02
# Seconds without a burst after which the other child ends, and its memory is free.
_REST = 30.0


class _Child:
    """One child: told of stretches, it gives their chunks."""

    def __init__(self, folder: Path) -> None:
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603  none of it comes from outside
            [sys.executable, "-m", "oteval.live.decoder", str(folder)],
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
        tell = self._process.stdin
        assert tell is not None
        tell.write(json.dumps([stretch.start, stretch.end]).encode() + b"\n")
        tell.flush()

    def receive(self) -> Chunk:
        out = self._process.stdout
        assert out is not None
        return receive(out)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def release(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


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
    ) -> None:
        """Start the first child.

        Args:
            folder: The spool.
            start: Where to begin.
            age: After how many seconds what has come is decoded, however little.
            lost: Segments before which some are known to be missing.
            clock: Seconds that only ever grow.
        """
        self._folder, self._age, self._clock = folder, age, clock
        self._spool = SpoolReader(folder, start, lost=lost)
        self._young: tuple[Position, float] = (start, 0.0)
        self._children = [_Child(folder)]
        self._under_way: deque[tuple[_Child, Position]] = deque()
        self._burst = 0.0
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The children's processes."""
        return [child.pid for child in self._children]

    def next(self) -> Chunk | None:
        """Return the next chunk; None where nothing is to be decoded now.

        Raises:
            EOFError: A child has ended.
            SpoolMissing: What comes next is acknowledged and cannot be found.
        """
        try:
            self._hand_out()
        except SpoolMissing:
            if not self._under_way:
                raise
        if not self._under_way:
            if any(child.has_ended for child in self._children):
                raise EOFError("the decoding process has ended")
            time.sleep(_IDLE)
            return None
        child, end = self._under_way[0]
        chunk = child.receive()
        if chunk.end == end:
            self._under_way.popleft()
        return chunk

    def close(self) -> None:
        """End the children; `next` then raises EOFError. Any thread may."""
        self._is_closed = True
        for child in self._children:
            child.kill()

    def release(self) -> None:
        """Close what is left, when `next` is not called any more."""
        for child in self._children:
            child.release()
        self._spool.close()

    def _hand_out(self) -> None:
        """Tell children of what has come, as much as they should have under way."""
        self._adapt()
        while len(self._under_way) < _UNDER_WAY * len(self._children):
            stretch = self._due()
            if stretch is None:
                return
            child = self._least_busy()
            try:
                child.send(stretch)
            except BrokenPipeError:
                raise EOFError("the decoding process has ended") from None
            self._under_way.append((child, stretch.end))

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
        busy = [child for child, _ in self._under_way]
        return min(self._children, key=busy.count)

    def _adapt(self) -> None:
        """Have as many children as the backlog is worth."""
        now = time.monotonic()
        if self._spool.left() >= _BURST:
            self._burst = now
            if len(self._children) < _MOST and not self._is_closed:
                self._children.append(_Child(self._folder))
        elif len(self._children) > 1 and now - self._burst > _REST and not self._under_way:
            child = self._children.pop()
            child.kill()
            child.release()
