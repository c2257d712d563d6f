"""``oteval replay serve``: answer agents in any language from recordings, over HTTP or MCP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import click

from ..base.errors import ConfigError, NothingEvaluated
from ..model import EVERYTHING
from ..record import CANNOT_START, NOT_FOUND, run_foreground
from ..replays import Miss, Player, ReplayResult, VerifiedSession, exit_status
from ..views import replay_summary, replays_view
from .common import databases_option, json_option, out, print_json, require_extra, say, warn
from .replay import CommandAfterDashes, recordings_of, replay
from .replay_options import miss_option, normalize_option, timing_option

__all__ = ["serve_replay"]


@replay.command("serve", cls=CommandAfterDashes)
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port.  [default: any free one]",
)
@click.option("--mcp", is_flag=True, help="Serve recorded tools as MCP on standard input/output.")
@miss_option("errors from then on")
@normalize_option
@timing_option
@databases_option
@json_option
def serve_replay(
    sessions: tuple[str, ...],
    command: tuple[str, ...],
    host: str,
    port: int,
    mcp: bool,
    miss: Miss,
    normalize: tuple[str, ...],
    timing: bool,
    db: tuple[str, ...],
    as_json: bool,
) -> int:
    """Answer agents in any language from recordings.

    The endpoint speaks the APIs of OpenAI (chat completions, responses) and Anthropic, and answers
    recorded tools at /mcp. With a command after `--`, the command runs with OPENAI_BASE_URL,
    ANTHROPIC_BASE_URL and OTEVAL_REPLAY_MCP_URL set to it; the endpoint ends with the command.
    Otherwise it ends with Ctrl-C.

    Clients must send the OTEVAL_REPLAY_TOKEN as their API key if it is set. Without it, only
    programs of this machine are answered, and --host takes only addresses of this machine.

    Several sessions have an address each, /sessions/ID/v1; at /v1, a request is answered by the
    session that expects it. Prints the result of each session at the end. Exit status: 0 the agent
    did as recorded, 1 it did not, 2 an error, 3 nothing was requested.
    """
    players = _players(sessions, db, miss=miss, normalize=normalize)
    if mcp:
        return _served_as_mcp(players, is_extra=bool(command))
    from ..replays import TOKEN_VARIABLE, ReplayServer, client_environment

    token = os.environ.get(TOKEN_VARIABLE, "")
    server = ReplayServer(players, host=host, port=port, is_timed=timing, token=token)
    for player in players.values():
        recording = player.recording
        reasons = f": {recording.reasons[0]}" if recording.reasons else ""
        warn(f"session {recording.session[:12]}: fidelity {recording.fidelity}{reasons}")
    status = 0
    if command:
        with server.running():
            environment = {**os.environ, **client_environment(server.url, os.environ, token)}
            status = _run(command, environment)
    else:
        say(f"OPENAI_BASE_URL={server.url}/v1")
        say(f"ANTHROPIC_BASE_URL={server.url}")
        if find_spec("mcp") is not None and len(players) == 1:
            say(f"MCP: {server.url}/mcp")
        server.serve()
    return _report(server.results(), status, as_json=as_json)


def _players(
    sessions: Sequence[str], db: Sequence[str], *, miss: Miss, normalize: Sequence[str]
) -> dict[str, Player]:
    players: dict[str, Player] = {}
    with recordings_of(sessions, db, EVERYTHING) as (recordings, _):
        for recording in recordings:
            players[recording.session] = Player(
                recording, miss=miss, normalize=normalize, in_process=False
            )
    return players


def _served_as_mcp(players: Mapping[str, Player], *, is_extra: bool) -> int:
    """Serve the tools of one session on standard input and output."""
    if len(players) != 1 or is_extra:
        raise ConfigError("--mcp serves one session, and takes no command")
    require_extra("oteval replay serve --mcp", "mcp-server", ("mcp",))
    from ..replays import serve_stdio

    (player,) = players.values()
    serve_stdio(player)
    for divergence in player.divergences:
        warn(divergence.summary)
    return 1 if player.divergences else 0


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        return run_foreground(command, environment)
    except OSError as error:
        text = f"{command[0]}: cannot be started: {error.strerror or error}"
        raise ConfigError(text) from error


def _report(results: Sequence[ReplayResult], status: int, *, as_json: bool) -> int:
    """Print the results, and return the exit status.

    Raises:
        NothingEvaluated: The agent requested nothing.
    """
    sessions = [_verified(result, status) for result in results]
    for session in sessions:
        if as_json:
            print_json(session.as_dict())
    if not as_json:
        out().print(replays_view(sessions))
    warn(replay_summary(sessions))
    if exit_status(sessions) == 3:
        raise NothingEvaluated("the agent sent no request to this endpoint")
    return exit_status(sessions)


def _verified(result: ReplayResult, status: int) -> VerifiedSession:
    """Return the outcome of a session; a session without a request was not replayed."""
    is_idle = not (result.served or result.served_tools or result.served_exchanges)
    if is_idle and all(divergence.kind == "missing_call" for divergence in result.divergences):
        text = "no request was for this session"
        return VerifiedSession(result.session, "not_replayed", text)
    if not result.passed:
        return VerifiedSession(result.session, "diverged", result=result)
    if status:
        kind = {CANNOT_START: "could not be started", NOT_FOUND: "was not found"}
        text = f"the command {kind.get(status, f'ended with status {status}')}"
        return VerifiedSession(result.session, "error", text, result)
    return VerifiedSession(result.session, "passed", result=result)
