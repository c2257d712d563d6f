"""Classes of the agent's process by their recorded names, for the values of a recording.

A recording is data from disk. A class is taken from a module that is loaded, or that is the agent's
own and can be imported. It is looked up without calling code, must have the recorded name, and must
not act when its instances end.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from ..record import UnrestorableValue, class_name, is_agent_file, main_module

__all__ = ["agent_class"]


def agent_class(name: str) -> type:
    """Find a class of the agent's process by its recorded name.

    Args:
        name: The name as ``module:Class``.

    Raises:
        UnrestorableValue: There is none, or it is not safe to build.
    """
    module_name, _, path = name.partition(":")
    if "<locals>" in path:
        raise UnrestorableValue(f"{name}: the class is defined inside a function")
    attribute: Any = _module(module_name, name)
    for part in path.partition("[")[0].split("."):
        attribute = vars(attribute).get(part) if hasattr(attribute, "__dict__") else None
    if "[" in path and isinstance(attribute, type):
        attribute = _parametrised(attribute, name)
    if not isinstance(attribute, type) or class_name(attribute) != name:
        raise UnrestorableValue(f"{name}: the module has no such class")
    if any("__del__" in vars(base) for base in attribute.__mro__):
        raise UnrestorableValue(f"{name}: instances of this class act when they end")
    return attribute


def _module(module_name: str, name: str) -> ModuleType:
    """The loaded module of a name, or the agent's own module, which is imported."""
    if module_name == main_module() and "__main__" in sys.modules:
        return sys.modules["__main__"]
    module = sys.modules.get(module_name)
    if module is None and _is_agents(module_name):
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            text = f"{name}: the module cannot be imported: {type(error).__name__}: {error}"
            raise UnrestorableValue(text) from error
    if module is None:
        raise UnrestorableValue(f"{name}: the agent has not imported this module")
    return module


def _is_agents(module_name: str) -> bool:
    """Whether the file of a module, or of its package, is part of the agent's code."""
    spec = PathFinder.find_spec(module_name.partition(".")[0])
    if spec is None:
        return False
    files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(files) and all(is_agent_file(file) for file in files)


def _parametrised(generic: type, name: str) -> type | None:
    """A class such as ``Page[Order]``, which a generic model has for its parameters."""
    subclasses: list[type] = generic.__subclasses__()
    return next((subclass for subclass in subclasses if class_name(subclass) == name), None)
