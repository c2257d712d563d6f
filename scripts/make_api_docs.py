"""Writes docs/reference/api.md, oteval's public names, from their docstrings; a test checks it.

The names and their order come from ``oteval/__init__.pyi``. Run it as
``python -m scripts.make_api_docs``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import oteval
from scripts.documentation import DOCS, ROOT

PAGE = DOCS / "reference" / "api.md"
_INTRODUCTION = """# Python

Every public name of `oteval`. Type checkers know the types from the package itself; `help(name)`
prints the same text.
"""
# The topics of the packages that define the names, in the order of the page.
_TOPICS = {
    "evaluators": "Evaluators",
    "scoring": "Scoring and experiments",
    "views": "Databases in notebooks",
    "store": "The database",
    "model": "Runs, spans and scores",
    "record": "Recording",
    "replays": "Replays",
    "serve": "In the process",
    "extras": "Spark",
    "base": "Errors",
}
_SECTION = re.compile(
    r"^(Args|Attributes|Returns|Yields|Raises):\n((?: {4}.*\n?|\n)+)", re.MULTILINE
)
_ENTRY = re.compile(r"^ {4}(\*{0,2}[\w.]+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def page() -> str:
    """Return the page."""
    topics: dict[str, list[str]] = {topic: [] for topic in _TOPICS}
    for topic, name in _public_names():
        topics[topic].append(name)
    parts = [_INTRODUCTION]
    for topic, names in topics.items():
        prompts = [name for name in names if isinstance(getattr(oteval, name), str)]
        parts.append(f"## {_TOPICS[topic]}\n")
        if prompts:
            listed = ", ".join(f"`{name}`" for name in prompts)
            parts.append(f"Texts of [bundled prompts](../how-to/judges.md): {listed}.\n")
        parts += [_entry(name) for name in names if name not in prompts]
    return "\n".join(parts)


def _public_names() -> Iterator[tuple[str, str]]:
    """Yield each name with the package that defines it."""
    stub = ast.parse((ROOT / "oteval" / "__init__.pyi").read_text("utf-8"))
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.module.partition(".")[0], alias.name


def _entry(name: str) -> str:
    value = getattr(oteval, name)
    parts = [f"### {name}\n"]
    if inspect.isfunction(value) or _has_own_constructor(value):
        parts.append(f"```text\n{name}{_parameters(value)}\n```\n")
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        parts.append(_markdown(inspect.getdoc(value) or ""))
    else:
        parts.append(f"The type `{_type(value)}`.\n")
    if inspect.ismodule(value):
        parts.append("".join(_members(value)))
    if inspect.isclass(value) and (methods := "".join(_methods(value))):
        parts.append(f"**Methods and properties:**\n\n{methods}")
    return "\n".join(parts)


def _has_own_constructor(value: Any) -> bool:
    # The constructors of exceptions and typed dictionaries are not informative.
    is_plain = inspect.isclass(value) and not issubclass(value, (BaseException, dict))
    return is_plain and not getattr(value, "_is_protocol", False) and value is not oteval.Config


def _parameters(value: Any) -> str:
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=_Default(parameter.default)
            if parameter.default is not inspect.Parameter.empty
            else parameter.default,
        )
        for parameter in inspect.signature(value).parameters.values()
    ]
    return str(inspect.Signature(parameters))


class _Default:
    """A default as the page shows it: constants as they are, anything else as three dots."""

    def __init__(self, value: Any) -> None:
        is_constant = value is None or isinstance(value, (str, int, float, bool))
        is_empty = isinstance(value, (tuple, dict, frozenset)) and not value
        self._text = repr(value) if is_constant or is_empty else "..."

    def __repr__(self) -> str:
        return self._text


def _methods(value: type) -> Iterator[str]:
    """Yield a line for each public method and property that the class itself has."""
    if value is oteval.Config or issubclass(value, (BaseException, dict)):
        return
    for name, member in sorted(vars(value).items(), key=_line_of):
        function = getattr(member, "__func__", member)
        text = inspect.getdoc(function)
        if name.startswith("_") or not text:
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {_summary(text)}\n"
        elif inspect.isfunction(function):
            call = re.sub(r"^\((self|cls)(, )?", "(", _parameters(function))
            yield f"- `{name}{call}`: {_summary(text)}\n"


def _members(module: ModuleType) -> Iterator[str]:
    """Yield a line for each public function and class of a module."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield f"- `{name}{_parameters(value)}`: {_summary(inspect.getdoc(value) or '')}\n"
        elif inspect.isclass(value):
            yield f"- `{name}`: {_summary(inspect.getdoc(value) or '')}\n"


def _line_of(named_member: tuple[str, Any]) -> int:
    """Where a member is defined; a test that replaces it for a while moves it in the class."""
    member = named_member[1]
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code is not None else 0


def _summary(docstring: str) -> str:
    return _line(docstring.partition("\n\n")[0]).replace("``", "`")


def _type(value: Any) -> str:
    return re.sub(r"\b[\w.]+\.(\w+)", r"\1", str(value))


def _markdown(docstring: str) -> str:
    """Return a docstring in Google's style as Markdown."""
    text = _SECTION.sub(_list, docstring)
    return text.replace("``", "`").rstrip() + "\n"


def _list(match: re.Match[str]) -> str:
    entries = [f"- `{name}`: {_line(text)}\n" for name, text in _ENTRY.findall(match[2])]
    if not entries or match[1] in ("Returns", "Yields"):
        return f"**{match[1]}:** {_line(match[2])}\n\n"
    return f"**{match[1]}:**\n\n{''.join(entries)}\n"


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
