"""Arguments of calls by name: an agent's question, and the call that a model has requested.

A loop passes the model's arguments to its functions in several ways: by name, as one dict, as JSON,
together with arguments that the agent adds, or converted, as in
``refund(int(arguments["order"]))``.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base.jsontext import canonical, loads, to_jsonable
from .provider_messages import are_messages

__all__ = ["Parameters", "agent_input", "argument_forms", "is_requested_call"]

_BOUND = ("self", "cls")
# Parameters that usually contain the question, in the order of preference.
_QUESTIONS = (
    *("question", "prompt", "query", "message", "user_message", "user_input", "user_prompt"),
    *("input", "text", "task", "request"),
)


class Parameters:
    """The parameters of a function; binding arguments to them never fails.

    Args:
        function: The function. Without a signature, positional arguments are
            called ``args``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        self._names = tuple(
            parameter.name for parameter in parameters if parameter.kind in positional
        )
        self._rest = next(
            (
                parameter.name
                for parameter in parameters
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL
            ),
            "args",
        )
        self._has_self = bool(self._names) and self._names[0] in _BOUND

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, without ``self`` and defaults.

        Args:
            args: The positional arguments.
            kwargs: The named arguments.
        """
        arguments = dict(zip(self._names, args, strict=False))
        if len(args) > len(self._names):
            arguments[self._rest] = list(args[len(self._names) :])
        if self._has_self:
            arguments.pop(self._names[0], None)
        arguments.update(kwargs)
        return arguments


def agent_input(
    selector: str | Callable[..., Any] | None,
    parameters: Parameters,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """The question of an agent, or None if it was called without arguments.

    Args:
        selector: The name of a parameter, or a function that is called with the same arguments. By
            default messages are first, then a text in a parameter with a usual name, then any
            text, then all arguments.
        parameters: The parameters of the agent's function.
        args: The positional arguments.
        kwargs: The named arguments.
    """
    if callable(selector):
        return selector(*args, **kwargs)
    arguments = parameters.bind(args, kwargs)
    if selector is not None:
        return arguments.get(selector)
    for value in arguments.values():
        if are_messages(value):
            return value
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    for name in _QUESTIONS:
        if name in texts:
            return texts[name]
    return next(iter(texts.values()), arguments or None)


def argument_forms(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a call, then the arguments that one of them contains, also as JSON.

    Args:
        arguments: The arguments by name.
    """
    plain: dict[str, Any] = to_jsonable(dict(arguments))
    yield plain
    for value in plain.values():
        if isinstance(value, dict):
            yield value
        elif isinstance(value, str) and value.lstrip()[:1] == "{":
            try:
                parsed = loads(value)
            except ValueError:
                continue
            if isinstance(parsed, dict):
                yield parsed


def is_requested_call(requested: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether a call has the arguments that a model has requested, and maybe others.

    Args:
        requested: The arguments in the model's answer.
        arguments: The arguments of the call by name.
    """
    if not isinstance(requested, Mapping):
        requested = {} if requested in (None, "") else {"": requested}
    if requested:
        for form in argument_forms(arguments):
            if requested.keys() <= form.keys() and _is_equal(requested, form):
                return True
    plain = to_jsonable(dict(arguments))
    return not Counter(_leaves(dict(requested))) - Counter(_leaves(plain))


def _is_equal(requested: Mapping[str, Any], form: Mapping[str, Any]) -> bool:
    return canonical(dict(requested)) == canonical({key: form[key] for key in requested})


def _leaves(value: Any) -> Iterator[str]:
    """Yield the scalars in a value as text; a number and its text yield the same."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        try:
            yield str(float(value)) if not isinstance(value, bool) else str(value)
        except (TypeError, ValueError, OverflowError):
            yield str(value).strip()
