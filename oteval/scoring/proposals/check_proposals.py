"""Checks that fit the runs: errors, loops, tools, their order, and budgets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...base.text import counted, listed
from .agent_groups import FEWEST_RUNS, AgentGroup, agent_groups
from .evidence import Evidence, RunFacts, is_plain
from .proposal import Proposal
from .tool_effects import ToolEffect

__all__ = ["check_proposals", "first_checks"]

_MOST_SHARE = 0.95
_NEARLY_ALL = 0.75
_MARGIN = 1.2
_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_MOST_PREDECESSORS = 3
_MOST_KNOWN = 40
_UNITS = {
    "cost": "US dollars",
    "errors": "failed tool calls",
    "repeats": "equal calls in a row",
    "total_tokens": "tokens",
}


def first_checks() -> list[Proposal]:
    """The checks that need no runs to be set up."""
    return [
        Proposal(
            "tool-errors",
            {"name": "tool-errors", "type": "tool_errors"},
            ("A run fails if a tool call failed.",),
        ),
        Proposal(
            "loops",
            {"name": "loops", "type": "loops"},
            ("A run fails if it makes the same calls three times in a row.",),
        ),
        Proposal(
            "finish-reason",
            {"name": "finish-reason", "type": "finish_reason"},
            ("A run fails if an answer was cut off or filtered.",),
        ),
    ]


def check_proposals(evidence: Evidence) -> Iterator[Proposal]:
    """Yield the checks that the evidence supports."""
    typical = [run for run in evidence.runs if run.label is not False]
    if any(run.calls for run in evidence.runs) or evidence.offered:
        yield _limit_of_count(typical, "errors", "tool-errors", "tool_errors", "max_errors", 0)
        yield _limit_of_count(typical, "repeats", "loops", "loops", "max_repeats", 2)
        if evidence.with_schemas:
            runs = counted(evidence.with_schemas, "run")
            yield Proposal(
                "tool-schema",
                {"name": "tool-schema", "type": "tool_schema"},
                (f"The definitions of tools are in the traces of {runs}.",),
            )
        yield from _forbidden(evidence)
    if any("finish_reason" in run.figures for run in evidence.runs):
        yield first_checks()[-1]
    for group in agent_groups(evidence):
        yield from _budgets(group)
        yield from _orders(evidence, group)


def _limit_of_count(
    runs: Sequence[RunFacts], figure: str, name: str, kind: str, option: str, default: int
) -> Proposal:
    """A check whose limit nearly all runs keep; its default if they keep that."""
    values = sorted(int(run.figures[figure]) for run in runs if figure in run.figures)
    limit = max(default, _quantile(values, _MOST_SHARE)) if values else default
    within = sum(value <= limit for value in values)
    entry = {"name": name, "type": kind, **({} if limit == default else {option: limit})}
    reasons = [
        f"{within:,} of {counted(len(values), 'run')} have at most {limit} {_UNITS[figure]}."
    ]
    if limit != default:
        reasons.append(f"The strict limit is {default}; lower it when the agent is mended.")
    return Proposal(name, entry, tuple(reasons) if values else ())


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest of some sorted values that a share of them does not exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def _forbidden(evidence: Evidence) -> Iterator[Proposal]:
    called = evidence.called()
    tools = sorted({*called, *evidence.offered})
    plain = [tool for tool in tools if is_plain(tool)]
    changing = [tool for tool in plain if evidence.effect(tool) is ToolEffect.DESTROYS]
    unused = [tool for tool in changing if not called[tool]]
    if unused:
        yield Proposal(
            "forbidden-tools",
            {"name": "forbidden-tools", "type": "forbidden_tools", "forbidden": unused},
            (
                "The agent may call these tools, they undo or destroy something, and no run "
                "called them.",
            ),
        )
    used = [tool for tool in changing if called[tool]]
    if used:
        counts = listed([f"{tool} in {counted(called[tool], 'run')}" for tool in used])
        yield Proposal(
            "forbidden-effects",
            {"name": "forbidden-effects", "type": "forbidden_tools", "forbidden": used},
            (
                "These tools undo or destroy something, but the runs call them: "
                f"{counts}. Uncomment this for an agent that may not.",
            ),
            is_active=False,
        )
    is_known = called.keys() <= evidence.offered.keys()
    if evidence.offered and is_known and plain == tools and len(tools) <= _MOST_KNOWN:
        yield Proposal(
            "known-tools",
            {"name": "known-tools", "type": "forbidden_tools", "allowed": tools},
            ("A run fails if it calls a tool that no run was offered until now.",),
            is_active=False,
        )


def _budgets(group: AgentGroup) -> Iterator[Proposal]:
    for name, kind, options in (
        ("budget-calls", "budget", {"steps": "max_steps", "tool_calls": "max_tool_calls"}),
        ("budget-tokens", "budget", {"total_tokens": "max_total_tokens"}),
        ("cost", "cost", {"cost": "max_cost"}),
        ("latency", "latency", {"seconds": "max"}),
    ):
        limits: dict[str, float | str] = {}
        reasons = []
        for figure, option in options.items():
            values = sorted(run.figures[figure] for run in group.runs if figure in run.figures)
            if not values or not values[-1] > 0:
                continue
            top = _quantile(values, 0.99)
            limit = _rounded_up(top, is_whole=figure not in ("cost", "seconds"))
            limits[option] = f"{max(limit, 1):g}s" if figure == "seconds" else limit
            share = "99% of " if len(values) >= 100 else ""
            unit = _UNITS.get(figure, figure.replace("_", " "))
            reasons.append(
                f"{share}{counted(len(values), group.noun[:-1])} have at most {top:,.4g} {unit}; "
                "the limit is a fifth more, rounded up."
            )
        if limits:
            evaluator = group.name(name)
            entry = {"name": evaluator, "type": kind, **limits, **group.where}
            yield Proposal(evaluator, entry, tuple(reasons))


def _rounded_up(value: float, *, is_whole: bool) -> float:
    """A round number that leaves a margin above a value."""
    least = value * _MARGIN
    if is_whole and least < 10:
        return math.ceil(least)
    power = 10.0 ** math.floor(math.log10(least))
    rounded = next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))
    return round(rounded) if is_whole else float(f"{rounded:.6g}")


def _orders(evidence: Evidence, group: AgentGroup) -> Iterator[Proposal]:
    """Rules about the tools that were called before a tool that changes something."""
    runs = [run for run in group.runs if run.is_complete]
    always, mostly, exceptions = [], [], []
    for tool in filter(is_plain, evidence.effect_tools()):
        calling = [run for run in runs if tool in run.tools]
        if len(calling) < FEWEST_RUNS:
            continue
        runs_by_tool = _runs_with_predecessor(calling, tool)
        for earlier, positions in list(runs_by_tool.items())[:_MOST_PREDECESSORS]:
            rule = f"{earlier} before {tool}"
            if len(positions) == len(calling):
                always.append((rule, len(calling)))
            elif len(positions) >= _NEARLY_ALL * len(calling):
                mostly.append((rule, len(positions), len(calling)))
                exceptions += [run.id for run in calling if run.id not in positions]
    if always:
        name = group.name("tool-order")
        reasons = [f"{rule}: so in all {count:,} {group.noun} with both." for rule, count in always]
        rules = [rule for rule, _ in always]
        entry = {"name": name, "type": "tool_order", "rules": rules, **group.where}
        yield Proposal(name, entry, tuple(reasons))
    if mostly:
        name = group.name("usual-tool-order")
        reasons = [
            f"{rule}: so in {count:,} of {total:,} {group.noun}." for rule, count, total in mostly
        ]
        names = listed([run_id[:12] for run_id in dict.fromkeys(exceptions)], 3)
        reasons.append(f"Look at the exceptions ({names}), and uncomment this if they are wrong.")
        rules = [rule for rule, *_ in mostly]
        entry = {"name": name, "type": "tool_order", "rules": rules, **group.where}
        yield Proposal(name, entry, tuple(reasons), is_active=False)


def _runs_with_predecessor(runs: Sequence[RunFacts], tool: str) -> dict[str, set[str]]:
    """The runs that called a tool before another one, by tool, the usual and nearest first."""
    distances: dict[str, dict[str, int]] = defaultdict(dict)
    for run in runs:
        first = next(call.at for call in run.calls if call.tool == tool)
        for call in run.calls:
            if call.at < first and call.tool != tool and is_plain(call.tool):
                distances[call.tool][run.id] = first - call.at

    def rank(item: tuple[str, dict[str, int]]) -> tuple[int, float, str]:
        earlier, by_run = item
        return -len(by_run), sum(by_run.values()) / len(by_run), earlier

    return {earlier: {*by_run} for earlier, by_run in sorted(distances.items(), key=rank)}
