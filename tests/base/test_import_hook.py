"""A function is called when a module has been imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from oteval.base.import_hook import ImportHook


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package that can be imported, and is forgotten after the test."""
    folder = tmp_path / "watched_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n")
    (folder / "part.py").write_text("from . import value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return "watched_package"


def test_a_module_is_complete_when_the_function_is_called(package: str) -> None:
    """It is called again when a module runs again, but not for another installation."""
    seen: list[tuple[str, int]] = []
    hook = ImportHook([package, f"{package}.part"], lambda m: seen.append((m.__name__, m.value)))

    hook.install()
    assert seen == []
    module = importlib.import_module(f"{package}.part")
    hook.install()

    assert seen == [(package, 1), (f"{package}.part", 1)]
    assert "value" in inspect.getsource(module)
    importlib.reload(module)
    assert len(seen) == 3


def test_a_loaded_module_calls_the_function_at_once(package: str) -> None:
    """A program may import the module before the hook is installed."""
    importlib.import_module(package)
    seen: list[ModuleType] = []

    ImportHook([package], seen.append).install()

    assert [module.__name__ for module in seen] == [package]


def test_a_removed_hook_watches_no_more(package: str) -> None:
    """Imports after that are those of Python alone."""
    seen: list[ModuleType] = []
    hook = ImportHook([package], seen.append)
    hook.install()

    hook.remove()
    importlib.import_module(package)

    assert seen == []
    assert hook not in sys.meta_path


def test_two_hooks_watch_the_same_module(package: str) -> None:
    """The recorder and the discovery of instrumentations both wait for httpx."""
    seen: list[str] = []
    for name in ("first", "second"):
        ImportHook([package], lambda _module, name=name: seen.append(name)).install()

    importlib.import_module(package)

    assert sorted(seen) == ["first", "second"]
