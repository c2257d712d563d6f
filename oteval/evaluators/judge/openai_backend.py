"""A judge behind an OpenAI-compatible server, asked with the ``openai`` package.

The package is imported when a judge is first asked: importing it takes about a second. Retries
with backoff, and waiting as long as Retry-After says, are the client's own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import JudgeError
from ..functions import call_with
from . import background
from .backends import Opened, one_line, refuse_async
from .completions import completion_reply, count
from .ladder import RUNGS, FormatRefused, Reply, Request, Rung
from .streams import Gathered

__all__ = ["DEFAULT_TIMEOUT", "OpenAIBackend", "Server", "is_client"]

DEFAULT_TIMEOUT = 60.0
_FORM = (400, 422, 500, 501)
# A server that is busy or broken answers so; some do whenever they meet a form they do not take.
_OUTAGE = 500
# Codes of a 400 that no other form of the request would change.
_FINAL = frozenset({"context_length_exceeded", "invalid_api_key", "model_not_found"})


@dataclass(frozen=True)
class Server:
    """How a model is reached and asked.

    Attributes:
        model: The model's name.
        base_url: The server's address; None leaves it to ``OPENAI_BASE_URL``.
        api_key: The key; None leaves it to ``OPENAI_API_KEY``.
        timeout: Seconds that a request may take, its retries included; None leaves it to a
            client of the user's, and is 60 otherwise.
        max_retries: How often the client tries again; None leaves it to the client (twice).
        stream: Whether the answer is streamed, which keeps slow ones alive behind proxies.
        options: More of the request, such as ``temperature``, ``seed`` or ``max_tokens``.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = None
    timeout: float | None = None
    max_retries: int | None = None
    stream: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def is_client(judge: Any) -> bool:
    """Return whether something is an OpenAI client, or looks like one."""
    completions = getattr(getattr(judge, "chat", None), "completions", None)
    return callable(getattr(completions, "create", None))


def _is_async(client: Any) -> bool:
    named = any(cls.__name__.startswith("Async") for cls in type(client).__mro__)
    return named or inspect.iscoroutinefunction(client.chat.completions.create)


class OpenAIBackend:
    """A model behind a server.

    A request takes no longer than the timeout, with its retries and however slowly the server
    sends bytes. So a blocking evaluator's own client is asynchronous too, on the event loop of
    `background`: only there a request can be cancelled.

    Args:
        server: How it is reached and asked.
        client: The user's client; None makes one.
        is_async: Whether the evaluator is asynchronous.

    Raises:
        ConfigError: The client is asynchronous, and the evaluator is not.
    """

    rungs: tuple[Rung, ...] = RUNGS

    def __init__(self, server: Server, client: Any = None, *, is_async: bool = False) -> None:
        if client is not None and _is_async(client) and not is_async:
            raise refuse_async("an asynchronous OpenAI client")
        self.server, self.model = server, server.model
        self._given = client
        self._opened_at: str | None = None
        self._own = Opened(self._open_own)
        # A client's connections belong to the event loop that opened them.
        self._by_loop: dict[Any, tuple[Any, AsyncGenerator[Any, None]]] = {}

    @property
    def place(self) -> tuple[str, str]:
        """The server's address, "" for OpenAI's own, and the model."""
        address = getattr(self._given, "base_url", None) if self._given is not None else None
        address = address or self.server.base_url or self._opened_at
        if address is None and self._given is None:
            address = os.environ.get("OPENAI_BASE_URL")
        return str(address or "").rstrip("/"), self.model

    @property
    def answer_limit(self) -> int | None:
        """The request's own limit on tokens of the answer."""
        options = self.server.options
        limits = [count(options.get(key)) for key in ("max_completion_tokens", "max_tokens")]
        return next((limit for limit in limits if limit), None)

    def identity(self) -> Mapping[str, Any]:
        """Return the server's address, the model and the request's options."""
        address, model = self.place
        return {"server": address, "model": model, "options": dict(self.server.options)}

    def send(self, request: Request) -> Reply:
        """Return the reply to a request."""
        if self._given is None:
            client = self._made(self._own.get)
            return background.run(self._bounded(self._ask(client, request)))
        context = contextvars.copy_context()
        try:
            reply: Reply = call_with(lambda: context.run(self._send, request), {}, self._seconds())
            return reply
        except TimeoutError:
            raise self._too_slow() from None

    async def asend(self, request: Request) -> Reply:
        """Return the reply to a request; a blocking client has a thread of its own."""
        if self._given is None:
            client = await self._of_loop()
        elif _is_async(self._given):
            client = self._configured(self._given)
        else:
            return await asyncio.to_thread(self.send, request)
        return await self._bounded(self._ask(client, request))

    def close(self) -> None:
        """Close the connections that were opened here; a client of the user's is left alone."""
        client, self._own.value = self._own.value, None
        if client is not None:
            background.run(client.close())

    def _send(self, request: Request) -> Reply:
        """Ask with the user's blocking client."""
        try:
            client = self._configured(self._given)
            given = client.chat.completions.create(**self._body(request))
            if hasattr(given, "choices"):
                return completion_reply(given, request)
            if _is_whole(given):
                return completion_reply(_parsed(given.response.read()), request)
            gathered = Gathered()
            for chunk in given:
                gathered.add(chunk)
            return gathered.reply(request)
        except Exception as error:
            raise self._explained(error) from error

    async def _ask(self, client: Any, request: Request) -> Reply:
        """Ask with an asynchronous client."""
        try:
            given = await client.chat.completions.create(**self._body(request))
            if hasattr(given, "choices"):
                return completion_reply(given, request)
            if _is_whole(given):
                return completion_reply(_parsed(await given.response.aread()), request)
            gathered = Gathered()
            async for chunk in given:
                gathered.add(chunk)
            return gathered.reply(request)
        except Exception as error:
            raise self._explained(error) from error

    async def _bounded(self, asked: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            return await asyncio.wait_for(asked, self._seconds())
        except TimeoutError:
            raise self._too_slow() from None

    def _seconds(self) -> float | None:
        """Return how long a request may take; None where the user's client sets no limit."""
        if self.server.timeout is not None:
            return self.server.timeout
        if self._given is None:
            return DEFAULT_TIMEOUT
        own = getattr(self._given, "timeout", None)
        found = getattr(own, "read", own)
        return float(found) if isinstance(found, (int, float)) else None

    def _too_slow(self) -> JudgeError:
        return JudgeError(f"no answer from {self._where} within {self._seconds() or 0:g} s")

    @property
    def _where(self) -> str:
        return self.place[0] or "https://api.openai.com/v1"

    def _made(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:
            raise self._explained(error) from error

    def _open(self) -> Any:
        address = self.place[0]
        client = _make(self.server, address or None)
        self._opened_at = address
        return client

    def _open_own(self) -> Any:
        client = self._open()
        # An evaluator that nobody closed leaves no connection open.
        weakref.finalize(self, lambda: background.start(client.close())).atexit = False
        return client

    async def _of_loop(self) -> Any:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            made = self._made(self._open)
            held = _held(made, lambda: self._by_loop.pop(loop, None))
            self._by_loop[loop] = made, held
            await anext(held)
        return self._by_loop[loop][0]

    def _configured(self, client: Any) -> Any:
        if self.server.max_retries is not None:
            return client.with_options(max_retries=self.server.max_retries)
        return client

    def _body(self, request: Request) -> dict[str, Any]:
        """Return the keywords of a chat completion."""
        body: dict[str, Any] = {"model": self.model, "messages": list(request.messages)}
        body.update(self.server.options)
        if self._given is not None and self.server.timeout is not None:
            body["timeout"] = self.server.timeout
        if self.server.stream:
            body.update(stream=True, stream_options={"include_usage": True})
        schema = request.schema
        if request.rung == "json_schema":
            named = {"name": schema.name, "schema": dict(schema.json), "strict": schema.strict}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif request.rung == "tool":
            function: dict[str, Any] = {
                "name": schema.name,
                "description": "Hand in the answer.",
                "parameters": dict(schema.json),
            }
            body["tools"] = [{"type": "function", "function": function}]
            body["tool_choice"] = {"type": "function", "function": {"name": schema.name}}
        elif request.rung == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _explained(self, error: Exception) -> JudgeError:
        """Return a client's exception as one of ours, in one line that says what to do."""
        import openai

        if isinstance(error, JudgeError):
            return error
        if isinstance(error, openai.APITimeoutError):
            return self._too_slow()
        if isinstance(error, openai.APIStatusError):
            text = f"{self._where} answered {error.status_code}: {_said(error)}"
            code = str(getattr(error, "code", "") or "")
            if error.status_code in _FORM and code not in _FINAL:
                return FormatRefused(text, is_outage=error.status_code == _OUTAGE)
            return JudgeError(text)
        if isinstance(error, openai.APIConnectionError):
            cause = one_line(error.__cause__ or error, 200)
            return JudgeError(f"cannot reach {self._where}: {cause}")
        text = one_line(error)
        if isinstance(error, openai.OpenAIError) and "api_key" in text:
            return JudgeError("no API key: set OPENAI_API_KEY, or give api_key")
        return JudgeError(f"{type(error).__name__}: {text}")


def _said(error: Any) -> str:
    body = error.body
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    said = inner.get("message") if isinstance(inner, Mapping) else inner
    text = " ".join(str(said or error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _make(server: Server, address: str | None) -> Any:
    """Return a client; a server of the user's own needs no key."""
    import openai

    more: dict[str, Any] = {} if server.max_retries is None else {"max_retries": server.max_retries}
    more["timeout"] = DEFAULT_TIMEOUT if server.timeout is None else server.timeout
    key = server.api_key
    if key is None and server.base_url is not None and not os.environ.get("OPENAI_API_KEY"):
        key = "none"
    return openai.AsyncOpenAI(base_url=address, api_key=key, **more)


async def _held(client: Any, forget: Callable[[], Any]) -> AsyncGenerator[Any, None]:
    """Hold a client until its event loop ends, which closes the generators that are not done."""
    try:
        yield client
    finally:
        forget()
        await client.close()


def _is_whole(stream: Any) -> bool:
    """Return whether a server answered with a whole completion where a stream was asked for."""
    headers = getattr(getattr(stream, "response", None), "headers", None) or {}
    return "json" in str(headers.get("content-type", "")).lower()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        shown = " ".join(body[:200].decode("utf-8", "replace").split())
        raise JudgeError(f"the server's reply is not a chat completion: {shown}") from None
