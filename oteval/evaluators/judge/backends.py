"""What a judge can be: an OpenAI-compatible server, a LangChain model, or a function.

A **backend** takes one `Request` and returns the `Reply`. It raises `FormatRefused` where the
server does not take a request of that form, and `JudgeError`, in one line, for all else.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...errors import ConfigError, JudgeError
from ..functions import call_with
from .ladder import Reply, Request, Rung

__all__ = ["Backend", "FunctionBackend", "is_async_callable", "one_line"]


class Backend(Protocol):
    """Something that answers requests.

    Attributes:
        rungs: The ways in which it can be asked.
        model: The model's name, or "".
    """

    rungs: tuple[Rung, ...]
    model: str

    @property
    def place(self) -> tuple[str, str]:
        """The server and the model."""
        ...

    @property
    def answer_limit(self) -> int | None:
        """The most tokens that an answer may have; None where requests set no limit."""
        ...

    def identity(self) -> Mapping[str, Any] | None:
        """Return all of it that answers depend on; None where that cannot be told."""
        ...

    def send(self, request: Request) -> Reply:
        """Return the reply to a request."""
        ...

    async def asend(self, request: Request) -> Reply:
        """Return the reply to a request."""
        ...

    def close(self) -> None:
        """Close what it opened."""
        ...


def one_line(error: BaseException, length: int = 400) -> str:
    """Return an exception as one line of text."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else f"{text[: length - 3]}..."


def is_async_callable(function: Any) -> bool:
    """Return whether calling something gives a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  the method, not whether there is one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class FunctionBackend:
    """A function ``(messages, schema) -> dict``.

    Args:
        function: The function; it is given OpenAI messages and a JSON schema, and returns the
            answer as a dict or as JSON text.
        model: What to call it.
        timeout: After how many seconds to give up on it; None waits.
    """

    rungs: tuple[Rung, ...] = ("function",)
    answer_limit: int | None = None

    def __init__(self, function: Callable[..., Any], model: str, timeout: float | None) -> None:
        self.function, self.timeout = function, timeout
        self.model = model or getattr(function, "__qualname__", type(function).__qualname__)
        self.place = ("function", self.model)

    def identity(self) -> Mapping[str, Any] | None:
        """Return its ``cache_key`` attribute; without one nothing of it is cached."""
        known = getattr(self.function, "cache_key", None)
        return None if known is None else {"function": known}

    def send(self, request: Request) -> Reply:
        """Call the function."""
        messages, schema = _copies(request)
        try:
            returned = call_with(lambda: self.function(messages, schema), {}, self.timeout)
        except (JudgeError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise _failed(error) from error
        return _reply(returned)

    async def asend(self, request: Request) -> Reply:
        """Call the function, or await it; one that blocks has a thread of its own."""
        messages, schema = _copies(request)
        try:
            if is_async_callable(self.function):
                call = self.function(messages, schema)
                returned = await asyncio.wait_for(call, self.timeout)
            else:
                # The thread inside ends with its process; one of asyncio's would be waited for.
                returned = await asyncio.to_thread(
                    call_with, lambda: self.function(messages, schema), {}, self.timeout
                )
        except JudgeError:
            raise
        except TimeoutError as error:
            raise JudgeError(str(error) or f"no answer within {self.timeout:g} s") from error
        except Exception as error:
            raise _failed(error) from error
        return _reply(returned)

    def close(self) -> None:
        """Do nothing: nothing was opened."""


def _copies(request: Request) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [dict(message) for message in request.messages], dict(request.schema.json)


def _failed(error: Exception) -> JudgeError:
    if isinstance(error, TimeoutError) and str(error):
        return JudgeError(str(error))
    return JudgeError(f"{type(error).__name__}: {one_line(error)}")


def _reply(returned: Any) -> Reply:
    if hasattr(returned, "model_dump"):
        returned = returned.model_dump()
    if isinstance(returned, Mapping):
        return Reply(None, value=dict(returned))
    if isinstance(returned, str):
        return Reply(returned)
    raise JudgeError(f"the function returned a {type(returned).__name__}; expected a dict")


class Opened:
    """Something made once, when it is first needed, by whichever thread needs it first."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self.value: Any = None

    def get(self) -> Any:
        """Return it."""
        with self._lock:
            if self.value is None:
                self.value = self._make()
            return self.value


def refuse_async(what: str) -> ConfigError:
    """Return the error of something asynchronous in a blocking evaluator."""
    return ConfigError(f"judge is {what}; a blocking evaluator cannot await it: use the async form")
