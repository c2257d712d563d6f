"""What every dialect's reading is held to, whatever the dialect itself looks at.

Roles are known ones, parts of an unknown kind are named, and a model call of which one side is
missing says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...model import Gap, Message
from ..gaps import gap
from ..merge import SYSTEM_ROLES
from ..parts import unknown_kind
from ..readings import AgentRun, ModelCall, Reading
from ..roles import ROLES
from .base import missing_side

__all__ = ["checked"]

# The gaps that say already why a side of a model call is missing.
_EXPLAINED = frozenset(
    {
        "attributes_dropped",
        "content_external",
        "content_not_captured",
        "content_truncated",
        "content_unreadable",
        "redacted",
    }
)


def checked(reading: Reading, switch: str) -> Reading:
    """Return a reading with known roles, and with the gaps of what it lacks.

    Args:
        reading: What a dialect made of a span.
        switch: What turns the dialect's content on; "" where a model call's sides are not all
            expected on its span.
    """
    if isinstance(reading, ModelCall):
        return _checked_call(reading, switch)
    if isinstance(reading, AgentRun):
        return _checked_agent(reading)
    return reading


def _checked_call(call: ModelCall, switch: str) -> ModelCall:
    odd: list[Gap] = []
    gaps = list(call.gaps)
    failed = call.span.is_error or any(found.code == "model_call_failed" for found in gaps)
    is_unanswered = not call.output and not failed and bool(switch)
    if switch and not any(found.code in _EXPLAINED for found in gaps):
        gaps += missing_side(call.span, switch, sent=call.input, received=call.output or failed)
    return replace(
        call,
        input=_known(call.input, "user", odd),
        output=_known(call.output, "assistant", odd),
        choices=_known(call.choices, "assistant", odd),
        whole=_is_whole(call) and not is_unanswered,
        is_unanswered=is_unanswered and len(gaps) > len(call.gaps),
        gaps=(*gaps, *dict.fromkeys(odd)),
    )


def _is_whole(call: ModelCall) -> bool:
    """Return whether all that a call says is there; its answer is whole without its input too."""
    if call.whole or not call.output or any(m.role not in SYSTEM_ROLES for m in call.input):
        return call.whole
    codes = {found.code for found in call.gaps}
    return "content_not_captured" in codes <= {"content_not_captured", "model_call_failed"}


def _checked_agent(agent: AgentRun) -> AgentRun:
    odd: list[Gap] = []
    return replace(
        agent,
        input=_known(agent.input, "user", odd),
        output=_known(agent.output, "assistant", odd),
        transcript=_known(agent.transcript, "user", odd),
        gaps=(*agent.gaps, *dict.fromkeys(odd)),
    )


def _known(messages: Sequence[Message], role: str, gaps: list[Gap]) -> tuple[Message, ...]:
    """Return messages with known roles, noting roles and parts that are not known.

    Args:
        messages: The messages.
        role: Who says what has an unknown role; that is kept as the message's name.
        gaps: Where the gaps are noted.
    """
    found: list[Message] = []
    for message in messages:
        for part in message.parts:
            if kind := unknown_kind(part):
                reason = f"its kind {kind} is not known; it is kept as it came"
                gaps.append(_unreadable("a part of a message", message, reason))
        if message.role not in ROLES:
            reason = f"its role {message.role!r} is not known; it is shown as the {role}'s"
            gaps.append(_unreadable("a message", message, reason))
            message = replace(message, role=role, name=message.name or message.role)
        found.append(message)
    return tuple(found)


def _unreadable(key: str, message: Message, reason: str) -> Gap:
    return gap("content_unreadable", message.span_id, key=key, reason=reason)
