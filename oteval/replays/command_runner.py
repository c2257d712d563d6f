"""Replay sessions with a command: it runs once for each session, with the replay in its processes.

In the arguments, ``{input}`` is replaced by the first message of the recorded user, and
``{session}`` by the session's id. Without ``{input}``, the user's messages are the lines of
standard input. The environment variable OTEVAL_REPLAY_INPUT has the first message, and
OTEVAL_REPLAY_INPUTS all of them as a JSON list.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from ..base.errors import ConfigError
from ..base.files import caller_umask
from ..record import environment, read_reports
from .verification import ReplayJob, ReplayOptions
from .verified import VerifiedSession, combined
from .verify_worker import default_keys, end_of
from .what_if_session import WhatIfOptions

__all__ = ["CommandRunner"]

# A Python process ends itself when it takes too long. The command is killed this much later.
_GRACE = 10.0
_ENTRY = "oteval.replays.command_child:start"


class CommandRunner:
    """Replays sessions with a command.

    Args:
        command: The command, with placeholders.
        options: The options of the replays.
        timeout: The time limit of a session in seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        options: ReplayOptions | WhatIfOptions,
        *,
        timeout: float,
    ) -> None:
        self._command = tuple(command)
        self._options = options
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, job: ReplayJob) -> VerifiedSession:
        """Run the command for a session.

        Raises:
            ConfigError: It cannot be started.
        """
        results = job.output.parent / "results"
        results.mkdir()
        began = time.monotonic()
        status = self._run(job, results)
        result = self._result(job, results, status)
        result = replace(result, session=job.session, seconds=time.monotonic() - began)
        return result if result.status == "passed" else replace(result, output=end_of(job.output))

    def _run(self, job: ReplayJob, results: Path) -> int | None:
        """Run the command; return its exit status, or None if it took too long and was killed."""
        if self._is_stopped:
            raise ConfigError("the verification was interrupted")
        with job.output.open("wb") as output, _standard_input(self._command, job) as lines:
            try:
                process = subprocess.Popen(  # noqa: S603  the user's command, without a shell
                    self._arguments(job),
                    stdin=lines,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment(job, results),
                    start_new_session=True,
                    umask=caller_umask(),
                )
            except OSError as error:
                text = f"{self._command[0]}: cannot be started: {error.strerror or error}"
                raise ConfigError(text) from error
        self._process = process
        try:
            return process.wait(self._timeout + _GRACE)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # This also kills the processes that the command has left behind.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _arguments(self, job: ReplayJob) -> list[str]:
        first = job.inputs[0] if job.inputs else ""
        return [
            argument.replace("{input}", first).replace("{session}", job.session)
            for argument in self._command
        ]

    def _environment(self, job: ReplayJob, results: Path) -> dict[str, str]:
        settings: dict[str, Any] = {
            "recording": str(job.recording),
            "results": str(results),
            "options": asdict(self._options),
            "timeout": self._timeout,
        }
        first = job.inputs[0] if job.inputs else ""
        variables = {
            **os.environ,
            **environment(_ENTRY, settings, reports=_reports(results), required=True),
            "OTEVAL_REPLAY_INPUT": first,
            "OTEVAL_REPLAY_INPUTS": json.dumps(job.inputs),
        }
        if not settings["options"].get("is_live"):
            default_keys(variables)
        return variables

    def _result(self, job: ReplayJob, results: Path, status: int | None) -> VerifiedSession:
        """The result of the command, combined from the results of its processes."""
        written = [
            VerifiedSession.from_dict(json.loads(path.read_text("utf-8")))
            for path in sorted(results.glob("*.json"))
        ]
        result = combined(written)
        if status is None and (result is None or result.status == "passed"):
            text = f"no end after {self._timeout:g} s"
            return VerifiedSession(job.session, "timeout", text, result.result if result else None)
        if result is None:
            return _without_result(job.session, results, status)
        if result.status == "passed" and status and not result.detail:
            return replace(result, status="error", detail=_ended(status))
        return result

    def close(self) -> None:
        """Do nothing: each command has ended with its session."""

    def stop(self) -> None:
        """End the command."""
        self._is_stopped = True
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _reports(results: Path) -> Path:
    return results / "processes"


def _without_result(session: str, results: Path, status: int | None) -> VerifiedSession:
    """The result of a command if none of its processes returned a result."""
    processes = read_reports(_reports(results))
    problems = [report.problem for report in processes if report.problem]
    if problems:
        return VerifiedSession(session, "not_replayed", problems[0])
    if processes:
        return VerifiedSession(session, "crashed", f"the agent's process died: {_ended(status)}")
    return VerifiedSession(
        session,
        "not_replayed",
        f"no Python process of the command loaded the replay ({_ended(status)}): is it a Python "
        "program, without the options -I, -E and -S?",
    )


def _ended(status: int | None) -> str:
    """The end of a process, for people."""
    if status is None or status >= 0:
        return f"the command ended with status {status}"
    with suppress(ValueError):
        return f"the command was ended by {signal.Signals(-status).name}"
    return f"the command was ended by signal {-status}"


@contextmanager
def _standard_input(command: Sequence[str], job: ReplayJob) -> Iterator[IO[bytes]]:
    """Open the standard input of a command: the user's messages, one a line."""
    is_argument = any("{input}" in argument for argument in command)
    path = job.output.with_name("input.txt")
    path.write_text("" if is_argument else "".join(f"{text}\n" for text in job.inputs), "utf-8")
    with path.open("rb") as file:
        yield file
