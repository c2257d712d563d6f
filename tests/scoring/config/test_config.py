from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from oteval.base.errors import ConfigError
from oteval.base.text import seconds
from oteval.evaluators import TrajectoryMatch
from oteval.evaluators.functions import FunctionEvaluator
from oteval.scoring.config import Config, load_config, parse_config

RULE = "  - {name: a, type: trajectory_match, reference: r.json}\n"
MATCH = "evaluators:\n  - name: a\n    type: trajectory_match\n"
GOOD = "evaluators:\n" + RULE


def fault(text: str) -> str:
    """Return the error message of a configuration."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_demo_is_a_configuration():
    """The bundled file is read, with its defaults filled in."""
    config = parse_config((resources.files("oteval.cli.bundled_demo") / "oteval.yaml").read_text())

    first, second = config.evaluators
    match = first.evaluator
    assert isinstance(match, TrajectoryMatch)
    assert (first.name, first.scope) == ("refund-calls", "turn")
    assert (match.trajectory_match_mode, match.tool_args_match_mode) == ("unordered", "exact")
    assert isinstance(second.evaluator, TrajectoryMatch)
    assert (second.evaluator.view, second.evaluator.effect_tools) == ("effects", ["refund_order"])
    assert config.gates[0].min_pass_rate == 0.95


def test_a_rule_knows_everything_that_is_documented():
    """All keys of both types are read, in the forms that the documentation shows."""
    config = parse_config(
        """
evaluators:
  - name: a
    type: trajectory_match
    mode: superset
    tool_args: tolerant
    overrides: {search: ignore, refund: [order_id]}
    view: writes
    effect_tools: [refund]
    error_pattern: "^no"
    score_type: f1
    strict_order: true
    missing_ok: true
    threshold: 0.5
    reference: {dataset: d.jsonl}
    where: {agent: [x, y], not: {attributes: {env: staging, n: 1}}, conditions: ["errors>0"]}
    sample: 0.5
    scope: conversation
  - {name: b, type: python, call: "m.n:f.g", timeout: 2m, reference: {name: kept}}
  - {name: c, type: python, call: "m:f", timeout: 5, reference: {trajectory: abc}}
gates:
  - {evaluator: a, min_pass_rate: 0.5, min_score: 0.1, min_evaluated: 3, max_errors: 0}
salt: x
"""
    )

    a, b, c = config.evaluators
    selection = a.where.selection()
    assert selection.agents == ("x", "y")
    assert selection.excluded is not None
    assert selection.excluded.attributes == {"env": ("staging",), "n": ("1",)}
    assert isinstance(b.evaluator, FunctionEvaluator)
    assert isinstance(c.evaluator, FunctionEvaluator)
    assert (b.evaluator.timeout, c.evaluator.timeout) == (120.0, 5.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "x.yaml: empty; begin with a line 'evaluators:'"),
        ("# nothing\n", "x.yaml: empty; begin with a line 'evaluators:'"),
        ("- a\n", "x.yaml:1: the file must be a mapping; begin it with 'evaluators:'"),
        ("text", "x.yaml:1: the file must be a mapping; begin it with 'evaluators:'"),
        ("evaluators:\n  - {name: a", "x.yaml:2: no valid YAML: "),
        ("evaluators:\n\t- a", "x.yaml:2: no valid YAML: found character"),
        ("a: *b", "x.yaml:1: no valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: no valid YAML: but found another document"),
        ("evaluators: []\n", "x.yaml:1: evaluators: list should have at least 1 item"),
        ("gates: []\n", "x.yaml:1: 'evaluators' is missing in the file"),
        ("evaluator:\n" + RULE, "x.yaml:1: unknown key 'evaluator'; did you mean 'evaluators'?"),
        (GOOD + "gate: []\n", "x.yaml:3: unknown key 'gate'; did you mean 'gates'?"),
        (GOOD + "zzz: 1\n", "x.yaml:3: unknown key 'zzz'; there are evaluators, gates, salt"),
        (
            MATCH + "    moed: strict\n    reference: r\n",
            "x.yaml:4: evaluator 'a': unknown key 'moed'; did you mean 'mode'?",
        ),
        (
            "evaluators:\n  - name: a\n    type: python\n    call: m:f\n    timeuot: 1\n",
            "x.yaml:5: evaluator 'a': unknown key 'timeuot'; did you mean 'timeout'?",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n    reference: r\n    where:\n"
            "      not:\n        agnet: x\n",
            "x.yaml:7: evaluator 'a': unknown key 'agnet'; did you mean 'agent'?",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n    reference:\n      nmae: r\n",
            "x.yaml:5: evaluator 'a': unknown key 'nmae'; did you mean 'name'?",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n    reference:\n"
            "      dataset: r\n      kye: x\n",
            "x.yaml:6: evaluator 'a': unknown key 'kye'; did you mean 'key'?",
        ),
        (
            GOOD + "gates:\n  - evaluator: a\n    min_passrate: 1\n",
            "x.yaml:5: unknown key 'min_passrate'; did you mean 'min_pass_rate'?",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_mach\n",
            "x.yaml:2: evaluator 'a': 'type' must be one of budget, command, cost, ",
        ),
        (
            "evaluators:\n  - name: a\n",
            "x.yaml:2: evaluator 'a': 'type' must be one of budget, command, cost, ",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n",
            "x.yaml:2: evaluator 'a': 'reference' is missing",
        ),
        (
            MATCH + "    mode: stric\n    reference: r\n",
            "x.yaml:4: evaluator 'a': mode: input should be 'strict', 'unordered'",
        ),
        (
            MATCH + "    reference: r\n    sample: 1.5\n",
            "x.yaml:5: evaluator 'a': sample: input should be less than or equal to 1",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n    reference: {}\n",
            "x.yaml:4: evaluator 'a': reference: give either trajectory or name",
        ),
        (
            "evaluators:\n  - name: a\n    type: trajectory_match\n    reference: 5\n",
            "x.yaml:4: evaluator 'a': reference: input should be a valid string",
        ),
        (
            "evaluators:\n  - name: a\n    type: python\n    call: no_colon\n",
            "x.yaml:4: evaluator 'a': call: string should match pattern",
        ),
        (
            "evaluators:\n  - name: a\n    type: python\n    call: m:f\n    timeout: soon\n",
            "x.yaml:5: evaluator 'a': timeout: 'soon' is not a duration; write for instance 5s",
        ),
        (
            "evaluators:\n  - name: a\n    type: python\n    call: m:f\n    where:\n"
            "      conditions:\n        - errors>0\n        - eror>0\n",
            "x.yaml:6: evaluator 'a': where.conditions: --where 'eror>0': unknown field 'eror'",
        ),
        (
            GOOD + "gates:\n  - {evaluator: a, min_pass_rate: high}\n",
            "x.yaml:4: gates.0.min_pass_rate",
        ),
        (
            GOOD + RULE,
            "x.yaml:3: two evaluators are called 'a'",
        ),
        (
            "evaluators:\n  - {name: refunds, type: python, call: 'm:f'}\ngates:\n"
            "  - {evaluator: refund}\n",
            "x.yaml:4: no evaluator is called 'refund'; did you mean 'refunds'?",
        ),
        (GOOD + "salt: a\nsalt: b\n", "x.yaml:4: 'salt' stands on line 3 already"),
        (
            "evaluators:\n  - name: a\n    type: python\n    name: b\n    call: m:f\n",
            "x.yaml:4: 'name' stands on line 2 already",
        ),
    ],
)
def test_a_fault_names_its_line_its_key_and_what_to_do(text: str, expected: str):
    """Every error is one line that begins with the file and the line."""
    assert fault(text).startswith(expected)


def test_all_faults_are_named_at_once_by_the_evaluators_name():
    """Each fault is one line, in the order of the file; alternatives of one value are one fault."""
    with pytest.raises(ConfigError) as caught:
        parse_config(
            "evaluators:\n"
            "  - {name: match, type: trajectory_match, moed: strict, sample: 2}\n"
            "  - {name: cost, type: cost, max_csot: 1}\n"
            "  - {name: order, type: tool_order, rules: [a before b], where: {conditions: [x>0]}}\n"
            "  - {name: calls, type: trajectory_match, reference: 5}\n"
            "  - {name: calls, type: loops, max_repeats: many}\n"
            "  - {name: what, type: lops}\n"
            "  - {type: loops}\n"
            "gates:\n"
            "  - {evaluator: mach, min_pass_rate: 1}\n"
            "  - {evaluator: cost, min_pass_rate: high}\n"
            "budgets: {costs: {max_cost_per_day: 1}}\n",
            "x.yaml",
        )

    lines = str(caught.value).split("\n")
    assert caught.value.faults == tuple(lines)
    starts = [
        "x.yaml:2: evaluator 'match': sample: ",
        "x.yaml:2: evaluator 'match': 'reference' is missing",
        "x.yaml:2: evaluator 'match': unknown key 'moed'; did you mean 'mode'?",
        "x.yaml:3: evaluator 'cost': unknown key 'max_csot'; did you mean 'max_cost'?",
        "x.yaml:4: evaluator 'order': where.conditions: ",
        "x.yaml:5: evaluator 'calls': reference: ",
        "x.yaml:6: evaluator 'calls': max_repeats: ",
        "x.yaml:6: two evaluators are called 'calls'",
        "x.yaml:7: evaluator 'what': 'type' must be one of ",
        "x.yaml:8: 'name' is missing in evaluators.6",
        "x.yaml:10: no evaluator is called 'mach'; did you mean 'match'?",
        "x.yaml:11: gates.1.min_pass_rate: ",
        "x.yaml:12: no evaluator is called 'costs'; did you mean 'cost'?",
    ]
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path):
    """A missing file, a folder and bytes that are not UTF-8 each have their error."""
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")

    for name, reason in (
        ("none.yaml", "no such file; oteval init writes one that fits your runs"),
        ("", "cannot be read"),
        ("b.yaml", "cannot be read"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {reason}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        (7, 7.0),
        ("7", 7.0),
    ],
)
def test_durations(text: Any, expected: float):
    """A duration is a number of seconds, or a number with a unit."""
    assert seconds(text) == expected


def test_the_schema_takes_the_demo_and_refuses_what_is_wrong():
    """The JSON schema that editors use agrees with the reader on good and on bad files."""
    schema = Config.model_json_schema()
    demo = yaml.safe_load((resources.files("oteval.cli.bundled_demo") / "oteval.yaml").read_text())

    assert valid(demo, schema, schema)
    assert not valid({**demo, "gate": []}, schema, schema)
    assert not valid({"evaluators": []}, schema, schema)
    assert not valid({"gates": []}, schema, schema)
    assert valid({"monitors": [{"measure": "latency"}]}, schema, schema)
    for change in ({"moed": "strict"}, {"mode": "stric"}, {"type": "other"}, {"sample": 2}):
        broken = {**demo, "evaluators": [{**demo["evaluators"][0], **change}]}
        assert not valid(broken, schema, schema), change


def valid(value: Any, schema: Any, root: Any) -> bool:
    """Return whether a value is valid by the part of JSON schema that the configuration uses."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    for kind in ("anyOf", "oneOf"):
        if kind in schema and not any(valid(value, option, root) for option in schema[kind]):
            return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        return False
    if isinstance(value, dict):
        return valid_mapping(value, schema, root)
    if isinstance(value, list):
        items = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(valid(v, items, root) for v in value)
    if isinstance(value, (int, float)):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


def valid_mapping(value: dict[str, Any], schema: Any, root: Any) -> bool:
    """Return whether a mapping has the keys that a schema asks for and no others."""
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not value.keys() >= set(schema.get("required", ())):
        return False
    others = [item for key, item in value.items() if key not in known]
    if others and rest is False:
        return False
    if isinstance(rest, dict) and not all(valid(item, rest, root) for item in others):
        return False
    return all(valid(value[key], part, root) for key, part in known.items() if key in value)


TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("type: cost", "'max_cost' is missing"),
        ("type: forbidden_tools, forbidden: true", "forbidden: input should be a list"),
        ("type: cost, max_cost: 1, prices: {m: 3}", "prices.m: input should be a mapping"),
    ],
)
def test_messages_speak_of_yaml_not_of_python(entry: str, message: str) -> None:
    """Required keys are named, and types are those of the file."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_config(f"evaluators:\n  - {{name: c, {entry}}}\n")
