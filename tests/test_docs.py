"""The documentation agrees with the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

import oteval
from oteval.cli import cli
from oteval.evaluators.registry import evaluator_types
from oteval.model.columns import COLUMNS, FIELDS
from oteval.reconstruct import CODES
from oteval.scoring.config import load_tokens, parse_config
from scripts import make_api_docs, make_config_docs, make_replay_table, make_site
from scripts.documentation import (
    DECISIONS,
    DOCS,
    GUIDES,
    PAGES,
    ROOT,
    anchors,
    blocks,
    links,
    name_of,
    navigation,
    outside_navigation,
)
from scripts.make_cli_docs import commands, page


def test_the_page_of_commands_is_current() -> None:
    """docs/reference/cli.md has the current help texts; scripts/make_cli_docs.py writes it."""
    assert (DOCS / "reference" / "cli.md").read_text() == page()


def test_the_page_of_the_configuration_is_current() -> None:
    """It has every key of oteval.yaml, with its default and meaning."""
    text = make_config_docs.PAGE.read_text("utf-8")

    assert text == make_config_docs.page(), "run python -m scripts.make_config_docs"
    assert not make_config_docs.undocumented()
    assert set(evaluator_types()) <= set(re.findall(r"^### (\w+)$", text, re.MULTILINE))


def test_the_page_of_the_python_api_is_current() -> None:
    """docs/reference/api.md has every public name, as its docstring describes it."""
    text = make_api_docs.PAGE.read_text("utf-8")

    assert text == make_api_docs.page(), "run python -m scripts.make_api_docs"
    assert not [name for name in oteval.__all__ if name[0] != "_" and name not in text]


def test_the_table_of_frameworks_is_current() -> None:
    """It has the outcomes of the agents, in none of which a tool runs unasked."""
    text = make_replay_table.PAGE.read_text("utf-8")

    assert text == make_replay_table.page(), "run python -m scripts.make_replay_table"
    assert "| runs |" not in make_replay_table.table()


def test_the_page_of_exit_statuses_has_every_command_that_tells_its_own() -> None:
    """A command whose help tells statuses has a row, so that the page can be relied on."""
    text = (DOCS / "reference" / "exit-statuses.md").read_text("utf-8")

    missing = [
        path
        for path, command in commands(cli, "oteval")
        if re.search(r"exit\s+status", command.help or "", re.IGNORECASE)
        and not re.search(rf"`{path.removeprefix('oteval ')}\b", text)
    ]

    assert missing == []


def test_the_page_of_gaps_lists_every_code() -> None:
    """docs/reference/gaps.md has a row for each gap that can occur, and for no other."""
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "gaps.md").read_text(), re.MULTILINE)

    assert sorted(rows) == sorted(CODES)


def test_the_page_of_filters_has_every_column() -> None:
    """docs/reference/filters.md has the columns that ``--where`` knows, with their meanings."""
    text = (DOCS / "reference" / "filters.md").read_text().partition("| field | meaning |")[2]

    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE) == [
        (name, COLUMNS[name].meaning) for name in FIELDS
    ]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    """Every relative link of a page is a file, and its anchor a heading of that page."""
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links(path)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]

    assert not missing


def test_every_page_is_in_the_navigation_once() -> None:
    """The site and the page of contents show every page; decisions have a page of contents."""
    contents = {name_of(target) for target, _ in links(DOCS / "README.md")}
    decisions = {target for target, _ in links(DECISIONS / "README.md")}

    assert outside_navigation() == set()
    assert set(navigation()) <= contents | {"README.md", "docs/README.md"}
    assert decisions == {*DECISIONS.glob("*.md")} - {DECISIONS / "README.md"}


def test_the_site_has_the_pages_and_what_they_link_to(tmp_path: Path) -> None:
    """`make site` builds it from a folder with the pages, pictures and files of the repository."""
    make_site.gather(tmp_path)

    source = tmp_path / "site-source"
    assert (tmp_path / "zensical.toml").is_file()
    assert all((source / name).is_file() for name in navigation())
    assert (source / "docs/pictures/run.png").is_file()
    assert (source / "collector/load-balancing.yaml").is_file()


@pytest.mark.parametrize(
    "folder", ["oteval", "scripts", "tests", "benchmarks", "collector", "examples"]
)
def test_pages_that_code_names_exist(folder: str) -> None:
    """Messages, docstrings and comments that say "see docs/..." name a page that is there."""
    missing = {
        f"{name_of(path)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        if (ROOT / "tests" / "data") not in path.parents
        for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text("utf-8"))
        if not (ROOT / name).exists()
    }

    assert not missing


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_configurations_in_pages_are_valid(path: Path, tmp_path: Path) -> None:
    """Each oteval.yaml and file of tokens is valid; a workflow uses the inputs of the Action."""
    for text in blocks(path, "yaml"):
        if text.startswith("tokens:"):
            tokens = tmp_path / "tokens.yaml"
            tokens.write_text(text)
            tokens.chmod(0o600)
            assert load_tokens(tokens)
        elif text.startswith("on:"):
            steps = yaml.safe_load(text)["jobs"]["agent"]["steps"]
            action = yaml.safe_load((ROOT / "action.yml").read_text())
            assert set(steps[-1]["with"]) <= set(action["inputs"])
        else:
            config = parse_config(text)
            assert config.evaluators or config.monitors or config.tools or config.conversation


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_commands_in_pages_exist(path: Path) -> None:
    """Every `oteval` command in a block of a shell has options that the command has."""
    unknown = []
    for text in blocks(path, "", "console", "sh", "bash"):
        for line in re.findall(r"^(?:\$ )?oteval ([a-z].*)$", text.replace("\\\n", " "), re.M):
            words = shlex.split(line.partition(" -- ")[0], comments=True)
            unknown += [f"{line}: {word}" for word in _unknown_words(words)]

    assert not unknown


def _unknown_words(words: list[str]) -> list[str]:
    """Return the first word if it is no command, else the options that the command lacks."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            return words[:1]
        command, words = below, words[1:]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return sorted(given - options - {"--help"})


def test_the_readme_begins_with_the_two_commands() -> None:
    """`make demo` and `make test` are the first two commands of the README."""
    commands = re.findall(
        r"^(?:\$ )?((?:make|pip|oteval) \S+)", (ROOT / "README.md").read_text(), re.M
    )

    assert commands[:2] == ["make demo", "make test"]
