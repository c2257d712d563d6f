"""The options of ``oteval whatif`` that begin at a step, or change the answers of tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from ..base.errors import ConfigError, InputError
from .options import with_options

__all__ = ["change_options", "file_text", "samples_option", "tool_results"]

change_options = with_options(
    click.option(
        "--from-call",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="The number of the first model call that is live; the recording answers the earlier "
        "calls.",
    ),
    click.option(
        "--tool-result",
        "tool_result",
        multiple=True,
        metavar="TOOL[#N]=FILE",
        help="Answer the calls of a tool, or its N-th call, with the content of a file; may be "
        "repeated.",
    ),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="TOOL[#N]=FAULT[@RATE]",
        help="Answer with a fault: timeout, error:503, empty, slow:5s, malformed or wrong-type; "
        "@0.3 puts it into 30% of the calls. May be repeated.",
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Selects the calls that get a fault at random.",
    ),
)
samples_option = click.option(
    "--samples",
    "--repetitions",
    "samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often each session is repeated; with several samples and a change, as often without "
    "the change.",
)


def tool_results(entries: Iterable[str]) -> dict[str, str]:
    """Return the contents of the files of ``--tool-result``, by ``TOOL[#N]``.

    Raises:
        ConfigError: An option has another form, or names a tool again.
        InputError: A file cannot be read.
    """
    results: dict[str, str] = {}
    for entry in entries:
        selector, separator, path = entry.partition("=")
        if not selector or not separator or not path:
            raise ConfigError(f"--tool-result {entry}: write --tool-result TOOL[#N]=FILE")
        if selector in results:
            raise ConfigError(f"--tool-result {entry}: {selector} has a result already")
        results[selector] = file_text(path).removesuffix("\n")
    return results


def file_text(path: str) -> str:
    """Return the text of a file.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
