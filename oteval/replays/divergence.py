"""Divergences: how a replayed agent differs from its recording.

A divergence names one difference: a prompt, a tool's result, the order of tools, and so on. It has
the recorded and the actual value, the messages of both model calls, and the line of the agent's
code. `Divergence.text` is its plain text, which also appears in exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..base.errors import ReplayDiverged
from ..base.jsontext import dumps
from ..base.text import counted
from ..model import Message

__all__ = [
    "Divergence",
    "DivergenceKind",
    "diverged",
    "early_tool",
    "extra_call",
    "missing_call",
    "missing_result",
    "value_text",
]

DivergenceKind = Literal[
    "prompt",
    "tool_result",
    "tool_order",
    "tool_call",
    "tool_schema",
    "model",
    "settings",
    "header",
    "address",
    "order",
    "extra_call",
    "missing_call",
    "answer",
    "network",
    "process",
    "late",
    "unsupported_client",
]

# How much of a long text is shown, and the number of equal characters before a difference.
_LENGTH, _LEAD = 300, 40


@dataclass(frozen=True)
class Divergence:
    """One difference between a replay and its recording.

    Attributes:
        kind: The kind.
        summary: One line for people.
        call: The number of the recorded model call, from 1; 0 if it concerns none.
        message: The index of the first message that differs, or None.
        recorded: The recorded value: a `Message`, a text or plain JSON; None if there is none.
        actual: The value in the replay, likewise.
        recorded_messages: The messages of the recorded request.
        actual_messages: The messages of the actual request.
        line: The line of the agent's code as ``file:line in function``, or "".
        suggestion: How to allow the difference, or "".
    """

    kind: DivergenceKind
    summary: str
    call: int = 0
    message: int | None = None
    recorded: Any = None
    actual: Any = None
    recorded_messages: tuple[Message, ...] = ()
    actual_messages: tuple[Message, ...] = ()
    line: str = ""
    suggestion: str = ""

    def text(self) -> str:
        """The divergence as plain text of several lines."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.kind}: {self.summary}"
        has_values = self.recorded is not None or self.actual is not None
        if has_values and self.kind not in ("network", "process"):
            yield from _compared(value_text(self.recorded), value_text(self.actual))
        if self.line:
            yield f"  at {self.line}"
        if self.suggestion:
            yield f"  {self.suggestion}"

    def same_as(self, divergence: Divergence) -> bool:
        """Whether both have the same cause: the same change of a message."""
        return (self.kind, value_text(self.recorded), value_text(self.actual)) == (
            divergence.kind,
            value_text(divergence.recorded),
            value_text(divergence.actual),
        )

    def at(self, line: str) -> Divergence:
        """A copy that names the line of the agent's code."""
        return replace(self, line=line)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": self.kind,
            "summary": self.summary,
            "call": self.call or None,
            "message": self.message,
            "recorded": _plain(self.recorded),
            "actual": _plain(self.actual),
            "line": self.line or None,
            "suggestion": self.suggestion or None,
        }


def diverged(divergence: Divergence) -> ReplayDiverged:
    """Make the exception for a divergence."""
    return ReplayDiverged(divergence.text(), divergence)


def missing_call(number: int, messages: tuple[Message, ...], later: int) -> Divergence:
    """The divergence of a model call that the agent did not make.

    Args:
        number: The number of the call, from 1.
        messages: The messages of its recorded request.
        later: The number of later calls that the agent did not make either.
    """
    more = f", nor {counted(later, 'later one')}" if later else ""
    return Divergence(
        "missing_call",
        f"the agent did not make model call {number}{more}",
        call=number,
        recorded=messages[-1] if messages else None,
        recorded_messages=messages,
    )


def extra_call(recorded: int, messages: tuple[Message, ...]) -> Divergence:
    """The divergence of a model call after all recorded ones.

    Args:
        recorded: The number of recorded model calls.
        messages: The messages of the request.
    """
    return Divergence(
        "extra_call",
        "the agent called the model more often than the recording does "
        f"({counted(recorded, 'call')})",
        actual=messages[-1] if messages else None,
        actual_messages=messages,
    )


def early_tool(name: str, arguments: Mapping[str, Any]) -> Divergence:
    """The divergence of a tool that ran before the model requested it."""
    return Divergence(
        "tool_order",
        f"the tool {name} ran before the model asked for it",
        actual={"name": name, "arguments": dict(arguments)},
    )


def missing_result(name: str, arguments: Mapping[str, Any]) -> Divergence:
    """The divergence of a tool call without a result in the recording."""
    return Divergence(
        "tool_call",
        f"the recording does not contain the result of the tool {name}",
        actual={"name": name, "arguments": dict(arguments)},
        suggestion="to run tools instead of answering them: --tools run",
    )


def value_text(value: Any) -> str:
    """A recorded or actual value as text."""
    if value is None:
        return "(nothing)"
    if isinstance(value, Message):
        calls = (f"-> {call.name}({value_text(call.arguments)})" for call in value.tool_calls)
        lines = ([value.content] if value.content is not None else []) + list(calls)
        if value.parts:
            lines.append(dumps([dict(part) for part in value.parts]))
        return "\n".join(lines) or "(no content)"
    return value if isinstance(value, str) else dumps(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.as_dict()
    return dict(value) if isinstance(value, Mapping) else value


def _compared(recorded: str, actual: str) -> Iterator[str]:
    """Yield lines that show two texts and their first difference."""
    if "\n" in recorded.strip() or "\n" in actual.strip():
        lines = difflib.unified_diff(
            recorded.splitlines(), actual.splitlines(), "recorded", "actual", lineterm="", n=1
        )
        yield from (f"  {line[:_LENGTH]}" for line in lines)
        return
    together = zip(recorded, actual, strict=False)
    shared = next((at for at, (a, b) in enumerate(together) if a != b), 0)
    start = shared - _LEAD if shared > 3 * _LEAD else 0
    for name, text in (("recorded", recorded), ("actual", actual)):
        lead = "… " if start else ""
        ellipsis = " …" if len(text) > start + _LENGTH else ""
        yield f"  {name + ':':<10}{lead}{text[start : start + _LENGTH]}{ellipsis}"
