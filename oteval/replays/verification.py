"""Verify that an agent behaves as in its recorded sessions.

`verify` replays each session with the agent's current code: a function, called in worker processes
that replay many sessions each, or a command, run once for each session. A session that crashes its
process, or does not end in time, has a result as well.
"""

from __future__ import annotations

import json
import queue
import select
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ..base.child_process import ChildProcess
from ..base.errors import ConfigError
from ..base.jsontext import dumps
from ..model import Recording
from .frozen import freezable
from .open_replays import Timing
from .player import MISSES, Miss, Tools
from .recording_files import save
from .target import InputForm, unreplayable
from .text_comparison import compiled
from .verified import VerifiedSession
from .verify_worker import end_of
from .what_if_session import WhatIfOptions

__all__ = [
    "ReplayJob",
    "ReplayOptions",
    "SessionRunner",
    "SessionRunners",
    "TargetRunner",
    "verify",
]

# A worker ends itself when a session takes too long. It is killed this much later.
_GRACE = 10.0
# Sessions per worker process. This limits memory that the agent or its libraries do not free.
_RECYCLE = 250
_IMPORT = 300.0  # seconds for the import of the target
# Sessions that are read for each worker before a result is awaited.
_AHEAD = 8


@dataclass(frozen=True)
class ReplayOptions:
    """The options of replays that verify sessions; see `oteval.replay`.

    Attributes:
        miss: ``strict``, ``error`` or ``ordinal``.
        tools: ``recorded`` or ``run``, or the functions that run tools, as ``module:function``.
        normalize: Patterns of text that varies.
        freeze: Sources to freeze.
        allow: Addresses that the agent may reach.
        timing: ``none`` or ``recorded``.
        run_tools: The names of tools that run for real.
        allow_processes: The names of programs that the agent may start.
    """

    miss: Miss = "strict"
    tools: Tools | Mapping[str, str] = "recorded"
    normalize: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    timing: Timing = "none"
    run_tools: tuple[str, ...] = ()
    allow_processes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.miss not in MISSES or self.miss == "fork":
            choices = ", ".join(choice for choice in MISSES if choice != "fork")
            raise ConfigError(f"miss {self.miss!r}: verify takes {choices}")
        freezable(self.freeze)
        compiled(self.normalize)


@dataclass(frozen=True)
class ReplayJob:
    """One session to verify.

    Attributes:
        session: Its id.
        recording: The file of its recording.
        output: The file for the agent's output.
        inputs: The user's messages.
    """

    session: str
    recording: Path
    output: Path
    inputs: tuple[str, ...] = ()


class SessionRunner(Protocol):
    """Replays one session after the other; used by one thread."""

    def run(self, job: ReplayJob) -> VerifiedSession:
        """Replay a session."""

    def stop(self) -> None:
        """End the session that is running, and begin no other. Called from another thread."""

    def close(self) -> None:
        """End the processes of the runner, when no session is running."""


def verify(
    recordings: Iterable[Recording],
    new_runner: Callable[[], SessionRunner],
    *,
    workers: int = 1,
) -> Iterator[VerifiedSession]:
    """Replay sessions, several at a time, and yield the results in the order of the recordings.

    Args:
        recordings: The recordings. They are read as work proceeds.
        new_runner: Makes the runner of a worker.
        workers: The number of sessions at a time.

    Raises:
        ConfigError: The target cannot be imported, or the command cannot be started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="oteval-replay-") as folder,
        SessionRunners(new_runner, workers) as runners,
        ThreadPoolExecutor(workers) as pool,
    ):
        waiting: deque[tuple[Future[VerifiedSession], Path]] = deque()
        try:
            for number, recording in enumerate(recordings):
                session_folder = Path(folder, str(number))
                future = _submitted(recording, session_folder, runners, pool)
                waiting.append((future, session_folder))
                # The folder contains only some recordings at a time: all of them could fill the
                # disk.
                if len(waiting) > _AHEAD * workers:
                    yield _awaited(*waiting.popleft())
            while waiting:
                yield _awaited(*waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            runners.stop()


def _awaited(future: Future[VerifiedSession], folder: Path) -> VerifiedSession:
    """Wait for the result of a session, and delete its files."""
    outcome = future.result()
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _submitted(
    recording: Recording, folder: Path, runners: SessionRunners, pool: ThreadPoolExecutor
) -> Future[VerifiedSession]:
    """Submit a session to be replayed; if that is impossible, the result has the reason."""
    problem = unreplayable(recording)
    if not problem:
        return pool.submit(runners.run, _saved(recording, folder))
    future: Future[VerifiedSession] = Future()
    future.set_result(VerifiedSession(recording.session, "not_replayed", problem))
    return future


def _saved(recording: Recording, folder: Path) -> ReplayJob:
    """Write a recording where worker processes read it."""
    folder.mkdir()
    file = folder / "recording.jsonl"
    save(recording, file)
    return ReplayJob(recording.session, file, folder / "output.txt", recording.inputs)


class SessionRunners:
    """The runners of all workers; a thread takes one for each session."""

    def __init__(self, new_runner: Callable[[], SessionRunner], workers: int) -> None:
        self._all = [new_runner() for _ in range(workers)]
        self._free: queue.SimpleQueue[SessionRunner] = queue.SimpleQueue()
        for runner in self._all:
            self._free.put(runner)

    def __enter__(self) -> SessionRunners:
        return self

    def __exit__(self, *_exception: object) -> None:
        for runner in self._all:
            runner.close()

    def run(self, job: ReplayJob) -> VerifiedSession:
        """Replay a session with a free runner."""
        with self._taken() as runner:
            return runner.run(job)

    @contextmanager
    def _taken(self) -> Iterator[SessionRunner]:
        runner = self._free.get()
        try:
            yield runner
        finally:
            self._free.put(runner)

    def stop(self) -> None:
        """End all sessions that are running."""
        for runner in self._all:
            runner.stop()


class TargetRunner:
    """Replays sessions with a function of the agent, in one worker process at a time.

    Args:
        target: The function as ``module:function``, importable from the current folder.
        options: The options of the replays.
        input_form: How the user's messages are passed.
        timeout: The time limit of a session in seconds.
    """

    def __init__(
        self,
        target: str,
        options: ReplayOptions | WhatIfOptions,
        *,
        input_form: InputForm,
        timeout: float,
    ) -> None:
        self._settings = {
            "target": target,
            "options": asdict(options),
            "input": input_form,
            "timeout": timeout,
        }
        self._timeout = timeout
        self._process: ChildProcess | None = None
        self._sessions = 0
        self._is_stopped = False

    def run(self, job: ReplayJob) -> VerifiedSession:
        """Replay a session in the worker process; start the process if necessary."""
        process = self._started(job)
        files = {"recording": str(job.recording), "output": str(job.output)}
        try:
            process.send({"session": job.session, **files})
            answer = _answer(process, self._timeout + _GRACE)
        except (EOFError, TimeoutError) as error:
            return self._lost(job, error)
        outcome = VerifiedSession.from_dict(answer)
        self._sessions += 1
        if outcome.status == "timeout" or self._sessions >= _RECYCLE:
            self._end()
        return outcome

    def _started(self, job: ReplayJob) -> ChildProcess:
        """The worker process; a new process imports the target while a recording answers it."""
        if self._process is not None:
            return self._process
        if self._is_stopped:
            raise ConfigError("the verification was interrupted")
        self._sessions = 0
        module = "oteval.replays.verify_worker"
        settings = dumps({**self._settings, "recording": str(job.recording)})
        process = ChildProcess(module, settings, waits_with_interrupts=True)
        self._process = process
        try:
            answer = _answer(process, _IMPORT)
        except (EOFError, TimeoutError):
            self._end()
            raise ConfigError(
                "the target could not be imported: its process ended; run the import in Python to "
                "see why"
            ) from None
        if "problem" in answer:
            self._end()
            raise ConfigError(answer["problem"])
        return process

    def _lost(self, job: ReplayJob, error: Exception) -> VerifiedSession:
        """The result of a session if its process died or had to be killed."""
        self._end()
        output = end_of(job.output)
        if isinstance(error, TimeoutError):
            text = f"no end after {self._timeout:g} s"
            return VerifiedSession(job.session, "timeout", text, output=output)
        text = "the process of the agent died"
        return VerifiedSession(job.session, "crashed", text, output=output)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.close()

    def stop(self) -> None:
        """Kill the worker process."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the worker process."""
        self._end()


def _answer(process: ChildProcess, timeout: float) -> Mapping[str, Any]:
    """Read the next line of a worker.

    Raises:
        EOFError: The process has ended.
        TimeoutError: It did not answer in time.
    """
    ready, _, _ = select.select([process.output], [], [], timeout)
    if not ready:
        raise TimeoutError
    line = process.output.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    answer: Mapping[str, Any] = json.loads(line)
    return answer
