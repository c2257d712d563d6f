"""Call a function when a module has been imported, without importing it.

A hook is a finder on ``sys.meta_path``. It lets the other finders find the module, and changes the
loader of this one import so that the function is called once the module has run. `ImportHook` does
so for modules whose names are known; for loaded modules it calls the function at once.
`ModuleWatch` does so for all modules with certain code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

__all__ = ["ImportHook", "ModuleWatch"]


class ImportHook:
    """Calls a function for each of some modules: whenever it is imported, or if already loaded.

    Args:
        names: The full names of the modules.
        imported: The function. Exceptions that it raises end the import.
    """

    def __init__(self, names: Collection[str], imported: Callable[[ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._imported = imported
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def install(self) -> None:
        """Call the function for loaded modules now, and for others when they are imported."""
        with self._lock:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
        for name in sorted(self._names):
            module = sys.modules.get(name)
            if module is None:
                continue
            # Another thread may be importing it now: importing it here waits for that.
            if getattr(module.__spec__, "_initializing", False):
                __import__(name)
            if name not in self._done:
                self._call(module)

    def remove(self) -> None:
        """Watch imports no longer."""
        with self._lock:
            if self in sys.meta_path:
                sys.meta_path.remove(self)

    def _call(self, module: ModuleType) -> None:
        self._done.add(module.__name__)
        self._imported(module)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a watched module as the other finders return it."""
        if name not in self._names:
            return None
        spec = _later_spec(self, name, path, target)
        if spec is not None:
            _report(spec, self._call)
        return spec


class ModuleWatch:
    """Calls a function after each import of a module that is written in Python and is watched.

    Args:
        is_watched: Whether a module is watched, by its code.
        imported: The function. Exceptions that it raises end the import.
    """

    def __init__(
        self,
        is_watched: Callable[[CodeType], bool],
        imported: Callable[[ModuleType], None],
    ) -> None:
        self._is_watched = is_watched
        self._imported = imported

    def install(self) -> None:
        """Watch the imports from now on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Watch imports no longer."""
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module with watched code as the other finders return it."""
        spec = _later_spec(self, name, path, target)
        # A loader of another type may load several modules.
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        try:
            code = spec.loader.get_code(name)
        except (ImportError, OSError, SyntaxError, ValueError):
            return None
        if code is None or not self._is_watched(code):
            return None
        _report(spec, self._imported)
        return spec


def _later_spec(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """The spec that the finders after a hook find.

    Another hook for the same module would call this hook again.
    """
    finders = list(sys.meta_path)
    for later_finder in finders[finders.index(finder) + 1 if finder in finders else 0 :]:
        find = getattr(later_finder, "find_spec", None)
        spec: ModuleSpec | None = (
            find(name, path, target) if later_finder is not finder and find else None
        )
        if spec is not None:
            return spec
    return None


def _report(spec: ModuleSpec, imported: Callable[[ModuleType], None]) -> None:
    """Let the loader of a spec report the module after it has run."""
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if module.__name__ == spec.name:
            vars(loader).pop("exec_module", None)
            imported(module)

    loader.exec_module = exec_module
