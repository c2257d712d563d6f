"""A language model in the role of the user, for `run_multiturn_simulation`.

The model sees the conversation with the roles swapped: it answers as the assistant, and the app
is the user. Tool calls and their results are left out, because a real user does not see them.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

from ...base.errors import ConfigError, JudgeError
from ...evaluators import (
    COMPLETE_FINISH_REASONS,
    attribute,
    error_in_answer,
    finish_reason,
    model_name,
    open_client,
    to_messages,
    unseen_text,
)
from ...model import normal_finish_reason, read_tokens

__all__ = ["create_async_llm_simulated_user", "create_llm_simulated_user"]

_TIMEOUT = 60.0
_BEGIN = "Begin the conversation as your instructions say. Write the user's first message, only."
Json = dict[str, Any]
Params = ParamSpec("Params")


class _SimulatedUser:
    """A user that a language model plays.

    Attributes:
        system: The instructions.
        ask: Sends messages to the model. Returns its reply, or an awaitable of the reply.
        fixed_responses: The first messages of the user.
    """

    def __init__(
        self,
        system: str,
        ask: Callable[[list[Json]], Any],
        fixed_responses: Sequence[str | Mapping[str, Any]],
    ) -> None:
        self.system, self.ask, self.fixed_responses = system, ask, fixed_responses

    def speak(self, trajectory: Sequence[Any], *, turn_counter: int, **_: Any) -> Json:
        """The user's next message."""
        fixed = self._fixed(turn_counter)
        if fixed is not None:
            return fixed
        prompt = self._prompt(trajectory)
        return _message_in(self.ask(prompt), prompt)

    async def speak_async(self, trajectory: Sequence[Any], *, turn_counter: int, **_: Any) -> Json:
        """The user's next message, without blocking the event loop."""
        fixed = self._fixed(turn_counter)
        if fixed is not None:
            return fixed
        prompt = self._prompt(trajectory)
        reply = await asyncio.to_thread(self.ask, prompt)
        return _message_in(await reply if inspect.isawaitable(reply) else reply, prompt)

    def _fixed(self, turn: int) -> Json | None:
        if turn >= len(self.fixed_responses):
            return None
        response = self.fixed_responses[turn]
        if isinstance(response, str):
            return {"role": "user", "content": response, "id": str(uuid.uuid4())}
        return dict(response)

    def _prompt(self, trajectory: Sequence[Any]) -> list[Json]:
        """The instructions, and the conversation with the roles swapped."""
        swapped = {"user": "assistant", "assistant": "user"}
        conversation = [
            {"role": swapped[message.role], "content": message.content or ""}
            for message in to_messages(list(trajectory), "trajectory")
            if message.role in swapped and not message.tool_calls
        ]
        begin = [{"role": "user", "content": _BEGIN}]
        return [{"role": "system", "content": self.system}, *(conversation or begin)]


def _simulated_user(
    *,
    system: str,
    model: str | None = None,
    client: Any = None,
    fixed_responses: Sequence[str | Mapping[str, Any]] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = _TIMEOUT,
    temperature: float | None = None,
) -> _SimulatedUser:
    """Create a user that a language model plays.

    `create_llm_simulated_user` creates a function, `create_async_llm_simulated_user` a coroutine
    function.

    Args:
        system: Instructions: who the user is, and the user's goal.
        model: ``openai:NAME``, at any OpenAI-compatible server.
        client: An ``OpenAI`` client (with `model`), or a LangChain chat model (without). The
            coroutine function also takes an ``AsyncOpenAI`` client.
        fixed_responses: The user's first messages, turn by turn; the model writes the next ones.
        base_url: The server's address; by default ``OPENAI_BASE_URL``.
        api_key: The server's key; by default ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer.
        temperature: The sampling temperature; None for the model's default.

    Returns:
        A function for the argument `user` of `run_multiturn_simulation`, or a coroutine function
        for `run_multiturn_simulation_async`.

    Raises:
        ConfigError: Neither a model nor a client is given, or the model is unknown.
    """
    ask = _sender(model, client, base_url, api_key, timeout, temperature)
    return _SimulatedUser(system, ask, fixed_responses or ())


def _blocking(
    create: Callable[Params, _SimulatedUser], name: str
) -> Callable[Params, Callable[..., Json]]:
    @wraps(create)
    def create_user(*args: Params.args, **kwargs: Params.kwargs) -> Callable[..., Json]:
        return create(*args, **kwargs).speak

    create_user.__name__ = create_user.__qualname__ = name
    return create_user


def _asynchronous(
    create: Callable[Params, _SimulatedUser], name: str
) -> Callable[Params, Callable[..., Awaitable[Json]]]:
    @wraps(create)
    def create_user(*args: Params.args, **kwargs: Params.kwargs) -> Callable[..., Awaitable[Json]]:
        return create(*args, **kwargs).speak_async

    create_user.__name__ = create_user.__qualname__ = name
    return create_user


create_llm_simulated_user = _blocking(_simulated_user, "create_llm_simulated_user")
create_async_llm_simulated_user = _asynchronous(_simulated_user, "create_async_llm_simulated_user")


def _message_in(reply: Any, prompt: Sequence[Json]) -> Json:
    """The user's message in a reply of the model.

    Raises:
        JudgeError: The model failed, wrote nothing, was cut off, or saw only a part of the prompt.
    """
    if (error := error_in_answer(reply)) is not None:
        raise JudgeError(f"the simulated user's model failed: {error.message}")
    choices = getattr(reply, "choices", None)
    message = choices[0].message if choices else reply
    text = message if isinstance(message, str) else getattr(message, "content", None)
    if isinstance(text, list):
        parts = (part.get("text", "") if isinstance(part, Mapping) else str(part) for part in text)
        text = "".join(parts)
    if not isinstance(text, str) or not text.strip():
        raise JudgeError("the simulated user's model wrote no text")
    metadata = getattr(reply, "response_metadata", None) or {}
    finish = normal_finish_reason(finish_reason(choices[0] if choices else metadata))
    if finish not in COMPLETE_FINISH_REASONS:
        cut = "was cut off by its token limit" if finish == "length" else f"stopped with {finish!r}"
        raise JudgeError(f"the simulated user's model {cut}")
    usage = attribute(reply, "usage") or attribute(reply, "usage_metadata")
    counts = read_tokens(usage.model_dump() if hasattr(usage, "model_dump") else usage)
    if problem := unseen_text((str(message["content"]) for message in prompt), counts.input):
        raise JudgeError(problem)
    return {"role": "user", "content": text, "id": str(uuid.uuid4())}


def _sender(
    model: str | None,
    client: Any,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    temperature: float | None,
) -> Callable[[list[Json]], Any]:
    """A function that sends messages to the model."""
    if client is not None and hasattr(client, "invoke"):
        return lambda messages: client.invoke(messages)
    if model is None:
        raise ConfigError(
            "a simulated user needs model='openai:NAME', or a LangChain model as client"
        )
    address = base_url if client is None else "the client's"
    body: Json = {"model": model_name(model, address, "a LangChain model as client=")}
    if temperature is not None:
        body["temperature"] = temperature

    def send(messages: list[Json]) -> Any:
        if client is not None:
            return client.chat.completions.create(**body, messages=messages, timeout=timeout)
        with open_client(base_url, api_key, timeout=timeout) as opened:
            return opened.chat.completions.create(**body, messages=messages)

    return send
