"""The rules that `learned_rules` chooses from: matches and checks, in the order of preference.

Preferred is the rule that people would write first. A match of successful changes with a reference
comes before a match of all calls, exact arguments before tolerant ones, and matches before checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.jsontext import dumps
from ...evaluators import Evaluator
from ...model import Reference
from ..config import EvaluatorSettings, parse_config
from .agent_groups import file_name
from .evidence import FREE_TEXT, Evidence, RunFacts, is_plain

__all__ = ["RuleCandidate", "rule_candidates"]

_MOST_TOOLS = 12
_LOOSE_MODES = ("unordered", "superset", "subset")
_QUANTILES = (0.5, 0.75, 0.9)


class RuleCandidate(NamedTuple):
    """One evaluator that a rule may have.

    Attributes:
        entry: Its entry in oteval.yaml, without its name and references by case.
        evaluator: The evaluator.
        needs_reference: Whether it compares a run with the reference of its case.
        fixed: The reference of all runs, if it has one.
    """

    entry: Mapping[str, Any]
    evaluator: Evaluator
    needs_reference: bool = False
    fixed: Reference | None = None

    @property
    def shows_effects(self) -> bool:
        """Whether failed calls do not count."""
        return self.entry.get("view") == "effects"

    @property
    def reference_file(self) -> str:
        """The file of references that are made of good runs."""
        return f"references/learned-{'effects' if self.shows_effects else 'calls'}.jsonl"


def rule_candidates(
    evidence: Evidence, runs: Sequence[RunFacts], *, has_references: bool
) -> list[RuleCandidate]:
    """The candidates, the preferred ones first.

    Args:
        evidence: The facts about all runs.
        runs: The labelled runs. Their labels are not used.
        has_references: Whether runs have references.
    """
    candidates = list(_matches(evidence, runs)) if has_references else []
    candidates += map(_check, _check_entries(evidence, runs))
    return [*candidates, *_tool_candidates(runs)]


def _matches(evidence: Evidence, runs: Sequence[RunFacts]) -> Iterator[RuleCandidate]:
    sure, wide = evidence.effect_tools(), evidence.effect_tools(with_unknown=True)
    toolsets = [tools for tools in (sure, wide if wide != sure else []) if tools]
    views: list[dict[str, Any]] = [
        {"view": view, "effect_tools": tools}
        for view in ("effects", "writes")
        for tools in toolsets
    ]
    arguments = list(_argument_options(runs))
    for view in [*views, {}]:
        for mode in ("unordered", "superset", "subset", "in_order", "strict"):
            for options in arguments if mode in _LOOSE_MODES else arguments[:1]:
                entry = {"type": "trajectory_match", "mode": mode, **view, **options}
                evaluator = _settings({**entry, "reference": "r.json"}).evaluator
                yield RuleCandidate(entry, evaluator, needs_reference=True)


def _argument_options(runs: Sequence[RunFacts]) -> Iterator[dict[str, Any]]:
    """Yield ways to compare arguments: exactly first, then ever more loosely."""
    yield {}
    lists, texts = set(), set()
    for run in runs:
        for call in run.calls:
            for name, value in _items(call.arguments):
                if isinstance(value, list) and len(value) > 1:
                    if not any(isinstance(item, (dict, list)) for item in value):
                        lists.add(name)
                elif isinstance(value, str) and len(value) >= FREE_TEXT and " " in value:
                    texts.add((call.tool, name))
    yield {"tool_args": {"tolerant": {"sets": sorted(lists)}} if lists else "tolerant"}
    if texts:
        overrides: dict[str, dict[str, str]] = {}
        for tool, name in sorted(texts):
            overrides.setdefault(tool, {})[name] = "ignore"
        yield {"overrides": overrides}
    yield {"tool_args": "subset"}
    yield {"tool_args": "ignore"}


def _items(arguments: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(arguments, Mapping):
        yield from ((str(name), value) for name, value in arguments.items())


def _check_entries(evidence: Evidence, runs: Sequence[RunFacts]) -> Iterator[dict[str, Any]]:
    for limit in range(4):
        yield {"type": "tool_errors", "max_errors": limit}
    for limit in (1, 2, 3):
        yield {"type": "loops", "max_repeats": limit}
    yield {"type": "finish_reason"}
    if evidence.with_schemas:
        yield {"type": "tool_schema"}
    for figure, kind, option in (
        ("tool_calls", "budget", "max_tool_calls"),
        ("steps", "budget", "max_steps"),
        ("total_tokens", "budget", "max_total_tokens"),
        ("seconds", "latency", "max"),
    ):
        values = sorted(run.figures[figure] for run in runs if figure in run.figures)
        highest = {values[int(share * (len(values) - 1))] for share in _QUANTILES if values}
        for figure_limit in sorted(highest - {0}, reverse=True):
            yield {"type": kind, option: figure_limit}
    changing = set(evidence.effect_tools())
    pairs: Counter[tuple[str, str]] = Counter()
    for run in runs:
        firsts: dict[str, int] = {}
        for call in run.calls:
            firsts.setdefault(call.tool, call.at)
        pairs.update(
            (early, late)
            for late, at in firsts.items()
            if late in changing
            for early, earlier in firsts.items()
            if earlier < at and early
        )
    for (early, late), _ in pairs.most_common(_MOST_TOOLS):
        if is_plain(early) and is_plain(late):
            yield {"type": "tool_order", "rules": [f"{early} before {late}"]}


def _tool_candidates(runs: Sequence[RunFacts]) -> Iterator[RuleCandidate]:
    """Yield, for tools that some runs call and others do not, that they must or must not."""
    counts = Counter(tool for run in runs for tool in run.tools if tool)
    varying = [tool for tool, count in counts.items() if count < len(runs)]
    chosen = sorted(varying, key=lambda tool: (-counts[tool], tool))[:_MOST_TOOLS]
    for number, tool in enumerate(chosen, 1):
        if is_plain(tool):
            yield _check({"type": "forbidden_tools", "forbidden": [tool]})
        calls = [{"function": {"name": tool, "arguments": "{}"}}]
        reference = Reference(tool, ({"role": "assistant", "tool_calls": calls},))
        entry = {
            "type": "trajectory_match",
            "mode": "superset",
            "tool_args": "ignore",
            "reference": f"references/required-{number}-{file_name(tool)}.json",
        }
        yield RuleCandidate(entry, _settings(entry).evaluator, fixed=reference)


def _check(entry: Mapping[str, Any]) -> RuleCandidate:
    return RuleCandidate(entry, _settings(entry).evaluator)


def _settings(entry: Mapping[str, Any]) -> EvaluatorSettings:
    return parse_config(
        dumps({"evaluators": [{**entry, "name": "learned"}]}), "the candidates"
    ).evaluators[0]
