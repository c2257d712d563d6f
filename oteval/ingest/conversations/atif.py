"""The Agent Trajectory Interchange Format: a run for each agent.

A file contains one object with ``schema_version`` (``ATIF-v1.0`` to ``v1.8``), ``agent``, and
``steps`` of the system, the user and the agent. A step of the agent contains its calls and their
results. Embedded sub-agents become runs with a parent. Facts from the models of Harbor
(https://harborframework.com/docs/trajectory-format).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.errors import InputError
from ...messages import mappings_of
from ...model import Gap, Usage, read_tokens
from ..otlp.json_fields import json_kind
from .recorded_run import RecordedRun, content_digest, read_messages, short_attributes, time_ns

__all__ = ["is_trajectory", "runs"]

_FORMAT = "atif"
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def is_trajectory(document: Mapping[str, Any]) -> bool:
    """Whether an object is a trajectory in this format."""
    return str(document.get("schema_version")).startswith("ATIF-") and "steps" in document


def runs(
    document: Mapping[str, Any], parent: RecordedRun | None = None, number: int = 0
) -> Iterator[RecordedRun]:
    """Yield the run of a trajectory and the runs of its sub-agents.

    Args:
        document: The trajectory.
        parent: The run that called this sub-agent, or None.
        number: The index among the sub-agents of the parent.

    Raises:
        InputError: A step is malformed; the message names it.
    """
    run = _run(document, parent, number)
    yield run
    embedded = document.get("subagent_trajectories")
    for index, sub in enumerate(embedded if isinstance(embedded, list) else []):
        if not isinstance(sub, Mapping):
            raise InputError(f"subagent_trajectories[{index}] is {json_kind(sub)}, not an object")
        yield from runs(sub, run, index)


def _run(document: Mapping[str, Any], parent: RecordedRun | None, number: int) -> RecordedRun:
    steps = document["steps"]
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise InputError("steps is not a list of objects")
    items: list[dict[str, Any]] = []
    copied = 0
    for index, step in enumerate(steps):
        items += _messages_of(step, index)
        if step.get("is_copied_context") is True:
            copied = len(read_messages(items, "steps"))
    agent = document.get("agent")
    agent = agent if isinstance(agent, Mapping) else {}
    session = str(document.get("session_id") or "")
    name = str(document.get("trajectory_id") or session)
    # Parts of one session share its id, so only their content distinguishes them.
    key = f"{parent.key}/{number}:{name}" if parent else f"{name}:{content_digest(document)}"
    times = [stamp for step in steps if (stamp := time_ns(step.get("timestamp")))]
    tools = agent.get("tool_definitions")
    return RecordedRun(
        _FORMAT,
        key,
        read_messages(items, "steps"),
        new_from=copied,
        conversation_id=name if parent else session or name,
        agent=str(agent.get("name") or ""),
        parent_id=parent.id if parent else "",
        models=[str(step["model_name"]) for step in steps if step.get("model_name")]
        or [str(agent.get("model_name") or "")],
        tools=[tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else (),
        usage=_usage(document, steps),
        start_ns=min(times, default=0),
        end_ns=max(times, default=0),
        gaps=_gaps(_mapping(document.get("extra")).get("gaps")),
        attributes={
            **short_attributes({"agent.version": agent.get("version")}),
            **short_attributes(_mapping(document.get("extra"))),
        },
    )


def _gaps(value: Any) -> list[Gap]:
    """The gaps that ``oteval export --atif`` wrote."""
    return [
        Gap(str(gap["code"]), str(gap["detail"]))
        for gap in mappings_of(value)
        if gap.keys() >= {"code", "detail"}
    ]


def _messages_of(step: Mapping[str, Any], step_index: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of a step: its text and calls, then their results."""
    role = _ROLES.get(str(step.get("source")))
    if role is None:
        source = step.get("source")
        raise InputError(
            f"steps[{step_index}].source is {source!r} instead of system, user or agent"
        )
    content: Any = step.get("message")
    if reasoning := step.get("reasoning_content"):
        texts = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        own_parts = content if isinstance(content, list) else texts
        content = [{"type": "reasoning", "content": reasoning}, *own_parts]
    calls = [_call(call, step_index) for call in mappings_of(step.get("tool_calls"))]
    yield {"role": role, "content": content, "tool_calls": calls}
    results = _mapping(step.get("observation")).get("results")
    for number, result in enumerate(mappings_of(results)):
        call_id = result.get("source_call_id")
        if call_id is None and not calls:  # the environment answers an action
            yield {"role": "user", "name": "environment", "content": result.get("content")}
            continue
        if call_id is None and number < len(calls):
            call_id = calls[number]["id"]
        yield {"role": "tool", "tool_call_id": call_id, "content": result.get("content")}


def _call(call: Mapping[str, Any], step_index: int) -> dict[str, Any]:
    name = call.get("function_name")
    if not isinstance(name, str):
        raise InputError(f"steps[{step_index}].tool_calls: a call needs a function_name")
    function = {"name": name, "arguments": call.get("arguments")}
    return {"id": call.get("tool_call_id"), "type": "function", "function": function}


def _usage(document: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Usage:
    """The tokens of the steps, or the totals if no step has any."""
    counted = [step["metrics"] for step in steps if step.get("metrics")]
    if counted:
        return Usage.total(read_tokens(metrics).usage for metrics in counted)
    totals = _mapping(document.get("final_metrics"))
    calls = sum(step.get("source") == "agent" for step in steps)
    tokens = read_tokens({name.removeprefix("total_"): value for name, value in totals.items()})
    return replace(tokens.usage, model_calls=calls)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
