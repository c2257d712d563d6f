"""``oteval replay``: answer the agent from recorded sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..base.errors import ConfigError, NothingEvaluated
from ..base.text import counted
from ..model import Recording, Selection, Trajectory
from ..replays import (
    CASSETTE_FILES,
    CommandRunner,
    InputForm,
    ReplayOptions,
    SessionRunner,
    TargetRunner,
    VerifiedSession,
    WhatIfOptions,
    exit_status,
    load,
    recordings_in as stored_recordings,
    verify as verify_sessions,
)
from ..store import Store, StoredSession
from ..views import replay_junit, replay_markdown, replay_summary, replays_view
from .commands import CommandGroup
from .common import (
    databases_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    select,
    warn,
    write_report,
)
from .options import default_config_option, report_options
from .replay_options import (
    agent_options,
    allow_option,
    freeze_option,
    miss_option,
    normalize_option,
    timing_option,
    tool_options,
    tools_of,
    tools_option,
    workers_option,
)

__all__ = [
    "CommandAfterDashes",
    "recording_files",
    "recordings_in",
    "recordings_of",
    "replay",
    "runner_of",
]

_RECORDING_FILES = (".jsonl", ".jsonl.gz", *CASSETTE_FILES)


@click.group(cls=CommandGroup)
def replay() -> None:
    """Replay recorded sessions: test agents without a model.

    The agent runs, and the recording answers it. Record sessions with `oteval run`,
    `oteval.instrument()` or `oteval serve`. Sessions without recorded HTTP requests are rebuilt
    from their messages; the fidelity is then `semconv`, not `wire`.
    """


class CommandAfterDashes(click.Command):
    """A command that takes another command after ``--``, as the parameter ``command``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the arguments at the first ``--``."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage with the other command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@replay.command(cls=CommandAfterDashes)
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@agent_options
@miss_option("stop the agent")
@tools_option
@tool_options
@normalize_option
@freeze_option
@allow_option
@timing_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The limit for each session.",
)
@workers_option
@default_config_option("The configuration with the functions of tools.")
@databases_option
@filters
@report_options
@json_option
def verify(
    sessions: tuple[str, ...],
    command: tuple[str, ...],
    target: str | None,
    input_form: InputForm,
    timing: bool,
    freeze: tuple[str, ...],
    timeout: float,
    workers: int,
    tool: tuple[str, ...],
    run_tools: tuple[str, ...],
    allow_processes: tuple[str, ...],
    config_path: str | None,
    db: tuple[str, ...],
    junit: str | None,
    md: str | None,
    as_json: bool,
    **other_options: Any,
) -> int:
    """Verify that an agent behaves as in recorded sessions.

    The agent's current code runs: a function (--target), or a command after `--`. Its requests to
    models and its tools are answered from the recording, and the network is blocked. The first
    difference is shown with the line of the agent's code.

    A SESSION is the id of a trajectory, a trace or a conversation, or the file of a recording.
    Without one, all sessions that the filters select are verified. In the command, {input} is
    replaced by the user's message; otherwise it is the command's standard input.

    A tool that the replay cannot answer never runs: the replay stops before the model's answer is
    given, and says which option to add.

    Exit status: 0 all sessions passed, 1 a session failed, 2 an error, 3 nothing could be replayed,
    or not every SESSION that was named, or something could not be guarded.
    """
    options = ReplayOptions(
        miss=other_options.pop("miss"),
        tools=tools_of(other_options.pop("tools"), tool, config_path),
        run_tools=run_tools,
        allow_processes=allow_processes,
        normalize=tuple(other_options.pop("normalize")),
        allow=tuple(other_options.pop("allow")),
        freeze=freeze,
        timing="recorded" if timing else "none",
    )
    new_runner = runner_of(target, command, options, input_form, timeout)
    results: list[VerifiedSession] = []
    with (
        recordings_of(sessions, db, select(**other_options), whole_invocations=bool(command)) as (
            recordings,
            total,
        ),
        progress("replaying", " sessions") as update,
    ):
        try:
            for result in verify_sessions(
                recordings, new_runner, workers=min(workers, max(total, 1))
            ):
                results.append(result)
                update(len(results), total, _failures(results))
                if as_json:
                    print_json(result.as_dict())
        except KeyboardInterrupt:
            if results and not as_json:
                out().print(replays_view(results))
            left = f"{total - len(results):,} of {counted(total, 'session')}"
            raise KeyboardInterrupt(f"{left} not replayed") from None
    write_report(junit, lambda: replay_junit(results))
    write_report(md, lambda: replay_markdown(results))
    if results and not as_json:
        out().print(replays_view(results))
    return _status(results, is_named=bool(sessions))


def runner_of(
    target: str | None,
    command: Sequence[str],
    options: ReplayOptions | WhatIfOptions,
    input_form: InputForm,
    timeout: float,
) -> Callable[[], SessionRunner]:
    """Return the function that makes runners of the target or of the command."""
    if bool(target) == bool(command):
        raise ConfigError(
            "give the agent as --target PKG.MODULE:FUNCTION, or as a command after --: "
            "... SESSION -- python agent.py"
        )
    if target:
        return lambda: TargetRunner(target, options, input_form=input_form, timeout=timeout)
    return lambda: CommandRunner(command, options, timeout=timeout)


@contextmanager
def recordings_of(
    sessions: Sequence[str],
    db: str | Sequence[str],
    selection: Selection,
    *,
    whole_invocations: bool = False,
) -> Iterator[tuple[Iterator[Recording], int]]:
    """Open the recordings of sessions, from files or the database, and count them.

    Args:
        sessions: Ids or files; all that the selection has if there are none.
        db: The database, or several.
        selection: The selection.
        whole_invocations: Whether all runs of one `oteval run` are one session, because a single
            command makes them.
    """
    files = [name for name in sessions if name.endswith(_RECORDING_FILES) and Path(name).is_file()]
    if files and len(files) == len(sessions):
        yield (load(name) for name in files), len(files)
        return
    with open_store(db) as store:
        yield recordings_in(store, sessions, selection, whole_invocations=whole_invocations)


def recording_files(names: Iterable[str]) -> list[str]:
    """Return the names that are files of recordings."""
    return [name for name in names if name.endswith(_RECORDING_FILES) and Path(name).is_file()]


def recordings_in(
    store: Store,
    sessions: Sequence[str],
    selection: Selection,
    *,
    whole_invocations: bool = False,
) -> tuple[Iterator[Recording], int]:
    """Return the recordings of sessions, from files or a store, and count them.

    Args:
        store: The store.
        sessions: Ids or files; all that the selection has if there are none.
        selection: The selection.
        whole_invocations: Whether all runs of one `oteval run` are one session.
    """
    files = recording_files(sessions)
    ids = [name for name in sessions if name not in files]
    if not sessions:
        ids = _sessions(store.trajectories.read(selection))
    stored = store.sessions.find(ids) if ids else []
    if whole_invocations:
        stored = store.sessions.whole_invocations(stored)
    return _all(files, store, stored), len(files) + len(stored)


def _all(
    files: Sequence[str], store: Store, stored: Sequence[StoredSession]
) -> Iterator[Recording]:
    for name in files:
        yield load(name)
    yield from stored_recordings(store, stored)


def _sessions(trajectories: Iterator[Trajectory]) -> list[str]:
    """Return the ids of sessions: a conversation is one session, and a sub-agent is none."""
    names = (run.conversation_id or run.id for run in trajectories if not run.parent_id)
    return list(dict.fromkeys(names))


def _failures(results: Sequence[VerifiedSession]) -> str:
    failed = sum(result.failed for result in results)
    return f"{failed} failed" if failed else ""


def _status(results: Sequence[VerifiedSession], *, is_named: bool) -> int:
    """Print the summary, and return the exit status.

    Args:
        results: The results.
        is_named: Whether each session was requested by name, so that none may be left out.

    Raises:
        NothingEvaluated: Nothing was replayed, or no session failed but a named session could not
            be replayed.
    """
    if not results:
        raise NothingEvaluated("no session was selected; oteval trajectories lists them")
    warn(replay_summary(results))
    status = exit_status(results)
    open_ended = next((result for result in results if result.status == "unverified"), None)
    if status == 3 and open_ended is not None:
        raise NothingEvaluated(f"{open_ended.session} is not verified: {open_ended.detail}")
    if status == 3:
        raise NothingEvaluated(f"no session could be replayed: {results[0].detail}")
    left = [result for result in results if result.status == "not_replayed"]
    if left and is_named and status == 0:
        raise NothingEvaluated(
            f"{len(left):,} of {counted(len(results), 'named session')} could not be replayed: "
            f"{left[0].session}: {left[0].detail}"
        )
    return status
