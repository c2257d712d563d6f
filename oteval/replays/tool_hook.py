"""The tool hook of a replay: returns recorded answers of tools, and notes answers of agents.

A framework's interceptor, a decorated tool or a function that was taken over asks the hook of its
context before a tool runs (`oteval.record.hooks`). Threads and tasks that outlive the replay have a
hook that refuses all calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ..model import RecordedToolCall
from ..record import (
    AgentEnd,
    AnswerDelay,
    ToolAnswer,
    adopt_tool_hook,
    reset_tool_hook,
    set_tool_hook,
)
from .agent_answers import AgentAnswers
from .open_replays import OpenReplay, late_attempt
from .player import Player
from .tool_changes import ChangedToolCall
from .typed_answers import UnrestorableValue, reported_answer, typed_answer, unrestorable

__all__ = ["ReplayToolHook", "tools_answered"]

_ERROR_TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt)): (.*)", re.S)


class ReplayToolHook:
    """The tool hook of a replay, which also notes the answers of agents."""

    def __init__(
        self,
        player: Player,
        answers: AgentAnswers,
        *,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._player = player
        self._answers = answers
        self._sleep = sleep

    def agent_ended(self, end: AgentEnd) -> None:
        """Note how the run of an agent ended."""
        self._answers.ended(end)

    def answer(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer | None:
        """Return the recorded answer of a call; None runs the tool."""
        call = self._player.answer_tool(name, arguments)
        if call is None:
            return None
        answer = self._answer_of(name, call)
        if not isinstance(call, ChangedToolCall):
            return answer
        delay = AnswerDelay(call.delay, self._sleep) if call.delay else None
        return replace(answer, delay=delay, is_fault=call.is_fault)

    def _answer_of(self, name: str, call: RecordedToolCall) -> ToolAnswer:
        if call.function and not self._player.answers_function(name):
            # A framework runs the tool; it does not need the values that the function itself
            # returned.
            call = replace(call, own_result=None, returned=None, raised=None)
        try:
            return reported_answer(call) or typed_answer(call) or _tool_answer(call)
        except UnrestorableValue as error:
            if call.function:
                self._player.answers_as_sent(name)
                return _tool_answer(replace(call, own_result=None))
            noted = self._player.diverge(unrestorable(call, error))
            return ToolAnswer(error=noted.summary, raised=RuntimeError(noted.summary))

    def expects(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call of a tool with these arguments is expected."""
        return self._player.expects_tool(name, arguments)

    def has_asked_for(self, name: str) -> bool:
        """Whether an answer has requested a tool."""
        return self._player.has_asked_for(name)

    def refuse_unasked(self, name: str) -> None:
        """Stop the replay before a tool runs that no answer has requested."""
        self._player.refuse_unasked(name)

    def observe(
        self,
        name: str,
        arguments: Mapping[str, Any],
        result: Any,
        error: str | None,
        start_ns: int,
        end_ns: int,
    ) -> None:
        """Do nothing: the next request to the model has the result."""


class _LateToolHook(ReplayToolHook):
    """The tool hook of threads and tasks that have outlived a replay: it refuses all calls."""

    def __init__(self, replay: OpenReplay, answers: AgentAnswers) -> None:
        super().__init__(replay.player, answers)
        self._replay = replay

    def answer(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer | None:
        """Refuse a call.

        Raises:
            ReplayDiverged: Always.
        """
        del arguments
        raise late_attempt(self._replay, f"it called the tool {name}")


def _tool_answer(call: RecordedToolCall) -> ToolAnswer:
    if not call.is_error:
        return ToolAnswer(call.result, own_result=call.own_result)
    error_text = _ERROR_TYPE.fullmatch(call.result or "")
    text, kind = (error_text[2], error_text[1]) if error_text else (call.result or "", "")
    return ToolAnswer(call.result, error=text, error_type=kind)


@contextmanager
def tools_answered(replay: OpenReplay, answers: AgentAnswers) -> Iterator[None]:
    """Answer the tools of this context, and of the threads that it starts."""
    afterwards = None if replay.is_import else _LateToolHook(replay, answers)
    hook = ReplayToolHook(replay.player, answers, sleep=replay.sleep)
    token = set_tool_hook(hook, afterwards=afterwards)
    replay.entered = lambda: partial(adopt_tool_hook, adopt_tool_hook(token))
    try:
        yield
    finally:
        reset_tool_hook(token)
