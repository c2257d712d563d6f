"""Writes the tables of options in docs/ from the evaluators' classes; a test holds them current.

A page has the table of a type between ``<!-- options: TYPE -->`` and ``<!-- end -->``. A type
without a table gets a section in docs/reference/checks.md. Run it as
``python -m scripts.make_evaluator_docs``.
"""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from oteval.evaluators.evaluator import Evaluator
from oteval.evaluators.options import NonNegativeFloat, Option, Regex, Seconds, Share, options_of
from oteval.evaluators.registry import evaluator_class, evaluator_types

FOLDER = Path(__file__).parents[1] / "docs"
CHECKS = FOLDER / "reference" / "checks.md"
_AFTER_CHECKS = "## When the trace holds too little"
_TABLE = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES: dict[Any, str] = {
    Seconds: "duration",
    Share: "0 to 1",
    Regex: "regular expression",
    NonNegativeFloat: "number",
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    Any: "any",
}


def pages() -> dict[Path, str]:
    """Return the pages that have tables, with current tables."""
    found = {}
    for path in sorted(FOLDER.rglob("*.md")):
        text = path.read_text("utf-8")
        if _TABLE.search(text):
            found[path] = _TABLE.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", text)
    return found


def with_new_sections(text: str) -> str:
    """Return docs/reference/checks.md with a section for each type that no page documents yet."""
    sections = [
        f"### `{kind}`\n\n{_summary(kind)}\n\n"
        f"<!-- options: {kind} -->\n{table(kind)}<!-- end -->\n\n"
        for kind in sorted(set(evaluator_types()) - documented_types())
    ]
    before, after = text.split(_AFTER_CHECKS)
    return f"{before}{''.join(sections)}{_AFTER_CHECKS}{after}"


def _summary(kind: str) -> str:
    return (evaluator_class(kind).__doc__ or "").split("\n\n")[0]


def documented_types() -> set[str]:
    """Return the types whose options have a table on some page."""
    return {match[2] for text in pages().values() for match in _TABLE.finditer(text)}


def table(kind: str) -> str:
    """Return the options of a type as a table in Markdown."""
    evaluator = evaluator_class(kind)
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    rows += [_row(option) for option in options_of(evaluator) if option.key is not None]
    if evaluator.reference is not None:
        rows.append(_reference_row(evaluator))
    return "\n".join(rows) + "\n"


def _row(option: Option) -> str:
    values = "JSON file" if option.is_file else _values(option.form)
    description = option.description.replace("``", "`").replace("|", "\\|")
    name = f"`{option.key}`"
    if option.key != option.name:
        name += f" (in Python `{option.name}`)"
    return f"| {name} | {values} | {_default(option.default)} | {description} |"


def _reference_row(evaluator: type[Evaluator]) -> str:
    assert evaluator.reference is not None
    default = "required" if evaluator.reference.is_required else "none"
    return f"| `reference` | | {default} | {evaluator.reference.description} |"


def _default(value: Any) -> str:
    if value is MISSING:
        return "required"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f"`{value}`"


def _values(form: Any) -> str:
    """Return how the values of a type are called."""
    if form in _NAMES:
        return _NAMES[form]
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return _values(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_values(one) for one in arguments if one is not type(None))
    if origin is not None and len(arguments) == 1:
        return f"list of {_values(arguments[0])}"
    return "mapping"


if __name__ == "__main__":
    CHECKS.write_text(with_new_sections(CHECKS.read_text("utf-8")), "utf-8")
    for page, text in pages().items():
        page.write_text(text, "utf-8")
