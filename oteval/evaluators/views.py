"""Views: which calls of the two sides are compared.

- ``all``: every call.
- ``writes``: calls of tools that change something. A tool does if ``effect_tools`` lists it, or if
  its definition carries MCP's hint ``readOnlyHint: false``.
- ``effects``: the same for the reference; for the output, only writes that did not fail.
  `messages.call_outcome` or the option ``error_pattern`` decides whether a call failed. A call
  without a result is not known to have failed and counts.

Results are paired with calls by id and order: a session may use an id again. Calls with no result
between them are one **batch**. A result answers an open call with its id: the earliest such call in
the newest batch that has one. A result or call without an id is paired by order alone.
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

__all__ = ["effect_hints", "failed_calls", "outcome_by", "results_of", "select", "write_tools"]


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
        InputError: The view depends on the tools that change something, and nothing names them.
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
        spec: The configuration, with the declared tools.
        *trajectories: Objects or dicts whose ``tools`` may contain definitions with hints.

    Returns:
        Their names.

    Raises:
        InputError: No tool is declared and no definition has the hint, so that the view would
            compare nothing and pass.
    """
    hints: dict[str, bool] = {}
    for trajectory in trajectories:
        if not isinstance(trajectory, (list, tuple)):
            hints.update(effect_hints(field_of(trajectory, "tools")))
    if spec.effect_tools is None and not hints:
        raise InputError(
            f"view={spec.view!r} needs to know which tools change something: pass "
            "effect_tools=[...], or a Trajectory whose tool definitions carry readOnlyHint"
        )
    hinted = frozenset(tool for tool, read_only in hints.items() if not read_only)
    return hinted | (spec.effect_tools or frozenset())


def effect_hints(tools: Any) -> dict[str, bool]:
    """Whether tools only read, by their name, where a definition has MCP's ``readOnlyHint``.

    Args:
        tools: The definitions in any form.
    """
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
        The tool messages; calls without a result are left out.
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
    """Remove the call that a result answers from the open calls."""
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
        error_pattern: Decides on results without a flag that marks them as failed; None for the
            rule of `messages.call_outcome`.
    """
    outcome = outcome_of_message(result)
    if error_pattern is None or (outcome.failed and outcome.evidence in ("recorded", "flagged")):
        return outcome
    if error_pattern.search(result.content or "") is None:
        return CallOutcome()
    return CallOutcome(failed=True, evidence="written", reason=result.content or "")
