"""Replay a recorded session in this process: the agent's code runs, the recording answers it.

    with oteval.replay("4f2a91c0") as replay:
        agent.ask("Refund order 17")

Inside the block, the recording answers the HTTP requests of httpx, httpx2 and requests, and tools
that can be intercepted. The network is blocked. At the end of the block, `ReplayDiverged` is raised
if the agent's actions differed from the recording, even if the agent hid the error.

Several replays can run at the same time in threads or tasks: each belongs to the context that
opened it. They cannot be nested in one context.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..base.errors import ConfigError, NotFound, ReplayDiverged, ReplayUnguarded
from ..base.import_hook import ModuleWatch
from ..base.patterns import Pattern
from ..model import Message, Recording, Trajectory
from .address_list import AddressList
from .agent_answers import AgentAnswers
from .conversations import ToolExecution, conversation_of, last_answer
from .divergence import Divergence, diverged
from .frozen import freezable, freeze
from .interceptors import install_tool_adapters, intercepted_names
from .network_guard import network_guard
from .open_replays import (
    OpenReplay,
    Timing,
    Work,
    carrying,
    opened,
    require_no_replay,
)
from .player import Miss, Player, Tools
from .recording_files import load
from .replay_result import ReplayResult
from .text_comparison import compiled
from .tool_gate import ToolGate
from .tool_hook import tools_answered
from .transport import answering, async_http_client, http_client

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["ReplaySession", "replay"]

DEFAULT_DATABASE = "oteval.duckdb"
# Seconds that the end of a block waits for its threads, and seconds between two checks.
_PATIENCE, _MOMENT = 5.0, 0.01


class ReplaySession:
    """A replay of one session; a context manager, also for ``async with``.

    Attributes:
        recording: The recording.
        player: The player, which answers from the recording.
        gate: Decides whether the tools that an answer requests can run.
        answers: The answers of agents, which are compared with the recorded ones.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        miss: Miss = "strict",
        tools: Tools | Mapping[str, str] = "recorded",
        normalize: Sequence[str | Pattern] = (),
        freeze: Collection[str] = (),
        allow: Collection[str] = (),
        timing: Timing = "none",
        allow_live: bool = False,
        capture: bool = True,
        run_tools: Collection[str] = (),
        allow_processes: Collection[str] = (),
        is_import: bool = False,
    ) -> None:
        """Prepare a replay; see `replay` for the arguments.

        With `is_import`, modules are imported in the replay, and their threads belong to later
        replays.
        """
        if timing not in ("none", "recorded"):
            raise ConfigError(f"timing={timing!r}: choose none or recorded")
        self.recording = recording
        allowed = AddressList(allow)
        functions = {} if isinstance(tools, str) else tools
        self.gate = ToolGate(
            intercepted_names,
            run_tools=[run_tools] if isinstance(run_tools, str) else run_tools,
            functions=functions,
            runs_all=tools == "run",
        )
        self.player = Player(
            recording,
            miss=miss,
            tools=tools if isinstance(tools, str) else "recorded",
            normalize=normalize,
            allow_live=allow_live,
            is_optional=allowed.allows_url,
            gate=self.gate,
        )
        self.answers = AgentAnswers(recording.answers, compiled(normalize))
        self._freeze = freezable([freeze] if isinstance(freeze, str) else freeze)
        self._open = OpenReplay(
            self.player,
            allowed=allowed,
            timing=timing,
            programs=frozenset(allow_processes),
            is_import=is_import,
        )
        self._capture = capture
        self._captured: Any = None
        self._result: ReplayResult | None = None
        self._undo = ExitStack()
        self._was_entered = False

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The differences from the recording so far."""
        return self._result.divergences if self._result else self.player.divergences

    @property
    def result(self) -> ReplayResult:
        """The result; inside the block, it covers the run so far."""
        result = self._result or self.player.finish(is_complete=False)
        return replace(result, divergences=(*result.divergences, *self.player.late))

    @property
    def tool_calls(self) -> list[ToolExecution]:
        """The tools that the agent has run, in order: names and arguments.

        Tools that overlapped in the recording are in the order of the recording.
        """
        return list(self.result.executed)

    @property
    def messages(self) -> list[Message]:
        """The messages between the agent and its models, each once, without instructions."""
        return list(conversation_of(self.player.conversation))

    @property
    def answer(self) -> str:
        """The model's last answer that requests no tools; "" if there is none yet."""
        return last_answer(self.player.conversation)

    @property
    def trajectory(self) -> Trajectory:
        """The replayed agent run, if the process is instrumented.

        Raises:
            NotFound: No agent run was captured, or several were.
        """
        if self._captured is None:
            raise NotFound(
                "the replay captured no spans: call oteval.instrument() before it, and leave "
                "capture=True"
            )
        trajectory: Trajectory = self._captured.trajectory
        return trajectory

    def http_client(self, library: str = "httpx2", **options: Any) -> Any:
        """Make a client that this replay answers, to pass as ``http_client=``.

        Args:
            library: ``httpx2``, which openai 3 uses, or ``httpx``.
            options: More arguments of the client.
        """
        return http_client(self._open, importlib.import_module(library), **options)

    def async_http_client(self, library: str = "httpx2", **options: Any) -> Any:
        """Make an asynchronous client that this replay answers.

        Args:
            library: ``httpx2``, which openai 3 uses, or ``httpx``.
            options: More arguments of the client.
        """
        return async_http_client(self._open, importlib.import_module(library), **options)

    def __enter__(self) -> Self:
        if self._was_entered:
            raise ConfigError("a replay can be used once: call oteval.replay again")
        require_no_replay()
        self._was_entered = True
        with ExitStack() as undo:
            self._begin(undo)
            # Before the agent begins: it may call a tool that no model has requested.
            self.player.take_over_all()
            self._undo = undo.pop_all()
        return self

    def _begin(self, undo: ExitStack) -> None:
        """Set everything up; `undo` takes it back."""
        if self._capture and _is_instrumented():
            from ..record import capture

            self._captured = undo.enter_context(capture())
        install_tool_adapters()
        with ExitStack() as guards:
            for guard in (carrying(), answering(), network_guard()):
                guards.enter_context(guard)
            guards.callback(self.gate.close)
            undo.callback(self._open.work.when_ended, guards.pop_all().close)
        undo.enter_context(tools_answered(self._open, self.answers))
        undo.enter_context(opened(self._open))
        player = self.player
        # A module may call a tool that it defines before a model has requested it.
        watch = ModuleWatch(player.may_define_tool, lambda _module: player.take_over_all())
        watch.install()
        undo.callback(watch.remove)
        if self._freeze:
            session, start_ns = self.recording.session, _start_of(self.recording)
            sources = freeze(self._freeze, session=session, start_ns=start_ns)
            self._open.answered = undo.enter_context(sources).answered
        self._older_tasks = _tasks()

    def settle(self, seconds: float | None = None) -> None:
        """End like a process: run the exit functions, and wait for the threads.

        Args:
            seconds: The time limit for the threads; None for none.
        """
        while self._open.exit_functions:
            function = self._open.exit_functions.pop()
            atexit.unregister(function)
            try:
                function()
            except ReplayDiverged:  # the player has noted it
                continue
            except Exception:
                traceback.print_exc()
        self._open.work.wait(seconds)

    def finish(self, *, is_complete: bool) -> ReplayResult:
        """Conclude the replay at the end of a process; everything stays guarded until then."""
        self._result = self._finished(is_complete=is_complete)
        return self._result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and not self._open.is_import:
            self._open.work.wait(_PATIENCE)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """End the replay, and raise its first divergence unless the agent shows it anyway."""
        if self._open.work.is_waited_for and not self._open.is_import:
            self.player.note("a thread has outlived the replay: its requests and tools are refused")
        _count_tasks(self._open.work, _tasks() - self._older_tasks)
        self._undo.close()
        result = self.finish(is_complete=error is None)
        is_known = isinstance(error, (ReplayDiverged, KeyboardInterrupt, asyncio.CancelledError))
        if result.passed or is_known:
            return
        if self.player.miss == "strict" and result.divergences:
            raise diverged(result.divergences[0]) from error
        if result.unguarded:
            raise ReplayUnguarded(result.unguarded[0]) from error

    def _finished(self, *, is_complete: bool) -> ReplayResult:
        """Compare the answers of agents as well, if nothing else differs."""
        result = self.player.finish(is_complete=is_complete)
        if not is_complete or not result.passed or result.live:
            return result
        return replace(
            result,
            divergences=tuple(self.answers.divergences()),
            reasons=(*result.reasons, *self.answers.not_compared()),
        )

    def ended_as_recorded(self, error: BaseException) -> bool:
        """Whether the recorded exception ended the agent, after all recorded model calls."""
        is_complete = self.result.served == len(self.recording.model_calls)
        return is_complete and self.answers.is_recorded_error(error)

    def keep(self, folder: Path) -> None:
        """Write files for the parent process into a folder; the result itself needs no files."""

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        work, waited = self._open.work, 0.0
        # The event loop continues meanwhile: a thread may wait for it.
        while error is None and work.is_waited_for and waited < _PATIENCE:
            await asyncio.sleep(_MOMENT)
            waited += _MOMENT
        self._end(error)


def _tasks() -> set[asyncio.Task[Any]]:
    """The tasks of the event loop that runs in this thread; none if none runs."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()


def _count_tasks(work: Work, tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Count tasks that outlive a replay as its work."""
    for task in tasks:
        work.begin(is_daemon=True)
        task.add_done_callback(lambda _task: work.end(is_daemon=True))


def _is_instrumented() -> bool:
    """Whether the process has a tracer provider of OpenTelemetry's SDK."""
    try:
        from opentelemetry import trace
    except ImportError:
        return False
    return hasattr(trace.get_tracer_provider(), "add_span_processor")


def _start_of(recording: Recording) -> int:
    starts = [call.start_ns for call in recording.model_calls if call.start_ns]
    starts += [call.start_ns for call in recording.tool_calls if call.start_ns]
    return min(starts, default=0)


def replay(
    session: str | Recording = "",
    *,
    db: str | Path | None = None,
    store: Store | None = None,
    recording: str | Path | Recording | None = None,
    miss: Miss = "strict",
    tools: Tools | Mapping[str, str] = "recorded",
    normalize: Sequence[str | Pattern] = (),
    freeze: Collection[str] = (),
    allow: Collection[str] = (),
    timing: Timing = "none",
    allow_live: bool = False,
    capture: bool = True,
    run_tools: Collection[str] = (),
    allow_processes: Collection[str] = (),
) -> ReplaySession:
    """Replay a recorded session: use the result as a context manager around the agent's code.

    Args:
        session: The id of a trajectory, a trace or a conversation, or an unambiguous prefix.
        db: The database that has it; by default ``oteval.duckdb``.
        store: An open store that has it.
        recording: A recording, or the path of a saved one, instead of a session.
        miss: The answer to a request that the recording does not have: ``strict`` raises
            `ReplayDiverged`, ``error`` answers with an error, ``ordinal`` returns the recorded
            answer nevertheless, ``fork`` continues for real.
        tools: ``recorded`` to answer tools from the recording, ``run`` to run them. A mapping
            answers them as well, and names their functions as ``module:function`` by the tool's
            name. A mapping is needed only if a tool and its function have different names, or
            several functions match.
        normalize: Patterns of text that varies in every run; it is ignored in comparisons.
        freeze: Sources to freeze: ``clock``, ``random``, ``uuid``.
        allow: Network addresses that the agent may reach, as ``host:port`` or ``host``.
        timing: ``recorded`` to send the chunks of answers at their recorded times.
        allow_live: Permission to send requests for real, which ``fork`` needs.
        capture: Whether to capture the spans of the replayed run, if the process is instrumented.
        run_tools: The names of tools that run for real.
        allow_processes: The names of programs that the agent may start. They are not guarded, so
            such a replay never passes.

    Raises:
        ConfigError: An argument is invalid.
        NotFound: The session does not exist.
        InputError: The recording cannot be read.
        StoreError: The database cannot be used.
    """
    return ReplaySession(
        _recording_of(session, db, store, recording),
        miss=miss,
        tools=tools,
        normalize=normalize,
        freeze=freeze,
        allow=allow,
        timing=timing,
        allow_live=allow_live,
        capture=capture,
        run_tools=run_tools,
        allow_processes=allow_processes,
    )


def _recording_of(
    session: str | Recording,
    db: str | Path | None,
    store: Store | None,
    recording: str | Path | Recording | None,
) -> Recording:
    """The recording that the arguments of `replay` select."""
    if isinstance(session, Recording):
        return session
    if isinstance(recording, Recording):
        return recording
    if recording is not None:
        return load(recording)
    if not session:
        raise ConfigError("replay: give a session, or recording=PATH")
    # Not at the top: a process that replays a saved recording needs no database.
    from ..scoring import refresh
    from ..store import Store
    from .recordings import read_recording

    with nullcontext(store) if store is not None else Store(db or DEFAULT_DATABASE) as opened_store:
        refresh(opened_store)
        return read_recording(opened_store, session)
