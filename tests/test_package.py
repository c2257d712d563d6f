from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import oteval

from .make import ROOT

HEAVY = ("pyarrow", "duckdb", "pydantic", "click", "rich", "yaml", "langchain_core", "grpc")


def test_all_names_are_importable():
    """Every public name is there, and is what its home module calls so."""
    for name in oteval.__all__:
        value = getattr(oteval, name)
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and module.startswith("oteval."):
            assert getattr(import_module(module), name) is value


def test_all_is_what_there_is():
    """`__all__` is sorted, repeats nothing and equals what `dir` shows."""
    assert sorted(set(oteval.__all__)) == sorted(oteval.__all__) == dir(oteval)


def test_all_is_what_is_loaded_when_asked_for():
    """The names that are loaded late, with the version, are the public ones."""
    late = {name for names in oteval._HOMES.values() for name in names}

    assert late | {"__version__"} == set(oteval.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    """Late loading does not hide a misspelled name."""
    with pytest.raises(AttributeError, match="module 'oteval' has no attribute 'no_such_name'"):
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
        ("import oteval.evaluate", (*HEAVY, "asyncio")),
        ("from oteval import create_trajectory_match_evaluator", HEAVY),
        ("from oteval import Trajectory, InputError", HEAVY),
    ],
)
def test_importing_is_cheap(code: str, heavy: tuple[str, ...]):
    """Importing the package, or a matcher from it, loads nothing that is slow to import."""
    assert not loaded(code) & set(heavy)
