"""Replays with a live model in the process of the agent: options, and new runs in files.

Processes exchange results as a line. The whole requests and responses of the new run are too long
for a line, so the new run is written as a recording, into the folder of the agent's output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError
from ..base.text import counted
from ..model import RecordedModelCall, RecordedToolCall, Recording
from .address_list import AddressList
from .open_replays import OpenReplay
from .recording_files import load, save
from .replay_result import ReplayResult
from .request_edits import RequestEdits
from .session import ReplaySession
from .text_comparison import compiled
from .tool_changes import ToolChange, ToolChanges, tool_changes, uncalled
from .tool_ladder import Coverage, ToolPolicy
from .what_if_player import WhatIfPlayer

__all__ = [
    "ANSWERS_FILE",
    "NewRun",
    "WhatIfOptions",
    "WhatIfSession",
    "import_session",
    "new_run",
    "session_of",
]

ANSWERS_FILE = "answers.jsonl"
"""The file with the recording that answers model requests, next to a session's recording."""

_FOLDER = "new"
# The model hosts that this process sent requests to. Their connections may outlive a session.
_MODELS = AddressList()


@dataclass(frozen=True)
class WhatIfOptions:
    """The options of replays with a live model.

    Attributes:
        model: The model to ask instead, or None.
        prompt: The system prompt of the lead agent, or None.
        settings: Options of requests to set; None removes one.
        tool_policy: ``error`` or ``nearest``.
        normalize: Patterns of text that varies.
        allow: Addresses that the agent may reach.
        is_live: Whether the model is live; otherwise another recording answers.
        tools: The functions that run tools, as ``module:function``.
        run_tools: The names of tools that run for real.
        allow_processes: The names of programs that the agent may start.
        from_call: The number of the first model call that is live, from 1; earlier ones are
            answered from the recording.
        faults: Faults of tools, as ``TOOL[#N]=KIND[@RATE]``.
        tool_results: Other results of tools, by ``TOOL[#N]``.
        seed: Selects the calls that get faults at random.
    """

    model: str | None = None
    prompt: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tool_policy: ToolPolicy = "error"
    normalize: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    is_live: bool = True
    tools: Mapping[str, str] = field(default_factory=dict)
    run_tools: tuple[str, ...] = ()
    allow_processes: tuple[str, ...] = ()
    from_call: int = 1
    faults: tuple[str, ...] = ()
    tool_results: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        compiled(self.normalize)
        AddressList(self.allow)
        tool_changes(self.faults, self.tool_results)
        if self.from_call < 1:
            raise ConfigError(f"from_call {self.from_call}: model calls are numbered from 1")

    @property
    def changes(self) -> tuple[ToolChange, ...]:
        """The changes of the answers of tools."""
        return tool_changes(self.faults, self.tool_results)

    @property
    def has_edits(self) -> bool:
        """Whether requests or answers differ from those of the agent as it is."""
        return bool(self.model or self.prompt is not None or self.settings or self.changes)

    @property
    def unedited(self) -> WhatIfOptions:
        """The same options, with neither edits nor changes."""
        return replace(self, model=None, prompt=None, settings={}, faults=(), tool_results={})

    def unsuitable(self, recording: Recording) -> str:
        """Why a session cannot be repeated with these options, or ""."""
        calls = len(recording.model_calls)
        if self.from_call > max(calls, 1):
            return f"the recording has {counted(calls, 'model call')}, none is live"
        return uncalled(self.changes, recording)

    def not_applied(self, applied: Iterable[str]) -> str:
        """Why a run lacks a change that every run must have, or "".

        Args:
            applied: The changes that were put in, in all processes of the agent.
        """
        texts = set(applied)
        missing = (
            change for change in self.changes if change.rate is None and change.text not in texts
        )
        change = next(missing, None)
        if change is None:
            return ""
        after = f" from model call {self.from_call} on" if self.from_call > 1 else ""
        calls = f"call {change.number} of it" if change.number else "it"
        return f"{change.text} was not put in: the agent did not make {calls}{after}"


class WhatIfSession(ReplaySession):
    """A replay of one session with a live model.

    Args:
        recording: The recording.
        options: The options.
        answers: The recording that answers model requests; None to send them for real.
        sleep: Waits for slow tools in place of the clock; None to wait.
    """

    player: WhatIfPlayer

    def __init__(
        self,
        recording: Recording,
        options: WhatIfOptions,
        answers: Recording | None = None,
        *,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(
            recording,
            miss="error",
            capture=False,
            normalize=options.normalize,
            tools=options.tools,
            run_tools=options.run_tools,
        )
        self.player = WhatIfPlayer(
            recording,
            RequestEdits(options.model, options.prompt, options.settings),
            tool_policy=options.tool_policy,
            normalize=options.normalize,
            answers=answers,
            gate=self.gate,
            from_call=options.from_call,
            changes=ToolChanges(options.changes, seed=options.seed, session=recording.session),
        )
        self._open = OpenReplay(
            self.player,
            allowed=AddressList(options.allow),
            models=_MODELS,
            programs=frozenset(options.allow_processes),
            sleep=sleep,
        )

    def _finished(self, *, is_complete: bool) -> ReplayResult:
        """Compare no answers of agents: another model may return another answer."""
        return self.player.finish(is_complete=is_complete)

    def ended_as_recorded(self, error: BaseException) -> bool:
        """Whether the recorded exception ended the agent, and no changed answer may be its cause.

        The calls before it are compared by the evaluators.
        """
        return not self.player.coverage.changed and self.answers.is_recorded_error(error)

    def keep(self, folder: Path) -> None:
        """Write the new run of this process into a folder."""
        new_folder = folder / _FOLDER
        new_folder.mkdir(exist_ok=True)
        save(self.player.new_recording, new_folder / f"{os.getpid()}.jsonl")
        coverage = json.dumps(self.player.coverage.as_dict())
        (new_folder / f"{os.getpid()}.json").write_text(coverage, "utf-8")


def session_of(recording: str | Path, options: Mapping[str, Any]) -> ReplaySession:
    """Prepare the replay of a recording in a file.

    Args:
        recording: The file.
        options: The fields of `ReplayOptions`, or of `WhatIfOptions`.

    Raises:
        ConfigError: An option is invalid.
        InputError: The recording cannot be read.
    """
    loaded = load(recording)
    if "is_live" not in options:
        return ReplaySession(loaded, capture=False, **options)
    answers = Path(recording).with_name(ANSWERS_FILE)
    chosen = WhatIfOptions(**options)
    return WhatIfSession(loaded, chosen, None if chosen.is_live else load(answers))


def import_session(recording: str | Path, options: Mapping[str, Any]) -> ReplaySession:
    """Prepare the replay that imports the module of a target.

    Args:
        recording: The file of the recording that the import is for.
        options: The fields of `ReplayOptions`, or of `WhatIfOptions`.

    Raises:
        InputError: The recording cannot be read.
    """
    session = load(recording)
    outside = tuple(exchange for exchange in session.exchanges if not exchange.is_in_agent)
    session = replace(session, model_calls=(), tool_calls=(), exchanges=outside)
    names = ("allow", "allow_processes", "normalize")
    return ReplaySession(
        session, capture=False, is_import=True, **{name: options[name] for name in names}
    )


@dataclass(frozen=True)
class NewRun:
    """The new run of a session, of all processes of the agent.

    Attributes:
        model_calls: The model calls, by their start.
        tool_calls: The tool calls that the replay answered.
        coverage: How far the recording has answered the agent.
    """

    model_calls: tuple[RecordedModelCall, ...] = ()
    tool_calls: tuple[RecordedToolCall, ...] = ()
    coverage: Coverage = field(default_factory=Coverage)


def new_run(folder: Path) -> NewRun:
    """Read the new run that the processes of an agent have written into a folder."""
    new_folder = folder / _FOLDER
    parts = [load(path) for path in sorted(new_folder.glob("*.jsonl"))]
    calls = sorted((c for part in parts for c in part.model_calls), key=lambda call: call.start_ns)
    coverages = (json.loads(path.read_text("utf-8")) for path in sorted(new_folder.glob("*.json")))
    return NewRun(
        tuple(calls),
        tuple(call for part in parts for call in part.tool_calls),
        Coverage.total(map(Coverage.from_dict, coverages)),
    )
