"""TypedDicts in the form that pydantic takes on every Python: before 3.12 not typing's own."""

from __future__ import annotations

from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import Field

__all__ = ["is_typed_dict", "modern"]


def is_typed_dict(value: Any) -> bool:
    """Return whether a value is a TypedDict, from typing or typing_extensions."""
    return is_typeddict(value) or typing_extensions.is_typeddict(value)


def modern(kind: Any) -> Any:
    """Return a type whose TypedDicts, at any depth, are those of typing_extensions.

    A text at the end of ``Annotated[...]``, which is how LangChain describes a field, becomes the
    field's description.
    """
    if is_typed_dict(kind):
        hints = get_type_hints(kind, include_extras=True)
        required: frozenset[str] = getattr(kind, "__required_keys__", frozenset(hints))
        fields = {
            name: modern(_bare(hint))
            if name in required
            else typing_extensions.NotRequired[modern(_bare(hint))]
            for name, hint in hints.items()
        }
        make: Any = typing_extensions.TypedDict
        made = make(kind.__name__, fields)
        made.__doc__ = kind.__doc__
        return made
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = arguments
        described = [Field(description=notes[-1])] if isinstance(notes[-1], str) else notes
        return Annotated[(modern(inner), *described)]
    if not arguments or origin is None:
        return kind
    inner_types = tuple(modern(argument) for argument in arguments)
    if inner_types == arguments:
        return kind
    if origin is Union or getattr(origin, "__name__", "") == "UnionType":
        return Union[inner_types]  # noqa: UP007  built at run time
    return origin[inner_types]


def _bare(hint: Any) -> Any:
    """Return a hint without Required and NotRequired, which the keys' sets already tell."""
    names = ("Required", "NotRequired", "ReadOnly")
    while getattr(get_origin(hint), "_name", "") in names:
        (hint,) = get_args(hint)
    return hint
