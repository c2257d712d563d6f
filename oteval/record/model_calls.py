"""`oteval.model_call`: the span of one call of a model that no instrumentation covers.

    with oteval.model_call(model="m", messages=messages) as call:
        response = call.answer(client.complete(messages))

The messages and the answer may be objects of OpenAI's or Anthropic's libraries, dicts, or texts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from ..model import TokenCounts
from . import conventions
from .content import is_captured
from .faults import guarded
from .provider_messages import AnswerStream, read_answer
from .span_scope import SpanScope, start_scope

__all__ = ["CallOfModel", "model_call"]

T = TypeVar("T")
_PROVIDERS = {"gpt-": "openai", "o1": "openai", "o3": "openai", "claude": "anthropic"}


def model_call(
    *,
    model: str,
    messages: Any = None,
    system: Any = None,
    tools: Sequence[Any] | None = None,
    provider: str = "",
    operation: str = "chat",
    capture_content: bool = True,
    **settings: Any,
) -> CallOfModel:
    """Write a span for a call of a model; use it in ``with`` or ``async with``.

    Args:
        model: The model's name.
        messages: The conversation sent: messages, items of the Responses API, or a text. It is read
            at the start, so that later changes of the list do not matter.
        system: System instructions that are sent apart from the messages.
        tools: The definitions of the tools.
        provider: The provider's name, such as ``openai``; by default guessed from the model.
        operation: The conventions' name of the operation.
        capture_content: Whether to record messages and definitions.
        **settings: Options of the request, such as ``temperature``; options that the conventions
            know become attributes.

    Returns:
        The call, whose methods take the answer.
    """
    return CallOfModel(
        model=model,
        messages=messages,
        system=system,
        tools=tools,
        provider=provider,
        operation=operation,
        capture_content=capture_content,
        settings=settings,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class CallOfModel:
    """A call of a model while its ``with`` block runs. Its methods never fail."""

    model: str
    messages: Any
    system: Any
    tools: Sequence[Any] | None
    provider: str
    operation: str
    capture_content: bool
    settings: dict[str, Any]
    _scope: SpanScope | None = field(default=None, init=False)
    _stream: AnswerStream | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _has_content: bool = field(default=False, init=False)

    def __enter__(self) -> CallOfModel:
        """Start the span and make it current."""
        model = str(self.model)
        provider = self.provider or _provider_of(model)
        start = conventions.model_call_start(model, provider, self.operation)
        self._scope = start_scope(f"{self.operation} {model}", start, is_client=True)
        if self._scope is None:
            return self
        self._started = time.perf_counter()
        self._has_content = self.capture_content and is_captured()
        self._record(lambda: conventions.setting_attributes(self.settings), "settings")
        if self._has_content:
            self._record(
                lambda: conventions.model_input(self.messages, self.system, self.tools), "input"
            )
        self._scope.attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record an exception, if there is one, and end the span."""
        if self._scope is None:
            return
        if self._stream is not None:
            with guarded("reading a streamed answer"):
                self._set(self._stream.answer())
        if error is not None and kind is not GeneratorExit:
            self._scope.fail(error)
        self._scope.detach(is_closed=kind is GeneratorExit)
        self._scope.end()

    async def __aenter__(self) -> CallOfModel:
        """Start the span and make it current."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record an exception, if there is one, and end the span."""
        self.__exit__(kind, error, traceback)

    def answer(self, response: T) -> T:
        """Record the answer.

        Args:
            response: A provider's response, a message, or a text.

        Returns:
            The response.
        """
        if self._scope is not None and self._scope.is_recording:
            self._stream = None
            with guarded("reading an answer"):
                self._set(read_answer(response))
        return response

    def chunk(self, chunk: T) -> T:
        """Record a chunk of a streamed answer: a provider's chunk, or a text.

        Args:
            chunk: The chunk.

        Returns:
            The chunk.
        """
        if self._scope is not None and self._scope.is_recording:
            with guarded("reading a chunk"):
                if self._stream is None:
                    self._stream = AnswerStream()
                    waited = time.perf_counter() - self._started
                    self._record(lambda: conventions.stream_attributes(waited), "first chunk")
                self._stream.add(chunk)
        return chunk

    def stream(self, chunks: Iterable[T]) -> Iterator[T]:
        """Yield the chunks of a streamed answer, and record them.

        Args:
            chunks: The chunks, such as a provider's stream.
        """
        for chunk in chunks:
            yield self.chunk(chunk)

    async def astream(self, chunks: AsyncIterable[T]) -> AsyncIterator[T]:
        """Yield the chunks of an asynchronous stream, and record them.

        Args:
            chunks: The chunks.
        """
        async for chunk in chunks:
            yield self.chunk(chunk)

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cache_write_tokens: int | None = None,
    ) -> None:
        """Record tokens that the answer lacks.

        Args:
            input_tokens: The input tokens, including cached tokens.
            output_tokens: The output tokens, including reasoning.
            cached_tokens: The input tokens read from a cache.
            reasoning_tokens: The output tokens of reasoning.
            cache_write_tokens: The input tokens written to a cache.
        """
        tokens = TokenCounts(
            input_tokens, output_tokens, cached_tokens, reasoning_tokens, cache_write_tokens
        )
        self._record(lambda: conventions.token_attributes(tokens), "usage")

    def finish_reason(self, reason: str) -> None:
        """Record why the model stopped, if the answer lacks it.

        Args:
            reason: Such as ``stop``, ``tool_calls`` or ``length``.
        """
        self._record(lambda: conventions.finish_attributes(reason), "finish reason")

    def _set(self, answer: Any) -> None:
        has_content = self._has_content
        self._record(
            lambda: conventions.answer_attributes(answer, has_content=has_content), "answer"
        )

    def _record(self, attributes: Any, part: str) -> None:
        if self._scope is not None:
            self._scope.record(attributes, f"recording the {part} of a model call")


def _provider_of(model: str) -> str:
    """The provider of a model, guessed from its name; or ""."""
    name = model.rpartition("/")[2]
    return next(
        (provider for prefix, provider in _PROVIDERS.items() if name.startswith(prefix)), ""
    )
