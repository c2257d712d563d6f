"""Judges behind OpenAI-compatible servers, called with the ``openai`` package.

The package takes about a second to import, so it is imported with the first request. Its clients
retry failed requests with backoff and honour the Retry-After header.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import ConfigError, JudgeError
from ...base.runner import call
from ...base.sync import BackgroundLoop, IoCall, drive
from ..openai_client import http_client, refused_redirect
from .backends import blocking_only_error, one_line
from .completions import (
    ServerError,
    ServerErrorInAnswer,
    StreamedCompletion,
    error_in_answer,
    read_completion,
    token_count,
)
from .output_modes import (
    OUTPUT_MODES,
    CompletionRequest,
    ModelReply,
    OutputMode,
)

__all__ = [
    "DEFAULT_TIMEOUT",
    "ModelServer",
    "OpenAIBackend",
    "is_openai_client",
    "key_in_environment",
]

DEFAULT_TIMEOUT = 60.0
# The first and the longest wait before a request is repeated, in seconds; waits double.
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 8.0

_loop = BackgroundLoop("oteval judge requests")


@dataclass(frozen=True)
class ModelServer:
    """A model on a server, and the options of requests to it.

    Attributes:
        model: The model's name.
        base_url: The server's address; None means ``OPENAI_BASE_URL``.
        api_key: The key; None means ``OPENAI_API_KEY``.
        timeout: The limit for a request and its retries, in seconds. None means the timeout of the
            user's client, or 60.
        max_retries: None means the client's default.
        stream: Whether to stream answers, which keeps slow ones alive behind proxies.
        options: More fields of the request, such as ``temperature``, ``seed`` or ``max_tokens``.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = None
    timeout: float | None = None
    max_retries: int | None = None
    stream: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def is_openai_client(judge: Any) -> bool:
    """Whether an object is an OpenAI client, or has the same interface."""
    completions = getattr(getattr(judge, "chat", None), "completions", None)
    return callable(getattr(completions, "create", None))


def _is_async(client: Any) -> bool:
    is_named_async = any(cls.__name__.startswith("Async") for cls in type(client).__mro__)
    return is_named_async or inspect.iscoroutinefunction(client.chat.completions.create)


class OpenAIBackend:
    """A model behind an OpenAI-compatible server.

    The timeout covers a request with all its retries, however slowly the server sends bytes. Only
    an asynchronous request can be cancelled at that point, so blocking evaluators send theirs on a
    background event loop.

    Args:
        server: The model and the options of requests.
        client: The user's client; None creates one.
        is_async: Whether the evaluator is asynchronous.

    Raises:
        ConfigError: The client is asynchronous and the evaluator is not.
    """

    modes: tuple[OutputMode, ...] = OUTPUT_MODES

    def __init__(self, server: ModelServer, client: Any = None, *, is_async: bool = False) -> None:
        if client is not None and _is_async(client) and not is_async:
            raise blocking_only_error("an asynchronous OpenAI client")
        self.server, self.model = server, server.model
        self._user_client = client
        self._opened_at: str | None = None
        self._lock = threading.Lock()
        self._background_client: Any = None
        # A client's connections belong to the event loop that opened them.
        self._loop_clients: dict[Any, tuple[Any, AsyncGenerator[Any, None]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the server, with its key if the user gave one; connections are opened anew.

        Raises:
            ConfigError: It uses the user's client.
        """
        if self._user_client is not None:
            raise ConfigError(
                "a judge with an OpenAI client cannot be pickled; give model= and base_url= instead"
            )
        return OpenAIBackend, (self.server,)

    @property
    def endpoint(self) -> tuple[str, str]:
        """The server's address, "" for OpenAI's own, and the model's name."""
        address = getattr(self._user_client, "base_url", None)
        address = address or self.server.base_url or self._opened_at
        if address is None and self._user_client is None:
            address = os.environ.get("OPENAI_BASE_URL")
        return str(address or "").rstrip("/"), self.model

    @property
    def answer_limit(self) -> int | None:
        """The ``max_completion_tokens`` or ``max_tokens`` of requests."""
        options = self.server.options
        limits = [token_count(options.get(key)) for key in ("max_completion_tokens", "max_tokens")]
        return next((limit for limit in limits if limit), None)

    def identity(self) -> Mapping[str, Any]:
        """The server's address, the model and the options of requests."""
        address, model = self.endpoint
        return {"server": address, "model": model, "options": dict(self.server.options)}

    async def send(self, request: CompletionRequest) -> ModelReply:
        """Request a chat completion."""
        if self._user_client is None:
            return await IoCall[ModelReply](
                lambda: self._send_in_background(request), lambda: self._send_on_loop(request)
            )
        if _is_async(self._user_client):
            client = self._with_retries(self._user_client)
            return await IoCall[ModelReply](
                lambda: _loop.run(self._send_with(client, request)),
                lambda: self._send_with(client, request),
            )
        return await IoCall[ModelReply](
            lambda: self._send_in_thread(request),
            lambda: asyncio.to_thread(self._send_in_thread, request),
        )

    def close(self) -> None:
        """Close the connections that the backend opened; the user's client stays open."""
        with self._lock:
            client, self._background_client = self._background_client, None
        if client is not None:
            _loop.run(client.close())

    def _send_in_background(self, request: CompletionRequest) -> ModelReply:
        """Send a request with the client of the background event loop."""
        with self._lock:
            if self._background_client is None:
                client = self._open_client()
                # An evaluator that nobody closes leaves no connection open.
                weakref.finalize(self, lambda: _loop.start(client.close())).atexit = False
                self._background_client = client
            client = self._background_client
        return _loop.run(self._send_with(client, request))

    async def _send_on_loop(self, request: CompletionRequest) -> ModelReply:
        """Send a request with the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loop_clients:
            client = self._open_client()
            closing = _close_with_loop(client, lambda: self._loop_clients.pop(loop, None))
            self._loop_clients[loop] = client, closing
            await anext(closing)
        return await self._send_with(self._loop_clients[loop][0], request)

    async def _send_with(self, client: Any, request: CompletionRequest) -> ModelReply:
        """Send a request with an asynchronous client, within the timeout."""
        return await self._limit_time(self._complete(client, request))

    def _send_in_thread(self, request: CompletionRequest) -> ModelReply:
        """Send a request with the user's blocking client, within the timeout."""
        try:
            client = self._with_retries(self._user_client)
            reply: ModelReply = call(
                lambda: drive(self._complete(client, request)), self._timeout()
            )
            return reply
        except TimeoutError:
            raise self._timeout_error() from None

    async def _complete(self, client: Any, request: CompletionRequest) -> ModelReply:
        """Send a request and read the response; awaits nothing if the client is blocking.

        The client repeats requests after an HTTP error. This method repeats requests whose answer
        contains an error, up to the same number of times.
        """
        retries = getattr(client, "max_retries", 0)
        attempts = 1 + (retries if isinstance(retries, int) else 0)
        for attempt in range(attempts):
            try:
                return await self._complete_once(client, request)
            except Exception as error:
                server_error = _error_of(error)
                is_last = attempt + 1 == attempts
                if is_last or server_error is None or not server_error.is_temporary:
                    raise self._explain(error) from error
            delay = min(_FIRST_DELAY * 2**attempt, _LONGEST_DELAY)
            if _is_async(client):
                await asyncio.sleep(delay)
            else:
                threading.Event().wait(delay)
        raise AssertionError("the last attempt returns or raises")

    async def _complete_once(self, client: Any, request: CompletionRequest) -> ModelReply:
        is_async = _is_async(client)
        response = client.chat.completions.create(**self._body(request))
        if is_async:
            response = await response
        if isinstance(response, list):  # instead of a completion
            response = _without_error(response)
        if hasattr(response, "choices"):
            return read_completion(_without_error(response), request)
        if _is_json(response):
            raw = response.response
            body = _parse(await raw.aread() if is_async else raw.read())
            return read_completion(_without_error(body), request)
        streamed = StreamedCompletion()
        if is_async:
            async for chunk in response:
                streamed.add(_without_error(chunk))
        else:
            for chunk in response:
                streamed.add(_without_error(chunk))
        return streamed.completion(request)

    async def _limit_time(self, request: Coroutine[Any, Any, ModelReply]) -> ModelReply:
        try:
            return await asyncio.wait_for(request, self._timeout())
        except TimeoutError:
            raise self._timeout_error() from None

    def _timeout(self) -> float | None:
        """The limit for a request in seconds; None if the user's client sets none."""
        if self.server.timeout is not None:
            return self.server.timeout
        if self._user_client is None:
            return DEFAULT_TIMEOUT
        timeout = getattr(self._user_client, "timeout", None)
        seconds = getattr(timeout, "read", timeout)
        return float(seconds) if isinstance(seconds, (int, float)) else None

    def _timeout_error(self) -> JudgeError:
        return JudgeError(f"no answer from {self._address} within {self._timeout() or 0:g} s")

    @property
    def _address(self) -> str:
        return self.endpoint[0] or "https://api.openai.com/v1"

    def _open_client(self) -> Any:
        address = self.endpoint[0]
        try:
            client = _make_client(self.server, address or None)
        except Exception as error:
            raise self._explain(error) from error
        self._opened_at = address
        return client

    def _with_retries(self, client: Any) -> Any:
        if self.server.max_retries is not None:
            return client.with_options(max_retries=self.server.max_retries)
        return client

    def _body(self, request: CompletionRequest) -> dict[str, Any]:
        """The keyword arguments of the client's ``create``."""
        body: dict[str, Any] = {"model": self.model, "messages": list(request.messages)}
        body.update(self.server.options)
        if self._user_client is not None and self.server.timeout is not None:
            body["timeout"] = self.server.timeout
        if self.server.stream:
            body.update(stream=True, stream_options={"include_usage": True})
        schema = request.schema
        if request.mode == "json_schema":
            json_schema = {
                "name": schema.name,
                "schema": dict(schema.json),
                "strict": schema.strict,
            }
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        elif request.mode == "tool":
            function: dict[str, Any] = {
                "name": schema.name,
                "description": "Hand in the answer.",
                "parameters": dict(schema.json),
            }
            body["tools"] = [{"type": "function", "function": function}]
            body["tool_choice"] = {"type": "function", "function": {"name": schema.name}}
        elif request.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _explain(self, error: Exception) -> JudgeError:
        """The `JudgeError` for a client's exception, in one line with the remedy."""
        import openai

        if (server_error := _error_of(error)) is not None:
            return server_error.explained(self._address, self.server.options)
        if isinstance(error, JudgeError):
            return error
        if isinstance(error, openai.APITimeoutError):
            return self._timeout_error()
        if target := refused_redirect(error):
            return JudgeError(
                f"{self._address} redirects to another host, {target}, which would "
                "get the transcript and the key; give that address as base_url if it is right"
            )
        if isinstance(error, openai.APIStatusError):
            server_error = ServerError.of(error.body or str(error), error.status_code)
            return server_error.explained(self._address, self.server.options)
        if isinstance(error, openai.APIConnectionError):
            cause = one_line(error.__cause__ or error, 200)
            return JudgeError(f"cannot reach {self._address}: {cause}")
        text = one_line(error)
        if isinstance(error, openai.OpenAIError) and "api_key" in text:
            return JudgeError("no API key: set OPENAI_API_KEY, or give api_key")
        return JudgeError(f"{type(error).__name__}: {text}")


def _error_of(error: Exception) -> ServerError | None:
    """The error in an answer with status 200, or in a stream; None for other errors."""
    if isinstance(error, ServerErrorInAnswer):
        return error.error
    import openai

    # The client raises this class itself only for an error among the events of a stream.
    return ServerError.of(error.body) if type(error) is openai.APIError and error.body else None


def _without_error(answer: Any) -> Any:
    """An answer, or a chunk of an answer, without an error.

    Raises:
        ServerErrorInAnswer: It contains an error.
    """
    server_error = error_in_answer(answer)
    if server_error is not None:
        raise ServerErrorInAnswer(server_error)
    return answer


def _make_client(server: ModelServer, address: str | None) -> Any:
    """An asynchronous client; a server other than OpenAI's needs no key."""
    import openai

    options: dict[str, Any] = {}
    if server.max_retries is not None:
        options["max_retries"] = server.max_retries
    options["timeout"] = DEFAULT_TIMEOUT if server.timeout is None else server.timeout
    key = server.api_key
    if key is None and server.base_url is not None and not os.environ.get("OPENAI_API_KEY"):
        key = "none"
    http = http_client(is_async=True)
    return openai.AsyncOpenAI(base_url=address, api_key=key, http_client=http, **options)


async def _close_with_loop(client: Any, forget: Callable[[], Any]) -> AsyncGenerator[Any, None]:
    """Close a client when its event loop ends, which closes all unfinished async generators."""
    try:
        yield client
    finally:
        forget()
        await client.close()


def _is_json(stream: Any) -> bool:
    """Whether a server sent a whole completion instead of the requested stream."""
    headers = getattr(getattr(stream, "response", None), "headers", None) or {}
    return "json" in str(headers.get("content-type", "")).lower()


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        excerpt = " ".join(body[:200].decode("utf-8", "replace").split())
        raise JudgeError(f"the server's reply is not a chat completion: {excerpt}") from None


def key_in_environment(name: str) -> str:
    """The key in an environment variable, or ""."""
    return os.environ.get(name, "")
