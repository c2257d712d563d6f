"""Simulated conversations between an application and a user.

The **app** is the system under test: a function of the user's message. The **user** is a list of
messages to send, a function of the conversation so far, or a language model
(`create_llm_simulated_user`). A **turn** is one message of the user and the app's answer to it.

Names, call signatures and results equal openevals', with one exception: an evaluator that raises
yields a result with its error.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, cast

from ...base.errors import ConfigError, InputError
from ...base.runner import describe_error
from ...base.sync import IoCall, drive, drive_async
from ...evaluators import (
    ChatCompletionMessage,
    Evaluator,
    EvaluatorResult,
    MultiturnSimulationResult,
    is_message,
    to_messages,
)
from ...model import ANSWER_ONLY
from .run_evaluators import name_of

__all__ = ["run_multiturn_simulation", "run_multiturn_simulation_async"]

_ANSWER_ONLY = (
    "the app returned only its answer, so that it may have made calls; return the list of all "
    "messages of the turn"
)
Params = ParamSpec("Params")
Value = TypeVar("Value")


async def _simulate(
    *,
    app: Callable[..., Any],
    user: Callable[..., Any] | Sequence[Any],
    max_turns: int | None = None,
    trajectory_evaluators: Sequence[Callable[..., Any]] | None = None,
    stopping_condition: Callable[..., Any] | None = None,
    reference_outputs: Any = None,
    thread_id: str | None = None,
) -> MultiturnSimulationResult:
    """Simulate a conversation and evaluate it.

    `run_multiturn_simulation` is the blocking form. With `run_multiturn_simulation_async`, each of
    the functions may be asynchronous.

    Args:
        app: Called as ``app(message, thread_id=...)`` with the user's message; returns the
            answer: a message, a list of messages, ``{"messages": [...]}`` or text.
        user: Called as ``user(trajectory, turn_counter=..., thread_id=...)`` with the messages so
            far; returns the user's next message. Or a list of messages or texts to send.
        max_turns: The most turns of the conversation.
        trajectory_evaluators: Evaluators of the whole conversation, called with ``outputs`` and
            ``reference_outputs``.
        stopping_condition: Called as ``stopping_condition(trajectory, turn_counter=...)`` after
            each turn; the conversation ends when it returns a true value.
        reference_outputs: Passed to the evaluators.
        thread_id: The conversation's id; random by default.

    Returns:
        ``trajectory``, the messages of the conversation, each with an ``id``, and
        ``evaluator_results``. An evaluator that raised has a result with the score None.

    Raises:
        ConfigError: Neither `max_turns` nor `stopping_condition` is given, `user` has fewer
            messages than there are turns, or the blocking form got an asynchronous function.
        InputError: The app or the user returned no message.
        Exception: Whatever the app or the user raises.
    """
    if max_turns is None and stopping_condition is None:
        raise ConfigError("pass max_turns, stopping_condition or both; nothing else ends it")
    thread = thread_id or str(uuid.uuid4())
    speak = user if callable(user) else _scripted(user)
    trajectory: list[ChatCompletionMessage] = []
    answers: list[Any] = []
    turn = 0
    while max_turns is None or turn < max_turns:
        message = await _call(speak, list(trajectory), turn_counter=turn, thread_id=thread)
        messages = _messages(message, "user")
        _append(trajectory, messages)
        answers.append(await _call(app, messages[-1], thread_id=thread))
        _append(trajectory, _messages(answers[-1], "app"))
        turn += 1
        if stopping_condition is not None and await _call(
            stopping_condition, list(trajectory), turn_counter=turn
        ):
            break
    results = await _evaluate(trajectory_evaluators or (), trajectory, answers, reference_outputs)
    return {"trajectory": trajectory, "evaluator_results": results}


async def _evaluate(
    evaluators: Sequence[Callable[..., Any]],
    trajectory: Sequence[ChatCompletionMessage],
    answers: Sequence[Any],
    reference_outputs: Any,
) -> list[EvaluatorResult]:
    """The results of all evaluators; an evaluator that raises has a result with its error."""
    results: list[EvaluatorResult] = []
    for evaluator in evaluators:
        try:
            outputs = _outputs_for(evaluator, trajectory, answers)
            returned = await _call(evaluator, outputs=outputs, reference_outputs=reference_outputs)
        except Exception as error:
            returned = _failure(evaluator, error)
        results += returned if isinstance(returned, list) else [returned]
    return results


def _blocking(
    function: Callable[Params, Coroutine[Any, Any, Value]], name: str
) -> Callable[Params, Value]:
    @wraps(function)
    def run(*args: Params.args, **kwargs: Params.kwargs) -> Value:
        return drive(function(*args, **kwargs))

    run.__name__ = run.__qualname__ = name
    return run


def _asynchronous(
    function: Callable[Params, Coroutine[Any, Any, Value]], name: str
) -> Callable[Params, Coroutine[Any, Any, Value]]:
    @wraps(function)
    async def run(*args: Params.args, **kwargs: Params.kwargs) -> Value:
        return await drive_async(function(*args, **kwargs))

    run.__name__ = run.__qualname__ = name
    return run


run_multiturn_simulation = _blocking(_simulate, "run_multiturn_simulation")
run_multiturn_simulation_async = _asynchronous(_simulate, "run_multiturn_simulation_async")


def _call(function: Callable[..., Any], *args: Any, **keywords: Any) -> IoCall[Any]:
    """A call of a user's function; awaiting it returns the function's result."""
    call = partial(function, *args, **keywords)

    def blocking() -> Any:
        returned = call()
        if inspect.iscoroutine(returned):
            returned.close()
            name = getattr(function, "__name__", type(function).__name__)
            raise ConfigError(f"{name} is asynchronous; use run_multiturn_simulation_async")
        return returned

    async def asynchronous() -> Any:
        returned = call()
        return await returned if inspect.isawaitable(returned) else returned

    return IoCall(blocking, asynchronous)


def _scripted(messages: Sequence[Any]) -> Callable[..., Any]:
    """A user that sends the messages of a list."""

    def speak(trajectory: Any, *, turn_counter: int, **_: Any) -> Any:
        del trajectory
        if turn_counter >= len(messages):
            raise ConfigError(
                f"user has {len(messages)} messages, and turn {turn_counter + 1} needs another; "
                "lower max_turns or add messages"
            )
        return messages[turn_counter]

    return speak


def _messages(value: Any, source: str) -> list[ChatCompletionMessage]:
    """A return value of the app or the user as messages with ids."""
    role = "user" if source == "user" else "assistant"
    if isinstance(value, str):
        value = {"role": role, "content": value}
    try:
        entries = _entries(value)
        messages = [message for entry in entries for message in _message(entry)]
    except InputError as error:
        raise InputError(f"{source} returned no message: {error}") from None
    if not messages:
        raise InputError(f"{source} returned no message: the list is empty")
    return messages


def _entries(value: Any) -> list[Any]:
    inner = value.get("messages") if isinstance(value, Mapping) and "role" not in value else None
    value = value if inner is None else inner
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _message(entry: Any) -> list[ChatCompletionMessage]:
    """A message in OpenAI's form. Its other fields are kept."""
    entry_id = getattr(entry, "id", None)
    if isinstance(entry, Mapping) and isinstance(entry.get("role"), str):
        to_messages([entry], "it")  # raises if it is not a message
        message = cast("ChatCompletionMessage", dict(entry))
        message["id"] = message.get("id") or str(uuid.uuid4())
        return [message]
    messages = [message.as_dict() for message in to_messages([entry], "it")]
    for converted in messages:
        converted["id"] = entry_id if entry_id and len(messages) == 1 else str(uuid.uuid4())
    return cast("list[ChatCompletionMessage]", messages)


def _append(trajectory: list[ChatCompletionMessage], new: list[ChatCompletionMessage]) -> None:
    """Add messages with a new id; the app returned the other messages as part of the history."""
    ids = {message.get("id") for message in trajectory}
    trajectory += [message for message in new if message.get("id") not in ids]


def _outputs_for(
    evaluator: Any, trajectory: Sequence[ChatCompletionMessage], answers: Sequence[Any]
) -> Any:
    """The conversation for an evaluator; ours gets the gap of calls that were not returned."""
    messages = list(trajectory)
    is_ours = isinstance(getattr(evaluator, "evaluator", evaluator), Evaluator)
    if is_ours and any(map(_is_answer_only, answers)):
        return {"messages": messages, "gaps": [replace(ANSWER_ONLY, detail=_ANSWER_ONLY)]}
    return messages


def _is_answer_only(answer: Any) -> bool:
    """Whether the app returned a text, or one message that requests no call."""
    return isinstance(answer, str) or (
        is_message(answer) and not any(message.tool_calls for message in to_messages(answer))
    )


def _failure(evaluator: Callable[..., Any], error: Exception) -> EvaluatorResult:
    text = describe_error(error)
    name = name_of(evaluator, set())
    return {"key": name, "score": None, "comment": text, "metadata": {"error": text}}
