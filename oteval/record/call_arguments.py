"""Whether a call of a function is the one that a model has asked for, by its arguments.

A loop hands the model's arguments to its functions in several ways: by name, as one dict, as JSON,
beside others that the agent adds, or converted, as in ``refund(int(arguments["order"]))``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..base.jsontext import canonical, loads
from ..base.serialization import to_jsonable

__all__ = ["argument_forms", "is_asked_call"]


def argument_forms(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a call, then those that one of them holds as an object or as JSON.

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


def is_asked_call(asked: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call has the arguments that a model has asked for, and maybe others.

    Args:
        asked: The arguments in the model's answer.
        arguments: The arguments of the call by name.
    """
    if not isinstance(asked, Mapping):
        asked = {} if asked in (None, "") else {"": asked}
    if asked:
        for form in argument_forms(arguments):
            if asked.keys() <= form.keys() and _is_equal(asked, form):
                return True
    plain = to_jsonable(dict(arguments))
    return not Counter(_leaves(dict(asked))) - Counter(_leaves(plain))


def _is_equal(asked: Mapping[str, Any], form: Mapping[str, Any]) -> bool:
    return canonical(dict(asked)) == canonical({key: form[key] for key in asked})


def _leaves(value: Any) -> Iterator[str]:
    """Yield the scalars in a value as text, numbers alike whether they were text or not."""
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
