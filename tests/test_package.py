from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

import oteval

from .make import ROOT

HEAVY = (
    *("pyarrow", "duckdb", "pydantic", "click", "rich", "yaml", "langchain_core", "grpc", "re2"),
    *("numpy", "opentelemetry.sdk", "prometheus_client", "requests", "starlette", "uvicorn"),
)


def test_all_names_are_importable():
    """Every public name can be imported, and is the same object as in its home module."""
    for name in oteval.__all__:
        value = getattr(oteval, name)
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and module.startswith("oteval."):
            assert getattr(import_module(module), name) is value


def test_the_stub_lists_the_public_names_once():
    """`__all__` (with the version), `dir` and the stub for type checkers hold the same names.

    A star import leaves out `open`, which is Python's own name.
    """
    stub = ast.parse((ROOT / "oteval/__init__.pyi").read_text("utf-8"))
    imports = [node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    names = sorted(alias.name for node in imports for alias in node.names)

    assert sorted([*names, "__version__"]) == sorted([*oteval.__all__, "open"])
    assert names == sorted(set(dir(oteval)) - {"__version__"})
    assert len(names) == len(set(names))


def test_evaluate_is_a_function_whatever_is_imported_first():
    """No package shares the name of `oteval.evaluate`."""
    code = "import oteval.evaluators, oteval; assert oteval.evaluate.__name__ == 'evaluate'"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True).returncode == 0


def test_no_public_name_of_a_room_is_another_module_of_it():
    """A module that is imported replaces the attribute of its room, unless the name is its own."""
    shadowed = [
        (stub.parent.name, alias.name, node.module)
        for stub in sorted((ROOT / "oteval").rglob("__init__.pyi"))
        for node in ast.walk(ast.parse(stub.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.name != node.module and stub.with_name(f"{alias.name}.py").exists()
    ]

    assert not shadowed


def test_a_name_that_is_not_there_is_an_attribute_error():
    """Late loading does not hide a misspelled name."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = oteval.no_such_name


def loaded(code: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    code += "; import sys; print(' '.join(sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import oteval", HEAVY),
        ("import oteval.evaluators", (*HEAVY, "asyncio")),
        ("from oteval import create_trajectory_match_evaluator", HEAVY),
        ("from oteval import Trajectory, InputError", HEAVY),
    ],
)
def test_importing_is_cheap(code: str, heavy: tuple[str, ...]):
    """Importing the package, or a matcher from it, loads nothing that is slow to import."""
    assert not loaded(code) & set(heavy)


def test_every_extra_that_is_named_brings_something():
    """Messages and pages name no extra that is not there, or that the core has made empty."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    useful = {name for name, packages in extras.items() if packages}
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("collector/**/*")]
    files = [*ROOT.glob("oteval/**/*.py"), *(path for path in pages if path.is_file())]

    for path in files:
        for names in re.findall(
            r"\boteval\[([a-z][a-z, -]*)\]", path.read_text("utf-8", "replace")
        ):
            unknown = {name.strip() for name in names.split(",")} - useful
            assert not unknown, path
