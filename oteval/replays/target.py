"""The target of a replay: a function of the agent, called with the recorded user's messages.

A conversation calls the function once for each turn, in order. A coroutine is awaited, and a
generator is read to its end; all turns share one event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ..base.errors import ReplayUnguarded
from ..messages import SYSTEM_ROLES
from ..model import Recording
from ..record import function_line
from .session import ReplaySession
from .verified import VerifiedSession, VerifyStatus, returned_json

__all__ = [
    "InputForm",
    "accepted_keywords",
    "call_target",
    "late_result",
    "replay_target",
    "turn_inputs",
    "unreplayable",
    "verified",
]

InputForm = Literal["text", "messages", "none"]
"""How a turn's input is passed: the user's text, all messages so far, or no argument."""


def turn_inputs(recording: Recording, form: InputForm) -> list[tuple[Any, ...]]:
    """The arguments of the target for each turn.

    Args:
        recording: The recording.
        form: How inputs are passed. ``messages`` are the messages of the turn's first model call up
            to the user's message, without system instructions, as OpenAI's dicts.
    """
    if form == "none":
        return [()]
    if form == "text":
        return [(text,) for text in recording.inputs]
    return [(_messages(recording, number),) for number in range(len(recording.inputs))]


def _messages(recording: Recording, turn: int) -> list[dict[str, Any]]:
    """The messages of a turn up to the user's message."""
    text, earlier = recording.inputs[turn], recording.inputs[:turn]
    for call in recording.model_calls:
        messages = [m for m in call.request.messages if m.role not in SYSTEM_ROLES]
        users = [m.content for m in messages if m.role == "user"]
        if messages and messages[-1].role == "user" and users == [*earlier, text]:
            return [m.as_dict() for m in messages]
    return [{"role": "user", "content": text}]


def call_target(
    function: Callable[..., Any],
    inputs: list[tuple[Any, ...]],
    *,
    session: str = "",
    loop: asyncio.Runner | None = None,
    returned: Callable[[Any], None] = lambda _value: None,
) -> None:
    """Call a target for each turn.

    Args:
        function: The function. If it has the parameters ``session`` and ``turn``, they receive the
            id of the session and the number of the turn, from 1.
        inputs: The arguments by turn.
        session: The id of the session.
        loop: Runs coroutines; by default a new loop.
        returned: Called with the result of each turn; the result of a generator is the list of its
            chunks.
    """
    names = accepted_keywords(function)
    with nullcontext(loop) if loop is not None else asyncio.Runner() as runner:
        for number, arguments in enumerate(inputs, 1):
            available = {"session": session, "turn": number}
            more = {name: available[name] for name in available if name in names}
            result = function(*arguments, **more)
            if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
                result = runner.run(_exhaust(result), context=contextvars.copy_context())
            elif inspect.isgenerator(result):
                result = list(result)
            returned(result)


async def _cancel_others() -> None:
    """Cancel the tasks that a session has left behind on a loop, before other sessions use it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _exhaust(result: Any) -> Any:
    """Await a result; read an asynchronous iterator to its end, and return its chunks."""
    if inspect.isawaitable(result):
        result = await result
    return [chunk async for chunk in result] if hasattr(result, "__aiter__") else result


def accepted_keywords(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters out of ``session`` and ``turn`` that a target takes.

    Its first parameter is for the user's message, whatever its name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return frozenset()
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords |= {p.name for p in parameters[1:] if p.kind is p.POSITIONAL_OR_KEYWORD}
    return frozenset(keywords & {"session", "turn"})


def replay_target(
    session: ReplaySession,
    function: Callable[..., Any],
    form: InputForm,
    loop: asyncio.Runner | None = None,
) -> VerifiedSession:
    """Replay a session with a target in this process.

    Args:
        session: The replay, which has not begun.
        function: The target.
        form: How inputs are passed.
        loop: Runs coroutines; by default a new loop.
    """
    recording = session.recording
    inputs = turn_inputs(recording, form)
    problem = unreplayable(recording) or ("" if inputs else _NO_INPUT)
    if problem:
        return VerifiedSession(recording.session, "not_replayed", problem)
    raised: BaseException | None = None
    try:
        with session:
            try:
                call_target(
                    function,
                    inputs,
                    session=recording.session,
                    loop=loop,
                    returned=partial(session.answers.target_returned, line=function_line(function)),
                )
            finally:
                if loop is not None:
                    loop.run(_cancel_others())
            session.settle()
    except (KeyboardInterrupt, GeneratorExit) as error:
        # An interrupt that a recorded tool raised belongs to the agent; all others are the user's.
        if not session.answers.is_recorded_error(error):
            raise
        raised = error
    except BaseException as error:
        raised = error
    returned = returned_json(session.answers.returned)
    return replace(verified(session, raised), returned=returned)


_NO_INPUT = "the recording has no message of a user; pass none with --input none"


def unreplayable(recording: Recording) -> str:
    """The reason why a recording cannot be replayed, or ""."""
    if not recording.model_calls and not recording.exchanges:
        reasons = f": {recording.reasons[0]}" if recording.reasons else ""
        return f"the recording has no model calls{reasons}"
    return ""


def late_result(session: ReplaySession, detail: str) -> VerifiedSession:
    """The outcome of a replay that did not end in time.

    A divergence may be the reason: it ends its thread, and another thread may wait for that thread.
    """
    status: VerifyStatus = "diverged" if session.divergences else "timeout"
    return VerifiedSession(session.recording.session, status, detail, session.result)


def verified(session: ReplaySession, raised: BaseException | None) -> VerifiedSession:
    """The outcome of a replay that has ended.

    Args:
        session: The replay.
        raised: The exception that ended the agent, or None. It is expected if the recording ends
            with an error as well.
    """
    name, result = session.recording.session, session.result
    if result.divergences:
        return VerifiedSession(name, "diverged", result=result)
    if isinstance(raised, ReplayUnguarded):
        return VerifiedSession(name, "unverified", str(raised), result)
    if raised is None or (isinstance(raised, SystemExit) and not raised.code):
        if result.unguarded:
            return VerifiedSession(name, "unverified", result.unguarded[0], result)
        return VerifiedSession(name, "passed", result=result)
    text = f"the agent raised {type(raised).__name__}: {raised}".rstrip(": ")
    if result.passed and session.ended_as_recorded(raised):
        return VerifiedSession(name, "passed", f"{text}, as recorded", result)
    calls = session.recording.model_calls
    is_recorded = calls and result.served == result.model_calls and calls[-1].error
    if is_recorded and result.passed:
        return VerifiedSession(name, "passed", f"{text}, after a recorded error", result)
    hint = session.player.results_hint
    return VerifiedSession(name, "error", f"{text}; {hint}" if hint else text, result)
