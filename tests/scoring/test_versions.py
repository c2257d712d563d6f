"""Versions of evaluators: stored scores keep theirs when oteval is updated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oteval
from oteval.evaluators.scorer import version_of
from oteval.scoring import prepare
from oteval.scoring.config import parse_config
from oteval.store import MEMORY, Store

# An entry of oteval.yaml, and the version that it has had since scores are stored.
ENTRIES = {
    "tool_errors}": "d90e38318fb5",
    "tool_errors, max_errors: 2, tools: [a, 'b*'], error_pattern: 'no|nope', missing_ok: true}": (
        "5f29acbc796f"
    ),
    "loops}": "b4f3003f5c63",
    "loops, max_repeats: 3, max_equal: 4, max_cycle: 6, ignore_tools: [wait]}": "82acbe5d1839",
    "budget, max_steps: 10, max_tool_calls: 8, max_total_tokens: 20000}": "9ad084ac071d",
    "latency, max: 30s, max_tool: 5}": "9b64ae2616e4",
    "latency, max_tool: 2m, tools: [a]}": "61039bc7ffb0",
    "required_text, texts: abc}": "0493ea2c2e3f",
    "required_text, texts: ['a.c', d], match: none, said_by: anyone, regex: true, "
    "ignore_case: true, last_only: true}": "afd1a2d7e2ad",
    "final_answer, expected: 42}": "a02295115922",
    "final_answer, mode: numeric, tolerance: 1, relative_tolerance: 0.5, reference: r.json}": (
        "5bfbd6c0a9ad"
    ),
    "tool_schema}": "3ff77818be24",
    "tool_schema, definitions: t.json, unknown_tools: ignore}": "09e029d58441",
    "forbidden_tools, forbidden: ['x*', y]}": "9366b69097cf",
    "forbidden_tools, allowed: [y], scope: conversation}": "a6a86dbc41a6",
    "tool_order, rules: [a before b, never b after a]}": "86cd06e1c648",
    "graph_match, reference: g.json}": "3c9775fb9b09",
    "graph_match, mode: subset, score_type: f1, threshold: 0.5, reference: g.json}": (
        "b7984a53cc19"
    ),
    "trajectory_match, reference: r.json}": "3ce51f0b9bd9",
    "trajectory_match, mode: superset, tool_args: tolerant, overrides: {s: ignore, t: [a, b.c]}, "
    "view: writes, effect_tools: [z, y], error_pattern: '^no', score_type: f1, "
    "strict_order: true, missing_ok: false, threshold: 0.25, reference: r.json}": "213d56cb3d25",
    "judge, model: 'openai:gpt-4o'}": "688301d170c5",
    "judge, model: 'openai:gpt-4o', prompt: 'Rate {outputs} by {rubric} {x}', variables: "
    "{rubric: strict, x: y}, instruction_variables: [x], continuous: true, threshold: 0.5, "
    "samples: 3, system: s, temperature: 0.5, seed: 3, request: {max_tokens: 5}, few_shot: "
    "[{inputs: a, outputs: b, score: 1, reasoning: c}]}": "4139042c8b52",
}
# A function of oteval, its options, and the version of the evaluator that it creates.
CREATED: list[tuple[str, dict[str, Any], str]] = [
    ("create_tool_error_evaluator", {}, "12692459dff7"),
    ("create_tool_error_evaluator", {"tools": {"b", "a"}}, "be69bb6f6a46"),
    ("create_loop_evaluator", {"ignore_tools": ["x"]}, "3a83c57096c7"),
    ("create_budget_evaluator", {"max_steps": 1}, "9470e9d59bd6"),
    ("create_latency_evaluator", {"max_seconds": 1}, "d6941503c412"),
    ("create_required_text_evaluator", {"texts": "a"}, "4624d44a072c"),
    ("create_final_answer_evaluator", {"expected": 4, "mode": "normalised"}, "8375058c8bd1"),
    ("create_tool_schema_evaluator", {}, "0b14e936cc7a"),
    ("create_forbidden_tools_evaluator", {"allowed": {"b", "a"}}, "d339e2cd798a"),
    ("create_tool_order_evaluator", {"rules": "a before b"}, "61ea4d5ad92b"),
    ("create_trajectory_match_evaluator", {}, "f3854360bd7c"),
    (
        "create_trajectory_match_evaluator",
        {
            "trajectory_match_mode": "unordered",
            "tool_args_match_mode": "tolerant",
            "tool_args_match_overrides": {"a": ["x"]},
            "view": "effects",
            "effect_tools": ["z", "a"],
            "error_pattern": "^x",
            "score_type": "recall",
            "strict_order": True,
            "missing_ok": False,
        },
        "8a9e790f2937",
    ),
    ("create_graph_trajectory_match_evaluator", {}, "108660b2712f"),
]


def _name(options: str) -> str:
    """Return a name for an evaluator; a judge's is part of its version."""
    return {"judge, model: 'openai:gpt-4o'}": "e29"}.get(options, "e30")


@pytest.mark.parametrize("options", ENTRIES)
def test_an_entry_of_oteval_yaml_keeps_its_version(tmp_path: Path, options: str) -> None:
    """The version is a hash of all that a verdict depends on, and of nothing else."""
    (tmp_path / "r.json").write_text(
        json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "42"}])
    )
    (tmp_path / "g.json").write_text('{"steps": [["a", "b"]]}')
    (tmp_path / "t.json").write_text('[{"name": "t", "parameters": {"type": "object"}}]')
    config = parse_config(f"evaluators:\n  - {{name: {_name(options)}, type: {options}")

    with Store(MEMORY) as store:
        (prepared,) = prepare(config, store, tmp_path)

    assert prepared.scorer.version == ENTRIES[options]


@pytest.mark.parametrize(("create", "options", "expected"), CREATED)
def test_a_created_evaluator_keeps_its_version(
    create: str, options: dict[str, Any], expected: str
) -> None:
    """Experiments store the hash of `describe()`."""
    assert version_of(getattr(oteval, create)(**options).describe()) == expected
