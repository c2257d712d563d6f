"""Write docs/reference/cli.md from the help texts of the commands; a test keeps it current.

Run it as ``python -m scripts.make_cli_docs``.
"""

from __future__ import annotations

from pathlib import Path

import click

from oteval.cli import cli
from oteval.cli.commands import SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"


def commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    """Return a command and all its subcommands, with the words that a user types."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.commands:
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                found += commands(below, f"{path} {name}")
    return found


def page() -> str:
    """Return the page."""
    parts = ["# Commands", "", "The `--help` text of every command.", ""]
    for title, section in SECTIONS.items():
        links = " · ".join(f"[{command.name}](#oteval-{command.name})" for command in section)
        parts.append(f"- {title}: {links}")
    parts.append("")
    for path, command in commands(cli, "oteval"):
        context = click.Context(command, info_name=path, terminal_width=100, **cli.context_settings)
        parts += [f"## {path}", "", "```", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
