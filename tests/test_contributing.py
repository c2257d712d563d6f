"""The worked examples of examples/extending.md, followed to the letter in a copy of everything."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .make import ROOT

FILES = re.findall(
    r"^`(\S+\.py)`:\n\n```python\n(.*?)^```",
    (ROOT / "examples" / "extending.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the repository that shares the tests' data."""
    ignored = shutil.ignore_patterns("data", "*.pyc.*")  # the latter: temporary files
    for folder in ("oteval", "tests", "docs", "scripts", "collector", "benchmarks", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    files = ("pyproject.toml", "LICENSE", "action.yml")
    for path in (*ROOT.glob("*.md"), *(ROOT / name for name in files)):
        shutil.copy(path, tmp_path)
    return tmp_path


def run(folder: Path, *command: str) -> None:
    """Run a module of this environment in a folder; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_imports_of_the_examples_exist(name: str, text: str) -> None:
    """A module that moves takes the page with it."""
    package = ".".join(Path(name).parent.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.slow
def test_an_evaluator_and_a_dialect_are_one_file_each(copy: Path) -> None:
    """The page's files pass their tests and the linter; `make docs` does the rest."""
    names = [name for name, _ in FILES]
    assert len(names) == 4
    for name, text in FILES:
        assert not (copy / name).exists()
        (copy / name).write_text(text, "utf-8")

    for script in ("make_cli_docs", "make_config_docs", "make_api_docs", "make_architecture"):
        run(copy, f"scripts.{script}")
    tests = ["tests/test_docs.py", "tests/test_architecture.py", *(n for n in names if "test" in n)]
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    run(copy, "ruff", "check", *names)
    run(copy, "ruff", "format", "--check", *names)
