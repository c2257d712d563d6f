"""Prompt templates: `str.format`, but harmless to braces that are no variables.

A template whose every field is a plain name is one of `str.format`, with its ``{{`` and ``}}``,
conversions and format specs. In any other, one with a JSON example for instance, only the known
variables in braces are replaced, and all other braces stay. Doubled braces around a name are text
in both. `problem_of` finds the variables that cannot be filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from string import Formatter

__all__ = ["STANDARD", "closest", "fields_of", "fill", "missing", "problem_of"]

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
"""The variables that prompts commonly have."""

_FIELD = re.compile(r"\{\{[A-Za-z_]\w*\}\}|\{(?P<name>[A-Za-z_]\w*)\}")
# Names in doubled braces, and with what `str.format` would look up or what it takes for a name.
_DOUBLED = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_ODD = re.compile(r"(?<!\{)\{\s*([A-Za-z_]\w*)\s*(?:[.\[!][^{}]*|\s)\}")


def fields_of(template: str) -> set[str]:
    """Return the names in braces that a template may have filled in."""
    parsed = _parsed(template)
    if parsed is None:
        return {found["name"] for found in _FIELD.finditer(template) if found["name"]}
    return {name for _, name, _, _ in parsed if name is not None}


def fill(template: str, values: Mapping[str, str | Callable[[], str]]) -> str:
    """Return a template with its variables filled in.

    Args:
        template: The template.
        values: The text of each variable, or what makes it once it is needed.
    """
    parsed = _parsed(template)
    if parsed is None:
        return _FIELD.sub(lambda found: _replaced(found, values), template)
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


def problem_of(template: str, given: Collection[str], optional: Collection[str] = ()) -> str:
    """Return which variable of a template cannot be filled in, and what to do, or "".

    Args:
        template: The template.
        given: The variables that have a value.
        optional: Those that may be empty.
    """
    shown = fields_of(template)
    lacking = sorted(shown - {*given, *optional}, key=lambda name: template.index(f"{{{name}"))
    if lacking:
        return missing(lacking[0], given)
    known = {*given, *STANDARD}
    for odd in _ODD.finditer(template):
        if odd[1] in known and odd[0] not in _filled(template):
            return f"the prompt shows {odd[0]}, which is not filled in: write {{{odd[1]}}}"
    for doubled in _DOUBLED.findall(template):
        if doubled in STANDARD and doubled not in shown:
            return f"the prompt shows {{{{{doubled}}}}}, which is text: write {{{doubled}}}"
    return ""


def closest(name: str, known: Collection[str]) -> str:
    """Return the variable that a misspelt name probably means, or ""."""
    return next(iter(get_close_matches(name, sorted(known), 1, 0.7)), "")


def missing(name: str, known: Collection[str]) -> str:
    """Return the message about a variable that has no value."""
    where = f"the prompt shows {{{name}}}, which has no value: "
    if name in STANDARD:
        return f'{where}give {name}=, or {name}="" if it is empty'
    meant = closest(name, {*known, *STANDARD})
    advice = f"did you mean {{{meant}}}?" if meant else f"give {name}=."
    return f"{where}{advice} Write {{{{{name}}}}} for braces that are text"


def _filled(template: str) -> set[str]:
    """Return the fields of a template of `str.format` as they are written."""
    parsed = _parsed(template) or ()
    return {f"{{{n}{f'!{c}' if c else ''}{f':{s}' if s else ''}}}" for _, n, s, c in parsed if n}


def _replaced(found: re.Match[str], values: Mapping[str, str | Callable[[], str]]) -> str:
    name = found["name"]
    return _value(name, values, found[0]) if name else found[0][1:-1]


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
