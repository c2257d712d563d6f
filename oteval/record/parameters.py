"""Arguments of decorated functions by name, and the one of them that is an agent's question."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .provider_messages import is_message

__all__ = ["Parameters", "agent_input"]

_BOUND = ("self", "cls")
# Parameters that usually hold the question, in the order of preference.
_QUESTIONS = (
    *("question", "prompt", "query", "message", "user_message", "user_input", "user_prompt"),
    *("input", "text", "task", "request"),
)


class Parameters:
    """The parameters of a function; binding arguments to them never fails.

    Args:
        function: The function. Where Python cannot tell its signature, positional arguments are
            called ``args``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            found = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            found = []
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        self._names = tuple(one.name for one in found if one.kind in positional)
        self._rest = next(
            (one.name for one in found if one.kind is inspect.Parameter.VAR_POSITIONAL), "args"
        )
        self._has_self = bool(self._names) and self._names[0] in _BOUND

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without ``self``; defaults are left out.

        Args:
            args: The positional arguments.
            kwargs: The named arguments.
        """
        found = dict(zip(self._names, args, strict=False))
        if len(args) > len(self._names):
            found[self._rest] = list(args[len(self._names) :])
        if self._has_self:
            found.pop(self._names[0], None)
        found.update(kwargs)
        return found


def agent_input(
    wanted: str | Callable[..., Any] | None,
    parameters: Parameters,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return an agent's question, or None if it was called without arguments.

    Args:
        wanted: The name of a parameter, or a function that is called with the same arguments. By
            default messages come first, then a text in a parameter with a usual name, then any
            text, then all arguments.
        parameters: The parameters of the agent's function.
        args: The positional arguments.
        kwargs: The named arguments.
    """
    if callable(wanted):
        return wanted(*args, **kwargs)
    found = parameters.bind(args, kwargs)
    if wanted is not None:
        return found.get(wanted)
    for value in found.values():
        is_list = isinstance(value, (list, tuple)) and bool(value)
        if is_message(value) or (is_list and all(map(is_message, value))):
            return value
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    for name in _QUESTIONS:
        if name in texts:
            return texts[name]
    return next(iter(texts.values()), found or None)
