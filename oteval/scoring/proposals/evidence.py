"""The facts about runs that proposals are made of.

A run is read once, and only these facts stay in memory: its calls, the shape of its messages, the
figures of checks, and its label. `oteval.evaluators` measures the figures, so that a proposed limit
and the verdict by it agree.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ...base.jsontext import canonical
from ...evaluators import (
    EvaluationContext,
    Evaluator,
    NotEvaluated,
    definitions_by_name,
    evaluator_class,
    schemas_of,
)
from ...model import CASE_ATTRIBUTES, Trajectory, call_errors, normal_text
from .tool_effects import ToolEffect, effect_of

__all__ = [
    "FREE_TEXT",
    "QUESTION",
    "CallFacts",
    "Evidence",
    "RunFacts",
    "is_case_name",
    "is_plain",
    "read_evidence",
]

QUESTION = "question"
"""The key of cases that are named by their questions, as in oteval.yaml."""
FREE_TEXT = 25
"""The length (characters) from which an argument with spaces is free text."""
_PLAIN_NAME = re.compile(r"[\w.:/-]+")
_CASE_NAME = re.compile(
    r"(?:^|[._-])(?:task|case|example|scenario|problem|sample|question)(?:[._-]?(?:id|name))$", re.I
)
_LONGEST_ARGUMENTS, _MOST_ARGUMENTS = 4000, 20_000  # characters of a call, of a run
_LONGEST_QUESTION = 2000
_NO_LIMIT = 10**15
# A figure of a run: the type of the check that measures it, the options, and its name there.
_FIGURES: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "errors": ("tool_errors", {}, "errors"),
    "repeats": ("loops", {}, "repeats"),
    "steps": ("budget", {"max_steps": _NO_LIMIT}, "steps"),
    "tool_calls": ("budget", {"max_tool_calls": _NO_LIMIT}, "tool_calls"),
    "total_tokens": ("budget", {"max_total_tokens": _NO_LIMIT}, "total_tokens"),
    "cost": ("budget", {"max_cost": float(_NO_LIMIT)}, "cost"),
    "seconds": ("latency", {"max_seconds": float(_NO_LIMIT)}, "seconds"),
    "finish_reason": ("finish_reason", {}, ""),
}


class CallFacts(NamedTuple):
    """A tool call.

    Attributes:
        tool: The tool's name.
        arguments: Its arguments; None if they were not captured or are too long to compare here.
        at: The number of its message in the run.
        failed: Whether its result is an error; None without a result.
    """

    tool: str
    arguments: Any
    at: int
    failed: bool | None

    @property
    def key(self) -> tuple[str, str]:
        """The tool and its arguments; equal calls have equal keys."""
        return self.tool, canonical(self.arguments)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run.

    Attributes:
        id: The run's id.
        agent: Its first agent, or "".
        turn: Its number in its conversation.
        question: Its question, without differences in white space; "" if it is not known.
        attributes: The attributes that may name its case.
        roles: The roles of its messages.
        calls: Its calls.
        tools: The tools that it called.
        is_complete: Whether the trace shows all calls.
        figures: The figures of checks, as far as the trace shows them.
        label: Whether it is good, by a person or a reward; None if nobody has said so.
    """

    id: str
    agent: str
    turn: int
    question: str
    attributes: Mapping[str, str]
    roles: tuple[str, ...]
    calls: tuple[CallFacts, ...]
    tools: frozenset[str]
    is_complete: bool
    figures: Mapping[str, float]
    label: bool | None

    def case(self, key: str) -> str:
        """The name of its case by an attribute, or by its question; "" without a name."""
        return self.question if key == QUESTION else self.attributes.get(key, "")

    @property
    def is_comparable(self) -> bool:
        """Whether all calls and their arguments are known."""
        return self.is_complete and all(call.arguments is not None for call in self.calls)


@dataclass
class Evidence:
    """The facts about all runs, and the tools that were offered to them.

    Attributes:
        runs: The runs, the oldest first.
        definitions: The tools' definitions by name.
        offered: The number of runs that a tool was offered to.
        with_schemas: The number of runs whose trace has a schema of a tool.
        key: The attribute that names cases, or `QUESTION`.
    """

    runs: list[RunFacts] = field(default_factory=list)
    definitions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    offered: Counter[str] = field(default_factory=Counter)
    with_schemas: int = 0
    key: str = QUESTION

    def by_case(self, runs: Iterable[RunFacts]) -> dict[str, list[RunFacts]]:
        """Runs by case; the question of a later turn names no case."""
        runs_by_case: dict[str, list[RunFacts]] = defaultdict(list)
        for run in runs:
            case = run.case(self.key)
            if case and (self.key != QUESTION or run.turn <= 1):
                runs_by_case[case].append(run)
        return runs_by_case

    def effect(self, tool: str) -> ToolEffect:
        """The effect of a tool's calls."""
        return effect_of(tool, self.definitions.get(tool))

    def called(self) -> Counter[str]:
        """The number of runs that called each tool."""
        return Counter(tool for run in self.runs for tool in run.tools)

    def effect_tools(self, *, with_unknown: bool = False) -> list[str]:
        """The tools that change something, as far as names and descriptions show it.

        Args:
            with_unknown: Also the tools whose effect is not known.
        """
        effects = {ToolEffect.WRITES, ToolEffect.DESTROYS}
        if with_unknown:
            effects.add(ToolEffect.UNKNOWN)
        tools = {*self.called(), *self.offered}
        return sorted(tool for tool in tools if self.effect(tool) in effects)


def read_evidence(
    runs: Iterable[Trajectory], labels: Mapping[str, bool], key: str | None = None
) -> Evidence:
    """Read the facts about runs.

    Args:
        runs: The runs.
        labels: Whether a run is good, by its id.
        key: The attribute that names the case of a run, or `QUESTION`; None to look for one.
    """
    evidence = Evidence()
    for run in runs:
        evidence.runs.append(_facts_of(run, labels.get(run.id), key))
        schemas = schemas_of(run.tools) if run.tools else {}
        evidence.with_schemas += any(isinstance(schema, Mapping) for schema in schemas.values())
        definitions = definitions_by_name(run.tools)
        evidence.offered.update(definitions.keys())
        evidence.definitions.update(definitions)
    evidence.key = key or _case_key(evidence.runs)
    return evidence


def _facts_of(run: Trajectory, label: bool | None, key: str | None) -> RunFacts:
    messages = run.own_messages
    context = EvaluationContext(messages, run)
    failures = call_errors(messages)
    question = normal_text((run.question.content if run.question else "") or "")
    return RunFacts(
        id=run.id,
        agent=run.agents[0] if run.agents else run.agent,
        turn=run.turn,
        question=question if len(question) <= _LONGEST_QUESTION else "",
        attributes={
            name: str(value)
            for name, value in run.attributes.items()
            if name == key or is_case_name(name)
        },
        roles=tuple(message.role for message in messages),
        calls=tuple(_calls_of(context, failures)),
        tools=frozenset(call.call.name for call in context.calls),
        is_complete=_shows_all_calls(context),
        figures=_figures_of(context),
        label=label,
    )


def is_case_name(name: str) -> bool:
    """Whether an attribute may name a run's case, such as ``task_id``."""
    return name in CASE_ATTRIBUTES or _CASE_NAME.search(name) is not None


def is_plain(tool: str) -> bool:
    """Whether patterns and sentences about tools can have a tool's name as it is."""
    return _PLAIN_NAME.fullmatch(tool) is not None


def _calls_of(context: EvaluationContext, failures: Sequence[bool | None]) -> Iterator[CallFacts]:
    """Yield the calls, those after many long arguments without theirs, to bound the memory."""
    total = 0
    for call in context.calls:
        arguments = call.call.arguments
        length = len(arguments) if isinstance(arguments, str) else len(canonical(arguments))
        total += length
        if length > _LONGEST_ARGUMENTS or total > _MOST_ARGUMENTS:
            arguments = None
        yield CallFacts(call.call.name, arguments, call.at, failures[call.index])


def _shows_all_calls(context: EvaluationContext) -> bool:
    try:
        context.require_all_calls()
    except NotEvaluated:
        return False
    return True


@cache
def _measures() -> Mapping[str, tuple[Evaluator, str]]:
    return {
        name: (evaluator_class(kind)(**options), figure)
        for name, (kind, options, figure) in _FIGURES.items()
    }


def _figures_of(context: EvaluationContext) -> dict[str, float]:
    figures = {}
    for name, (check, figure) in _measures().items():
        if check.needs_messages and not context.messages:
            continue
        try:
            result = check.evaluate(context)
        except NotEvaluated:
            continue
        value = result.metadata.get(figure) if figure else float(bool(result.passed))
        if isinstance(value, list):  # the bounds of a cost
            value = value[-1]
        if value is not None:
            figures[name] = value
    return figures


def _case_key(runs: Sequence[RunFacts]) -> str:
    """The attribute that names cases: known names first, then names such as ``task_id``."""
    names = Counter(name for run in runs for name in run.attributes)
    ranked = sorted(
        names,
        key=lambda name: (
            CASE_ATTRIBUTES.index(name) if name in CASE_ATTRIBUTES else len(CASE_ATTRIBUTES),
            -names[name],
            name,
        ),
    )
    return next((name for name in ranked if 2 * names[name] > len(runs)), QUESTION)
