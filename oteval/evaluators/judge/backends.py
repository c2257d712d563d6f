"""The backends of judges: OpenAI-compatible servers, LangChain models and Python functions.

A `Backend` turns a `CompletionRequest` into a `ModelReply`. This module contains the interface and
the backend for functions; `openai_backend` and `langchain_backend` contain the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...base.errors import ConfigError, JudgeError
from ...base.runner import call, is_async_function
from ...base.sync import IoCall
from .output_modes import CompletionRequest, ModelReply, OutputMode

__all__ = [
    "Backend",
    "FunctionBackend",
    "blocking_only_error",
    "one_line",
    "timeout_error",
]


class Backend(Protocol):
    """Something that answers requests.

    Attributes:
        modes: The output modes that it supports, from the strictest.
        model: The model's name, or "".
    """

    modes: tuple[OutputMode, ...]
    model: str

    @property
    def endpoint(self) -> tuple[str, str]:
        """The server's address and the model's name."""
        ...

    @property
    def answer_limit(self) -> int | None:
        """The limit on answer tokens that requests set, or None."""
        ...

    def identity(self) -> Mapping[str, Any] | None:
        """Everything that answers depend on, or None if it cannot be determined.

        It is part of the cache key and of the evaluator's version.
        """
        ...

    async def send(self, request: CompletionRequest) -> ModelReply:
        """Send a request and return the reply. All I/O is an `IoCall`.

        Raises:
            OutputModeRefused: The server does not support the request's output mode.
            JudgeError: Any other failure, described in one line.
        """
        ...

    def close(self) -> None:
        """Close the connections that the backend opened."""
        ...


def one_line(error: BaseException, length: int = 400) -> str:
    """An exception's message as one line of limited length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else f"{text[: length - 3]}..."


def timeout_error(error: TimeoutError, timeout: float | None) -> JudgeError:
    """The error for a judge that did not answer in time."""
    return JudgeError(str(error) or f"no answer within {timeout or 0:g} s")


def blocking_only_error(judge: str) -> ConfigError:
    """The error for an asynchronous judge in a blocking evaluator."""
    return ConfigError(
        f"judge is {judge}; a blocking evaluator cannot await it: use the async form"
    )


class FunctionBackend:
    """A judge that is a function ``(messages, schema) -> dict``.

    Args:
        function: Takes OpenAI messages and a JSON schema; returns the answer as a dict, a pydantic
            model or JSON text. A function with a ``cache_key`` attribute can be cached by it.
        model: The name to report.
        timeout: In seconds; None waits without limit.
    """

    modes: tuple[OutputMode, ...] = ("function",)
    answer_limit: int | None = None

    def __init__(self, function: Callable[..., Any], model: str, timeout: float | None) -> None:
        self.function, self.timeout = function, timeout
        self.model = model or getattr(function, "__qualname__", type(function).__qualname__)
        self.endpoint = ("function", self.model)

    def identity(self) -> Mapping[str, Any] | None:
        """The function's ``cache_key`` attribute."""
        key = getattr(self.function, "cache_key", None)
        return None if key is None else {"function": key}

    async def send(self, request: CompletionRequest) -> ModelReply:
        """Call the function."""
        messages = [dict(message) for message in request.messages]
        schema = dict(request.schema.json)

        def blocking() -> Any:
            return call(lambda: self.function(messages, schema), self.timeout)

        async def call_async() -> Any:
            if is_async_function(self.function):
                return await asyncio.wait_for(self.function(messages, schema), self.timeout)
            # `call` starts a daemon thread, so that a function that hangs does not keep the
            # event loop's executor from shutting down.
            return await asyncio.to_thread(blocking)

        try:
            returned = await IoCall(blocking, call_async)
        except JudgeError:
            raise
        except TimeoutError as error:
            raise timeout_error(error, self.timeout) from error
        except Exception as error:
            raise JudgeError(f"{type(error).__name__}: {one_line(error)}") from error
        return _read_returned(returned)

    def close(self) -> None:
        """Do nothing; a function has no connections."""


def _read_returned(returned: Any) -> ModelReply:
    if hasattr(returned, "model_dump"):
        returned = returned.model_dump()
    if isinstance(returned, Mapping):
        return ModelReply(None, value=dict(returned))
    if isinstance(returned, str):
        return ModelReply(returned)
    raise JudgeError(f"the function returned a {type(returned).__name__}; expected a dict")
