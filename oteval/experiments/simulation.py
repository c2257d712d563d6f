"""Simulated conversations between an application and a user.

The **app** is the system under test: a function of the user's message. The **user** is a function
of the conversation so far, a list of messages to say, or a language model
(`create_llm_simulated_user`). A **turn** is one message of the user and the app's answer to it.

Names, call shapes and results are those of openevals, except that an evaluator which raises gives
a result that says so.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, cast

from ..errors import ConfigError, InputError
from ..evaluators import to_messages
from ..evaluators.types import ChatCompletionMessage, EvaluatorResult, MultiturnSimulationResult
from .calling import reason
from .evaluators import name_of

__all__ = ["run_multiturn_simulation", "run_multiturn_simulation_async"]

_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
# Yields calls to make, and is sent what they returned.
_Steps = Generator[_Call, Any, MultiturnSimulationResult]


def run_multiturn_simulation(
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

    Args:
        app: Called as ``app(message, thread_id=...)`` with the user's message; returns the
            answer: a message, a list of messages, ``{"messages": [...]}`` or text.
        user: Called as ``user(trajectory, turn_counter=..., thread_id=...)`` with the messages so
            far; returns the next message of the user. Or a list of messages or texts to say.
        max_turns: After how many turns to stop.
        trajectory_evaluators: Evaluators of the whole conversation, called with ``outputs`` and
            ``reference_outputs``.
        stopping_condition: Called as ``stopping_condition(trajectory, turn_counter=...)`` after
            each turn; the conversation ends when it returns a true value.
        reference_outputs: Handed to the evaluators.
        thread_id: The conversation's id; a random one unless given.

    Returns:
        ``trajectory``, the messages of the conversation, each with an ``id``, and
        ``evaluator_results``. An evaluator that raised has a result with the score None.

    Raises:
        ConfigError: Neither `max_turns` nor `stopping_condition` is given, or `user` has fewer
            messages than there are turns.
        InputError: The app or the user returned no message.
        Exception: Whatever the app or the user raises.
    """
    steps = _simulation(
        app,
        user,
        max_turns,
        trajectory_evaluators or (),
        stopping_condition,
        reference_outputs,
        thread_id,
    )
    returned: Any = None
    while True:
        try:
            function, arguments, keywords = steps.send(returned)
        except StopIteration as end:
            return cast("MultiturnSimulationResult", end.value)
        try:
            returned = function(*arguments, **keywords)
            if inspect.iscoroutine(returned):
                returned.close()
                raise ConfigError(
                    f"{_name(function)} is asynchronous; use run_multiturn_simulation_async"
                )
        except Exception as error:
            returned = error


async def run_multiturn_simulation_async(
    *,
    app: Callable[..., Any],
    user: Callable[..., Any] | Sequence[Any],
    max_turns: int | None = None,
    trajectory_evaluators: Sequence[Callable[..., Any]] | None = None,
    stopping_condition: Callable[..., Any] | None = None,
    reference_outputs: Any = None,
    thread_id: str | None = None,
) -> MultiturnSimulationResult:
    """Simulate a conversation with functions that may be asynchronous, and evaluate it.

    Args:
        app: As for `run_multiturn_simulation`; it may be a coroutine function.
        user: As for `run_multiturn_simulation`; it may be a coroutine function.
        max_turns: After how many turns to stop.
        trajectory_evaluators: Evaluators, synchronous or not.
        stopping_condition: A function, synchronous or not, that ends the conversation.
        reference_outputs: Handed to the evaluators.
        thread_id: The conversation's id; a random one unless given.

    Returns:
        ``trajectory`` and ``evaluator_results``.

    Raises:
        ConfigError: Neither `max_turns` nor `stopping_condition` is given, or `user` has fewer
            messages than there are turns.
        InputError: The app or the user returned no message.
        Exception: Whatever the app or the user raises.
    """
    steps = _simulation(
        app,
        user,
        max_turns,
        trajectory_evaluators or (),
        stopping_condition,
        reference_outputs,
        thread_id,
    )
    returned: Any = None
    while True:
        try:
            function, arguments, keywords = steps.send(returned)
        except StopIteration as end:
            return cast("MultiturnSimulationResult", end.value)
        try:
            returned = function(*arguments, **keywords)
            if inspect.isawaitable(returned):
                returned = await returned
        except Exception as error:
            returned = error


def _simulation(
    app: Callable[..., Any],
    user: Callable[..., Any] | Sequence[Any],
    max_turns: int | None,
    evaluators: Sequence[Callable[..., Any]],
    stopping_condition: Callable[..., Any] | None,
    reference_outputs: Any,
    thread_id: str | None,
) -> _Steps:
    """Yield the calls of a simulation, and return its result."""
    if max_turns is None and stopping_condition is None:
        raise ConfigError("give max_turns, stopping_condition or both; nothing else ends it")
    thread = thread_id or str(uuid.uuid4())
    speak = user if callable(user) else _scripted(user)
    trajectory: list[ChatCompletionMessage] = []
    turn = 0
    while max_turns is None or turn < max_turns:
        said = yield speak, (list(trajectory),), {"turn_counter": turn, "thread_id": thread}
        asked = _messages(_returned(said), "user")
        _append(trajectory, asked)
        answered = yield app, (asked[-1],), {"thread_id": thread}
        _append(trajectory, _messages(_returned(answered), "app"))
        turn += 1
        if stopping_condition is not None:
            stops = yield stopping_condition, (list(trajectory),), {"turn_counter": turn}
            if _returned(stops):
                break
    results: list[EvaluatorResult] = []
    for evaluator in evaluators:
        keywords = {"outputs": list(trajectory), "reference_outputs": reference_outputs}
        found = yield evaluator, (), keywords
        results += _results(evaluator, found)
    return {"trajectory": trajectory, "evaluator_results": results}


def _returned(value: Any) -> Any:
    """Return what a call returned, or raise what it raised."""
    if isinstance(value, Exception):
        raise value
    return value


def _scripted(messages: Sequence[Any]) -> Callable[..., Any]:
    """Return a user that says what a list holds."""

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
    """Return what the app or the user said, as messages with ids."""
    role = "user" if source == "user" else "assistant"
    if isinstance(value, str):
        value = {"role": role, "content": value}
    try:
        entries = _entries(value)
        found = [one for entry in entries for one in _message(entry)]
    except InputError as error:
        raise InputError(f"{source} returned no message: {error}") from None
    if not found:
        raise InputError(f"{source} returned no message: the list is empty")
    return found


def _entries(value: Any) -> list[Any]:
    inner = value.get("messages") if isinstance(value, Mapping) and "role" not in value else None
    value = value if inner is None else inner
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _message(entry: Any) -> list[ChatCompletionMessage]:
    """Return a message in OpenAI's form; fields that it has beside are kept."""
    known = getattr(entry, "id", None)
    if isinstance(entry, Mapping) and isinstance(entry.get("role"), str):
        to_messages([entry], "it")  # raises for what is no message
        kept = cast("ChatCompletionMessage", dict(entry))
        kept["id"] = kept.get("id") or str(uuid.uuid4())
        return [kept]
    found = [one.as_dict() for one in to_messages([entry], "it")]
    for one in found:
        one["id"] = known if known and len(found) == 1 else str(uuid.uuid4())
    return cast("list[ChatCompletionMessage]", found)


def _append(trajectory: list[ChatCompletionMessage], new: list[ChatCompletionMessage]) -> None:
    """Add messages; one whose id is there already was returned as part of the history."""
    known = {message.get("id") for message in trajectory}
    trajectory += [message for message in new if message.get("id") not in known]


def _results(evaluator: Callable[..., Any], found: Any) -> list[EvaluatorResult]:
    if isinstance(found, Exception):
        text = reason(found)
        name = name_of(evaluator, set())
        return [{"key": name, "score": None, "comment": text, "metadata": {"error": text}}]
    return list(found) if isinstance(found, list) else [found]


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
