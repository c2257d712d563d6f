"""Keeping the storing process alive: started, heard, started again when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import machine
from ..durable_log import Position
from ..errors import StoreError
from .readiness import SILENCE
from .settings import Settings

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)
_REFUSED = 2
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_LINE = 1 << 20
# Of the machine's memory, what the database may take at the most.
_SHARE = 0.5


class Supervisor:
    """The storing process, as the one that listens has it.

    Attributes:
        state: What it last said of itself.
        restarts: How often it ended by itself.
        failure: Why it stores nothing, or last ended; "" once it has stored since.
        position: Up to where the spool was stored when it last said so.
    """

    def __init__(
        self, settings: Settings, on_stored: Callable[[Position], None] = lambda _: None
    ) -> None:
        """Prepare it; `run` starts it.

        Args:
            settings: How it runs.
            on_stored: Told the position up to which the spool is stored, whenever it is heard.
        """
        self.state: dict[str, Any] = {}
        self.restarts = 0
        self.failure = ""
        self.position: Position | None = None
        # One request may be one value, which is copied a few times on its way.
        memory = max(settings.memory, 4 * settings.limit >> 20)
        self._settings = replace(settings, memory=memory)
        self._process: asyncio.subprocess.Process | None = None
        self._heard = 0.0
        self._on_stored = on_stored
        self._moved = time.monotonic()
        self._stopping = False
        self._ready = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Whether it runs and says so."""
        return bool(self.state) and time.monotonic() - self._heard < SILENCE

    @property
    def unmoved(self) -> float:
        """For how many seconds nothing was stored, as far as it says."""
        return time.monotonic() - self._moved

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def memory(self) -> int:
        """How many MB the database may take: more than at first once they did not suffice."""
        return self._settings.memory

    async def run(self) -> None:
        """Start it, again and again, until `stop`.

        Raises:
            StoreError: It refused what it was told, the first time.
        """
        wait = _FIRST_WAIT
        while not self._stopping:
            begun = time.monotonic()
            status, refusal = await self._once()
            self.state = {}
            if self._stopping:
                return
            if refusal and not self.restarts and status == _REFUSED:
                raise StoreError(refusal)
            self.restarts += 1
            self.failure = refusal or self.failure or f"it ended with status {status}"
            _log.error("the storing process ended (%s); it is started again", self.failure)
            if time.monotonic() - begun > 60:
                wait = _FIRST_WAIT
            await asyncio.sleep(wait)
            wait = min(_LONGEST_WAIT, wait * 2)

    async def wait_ready(self) -> None:
        """Wait until it works, or has said why it cannot yet."""
        await self._ready.wait()

    async def stop(self) -> int:
        """Have it store what is spooled and end; return its exit status."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(process.wait(), self._settings.grace + 15)
        except TimeoutError:
            _log.error("the storing process does not end; it is killed")
            process.kill()
            return await process.wait()

    def hang_up(self) -> None:
        """Have it read its configuration again."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGHUP)

    async def _once(self) -> tuple[int, str]:
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "oteval.live.back"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        refusal = ""
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(self._settings.text().encode() + b"\n")
        try:
            while line := await process.stdout.readline():
                refusal = self._hear(line) or refusal
        except ValueError:  # a line that is too long is none of its own
            process.kill()
        return await process.wait(), refusal

    def _hear(self, line: bytes) -> str:
        try:
            said = json.loads(line)
            if "state" in said:
                self._hear_state(said["state"])
                return ""
            if "failed" in said:  # it may do later; traces are taken meanwhile
                self._ready.set()
            if said.get("is_short"):
                self._give_memory()
            return str(said.get("refused") or said.get("failed") or "")
        except (ValueError, AttributeError, TypeError):
            return ""

    def _hear_state(self, state: dict[str, Any]) -> None:
        self.state = state
        self._heard = time.monotonic()
        if place := state.get("position"):
            position = Position(int(place[0]), int(place[1]))
            if position != self.position:
                self._moved = time.monotonic()
            self.position = position
            self._on_stored(max(position, Position(int(state.get("above", 0)))))
        if error := str(state.get("error") or ""):
            self.failure = error.splitlines()[0]
        elif state.get("stored", {}).get("commits") or not state.get("left_bytes"):
            # Only now: what it ended of the last time it would end of again at its first commit.
            self.failure = ""
        self._ready.set()

    def _give_memory(self) -> None:
        """Let the next one take twice the memory, up to a share of the machine's."""
        more = min(2 * self._settings.memory, int(_SHARE * machine.memory()) >> 20)
        if more > self._settings.memory:
            self._settings = replace(self._settings, memory=more)
            _log.warning("the database may take %d MB of memory from now on", more)
