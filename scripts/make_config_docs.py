"""Writes docs/reference/configuration.md, every key of oteval.yaml; a test keeps it current.

The keys come from the JSON schema of the file, and the options of an evaluator from its class. Run
it as ``python -m scripts.make_config_docs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from oteval import Config
from oteval.evaluators.evaluator import Evaluator
from oteval.evaluators.options import NonNegativeFloat, Option, Regex, Seconds, Share, options_of
from oteval.evaluators.registry import evaluator_class, evaluator_types
from scripts.documentation import DOCS

PAGE = DOCS / "reference" / "configuration.md"
_HEAD = "| {} | values | default | meaning |\n|---|---|---|---|\n"
_INTRODUCTION = """# oteval.yaml

Every key. `oteval config schema` prints the same as a JSON schema, for editors, and
`oteval config check` checks a file. An unknown key is an error that names its line and the nearest
key.

A duration is a number of seconds, or a text such as `500ms`, `5s`, `2m`, `1h` or `7d`. `${NAME}` in
a header, a secret or an Apprise URL is the value of an environment variable.

"""
_EVALUATORS = """## evaluators

A list. Each evaluator has these keys, and the options of its type.
[Scoring](../how-to/scoring.md) shows how to use them.

"""
# The pages that explain a type; [Checks](checks.md) explains all others.
_GUIDES = {
    "graph_match": "[Graphs](../how-to/graphs.md)",
    "judge": "[Judges](../how-to/judges.md)",
    "python": "[Functions of yours](../how-to/scoring.md#functions-of-yours)",
    "trajectory_match": "[Matching](../how-to/matching.md)",
}
# The parts of the file that are objects, with their keys.
_PARTS = {
    "Where": "where",
    "StoredReference": "reference: a stored run",
    "DatasetReference": "reference: one for each case",
    "ExampleReference": "reference: in experiments",
    "AnyReference": "reference: several",
    "Price": "prices",
    "JuryMember": "jury",
    "Gate": "gates",
    "Completion": "completion",
    "Limits": "budgets",
    "Forward": "forward",
    "Endpoint": "events",
    "Metrics": "metrics",
    "Push": "push",
    "Redaction": "redact",
    "Retention": "retention",
    "MonitorSettings": "monitors",
    "FalseAlarms": "monitors: false_alarms",
    "BaselineSettings": "monitors: baseline",
    "NoData": "monitors: no_data",
    "EDetectorSettings": "monitors: detector e_detector",
    "ThresholdSettings": "monitors: detector threshold",
    "TwoWindowsSettings": "monitors: detector two_windows",
    "NotifyDestination": "notify",
    "Alertmanager": "notify: alertmanager",
    "Webhook": "notify: webhook",
    "OwnAttribute": "conversation, user, version and prompt",
}
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
_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "",
}
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def page() -> str:
    """Return the page."""
    schema = Config.model_json_schema()
    parts = [_INTRODUCTION, "## The file\n\n", _keys(schema, "key"), "\n"]
    parts += [_EVALUATORS, _common_keys(schema), "\n", *map(_evaluator, evaluator_types())]
    parts += [_part(heading, schema["$defs"][name]) for name, heading in _PARTS.items()]
    return "".join(parts).rstrip() + "\n"


def undocumented() -> set[str]:
    """Return the parts of the file that the page lacks."""
    settings = {evaluator_class(kind).__qualname__ for kind in evaluator_types()}
    return set(Config.model_json_schema()["$defs"]) - settings - set(_PARTS)


def _part(heading: str, schema: Mapping[str, Any]) -> str:
    summary = schema["description"].partition("\n\nAttributes:")[0]
    return f"## {heading}\n\n{_text(summary)}\n\n{_keys(schema, 'key')}\n"


def _keys(schema: Mapping[str, Any], head: str) -> str:
    required = schema.get("required", ())
    # Dataclasses describe their fields in the docstring.
    meanings = dict(_ATTRIBUTE.findall(schema.get("description", "")))
    rows = [
        f"| `{key}` | {_form(value)} | {_schema_default(key, value, required)} "
        f"| {_text(value.get('description') or meanings.get(key, ''))} |\n"
        for key, value in schema["properties"].items()
    ]
    return _HEAD.format(head) + "".join(rows)


def _common_keys(schema: Mapping[str, Any]) -> str:
    # Every type has these keys; they are read from `cost`.
    settings = schema["$defs"]["Cost"]
    kind = {"type": {"description": "One of the sections below.", "type": "string"}}
    rest = {key: settings["properties"][key] for key in ("where", "sample", "scope")}
    common = {"name": settings["properties"]["name"], **kind, **rest}
    return _keys({"properties": common, "required": ["name", "type"]}, "key")


def _evaluator(kind: str) -> str:
    summary = (evaluator_class(kind).__doc__ or "").partition("\n\n")[0]
    guide = _GUIDES.get(kind, "[Checks](checks.md)")
    return f"### {kind}\n\n{_text(summary)} See {guide}.\n\n{table(kind)}\n"


def table(kind: str) -> str:
    """Return the options of a type as a table in Markdown."""
    evaluator = evaluator_class(kind)
    rows = [_row(option) for option in options_of(evaluator) if option.key is not None]
    if evaluator.reference is not None:
        rows.append(_reference_row(evaluator))
    return _HEAD.format("option") + "".join(f"{row}\n" for row in rows)


def _row(option: Option) -> str:
    values = "JSON file" if option.is_file else _values(option.form)
    name = f"`{option.key}`"
    if option.key != option.name:
        name += f" (in Python `{option.name}`)"
    return f"| {name} | {values} | {_default(option.default)} | {_text(option.description)} |"


def _reference_row(evaluator: type[Evaluator]) -> str:
    assert evaluator.reference is not None
    default = "required" if evaluator.reference.is_required else "none"
    description = _text(evaluator.reference.description)
    return f"| `reference` | [reference](#reference-a-stored-run) | {default} | {description} |"


def _default(value: Any) -> str:
    if value is MISSING:
        return "required"
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return ", ".join(f"`{part}`" for part in (value if isinstance(value, tuple) else (value,)))


def _schema_default(key: str, schema: Mapping[str, Any], required: Any) -> str:
    default = schema.get("default", MISSING if key in required else None)
    if isinstance(default, dict):
        return "see there"
    if isinstance(default, float) and _form(schema) == "duration":
        return f"`{_duration(default)}`"
    return _default(default)


def _duration(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def _text(description: str) -> str:
    return " ".join(description.split()).replace("``", "`").replace("|", "\\|")


def _form(schema: Mapping[str, Any]) -> str:
    """Return the name of the values of a part of the JSON schema."""
    forms = list(dict.fromkeys(filter(None, _forms(schema))))
    return "duration" if forms == ["number", "text"] else " or ".join(forms)


def _forms(schema: Mapping[str, Any]) -> Iterator[str]:
    if (reference := schema.get("$ref")) is not None:
        yield _link(reference.rpartition("/")[2])
    elif "const" in schema:
        yield f"`{schema['const']}`".replace("True", "true")
    elif "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"] if value)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        if any("$ref" in choice for choice in choices) and len(choices) > 4:
            yield "[evaluators](#evaluators)"
        else:
            for choice in choices:
                yield from (["duration"] if _form(choice) == "duration" else _forms(choice))
    elif schema.get("type") == "array":
        yield f"list of {_form(schema['items'])}"
    elif schema.get("type") == "object":
        values = schema.get("additionalProperties")
        yield f"mapping of {_form(values)}" if isinstance(values, dict) else "mapping"
    else:
        yield _TYPES[schema["type"]]


def _link(name: str) -> str:
    anchor = _PARTS[name].replace(":", "").replace(",", "").replace(" ", "-")
    return f"[{_PARTS[name]}](#{anchor})"


def _values(form: Any) -> str:
    """Return the name of the values of a type."""
    if form in _NAMES:
        return _NAMES[form]
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return _values(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_values(part) for part in arguments if part is not type(None))
    if origin is not None and len(arguments) == 1:
        return f"list of {_values(arguments[0])}"
    return "mapping"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
