"""``oteval mcp``: serve stored runs to agents that write code."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from ..base.errors import ConfigError
from .common import databases_option, require_extra, warn
from .options import FUNCTION_METAVAR, config_option

if TYPE_CHECKING:
    from ..views import Workspace

__all__ = ["mcp"]

# The tokens of clients over HTTP, without and with --write.
_READ_TOKEN, _WRITE_TOKEN = "OTEVAL_READ_TOKEN", "OTEVAL_WRITE_TOKEN"


@click.command()
@config_option("The configuration with the evaluators, references and monitors.")
@databases_option
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve streamable HTTP at /mcp of this address, instead of standard input and output.",
)
@click.option("--write", is_flag=True, help="Offer tools that score runs and add references.")
@click.option(
    "--target",
    metavar=FUNCTION_METAVAR,
    default="",
    help="With --write: offer tests made of runs, which call this function.",
)
@click.option(
    "--command",
    default="",
    help="With --write: offer tests made of runs, which start this command.",
)
@click.option(
    "--dir", "folder", default="tests", show_default=True, help="The folder for these tests."
)
def mcp(
    config_path: str,
    db: tuple[str, ...],
    http: str | None,
    write: bool,
    target: str,
    command: str,
    folder: str,
) -> int:
    """Serve runs and scores over MCP to coding agents.

    A client starts this command, and its agent lists, shows, explains and compares runs. With
    --write it can also score runs and add references. The database is open during calls only, or a
    running server is asked. Clients over HTTP must send the OTEVAL_READ_TOKEN if it is set, and
    with --write the OTEVAL_WRITE_TOKEN, which must be set. Several databases can only be read, and
    one that a server has open is copied for each call.
    """
    workspace = _workspace(db, config_path, write, target, command, folder)
    require_extra("oteval mcp", "mcp-server", ("mcp",))
    # Standard output belongs to the protocol.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if http is None:
        from ..views import serve_stdio

        serve_stdio(workspace, writes=write)
        return 0
    _serve_http(workspace, http, write)
    return 0


def _workspace(
    db: tuple[str, ...], config_path: str, write: bool, target: str, command: str, folder: str
) -> Workspace:
    if target and command:
        raise ConfigError("give --target or --command, not both")
    if (target or command) and not write:
        raise ConfigError("--target and --command are for tests, which need --write")
    if write and len(db) != 1:
        raise ConfigError(f"--write uses one database, and {len(db)} are given; give one --db FILE")
    from ..views import AgentUnderTest, Workspace

    agent = AgentUnderTest(target, command, folder) if target or command else None
    first, *more = db
    return Workspace(first, config_path, agent, tuple(more))


def _serve_http(workspace: Workspace, address: str, write: bool) -> None:
    from ..views import McpHttpServer, create_server

    variable = _WRITE_TOKEN if write else _READ_TOKEN
    token = os.environ.get(variable, "")
    if write and not token:
        raise ConfigError(f"--http with --write needs a token: set {variable}")
    server = create_server(workspace, writes=write)
    served = McpHttpServer(server, address, token=token, variable=variable)
    warn(f"listening on {served.url}")
    served.serve()
