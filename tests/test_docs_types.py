"""Type checkers accept the Python code in the documentation."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.documentation import GUIDES, ROOT, blocks, name_of


def module_of(page: Path) -> str:
    """Return the code of a page as one module; names that the page leaves open are `Any`."""
    code = "\n\n".join(blocks(page, "python"))
    known, used = set(dir(builtins)), set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                known.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                known.add(name)
            case ast.ClassDef(name=name):
                known.add(name)
            case ast.alias(name=name, asname=alias):
                known.add(alias or name.split(".")[0])
    open_names = "".join(f"{name}: Any = None\n" for name in sorted(used - known - {"Any"}))
    return f"from typing import Any\n{open_names}\n{code}"


@pytest.mark.slow
def test_mypy_accepts_every_documented_call(tmp_path: Path) -> None:
    """The examples of all pages, checked against the signatures of the package.

    Tutorials are not among them: their programs, which have no types, run in other tests.
    """
    for page in GUIDES:
        if page.parent.name == "tutorials":
            continue
        name = re.sub(r"\W", "_", name_of(page).removesuffix(".md").lower())
        (tmp_path / f"page_{name}.py").write_text(module_of(page), "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--ignore-missing-imports"]
    done = subprocess.run(
        [*command, "--check-untyped-defs", "--allow-redefinition", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
