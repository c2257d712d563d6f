"""The options of ``oteval replay`` for the tools and programs of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from ..base.errors import ConfigError
from ..replays import Tools, tool_functions
from ..scoring import DEFAULT_PATH, Config, load_config

__all__ = ["default_config", "tool_options", "tools_of", "tools_option"]

F = TypeVar("F", bound=Callable[..., Any])

tools_option = click.option(
    "--tools",
    type=click.Choice(get_args(Tools)),
    default="recorded",
    show_default=True,
    help="Answer tools from the recording, or run them.",
)


def tool_options(command: F) -> F:
    """Add the options for the functions of tools, and for tools and programs that may run."""
    for option in (
        click.option(
            "--allow-processes",
            multiple=True,
            metavar="PROGRAM",
            help="A program that the agent may start; such a replay never passes. May be repeated.",
        ),
        click.option(
            "--run-tool",
            "run_tools",
            multiple=True,
            metavar="TOOL",
            help="A tool that runs for real; may be repeated.",
        ),
        click.option(
            "--tool",
            "tool",
            multiple=True,
            metavar="TOOL=MODULE:FUNCTION",
            help="The function that runs a tool, if it has another name; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def tools_of(
    tools: Tools, entries: Sequence[str], config_path: str | None
) -> Tools | Mapping[str, str]:
    """Return how tools are answered: by options, then by ``tools:`` in the configuration.

    Args:
        tools: ``recorded`` or ``run``.
        entries: The options ``--tool``.
        config_path: The path of the configuration; None for the default one, if that exists.

    Raises:
        ConfigError: An option is wrong, or the configuration cannot be read.
    """
    named = tool_functions(entries)
    if tools == "run":
        if named:
            raise ConfigError("--tools run runs all tools: leave out --tool")
        return tools
    config = default_config(config_path)
    functions = {**(config.tools if config is not None else {}), **named}
    return functions or tools


def default_config(config_path: str | None) -> Config | None:
    """Return the configuration; None if none is named and the default one does not exist.

    Raises:
        ConfigError: It cannot be read.
    """
    path = config_path or DEFAULT_PATH
    if config_path is None and not Path(path).is_file():
        return None
    return load_config(path)
