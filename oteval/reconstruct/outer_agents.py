"""Agent spans that only hold other agents' runs.

Such a span is a wrapper, unless it answers something of its own. What it knows of the one run that
it holds (a name, what was asked, what was answered) is that run's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..jsontext import dumps
from ..model import Gap
from .readings import AgentRun
from .runs import Run

__all__ = ["without_wrappers"]


def without_wrappers(found: Sequence[Run]) -> list[Run]:
    """Return the runs with those that only hold others replaced by what they hold.

    Args:
        found: The runs of one tree, parents before children; they are changed.
    """
    children: dict[int, list[Run]] = defaultdict(list)
    for run in found:
        if run.parent is not None:
            children[id(run.parent)].append(run)
    gone: set[int] = set()
    kept: list[Run] = []
    gaps: list[Gap] = []
    for run in found:
        while run.parent is not None and id(run.parent) in gone:
            run.parent_tool = run.parent_tool or run.parent.parent_tool
            run.parent = run.parent.parent
        if not run.is_wrapper or _adds_answer(run, children):
            kept.append(run)
            continue
        _hand_down(run, children[id(run)])
        gone.add(id(run))
        gaps.extend(run.gaps)
    kept[0].gaps.extend(gaps)
    return kept


def _hand_down(run: Run, held: Sequence[Run]) -> None:
    """Give the one agent that a wrapper holds what only the wrapper knows of it."""
    if run.agent is None or len(held) != 1 or held[0].agent is None:
        return
    outer, inner = run.agent, held[0].agent
    held[0].agent = replace(
        inner,
        name=inner.name or outer.name,
        input=inner.input or outer.input,
        output=inner.output or outer.output,
        tools=inner.tools or outer.tools,
    )


def _adds_answer(run: Run, children: dict[int, list[Run]]) -> bool:
    """Return whether an agent answers what none of the runs below it has said.

    Where one of these has not got its answer, the agent's may be just that.
    """
    answer = _plain(_answer(run.agent))
    if not answer:
        return False
    stack = list(children[id(run)])
    while stack:
        below = stack.pop()
        stack.extend(children[id(below)])
        if not below.is_wrapper and not _has_answer(below):
            return False
        if any(told in answer or answer in told for told in map(_plain, _told(below)) if told):
            return False
    return True


def _answer(agent: AgentRun | None) -> str:
    said = [message.content for message in agent.output if message.content] if agent else []
    return said[-1] if said else ""


def _has_answer(run: Run) -> bool:
    last = run.model_calls[-1] if run.model_calls else None
    return bool(_answer(run.agent)) or (last is not None and last.whole and bool(last.output))


def _told(run: Run) -> Iterator[str]:
    """Yield what was said in a run: answers, arguments of calls, results."""
    yield _answer(run.agent)
    for call in run.model_calls:
        for message in call.output:
            yield message.content or ""
            for asked in message.tool_calls:
                yield dumps(asked.arguments) if asked.arguments else ""
    for tool in run.tool_runs:
        yield tool.result or ""


def _plain(text: str) -> str:
    return "".join(character for character in text if not character.isspace() and character != "\\")
