"""Evaluators that are functions of the user's: found by name, called with what they ask for."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ..errors import ConfigError
from ..runner import call

__all__ = ["call_with", "code_version", "load_function"]


def load_function(reference: str) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names.

    Raises:
        ConfigError: The module cannot be imported, or has no such function.
    """
    module_name, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"call {reference!r}: cannot import {module_name}: {reason}") from error
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise ConfigError(f"call {reference!r}: {module_name} has no function {path!r}")
    function: Callable[..., Any] = found
    return function


def code_version(function: Callable[..., Any]) -> str:
    """Return a hash of a function's source, so that changed code is a new version.

    Of an object that can be called it is its class's; what has no source goes by its name.
    """
    for place in (function, type(function)):
        with suppress(OSError, TypeError):
            return _digest(inspect.getsource(place))
    return _digest(getattr(function, "__qualname__", type(function).__qualname__))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def call_with(
    function: Callable[..., Any], available: Mapping[str, Any], timeout: float | None = None
) -> Any:
    """Call a function with those of the available keywords that it takes.

    Args:
        function: The function, synchronous or not.
        available: What it may ask for, by keyword.
        timeout: After how many seconds to give up on it; None waits.

    Raises:
        TimeoutError: It took longer.
        Exception: Whatever it raises.
    """
    return call(partial(function, **_accepted(function, available)), timeout)


def _accepted(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(available)
    return {p.name: available[p.name] for p in parameters if p.name in available}
