"""Views: which calls of the two sides are compared.

- ``all``: every call.
- ``writes``: calls of tools that change something. A tool does when it is declared so
  (``effect_tools``), or when its definition carries MCP's hint ``readOnlyHint: false``.
- ``effects``: the same for the reference; of the output's writes only those that did not fail.
  `messages.call_outcome` or the option ``error_pattern`` tells whether a call failed. A call
  without a result is not known to have failed and counts.

Results are paired with calls by id and order: an id may come again later in a session. Calls
with no result between them are one **batch**; a result answers the earliest open call with its
id in the newest batch that has one. A result or call without an id goes by order alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..base.errors import InputError
from ..base.patterns import Pattern
from ..messages import CallOutcome, field_of, outcome_of_message
from ..model import Message
from .calls import CallTable
from .messages import to_messages
from .spec import MatchSpec

__all__ = ["failed_calls", "outcome_by", "results_of", "select", "write_tools"]


def select(
    spec: MatchSpec, out: CallTable, ref: CallTable, outputs: Any, reference: Any
) -> tuple[Sequence[int], Sequence[int]]:
    """Choose the calls that count.

    Args:
        spec: The configuration.
        out: The output's calls.
        ref: The reference's calls.
        outputs: The output as the caller gave it.
        reference: The reference as the caller gave it.

    Returns:
        The indexes of the output's and of the reference's calls.

    Raises:
        InputError: The view needs to know which tools change something, and nothing says so.
    """
    if spec.view == "all":
        return range(len(out.names)), range(len(ref.names))
    writes = write_tools(spec, outputs, reference)
    outs = [i for i, name in enumerate(out.names) if name in writes]
    refs = [i for i, name in enumerate(ref.names) if name in writes]
    if spec.view == "effects" and outs:
        failed = failed_calls(to_messages(outputs, "outputs"), spec.error_pattern)
        outs = [i for i in outs if i not in failed]
    return outs, refs


def write_tools(spec: MatchSpec, *trajectories: Any) -> frozenset[str]:
    """The tools that change something.

    Args:
        spec: The configuration, with the declared ones.
        *trajectories: Objects or dicts whose ``tools`` may hold definitions with hints.

    Returns:
        Their names.

    Raises:
        InputError: No tool is declared and no definition has the hint, so that the view would
            compare nothing and pass.
    """
    hints: dict[str, bool] = {}
    for trajectory in trajectories:
        if not isinstance(trajectory, (list, tuple)):
            hints.update(_hints(field_of(trajectory, "tools")))
    if spec.effect_tools is None and not hints:
        raise InputError(
            f"view={spec.view!r} needs to know which tools change something: pass "
            "effect_tools=[...], or a Trajectory whose tool definitions carry readOnlyHint"
        )
    hinted = frozenset(tool for tool, read_only in hints.items() if not read_only)
    return hinted | (spec.effect_tools or frozenset())


def _hints(tools: Any) -> dict[str, bool]:
    hints: dict[str, bool] = {}
    for tool in tools if isinstance(tools, (list, tuple)) else ():
        inner = field_of(tool, "function") or tool
        annotations = field_of(tool, "annotations") or field_of(inner, "annotations")
        read_only = field_of(annotations, "readOnlyHint")
        name = field_of(inner, "name")
        if isinstance(name, str) and isinstance(read_only, bool):
            hints[name] = read_only
    return hints


def failed_calls(
    messages: Iterable[Message], error_pattern: Pattern | re.Pattern[str] | None
) -> set[int]:
    """The indexes of the calls whose result is an error.

    Args:
        messages: The trajectory.
        error_pattern: As for `outcome_by`.

    Returns:
        Indexes among all calls of the trajectory.
    """
    results = results_of(messages).items()
    return {index for index, result in results if outcome_by(result, error_pattern).failed}


def results_of(messages: Iterable[Message]) -> dict[int, Message]:
    """The results of a trajectory's calls by the calls' indexes.

    Args:
        messages: The trajectory.

    Returns:
        The tool messages; a call without a result is not in it.
    """
    results: dict[int, Message] = {}
    batches: list[dict[int, tuple[str, str]]] = []
    index, answered = 0, True
    for message in messages:
        for call in message.tool_calls:
            if answered:
                batches.append({})
                answered = False
            batches[-1][index] = (call.id, call.name)
            index += 1
        if message.role != "tool":
            continue
        answered = True
        call_index = _answered(batches, message)
        if call_index is not None:
            results[call_index] = message
    return results


def _answered(batches: list[dict[int, tuple[str, str]]], result: Message) -> int | None:
    """Take the call that a result answers out of the open ones."""
    for fits in (_by_id, _by_order):
        for batch in reversed(batches):
            for index, (call_id, name) in batch.items():
                if fits(call_id, name, result):
                    del batch[index]
                    if not batch:
                        batches.remove(batch)
                    return index
    return None


def _by_id(call_id: str, _name: str, result: Message) -> bool:
    return bool(call_id) and call_id == result.tool_call_id


def _by_order(call_id: str, name: str, result: Message) -> bool:
    unnumbered = not call_id or not result.tool_call_id
    return unnumbered and (not result.name or result.name == name)


def outcome_by(result: Message, error_pattern: Pattern | re.Pattern[str] | None) -> CallOutcome:
    """The outcome of a call.

    Args:
        result: The tool's message.
        error_pattern: Decides on results that no flag marks as failed; None for the rule of
            `messages.call_outcome`.
    """
    outcome = outcome_of_message(result)
    if error_pattern is None or (outcome.failed and outcome.evidence in ("recorded", "flagged")):
        return outcome
    if error_pattern.search(result.content or "") is None:
        return CallOutcome()
    return CallOutcome(failed=True, evidence="written", reason=result.content or "")
