"""A project of the user's: files of tests, run by a pytest of their own with the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ...make import ROOT

__all__ = ["INI", "Project", "entry_points", "new_project"]


def entry_points(folder: Path) -> Path:
    """Return a folder that makes pytest find the plugin, as an installed oteval would."""
    site = folder / "site"
    info = site / "oteval-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oteval\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [f"{name} = {home}" for name, home in project["entry-points"]["pytest11"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    return site


INI = """
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


# Plugins of other packages that take longer to import than pytest and oteval together.
SLOW_PLUGINS = ("langsmith_plugin", "hypothesispytest", "anyio")


class Project:
    """A folder of tests.

    Attributes:
        path: The folder.
        site: Where the plugin is found.
        blocked: The installed plugins that pytest does not import.
        status: The exit status of the last run.
    """

    blocked: tuple[str, ...] = SLOW_PLUGINS

    def __init__(self, path: Path, site: Path) -> None:
        self.path, self.site = path, site
        self.status = -1

    def write(self, **files: str) -> None:
        """Write modules by their name."""
        for name, text in files.items():
            (self.path / f"{name}.py").write_text(text)

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """Run pytest with the plugin, and return what it prints."""
        places = [str(self.site), str(ROOT)]
        quiet = {"LANGSMITH_TRACING": "false", "COLUMNS": "200", "PY_COLORS": "0"}
        without = [f"-pno:{name}" for name in ("cacheprovider", *self.blocked)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *without, "-W", "error", *args],
            cwd=self.path,
            env={**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(places), **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.status = done.returncode
        return done.stdout + done.stderr


def new_project(folder: Path) -> Project:
    """Return an empty project in a folder."""
    path = folder / "project"
    path.mkdir()
    (path / "pytest.ini").write_text(INI)
    return Project(path, entry_points(folder))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return an empty project."""
    return new_project(tmp_path)


@pytest.fixture
def passes(project: Project) -> Callable[..., str]:
    """Return a function that runs one test module, which must pass."""

    def run(text: str, *args: str) -> str:
        project.write(test_it=text)
        printed = project.run(*args)
        assert project.status == 0, printed
        return printed

    return run
