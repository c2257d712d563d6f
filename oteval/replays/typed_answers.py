"""The recorded value or exception of a tool as the agent's code gets it, with its type."""

from __future__ import annotations

import asyncio
from typing import Any

from ..model import RecordedToolCall
from ..record import (
    Awaited,
    Cancelled,
    Generated,
    ReturnedValue,
    ToolAnswer,
    UnrestorableValue,
    restored,
)
from .agent_classes import agent_class
from .divergence import Divergence

__all__ = ["UnrestorableValue", "typed_answer", "unrestorable"]


def typed_answer(call: RecordedToolCall) -> ToolAnswer | None:
    """Restore the answer of a recorded execution; None if the types of its values are not known.

    Args:
        call: The execution.

    Raises:
        UnrestorableValue: Its value or exception cannot be restored.
    """
    form = call.returned if call.raised is None else call.raised
    if form is None:
        return None
    text = call.result if call.own_result is None else call.own_result
    value = restored(form, text or "", agent_class)
    if call.raised is None or isinstance(value, (Awaited, Generated)):
        return ToolAnswer(call.result, returned=ReturnedValue(value))
    is_cancelled = isinstance(value, Cancelled)
    raised: Any = asyncio.CancelledError() if is_cancelled else value
    if not isinstance(raised, BaseException):
        raise UnrestorableValue(f"{type(raised).__name__}: is not an exception")
    return ToolAnswer(
        call.result,
        error=str(raised),
        error_type=type(raised).__name__,
        raised=raised,
        is_cancelled=is_cancelled,
    )


def unrestorable(call: RecordedToolCall, error: UnrestorableValue) -> Divergence:
    """The divergence of a tool whose recorded value cannot be restored.

    Args:
        call: The execution.
        error: The reason.
    """
    what = "result" if call.raised is None else "exception"
    return Divergence(
        "tool_call",
        f"the recorded {what} of the tool {call.name} cannot be restored: {error}",
        recorded={"name": call.name, "arguments": call.arguments, what: call.result},
        suggestion="record the session again with the current classes, or run tools: --tools run",
    )
