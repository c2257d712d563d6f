"""Prompt templates: `str.format`, but tolerant of literal braces.

If every field of a template is a plain name, the template follows `str.format`, with ``{{`` and
``}}``, conversions and format specs. In any other template, such as one with a JSON example, only
names in braces are replaced, and all other braces stay. Doubled braces around a name are literal in
both. `template_problem` finds variables that cannot be filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from string import Formatter

__all__ = [
    "STANDARD_VARIABLES",
    "closest_name",
    "fill_template",
    "missing_value_message",
    "template_problem",
    "template_variables",
]

STANDARD_VARIABLES = (
    "inputs",
    "outputs",
    "reference_outputs",
    "thread",
    "context",
    "plan",
    "rubric",
    "attachments",
)
"""Variables that are common in prompts."""

_FIELD = re.compile(r"\{\{[A-Za-z_]\w*\}\}|\{(?P<name>[A-Za-z_]\w*)\}")
# Names in doubled braces, and names followed by a lookup, a conversion or a space.
_DOUBLED = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_ODD = re.compile(r"(?<!\{)\{\s*([A-Za-z_]\w*)\s*(?:[.\[!][^{}]*|\s)\}")


def template_variables(template: str) -> set[str]:
    """The variables in a template."""
    parsed = _parse(template)
    if parsed is None:
        return {field["name"] for field in _FIELD.finditer(template) if field["name"]}
    return {name for _, name, _, _ in parsed if name is not None}


def fill_template(template: str, values: Mapping[str, str | Callable[[], str]]) -> str:
    """A template with its variables filled in.

    Args:
        template: The template.
        values: The text of each variable, or a function that returns it.
    """
    parsed = _parse(template)
    if parsed is None:
        return _FIELD.sub(lambda match: _replacement(match, values), template)
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


def template_problem(template: str, names: Collection[str], optional: Collection[str] = ()) -> str:
    """A message about the first variable that cannot be filled in, or "".

    Args:
        template: The template.
        names: The variables that have a value.
        optional: The variables that need no value.
    """
    variables = template_variables(template)
    missing = sorted(variables - {*names, *optional}, key=lambda name: template.index(f"{{{name}"))
    if missing:
        return missing_value_message(missing[0], names)
    known_names = {*names, *STANDARD_VARIABLES}
    for odd in _ODD.finditer(template):
        if odd[1] in known_names and odd[0] not in _format_fields(template):
            return f"the prompt shows {odd[0]}, which is not filled in: write {{{odd[1]}}}"
    for doubled in _DOUBLED.findall(template):
        if doubled in STANDARD_VARIABLES and doubled not in variables:
            return f"the prompt shows {{{{{doubled}}}}}, which is text: write {{{doubled}}}"
    return ""


def closest_name(name: str, names: Collection[str]) -> str:
    """The known name that a misspelt name probably means, or ""."""
    return next(iter(get_close_matches(name, sorted(names), 1, 0.7)), "")


def missing_value_message(name: str, names: Collection[str]) -> str:
    """The error message for a variable without a value."""
    where = f"the prompt shows {{{name}}}, which has no value: "
    if name in STANDARD_VARIABLES:
        return f'{where}give {name}=, or {name}="" if it is empty'
    meant = closest_name(name, {*names, *STANDARD_VARIABLES})
    advice = f"did you mean {{{meant}}}?" if meant else f"give {name}=."
    return f"{where}{advice} Write {{{{{name}}}}} for braces that are text"


def _format_fields(template: str) -> set[str]:
    """The replacement fields of a `str.format` template, including their braces."""
    parsed = _parse(template) or ()
    return {f"{{{n}{f'!{c}' if c else ''}{f':{s}' if s else ''}}}" for _, n, s, c in parsed if n}


def _replacement(match: re.Match[str], values: Mapping[str, str | Callable[[], str]]) -> str:
    name = match["name"]
    return _value(name, values, match[0]) if name else match[0][1:-1]


def _value(name: str, values: Mapping[str, str | Callable[[], str]], otherwise: str) -> str:
    if name in values:
        value = values[name]
        return value if isinstance(value, str) else value()
    return "" if name in STANDARD_VARIABLES else otherwise


def _formatted(text: str, conversion: str | None, spec: str) -> str:
    converted = repr(text) if conversion == "r" else ascii(text) if conversion == "a" else text
    return format(converted, spec)


@lru_cache
def _parse(template: str) -> tuple[tuple[str, str | None, str | None, str | None], ...] | None:
    """The parts of a `str.format` template with plain names; None for any other."""
    try:
        parts = tuple(Formatter().parse(template))
    except ValueError:
        return None
    plain = all(
        name is None or (name.isidentifier() and "{" not in (spec or ""))
        for _, name, spec, _ in parts
    )
    return parts if plain else None
