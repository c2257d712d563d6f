"""Results of tau-bench and tau2-bench: a run for each simulation, with its reward as a score.

tau2-bench writes one object with ``info``, ``tasks`` and ``simulations``; tau-bench a list of
objects with ``task_id``, ``reward`` and ``traj``, which `message_lists` reads. Facts from
``data_model/simulation.py`` and ``data_model/message.py`` of sierra-research/tau2-bench.

In tau2's telecom domain the user has tools too. The agent neither makes nor sees their calls, so
they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...base.errors import InputError
from ...model import Usage, read_tokens
from ..otlp.json_fields import json_kind
from .recorded_run import RecordedRun, read_messages, short_attributes, time_ns

__all__ = ["is_results", "run_of_simulation"]

_FORMAT = "tau2"


def is_results(document: Mapping[str, Any]) -> bool:
    """Whether an object is a file of results, or a part of one."""
    return isinstance(document.get("simulations"), list) and "info" in document


def run_of_simulation(document: Mapping[str, Any], number: int) -> RecordedRun:
    """The run of one simulation.

    Args:
        document: The results.
        number: The index of the simulation in the results.

    Raises:
        InputError: It has no list of messages; the error names the simulation.
    """
    simulation, info = document["simulations"][number], document.get("info")
    info = info if isinstance(info, Mapping) else {}
    if not isinstance(simulation, Mapping):
        raise InputError(f"simulations[{number}] is {json_kind(simulation)} instead of an object")
    name = str(simulation.get("id") or f"{simulation.get('task_id')}:{simulation.get('trial')}")
    source = f"simulation {name}"
    items = simulation.get("messages")
    if not isinstance(items, list):
        raise InputError(f"{source}: messages is {json_kind(items)} instead of a list")
    own = list(_agents_messages(items))
    environment = info.get("environment_info")
    domain = environment.get("domain_name") if isinstance(environment, Mapping) else None
    agent = info.get("agent_info")
    model = agent.get("llm") if isinstance(agent, Mapping) else None
    facts = {key: value for key, value in simulation.items() if key not in ("id", "messages")}
    return RecordedRun(
        _FORMAT,
        name,
        read_messages(own, f"{source}: messages"),
        conversation_id=name,
        models=(model,) if isinstance(model, str) else (),
        usage=_usage(own),
        start_ns=time_ns(simulation.get("start_time")),
        end_ns=time_ns(simulation.get("end_time")),
        attributes=short_attributes({**facts, "domain": domain}),
        scores=_reward(simulation.get("reward_info")),
    )


def _agents_messages(items: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages in OpenAI's form, as the agent saw them."""
    for item in items:
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("tool_messages"), list):
            yield from _agents_messages(item["tool_messages"])
        elif item.get("role") == "tool":
            if item.get("requestor") != "user":
                yield {
                    **_plain(item),
                    "tool_call_id": item.get("id"),
                    "is_error": item.get("error"),
                }
        elif item.get("role") == "user" and item.get("tool_calls"):
            # If the user only uses a tool in a turn, the agent gets no message.
            if item.get("content"):
                yield _plain(item)
        else:
            yield {**_plain(item), "tool_calls": item.get("tool_calls"), "usage": item.get("usage")}


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": item.get("role"), "content": item.get("content")}


def _usage(items: list[dict[str, Any]]) -> Usage:
    reported = [item.pop("usage", None) for item in items]
    return Usage.total(read_tokens(usage).usage for usage in reported if usage)


def _reward(info: Any) -> dict[str, tuple[float | None, bool | None, str]]:
    reward = info.get("reward") if isinstance(info, Mapping) else None
    if not isinstance(reward, (int, float)) or isinstance(reward, bool):
        return {}
    return {"reward": (float(reward), reward >= 1, "")}
