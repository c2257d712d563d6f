"""What the checks share: a run's messages and calls as a check sees them, and how it answers.

A **check** is an evaluator that needs no model: a frozen dataclass whose fields are its
configuration and whose `check` is a pure function of what is `Seen`. It finds something wrong,
finds nothing wrong, or raises `NotEvaluated` where the trace does not hold what the verdict needs.
What a trace shows is enough to fail; to pass, nothing that could have failed may be unseen.

Called by a user, a check that could not be made has the score None,
``metadata["status"]`` is ``not_evaluated``, and its comment says why. Indexes of calls and messages
count from 0.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

from ...errors import ConfigError
from ...model import Gap, Message, ToolCall, Trajectory
from ...patterns import PatternError, compile_pattern
from ..graph.forms import runs_of
from ..messages import field as item
from ..messages import to_messages
from ..observed import observed
from ..scorer import CONTENT_GAPS, NotEvaluated, refuse_unseen
from ..values import show

__all__ = [
    "Call",
    "Check",
    "Found",
    "NotEvaluated",
    "Seen",
    "listed",
    "number",
    "one_of",
    "pattern",
    "strings",
    "whole",
]

_LISTED = 3


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool and where it stands.

    Attributes:
        index: Its number among all calls.
        at: The number of the message that asks for it.
        call: The call.
    """

    index: int
    at: int
    call: ToolCall

    def __str__(self) -> str:
        """Return how a comment names the call."""
        arguments = "arguments were not captured"
        if self.call.arguments is not None:
            arguments = show(self.call.arguments, 60)
        return f"call {self.index} {self.call.name}({arguments})"


@dataclass(frozen=True)
class Seen:
    """What a check looks at.

    Attributes:
        messages: The messages.
        trajectory: The run that they are of, or None where only messages are known.
        reference: What was wanted in the caller's form, or None.
        given_tools: Definitions of tools that came with the messages.
        whole: Whether the messages are those of the whole conversation.
    """

    messages: tuple[Message, ...]
    trajectory: Trajectory | None = None
    reference: Any = None
    given_tools: tuple[Mapping[str, Any], ...] = ()
    whole: bool = False

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The definitions of the tools that the model was offered."""
        return (*self.given_tools, *(tool for run in self.runs for tool in run.tools))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All calls, in order."""
        pairs = [(at, call) for at, m in enumerate(self.messages) for call in m.tool_calls]
        return tuple(Call(index, at, call) for index, (at, call) in enumerate(pairs))

    @property
    def runs(self) -> tuple[Trajectory, ...]:
        """The runs that the messages are of, oldest first; none where only messages are known."""
        if self.trajectory is None:
            return ()
        return tuple(runs_of(self.trajectory)) if self.whole else (self.trajectory,)

    def gap(self, *codes: str) -> Gap | None:
        """Return the first gap of the runs that has one of some codes, or None."""
        return next((gap for run in self.runs for gap in run.gaps if gap.code in codes), None)

    def lost(self, *codes: str) -> Gap | None:
        """Return a gap by which content may be missing, or with one of more codes; or None."""
        return self.gap(*CONTENT_GAPS, *codes)

    def require_all_calls(self) -> None:
        """Raise `NotEvaluated` where the run may have made calls that the trace does not show."""
        if self.runs and not self.messages:
            raise NotEvaluated("the run has no messages")
        for run in self.runs:
            refuse_unseen(run, run.own_messages if self.whole else self.messages)


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found.

    Attributes:
        problems: What is wrong, each in a few words; none for a pass.
        metadata: Figures.
    """

    problems: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def comment(self) -> str:
        """What is wrong, on one line; "" for a pass."""
        return listed(self.problems, "; ")


class Check(ABC):
    """An evaluator that needs no model.

    Subclasses are frozen dataclasses with the field `key`, the score's name.
    """

    key: str
    type: ClassVar[str]
    """Its ``type`` in oteval.yaml."""
    needs_messages: ClassVar[bool] = True
    """Whether there is nothing to check in a run without messages."""

    @property
    def __name__(self) -> str:
        return self.key

    @abstractmethod
    def check(self, seen: Seen) -> Found:
        """Look for what is wrong.

        Raises:
            NotEvaluated: The trace does not hold what the verdict needs.
            InputError: The reference is not one.
        """

    def __call__(
        self,
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,  # noqa: ARG002  part of every evaluator's signature
        **extra: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Check a trajectory.

        Args:
            outputs: The trajectory, in any form of `oteval.evaluators.messages`; of a `Trajectory`,
                whose whole conversation is looked at, its usage, times and tools count as well.
            reference_outputs: What was wanted, for a check that compares.
            inputs: Not used.
            **extra: Not used.

        Returns:
            ``key``, ``score`` (a bool; None where it could not be told), ``comment`` (None for a
            pass) and ``metadata``.

        Raises:
            InputError: The trajectory or the reference is not one; the text names the place.
        """
        seen = Seen(
            to_messages(outputs, "outputs"),
            outputs if isinstance(outputs, Trajectory) else None,
            reference_outputs,
            _tools(outputs),
            whole=True,
        )
        try:
            found = self.check(seen)
        except NotEvaluated as reason:
            why = str(reason)
            metadata = {"status": "not_evaluated"}
            return observed({"key": self.key, "score": None, "comment": why, "metadata": metadata})
        return observed(
            {
                "key": self.key,
                "score": not found.problems,
                "comment": found.comment or None,
                "metadata": dict(found.metadata),
            }
        )

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON values, for the hash that is its version."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {"type": self.type, **values}


def _tools(outputs: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the definitions beside the messages; those of a `Trajectory` are its runs'."""
    if isinstance(outputs, Trajectory):
        return ()
    tools = item(outputs, "tools") if not isinstance(outputs, (list, tuple)) else None
    return tuple(tools) if isinstance(tools, (list, tuple)) else ()


def listed(texts: Sequence[object], between: str = ", ") -> str:
    """Return the first few of some texts, and how many more there are."""
    more = f"{between}and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return between.join(map(str, texts[:_LISTED])) + more


def strings(value: Any, name: str) -> tuple[str, ...]:
    """Return an argument that is a list of strings.

    Raises:
        ConfigError: It is not; the text names it.
    """
    if value is None:
        return ()
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(t, str) for t in value):
        return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
    raise ConfigError(f"{name} is {value!r}; expected a list of names")


def pattern(value: Any, name: str) -> str:
    """Return an argument that is a regular expression, as text.

    Raises:
        ConfigError: It is not; the text names it.
    """
    text = value.pattern if isinstance(value, re.Pattern) else value
    if not isinstance(text, str):
        raise ConfigError(f"{name} is {value!r}; expected a pattern for text")
    # Flags of a compiled pattern go into the text, which is all that is kept.
    flags = value.flags if isinstance(value, re.Pattern) else 0
    letters = "".join(letter for letter, flag in _FLAGS.items() if flags & flag)
    text = f"(?{letters}){text}" if letters else text
    try:
        compile_pattern(text)
    except PatternError as error:
        raise ConfigError(f"{name}: {value!r} is no pattern: {error}") from None
    return text


_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def whole(value: Any, name: str, least: int = 0) -> int:
    """Return an argument that is a whole number.

    Raises:
        ConfigError: It is not, or is less than the least; the text names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return value


def number(value: Any, name: str) -> float:
    """Return an argument that is a finite number of at least 0.

    Raises:
        ConfigError: It is not; the text names it.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(f"{name} is {value!r}; expected a number of at least 0")
    return float(value)


def one_of(value: Any, known: Sequence[str], name: str) -> str:
    """Return an argument that is one of some words.

    Raises:
        ConfigError: It is not; the text names it and what is known.
    """
    if value not in known:
        raise ConfigError(f"{name}: unknown value {value!r}; known: {', '.join(known)}")
    return str(value)
