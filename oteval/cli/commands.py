"""The commands of ``oteval``: their sections, names and summaries.

Importing all commands takes a second, because of DuckDB, Arrow, pydantic, evaluators and the
dialects of traces. `oteval run` and `oteval doctor` need none of these to start, so commands are
imported when they are used. A test compares the summaries with the help of the commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from importlib import import_module

import click

__all__ = ["SECTIONS", "CommandGroup", "LazyCommand", "hidden"]


class LazyCommand(click.Command):
    """Takes the place of a command that is not imported yet, and has the summary for the help.

    Args:
        name: The name of the command.
        summary: The first sentence of its help.
        modules: The command's module, if it has another name, and further modules with subcommands.
    """

    def __init__(self, name: str, summary: str, *modules: str) -> None:
        super().__init__(name, help=summary)
        self._modules = modules or (name,)

    def load(self) -> click.Command:
        """Import the command."""
        module, *_ = [import_module(f".{name}", __package__) for name in self._modules]
        return next(
            value
            for value in vars(module).values()
            if isinstance(value, click.Command) and value.name == self.name
        )


class CommandGroup(click.Group):
    """A group that lists its commands in the order of their declaration, with whole summaries.

    A `LazyCommand` is imported only when it is used; the list does not import it.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, LazyCommand):
            command = self.commands[cmd_name] = command.load()
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the names and summaries of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, summary_of(command))
                    for name, command in self.commands.items()
                    if not command.hidden
                ]
            )


class SectionedGroup(CommandGroup):
    """The group of all commands; its help fits one screen: one line per command, by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; the options are in the epilog, in one line."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the sections with the names and summaries of their commands."""
        formatter.write_paragraph()
        for title, commands in SECTIONS.items():
            for index, command in enumerate(commands):
                heading = "" if index else title
                formatter.write(f"{heading:12}{command.name:14}{summary_of(command)}\n")


def hidden(command: click.Command) -> click.Command:
    """Return an alias of a command that no help lists."""
    alias = copy(command)
    alias.hidden = True
    return alias


def summary_of(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    return command.get_short_help_str(limit=1000)


SECTIONS: Mapping[str, Sequence[LazyCommand]] = {
    "Look": (
        LazyCommand("demo", "Load and score bundled traces: no server, no key."),
        LazyCommand("ingest", "Load files with traces and conversations."),
        LazyCommand("pull", "Load the new traces of another backend.", "backends"),
        LazyCommand("trajectories", "List the trajectories, one for each agent run.", "view"),
        LazyCommand("show", "Show trajectories: messages, calls, gaps and scores.", "view"),
        LazyCommand("explain", "Explain how each span of a trace was read.", "view"),
        LazyCommand("diff", "Compare trajectories and mark where they diverge.", "view"),
        LazyCommand("variants", "Group runs by their sequence of tool calls.", "view"),
        LazyCommand("view", "Look at runs, scores and spans in the browser.", "pages"),
    ),
    "Score": (
        LazyCommand("init", "Write an oteval.yaml that fits the runs that are here."),
        LazyCommand("config", "Check oteval.yaml, or print its JSON schema."),
        LazyCommand("score", "Score trajectories by oteval.yaml; check its gates."),
        LazyCommand("scores", "List the current scores.", "score"),
        LazyCommand("report", "Write a report on runs and scores: HTML or Markdown."),
        LazyCommand("reference", "Add, list and check reference trajectories."),
        LazyCommand("rescore", "Run new evaluators on stored runs; list the changes."),
        LazyCommand("judge", "Measure agreement between judges and people."),
        LazyCommand("learn", "Find the rule that agrees best with labels.", "init"),
    ),
    "Experiment": (
        LazyCommand("dataset", "Add, list and show datasets."),
        LazyCommand("eval", "Run an experiment on examples or stored runs.", "experiments"),
        LazyCommand("whatif", "Repeat recorded sessions with a change: what broke?"),
        LazyCommand("compare", "Compare the scores of two experiments by statistics."),
        LazyCommand("pairwise", "Ask which experiment has the better outputs.", "compare"),
        LazyCommand("experiments", "List the stored experiments and comparisons."),
    ),
    "Record": (
        LazyCommand("run", "Run a program, and record its agents."),
        LazyCommand("doctor", "Check that agents in this environment are recorded."),
        LazyCommand(
            "replay",
            "Replay recorded sessions: test agents without a model.",
            *("replay", "replay_test", "whatif", "replay_serve", "replay_cassette"),
        ),
    ),
    "Serve": (
        LazyCommand("serve", "Receive traces over OTLP; store and score them."),
        LazyCommand(
            "monitor",
            "Watch scores and runs; alert when behaviour changes.",
            *("monitor", "monitor_compare", "monitor_past"),
        ),
        LazyCommand("mcp", "Serve runs and scores over MCP to coding agents."),
        LazyCommand("push", "Write scores to the backend that has the traces.", "backends"),
        LazyCommand("resend", "Send requests again that an endpoint refused."),
    ),
    "Maintain": (
        LazyCommand("status", "Show how much the database contains, and its size.", "maintain"),
        LazyCommand("export", "Export spans, trajectories and scores to other tools."),
        LazyCommand("archive", "Move old spans and log records to Parquet.", "maintain"),
        LazyCommand("compact", "Reclaim disk space from deleted rows.", "maintain"),
        LazyCommand("backup", "Copy the database to a file while it is in use.", "maintain"),
        LazyCommand("delete", "Delete traces with everything derived from them."),
        LazyCommand("audit", "List deletions, and changes made on the pages.", "delete"),
    ),
}
"""The commands, in the order of their first use by people."""
