"""A group of commands that are imported when they are used.

Importing all commands takes a second, for DuckDB, Arrow, pydantic, evaluators and the dialects of
traces. `oteval run` and `oteval doctor` need none of these to start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

__all__ = ["LazyCommand", "LazyGroup"]


class LazyCommand(click.Command):
    """Takes the place of a command that is not imported yet, and has its summary for the help.

    Args:
        name: The name of the command.
        load: Imports its module, and returns the commands that are in it.
        summary: The first sentence of its help.
    """

    def __init__(
        self, name: str, load: Callable[[], Sequence[click.Command]], summary: str
    ) -> None:
        super().__init__(name, help=summary)
        self._load = load

    def load(self) -> click.Command:
        """Import the command."""
        [command] = (one for one in self._load() if one.name == self.name)
        return command


class LazyGroup(click.Group):
    """A group that imports a `LazyCommand` when it is used, and not for the list of its help."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, LazyCommand):
            command = self.commands[cmd_name] = command.load()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and summaries of the commands."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)
