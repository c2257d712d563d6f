"""The options of several commands of ``oteval replay``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import click

from ..base.errors import ConfigError
from ..replays import FREEZABLE, MISSES, InputForm, Tools, tool_functions
from .options import FUNCTION_METAVAR, Command, default_config, with_options

__all__ = [
    "agent_options",
    "allow_option",
    "freeze_option",
    "miss_option",
    "normalize_option",
    "timing_option",
    "tool_options",
    "tools_of",
    "tools_option",
    "workers_option",
]

_MOST_WORKERS = 8

agent_options = with_options(
    click.option(
        "--target",
        metavar=FUNCTION_METAVAR,
        help="The agent as a function, called once for each turn with the user's message.",
    ),
    click.option(
        "--input",
        "input_form",
        type=click.Choice(get_args(InputForm)),
        default="text",
        show_default=True,
        help="The argument of the target: the user's text, all messages so far, or none.",
    ),
)
tools_option = click.option(
    "--tools",
    type=click.Choice(get_args(Tools)),
    default="recorded",
    show_default=True,
    help="Answer tools from the recording, or run them.",
)
tool_options = with_options(
    click.option(
        "--tool",
        "tool",
        multiple=True,
        metavar="TOOL=MODULE:FUNCTION",
        help="The function that runs a tool, if it has another name; may be repeated.",
    ),
    click.option(
        "--run-tool",
        "run_tools",
        multiple=True,
        metavar="TOOL",
        help="A tool that runs for real; may be repeated.",
    ),
    click.option(
        "--allow-processes",
        multiple=True,
        metavar="PROGRAM",
        help="A program that the agent may start; such a replay never passes. May be repeated.",
    ),
)
normalize_option = click.option(
    "--normalize",
    multiple=True,
    metavar="REGEX",
    help="Ignore text that matches, such as dates and ids; may be repeated.",
)
allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="HOST[:PORT]",
    help="An address that the agent may reach; may be repeated.",
)
timing_option = click.option("--timing", is_flag=True, help="Stream answers at the recorded pace.")


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


freeze_option = click.option(
    "--freeze",
    default="",
    metavar="SOURCES",
    callback=_names,
    help=f"Freeze sources: {','.join(FREEZABLE)}.",
)


def _workers(_context: click.Context, _option: click.Parameter, count: int | None) -> int:
    return count or min(os.cpu_count() or 1, _MOST_WORKERS)


workers_option = click.option(
    "--workers",
    type=click.IntRange(min=1),
    callback=_workers,
    help="The number of sessions at a time.  [default: the number of processors, at most 8]",
)


def miss_option(stop: str) -> Callable[[Command], Command]:
    """Return the option ``--miss``."""
    return click.option(
        "--miss",
        type=click.Choice([miss for miss in MISSES if miss != "fork"]),
        default="strict",
        show_default=True,
        help=f"The answer to a request that differs: {stop}, an error, or the recorded answer.",
    )


def tools_of(
    tools: Tools, entries: Sequence[str], config_path: str | None
) -> Tools | Mapping[str, str]:
    """Return how tools are answered, from options, then from ``tools:`` in the configuration.

    Args:
        tools: ``recorded`` or ``run``.
        entries: The options ``--tool``.
        config_path: The path of the configuration; None for the default configuration, if it
            exists.

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
