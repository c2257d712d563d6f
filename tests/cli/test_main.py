from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from oteval import __version__
from oteval.cli import cli
from oteval.cli.commands import SECTIONS
from oteval.store import Store

from ..make import ROOT, capture
from .conftest import Run


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of all commands."""
    for name in group.commands:
        yield (*names, name)
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


def loaded(name: str) -> click.Command:
    """Return a command, imported."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def program(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line with `oteval` as the command."""
    script = f'oteval() {{ "{sys.executable}" -m oteval "$@"; }}\nset -o pipefail\n{line}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OTEVAL_DB", None)
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("names", [(), *commands(cli)], ids=" ".join)
def test_every_command_has_help(oteval: Run, names: tuple[str, ...]):
    """Both options show it, and every option of the command has a text."""
    done = oteval(*names, "--help")

    assert done.status == 0
    assert done == oteval(*names, "-h")
    assert done.out.startswith("Usage: ")
    command: click.Command = cli
    for name in names:
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), name)
        assert below is not None
        command = below
    assert command.help
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


def test_the_list_of_commands_has_the_summaries_of_their_helps():
    """The list is available without importing the commands, and equals the imported list."""
    unused = {
        command.name: command.get_short_help_str(200)
        for section in SECTIONS.values()
        for command in section
    }

    used = {
        name: command.get_short_help_str(200)
        for name in cli.commands
        if (command := cli.get_command(click.Context(cli), name))
    }

    assert used == unused


def test_the_help_is_one_screen_of_whole_lines(oteval: Run, monkeypatch: pytest.MonkeyPatch):
    """At 80 columns, every command has one line, in its section, and every option is named."""
    monkeypatch.setenv("COLUMNS", "80")

    lines = oteval("--help").out.splitlines()

    assert 24 <= len(lines) <= 45
    assert max(map(len, lines)) <= 80
    names = [line[12:24].rstrip() for line in lines if re.match(r".{12}[a-z]+ +[A-Z]", line)]
    assert names == list(cli.commands)
    assert not any("..." in line for line in lines[1:])
    for option in cli.params:
        assert any(option.opts[0] in line for line in lines)


@pytest.mark.parametrize(
    "name", [name for name in cli.commands if isinstance(loaded(name), click.Group)]
)
def test_a_group_lists_its_commands_with_whole_lines(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, name: str
):
    """At 80 columns, every subcommand has one line, in the order of their declaration."""
    monkeypatch.setenv("COLUMNS", "80")
    group = loaded(name)
    assert isinstance(group, click.Group)

    rows = oteval(name, "--help").out.partition("Commands:\n")[2].splitlines()

    assert [row.split()[0] for row in rows] == [
        name for name, command in group.commands.items() if not command.hidden
    ]
    assert not any("..." in row for row in rows)


@pytest.mark.parametrize(
    "arguments",
    ["--version", "--help", "run --help", "run --quiet -- true", "doctor --no-send"],
)
def test_a_command_without_a_database_starts_without_its_libraries(tmp_path: Path, arguments: str):
    """Slow modules are imported only by the commands that need them."""
    script = """
import sys
import oteval.cli
try:
    oteval.cli.main()
finally:
    heavy = {"duckdb", "numpy", "openai", "pyarrow", "pydantic", "yaml"} & set(sys.modules)
    print("imported:", *sorted(heavy), file=sys.stderr)
"""

    done = subprocess.run(
        [sys.executable, "-c", script, *arguments.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.splitlines()[-1] == "imported:", done.stderr


def test_the_version_is_the_packages(oteval: Run):
    """--version prints the name and the version."""
    assert oteval("--version").out == f"oteval {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such-command"], "No such command 'no-such-command'"),
        (["trajectories", "--no-such-option"], "No such option"),
        (["trajectories", "--limit", "none"], "'none' is not a valid integer range"),
        (["ingest"], "Missing argument 'PATH...'"),
        (["show"], "Missing argument 'ID...'"),
    ],
)
def test_wrong_usage_is_status_2(oteval: Run, arguments: list[str], reason: str):
    """The usage and the error go to standard error."""
    done = oteval(*arguments)

    assert (done.status, done.out) == (2, "")
    assert reason in done.err


def test_errors_are_one_line_without_a_traceback(oteval: Run):
    """An expected error is a line; --debug shows where it came from."""
    plain, debugged = oteval("trajectories"), oteval("--debug", "trajectories")

    line = "oteval: oteval.duckdb: no such database; load traces first: oteval ingest FILE\n"
    assert (plain.status, plain.err) == (2, line)
    assert debugged.status == 2
    assert debugged.err.startswith("Traceback (most recent call last):")
    assert debugged.err.endswith(line)


def test_an_unexpected_error_is_one_line_too(oteval: Run, monkeypatch: pytest.MonkeyPatch):
    """An unexpected error is one line, with the option that shows more."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("over\nzero \x1b[31m")

    monkeypatch.setattr("oteval.cli.view.open_store", broken)

    done = oteval("trajectories")

    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "oteval: ZeroDivisionError: over zero \\x1b[31m (oteval --debug shows where)\n"
    )


def test_ctrl_c_is_one_line(oteval: Run, monkeypatch: pytest.MonkeyPatch):
    """An interrupted command prints one line; its exit status is that of SIGINT."""

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oteval.cli.view.open_store", stopped)

    done = oteval("trajectories")

    assert done.status == 130
    assert done.err.strip() == "oteval: interrupted; finished work is kept"


def test_the_demo_evaluates_its_traces(oteval: Run, tmp_path: Path):
    """The demo shows a pass, a fail with its reason and a run that is not evaluated."""
    done = oteval("demo")

    assert (done.status, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    verdicts = {row[2] for row in rows if row[1:2] in (["refund-calls"], ["refund-effects"])}
    assert verdicts == {"pass", "fail", "not"}
    text = " ".join(done.out.split())
    assert "extra 1 call: refund_order" in text
    assert "argument 'amount' is 420.0 in the output" in text
    assert "content_not_captured" in done.out
    assert "gate refund-calls: failed" in done.out
    assert (tmp_path / "oteval-demo" / "demo.duckdb").exists()


def test_the_demo_can_be_repeated_and_continued(oteval: Run):
    """A second run prints the same, and the commands that it suggests work."""
    first, second = oteval("demo", "--dir", "d"), oteval("demo", "--dir", "d")

    assert first == second
    assert oteval("score", "-c", "d/oteval.yaml", "--db", "d/demo.duckdb").status == 1
    assert len(oteval("trajectories", "--db", "d/demo.duckdb", "--json").rows) == 5
    assert oteval("variants", "--db", "d/demo.duckdb").status == 0


def test_the_demo_names_a_folder_it_cannot_write(oteval: Run, tmp_path: Path):
    """A file in the way is an error that names the option."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "traces").write_text("")

    done = oteval("demo", "--dir", "d")

    assert done.status == 2
    assert done.err == "oteval: d: cannot be written: File exists; give --dir\n"


@pytest.mark.slow
def test_the_program_ends_with_its_status(oteval: Run, tmp_path: Path):
    """As a separate process, the command exits with 0, 1, 2 and 3; gates that passed are 0."""
    assert oteval("demo", "--dir", "d").status == 0
    (right,) = (tmp_path / "d" / "traces").glob("1-*.json")

    done = program(
        tmp_path,
        "oteval --version >/dev/null 2>&1; echo $?\n"
        "oteval score -c d/oteval.yaml d/traces/*.json >/dev/null 2>&1; echo $?\n"
        "oteval score -c none.yaml 2>/dev/null; echo $?\n"
        "oteval score -c d/oteval.yaml d/traces/5-*.json >/dev/null 2>&1; echo $?\n",
    )

    assert done.stdout.split() == ["0", "1", "2", "3"]
    assert done.stderr == ""
    assert oteval("score", "-c", "d/oteval.yaml", right).status == 0


def test_a_broken_pipe_is_quiet(tmp_path: Path):
    """A reader that stops early ends the command silently with status 141."""
    with Store(tmp_path / "oteval.duckdb") as store:
        store.spans.write(*capture("langgraph_openinference"))

    done = program(tmp_path, "oteval trajectories --json | true; echo ${PIPESTATUS[0]}")

    assert done.stdout == "141\n"
    assert done.stderr == ""


def test_output_that_the_terminal_cannot_show_does_not_end_the_command(tmp_path: Path):
    """With an encoding that lacks the characters, they are written as escapes."""
    done = program(tmp_path, "PYTHONIOENCODING=ascii oteval demo --dir d")

    assert done.returncode == 0
    assert "\\u2192 get_order(" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_a_locked_database_names_its_process(tmp_path: Path):
    """The line names the process that holds the file, and the remedy."""
    with Store(tmp_path / "oteval.duckdb"):
        done = program(tmp_path, "oteval trajectories")

    assert done.returncode == 2
    assert f"oteval: oteval.duckdb: process {os.getpid()} (" in done.stderr
    assert done.stderr.endswith("holds it; stop that process, or give another --db\n")
