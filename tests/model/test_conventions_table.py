"""The table of docs/reference/conventions.md: complete, and true of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import opentelemetry.util.genai
import pytest

from oteval.model import NO_TOKENS, span_tokens

from ..make import ROOT

_ROW = re.compile(r"^\| `([\w.]+)` \| ([\w, ]+) \| *(.*?) *\|$", re.MULTILINE)
_NAMESPACES = ("gen_ai.", "mcp.", "openai.", "aws.bedrock.")
PAGE = ROOT / "docs" / "reference" / "conventions.md"
ROWS = {
    name: (frozenset(uses.split(", ")), text)
    for name, uses, text in _ROW.findall(PAGE.read_text("utf-8"))
}
SOURCE = {
    path: path.read_text("utf-8")
    for path in (ROOT / "oteval").rglob("*.py")
    if "redaction" not in path.parts
}
WRITERS = {
    path: text
    for path, text in SOURCE.items()
    if "record" in path.parts or path.parent.name in ("publish", "scoring")
}


def attributes_of_the_packages() -> set[str]:
    """Return the attributes that the installed packages have as constants or as texts."""
    names: set[str] = set()
    for module_name in ("gen_ai", "mcp", "openai", "aws"):
        module = importlib.import_module(
            f"opentelemetry.semconv._incubating.attributes.{module_name}_attributes"
        )
        names |= {value for value in vars(module).values() if isinstance(value, str)}
    for path in Path(opentelemetry.util.genai.__path__[0]).rglob("*.py"):
        names |= set(
            re.findall(r'"((?:gen_ai|mcp|openai)\.[a-z_.]+[a-z_])"', path.read_text("utf-8"))
        )
    # Names of events and metrics are no attributes.
    return {
        name
        for name in names
        if name.startswith(_NAMESPACES)
        and not name.startswith("gen_ai.client.")
        and not name.endswith(".duration")
    }


def test_every_attribute_of_the_conventions_has_a_row():
    """A new attribute must be classified before the packages can be upgraded."""
    assert attributes_of_the_packages() - ROWS.keys() == set()


def test_rows_say_one_of_three_things_and_why():
    """An attribute that is only kept has a reason, and is neither read nor written."""
    for name, (uses, text) in ROWS.items():
        assert uses in ({"read"}, {"written"}, {"read", "written"}, {"kept"}), name
        assert text or "written" in uses, name


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_true(name: str):
    """What is read or written is named in the code that does so; what is kept is named nowhere."""
    uses, _ = ROWS[name]
    pattern = re.compile(rf"[\"']{re.escape(name)}[\"'.]")
    is_counted = span_tokens({name: 3}) != NO_TOKENS
    is_named = any(pattern.search(text) for text in SOURCE.values())

    assert ("written" in uses) == any(pattern.search(text) for text in WRITERS.values())
    if "read" in uses:
        assert is_named or is_counted
    if "kept" in uses:
        assert not is_named
        assert not is_counted
