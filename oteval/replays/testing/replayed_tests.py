"""Replays in tests: a divergence fails the test, with the difference as its message."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from ...base.errors import ReplayDiverged
from ...model import Recording
from ..command_runner import CommandRunner
from ..recording_files import load
from ..replay_result import ReplayResult
from ..session import ReplaySession, replay
from ..verification import ReplayOptions, verify
from ..verify_worker import KEYS, default_keys

__all__ = ["ReplayedTest", "replayed_command", "replayed_test"]

_FILES = (".jsonl", ".jsonl.gz", ".yaml", ".yml", ".json")


class ReplayedTest:
    """A replay in a test; a context manager, also for ``async with``.

    `ReplayDiverged` is a `BaseException`, so the agent's own error handling lets it through. Here
    it becomes the failure of the test.

    Args:
        session: The replay, which has not begun.
    """

    def __init__(self, session: ReplaySession) -> None:
        self._session = session
        self._keys: dict[str, str | None] = {}

    def __enter__(self) -> ReplaySession:
        self._keys = {name: os.environ.get(name) for name in KEYS}
        default_keys(os.environ)
        return self._session.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name, value in self._keys.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        diverged = error if isinstance(error, ReplayDiverged) else None
        try:
            self._session.__exit__(kind, error, traceback)
        except ReplayDiverged as found:
            diverged = found
        if diverged is not None:
            recording = self._session.recording
            head = f"the agent differs from its recording {recording.session}"
            message = f"{head} (fidelity {recording.fidelity})\n{diverged}"
            # The traceback shows where the replay ends; the message has the agent's line.
            raise pytest.fail.Exception(message, pytrace=False) from None

    async def __aenter__(self) -> ReplaySession:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)


def replayed_test(item: pytest.Item, recording: str | Path, **options: Any) -> ReplayedTest:
    """Open the replay of a recording in a test, which fails if the file does not exist.

    Args:
        item: The test.
        recording: The file of a recording, relative to the folder of the test or the current
            folder, or the id of a session in a database.
        options: Options of `oteval.replay`.
    """
    if not isinstance(recording, Path) and not recording.endswith(_FILES):
        return ReplayedTest(replay(recording, **options))
    return ReplayedTest(replay(recording=_loaded(item, recording), **options))


def replayed_command(
    item: pytest.Item,
    command: Sequence[str],
    recording: str | Path,
    *,
    timeout: float = 60.0,
    **options: Any,
) -> ReplayResult:
    """Replay a recording with a command; anything other than the recorded run fails the test.

    Args:
        item: The test.
        command: The command; ``{input}`` is replaced by the user's first message.
        recording: The file of a recording, relative to the folder of the test or the current
            folder.
        timeout: The time limit in seconds.
        options: Options of `ReplayOptions`.
    """
    loaded = _loaded(item, recording)
    chosen = ReplayOptions(**options)
    (outcome,) = verify([loaded], lambda: CommandRunner(command, chosen, timeout=timeout))
    if outcome.status != "passed" or outcome.result is None:
        head = f"the command {outcome.status.replace('_', ' ')} on its recording {outcome.session}"
        details = [divergence.text() for divergence in outcome.divergences[:1]] or [outcome.detail]
        message = "\n".join([f"{head} (fidelity {loaded.fidelity})", *details, outcome.output])
        pytest.fail(message.rstrip(), pytrace=False)
    return outcome.result


def _loaded(item: pytest.Item, recording: str | Path) -> Recording:
    """Read a recording; the test fails if the file does not exist."""
    folders = (item.path.parent, Path.cwd())
    file = next((folder / recording for folder in folders if (folder / recording).exists()), None)
    if file is None:
        text = f"{recording}: not found in {folders[0]}"
        pytest.fail(f"{text}; oteval replay make-test writes it", pytrace=False)
    return load(file)
