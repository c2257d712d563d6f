"""Keep the storage process running: start it, listen to it, and start it again when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from ..base import machine
from ..base.child_process import module_command, module_environment
from ..base.durable_log import Position
from ..base.errors import StoreError
from .server_config import EXIT_REFUSED, ServerConfig

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)
# Seconds of silence after which the storage process counts as stuck.
SILENCE_TIMEOUT = 3.0
_MIN_DELAY, _MAX_DELAY = 0.1, 5.0  # seconds before the next start
_STABLE = 60.0  # seconds of running after which the delay is short again
_MAX_LINE = 1 << 20
_STOP_TIMEOUT = 15.0  # seconds beyond the configured grace
# The share of the machine's memory that the database may use at most.
_MEMORY_SHARE = 0.5
_LENGTH = struct.Struct("<I")


class Supervisor:
    """The storage process, seen from the listening process.

    Attributes:
        state: The state that it last reported.
        restarts: How often it ended by itself.
        failure: Why it ended or stores nothing; "" once it has stored something since.
        position: The position up to which the spool is stored, as it last reported.
    """

    def __init__(
        self, config: ServerConfig, on_stored: Callable[[Position], None] = lambda _: None
    ) -> None:
        """Prepare the supervisor; `run` starts the process.

        Args:
            config: The configuration.
            on_stored: Called with the position up to which the spool is stored, at each report.
        """
        self.state: dict[str, Any] = {}
        self.restarts = 0
        self.failure = ""
        self.position: Position | None = None
        # A request may consist of a single value, and several copies of it exist on the way.
        memory = max(config.memory, 4 * config.limit >> 20)
        self._config = replace(config, memory=memory)
        self._process: asyncio.subprocess.Process | None = None
        self._reported = 0.0
        self._on_stored = on_stored
        self._moved = time.monotonic()
        self._stopping = False
        self._ready = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Whether the process runs and has reported its state lately."""
        return bool(self.state) and time.monotonic() - self._reported < SILENCE_TIMEOUT

    @property
    def unmoved(self) -> float:
        """The seconds since something was last stored."""
        return time.monotonic() - self._moved

    @property
    def pid(self) -> int | None:
        """The process id; None when it does not run."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def memory(self) -> int:
        """The memory that the database may use (MB); it grows when it was not enough."""
        return self._config.memory

    async def run(self) -> None:
        """Start the process, and start it again whenever it ends, until `stop` is called.

        Raises:
            StoreError: The first process refused its configuration.
        """
        delay = _MIN_DELAY
        while not self._stopping:
            begun = time.monotonic()
            status, refusal = await self._run_once()
            self.state = {}
            if self._stopping:
                return
            if refusal and not self.restarts and status == EXIT_REFUSED:
                raise StoreError(refusal)
            self.restarts += 1
            self.failure = refusal or self.failure or f"it ended with status {status}"
            _log.error("the storage process ended (%s); it is started again", self.failure)
            if time.monotonic() - begun > _STABLE:
                delay = _MIN_DELAY
            await asyncio.sleep(delay)
            delay = min(_MAX_DELAY, delay * 2)

    async def wait_ready(self) -> None:
        """Wait until the process works, or has reported why it does not."""
        await self._ready.wait()

    async def stop(self) -> int:
        """Make the process store the spooled requests and end; return its exit status."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(process.wait(), self._config.grace + _STOP_TIMEOUT)
        except TimeoutError:
            _log.error("the storage process does not end; it is killed")
            process.kill()
            return await process.wait()

    def reload(self) -> None:
        """Make the process reload its configuration."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGHUP)

    async def ask(self, path: str, query: dict[str, Any] | None = None) -> bytes:
        """The process's answer to a question; see `oteval.serve.storage_process`.

        Raises:
            OSError: The process does not answer.
            KeyError: The process has not reported its socket yet.
        """
        # The frames have the format of `oteval.store.remote_client`.
        reader, writer = await asyncio.open_unix_connection(self.state["socket"])
        try:
            question = {"path": path, "query": query or {}}
            head = orjson.dumps({"op": "ask", "question": question, "sizes": []})
            writer.write(_LENGTH.pack(len(head)) + head)
            await writer.drain()
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            answer = orjson.loads(await reader.readexactly(length))
            if "error" in answer:
                raise OSError(str(answer["error"]))
            return await reader.readexactly(answer["sizes"][0])
        except asyncio.IncompleteReadError as error:
            raise OSError("the storage process ended") from error
        finally:
            writer.close()

    async def _run_once(self) -> tuple[int, str]:
        """Run the process to its end; return its exit status and the reason that it reported."""
        self._process = process = await asyncio.create_subprocess_exec(
            *module_command("oteval.serve.storage_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MAX_LINE,
            env=module_environment(),
        )
        refusal = ""
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(self._config.to_json().encode() + b"\n")
        try:
            while line := await process.stdout.readline():
                refusal = self._handle(line) or refusal
        except ValueError:  # the line is too long to be a report
            process.kill()
        return await process.wait(), refusal

    def _handle(self, line: bytes) -> str:
        """Handle a report; return the reason why the process ends, if it is one."""
        try:
            report = json.loads(line)
            if "state" in report:
                self._handle_state(report["state"])
                return ""
            if "failed" in report:  # the next process may succeed; requests are accepted meanwhile
                self._ready.set()
            if report.get("is_short"):
                self._increase_memory()
            return str(report.get("refused") or report.get("failed") or "")
        except (ValueError, AttributeError, TypeError):
            return ""

    def _handle_state(self, state: dict[str, Any]) -> None:
        self.state = state
        self._reported = time.monotonic()
        if values := state.get("position"):
            position = Position(int(values[0]), int(values[1]))
            if position != self.position:
                self._moved = time.monotonic()
            self.position = position
            self._on_stored(max(position, Position(int(state.get("above", 0)))))
        if error := str(state.get("error") or ""):
            self.failure = error.splitlines()[0]
        elif state.get("stored", {}).get("commits") or not state.get("left_bytes"):
            # Not earlier: the last failure may return at the first commit.
            self.failure = ""
        self._ready.set()

    def _increase_memory(self) -> None:
        """Let the next process use twice the memory, up to a share of the machine's memory."""
        memory = min(2 * self._config.memory, int(_MEMORY_SHARE * machine.memory()) >> 20)
        if memory > self._config.memory:
            self._config = replace(self._config, memory=memory)
            _log.warning("the database may use %d MB of memory from now on", memory)
