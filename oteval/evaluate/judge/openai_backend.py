"""A judge behind an OpenAI-compatible server, asked with the ``openai`` package.

The package is imported when a judge is first asked: importing it takes about a second. Retries
with backoff, and waiting as long as Retry-After says, are the client's own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import JudgeError
from .backends import Opened, one_line, refuse_async
from .ladder import RUNGS, FormatRefused, Reply, Request, Rung
from .streams import Gathered

__all__ = ["DEFAULT_TIMEOUT", "OpenAIBackend", "Server", "is_client"]

DEFAULT_TIMEOUT = 60.0
_FORM = (400, 422, 500, 501)
# Codes of a 400 that no other form of the request would change.
_FINAL = frozenset({"context_length_exceeded", "invalid_api_key", "model_not_found"})


@dataclass(frozen=True)
class Server:
    """How a model is reached and asked.

    Attributes:
        model: The model's name.
        base_url: The server's address; None leaves it to ``OPENAI_BASE_URL``.
        api_key: The key; None leaves it to ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer, each time it is tried; None leaves it to a client
            of the user's, and is 60 otherwise.
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
        address = str(getattr(client, "base_url", None) or server.base_url or "").rstrip("/")
        self.place = (address, server.model)
        self._blocking = Opened(lambda: _make("OpenAI", server))
        # A client's connections belong to the event loop that opened them.
        self._by_loop: dict[Any, tuple[Any, AsyncGenerator[Any, None]]] = {}

    def identity(self) -> Mapping[str, Any]:
        """Return the server's address, the model and the request's options."""
        address, model = self.place
        return {"server": address, "model": model, "options": dict(self.server.options)}

    def send(self, request: Request) -> Reply:
        """Return the reply to a request."""
        import openai

        try:
            client = self._configured(self._given or self._blocking.get())
            given = client.chat.completions.create(**self._body(request))
            if not self.server.stream:
                return _reply(given, request)
            gathered = Gathered()
            for chunk in given:
                gathered.add(chunk)
            return gathered.reply()
        except JudgeError:
            raise
        except openai.OpenAIError as error:
            raise self._explained(error) from error
        except Exception as error:
            raise JudgeError(f"{type(error).__name__}: {one_line(error)}") from error

    async def asend(self, request: Request) -> Reply:
        """Return the reply to a request; a blocking client has a thread of its own."""
        import openai

        if self._given is not None and not _is_async(self._given):
            return await asyncio.to_thread(self.send, request)
        try:
            client = self._configured(self._given or await self._of_loop())
            given = await client.chat.completions.create(**self._body(request))
            if not self.server.stream:
                return _reply(given, request)
            gathered = Gathered()
            async for chunk in given:
                gathered.add(chunk)
            return gathered.reply()
        except JudgeError:
            raise
        except openai.OpenAIError as error:
            raise self._explained(error) from error
        except Exception as error:
            raise JudgeError(f"{type(error).__name__}: {one_line(error)}") from error

    def close(self) -> None:
        """Close the connections that were opened here; a client of the user's is left alone."""
        if self._blocking.value is not None:
            self._blocking.value.close()
            self._blocking.value = None

    async def _of_loop(self) -> Any:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            made = _make("AsyncOpenAI", self.server)
            held = _held(made, lambda: self._by_loop.pop(loop, None))
            self._by_loop[loop] = made, held
            await anext(held)
        return self._by_loop[loop][0]

    def _configured(self, client: Any) -> Any:
        if client is self._given and self.server.max_retries is not None:
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

    def _explained(self, error: Any) -> JudgeError:
        """Return a client's exception as one of ours, in one line that says what to do."""
        import openai

        of_loops = (client for client, _ in list(self._by_loop.values()))
        client = self._given or self._blocking.value or next(of_loops, None)
        where = str(getattr(client, "base_url", "") or "the server").rstrip("/")
        if isinstance(error, openai.APITimeoutError):
            waited = self.server.timeout or DEFAULT_TIMEOUT
            return JudgeError(f"no answer from {where} within {waited:g} s")
        if isinstance(error, openai.APIStatusError):
            text = f"{where} answered {error.status_code}: {_said(error)}"
            code = str(getattr(error, "code", "") or "")
            if error.status_code in _FORM and code not in _FINAL:
                return FormatRefused(text)
            return JudgeError(text)
        if isinstance(error, openai.APIConnectionError):
            cause = one_line(error.__cause__ or error, 200)
            return JudgeError(f"cannot reach {where}: {cause}")
        text = one_line(error)
        if "api_key" in text:
            return JudgeError("no API key: set OPENAI_API_KEY, or give api_key")
        return JudgeError(f"{type(error).__name__}: {text}")


def _said(error: Any) -> str:
    body = error.body
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    said = inner.get("message") if isinstance(inner, Mapping) else inner
    text = " ".join(str(said or error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _make(kind: str, server: Server) -> Any:
    """Return a client; a server of the user's own needs no key."""
    import openai

    more = {} if server.max_retries is None else {"max_retries": server.max_retries}
    timeout = DEFAULT_TIMEOUT if server.timeout is None else server.timeout
    make = getattr(openai, kind)
    try:
        return make(base_url=server.base_url, api_key=server.api_key, timeout=timeout, **more)
    except openai.OpenAIError:
        if server.base_url is None or server.api_key is not None:
            raise
        return make(base_url=server.base_url, api_key="none", timeout=timeout, **more)


async def _held(client: Any, forget: Callable[[], Any]) -> AsyncGenerator[Any, None]:
    """Hold a client until its event loop ends, which closes the generators that are not done."""
    try:
        yield client
    finally:
        forget()
        await client.close()


def _reply(given: Any, request: Request) -> Reply:
    choices = getattr(given, "choices", None)
    if not choices:
        raise JudgeError(f"the server's reply is no chat completion: {one_line(ValueError(given))}")
    choice, usage = choices[0], getattr(given, "usage", None)
    message = choice.message
    text = message.content
    if request.rung == "tool" and message.tool_calls:
        text = getattr(getattr(message.tool_calls[0], "function", None), "arguments", None)
    details = getattr(usage, "prompt_tokens_details", None)
    return Reply(
        text,
        refusal=getattr(message, "refusal", None) or "",
        finish=choice.finish_reason or "",
        model=getattr(given, "model", "") or "",
        input_tokens=getattr(usage, "prompt_tokens", 0) or 0,
        output_tokens=getattr(usage, "completion_tokens", 0) or 0,
        cached_tokens=getattr(details, "cached_tokens", 0) or 0,
    )
