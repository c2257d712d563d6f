"""Start oteval in this Python process, as the environment variable OTEVAL_BOOTSTRAP specifies.

Python imports this file when it starts; see ``__init__.py`` in the same folder. It runs in any
interpreter from 3.7, also in environments without oteval. It must never break a program, nor delay
it more than needed: it imports only the standard library, writes nothing to standard output, and
raises nothing.
"""

# Old interpreters run this file: no syntax and nothing of the library is newer than Python 3.7.
from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

_VARIABLE = "OTEVAL_BOOTSTRAP"
_REPORTED = "OTEVAL_BOOTSTRAP_SAID"
_OLDEST = (3, 11)
_TRACKER = "from multiprocessing.resource_tracker import main"


def _run_shadowed() -> None:
    """Run the next `sitecustomize` of the path, which would run if this file were absent."""
    here = os.path.realpath(__file__)
    path = [entry for entry in sys.path if os.path.realpath(_file_in(entry)) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _file_in(folder: str) -> str:
    return f"{folder or os.curdir}{os.sep}sitecustomize.py"


def _is_helper() -> bool:
    """Whether the process only serves others, and runs no program of the user."""
    argv = getattr(sys, "orig_argv", [])
    for number, option in enumerate(argv[1:-1], 2):
        value = argv[number]
        if option == "-c":
            return bool(value.startswith(_TRACKER))
        if option == "-m":
            return bool(value.startswith("oteval."))
        if not option.startswith("-"):
            break
    return False


def _problem(start: dict[str, Any]) -> str:
    """Start the function, and return why that failed, or an empty text."""
    if sys.version_info[:2] < _OLDEST:
        current, oldest = (
            ".".join(map(str, version[:2])) for version in (sys.version_info, _OLDEST)
        )
        return f"this is Python {current}, and oteval needs {oldest} or newer"
    install = f"run {sys.executable} -m pip install oteval"
    module, _, name = start["entry"].partition(":")
    try:
        getattr(import_module(module), name)(start["settings"])
    except ModuleNotFoundError as error:
        if error.name == "oteval":
            return f"oteval is not installed in its environment; {install}"
        return f"{error}; {install}"
    except Exception as error:
        # The messages of oteval's errors are made for people.
        is_ours = type(error).__module__ == "oteval.base.errors"
        return str(error) if is_ours else f"{type(error).__name__}: {error}"
    return ""


def _report(path: str, problem: str) -> None:
    """Append this process's report to the file of reports."""
    argv = [argument[:200] for argument in getattr(sys, "orig_argv", [sys.executable])[:20]]
    line = json.dumps([os.getpid(), sys.executable, argv, problem]) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _warn(problem: str) -> None:
    """Write a line to standard error, once among this process and its children."""
    if sys.stderr is not None and _REPORTED not in os.environ:
        os.environ[_REPORTED] = "1"
        sys.stderr.write(f"oteval: off in process {os.getpid()}: {problem}\n")


def _bootstrap() -> None:
    start: dict[str, Any] = {}
    try:
        start.update(json.loads(os.environ[_VARIABLE]))
        if _is_helper():
            return
        problem = _problem(start)
        if start.get("reports"):
            _report(start["reports"], problem)
        elif problem:
            _warn(problem)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        _warn(problem)
    if problem and start.get("required"):
        _warn(problem)
        # An exception would not stop the interpreter here.
        os._exit(2)


try:
    _run_shadowed()
finally:
    if _VARIABLE in os.environ:
        _bootstrap()
