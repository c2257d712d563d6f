"""The files and modules of an agent: all except Python's library, installed packages and oteval."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["function_line", "installed_package", "is_agent_file", "is_agent_module", "shown_file"]


@functools.cache
def is_agent_file(file: str) -> bool:
    """Whether a file is part of the agent's code."""
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython", "<string"))
    path = str(Path(file).resolve())
    parts = Path(path).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return False
    return not path.startswith(_foreign_folders())


@functools.cache
def installed_package(file: str) -> str:
    """The name of the installed package that a file belongs to, or ""."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            index = len(parts) - parts[::-1].index(folder)
            return parts[index].removesuffix(".py") if index < len(parts) else ""
    return ""


@functools.cache
def _foreign_folders() -> tuple[str, ...]:
    """The folders of Python's library and of oteval, with a separator at the end."""
    names = ("stdlib", "platstdlib", "scripts")
    folders = [Path(sysconfig.get_path(name)).resolve() for name in names]
    folders += [Path(os.__file__).resolve().parent, Path(__file__).resolve().parents[1]]
    return tuple(f"{folder}{os.sep}" for folder in folders)


def is_agent_module(name: str) -> bool:
    """Whether a loaded module is part of the agent's code.

    Args:
        name: Its name. The main module of a program without a file is part of the agent's code.
    """
    module = sys.modules.get(name)
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return is_agent_file(file) if file else name == "__main__"


def shown_file(file: str) -> str:
    """A file's path for messages: relative if it is below the current directory."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return file


def function_line(function: Callable[..., Any]) -> str:
    """The definition of a function as ``file:line in function``, or ""."""
    while isinstance(function, functools.partial):
        function = function.func
    called = inspect.unwrap(function)
    code = getattr(called, "__code__", None) or getattr(type(called).__call__, "__code__", None)
    if code is None:
        return ""
    return f"{shown_file(code.co_filename)}:{code.co_firstlineno} in {code.co_qualname}"
