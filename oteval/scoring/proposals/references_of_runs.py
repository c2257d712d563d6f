"""References of runs that agree with each other, and the match that they agree by.

A case is a question, or the value of an attribute. The **form** of a match is its mode, its view
and the fields that it ignores. The strictest form by which the runs of most cases agree is
proposed, and the fields that vary among runs of a case are ignored.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.jsontext import canonical, dumps
from ...base.text import counted, listed
from .agent_groups import FEWEST_RUNS, AgentGroup
from .evidence import FREE_TEXT, QUESTION, CallFacts, Evidence, RunFacts
from .proposal import Proposal

__all__ = [
    "MatchForm",
    "ProposedReferences",
    "case_filter",
    "match_proposals",
    "messages_of",
    "reference_lines",
    "runs_by_case",
    "varying_fields",
    "without_failed_calls",
]

_AGREED, _USABLE = 0.8, 0.6
_MOST_CASES, _MOST_FILTERED = 200, 20
_LONGEST_FILTER = 2000  # characters of all cases
_MOST_ALTERNATIVES = 4
_NEARLY_ALL = 0.75
_NO_ARGUMENTS = ("{}", "null")


@dataclass(frozen=True)
class MatchForm:
    """How a match compares calls.

    Attributes:
        mode: The mode.
        view: The view.
        ignored: The fields that do not count, by tool.
        sets: The fields whose lists are compared as sets.
    """

    mode: str
    view: str
    ignored: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sets: frozenset[str] = frozenset()

    def options(self, effect_tools: Sequence[str]) -> dict[str, Any]:
        """The options of a ``trajectory_match`` in oteval.yaml."""
        options: dict[str, Any] = {"mode": self.mode}
        if self.view != "all":
            options |= {"view": self.view, "effect_tools": list(effect_tools)}
        tolerant = {"tolerant": {"sets": sorted(self.sets)}} if self.sets else None
        if tolerant:
            options["tool_args"] = tolerant
        overrides: dict[str, Any] = {}
        for tool, names in sorted(self.ignored.items()):
            fields = dict.fromkeys(sorted(names), "ignore")
            overrides[tool] = (
                {"tolerant": {"sets": sorted(self.sets), "fields": fields}} if tolerant else fields
            )
        if overrides:
            options["overrides"] = overrides
        return options

    def calls(self, run: RunFacts, effect_tools: Sequence[str]) -> list[CallFacts]:
        """The calls of a run that count."""
        if self.view == "all":
            return list(run.calls)
        return [call for call in run.calls if call.tool in effect_tools and not call.failed]

    def signature(self, run: RunFacts, effect_tools: Sequence[str]) -> Any:
        """A value that runs share if they match each other."""
        keys = [(call.at, self.key(call)) for call in self.calls(run, effect_tools)]
        if self.mode == "strict":
            return run.roles, tuple(sorted(keys))
        return tuple(sorted(key for _, key in keys))

    def key(self, call: CallFacts) -> tuple[str, str]:
        """A value that calls share if they count as equal."""
        arguments = call.arguments
        if isinstance(arguments, Mapping):
            ignored = self.ignored.get(call.tool, frozenset())
            arguments = {
                name: sorted(value, key=canonical)
                if name in self.sets and isinstance(value, list)
                else value
                for name, value in arguments.items()
                if name not in ignored
            }
        return call.tool, canonical(arguments)


@dataclass(frozen=True)
class ProposedReferences:
    """Proposed matches, and the files of their references.

    Attributes:
        proposals: The proposals.
        files: The content of files by their paths beside oteval.yaml.
        notes: Why no match is proposed; empty if one is.
    """

    proposals: list[Proposal]
    files: dict[str, str]
    notes: list[str]


def match_proposals(evidence: Evidence, group: AgentGroup) -> ProposedReferences:
    """Propose the tools that a run must call, and a match with references."""
    required = _required_tools(group)
    by_case = {
        case: [run for run in runs if run.is_comparable]
        for case, runs in runs_by_case(evidence, group.runs).items()
    }
    cases = {
        case: runs
        for case, runs in by_case.items()
        if len(runs) > 1 or any(run.label for run in runs)
    }
    if not any(len(runs) > 1 for runs in cases.values()):
        note = (
            "No two runs are about the same case, so nothing shows which calls a run should make: "
            "record a question again, or label good runs (oteval judge label RUN pass)."
        )
        return ProposedReferences(required.proposals, required.files, [note])
    effects = evidence.effect_tools()
    form, share = _agreed_form(cases, effects)
    if form is None:
        note = (
            f"Runs of the same case make different calls (at best {share:.0%} agree), so no "
            "reference is proposed: label good runs (oteval judge label RUN pass), then oteval "
            "learn."
        )
        return ProposedReferences(required.proposals, required.files, [note])
    match = _match(evidence, group, form, share, cases)
    return ProposedReferences(
        [*required.proposals, *match.proposals], required.files | match.files, []
    )


def runs_by_case(evidence: Evidence, runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Runs by case, the case with most runs first; later turns have no case by their question."""
    ordered = sorted(evidence.by_case(runs).items(), key=lambda item: (-len(item[1]), item[0]))
    return dict(ordered[:_MOST_CASES])


def _agreed_form(
    cases: Mapping[str, Sequence[RunFacts]], effects: Sequence[str]
) -> tuple[MatchForm | None, float]:
    """The strictest form by which most runs agree with their case's other runs, and their share."""
    forms = []
    for mode, view in (("strict", "all"), ("unordered", "all"), ("unordered", "effects")):
        if view == "all" or effects:
            ignored, sets = varying_fields(cases, MatchForm(mode, view), effects)
            forms.append(MatchForm(mode, view, ignored, sets))
    best, best_share = None, 0.0
    for form in forms:
        has_calls = any(form.calls(run, effects) for runs in cases.values() for run in runs)
        share = _agreement(cases, form, effects) if has_calls else 0.0
        if share >= _AGREED:
            return form, share
        if share > best_share:
            best, best_share = form, share
    if best_share >= _USABLE:
        return best, best_share
    return _superset_form(cases, effects, best_share)


def _superset_form(
    cases: Mapping[str, Sequence[RunFacts]], effects: Sequence[str], best_share: float
) -> tuple[MatchForm | None, float]:
    """The form of the calls that all runs of a case have in common, if most cases have any."""
    plain = MatchForm("superset", "all")
    ignored, sets = varying_fields(cases, plain, effects)
    form = MatchForm("superset", "all", ignored, sets)
    several = [runs for runs in cases.values() if len(runs) >= FEWEST_RUNS]
    covered = sum(len(runs) for runs in several if _common_calls(runs, form))
    total = sum(map(len, cases.values()))
    if several and covered >= _AGREED * total:
        return form, covered / total
    return None, best_share


def _common_calls(runs: Sequence[RunFacts], form: MatchForm) -> list[CallFacts]:
    """The calls of the first run that all others make as well, by arguments that count."""
    counts = [Counter(map(form.key, run.calls)) for run in runs]
    common = counts[0]
    for other_counts in counts[1:]:
        common &= other_counts
    calls = []
    for call in runs[0].calls:
        key = form.key(call)
        if common[key] > 0 and key[1] not in _NO_ARGUMENTS:
            common[key] -= 1
            calls.append(call)
    return calls


def _agreement(
    cases: Mapping[str, Sequence[RunFacts]], form: MatchForm, effects: Sequence[str]
) -> float:
    agreeing = total = 0
    for runs in cases.values():
        if len(runs) > 1:
            counts = Counter(form.signature(run, effects) for run in runs)
            largest = max(counts.values())
            agreeing += largest if largest > 1 else 0
            total += len(runs)
    return agreeing / total if total else 0.0


def varying_fields(
    cases: Mapping[str, Sequence[RunFacts]], form: MatchForm, effects: Sequence[str]
) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """The fields that vary among runs of a case, by tool; and the lists whose order varies.

    A field varies if it is free text with several values, or if no value of it is that of most
    runs. A field with one odd value does not vary: the odd run may be wrong.
    """
    values: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
    for runs in cases.values():
        by_tool: dict[tuple[str, int, str], list[Any]] = defaultdict(list)
        for run in runs:
            numbers: Counter[str] = Counter()
            for call in form.calls(run, effects):
                if isinstance(call.arguments, Mapping):
                    for name, value in call.arguments.items():
                        by_tool[call.tool, numbers[call.tool], str(name)].append(value)
                numbers[call.tool] += 1
        for (tool, _, name), observed in by_tool.items():
            if len(observed) > 1:
                values[tool, name].append(observed)
    ignored: dict[str, set[str]] = defaultdict(set)
    sets: set[str] = set()
    for (tool, name), cases_values in values.items():
        if any(map(_differ_in_order, cases_values)):
            sets.add(name)
        elif 2 * sum(map(_varies, cases_values)) >= len(cases_values):
            ignored[tool].add(name)
    return {tool: frozenset(names) for tool, names in ignored.items()}, frozenset(sets)


def _differ_in_order(values: Sequence[Any]) -> bool:
    if not all(isinstance(value, list) for value in values):
        return False
    texts = {canonical(value) for value in values}
    return len(texts) > len({canonical(sorted(value, key=canonical)) for value in values})


def _varies(values: Sequence[Any]) -> bool:
    counts = Counter(map(canonical, values))
    if len(counts) == 1:
        return False
    is_text = all(isinstance(value, str) for value in values)
    if is_text and any(len(value) >= FREE_TEXT and " " in value for value in values):
        return True
    return len(values) >= FEWEST_RUNS and 2 * max(counts.values()) <= len(values)


def _match(
    evidence: Evidence,
    group: AgentGroup,
    form: MatchForm,
    share: float,
    cases: Mapping[str, Sequence[RunFacts]],
) -> ProposedReferences:
    effects = evidence.effect_tools()
    accepted: dict[str, list[RunFacts]] = {}
    for case, runs in cases.items():
        if form.mode != "superset":
            accepted[case] = _accepted(runs, form, effects)
        elif common := _common_calls(runs, form):
            accepted[case] = [replace(runs[0], calls=tuple(common))]
    accepted = {case: runs for case, runs in accepted.items() if runs}
    name = group.name("reference-calls")
    path = f"references/{name}.jsonl"
    labelled = sum(any(run.label for run in runs) for runs in accepted.values())
    good = f" or were labelled good ({labelled})" if labelled else ""
    number = counted(len(accepted), "case")
    if form.mode == "superset":
        reasons = [
            f"References for {number} by {evidence.key}: the calls that all runs of the case make.",
            "Apart from them, runs of the same case make different calls.",
        ]
    else:
        reasons = [
            f"References for {number} by {evidence.key}, of runs that agree with each other{good}.",
            f"{share:.0%} of the runs of a case agree in this form; it is the strictest that fits.",
        ]
    if form.ignored:
        fields = [
            f"{tool}.{name}" for tool in sorted(form.ignored) for name in sorted(form.ignored[tool])
        ]
        reasons.append(f"Ignored, because they vary among runs of a case: {listed(fields)}.")
    if form.sets:
        reasons.append(
            f"Compared as sets, because only their order varies: {listed(sorted(form.sets))}."
        )
    entry = {
        "name": name,
        "type": "trajectory_match",
        **form.options(effects),
        "reference": {"dataset": path, "key": evidence.key},
        **case_filter(evidence, group, list(accepted)),
    }
    if form.view == "effects":
        accepted = {case: [*map(without_failed_calls, runs)] for case, runs in accepted.items()}
    text = reference_lines(evidence.key, accepted, is_strict=form.mode == "strict")
    return ProposedReferences([Proposal(name, entry, tuple(reasons))], {path: text}, [])


def _accepted(runs: Sequence[RunFacts], form: MatchForm, effects: Sequence[str]) -> list[RunFacts]:
    """A run for each way that is right: the good ones, or else the way that most runs took."""
    by_signature: dict[Any, list[RunFacts]] = defaultdict(list)
    for run in runs:
        by_signature[form.signature(run, effects)].append(run)
    ways = sorted(by_signature.values(), key=len, reverse=True)
    good = [way for way in ways if any(run.label for run in way)]
    if good:
        return [way[0] for way in good[:_MOST_ALTERNATIVES]]
    return [ways[0][0]] if ways and len(ways[0]) > 1 else []


def case_filter(evidence: Evidence, group: AgentGroup, cases: Sequence[str]) -> dict[str, Any]:
    """The ``where`` of an entry about some cases; with many cases, it does not name them."""
    where = dict(group.where.get("where", {}))
    later = any(run.turn > 1 for run in evidence.runs)
    is_short = len(cases) <= _MOST_FILTERED and sum(map(len, cases)) <= _LONGEST_FILTER
    if evidence.key == QUESTION:
        if is_short and not any(case.startswith("~") for case in cases):
            where["asked"] = list(cases)
        if later:
            where["conditions"] = ["turn=1"]
    elif is_short:
        where["attributes"] = {evidence.key: list(cases)}
    return {"where": where} if where else {}


def reference_lines(
    key: str, accepted: Mapping[str, Sequence[RunFacts]], *, is_strict: bool = False
) -> str:
    """A dataset of references, a JSON line for each case."""
    lines = []
    for case, runs in accepted.items():
        references = [messages_of(run, is_strict=is_strict) for run in runs]
        named = {
            f"run {run.id[:12]}": reference for run, reference in zip(runs, references, strict=True)
        }
        messages = references[0] if len(references) == 1 else {"any": named}
        lines.append(dumps({key: case, "messages": messages}))
    return "\n".join(lines) + "\n"


def without_failed_calls(run: RunFacts) -> RunFacts:
    """A run as a reference of effects: every write of a reference counts, also a failed one."""
    return replace(run, calls=tuple(call for call in run.calls if not call.failed))


def messages_of(run: RunFacts, *, is_strict: bool = False) -> list[dict[str, Any]]:
    """The messages of a run as a reference: its question and its calls, without other content.

    Args:
        run: The run.
        is_strict: Whether to keep messages without calls, whose roles a strict match compares.
    """
    messages = []
    has_question = False
    for at, role in enumerate(run.roles):
        calls = [call for call in run.calls if call.at == at]
        message: dict[str, Any] = {"role": role, "content": ""}
        if role == "user" and not has_question:
            has_question, message["content"] = True, run.question
        elif not calls and not is_strict:
            continue
        if calls:
            message["tool_calls"] = [
                {"function": {"name": call.tool, "arguments": dumps(call.arguments)}}
                for call in calls
            ]
        messages.append(message)
    return messages


def _required_tools(group: AgentGroup) -> ProposedReferences:
    runs = [run for run in group.runs if run.is_complete]
    counts = Counter(tool for run in runs for tool in run.tools if tool)
    proposals, files = [], {}
    for base, is_active in (("required-tools", True), ("usual-tools", False)):
        least = len(runs) if is_active else math.ceil(_NEARLY_ALL * len(runs))
        tools = sorted(tool for tool, count in counts.items() if count >= least)
        if not is_active:
            tools = [tool for tool in tools if counts[tool] < len(runs)]
        if len(runs) < FEWEST_RUNS or not tools:
            continue
        name = group.name(base)
        path = f"references/{name}.json"
        calls = [{"function": {"name": tool, "arguments": "{}"}} for tool in tools]
        files[path] = dumps([{"role": "assistant", "tool_calls": calls}]) + "\n"
        proposals.append(
            Proposal(
                name,
                {
                    "name": name,
                    "type": "trajectory_match",
                    "mode": "superset",
                    "tool_args": "ignore",
                    "reference": path,
                    **group.where,
                },
                tuple(_required_reasons(group, tools, counts, len(runs), is_active=is_active)),
                is_active=is_active,
            )
        )
    return ProposedReferences(proposals, files, [])


def _required_reasons(
    group: AgentGroup,
    tools: Sequence[str],
    counts: Mapping[str, int],
    runs: int,
    *,
    is_active: bool,
) -> Iterator[str]:
    if is_active:
        yield f"All {runs:,} {group.noun} with known calls call {listed(tools)}."
    else:
        usual = listed([f"{tool} ({counts[tool]:,})" for tool in tools])
        yield f"Most of {runs:,} {group.noun} call {usual}. Uncomment this if all must."
