"""Prompt templates: `str.format`, but harmless to braces that are no variables.

A template whose every field is a plain name is one of `str.format`, with its ``{{`` and ``}}``,
conversions and format specs. In any other, one with a JSON example for instance, only the known
variables in braces are replaced, and all other braces stay. A field that is neither a standard
variable nor given stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter

__all__ = ["STANDARD", "fields_of", "fill"]

STANDARD = (
    "inputs",
    "outputs",
    "reference_outputs",
    "thread",
    "context",
    "plan",
    "rubric",
    "attachments",
)
"""The variables that are empty where nothing is given for them."""

_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")


def fields_of(template: str) -> set[str]:
    """Return the names in braces that a template may have filled in."""
    parsed = _parsed(template)
    if parsed is None:
        return set(_FIELD.findall(template))
    return {name for _, name, _, _ in parsed if name is not None}


def fill(template: str, values: Mapping[str, str | Callable[[], str]]) -> str:
    """Return a template with its variables filled in.

    Args:
        template: The template.
        values: The text of each variable, or what makes it once it is needed.
    """
    parsed = _parsed(template)
    if parsed is None:
        return _FIELD.sub(lambda found: _value(found[1], values, found[0]), template)
    out: list[str] = []
    for literal, name, spec, conversion in parsed:
        out.append(literal)
        if name is not None:
            mark = f"!{conversion}" if conversion else ""
            field = f"{{{name}{mark}{':' + spec if spec else ''}}}"
            text = _value(name, values, field)
            if text != field:
                text = _formatted(text, conversion, spec or "")
            out.append(text)
    return "".join(out)


def _value(name: str, values: Mapping[str, str | Callable[[], str]], otherwise: str) -> str:
    if name in values:
        found = values[name]
        return found if isinstance(found, str) else found()
    return "" if name in STANDARD else otherwise


def _formatted(text: str, conversion: str | None, spec: str) -> str:
    converted = repr(text) if conversion == "r" else ascii(text) if conversion == "a" else text
    return format(converted, spec)


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]] | None:
    """Return the parts of a template of `str.format`; None where it is not quite one."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return None
    plain = all(
        name is None or (name.isidentifier() and "{" not in (spec or ""))
        for _, name, spec, _ in parts
    )
    return parts if plain else None
