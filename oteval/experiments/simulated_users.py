"""A language model in the place of the user, for `run_multiturn_simulation`.

The model sees the conversation with the roles exchanged: it answers as the assistant of a
conversation in which the app is the user. Tool calls and their results are left out, since a real
user does not see them.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, JudgeError
from ..evaluators import to_messages
from ..evaluators.openai_client import model_name, open_client

__all__ = ["create_async_llm_simulated_user", "create_llm_simulated_user"]

_TIMEOUT = 60.0
_BEGIN = "Begin the conversation as your instructions say. Write the user's first message, only."
Json = dict[str, Any]


def create_llm_simulated_user(
    *,
    system: str,
    model: str | None = None,
    client: Any = None,
    fixed_responses: Sequence[str | Mapping[str, Any]] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = _TIMEOUT,
    temperature: float | None = None,
) -> Callable[..., Json]:
    """Create a user that a language model plays.

    Args:
        system: Who the user is, and what they want.
        model: ``openai:NAME``, at any OpenAI-compatible server.
        client: An ``OpenAI`` client (with `model`), or a LangChain chat model (without).
        fixed_responses: What the user says first, turn by turn; the model goes on from there.
        base_url: The server's address; else ``OPENAI_BASE_URL``.
        api_key: The server's key; else ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer.
        temperature: The sampling temperature; None leaves it to the model.

    Returns:
        A function for the argument `user` of `run_multiturn_simulation`.

    Raises:
        ConfigError: Neither a model nor a client is given, or one that is not known.
    """
    ask = _asking(model, client, base_url, api_key, timeout, temperature)

    def user(trajectory: Sequence[Any], *, turn_counter: int, **_: Any) -> Json:
        """Return the user's next message."""
        if fixed_responses and turn_counter < len(fixed_responses):
            return _fixed(fixed_responses[turn_counter])
        return _said(ask(_prompt(system, trajectory)))

    return user


def create_async_llm_simulated_user(
    *,
    system: str,
    model: str | None = None,
    client: Any = None,
    fixed_responses: Sequence[str | Mapping[str, Any]] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = _TIMEOUT,
    temperature: float | None = None,
) -> Callable[..., Awaitable[Json]]:
    """Create the awaitable form of `create_llm_simulated_user`.

    Args:
        system: Who the user is, and what they want.
        model: ``openai:NAME``, at any OpenAI-compatible server.
        client: An ``OpenAI`` or ``AsyncOpenAI`` client (with `model`), or a LangChain chat model.
        fixed_responses: What the user says first, turn by turn.
        base_url: The server's address; else ``OPENAI_BASE_URL``.
        api_key: The server's key; else ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer.
        temperature: The sampling temperature; None leaves it to the model.

    Returns:
        A coroutine function for the argument `user` of `run_multiturn_simulation_async`.

    Raises:
        ConfigError: Neither a model nor a client is given, or one that is not known.
    """
    ask = _asking(model, client, base_url, api_key, timeout, temperature)

    async def user(trajectory: Sequence[Any], *, turn_counter: int, **_: Any) -> Json:
        """Return the user's next message."""
        if fixed_responses and turn_counter < len(fixed_responses):
            return _fixed(fixed_responses[turn_counter])
        reply = await asyncio.to_thread(ask, _prompt(system, trajectory))
        return _said(await reply if inspect.isawaitable(reply) else reply)

    return user


def _fixed(response: str | Mapping[str, Any]) -> Json:
    if isinstance(response, str):
        return {"role": "user", "content": response, "id": str(uuid.uuid4())}
    return dict(response)


def _prompt(system: str, trajectory: Sequence[Any]) -> list[Json]:
    """Return the messages to send: the instructions, then the conversation with roles exchanged."""
    exchanged = {"user": "assistant", "assistant": "user"}
    said = [
        {"role": exchanged[message.role], "content": message.content or ""}
        for message in to_messages(list(trajectory), "trajectory")
        if message.role in exchanged and not message.tool_calls
    ]
    begin = [{"role": "user", "content": _BEGIN}]
    return [{"role": "system", "content": system}, *(said or begin)]


def _said(reply: Any) -> Json:
    """Return the user's message in a reply.

    Raises:
        JudgeError: The model wrote nothing, or was cut off.
    """
    choices = getattr(reply, "choices", None)
    message = choices[0].message if choices else reply
    finish = getattr(choices[0], "finish_reason", "") if choices else ""
    text = message if isinstance(message, str) else getattr(message, "content", None)
    if isinstance(text, list):
        parts = (part.get("text", "") if isinstance(part, Mapping) else str(part) for part in text)
        text = "".join(parts)
    if not isinstance(text, str) or not text.strip():
        raise JudgeError("the simulated user's model wrote no text")
    if finish == "length":
        raise JudgeError("the simulated user's model was cut off by its token limit")
    return {"role": "user", "content": text, "id": str(uuid.uuid4())}


def _asking(
    model: str | None,
    client: Any,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    temperature: float | None,
) -> Callable[[list[Json]], Any]:
    """Return a function that sends messages to the model."""
    if client is not None and hasattr(client, "invoke"):
        return lambda messages: client.invoke(messages)
    if model is None:
        raise ConfigError(
            "a simulated user needs model='openai:NAME', or a LangChain model as client"
        )
    at = base_url if client is None else "the client's"
    body: Json = {"model": model_name(model, at, "a LangChain model as client=")}
    if temperature is not None:
        body["temperature"] = temperature

    def ask(messages: list[Json]) -> Any:
        if client is not None:
            return client.chat.completions.create(**body, messages=messages, timeout=timeout)
        with open_client(base_url, api_key, timeout=timeout) as made:
            return made.chat.completions.create(**body, messages=messages)

    return ask
